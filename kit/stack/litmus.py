# SPDX-License-Identifier: GPL-2.0-only
"""`make litmus`: run the litmus tests of the series against the kernel's memory model.

Debian 12 and 13 have no herd7. It is fetched from a later release with the libraries it needs, and
unpacked below the build directory.
"""

import re

from kit import apt
from kit.process import Error, lock, say, sh
from kit.stack import patches

SUITES = ("forky", "sid")
PACKAGE = "herdtools7"
TESTS = "Documentation/litmus-tests/sched"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
SECONDS = 300


def command(settings):
    """Run all litmus tests for kit.__main__; return 0 only if each has the result it declares."""
    source = patches.ensure(settings.series)
    tests = sorted((source / TESTS).glob("*.litmus"))
    if not tests:
        raise Error(f"there are no litmus tests in {source / TESTS}")
    herd = _fetched(settings.build)
    wrong = [test.name for test in tests if not run(herd, source / "tools/memory-model", test)]
    say(f"{len(tests) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


def run(herd, model, test):
    """Run one litmus test, print its outcome, and return whether that is the Result in its comment.

    herd: herd7 as the beginning of a command; model: the directory of the memory model. Error if
    herd7 cannot run the test.
    """
    wanted = re.search(r"^ \* Result: (\w+)$", test.read_text(), re.M)
    if not wanted:
        raise Error(f"{test} does not declare a Result")
    out = sh([*herd, "-conf", "linux-kernel.cfg", test], cwd=model, capture=True,
             timeout=SECONDS).out
    found = re.search(r"^Observation \S+ (\w+) (\d+) (\d+)$", out, re.M)
    if not found:
        raise Error(f"herd7 printed no observation of {test}:\n{out}")
    good = found[1] == wanted[1]
    say(f"{'ok' if good else 'NOT OK'}: {test.stem}: {found[1]}, declared {wanted[1]}; in {found[2]} of "
        f"{int(found[2]) + int(found[3])} outcomes")
    return good


def _fetched(build):
    """Return herd7 as the beginning of a command; fetch it below the directory `build` on first use."""
    work = build / "herd"
    root = work / "root"
    with lock(build / "herd.lock"):
        if not (root / "usr/bin/herd7").exists():
            _fetch(work, root)
    libraries = root / LIBRARIES
    return [libraries / "ld-linux-x86-64.so.2", "--library-path", libraries, root / "usr/bin/herd7",
            "-set-libdir", root / "usr/share/herdtools7/herd"]


def _fetch(work, root):
    uri, _ = apt.archive()
    for suite in SUITES:
        source = apt.Apt(work, uri, (suite,))
        if source.versions(PACKAGE):
            break
    else:
        raise Error(f"none of {', '.join(SUITES)} has {PACKAGE}")
    say(f"fetching {PACKAGE} from {suite} into {work}")
    unpacked = work / "unpacked"
    source.unpack([PACKAGE], suite, unpacked)
    unpacked.rename(root)
