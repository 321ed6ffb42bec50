# SPDX-License-Identifier: GPL-2.0-only
"""make each-patch: build and boot each patch of the series with the selftests that exist by then.

A copy of this repository in the build directory gets the first N patches of the series, for each N, and runs
`make selftest` there. A patch that passed is not run again while it, those before it and the copy's other
files are the same.
"""

import hashlib
import json
import shutil
import sys
from contextlib import suppress

from kit import settings
from kit.paths import BUILD, ROOT, SERIES
from kit.process import Error, git, lock, say, sh
from kit.stack import patches

WORK = BUILD / "each"
# What `make selftest` needs of the repository, besides the patches.
COPIED = ("kit", "configs", "guest", "machines", "packages.txt", "commands.txt", "VERSION")


def chosen(words, count) -> list[int]:
    """The numbers of the patches, from 1, for words such as "3" and "5..8"; all for no words."""
    found = []
    for word in words or [f"1..{count}"]:
        first, dots, last = word.partition("..")
        if not first.isdecimal() or dots and not last.isdecimal():
            raise Error(f"PATCHES={word}: not a number or FIRST..LAST")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers or numbers[0] < 1 or numbers[-1] > count:
            raise Error(f"PATCHES={word}: the series has the patches 1 to {count}")
        found += numbers
    return sorted(set(found))


def run(number) -> list:
    """Build and boot the first `number` patches: whether that passed, and the last line of what it printed."""
    for name in COPIED:
        copy = WORK / name
        if (ROOT / name).is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(ROOT / name, copy, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    there = WORK / "patches" / SERIES.name
    there.mkdir(parents=True, exist_ok=True)
    shutil.copy(SERIES.pin, WORK / SERIES.pin.relative_to(ROOT))
    names = patches.listed()[:number]
    for name in names:
        shutil.copy(SERIES.patches / name, there)
    (there / "series").write_text("".join(name + "\n" for name in names))
    (WORK / "build").mkdir(exist_ok=True)
    # What is fetched or cached is shared.
    for name in ("base", "ccache", "qemu"):
        (BUILD / name).mkdir(exist_ok=True)
        with suppress(FileExistsError):
            (WORK / "build" / name).symlink_to(BUILD / name)

    log = WORK / f"{number}.log"
    log.unlink(missing_ok=True)
    env = {"KIT_BUILD": WORK / "build", "PATCHES": None, "BUILD": None}

    def kit(command):
        return not sh([sys.executable, "-m", "kit", command], cwd=WORK, env=env, log=log, check=False).status

    good = kit("tree")
    if good:
        # Leave out options that a later patch adds.
        linux, config = WORK / "build" / SERIES.work.name / "linux", WORK / "configs/stack.config"
        lines = [line for line in config.read_text().splitlines(True) if not line.startswith("CONFIG_")
                 or git(linux, "grep", "-qw", f"config {line[7:].partition('=')[0]}", "--", "*Kconfig*",
                        check=False).status == 0]
        config.write_text("".join(lines))
        good = kit("selftest")
    said = log.read_text(errors="replace").strip().splitlines() or ["nothing printed"]
    return [good, said[-1]]


def key(number) -> str:
    """What a result depends on: the patches up to a number, and what is copied."""
    files = [SERIES.pin, *(SERIES.patches / name for name in patches.listed()[:number])]
    for name in COPIED:
        files += sorted(path for path in [ROOT / name, *(ROOT / name).rglob("*")]
                        if path.is_file() and path.suffix != ".pyc")
    whole = hashlib.sha256(f"{settings.get('MACHINE')} {settings.get('LINUX')}".encode())
    for path in files:
        whole.update(path.read_bytes())
    return whole.hexdigest()


def command(_args=None) -> int:
    """kit each-patch: run what has not passed yet, print the table; 1 if a patch fails."""
    names = patches.listed()
    numbers = chosen(settings.get("PATCHES"), len(names))
    WORK.mkdir(parents=True, exist_ok=True)
    table, passed, failures = WORK / "passed.json", {}, 0
    with lock(WORK / "lock"):
        with suppress(OSError, ValueError):
            passed = json.loads(table.read_text())
        for number in numbers:
            id_ = key(number)
            good, said = [True, passed[id_]] if id_ in passed else run(number)
            say(f"{number:3} {'ok    ' if good else 'FAILED'} {names[number - 1]}: {said}")
            failures += not good
            if good:
                passed[id_] = said
                table.write_text(json.dumps(passed))
    say(f"{len(numbers)} patches, {failures} failed; logs: {WORK}/<number>.log")
    return 1 if failures else 0
