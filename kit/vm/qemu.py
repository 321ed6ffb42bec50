# SPDX-License-Identifier: GPL-2.0-only
"""Which QEMU to run: the system's from version 10 on, else the pinned one below the build directory.

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
from pathlib import Path

from kit import apt, pinned, toml
from kit.process import Error, lock, say, sh

PROGRAM = "qemu-system-x86_64"
OLDEST = 10
PIN = Path(__file__).with_name("qemu.toml")
WAY_OUT = (f"Way out: install QEMU {OLDEST} or later (Debian 13 has it), or use the container of"
           " docs/hosts.md")


class Unavailable(Error):
    """There is no QEMU here that can emulate the machines."""


@dataclass(frozen=True)
class Qemu:
    """A QEMU: its command, and what to add to the environment."""
    command: tuple
    env: dict


@cache
def find(build):
    """Give the Qemu to run, the pinned one below the directory `build`; Unavailable, with the way out, if the system's is too old and the
    pinned one cannot be had."""
    system = shutil.which(PROGRAM)
    found = Qemu((system,), {})
    if system and _major(found) >= OLDEST:
        return found
    try:
        return _fetched(build)
    except Error as error:
        have = f"{system} is QEMU {version(found)}" if system else f"{PROGRAM} is not installed"
        raise Unavailable(
            f"{have}; the guests need {OLDEST} or later.\n{error}\n{WAY_OUT}") from error


def version(program):
    """Give the version of a Qemu, "10.0.2"; Unavailable if it does not run."""
    done = sh([*program.command, "--version"], env=program.env, capture=True, check=False,
              timeout=30)
    match = re.match(r"QEMU emulator version ([\d.]+)", done.out)
    if not match:
        raise Unavailable(f"{program.command[0]} does not run: {(done.err or done.out).strip()}")
    return match[1]


def _major(program):
    return int(version(program).split(".")[0])


def _fetched(build):
    """Give the pinned Qemu below the build directory, fetched if it is not there yet."""
    work = build / "qemu"
    root = work / "root"
    with lock(build / "qemu.lock"):
        if not (root / "usr/bin" / PROGRAM).exists():
            _fetch(work, root)
    found = Qemu((str(root / "usr/bin" / PROGRAM), "-L", str(root / "usr/share/qemu"),
                  "-L", str(root / "usr/share/seabios")),
                 {"LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")})
    version(found)
    return found


def _fetch(work, root):
    """Unpack the pinned QEMU, and what it needs from the release, into root."""
    pin = toml.read(PIN)
    uri, release = apt.archive()
    if release != pin["release"]:
        raise Error(f"the pinned QEMU is for Debian {pin['release']}, this is {release}")
    try:
        source = apt.Apt(work, uri, (release, pin["suite"]))
    except Error:
        # The archive no longer has the suite. The URLs of the pin may have the packages.
        source = apt.Apt(work, uri, (release,))
    files = []
    for values in pin["deb"]:
        deb = pinned.Deb(values["package"], values["version"], values["sha256"], pin["suite"],
                         tuple(values["urls"]))
        files.append(work / f"{deb.package}.deb")
        pinned.fetch(deb, files[-1], "Nothing else can stand in for it", source)
    say(f"unpacking QEMU into {work}")
    unpacked = work / "unpacked"
    source.unpack(files, release, unpacked)
    unpacked.rename(root)
