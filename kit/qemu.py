# SPDX-License-Identifier: GPL-2.0-only
"""Which QEMU to run: version 10 or later, the system's or one unpacked below the build directory.

Where each CPU of a guest has a thread of its own, guests that toggle scheduler features die of
"Oops: int3" now and then. The kernel patches its jump labels then; it looks as if a CPU went on with
QEMU's translation of the breakpoint after that is gone, but it is not proved. So the CPUs take turns,
by a clock that counts instructions; QEMU 7.2 is so unfair at that that a busy guest hardly moves.
And only from version 10 on can it be told which cores share an L2. Debian 12 has 7.2, and 10 in
its backports.
"""

import os
import re
import shutil
from dataclasses import dataclass
from functools import cache

from kit import paths
from kit.run import Error, lock, say, sh, warn

PROGRAM = "qemu-system-x86_64"
GOOD_VERSION = 10
FETCH_SECONDS = 600


class Unavailable(Error):
    """There is no QEMU here that can emulate the machine."""


@dataclass(frozen=True)
class Qemu:
    """A QEMU: its command, what to add to the environment, and whether it lets the CPUs take
    turns fairly."""
    command: tuple
    env: dict
    fair: bool


@cache
def find(smp_cache=False):
    """Give the Qemu to run.

    smp_cache: it has to be told which cores share an L2. Unavailable if there is none that can.
    """
    system = shutil.which(PROGRAM)
    if system and _version([system], {}) >= GOOD_VERSION:
        return Qemu((system,), {}, True)
    try:
        return _fetched()
    except Unavailable as error:
        if smp_cache or not system:
            raise
        warn(f"{error}\nwith QEMU older than {GOOD_VERSION} a guest may die of \"Oops: int3\": "
             "see docs/working.md")
        return Qemu((system,), {}, False)


def _version(command, env):
    """Give the major version, as an int; Unavailable if the program does not run."""
    done = sh([*command, "--version"], env=env, capture=True, check=False, timeout=30)
    match = re.match(r"QEMU emulator version (\d+)\.", done.out)
    if not match:
        raise Unavailable(f"{command[0]} does not run: {(done.err or done.out).strip()}")
    return int(match[1])


def _fetched():
    """Give the Qemu below the build directory, fetched if it is not there yet."""
    work = paths.BUILD / "qemu"
    root = work / "root"
    with lock(paths.BUILD / "qemu.lock"):
        if not (root / "usr/bin" / PROGRAM).exists():
            _fetch(work, root)
    command = (str(root / "usr/bin" / PROGRAM), "-L", str(root / "usr/share/qemu"),
               "-L", str(root / "usr/share/seabios"))
    env = {"LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")}
    version = _version(command, env)
    if version < GOOD_VERSION:
        raise Unavailable(f"the release's backports have QEMU {version}, not {GOOD_VERSION}")
    return Qemu(command, env, True)


def _fetch(work, root):
    """Unpack QEMU and what it needs from the release's backports into root.

    apt is given lists and caches of its own: the system's stay as they are. Nothing that is
    installed already is fetched again.
    """
    shutil.rmtree(work, ignore_errors=True)
    (work / "lists").mkdir(parents=True)
    (work / "cache/archives").mkdir(parents=True)
    uri, release = _archive()
    suites = (release, f"{release}-backports")
    (work / "sources.list").write_text("".join(f"deb {uri} {suite} main\n" for suite in suites))
    options = ["-q", "-y", "-o", f"Dir::Etc::sourcelist={work}/sources.list",
               "-o", "Dir::Etc::sourceparts=-", "-o", f"Dir::State::lists={work}/lists",
               "-o", f"Dir::Cache={work}/cache", "-o", "Debug::NoLocking=1"]
    if os.geteuid() == 0:
        # apt's own user may not be able to write below a build directory in somebody's home.
        options += ["-o", "APT::Sandbox::User=root"]
    say(f"fetching QEMU {GOOD_VERSION} from {release}-backports into {work}")
    log = work / "log"
    unpacked = work / "unpacked"
    try:
        sh(["apt-get", *options, "update"], log=log, timeout=FETCH_SECONDS)
        sh(["apt-get", *options, "--download-only", "--no-install-recommends", "-t",
            f"{release}-backports", "install", "qemu-system-x86"], log=log,
           timeout=FETCH_SECONDS)
        for deb in sorted((work / "cache/archives").glob("*.deb")):
            sh(["dpkg", "-x", deb, unpacked], log=log, timeout=FETCH_SECONDS)
    except Error as error:
        raise Unavailable(f"no QEMU {GOOD_VERSION}: {error}") from error
    if not (unpacked / "usr/bin" / PROGRAM).exists():
        raise Unavailable(f"{release}-backports has no newer {PROGRAM}: see {log}")
    unpacked.rename(root)


def _archive():
    """Give (URI of the Debian archive this machine uses, codename of its release)."""
    if not shutil.which("apt-get"):
        raise Unavailable(f"no QEMU {GOOD_VERSION}: it is not installed, and this is not Debian")
    done = sh(["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)",
               "Created-By: Packages", "Origin: Debian", "Component: main"], capture=True,
              timeout=60)
    for line in done.out.splitlines():
        codename, uri = line.split(" ", 1)
        # The release itself, not its -updates or -security.
        if "-" not in codename:
            return uri, codename
    raise Unavailable(f"no QEMU {GOOD_VERSION}: apt knows no Debian archive to take it from (has "
                      "apt-get update been run?)")
