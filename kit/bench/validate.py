# SPDX-License-Identifier: GPL-2.0-only
"""make sim-validate: does the simulation find what was found on real machines? Experiments whose outcome
is known; what counts is the order of what they compare, not the size. That the simulation costs what its
machine files say is checked by tests/test_sim.py."""

from dataclasses import dataclass

from kit import guest, kernel, machine
from kit.bench import report, sim, stats
from kit.run import Error, say

SEEDS = 5
# Of a hundred messages, which is 5 to 10 ms, as many as CPUs are tasks.
MESSAGES = "hackbench:2:8:100:processes:pipe"


@dataclass(frozen=True)
class Variant:
    """What is run: its name, WORKLOAD and STATE as for make sim."""
    name: str
    workload: str
    state: str = ""


@dataclass(frozen=True)
class Experiment:
    """Variants on a machine, in the order in which their figures were found to rise, and by whom."""
    name: str
    machine: str
    variants: tuple
    found: str


EXPERIMENTS = (
    Experiment("queued wakeups", "epyc-2x2x8", (
        Variant("TTWU_QUEUE", f"{MESSAGES}:0:31", "features=TTWU_QUEUE"),
        Variant("NO_TTWU_QUEUE", f"{MESSAGES}:0:31", "features=NO_TTWU_QUEUE")),
               "Linux's default: a wakeup across LLCs is queued, not done under the remote lock"),
    Experiment("pinned", "epyc-2x2x8", (
        Variant("one LLC", "hackbench:1:8:100:processes:pipe:0:7"),
        Variant("half of two LLCs", "hackbench:1:8:100:processes:pipe:4:11")),
               "any hackbench pinned to a CCX, against CPUs of two"),
    Experiment("distance", "epyc-2x2x8", (
        Variant("LLC", "ping-pong:0:1:300"), Variant("other LLC", "ping-pong:0:8:300"),
        Variant("other socket", "ping-pong:0:16:300")),
               "nviennot/core-to-core-latency, of a line: 23, 107 and 197 ns"),
    Experiment("small groups", "epyc-2x2x8x2", (
        Variant("groups of 2 CPUs", "hackbench:5:20:20:threads:pipe:0:63",
                "features=TTWU_QUEUE_L2,features=TTWU_QUEUE_L2_ON_CPU"),
        Variant("the LLC's 16", "hackbench:5:20:20:threads:pipe:0:63")),
               "M. Desnoyers, LKML 2023-08-22, hackbench on a 9654: 34 s and 49 s"),
)


def measure(experiment, seeds):
    """Run an Experiment; give {variant's name: [figure for each seed]}."""
    m = machine.load(experiment.machine)
    variants = {variant.name: variant for variant in experiment.variants}

    def one(stop, name, seed):
        [region] = sim.run(m, sim.state(variants[name].state, "stack"),
                           [sim.task(variants[name].workload, m)], seed, stop=stop)
        say(f"  {experiment.name}, {name}, seed {seed}: {region.value:g}")
        return region.value

    found = sim.each_seed(one, variants, seeds)
    return {name: [found[name, seed] for seed in range(1, seeds + 1)] for name in variants}


def judge(names, values):
    """Say of each Variant but the first how it is against the one before it: give [(name, text, 1 if as
    it was found, 0 if that cannot be told, -1 if it is the other way)]."""
    judged = []
    for before, name in zip(names, names[1:]):
        change = stats.change(values[before], values[name])
        if change is None or change.half is None or abs(change.value) <= change.half:
            sign, word = 0, "no verdict"
        else:
            sign, word = (1, "as found") if change.value > 0 else (-1, "THE OTHER WAY")
        more = report.change(change) if change else "-"
        judged.append((name, f"{more} against {before}: {word}", sign))
    return judged


def command(args):
    """make sim-validate: run all Experiments and print what came of them; 1 if any is the other way
    round."""
    seeds = sim.number("SEEDS", SEEDS, 999)
    kernel.build("stack")
    guest.initramfs(guest.SMALL)
    rows = [["experiment", "variant", "median", "spread", "", "found by"]]
    worst = 1
    for experiment in EXPERIMENTS:
        values = measure(experiment, seeds)
        names = [variant.name for variant in experiment.variants]
        said = {name: (text, sign) for name, text, sign in judge(names, values)}
        for name in names:
            text, sign = said.get(name, ("", 1))
            worst = min(worst, sign)
            first = name == names[0]
            unit = sim.WORKLOADS[experiment.variants[0].workload.split(":")[0]].metric.unit
            rows.append([experiment.name if first else "", name,
                         f"{stats.median(values[name]):.4g} {unit}",
                         report.percent(stats.spread(values[name]), ""), text,
                         experiment.found if first else ""])
    for line in report.text(rows):
        say(line)
    if worst < 0:
        raise Error("the simulation disagrees with what was found on real machines")
    return 0
