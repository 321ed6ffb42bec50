# SPDX-License-Identifier: GPL-2.0-only
"""What bench-cost measures: the rows of its table, the boots that they need, and the states (columns)
of each kernel."""

from dataclasses import dataclass, field

from kit.features import FEATURES
from kit.paths import DEFAULT
from kit.process import Error

# Seconds after which a guest is killed.
TIMEOUT = 7200
# The machine of the rows "possible CPUs" has this many times the CPUs, at most MOST_POSSIBLE.
POSSIBLE_TIMES = 4
MOST_POSSIBLE = 64
# The features that change the memory of a process.
ALLOCATING = ("SCHED_CACHE",)


@dataclass(frozen=True)
class Size:
    """How much is measured: layouts; ms of the guest's time, so many millions of instructions, for
    each operation in each layout; processes that sleep at the same time; MiB of memory for these;
    slow: include the boots that take minutes."""
    layouts: int
    ms: int
    processes: int
    memory_mib: int
    slow: bool = True


# What the design has a budget for: a round trip, fork, exec, a thread, a balance pass. These have
# verdicts; any other row has an interval.
PRIMARY = ("thread-pipe/one-CPU", "fork-exit", "vfork-exec", "thread-join", "balance")

# Nine layouts: the least of which three may be disturbed and six leave an interval (see
# kit/results/verdict.py).
FULL = Size(9, 25, 10_000, 6144)
SHORT = Size(1, 6, 500, 1024, slow=False)


@dataclass(frozen=True)
class Row:
    """What a program of guest/ measures: its name, title, arguments, and for each figure of those that it prints the
    name there, a suffix of the row's name, one of the title, and the unit."""
    name: str
    title: str
    command: str
    figures: tuple = (("middle", "", "", "instructions"), ("mean", "+ticks", ", with ticks", "instructions"))


@dataclass(frozen=True)
class Boot:
    """A boot and the rows that are measured in it. change: fields of the Machine that differ; memory:
    its rows measure memory, in one layout, and only in States that change it."""
    name: str
    rows: list
    kernel_args: tuple = ()
    change: dict = field(default_factory=dict)
    memory: bool = False


def boots(m, size):
    """The Boots of a Machine, a list: a row for each distance between CPUs that it has."""
    ms = size.ms
    near = [cpu for cpu in m.expected() if cpu.l2 >= 0]
    first, places = near[0], {"one CPU": near[0].cpu}
    for cpu in near[1:]:
        place = ("one group" if cpu.l2 == first.l2 else
                 "one LLC" if cpu.llc == first.llc else "two LLCs")
        places.setdefault(place, cpu.cpu)
    here = first.cpu

    def cost(operation, other, times=1, cpus=""):
        return f"cost:{operation}:{here}:{other}:@:{times * ms}" + (f":{cpus}" if cpus else "")

    round_trips = (("pipe", "pipe round trip, processes"), ("thread-pipe", "pipe round trip, threads"),
                   ("futex", "futex round trip, threads"), ("fifo-pipe", "pipe round trip, SCHED_FIFO threads"))
    rows = [Row(f"{operation}/{place.replace(' ', '-')}", f"{title}, {place}", cost(operation, cpu))
            for operation, title in round_trips for place, cpu in places.items()]
    # Tasks that may use several CPUs: only for these a wakeup selects a CPU.
    for place in ("one LLC", "two LLCs"):
        if place in places:
            llcs = (first.llc, next(cpu.llc for cpu in near if cpu.cpu == places[place]))
            cpus = ",".join(str(cpu.cpu) for cpu in near if cpu.llc in llcs)
            rows += [Row(f"{operation}/any-of-{place.replace(' ', '-')}",
                         f"{title}, any CPU of {place}", cost(operation, places[place], cpus=cpus))
                     for operation, title in round_trips]
    alone = (("yield", "sched_yield, two processes"), ("fork-exit", "fork, exit, wait"),
             ("vfork-exec", "vfork, exec, exit, wait"), ("posix-spawn", "posix_spawn, exit, wait"),
             ("thread-join", "thread create, join"),
             ("exec-threads", "fork, 3 threads, exec, exit, wait"))
    # Starting a process takes 0.2 ms and more.
    rows += [Row(operation, title, cost(operation, here, 4)) for operation, title in alone]
    unplug = Row("hot-unplug", "CPU hot-unplug", cost("hot-unplug", near[-1].cpu, 8))
    possible = POSSIBLE_TIMES * m.cpus
    wide = [Row(f"{operation}/possible", f"{title}, {possible} possible CPUs",
                cost(operation, here, 4))
            for operation, title in alone if operation in ("fork-exit", "vfork-exec",
                                                           "thread-join")]
    balance = Row("balance", "balance pass, top domain, idle", f"balance:{here}:{100 * ms}",
                  Row.figures[:1])
    memory = [Row(f"memory/{threads}", f"memory of a process, {words}",
                  f"processes:{size.processes}:{threads}",
                  (("slab", "/slab", ", slab", "bytes"), ("percpu", "/percpu", ", percpu", "bytes")))
              for threads, words in ((1, "1 thread"), (2, "2 threads"))]
    return [Boot("operations", rows),
            Boot("hot-unplug", [unplug]),
            # The further sockets stay offline. On larger machines QEMU is too slow, and with NUMA
            # nodes the first sockets would have other nodes than before. Parallel bringup would
            # start one thread of each core first.
            *([Boot("possible", wide, (f"maxcpus={m.cpus}", "cpuhp.parallel=0"),
                    {"sockets": m.larger(POSSIBLE_TIMES).sockets,
                     "memory_mib": max(m.memory_mib, 1024)})]
              if size.slow and possible <= MOST_POSSIBLE and m.numa_nodes == 1 and not m.nosmt else []),
            Boot("balance", [balance], ("nohz=off", "skew_tick=1")),
            Boot("memory", memory, change={"memory_mib": max(m.memory_mib, size.memory_mib)},
                 memory=True)]


@dataclass(frozen=True)
class State:
    """A kernel in a state: the name of its column, the writes that set it (FILE=VALUE,... for
    guest/jobs/cost.sh), and the column it is compared with; memory: whether it may use another amount
    of memory than the States before it."""
    column: str
    writes: str = ""
    against: str | None = None
    memory: bool = True


def states(which):
    """The States in which a Kernel is measured, a list."""
    series, build = which.series, str(which)
    if series.base != DEFAULT and build in ("base", "stack"):
        # A series for mainline: it has no feature bits either, and is compared with its base in both
        # states.
        against = build == "stack"
        return [State(f"{'' if against else 'base '}{word}", f"llc_balancing/enabled={value}",
                      f"base {word}" if against else None, memory=not value)
                for value, word in enumerate(("off", "on"))]
    if build == "stack":
        off = ",".join(f"features=NO_{feature.name}" for feature in FEATURES)
        return [State("off", off, "base"),
                *(State(feature.name, ",".join([off, *(f"features={name}" for name in
                                                       (*feature.needs, feature.name))]),
                        "base", feature.name in ALLOCATING)
                  for feature in FEATURES)]
    if build.endswith("/base"):
        # Mainline's cache-aware scheduling is switched by a file, not by a feature bit.
        plain = f"{series.name}/nocache"
        return [State(f"{series.name} off", "llc_balancing/enabled=0", plain),
                State(f"{series.name} on", "llc_balancing/enabled=1", plain)]
    return [State(build)]


def chosen(kernels, columns=()):
    """The States of Kernels in the columns of these names, and in those that they are compared with: {Kernel:
    [State]}. All without names; Error if there is no such column."""
    every = {which: states(which) for which in kernels}
    names = {state.column: state for all_of in every.values() for state in all_of}
    unknown = [column for column in columns if column not in names]
    if unknown:
        raise Error(f"COLUMNS={','.join(columns)}: no column {', '.join(unknown)}; there are {', '.join(names)}")
    wanted = {*columns, *(names[column].against for column in columns)} if columns else names.keys()
    return {which: [state for state in all_of if state.column in wanted] for which, all_of in every.items()}
