# SPDX-License-Identifier: GPL-2.0-only
"""make races: drive each race of the patches that is known, with the protection against it and without.

patches/6.12/test-only/races.patch makes the window of a race longer, and takes out one protection at run time;
guest/torture/races.c drives it. With the protection, a guest has to be silent; without, it has to find what the race
does. It is booted anew for each case then, since a race that happens breaks the kernel.
"""

import re
import sys
from dataclasses import dataclass

from kit.process import Error, say
from kit.vm import guest, kernel, ktap, machine, splats

BUILD = "races"
# Of the guest's clock, in each guest.
SECONDS = 2
# Guests with different seeds in which a race may be found.
GUESTS = 2
TIMEOUT = 900

KASAN = r"BUG: KASAN: "
COUNTERS = r"# wrong: (?:llcs: before|off, but)|WARNING: .* at kernel/sched/cache\.h:"


@dataclass(frozen=True)
class Case:
    """A known race.

    race: what happens at the same time; protection: what is taken out; finds: a pattern of the line that shows what
    the race does; why_not: if it is known not to be found, the reason.
    """
    race: str
    protection: str
    finds: str
    why_not: str = ""


# In the order of enum sched_race of the patch, which begins with RACE_NONE.
CASES = {
    "exec": Case("exec or exit, and ticks and changes of the task", "the runqueue's lock in sched_cache_leave()",
                 COUNTERS),
    "reader": Case("last reference of a group, and /proc/PID/sched", "the RCU grace period of the group", KASAN),
    "last": Case("last reference of a group, and a decision or the balancer", "the reference of each thread", KASAN),
    "deciders": Case("two deciders in an epoch", "the bit `deciding`", r"WARNING: .* cache_(?:measure|decide|work)"),
    "home": Case("domain rebuild, and enqueue and dequeue", "ids of LLCs that domains do not change", COUNTERS),
    "domains": Case("domain rebuild, and a decision", "rcu_read_lock() in the choice of an LLC", KASAN),
    "off": Case("feature off, and a fork", "the RCU grace period before preferences are dropped", COUNTERS),
    "lock": Case("feature off, and enqueue and dequeue", "the runqueue's lock in cache_drop_preferences()", COUNTERS),
    "on": Case("feature on, and exec or exit", "the RCU grace period before tasks have preferences", COUNTERS),
    "choices": Case("two processes choose their LLCs", "the lock of choices", r"WARNING: .* cache_(?:promise|work)"),
}


@dataclass(frozen=True)
class Outcome:
    """What came out of a case in a guest: how often its window was passed, as far as that is known; the line that
    shows what the race does, "" if there is none; the first line of what failed, "" for nothing."""
    passed: int
    found: str = ""
    wrong: str = ""


def one(m, which, cases, out, seed):
    """Drive cases, one after the other, in one guest with a Kernel on a Machine; without their protections if `out`, which only
    one case survives. A guest.Result."""
    env = {"CASES": " ".join(cases), "OUT": int(out), "SEED": seed, "SECONDS": SECONDS}
    return guest.run(m, which, "races", env, timeout=TIMEOUT, kernel_args=guest.COST_KERNEL_ARGS,
                     qemu_extra=guest.repeatable(1), name=f"{m.name}-races-{cases[0] if out else 'in'}")


def outcome(case, result):
    """The Outcome of a case in the guest.Result of a guest that drove it, maybe among others."""
    said, ended = [], None
    for line in result.ktap.splitlines():
        ended = re.match(r"(not )?ok \d+ (\w+)", line)
        if ended and ended[2] == case:
            break
        # What the guest was doing when it died comes after the last result.
        said = [] if ended else [*said, line]
    else:
        ended = None
    # What comes before the first case is a fault of each.
    boot, *parts = re.split(r"^.*\] races: (\w+)\n", result.console, flags=re.MULTILINE)
    console = boot + dict(zip(parts[::2], parts[1::2])).get(case, "")
    splat = [splats.bare(line) for one in splats.find(console) for line in one.splitlines()]
    found = next((line for line in splat + said if re.search(CASES[case].finds, line)), "")
    wrong = [line for line in splat if any(pattern.match(line) for pattern in splats.PATTERNS)]
    wrong += [line for line in said if line.startswith("# wrong: ")]
    if not ended or ended[1]:
        wrong += [*result.problems, "no result"]
    passed = sum(one["passed"] for one in ktap.parse("\n".join(said)).figures["windows"])
    return Outcome(passed, found.removeprefix("# wrong: "), wrong[0] if wrong else "")


def judge(case, inside, without):
    """How a case went, of its Outcomes with the protection and the last one without: (with, without, whether both are
    as they should be)."""
    wrong = next((each.wrong for each in inside if each.wrong), "")
    passed, why_not = sum(each.passed for each in inside), CASES[case].why_not
    if wrong or not passed:
        silent = f"FAILED: {wrong or 'the window was not passed'}"
    else:
        silent = f"silent, {passed} windows"
    if without.found:
        shown = f"found: {without.found}"
    elif without.wrong:
        shown = f"FAILED: other than expected: {without.wrong}"
    else:
        shown = f"not shown, {without.passed} windows" + (f": {why_not}" if why_not else "")
    return silent, shown, not silent.startswith("FAILED") and bool(without.found or (why_not and not without.wrong))


def drive(m, which, cases, seed, run=one):
    """Drive each of the cases on a Machine with the seeds from `seed` on, until it is found without its protection.
    Then all of them with their protections, with the same seeds. {case: what judge() returns}. run: as one()."""
    without, guests = {}, 0
    for case in cases:
        for number in range(GUESTS):
            without[case] = outcome(case, run(m, which, [case], True, seed + number))
            guests = max(guests, number + 1)
            if without[case].found or without[case].wrong:
                break
        say(f"races: {case}, without {CASES[case].protection}:"
            f" {without[case].found or without[case].wrong or 'not shown'}")
    results = [run(m, which, cases, False, seed + number) for number in range(guests)]
    return {case: judge(case, [outcome(case, result) for result in results], without[case]) for case in cases}


def table(rows):
    """The lines of a table in Markdown, of what drive() returned."""
    lines = ["| case | protection in | taken out |", "| --- | --- | --- |"]
    return lines + [f"| {case} | {silent} | {shown} |" for case, (silent, shown, _) in rows.items()]


def command(settings):
    """make races; the exit status."""
    m, seed = machine.load(settings["MACHINE"]), settings["SEED"] or 1
    names = settings["CASES"] or tuple(CASES)
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise Error(f"CASES: no such case: {' '.join(unknown)} (there are: {' '.join(CASES)})")
    which = kernel.named(settings.series, BUILD)
    kernel.build(which)
    rows = drive(m, which, names, seed)
    print(*table(rows), sep="\n")
    bad = [case for case, row in rows.items() if not row[2]]
    for case in bad:
        print(f"{case}: not as it should be", file=sys.stderr)
    say(f"races on {m.name}, {kernel.release(which)}, SEED={seed}: {'FAILED' if bad else 'passed'}")
    return 1 if bad else 0
