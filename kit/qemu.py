# SPDX-License-Identifier: GPL-2.0-only
"""Which QEMU to run: version 10 or later, the system's or one unpacked below the build directory.

Where each CPU of a guest has a thread of its own, guests that toggle scheduler features die of
"Oops: int3" now and then. The kernel patches its jump labels then; it looks as if a CPU went on with
QEMU's translation of the breakpoint after that is gone, but it is not proved. So the CPUs take turns,
by a clock that counts instructions; QEMU 7.2 is so unfair at that that a busy guest hardly moves.
And only from version 10 on can it be told which cores share an L2. Debian 12 has 7.2, and 10 in
its backports.
"""

import re
import shutil
from dataclasses import dataclass
from functools import cache

from kit import apt, paths
from kit.run import Error, lock, say, sh, warn

PROGRAM = "qemu-system-x86_64"
GOOD_VERSION = 10


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
    if system and _major([system], {}) >= GOOD_VERSION:
        return Qemu((system,), {}, True)
    try:
        return _fetched()
    except Unavailable as error:
        if smp_cache or not system:
            raise
        warn(f"{error}\nwith QEMU older than {GOOD_VERSION} a guest may die of \"Oops: int3\": "
             "see docs/working.md")
        return Qemu((system,), {}, False)


def version(program):
    """Give the version of a Qemu, "10.0.2"; Unavailable if it does not run."""
    return _version(program.command, program.env)


def _version(command, env):
    done = sh([*command, "--version"], env=env, capture=True, check=False, timeout=30)
    match = re.match(r"QEMU emulator version ([\d.]+)", done.out)
    if not match:
        raise Unavailable(f"{command[0]} does not run: {(done.err or done.out).strip()}")
    return match[1]


def _major(command, env):
    return int(_version(command, env).split(".")[0])


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
    if _major(command, env) < GOOD_VERSION:
        raise Unavailable(f"the release's backports have QEMU {_version(command, env)}, not "
                          f"{GOOD_VERSION}")
    return Qemu(command, env, True)


def _fetch(work, root):
    """Unpack QEMU and what it needs from the release's backports into root."""
    try:
        uri, release = apt.archive()
        backports = f"{release}-backports"
        say(f"fetching QEMU {GOOD_VERSION} from {backports} into {work}")
        source = apt.Apt(work, uri, (release, backports))
        unpacked = work / "unpacked"
        source.unpack("qemu-system-x86", backports, unpacked)
    except Error as error:
        raise Unavailable(f"no QEMU {GOOD_VERSION}: {error}") from error
    if not (unpacked / "usr/bin" / PROGRAM).exists():
        raise Unavailable(f"{backports} has no newer {PROGRAM}: see {source.log}")
    unpacked.rename(root)
