# SPDX-License-Identifier: GPL-2.0-only
"""What the stack costs: instructions per operation, against the base.

Under icount the guest's clock counts the instructions that all its CPUs execute, so that a figure
does not depend on the host. Both kernels have the same configuration and run the same initramfs.
"""

import re
import statistics

from kit import guest, kernel, ktap, machine
from kit.page import FEATURES
from kit.run import Error, say

# Of 20 operations each.
BATCHES = 75
REPEATS = 5
TIMEOUT = 1200


def rows(m):
    """The operations to measure on a Machine, {name: "OPERATION:CPU:CPU"}: a pipe's round trip
    at each distance the machine has, and fork, exit and wait as something that has no wakeup
    between CPUs in it."""
    cpus = [cpu for cpu in m.expected() if cpu.group >= 0]
    first, distances = cpus[0], {}
    for cpu in cpus[1:]:
        name = ("group" if cpu.group == first.group else
                "llc" if cpu.llc == first.llc else "remote")
        distances.setdefault(name, cpu.cpu)
    return ({"pipe-cpu": f"pipe:{first.cpu}:{first.cpu}"} |
            {f"pipe-{name}": f"pipe:{first.cpu}:{cpu}" for name, cpu in distances.items()} |
            {"fork-exit": f"fork:{first.cpu}:{first.cpu}"})


def measure(m, build, follow=None):
    """Boot a BUILD on a Machine and give {(state, row): [instructions per operation]}, where the
    state is "off" or the feature that was on. Error if the run failed."""
    result = guest.run(m, build, "cost", {
        "ROWS": " ".join(f"{name}:{what}" for name, what in rows(m).items()),
        "FEATURES": " ".join(feature.name for feature in FEATURES),
        "BATCHES": BATCHES, "REPEATS": REPEATS,
    }, timeout=TIMEOUT, icount=True, userland="stack", follow=follow)
    bad = result.failures() + ktap.parse(result.ktap).failures()
    if bad:
        raise Error("\n".join(bad))
    found = {}
    for state, row, value in re.findall(r"^# cost (\S+) (\S+) ([\d.]+)$", result.ktap, re.M):
        found.setdefault((state, row), []).append(float(value))
    return found


def table(base, stack):
    """The text lines of a table: each row's median on the base, and the stack's against it. The
    spread is the largest of the row's: how far, by the median, a repeat is from the median."""
    states = list(dict.fromkeys(state for state, _ in stack))
    head = ["", "base", "spread"] + states
    lines = [head]
    for row in dict.fromkeys(row for _, row in base):
        middle = statistics.median(base["off", row])
        spread = max(_deviation(values) for values in
                     (base["off", row], *(stack[state, row] for state in states)))
        lines.append([row, f"{middle:.0f}", f"{spread / middle:.2%}"] +
                     [f"{statistics.median(stack[state, row]) / middle - 1:+.2%}"
                      for state in states])
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return ["  ".join(text.ljust(width) if i == 0 else text.rjust(width)
                      for i, (text, width) in enumerate(zip(line, widths))) for line in lines]


def _deviation(values):
    middle = statistics.median(values)
    return statistics.median(abs(value - middle) for value in values)


def command(args):
    """make cost: build both kernels, measure, print the table; 0."""
    m = machine.load(args.machine)
    found = {}
    for build in ("base", "stack"):
        kernel.build(build)
        say(f"measuring {kernel.release(build)} on {m.name}")
        found[build] = measure(m, build)
    say(f"instructions per operation, median of {REPEATS} medians of {BATCHES}; the stack with "
        "all features off, and with one on:")
    for line in table(found["base"], found["stack"]):
        say(line)
    return 0
