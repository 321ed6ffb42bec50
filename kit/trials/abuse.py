# SPDX-License-Identifier: GPL-2.0-only
"""make abuse: what can an unprivileged user do to the wakeups of others, and do the features give it more?

In a guest, threads of guest/workload measure how late they run after a wakeup, while an attacker loads some CPUs from
another cgroup (guest/jobs/abuse.sh). Each attacker runs with all features off, with the default ones, and with all on,
and then in the opposite order, in one boot. Harm is what both orders show; it is reported and is no failure. A failure
is what was not measured, or a control that the measurement does not see.
"""

import sys
from collections import defaultdict

from kit.features import FEATURES
from kit.process import Error, say
from kit.vm import guest, kernel, ktap, machine

ATTACKERS = {
    "processes": "processes of two threads that compute",
    "flood": "pairs of threads that hand on 20 us of work by a wakeup",
    "storm": "programs that end at once, one after the other",
}
NONE = "none"
# As root. If it is not seen, nothing can be said of the others.
CONTROL = "fifo"
STATES = ("off", "default", "on")
REPEATS = (1, 2)
# Of the guest's clock, for each cell; with SHORT=1.
MS, SHORT_MS = 1000, 400
TIMEOUT = 3600
# Harm is a p99 of so many times, and by so many us more than, the one with the features off.
HARM_RATIO, HARM_US = 1.5, 100
# What the control has to raise the p99 of the victims alone to, in us, and by what factor.
CONTROL_RATIO, CONTROL_US = 3, 1000


def parse(figures):
    """What a guest measured, of the figures of its ktap.Results: {(attacker, state): {repeat: p99 in us}}."""
    found = defaultdict(dict)
    for one in figures["lateness"]:
        found[one["attacker"], one["state"]][one["repeat"]] = one["p99"]
    return dict(found)


def missing(p99):
    """What was not measured, and a control that was not seen: lines."""
    cells = [(attacker, state) for attacker in (NONE, *ATTACKERS) for state in STATES] + [(CONTROL, "off")]
    lines = [f"missing: {attacker}, {state}, run {repeat}" for attacker, state in cells for repeat in REPEATS
             if repeat not in p99.get((attacker, state), {})]
    if not lines:
        alone, under = _pair(p99, NONE, "off"), _pair(p99, CONTROL, "off")
        if min(under) < max(CONTROL_RATIO * max(alone), CONTROL_US):
            lines.append(f"not seen: {CONTROL} makes the victims late by {_text(under)} us, alone {_text(alone)}")
    return lines


def _pair(p99, attacker, state):
    return [p99[attacker, state][repeat] for repeat in REPEATS]


def _text(values):
    return " ".join(f"{value:.0f}" for value in values)


def harm(p99):
    """The cells in which a state with features is worse than without, in both orders: [(attacker, state)]."""
    return [(attacker, state) for attacker in (NONE, *ATTACKERS) for state in STATES[1:]
            if all(new > HARM_RATIO * old and new - old > HARM_US
                   for old, new in zip(_pair(p99, attacker, "off"), _pair(p99, attacker, state)))]


def table(p99):
    """The lines of a table in Markdown: the p99 in us, both runs of each state, and which states do harm."""
    found = harm(p99)
    rows = [[attacker, *(_text(_pair(p99, attacker, state)) for state in STATES),
             ", ".join(state for state in STATES if (attacker, state) in found) or "-"] for attacker in (NONE, *ATTACKERS)]
    return ["| attacker | off | default | all on | harm |", "| --- | ---: | ---: | ---: | --- |",
            *(f"| {' | '.join(row)} |" for row in rows)]


def writes(which):
    """{state: what switches the bits of a Kernel into it, FILE=VALUE,...}."""
    bits = [feature for feature in FEATURES if feature.name not in which.how.lacks]
    on = {"off": (), "default": [bit for bit in bits if bit.at_boot(which.build == "rt") == "on"], "on": bits}
    return {state: ",".join(f"features={'' if bit in on[state] else 'NO_'}{bit.name}" for bit in bits)
            for state in STATES}


def run(m, which, threads, ms):
    """Measure in one guest on a Machine, each attacker with so many threads, each cell for so many ms; a
    guest.Result."""
    env = {"THREADS": threads, "CPUS": m.cpus, "MS": ms, "ATTACKERS": " ".join(ATTACKERS), **writes(which)}
    return guest.run(m, which, "abuse", env, timeout=TIMEOUT, follow=say, kernel_args=guest.COST_KERNEL_ARGS,
                     qemu_extra=guest.repeatable(1))


def command(settings):
    """make abuse; the exit status."""
    m, which = machine.load(settings["MACHINE"]), kernel.named(settings.series, settings["BUILD"])
    if not which.patched:
        raise Error(f"BUILD={which} has no features to compare")
    kernel.build(which)
    threads = settings["THREADS"] or m.cpus // 2
    result = run(m, which, threads, SHORT_MS if settings["SHORT"] else MS)
    tests = ktap.parse(result.ktap)
    p99 = parse(tests.figures)
    wrong = result.failures() + tests.failures() + missing(p99)
    if not wrong:
        print(*table(p99), sep="\n")
    for line in wrong:
        print(line, file=sys.stderr)
    say(f"abuse on {m.name}, {kernel.release(which)}, {threads} threads: {result.seconds:.0f} s:"
        f" {'FAILED' if wrong else 'measured'}")
    return 1 if wrong else 0
