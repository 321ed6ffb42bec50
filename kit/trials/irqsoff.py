# SPDX-License-Identifier: GPL-2.0-only
"""make irqsoff: the longest sections of the kernel with interrupts off, without the patches and with them, their
features off and on. A runqueue is locked only with interrupts off, so no section with one locked is longer.

plugins/irqsoff.c counts the instructions in a guest that is loaded by guest/jobs/irqsoff.sh. A section is named after
the function in which it begins, without those that only take a lock: so a path has the same name in all kernels."""

import re
from collections import namedtuple

from kit.cost import profile
from kit.paths import ROOT
from kit.process import say
from kit.results import tables
from kit.trials import abuse
from kit.vm import guest, kernel, ktap, machine

SOURCE = ROOT / "plugins/irqsoff.c"
# Functions that only take a lock for others, and one that each exec calls: sections count from the first exec on.
WRAPPERS = ("raw_spin_rq_lock_nested", "raw_spin_rq_trylock", "task_rq_lock", "__task_rq_lock", "double_rq_lock",
            "lock_timer_base", "__lock_task_sighand")
START = "start_thread"
# Functions of the patches around one of mainline: they do not count as theirs, what they call does.
AROUND = ("dequeue_task_fair_traced",)
LISTS = {"section": "sections with interrupts off", "call": "calls with interrupts off of functions of the patches"}
# The sections that last longest, and as many with most instructions of the patches.
SHOWN = 10
# CPUs that are online besides those of the first LLC: QEMU is slow with many.
BESIDE = 4
# Guests of each state, with different seeds.
GUESTS = 3
TIMEOUT = 5400


# Of all sections that begin in a function, or of its calls. Instructions: of the longest, and the most in any of them
# that are in calls of functions of the patches.
Stat = namedtuple("Stat", "number most ours", defaults=(0, 0, 0))


def words(source):
    """All words of the scheduler in a kernel's source. A function with such a name is one of mainline, also if the
    compiler makes none of it there."""
    return {word for path in (source / "kernel/sched").glob("*.[ch]") for word in re.findall(r"\w+", path.read_text())}


def kinds(addresses, names, others):
    """The plugin's kind of each function of a kernel; others: the names of those that are not of the patches."""
    where = dict(zip(names, addresses))
    wrappers = [(where[f"__{part}_text_start"], where[f"__{part}_text_end"]) for part in ("entry", "lock")]

    def kind(address, name):
        if name == START:
            return "s"
        if name in WRAPPERS or any(low <= address < high for low, high in wrappers):
            return "w"
        return "-" if name in others or name in AROUND else "o"
    return [kind(address, name.split(".")[0]) for address, name in zip(addresses, names)]


def parse(text, addresses, names, found):
    """Add what the plugin wrote to {list: {name of the function: Stat}}. The parts of a function are one."""
    name_of = {f"{address:x}": name.split(".")[0] for address, name in zip(addresses, names)}
    for line in text.splitlines():
        which, address, *numbers = line.split()
        number, most, ours = map(int, numbers)
        old = found[which].get(name_of[address], Stat())
        found[which][name_of[address]] = Stat(old.number + number, max(old.most, most), max(old.ours, ours))


def measure(m, which, base, state, seed, found):
    """Load one guest with a Kernel on a Machine, with the features as `state` sets them; add to `found` as parse() does."""
    name = f"irqsoff-{m.name}-{which}".replace("/", "-")
    build = which.series.build
    out, listed = build / f"{name}.out", build / f"{name}.functions"
    addresses, names = profile.functions(which)
    others = words(kernel.source_dir(base)) | {
        name.split(".")[0] for name in profile.functions(base)[1]}
    listed.write_text("".join(f"{address:x} {kind}\n" for address, kind in
                              zip(addresses, kinds(addresses, names, others))))
    out.unlink(missing_ok=True)
    llc = m.cores_per_llc * m.threads_per_core
    cpus = min(llc + BESIDE, m.cpus)
    # Parallel bringup would start one thread of each core first.
    result = guest.run(m, which, "irqsoff", {"SEED": seed, "CPUS": cpus, "LLC": llc, "STATE": state},
                       timeout=TIMEOUT, icount=True, userland=base, name=name,
                       kernel_args=[f"maxcpus={cpus}", "cpuhp.parallel=0"],
                       qemu_extra=["-plugin", f"{profile.plugin(build, SOURCE)},out={out},functions={listed}"])
    result.check(f"irqsoff on {which}", ktap.parse(result.ktap))
    parse(out.read_text(), addresses, names, found)


def rows(which, states):
    """The table of a list of {state: what parse() fills}: the longest, and those with most of ours."""
    every = {name for found in states.values() for name in found[which]}

    def values(name, field):
        return [getattr(found[which].get(name, Stat()), field) for found in states.values()]

    def first(field):
        return [name for name in sorted(every, key=lambda name: (-max(values(name, field)), name))
                if max(values(name, field))][:SHOWN]

    table = [["begins in", *states, *(f"ours {state}" for state in states), "number"]]
    for name in dict.fromkeys(first("most") + first("ours")):
        table.append([name, *map(str, values(name, "most") + values(name, "ours")),
                      " ".join(map(str, values(name, "number")))])
    return table


def command(settings):
    """make irqsoff; the exit status."""
    m, seed = machine.load(settings["MACHINE"]), settings["SEED"] or 1
    base, stack = (kernel.named(settings.series, build) for build in ("base", "stack"))
    for which in (base, stack):
        kernel.build(which)
    writes = abuse.writes(stack)
    states = {"base": (base, ""), "off": (stack, writes["off"]), "on": (stack, writes["on"])}
    found = {state: {which: {} for which in LISTS} for state in states}
    for number in range(seed, seed + GUESTS):
        for state, (which, write) in states.items():
            measure(m, which, base, write, number, found[state])
            say(f"irqsoff: SEED={number}, {state}")
    for which, title in LISTS.items():
        say(f"longest {title}, in instructions, on {m.name}, {kernel.release(stack)}:")
        print(*tables.markdown(rows(which, found)), sep="\n")
    return 0
