# SPDX-License-Identifier: GPL-2.0-only
"""make abuse: what can an unprivileged user do to the wakeups of others, and do the features give it more?

In a guest, victims measure how late their threads wake up, while an attacker loads some CPUs (guest/abuse.c).
Each attacker runs with all features off, with the default ones, and with all on, and then in the opposite
order, in one boot. Harm is what both orders show; it is reported and is no failure. A failure is what was
not measured, or a control that the measurement does not see.
"""

import sys
from collections import defaultdict
from dataclasses import dataclass
from math import log, sqrt
from statistics import NormalDist, geometric_mean, mean

from kit import settings
from kit.features import FEATURES
from kit.process import Error, say
from kit.vm import guest, kernel, ktap, machine

# At the same time, each of them a process.
VICTIMS = {
    "sleepers": "4 threads that sleep until each ms and compute for 20 us",
    "workers": "4 threads that sleep until each ms and compute for 500 us",
    "pair": "2 threads that wake each other through pipes and compute for 20 us",
}
ATTACKERS = {
    "fill": "processes of 3 threads that compute on the CPUs of the LLC of `workers` only",
    "slices": "threads with slices of 0.1 ms: half compute, half sleep for 10 us after each 90 us",
    "flood": "pairs of threads that wake each other through pipes, 3 pairs a process",
    "processes": "processes of two threads that compute, and are replaced after 0.1 s",
    "wake": "threads that write to pipes, each of which a thread of a victim reads",
    "storm": "threads that create a thread of 50 us, join it, and so on",
}
# As root. Without one of them being seen, nothing can be said of the others.
CONTROLS = {
    "nice": "threads on all CPUs that compute with nice -20",
    "fifo": "SCHED_FIFO threads on all CPUs that compute for 5 ms and sleep for 5 ms",
}
STATES = ("off", "default", "on")
PLACES = ("same", "other")
REPEATS = (1, 2)
# Of the guest's clock, for each cell; with SHORT=1.
SECONDS, SHORT_SECONDS = 1, 0.4
TIMEOUT = 3600
# Harm is a p99 of so many times, and by so many us more than, the one with the features off.
HARM_RATIO, HARM_US = 1.5, 100
# With 100 or fewer, the p99 is the largest.
LEAST_WAKEUPS = 101
# What a control has to raise the p99 of a victim alone to, in us, and by what factor.
CONTROL_RATIO, CONTROL_US = 3, 1000


@dataclass(frozen=True)
class Row:
    """A line of the table: a victim under an attacker in the same cgroup or another one."""
    victim: str
    attacker: str
    place: str


@dataclass
class Measured:
    """What a guest measured: how late a victim's threads woke up, {Row: {(state, repeat): figure of guest/abuse.c}},
    and the CPUs in use by victim and attacker, {(attacker, place): {(state, repeat): CPUs}}."""
    lateness: dict
    load: dict


def rows():
    """The rows of the table, in its order."""
    cells = [("none", "same"), *((attacker, place) for attacker in ATTACKERS for place in PLACES)]
    return [Row(victim, *cell) for victim in VICTIMS for cell in cells]


def parse(figures):
    """What a guest measured, of the figures of its ktap.Results; a Measured."""
    lateness, load = defaultdict(dict), defaultdict(dict)
    for one in figures["lateness"]:
        lateness[Row(one["victim"], one["attacker"], one["place"])][one["state"], one["repeat"]] = one
    for one in figures["load"]:
        load[one["attacker"], one["place"]][one["state"], one["repeat"]] = one["cpus"]
    return Measured(dict(lateness), dict(load))


def missing(measured):
    """What was not measured, or is too little to judge, and the controls that were not seen: lines."""
    lines = []
    wanted = [(row, state) for row in rows() for state in STATES]
    wanted += [(Row(victim, control, "same"), "off") for victim in VICTIMS for control in CONTROLS]
    for row, state in wanted:
        for repeat in REPEATS:
            cell = measured.lateness.get(row, {}).get((state, repeat))
            wakeups = cell["wakeups"] if cell else 0
            # A control may keep the victim from running.
            if wakeups < (1 if row.attacker in CONTROLS else LEAST_WAKEUPS):
                lines.append(f"missing: {row.victim}, {row.attacker}, {row.place} cgroup, {state}, run {repeat}:"
                             f" {wakeups} wakeups")
    if lines:
        return lines
    for control in CONTROLS:
        for victim in VICTIMS:
            alone = p99(measured, Row(victim, "none", "same"), "off")
            under = p99(measured, Row(victim, control, "same"), "off")
            if min(under) < max(CONTROL_RATIO * max(alone), CONTROL_US):
                lines.append(f"not seen: {control} makes {victim} late by {_pair(under)} us, alone {_pair(alone)}")
    return lines


def p99(measured, row, state):
    """The p99 of both runs of a row in a state."""
    return [measured.lateness[row][state, repeat]["p99"] for repeat in REPEATS]


def harm(measured):
    """The rows in which a state with features is worse than without, in both orders: [(Row, state)]."""
    found = []
    for row in rows():
        off = p99(measured, row, "off")
        for state in STATES[1:]:
            if all(new > HARM_RATIO * old and new - old > HARM_US
                   for old, new in zip(off, p99(measured, row, state))):
                found.append((row, state))
    return found


def harm_lines(measured):
    """A line for each harm; of an attacker, whether the victim alone has it, too."""
    lines, found = [], harm(measured)
    for row, state in found:
        what = f"{row.attacker} in the {row.place} cgroup" if row.attacker != "none" else "no attacker"
        also = (Row(row.victim, "none", "same"), state) in found and row.attacker != "none"
        lines.append(f"harm: {row.victim}, {what}: p99 {_pair(p99(measured, row, 'off'))} us off,"
                     f" {_pair(p99(measured, row, state))} us {'all on' if state == 'on' else state}"
                     + (", also without an attacker" if also else ""))
    compared = len(rows()) * len(STATES[1:])
    lines.append(f"harm: {len(found)} of {compared} comparisons; by chance, about {by_chance(measured):.1f}")
    return lines


def by_chance(measured):
    """How many harms are to be expected if the states differed by no more than two runs of one state do: each
    comparison has to exceed the ratio twice."""
    noise = [log(first / second) for row in rows() for state in STATES for first, second in [p99(measured, row, state)]]
    sigma = sqrt(mean(ratio ** 2 for ratio in noise))
    once = 1 - NormalDist(0, sigma).cdf(log(HARM_RATIO)) if sigma else 0
    return len(rows()) * len(STATES[1:]) * once ** 2


def overall(measured):
    """A line for each victim: how the states compare over all attackers."""
    lines = []
    for victim in VICTIMS:
        under = [row for row in rows() if row.victim == victim and row.attacker != "none"]
        ratios = {state: [geometric_mean(p99(measured, row, state)) / geometric_mean(p99(measured, row, "off"))
                          for row in under] for state in STATES[1:]}
        lines.append(f"all attackers, {victim}: " + ", ".join(
            f"{state} / off {geometric_mean(each):.2f}, above 1 in {sum(ratio > 1 for ratio in each)} of {len(each)}"
            for state, each in ratios.items()))
    return lines


def _pair(values):
    return " ".join(f"{value:.0f}" for value in values)


def table(measured):
    """The lines of a table in Markdown: p99 in us, both runs of each state; how the states compare."""
    lines = ["| victim | attacker | cgroup | off | default | all on | off / alone | default / off | on / off | CPUs |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows():
        alone = mean(p99(measured, Row(row.victim, "none", "same"), "off"))
        means = {state: mean(p99(measured, row, state)) for state in STATES}
        cpus = measured.load.get((row.attacker, row.place), {}).values()
        lines.append("| " + " | ".join([
            row.victim, row.attacker, row.place if row.attacker != "none" else "",
            *(_pair(p99(measured, row, state)) for state in STATES),
            f"{means['off'] / alone:.1f}" if row.attacker != "none" else "",
            *(f"{means[state] / means['off']:.2f}" for state in STATES[1:]),
            f"{min(cpus):.1f} to {max(cpus):.1f}" if cpus else "",
        ]) + " |")
    for control in CONTROLS:
        for victim in VICTIMS:
            lines.append(f"control: {control}, {victim}: p99"
                         f" {_pair(p99(measured, Row(victim, control, 'same'), 'off'))} us")
    return lines


def writes(build):
    """{state: what switches the bits of a build into it, FILE=VALUE,...}."""
    bits = [feature for feature in FEATURES if feature.name not in kernel.named(build).lacks]
    on = {"off": (), "default": [bit for bit in bits if bit.default == "on"], "on": bits}
    return {state: ",".join(f"features={'' if bit in on[state] else 'NO_'}{bit.name}" for bit in bits)
            for state in STATES}


def run(m, build, threads=0, seconds=SECONDS, attackers=tuple(ATTACKERS), follow=None):
    """Measure in one guest on a Machine, each attacker with so many threads, 0 for half of the CPUs; a
    guest.Result."""
    env = {"THREADS": threads or m.cpus // 2, "CPUS": m.cpus, "SECONDS": seconds,
           "ATTACKERS": " ".join(attackers), "CONTROLS": " ".join(CONTROLS), **writes(build)}
    return guest.run(m, build, "abuse", env, timeout=TIMEOUT, follow=follow,
                     kernel_args=guest.COST_KERNEL_ARGS, qemu_extra=guest.repeatable(1))


def command(args):
    """make abuse; the exit status."""
    m, build = machine.load(settings.get("MACHINE")), settings.get("BUILD")
    if not kernel.named(build).patched:
        raise Error(f"BUILD={build} has no features to compare")
    kernel.build(build)
    threads = settings.get("THREADS") or m.cpus // 2
    seconds = SHORT_SECONDS if settings.get("SHORT") else SECONDS
    result = run(m, build, threads, seconds, follow=say)
    tests = ktap.parse(result.ktap)
    measured = parse(tests.figures)
    wrong = result.failures() + tests.failures() + missing(measured)
    if not wrong:
        print(*table(measured), *overall(measured), *harm_lines(measured), sep="\n")
    for line in wrong:
        print(line, file=sys.stderr)
    say(f"abuse on {m.name}, {kernel.release(build)}, {threads} threads, {seconds} s each: {result.seconds:.0f} s:"
        f" {'FAILED' if wrong else 'measured'}")
    return 1 if wrong else 0
