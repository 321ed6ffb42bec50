# SPDX-License-Identifier: GPL-2.0-only
"""The instrument behind make sim: a kernel and a workload on a simulated machine, whose CPUs have
caches and a clock each (plugins/sim/, a plugin for QEMU).

The same kernel, workload, machine and seed give the same figures again, to the nanosecond. What a seed
picks is what is left to chance on a real machine: where things lie in memory, which task starts first and
when, and some ns of each wakeup. So everything is measured with several seeds; and where two states of
the scheduler are compared, one of them is measured twice, with other seeds: both are the baseline.
"""

import dataclasses
import hashlib
import json
import os
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kit.paths import RESULTS, ROOT
from kit.process import Error, lock, say, sh
from kit.results import pages, placement, store, tables, verdict
from kit.sim import costs, schedstats, transfers, workloads
from kit.vm import guest, initramfs, kernel, ktap, machine, qemu

SOURCES = ROOT / "plugins/sim"
QEMU_SERIES = "10.0"
TIMEOUT = 3600
# How far a CPU may get ahead of the next one, as a part of the shortest way between two caches.
# Together with the block of code that it has begun, this must be less than that way, or a CPU keeps
# using a line before others can ask for it.
ROUND_PART = 0.75
SEEDS = 10
# Of ABBA=1. On 32 CPUs, an idle CPU balances between sockets every 32 to 64 ms (sd_init()), so a window
# has five passes or more. Four such windows of sharing:4:6:512 on epyc-2x2x8 take a core of the host
# about 11 minutes for each seed (0.53 s for a ms), and their warm-ups some more.
WINDOW_MS = 300
# Added to the seeds of the control.
OTHER_SEEDS = 1000
CONTROL = "again"
# What the command of a result ends in.
ABBA_WORDS, STATS_WORDS = " ABBA=1 WINDOW_MS={}", " STATS=1"
# Where the plugin is to look: executed at each wakeup and each switch, an array, and a percpu variable.
HOOKS = {"at_wakeup": "ttwu_do_activate", "at_switch": "__switch_to_asm",
         "per_cpu_offset": "__per_cpu_offset", "runqueues": "runqueues"}
# What a state may write to below sched/ of debugfs, in any of the bases, with the patches and in validate.
FILES = ("features", "llc_balancing", "numa_balancing", "fair_server", "domains", "preempt", "base_slice_ns",
         "tunable_scaling", "migration_cost_ns", "nr_migrate", "wake_migration_us", "l2_group_cpus",
         "wake_hold_ns")
METRICS = {"time": store.Metric("ms", "less", "simulated time"),
           "wakeups": store.Metric("", "less", "wakeups"),
           "switches": store.Metric("", "less", "task switches"),
           "migrations": store.Metric("", "less", "migrations"),
           "llc_crossings": store.Metric("", "less", "migrations to another LLC"),
           "socket_crossings": store.Metric("", "less", "migrations to another socket"),
           **{name: store.Metric("", "less", title) for name, (title, _) in transfers.MOVES.items()},
           "busy": store.Metric("%", "less", "CPUs busy"),
           "node_gap": store.Metric("%", "less", "CPUs busy, busiest node less idlest"),
           "llcs": store.Metric("", "less", "LLCs that most of the work was done in"),
           "instructions": store.Metric("million", "less", "instructions")}


@dataclass(frozen=True)
class State:
    """A kernel in a state: a Kernel, the files to write that bring it about (FILE=VALUE,... as
    guest/lib.sh takes them), and how many control groups deep tasks run."""
    build: kernel.Kernel
    writes: str = ""
    cgroups: int = 0

    def __str__(self):
        return f"{self.build} {self.writes}".strip()


@dataclass(frozen=True)
class Region:
    """What one workload did with one seed, in one window: its figure, in the unit of its metric, what
    the plugin counted (see plugins/sim/report.c), its further figures, and the rows of kernel statistics (see
    schedstats.deltas())."""
    value: float
    counted: dict
    more: dict = field(default_factory=dict)
    statistics: list = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """What make sim and each row of make sim-all measure: a Task on a Machine in States, the first of which
    the others are compared with. seeds, round_ns: as for collect(); window_ms: as for collect_windows(), or
    0; statistics: whether to run add_statistics();
    control: whether the first state runs again with other seeds."""
    machine: machine.Machine
    task: workloads.Task
    states: tuple
    seeds: int
    round_ns: int
    window_ms: int = 0
    statistics: bool = False
    control: bool = True

    def __str__(self):
        m = self.machine
        return (f"{self.task} on {m.name} ({m.description}): {' | '.join(map(str, self.states))}; "
                f"{self.seeds} seeds")

    def builds(self):
        """The kernels that it needs, each once."""
        return list(dict.fromkeys(each.build for each in self.states))

    def measure(self, boot=None, stop=None):
        """Run it and give a store.Result. boot: what to call instead of run(); stop: a threading.Event that
        ends it."""
        first = (self.machine, self.task, list(self.states))
        if self.window_ms:
            result = collect_windows(*first, self.seeds, self.round_ns, self.window_ms, boot, stop)
        else:
            result = collect(*first, self.seeds, self.round_ns, boot, stop, self.control)
        if self.statistics:
            add_statistics(result, *first, self.round_ns, boot, stop)
        return result

    def command(self, count):
        """The command that repeats it with a number of seeds."""
        info = repeat_info(self.machine, self.task, list(self.states), count, self.round_ns)
        return (info["command"] + (ABBA_WORDS.format(self.window_ms) if self.window_ms else "")
                + (STATS_WORDS if self.statistics else ""))


def model():
    """The SHA-256 of the sources of the plugin."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]")))).hexdigest()


def plugin(build):
    """Compile the plugin below the directory `build`, if it changed; give its path."""
    path, part = build / "sim.so", build / "sim.so.part"
    sources = sorted(SOURCES.glob("*.[ch]"))
    with lock(build / "sim.lock"):
        newest = max(source.stat().st_mtime for source in sources)
        if not path.exists() or path.stat().st_mtime < newest:
            sh(["gcc", "-O2", "-flto", "-Wall", "-Wextra", "-fPIC", "-shared",
                "-fvisibility=hidden", "-o", part,
                *(source for source in sources if source.suffix == ".c")], timeout=120, capture=True)
            # Replace the file, and do not write into it: a guest may be running with it.
            part.replace(path)
    return path


def check_qemu(build):
    """Error if the QEMU here, or below the directory `build`, is not the one that the plugin knows; give its
    version."""
    found = qemu.version(qemu.find(build))
    if not re.match(rf"{re.escape(QEMU_SERIES)}\.", found):
        raise Error(f"the simulation needs QEMU {QEMU_SERIES}, whose insides it knows; here is {found}")
    return found


def options(m, system_map, seed, round_ns):
    """Give what the plugin has to know, {option: number}: the machine, the seed, where the kernel of
    a System.map (its text) does what. Error if that kernel has no such place."""
    address = {name: int(where, 16) for where, _, name in
               (line.split() for line in system_map.splitlines())}
    missing = [name for name in HOOKS.values() if name not in address]
    if missing:
        raise Error(f"the kernel has no {', '.join(missing)} to count at")
    return {"threads": m.threads_per_core, "cores_per_l2": m.cores_per_l2,
            "cores_per_llc": m.cores_per_llc, "llcs_per_socket": m.llcs_per_socket,
            "nodes": m.numa_nodes, "ram_mib": m.memory_mib,
            **costs.of(m).options(m.cores_per_llc, without(m)), "quantum_ps": round_ns * 1000,
            "seed": seed, **{option: address[name] for option, name in HOOKS.items()}}


def without(m):
    """The parts of the cache model that are switched off for a Machine, sorted."""
    return getattr(m, "without", ())


def default_round(m):
    """How far the CPUs of a Machine may be apart, in ns."""
    return int(costs.of(m).ns("other_core") * ROUND_PART)


def cpu_model(m):
    """QEMU's model of CPU: sizes of caches like the machine's, a vendor by which the kernel finds
    which CPUs share them, and no instructions that QEMU does byte by byte."""
    return (f"{costs.of(m).qemu_cpu},vendor=GenuineIntel,family=6,model=143,l3-cache=on,min-level=0x20,"
            "-la57,-erms,-fsrm,+monitor,+x2apic")


def guest_of(m, which, seed, round_ns, counted):
    """How a guest of a Machine with a Kernel runs in the simulation, a guest.Simulated: what it counts goes to the file
    `counted`. Error if the kernel is not built, or QEMU is not the one that the plugin knows."""
    build = which.series.build
    check_qemu(build)
    try:
        system_map = (which.out / "System.map").read_text()
    except OSError as error:
        raise Error(f"BUILD={which} is not built: make kernel BUILD={which}") from error
    chosen = options(m, system_map, seed, round_ns) | {"out": counted}
    return guest.Simulated(cpu_model(m), ",".join([str(plugin(build)), *(f"{k}={v}" for k, v in chosen.items())]), seed)


def run(m, state, tasks, seed, round_ns=None, stop=None, windows=workloads.Windows()):
    """Boot a State on a Machine with a seed, run Tasks one after the other, and give a Region for each
    window of each; setting `stop`, a threading.Event, ends it. Error if the run failed."""
    series = state.build.series
    round_ns = round_ns or default_round(m)
    name = f"{m.name}-sim-{state.build}-{seed}-".replace("/", "-") + hashlib.sha256(
        repr((str(state), state.cgroups, tasks, round_ns, without(m), windows)).encode()).hexdigest()[:8]
    counted = series.work / "guest" / "runs" / f"{name}.json"
    counted.parent.mkdir(parents=True, exist_ok=True)
    counted.unlink(missing_ok=True)
    result = guest.run(m, state.build, "sim", {
        "ROWS": " ".join(each.row(seed, windows) for each in tasks), "STATE": state.writes,
        **windows.variables(), "CGROUPS": state.cgroups,
    }, timeout=TIMEOUT, userland=initramfs.small(series), stop=stop, name=name,
        simulated=guest_of(m, state.build, seed, round_ns, counted))
    tests = ktap.parse(result.ktap)
    values = tests.figures["sim"]
    lines = counted.read_text().splitlines() if counted.exists() else []
    planned = len(tasks) * len(windows.states)
    result.check(name, tests, [] if len(values) == len(lines) == planned else [
        f"{planned} windows gave {len(values)} figures and {len(lines)} reports"])
    statistics = schedstats.deltas(tests.figures["stats"]) if windows.stats else []
    return [Region(figure["value"], json.loads(line),
                   {key: figure[key] for key in figure if key not in ("row", "value", "unit")}, statistics)
            for figure, line in zip(values, lines)]


def figures(region, m):
    """Give {metric: number} of a Region, without the workload's own."""
    counted = region.counted
    found = {name: counted["user"][name] + counted["kernel"][name] for name in counted["kernel"]}
    busy = [100 * ps * len(counted["busy_ps"]) / counted["time_ps"] / m.cpus for ps in counted["busy_ps"]]
    # LLCs are divided evenly between the nodes, in the order of CPUs.
    each = max(len(busy) // m.numa_nodes, 1)
    nodes = [sum(busy[i:i + each]) / each for i in range(0, len(busy), each)]
    return {"time": counted["time_ps"] / 1e9,
            **{name: counted[name] for name in ("wakeups", "switches", "migrations", "llc_crossings",
                                                "socket_crossings")},
            **{metric: sum(found[name] for name in names) for metric, (_, names) in transfers.MOVES.items()},
            "busy": sum(busy) / len(busy), "node_gap": max(nodes) - min(nodes),
            "llcs": placement.llcs(counted["busy_ps"]),
            "instructions": counted["instructions"] / 1e6}


def metrics_of(wanted):
    """Give {name: Metric} of all figures of a Task: its own, its further ones, and METRICS."""
    workload = workloads.WORKLOADS[wanted.name]
    return {wanted.name: workload.metric, **workload.more, **METRICS}


def figures_of(wanted, region, m):
    """Give {metric: number} of a Region of a Task, for all of metrics_of(). Error if the program
    printed others."""
    more = workloads.WORKLOADS[wanted.name].more
    if set(region.more) != set(more):
        raise Error(f"{wanted}: gave the further figures {sorted(region.more)}, and not {sorted(more)}")
    return {wanted.name: region.value, **region.more, **figures(region, m)}


def each_seed(one, names, seeds, stop=None):
    """Call one(stop, name, seed) for each of `names` and `seeds`, as many at a time as there are CPUs;
    give {(name, seed): what it gave}. If one fails, or this is interrupted, the threading.Event `stop`
    is set and the rest is not begun."""
    stop = stop or threading.Event()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # Seed by seed, so that what is there after a while can be compared.
        futures = {(name, seed): pool.submit(one, stop, name, seed)
                   for seed in seeds for name in names}
        try:
            return {key: future.result() for key, future in futures.items()}
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def collect(m, wanted, states, seeds, round_ns, boot=None, stop=None, control=True):
    """Run a Task in States, the first of which the others are compared with, and, if there are others
    and `control`, the first one again with other seeds. Give a results.Result.

    seeds: how many. boot, stop: see Experiment.measure().
    """
    columns = {str(state): (state, 0) for state in states}
    if control and len(states) > 1:
        columns[CONTROL] = (states[0], OTHER_SEEDS)
    builds = dict.fromkeys(s.build for s in states)
    kernels = {str(build): kernel.identity(build) for build in builds}
    done, planned = Counter(), len(columns) * seeds

    def one(stop, column, seed):
        state, added = columns[column]
        region = (boot or run)(m, state, [wanted], seed + added, round_ns, stop)[0]
        done["runs"] += 1
        say(f"  {done['runs']} of {planned}: {column}, seed {seed + added}: {region.value:g} "
            f"{workloads.WORKLOADS[wanted.name].metric.unit}, {region.counted['host_s']:.0f} s")
        return region

    begin = time.monotonic()
    regions = each_seed(one, columns, range(1, seeds + 1), stop)
    if kernels != {str(build): kernel.identity(build) for build in builds}:
        raise Error("a kernel was built or its source changed during the run; the result is discarded")
    metrics = metrics_of(wanted)
    base = next(iter(columns))
    subjects = {column: store.Subject(str(state.build), state.writes, None if column == base else base)
                for column, (state, _) in columns.items()}
    values = {column: {name: [] for name in metrics} for column in columns}
    for column, seed in ((c, s) for c in columns for s in range(1, seeds + 1)):
        region = regions[column, seed]
        for name, number in figures_of(wanted, region, m).items():
            values[column][name].append(number)
    details = {column: transfers.hottest([regions[column, seed] for seed in range(1, seeds + 1)],
                                         transfers.known(state.build))
               for column, (state, _) in columns.items() if column != CONTROL}
    repeat = repeat_info(m, wanted, states, seeds, round_ns)
    repeat["seconds"] = round(time.monotonic() - begin)
    return store.Result(f"sim-{wanted.name}", m.name, repeat, kernels, metrics, subjects, values,
                          details)


def collect_windows(m, wanted, states, seeds, round_ns, window_ms, boot=None, stop=None):
    """Run a Task in two States of one kernel, which take turns in the windows of one boot; the second
    State is compared with the first. Give a results.Result, whose value for a seed is the mean of the
    two windows of that seed, and whose details have the values of each window. boot, stop: see
    Experiment.measure()."""
    build = states[0].build
    identity = kernel.identity(build)
    columns = dict(zip(map(str, states), states))
    names = {state.writes: column for column, state in columns.items()}
    done = Counter()

    def one(stop, _, seed):
        windows = workloads.Windows(workloads.abba(seed, *(state.writes for state in states)), window_ms)
        regions = (boot or run)(m, dataclasses.replace(states[0], writes=""), [wanted], seed, round_ns, stop, windows)
        done["runs"] += 1
        say(f"  {done['runs']} of {seeds}: seed {seed}: " + ", ".join(
            f"{names[writes]} {region.value:g}" for writes, region in zip(windows.states, regions)) +
            f" {workloads.WORKLOADS[wanted.name].metric.unit},"
            f" {sum(region.counted['host_s'] for region in regions):.0f} s")
        return {column: [region for writes, region in zip(windows.states, regions)
                         if names[writes] == column] for column in columns}

    begin = time.monotonic()
    found = each_seed(one, ["windows"], range(1, seeds + 1), stop)
    if kernel.identity(build) != identity:
        raise Error("the kernel was built again during the run; the result is discarded")
    metrics = metrics_of(wanted)
    base = str(states[0])
    subjects = {column: store.Subject(str(build), state.writes, None if column == base else base)
                for column, state in columns.items()}
    values = {column: {name: [] for name in metrics} for column in columns}
    details = {}
    for column in columns:
        regions = [found["windows", seed][column] for seed in range(1, seeds + 1)]
        each = [[figures_of(wanted, region, m) for region in pair] for pair in regions]
        for name in metrics:
            values[column][name] = [sum(window[name] for window in pair) / len(pair) for pair in each]
        details[column] = transfers.hottest([region for pair in regions for region in pair],
                                            transfers.known(build))
        details[column]["windows"] = {name: [[window[name] for window in pair] for pair in each]
                                      for name in metrics}
    repeat = repeat_info(m, wanted, states, seeds, round_ns)
    repeat |= {"window_ms": window_ms, "windows": [list(workloads.abba(seed, *columns)) for seed in (1, 2)],
               "seconds": round(time.monotonic() - begin)}
    repeat["command"] += ABBA_WORDS.format(window_ms)
    return store.Result(f"sim-{wanted.name}", m.name, repeat, {str(build): identity}, metrics, subjects,
                        values, details)


def add_statistics(result, m, wanted, states, round_ns, boot=None, stop=None):
    """Run a Task once more in each State, with schedstats on, which costs time, and add what the kernel
    counted to the details of a Result. boot, stop: see Experiment.measure()."""
    for state_ in states:
        [region] = (boot or run)(m, state_, [wanted], 1, round_ns, stop,
                                 windows=workloads.Windows(stats=True))
        result.details[str(state_)]["statistics"] = region.statistics
    result.repeat["command"] += STATS_WORDS


def check_place(path, wanted, states):
    """Error if the result cannot be saved in the file `path`, or if that has a result of another
    workload or of other states: NAME= gives each experiment a file of its own. Called before the
    first run, because the runs take hours."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error(f"{path.parent}: {error.strerror}") from error
    if not os.access(path.parent, os.W_OK):
        raise Error(f"{path.parent}: not writable")
    if not path.exists():
        return
    old = store.load(path)
    had = (old.repeat.get("workload"), {(one.kernel, one.state) for one in old.subjects.values()})
    if had != (str(wanted), {(str(each.build), each.writes) for each in states}):
        raise Error(f"{path} has the result of another experiment: {old.repeat['command']}; NAME= names"
                    " a file for this one")


def repeat_info(m, wanted, states, seeds, round_ns):
    """What one needs to know to do it again."""
    series, *_ = [state.build.series for state in states if "/" not in str(state.build)] or [None]
    words = [f"make sim MACHINE={m.name} WORKLOAD={wanted}{series.setting if series else ''}",
             *([f"CGROUPS={states[0].cgroups}"] if states[0].cgroups else []),
             *([f"ROUND_NS={round_ns}"] if round_ns != default_round(m) else []),
             f"BUILD={states[-1].build}", *([f"START={wanted.start}"] if wanted.start else []),
             *([f"SETTLE_MS={wanted.settle_ms}"] if wanted.settle_ms else [])]
    others = " ".join(each.writes for each in states[1:] or states)
    if others:
        words.append(f"STATE='{others}'" if " " in others else f"STATE={others}")
    if len(states) > 1:
        words.append("AGAINST=" + ",".join(filter(None, (str(states[0].build), states[0].writes))))
    if without(m):
        words.append(f"WITHOUT='{' '.join(without(m))}'")
    if getattr(m, "scale", ()):
        words.append("SCALE='" + " ".join(f"{name}={factor:g}" for name, factor in m.scale) + "'")
    return {"command": " ".join([*words, f"SEEDS={seeds}"]), "seeds": seeds,
            "workload": str(wanted), "start": wanted.start, "round_ns": round_ns,
            "primary": [wanted.name],
            "commit": store.commit(),
            "qemu": check_qemu(states[0].build.series.build), "model": model(), "machine": dataclasses.asdict(m),
            "caches": dataclasses.asdict(costs.of(m)),
            "initramfs": hashlib.sha256(initramfs.base(initramfs.small(states[0].build.series))).hexdigest()}


# ---- the command ----

def state(text, build, series):
    """Make the State that [BUILD,]FILE=VALUE,... names; build: if it names none; series: that the BUILD is of.
    Error for a BUILD or a file that does not exist, and for a feature that the source of the kernel, if it is
    there, does not have."""
    first, *rest = [word for word in text.split(",") if word] or [build]
    if "=" in first:
        first, rest = build, [first, *rest]
    which = kernel.named(series, first)
    if any("=" not in word for word in rest):
        raise Error(f"{text}: is to be [BUILD,]FILE=VALUE,...")
    for file, _, value in (word.partition("=") for word in rest):
        if file.partition("/")[0] not in FILES:
            raise Error(f"{file}={value}: sched/ of debugfs has no {file}; it has: {', '.join(FILES)}")
        known = kernel.features(which) if file == "features" else []
        if known and value.removeprefix("NO_") not in known:
            raise Error(f"{file}={value}: {first} has no such feature; it has: {', '.join(known)}")
    return State(which, ",".join(rest))


def check_windows(wanted, states, settings):
    """Give the length of the windows of ABBA=1 in ms, 0 without it. Error if a Task cannot be measured
    in windows, or if the States cannot take turns in one boot."""
    window_ms = settings["WINDOW_MS"]
    if not settings["ABBA"]:
        if window_ms:
            raise Error(f"WINDOW_MS={window_ms}: only with ABBA=1")
        return 0
    if not workloads.WORKLOADS[wanted.name].timed:
        raise Error(f"ABBA=1: {wanted.name} measures a number of operations and has no windows; these"
                    f" have: {', '.join(n for n, w in workloads.WORKLOADS.items() if w.timed)}")
    if len({state_.build for state_ in states}) > 1 or len(states) != 2:
        raise Error("ABBA=1: needs AGAINST=, a state of the same BUILD")
    return window_ms or WINDOW_MS


def experiment(settings):
    """Make the Experiment that the Settings of make sim describe. Error if they contradict each other."""
    m = costs.scaled(machine.load(settings["MACHINE"]), settings["SCALE"], settings["WITHOUT"])
    costs.of(m)
    wanted = workloads.task(settings["WORKLOAD"], m, settings["START"], settings["SETTLE_MS"])
    build, against = settings["BUILD"], settings["AGAINST"]
    # Several states are each compared with the first, in one family of verdicts.
    states = [state(text, build, settings.series) for text in settings["STATE"].split() or [""]]
    if against:
        states.insert(0, state(against, build, settings.series))
    elif len(states) > 1:
        raise Error("STATE: several states need AGAINST=, what they are compared with")
    states = [dataclasses.replace(each, cgroups=settings["CGROUPS"]) for each in states]
    if len(set(states)) < len(states):
        raise Error(f"AGAINST={against}: is the same state; the control is measured anyway")
    window_ms = check_windows(wanted, states, settings)
    return Experiment(m, wanted, tuple(states), settings["SEEDS"] or SEEDS,
                      settings["ROUND_NS"] or default_round(m), window_ms, settings["STATS"])


def save(result, path):
    """Write a Judged result of make sim and its page."""
    store.save(result, path)
    path.with_suffix(".md").write_text("\n".join(pages.own(result)) + "\n")


def command(settings):
    """make sim: build, simulate, print, keep; 0."""
    one = experiment(settings)
    wanted = one.task
    name = settings["NAME"] or "-".join(filter(None, (wanted.name, wanted.start,
                                                          "abba" if one.window_ms else "")))
    check_qemu(settings.build)
    for each in one.builds():
        kernel.build(each)
    initramfs.base(initramfs.small(settings.series))
    results = RESULTS if settings["SAVE"] else settings.build / "results"
    path = results / settings.series.results(one.machine.name) / f"sim-{name}.json"
    check_place(path, wanted, one.states)
    say(f"simulating {one}")
    result = verdict.judged(one.measure())
    for heading, rows in pages.simulation(result):
        for line in ["", heading, "", *tables.text(rows)]:
            say(line)
    say("")
    for line in tables.conclusions(result, wanted.name):
        say(line)
    save(result, path)
    say(f"kept as {path} and {path.with_suffix('.md').name}")
    return 0
