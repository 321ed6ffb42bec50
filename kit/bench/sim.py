# SPDX-License-Identifier: GPL-2.0-only
"""The instrument behind make sim: a kernel and a workload on a simulated machine, whose CPUs have
caches and a clock each (sim/, a plugin for QEMU).

The same kernel, workload, machine and seed give the same figures again, to the nanosecond. What a seed
picks is what is left to chance on a real machine: where things lie in memory, who starts first and
when, and some ns of each wakeup. So everything is measured with several seeds; and where two states of
the scheduler are compared, one of them is measured twice, with other seeds, to show what is noise.
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
from dataclasses import dataclass

from kit import guest, kernel, ktap, machine, qemu
from kit.bench import cost, report, results, stats, symbols
from kit.paths import BUILD, GUEST, LAYOUT, ROOT
from kit.run import Error, git, lock, say, sh

SOURCES = ROOT / "sim"
QEMU_SERIES = "10.0"
TIMEOUT = 3600
# A CPU is ahead of another by so much at most, in ns. It is less than any way between two caches
# takes, so that who is faster there has no advantage. With many CPUs, QEMU takes too long for a round.
ROUND_NS, LONG_ROUND_NS = 20, 100
MANY_CPUS = 64
SEEDS = 10
# Added to the seeds of the control.
OTHER_SEEDS = 1000
CONTROL = "again"
SHOWN = 15
# Where the plugin is to look: executed at each wakeup and each switch, an array, and a percpu variable.
HOOKS = {"at_wakeup": "ttwu_do_activate", "at_switch": "__switch_to_asm",
         "per_cpu_offset": "__per_cpu_offset", "runqueues": "runqueues"}
# Ways of a line, as the plugin names them, {metric: (title, names)}.
MOVES = {"core": ("lines from another core of the LLC", ("core", "taken_core")),
         "llc": ("lines from another LLC of the socket", ("llc", "taken_llc")),
         "socket": ("lines from another socket", ("socket", "taken_socket")),
         "memory": ("lines from memory", ("dram", "far_dram"))}
METRICS = {"time": results.Metric("ms", "less", "simulated time"),
           "wakeups": results.Metric("", "less", "wakeups"),
           "switches": results.Metric("", "less", "task switches"),
           "migrations": results.Metric("", "less", "migrations"),
           "llc_crossings": results.Metric("", "less", "migrations to another LLC"),
           "socket_crossings": results.Metric("", "less", "migrations to another socket"),
           **{name: results.Metric("", "less", title) for name, (title, _) in MOVES.items()},
           "busy": results.Metric("%", "less", "CPUs busy"),
           "instructions": results.Metric("million", "less", "instructions")}


@dataclass(frozen=True)
class Workload:
    """What guest/workload.c can run: its kind there, what the figure is, and the arguments if none
    are given, for a Machine."""
    kind: str
    metric: results.Metric
    arguments: object


def _hackbench(m):
    return [max(m.cpus // 16, 1), 8, 100, "processes", "pipe", 0, m.cpus - 1]


def _pair(times):
    """The first CPU, and the first one of another LLC."""
    return lambda m: [0, min(m.cores_per_llc * m.threads_per_core, m.cpus - 1), times]


WORKLOADS = {
    "hackbench": Workload("messages", results.Metric("ms", "less", "time of all messages"),
                          _hackbench),
    "hackbench-rate": Workload("rate", results.Metric("messages/ms", "more", "messages per ms"),
                               lambda m: [max(m.cpus // 16, 1), 8, 90, 20, "threads", "pipe", 0,
                                          m.cpus - 1]),
    "sharing": Workload("sharing", results.Metric("steps/ms", "more", "steps per ms"),
                        lambda m: [m.sockets * m.llcs_per_socket, max(m.cores_per_llc * 3 // 4, 2),
                                   512, 60, 30]),
    "pipeline": Workload("pipeline", results.Metric("ms", "less", "time of all messages"),
                         lambda m: [m.sockets * m.llcs_per_socket, 3, 100, 20]),
    "cyclic": Workload("cyclic", results.Metric("us", "less", "how late real-time threads run"),
                       lambda m: [m.cpus * 3 // 2, 1000, 20]),
    "ping-pong": Workload("ping-pong", results.Metric("ns", "less", "a byte there and back"),
                          _pair(500)),
    "bounce": Workload("bounce", results.Metric("ns", "less", "a line to the other CPU"),
                       _pair(2000)),
    "counters": Workload("counters", results.Metric("ns", "less", "increment in a shared line"),
                         _pair(2000)),
    "chase": Workload("chase", results.Metric("ns", "less", "load that depends on the last one"),
                      lambda m: [0, 0, 8192, 20000]),
}


@dataclass(frozen=True)
class Task:
    """A Workload with its arguments."""
    name: str
    arguments: tuple

    def row(self, seed):
        """What guest/jobs/sim.sh runs."""
        words = ["workload", seed, WORKLOADS[self.name].kind, *self.arguments]
        return ":".join([self.name, *map(str, words)])


@dataclass(frozen=True)
class State:
    """A kernel in a state: a BUILD, and the files to write that bring it about (FILE=VALUE,... as
    guest/lib.sh takes them)."""
    build: str
    writes: str = ""

    def __str__(self):
        return f"{self.build} {self.writes}".strip()


@dataclass(frozen=True)
class Region:
    """What one workload did with one seed: its figure, in the unit of its metric, and what the plugin
    counted (see sim/report.c)."""
    value: float
    counted: dict


def task(text, m):
    """Make the Task that WORKLOAD=NAME or NAME:ARGUMENT:... names, on a Machine; Error if there is no
    such workload."""
    name, *arguments = text.split(":")
    if name not in WORKLOADS:
        raise Error(f"WORKLOAD={text}: there is no {name}; there are: {', '.join(WORKLOADS)}")
    if any(not re.fullmatch(r"[\w-]+", argument) for argument in arguments):
        raise Error(f"WORKLOAD={text}: arguments are words and numbers between colons")
    return Task(name, tuple(arguments or map(str, WORKLOADS[name].arguments(m))))


def plugin():
    """Compile the plugin, if it changed; give its path."""
    path, part = BUILD / "sim.so", BUILD / "sim.so.part"
    sources = sorted(SOURCES.glob("*.[ch]"))
    with lock(BUILD / "sim.lock"):
        newest = max(source.stat().st_mtime for source in sources)
        if not path.exists() or path.stat().st_mtime < newest:
            sh(["gcc", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden",
                "-o", part, *(source for source in sources if source.suffix == ".c")],
               timeout=120, capture=True)
            # Not written over: a guest may be running with it.
            part.replace(path)
    return path


def check_qemu(m):
    """Error if the QEMU that a Machine gets is not the one that the plugin knows; give its version."""
    found = qemu.version(qemu.find(m.needs_smp_cache))
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
            **m.costs().options(m.cores_per_llc), "quantum_ps": round_ns * 1000,
            "seed": seed, **{option: address[name] for option, name in HOOKS.items()}}


def default_round(m):
    """How far the CPUs of a Machine may be apart, in ns."""
    return ROUND_NS if m.cpus <= MANY_CPUS else LONG_ROUND_NS


def cpu_model(m):
    """QEMU's model of CPU: sizes of caches like the machine's, a vendor by which the kernel finds
    which CPUs share them, and no instructions that QEMU does byte by byte."""
    return (f"{m.costs().qemu_cpu},vendor=GenuineIntel,family=6,model=143,l3-cache=on,min-level=0x20,"
            "-la57,-erms,-fsrm,+monitor,+x2apic")


def run(m, state, tasks, seed, round_ns=None, stop=None):
    """Boot a State on a Machine with a seed, run Tasks one after the other, and give a Region for each;
    setting `stop`, a threading.Event, ends it. Error if the run failed."""
    check_qemu(m)
    round_ns = round_ns or default_round(m)
    out = LAYOUT.out(state.build)
    name = f"{m.name}-sim-{state.build}-{seed}-" + hashlib.sha256(
        repr((state, tasks, round_ns)).encode()).hexdigest()[:8]
    counted = LAYOUT.work / "guest" / "runs" / f"{name}.json"
    counted.parent.mkdir(parents=True, exist_ok=True)
    counted.unlink(missing_ok=True)
    try:
        system_map = (out / "System.map").read_text()
    except OSError as error:
        raise Error(f"BUILD={state.build} is not built: make kernel BUILD={state.build}") from error
    chosen = options(m, system_map, seed, round_ns) | {"out": counted}
    result = guest.run(m, state.build, "sim", {
        "ROWS": " ".join(each.row(seed) for each in tasks), "STATE": state.writes,
    }, timeout=TIMEOUT, userland=guest.SMALL, stop=stop, name=name, simulated=guest.Simulated(
        cpu_model(m), ",".join([str(plugin()), *(f"{k}={v}" for k, v in chosen.items())]), seed))
    bad = result.failures() + ktap.parse(result.ktap).failures()
    values = re.findall(r"^# sim (\S+) ([\d.]+) \S+$", result.ktap, re.M)
    lines = counted.read_text().splitlines() if counted.exists() else []
    if not bad and not len(values) == len(lines) == len(tasks):
        bad = [f"{len(tasks)} workloads gave {len(values)} figures and {len(lines)} reports"]
    if bad:
        raise Error("\n".join([f"{name}:", *bad, *result.ktap.splitlines()[-cost.LAST:]]))
    return [Region(float(value), json.loads(line)) for (_, value), line in zip(values, lines)]


def figures(region, m):
    """Give {metric: number} of a Region, but for the workload's own."""
    counted = region.counted
    found = {name: counted["user"][name] + counted["kernel"][name] for name in counted["kernel"]}
    return {"time": counted["time_ps"] / 1e9,
            **{name: counted[name] for name in ("wakeups", "switches", "migrations", "llc_crossings",
                                                "socket_crossings")},
            **{metric: sum(found[name] for name in names) for metric, (_, names) in MOVES.items()},
            "busy": 100 * sum(counted["busy_ps"]) / counted["time_ps"] / m.cpus,
            "instructions": counted["instructions"] / 1e6}


def each_seed(one, names, seeds):
    """Call one(stop, name, seed) for each of `names` and each seed from 1 on, as many at a time as there
    are CPUs; give {(name, seed): what it gave}. If one fails, or this is interrupted, the
    threading.Event `stop` is set and the rest is not begun."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # Seed by seed, so that what is there after a while can be compared.
        futures = {(name, seed): pool.submit(one, stop, name, seed)
                   for seed in range(1, seeds + 1) for name in names}
        try:
            return {key: future.result() for key, future in futures.items()}
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def collect(m, wanted, states, seeds, round_ns, types=False):
    """Run a Task in States, the first of which the others are compared with, with so many seeds each,
    and, if there are others, the first one again with other seeds. Give a results.Result."""
    columns = {str(state): (state, 0) for state in states}
    if len(states) > 1:
        columns[CONTROL] = (states[0], OTHER_SEEDS)
    kernels = {build: cost.identity(build) for build in dict.fromkeys(s.build for s in states)}
    done, planned = Counter(), len(columns) * seeds

    def one(stop, column, seed):
        state, added = columns[column]
        region = run(m, state, [wanted], seed + added, round_ns, stop)[0]
        done["runs"] += 1
        say(f"  {done['runs']} of {planned}: {column}, seed {seed + added}: {region.value:g} "
            f"{WORKLOADS[wanted.name].metric.unit}, {region.counted['host_s']:.0f} s")
        return region

    begin = time.monotonic()
    regions = each_seed(one, columns, seeds)
    if kernels != {build: cost.identity(build) for build in kernels}:
        raise Error("a kernel was built anew meanwhile, or its source is another now: nobody knows "
                    "which one was measured")
    metrics = {wanted.name: WORKLOADS[wanted.name].metric} | METRICS
    base = next(iter(columns))
    subjects = {column: results.Subject(state.build, state.writes, None if column == base else base)
                for column, (state, _) in columns.items()}
    values = {column: {name: [] for name in metrics} for column in columns}
    for column, seed in ((c, s) for c in columns for s in range(1, seeds + 1)):
        region = regions[column, seed]
        for name, number in {wanted.name: region.value, **figures(region, m)}.items():
            values[column][name].append(number)
    details = {column: hottest([regions[column, seed] for seed in range(1, seeds + 1)],
                               known(state.build, types))
               for column, (state, _) in columns.items() if column != CONTROL}
    repeat = repeat_info(m, wanted, states, seeds, round_ns)
    repeat["seconds"] = round(time.monotonic() - begin)
    return results.Result(f"sim-{wanted.name}", m.name, repeat, kernels, metrics, subjects, values,
                          details)


def repeat_info(m, wanted, states, seeds, round_ns):
    """What one needs to know to do it again."""
    words = [f"make sim MACHINE={m.name} WORKLOAD={':'.join([wanted.name, *wanted.arguments])}",
             f"BUILD={states[-1].build}"]
    if states[-1].writes:
        words.append(f"STATE={states[-1].writes}")
    if len(states) > 1:
        words.append("AGAINST=" + ",".join(filter(None, (states[0].build, states[0].writes))))
    return {"command": " ".join([*words, f"SEEDS={seeds}"]), "seeds": seeds,
            "workload": ":".join([wanted.name, *wanted.arguments]), "round_ns": round_ns,
            "commit": git(ROOT, "describe", "--always", "--dirty").out.strip(),
            "qemu": check_qemu(m), "machine": dataclasses.asdict(m),
            "caches": dataclasses.asdict(m.costs()),
            "initramfs": hashlib.sha256(guest.initramfs(guest.SMALL)).hexdigest()}


# ---- where lines went from one cache to another ----

def known(build, types=False):
    """Give the Symbols of a BUILD and of the workload; with the fields of the kernel's structures too
    if `types`, which takes a minute once."""
    where = LAYOUT.work / "guest" / guest.SMALL
    kernel_types = symbols.kernel_types(build, kernel.source_of(build)) if types else None
    return symbols.Symbols(LAYOUT.out(build) / "System.map", where / "workload", kernel_types,
                           symbols.program_types(GUEST / "workload.c", where))


def hottest(regions, names):
    """Add up over Regions, with the Symbols `names`, which functions and data lines moved between
    caches for; give {"functions": [[name, core, llc, socket]...], "lines": [[place, functions, core,
    llc, socket]...], "not_counted": moves in none of them}, the most expensive first."""
    functions, lines, users, lost = {}, {}, {}, 0
    for region in regions:
        counted = region.counted
        lost += counted["lost_sites"]
        tasks = sorted(int(text, 16) for text in counted["tasks"])
        per_cpu = [int(text, 16) for text in counted["per_cpu"]]
        domain = names.root_domain(bytes.fromhex(counted["runqueue"]))
        ways = counted["far"]
        for _, address, pc, *numbers in counted["sites"]:
            moves = [sum(number for way, number in zip(ways, numbers) if way in MOVES[metric][1])
                     for metric in ("core", "llc", "socket")]
            function = names.function(int(pc, 16))
            # Of what each CPU has, all are one.
            place = re.sub(r" of CPU \d+", "", str(names.place(int(address, 16), per_cpu, tasks,
                                                              domain)))
            for table, key in ((functions, function), (lines, place)):
                table[key] = [a + b for a, b in zip(table.get(key, (0, 0, 0)), moves)]
            users.setdefault(place, Counter())[function] += sum(moves)
    cost_of = [region.counted["moved_ps"] for region in regions][0]

    def top(table):
        return sorted(table.items(), key=lambda item: (-sum(
            number * ps for number, ps in zip(item[1], cost_of)), item[0]))[:SHOWN]

    return {"functions": [[name, *moves] for name, moves in top(functions)],
            "lines": [[place, ", ".join(name for name, _ in users[place].most_common(3)), *moves]
                      for place, moves in top(lines)],
            "not_counted": lost}


# ---- what is shown ----

def verdict(result, name):
    """Say in a line what came of the comparison, for each subject but the base and the control: a
    change counts if it is beyond its own interval and beyond what the control shows."""
    base = next(column for column, subject in result.subjects.items() if subject.against is None)
    better = result.metrics[name].better
    control = stats.change(result.values[base][name], result.values[CONTROL][name]) if (
        CONTROL in result.values) else None
    lines = []
    for column, subject in result.subjects.items():
        if subject.against is None or column == CONTROL:
            continue
        change = stats.change(result.values[base][name], result.values[column][name])
        if change is None or control is None or change.half is None:
            lines.append(f"{column}: no verdict: too little was measured")
            continue
        floor = abs(control.value) + control.half
        text = (f"{column} against {base}: {report.change(change)}, while {base} against itself is "
                f"{report.change(control)}")
        if abs(change.value) <= max(change.half, floor):
            lines.append(f"{text}: no verdict")
        else:
            good = (change.value < 0) == (better == "less")
            lines.append(f"{text}: {'better' if good else 'WORSE'}")
    return lines


def tables(result):
    """Give [(heading, rows)]: the figures, and for each subject where lines moved."""
    found = [("Figures", report.table(result, list(result.metrics)))]
    for column, detail in result.details.items():
        head = ["core", "LLC", "socket"]
        for what in ("functions", "lines"):
            title = {"functions": ["function"], "lines": ["data", "functions"]}[what]
            found.append((f"Lines that moved between caches, by {title[0]}, {column}",
                          [[*title, *head], *([str(cell) for cell in row] for row in detail[what])]))
    return found


def page(result):
    """Give the lines of a result as a page of Markdown."""
    name = result.instrument.removeprefix("sim-")
    lines = [f"# {name} on a simulated {result.machine}", "",
             f"By `{result.repeat['command']}` at {result.repeat['commit']}, QEMU "
             f"{result.repeat['qemu']}. How to read it: [docs/measuring.md]"
             "(../../docs/measuring.md).", ""]
    lines += [f"- {build}: {kernel_['release']}, {kernel_['source']}"
              for build, kernel_ in result.kernels.items()]
    lines += ["", *(f"**{line}**" for line in verdict(result, name))]
    for heading, rows in tables(result):
        lines += ["", f"## {heading}", "", *report.markdown(rows)]
    return lines


def state(text, build):
    """Make the State that [BUILD,]FILE=VALUE,... names; build: if it names none. Error for a BUILD
    that does not exist."""
    first, *rest = [word for word in text.split(",") if word] or [build]
    if "=" in first:
        first, rest = build, [first, *rest]
    if first not in kernel.FRAGMENTS:
        raise Error(f"no such BUILD: {first} (there are: {', '.join(kernel.FRAGMENTS)})")
    if any("=" not in word for word in rest):
        raise Error(f"{text}: is to be [BUILD,]FILE=VALUE,...")
    return State(first, ",".join(rest))


def number(name, default, most):
    """A whole number from 1 on, from a variable of the environment."""
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise Error(f"{name}={text}: is to be a whole number from 1 to {most}")
    return int(text)


def command(args):
    """make sim: build, simulate, print, keep; 0."""
    m = machine.load(args.machine)
    m.costs()
    wanted = task(os.environ.get("WORKLOAD") or "hackbench", m)
    build = os.environ.get("BUILD") or "stack"
    states = [state(os.environ.get("STATE") or "", build)]
    if os.environ.get("AGAINST"):
        states.insert(0, state(os.environ["AGAINST"], build))
    if len(set(states)) < len(states):
        raise Error(f"AGAINST={os.environ['AGAINST']}: is the same state; the control is measured anyway")
    seeds, round_ns = number("SEEDS", SEEDS, 999), number(
        "ROUND_NS", default_round(m), 100_000)
    types, save = cost.switch("FIELDS"), cost.switch("SAVE")
    name = os.environ.get("NAME") or wanted.name
    if not re.fullmatch(r"[\w-]+", name):
        raise Error(f"NAME={name}: cannot be part of the name of a file in results/")
    check_qemu(m)
    for each in dict.fromkeys(s.build for s in states):
        kernel.build(each)
    guest.initramfs(guest.SMALL)
    say(f"simulating {':'.join([wanted.name, *wanted.arguments])} on {m.name} ({m.description}): "
        f"{' | '.join(map(str, states))}; {seeds} seeds")
    result = collect(m, wanted, states, seeds, round_ns, types)
    for heading, rows in tables(result):
        for line in ["", heading, "", *report.text(rows)]:
            say(line)
    say("")
    for line in verdict(result, wanted.name):
        say(line)
    path = (cost.RESULTS if save else BUILD / "results") / m.name / f"sim-{name}.json"
    results.save(result, path)
    path.with_suffix(".md").write_text("\n".join(page(result)) + "\n")
    say(f"kept as {path} and {path.with_suffix('.md').name}")
    return 0
