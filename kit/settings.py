# SPDX-License-Identifier: GPL-2.0-only
"""Every setting of the kit: name, type, default, help. commands.txt says which command takes which.

A setting is given as NAME=VALUE, on make's command line, behind `python3 -m kit COMMAND`, or in the
environment. kit.__main__ reads all of a command's once, into Settings, and hands them to it. Python 3.9 is enough, because bench-host runs on other hosts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from kit.commands import COMMANDS
from kit.paths import DEFAULT, ROOT, Series
from kit.process import Error

# What a command-line variable of make's may be called that is no setting of the kit.
MAKE_ONLY = ("PYTHON", "V", "DEPS", "TIERS", "SUDO")
# The prescribed starts of a simulation, see guest/workload/measure.c.
STARTS = ("together", "two-llcs", "two-sockets", "scattered")


@dataclass(frozen=True)
class Setting:
    """One setting.

    parse turns the text into the value and raises ValueError with what it accepts; an empty text
    means the default.
    """

    name: str
    parse: Callable
    default: object
    help: str

    def value(self, text):
        """The value that a text means. Error for one of the wrong type."""
        if not text:
            return self.default
        try:
            return self.parse(text)
        except ValueError as error:
            raise Error(f"{self.name}={text}: must be {error}") from None


def switch(text):
    """Parse "0" or "1" into a bool."""
    if text not in ("0", "1"):
        raise ValueError("0 or 1")
    return text == "1"


def number(low, high):
    """Give a parser of whole numbers from low to high."""
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)
    return parse


def one_of(*known):
    """Give a parser of one of some words."""
    def parse(text):
        if text not in known:
            raise ValueError(f"one of {', '.join(known)}")
        return text
    return parse


def name(text):
    """Parse a name that can be part of a file's name in results/."""
    if not re.fullmatch(r"\w[\w.-]*", text):
        raise ValueError("a name of letters, digits, '.', '-' and '_'")
    return text


def words(text):
    """Parse a list of words into a tuple."""
    return tuple(text.split())


def person(text):
    """Parse "Name <address>"."""
    if not re.fullmatch(r"[^\s<>@][^<>@]* <[^\s<>@]+@[^\s<>@]+>", text):
        raise ValueError("'Name <address>'")
    return text


def factors(text):
    """Parse a list of NAME=FACTOR, factors above 0, into a tuple of (name, factor)."""
    found = [re.fullmatch(r"(\w+)=(\d*\.?\d+)", word) for word in text.split()]
    if not all(match and float(match[2]) > 0 for match in found):
        raise ValueError("NAME=FACTOR ..., with factors above 0")
    return tuple((match[1], float(match[2])) for match in found)


SETTINGS = (
    Setting("KIT_BUILD", str, "", "directory of all outputs (default: build/)"),
    Setting("SERIES", str, DEFAULT, "series of patches to work on: a directory below patches/"),
    Setting("LINUX", str, "", "kernel source to use as the base from now on: a directory or tarball;"
            " 'debian' goes back to the pinned one"),
    Setting("BUILD", str, "stack", "kernel to build or run: stack, base, nocache, offstack, base-offstack, debug, kasan, kcsan, leak,"
            " race, races, rt, scx, host or validate; or one of another series, such as 7.3/base"),
    Setting("MACHINE", str, "two-ccx", "machine to emulate: a name from machines/ or a .toml file"),
    Setting("CONFIG", str, "generic", "configuration to package: Debian's cloud or generic one of 6.12, or a .config"
            " file such as /boot/config-$(uname -r)"),
    Setting("MINUTES", number(1, 10_000), 5, "how many minutes of this host's clock to boot guests for, one"
            " after the other (default: 5)"),
    Setting("SEED", number(0, 2**32 - 1), None, "seed of the random numbers of the first guest; the next ones"
            " have SEED + 1, ... (default: random; races and irqsoff: 1)"),
    Setting("PROCESSES", number(1, 1_000_000), 500, "processes with threads that each guest starts before its memory"
            " is checked (default: 500)"),
    Setting("CASES", words, (), "what to run, by the names in the table of make races or of make cases (default: all)"),
    Setting("THREADS", number(1, 512), 0, "how many threads of each attacker compute in parallel (default: half"
            " as many as the machine has CPUs)"),
    Setting("COMPARE", str, "", "series whose unpatched kernel is measured beside ours (7.3)"),
    Setting("COLUMNS", str, "", "columns of the cost table to measure, separated by commas; those that they"
            " are compared with are measured, too (default: all)"),
    Setting("PROFILE", str, "", "row of the cost table, or ROW,COLUMN: list its instructions by"
            " function instead of measuring"),
    Setting("SHORT", switch, False, "1: a short run, to see that the command works; checks: only gcc, checkpatch"
            " and the selftests, in one configuration"),
    Setting("FULL", switch, False, "1: run all workloads in all states, with the durations of the published"
            " runs (default: about an hour, each feature with its primary figures); sim-validate: all"
            " rows"),
    Setting("SAVE", switch, False, "1: write the result to results/, to be committed"),
    Setting("NAME", name, "", "name of the result: that of the host, or that of the simulated experiment"),
    Setting("ROUNDS", number(1, 999), 0, "number of A B B A rounds; each runs a state twice (default: 5; SHORT=1: 1;"
            " peers: of all states, 3)"),
    Setting("WORKLOADS", words, (), "workloads to run in all states, by the beginnings of their names"
            " (default: those with primary figures)"),
    Setting("FEATURES", words, (), "features to measure (default: all that the kernel has)"),
    Setting("STATES", str, "", "further states, NAME:FILE=VALUE,... separated by ';'; files are below"
            " sched/ of debugfs"),
    Setting("AS_IS", switch, False, "1: switch no feature, measure the kernel as it is"),
    Setting("NOISY", switch, False, "1: measure although the host is not quiet"),
    Setting("BENCH_COMMIT", str, "", "set by a copied directory: the commit it was made from"),
    Setting("DIR", str, "", "directory to make (default: bench-host in the build directory)"),
    Setting("SENDER", person, "", "'Name <address>' of the person who will send the mails"),
    Setting("VERSION", number(1, 99), 1, "version of the series, for the subjects: [PATCH v2 ...]"),
    Setting("SIGN", switch, False, "1: add the sender's Signed-off-by, which certifies the origin of the"
            " patches"),
    Setting("FROM", str, "", "directory with results (default: results/)"),
    Setting("WORKLOAD", str, "hackbench", "workload to simulate: NAME or NAME:ARGUMENT:..."),
    Setting("STATE", str, "", "state of the scheduler: [BUILD,]FILE=VALUE,...; with AGAINST also several,"
            " separated by spaces"),
    Setting("AGAINST", str, "", "state to compare with: [BUILD,]FILE=VALUE,..."),
    Setting("START", one_of(*STARTS), "",
            f"where tasks are placed during the warm-up: {', '.join(STARTS)}"
            " (default: wherever the scheduler puts them)"),
    Setting("ABBA", switch, False, "1: measure STATE and AGAINST in windows of one boot, A B B A"),
    Setting("CGROUPS", number(0, 20), 0, "how many control groups deep the workload runs"),
    Setting("WINDOW_MS", number(1, 10_000), 0, "length of each window of ABBA=1, in ms (default: 300)"),
    Setting("SETTLE_MS", number(0, 10_000), 0, "how long the tasks run before the warm-up, most of it without the"
            " simulated caches, in ms: 1000 for what slow placement or sampled memory can decide"),
    Setting("STATS", switch, False, "1: run each state once more with schedstats on, and show wakeups by"
            " path and distance, and load balancing"),
    Setting("SEEDS", number(1, 999), 0, "number of runs of each state, each with a seed of its own (default: 10;"
            " sim-validate: 5)"),
    Setting("ROWS", words, (), "numbers of the rows of kit/sim/published.py to run (default: the short"
            " ones)"),
    Setting("WITHOUT", words, (), "parts of the cache model to switch off, to see what they change"),
    Setting("SCALE", factors, (), "costs to multiply, NAME=FACTOR ...: llc, other_llc, other_socket, memory,"
            " store"),
    Setting("ROUND_NS", number(1, 100_000), 0, "how far the clocks of two CPUs may differ, in ns"
            " (default: by the machine's size)"),
    Setting("EXPERIMENTS", words, (), "rows of results/experiments.toml to run (default: all)"),
    Setting("SENSITIVITY", switch, False, "1: instead, repeat the rows that the table marks for it with each"
            " cost 30 % higher and lower, to see whether the sign holds"),
    Setting("PILOT", switch, False, "1: instead, try these rows with a few other seeds, and print from their spread how"
            " many runs to declare"),
    Setting("TESTS", str, "", "arguments for pytest: a path, or -k EXPRESSION"),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True)
class Settings:
    """The settings of one run of a command: settings[NAME] is a value, or the default. texts: {name: text}
    of those that were given."""

    command: str
    texts: dict
    values: dict

    def __getitem__(self, name):
        return self.values[name]

    @property
    def build(self) -> Path:
        """The directory of all outputs."""
        return Path(self["KIT_BUILD"] or ROOT / "build").resolve()

    @property
    def series(self) -> Series:
        """The series that the command works on."""
        return Series(self["SERIES"], build=self.build, given=self["LINUX"])


def read(command, env):
    """The Settings of a command, of {name: text}, such as the environment. Error for a value of the
    wrong type."""
    takes = of(command)
    return Settings(command, {one.name: env[one.name] for one in takes if env.get(one.name)},
                    {one.name: one.value(env.get(one.name, "")) for one in takes})


def of(command):
    """The settings that a command takes, in the order of the table."""
    takes = ("KIT_BUILD", *COMMANDS[command].settings)
    return [setting for setting in SETTINGS if setting.name in takes]


def given(flags):
    """The names of the variables on make's command line, from MAKEFLAGS ("w -- A=1 B=x\\ y")."""
    _, _, variables = f" {flags}".partition(" -- ")
    return re.findall(r"(?<!\\)(?:^| )([A-Za-z_]\w*)\s*[:?+]*=", variables)


def check(command, names):
    """Check the names of the settings that a command was given explicitly. Error for one that is no
    setting, and for one that the command does not take."""
    takes = [setting.name for setting in of(command)]
    for name_ in names:
        if name_ in MAKE_ONLY:
            continue
        if name_ not in _BY_NAME:
            raise Error(f"{name_}=: no such setting; {command} takes: {' '.join(takes)}")
        if name_ not in takes:
            raise Error(f"{name_}=: {command} does not take this setting; it takes:"
                        f" {' '.join(takes)}")


def text(settings):
    """The lines of a table of settings, for --help and `make settings`."""
    lines = []
    for setting in settings:
        default = f" (default: {setting.default})" if isinstance(setting.default, str) and (
            setting.default) else ""
        lines.append(f"  {setting.name + '=':<16}{setting.help}{default}")
    return lines


def command(_settings):
    """kit settings: print the table of all settings with the commands that take each; 0."""
    for setting in SETTINGS:
        print(text([setting])[0])
        takers = [one.name for one in COMMANDS.values() if setting.name in one.settings]
        print(" " * 18 + (", ".join(takers) or "all commands"))
    return 0
