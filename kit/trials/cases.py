# SPDX-License-Identifier: GPL-2.0-only
"""make cases: programs in the shape of public reports, with a feature and without: does what must hold, hold?

kit/trials/cases.toml has the cases. In a guest, each runs in rounds of the states AGAINST, STATE, STATE, AGAINST
(guest/jobs/cases.sh, guest/cases), with processes of its own. A condition on a number must hold in each run of STATE.
How the states compare is judged by the 95 % interval of the mean over the rounds: it holds, it fails, or the rounds do
not tell. A failure of the command is what fails or was not measured; what the rounds do not tell is printed and is none.
"""

import math
import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from kit import toml
from kit.paths import SIMULATED
from kit.process import Error, say
from kit.results.verdict import quantile
from kit.sim import simulate
from kit.vm import guest, kernel, ktap, machine

TABLE = Path(__file__).with_name("cases.toml")
KEYS = {"name", "run", "reports", "must"}
OPTIONAL = {"cores", "because", "machine"}
STATE, AGAINST = "features=SCHED_CACHE", "features=NO_SCHED_CACHE"
ROUNDS, SHORT_ROUNDS = 5, 1
# Of the guest's clock, for each run, after the program's own warm-up; with SHORT=1.
MS, SHORT_MS = 1000, 500
# Of the guest's clock in the simulation, where a ms of 64 CPUs takes a second.
SIMULATED_MS = 150
# Of this host's clock, for a run: it takes 5 to 20 s; in the simulation, more by far.
RUN_SECONDS, SIMULATED_SECONDS = 60, 3600
HOLDS, FAILS, OPEN = "holds", "FAILS", "open"


@dataclass(frozen=True)
class Must:
    """What must hold of a figure: it is at most, or at least, factor times that of AGAINST plus `plus`; factor is None
    if it is compared with `plus` alone."""

    figure: str
    most: bool
    factor: object
    plus: float

    def excess(self, state, against):
        """By how much a figure of both states is beyond what it must be: positive if it is."""
        limit = self.plus + (self.factor * against if self.factor is not None else 0)
        return state - limit if self.most else limit - state

    def __str__(self):
        limit = f"{self.plus:g}" if self.factor is None else f"{self.factor:g} off" + (
            f" + {self.plus:g}" if self.plus else "")
        return f"{self.figure} {'<=' if self.most else '>='} {limit}"


@dataclass(frozen=True)
class Case:
    """A row of the table: its name, the arguments of the program, the cores of an LLC that it is meant for, or None,
    the machine of the simulation that it is for, or None, where users report it, and what must hold, each a Must."""

    name: str
    run: str
    cores: object
    machine: object
    reports: str
    must: tuple


def must(text):
    """The Must of a text; ValueError if it is none."""
    match = re.fullmatch(r"(\w+) at (most|least) ([\d.]+)( off)?(?: \+ ([\d.]+))?", text)
    if not match or (match[5] and not match[4]):
        raise ValueError(f"{text!r} is not FIGURE at most|least NUMBER [off [+ NUMBER]]")
    value = float(match[3])
    return Must(match[1], match[2] == "most", value if match[4] else None, float(match[5] or 0) if match[4] else value)


def load(path=TABLE):
    """The cases of the table, a list of Case. Error, with the case, for a wrong one."""
    cases = []
    for row in toml.read(path)["case"]:
        where = f"{path.name}: {row.get('name', '?')}"
        if not KEYS <= set(row) <= KEYS | OPTIONAL or not row["must"]:
            raise Error(f"{where}: has {', '.join(row)}; a case has {', '.join(sorted(KEYS))}, and may have"
                        f" {', '.join(sorted(OPTIONAL))}")
        try:
            limits = tuple(must(text) for text in row["must"])
        except ValueError as error:
            raise Error(f"{where}: {error}") from None
        cases.append(Case(row["name"], row["run"], row.get("cores"), row.get("machine"), row["reports"], limits))
        if row.get("machine") not in (None, *machine.names(SIMULATED)):
            raise Error(f"{where}: {row['machine']} is no machine of the simulation")
    names = [case.name for case in cases]
    if len(set(names)) < len(names):
        raise Error(f"{path.name}: a name is there twice")
    return cases


def chosen(cases, m, names):
    """Those cases that are for a Machine, and of these the ones of `names`, or all if there are none. Error for a name
    that is none of them."""
    fitting = [case for case in cases if case.machine == m.name or
               (not case.machine and not simulated(m) and case.cores in (None, m.cores_per_llc))]
    if not fitting:
        raise Error(f"no case is for {m.name}")
    unknown = set(names) - {case.name for case in fitting}
    if unknown:
        raise Error(f"CASES={' '.join(sorted(unknown))}: no case for {m.name}; there are:"
                    f" {' '.join(case.name for case in fitting)}")
    return [case for case in fitting if not names or case.name in names]


def simulated(m):
    """Is a Machine one of the simulation?"""
    return m.name in machine.names(SIMULATED)


def parse(figures):
    """What a guest measured, of the figures of its ktap.Results: {case: {figure: {state: {round: [value, ...]}}}}."""
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list))))
    for one in figures.get("case", ()):
        for name, value in one.items():
            if name not in ("figure", "case", "state", "round"):
                found[one["case"]][name][one["state"]][one["round"]].append(value)
    return found


def judge(limit, values, rounds):
    """Whether a Must holds, of {state: {round: [two values]}}: (HOLDS, FAILS or OPEN; means of state and against; the
    interval of what it is beyond). A condition on a number holds only if each run of state meets it. One round does not
    tell how two states compare. Error if a value is missing, or is 0 where it is compared with."""
    pairs = []
    for number in range(1, rounds + 1):
        both = [values[state][number] for state in ("state", "against")]
        if any(len(runs) != 2 or not all(map(math.isfinite, runs)) for runs in both):
            raise Error(f"{limit.figure} was not measured in round {number}")
        if limit.factor is not None and not all(both[1]):
            raise Error(f"{limit.figure} is 0 without, in round {number}")
        pairs.append(tuple(map(mean, both)))
    means = tuple(mean(side) for side in zip(*pairs))
    if limit.factor is None:
        beyond = [limit.excess(value, None) for number in range(1, rounds + 1) for value in values["state"][number]]
        return FAILS if max(beyond) > 0 else HOLDS, means, (min(beyond), max(beyond))
    beyond = [limit.excess(*pair) for pair in pairs]
    if rounds == 1:
        return OPEN, means, (beyond[0], beyond[0])
    reach = quantile(rounds - 1) * stdev(beyond) / math.sqrt(rounds)
    low, high = mean(beyond) - reach, mean(beyond) + reach
    return HOLDS if high <= 0 else FAILS if low > 0 else OPEN, means, (low, high)


def rows(cases, found, rounds):
    """The rows of the table: [(case, limit, verdict, state, against, low, high)]; and what was not measured, lines."""
    table, wrong = [], []
    for case in cases:
        for limit in case.must:
            try:
                word, both, ends = judge(limit, found[case.name][limit.figure], rounds)
                table.append((case, limit, word, *both, *ends))
            except Error as error:
                wrong.append(f"{case.name}: {error}")
    return table, wrong


def page(table):
    """The lines of a table in Markdown."""
    lines = ["| case | must hold | with | without | beyond | |", "| --- | --- | ---: | ---: | ---: | --- |"]
    for case, limit, word, state, against, low, high in table:
        lines.append(f"| `{case.run}` | {limit} | {state:.4g} | {against:.4g} | {low:.3g} to {high:.3g} | {word} |")
    return lines


def run(m, which, cases, rounds, ms, state=STATE, against=AGAINST, follow=None):
    """Run a list of Case in a guest on a Machine, in so many rounds of so many ms; give the guest.Result, the rows of
    the table, and what is wrong besides, lines."""
    env = {"ROUNDS": rounds, "MS": ms, "STATE": state, "AGAINST": against,
           "CASES": "".join(f"{case.name} {case.run}\n" for case in cases)}
    seconds, simulation = RUN_SECONDS, None
    if simulated(m):
        seconds = SIMULATED_SECONDS
        simulation = simulate.guest_of(m, which, 1, simulate.default_round(m), os.devnull)
    result = guest.run(m, which, "cases", env, timeout=600 + seconds * 4 * rounds * len(cases), follow=follow,
                       simulated=simulation)
    tests = ktap.parse(result.ktap)
    table, wrong = rows(cases, parse(tests.figures), rounds)
    return result, table, result.failures() + tests.failures() + wrong


def command(settings):
    """make cases; the exit status."""
    m, which = machine.load(settings["MACHINE"]), kernel.named(settings.series, settings["BUILD"])
    if not which.patched:
        raise Error(f"BUILD={which} has no features to compare")
    cases = chosen(load(), m, settings["CASES"])
    short = settings["SHORT"]
    rounds = settings["ROUNDS"] or (SHORT_ROUNDS if short else ROUNDS)
    if len({cpu.llc for cpu in m.expected()}) < 2:
        raise Error(f"{m.name} has one LLC: there is nothing to choose")
    state, against = settings["STATE"] or STATE, settings["AGAINST"] or AGAINST
    kernel.build(which)
    ms = SIMULATED_MS if simulated(m) else SHORT_MS if short else MS
    result, table, wrong = run(m, which, cases, rounds, ms, state, against, say)
    print(*page(table), sep="\n")
    for line in wrong:
        print(line, file=sys.stderr)
    words = [row[2] for row in table]
    failed = bool(wrong) or FAILS in words
    say(f"cases on {m.name}, {kernel.release(which)}, {state} against {against}, {rounds} rounds, {result.seconds:.0f} s:"
        f" {words.count(HOLDS)} hold, {words.count(FAILS)} fail, {words.count(OPEN)} open: {'FAILED' if failed else 'passed'}")
    return 1 if failed else 0
