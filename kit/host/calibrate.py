# SPDX-License-Identifier: GPL-2.0-only
"""make calibrate: measure on this host what a file of machines/caches/ has, and write such a file.

The figures are those that kit/sim/costs.py names: latencies of caches and memory, of a line between
cores by distance, bandwidths, round trips, idle exit. guest/calibrate.c measures one of them at a time;
this module selects the CPUs, takes medians, and writes the file with a source for each table. A figure
that the host cannot measure is not replaced by another: it is missing, the file lists it as
`incomplete`, and the simulation refuses the file. Python 3.9 without further packages is enough.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from kit import settings
from kit.host import facts, knobs
from kit.paths import BUILD, ROOT
from kit.process import Error, say, sh, warn

SOURCE = ROOT / "guest/calibrate.c"
# In a directory of bench-host-dir, compiled where it was made.
PACKED = ROOT / "guest/calibrate"
CANNOT = 3
CPU = Path("/sys/devices/system/cpu")
WATCH_SECONDS = 5
# The longest time a single measurement may take beyond the one it is asked to: filling its memory.
FILL_SECONDS = 120
# Starting the program and filling its memory, on average, for the estimate.
START_SECONDS = 0.15
# Round trips vary less between pairs than lines do: fewer pairs.
TRIP_PAIRS = 4
KIB_PER_MIB = 1024
# What a core reads at a time has to be larger than its caches, and memory than all caches of an LLC.
LEAST_READ_KIB, LEAST_DRAM_KIB, MOST_DRAM_KIB = 64 << 10, 256 << 10, 1 << 20
# QEMU's models for the sizes of caches, by vendor and family, and the ranges of models of the CPUs.
QEMU_CPUS = (("AuthenticAMD", 23, range(0x30, 0x100), "EPYC-Rome"),
             ("AuthenticAMD", 25, range(0x00, 0x10), "EPYC-Milan"),
             ("AuthenticAMD", 25, range(0x10, 0x20), "EPYC-Genoa"),
             ("AuthenticAMD", 25, range(0xa0, 0xb0), "EPYC-Genoa"),
             ("GenuineIntel", 6, (106, 108), "Icelake-Server"),
             ("GenuineIntel", 6, (143, 207), "SapphireRapids"),
             ("GenuineIntel", 6, (173, 174), "GraniteRapids"))
DISTANCES = ("smt", "llc", "other_llc", "other_socket")
IN_WORDS = {"smt": "threads of a core", "llc": "cores of an LLC", "other_llc": "LLCs of a socket",
            "other_socket": "sockets"}


@dataclass(frozen=True)
class Length:
    """How long to measure: ms of one measurement; runs of each; pairs of CPUs for each distance."""
    ms: int
    runs: int
    pairs: int


FULL = Length(100, 5, 24)
SHORT = Length(5, 1, 1)


@dataclass(frozen=True)
class Place:
    """A CPU that is online: its number, and those of the first CPU of its core and of its LLC, of its
    socket and NUMA node."""
    cpu: int
    core: int
    llc: int
    socket: int
    node: int


@dataclass(frozen=True)
class Caches:
    """The caches of the first CPU, {level: (KiB, ways)}, those for data; the memory available, KiB."""
    levels: dict
    memory_kib: int


@dataclass(frozen=True)
class Figure:
    """Something to measure: its name, the arguments of guest/calibrate.c for each sample without the
    time, and in words what a sample is."""
    name: str
    what: str
    samples: tuple
    words: str = ""


class Cannot(Exception):
    """The host cannot measure something; the text says why."""


# ---- the host ----

def places(root=facts.ROOT):
    """The Places of a host, sorted by CPU. A CPU without a cache of level 2 or more is in an LLC with
    its socket."""
    nodes = {}
    for path in (root / "sys/devices/system/node").glob("node[0-9]*"):
        for cpu in facts.cpus_of(facts.text(path / "cpulist", root, "")):
            nodes[cpu] = int(path.name[4:])
    found = []
    for cpu in facts.cpus_of(facts.text(f"{facts.CPU}/online", root, "0")):
        where = f"{facts.CPU}/cpu{cpu}"
        socket = int(facts.text(f"{where}/topology/physical_package_id", root, "0"))
        core = facts.cpus_of(facts.text(f"{where}/topology/core_cpus_list", root, str(cpu)))
        last = max(_indices(where, root), default=None)
        shared = last and facts.cpus_of(facts.text(last[1] / "shared_cpu_list", root, str(cpu)))
        found.append(Place(cpu, min(core), min(shared) if shared else -1 - socket, socket,
                           nodes.get(cpu, 0)))
    return found


def _indices(where, root):
    """[(level, directory)] of the caches for data of a CPU, from level 2 on."""
    found = []
    for index in sorted((root / where / "cache").glob("index[0-9]*")):
        level = int(facts.text(index / "level", root, "0"))
        if facts.text(index / "type", root) != "Instruction" and level >= 2:
            found.append((level, index))
    return found


def caches(root=facts.ROOT):
    """The Caches of a host. A level that the host does not describe is missing."""
    levels = {}
    first = facts.cpus_of(facts.text(f"{facts.CPU}/online", root, "0"))[0]
    for index in sorted((root / facts.CPU / f"cpu{first}/cache").glob("index[0-9]*")):
        size, ways = (facts.text(index / name, root, "") for name in (
            "size", "ways_of_associativity"))
        if facts.text(index / "type", root) != "Instruction" and size.endswith("K"):
            levels[int(facts.text(index / "level", root, "0"))] = (
                int(size[:-1]), int(ways) if ways.isdecimal() else 0)
    available = facts.text("proc/meminfo", root, "").partition("MemAvailable:")[2].split()
    return Caches(levels, int(available[0]) if available else 0)


def cores_of(cpus):
    """One Place of each core: the first of its CPUs."""
    first = {}
    for place in cpus:
        first.setdefault(place.core, place)
    return list(first.values())


def pairs(cpus):
    """{distance: [(Place, Place)]} of all pairs at each of DISTANCES; between cores, of the first CPU
    of each."""
    found = {distance: [] for distance in DISTANCES}
    for place in cpus:
        first = next(other for other in cpus if other.core == place.core)
        if first != place:
            found["smt"].append((first, place))
    cores = cores_of(cpus)
    for number, one in enumerate(cores):
        for two in cores[number + 1:]:
            found["other_socket" if one.socket != two.socket else
                  "other_llc" if one.llc != two.llc else "llc"].append((one, two))
    return found


def spread_out(items, most):
    """At most so many of the items of a list, evenly spread over it."""
    if len(items) <= most:
        return list(items)
    return [items[i * len(items) // most] for i in range(most)]


def steps(count):
    """1, 2, 4 ... and count: the numbers of CPUs that contend."""
    return sorted({*(1 << i for i in range(count.bit_length()) if 1 << i <= count), count})


# ---- what to measure ----

def plan(cpus, have, length):
    """What to measure on a host of Places and Caches: ([Figure], {name: why it cannot be measured})."""
    figures, missing = [], {}
    cores, near = cores_of(cpus), pairs(cpus)
    first = cores[0]
    local = [place for place in cores if place.llc == first.llc]
    socket = [place for place in cores if place.socket == first.socket]
    # Memory of another socket; nodes that span sockets have none.
    far = next((place.node for place in cores if place.socket != first.socket and place.node not in
                {other.node for other in socket}), None)
    where = {place.node for place in cpus}
    home = first.node if len(where) > 1 else -1

    def node(place):
        return place.node if len(where) > 1 else -1

    def add(name, what, samples, reason="", words=""):
        if samples:
            figures.append(Figure(name, what, tuple(map(tuple, samples)), words))
        else:
            missing[name] = reason
    add("mhz", "mhz", [[place.cpu for place in cores]], words="all cores at once")
    add("cpi", "cpi", [[first.cpu]], words="the kernel in pipe round trips")
    add("smt_percent", "smt", [[one.cpu, two.cpu] for one, two in
                               spread_out(near["smt"], TRIP_PAIRS)],
        "the host has no SMT, or it is off", "system calls on both threads of a core")
    # Half a cache, so that the data is in no smaller one, and other data has room.
    for level, name in ((1, "l1"), (2, "l2"), (3, "l3")):
        size = have.levels.get(level, (0, 0))[0]
        add(name, "chase", [[-1, size // 2, place.cpu] for place in
                            spread_out(cores, TRIP_PAIRS)] if size else [],
            f"the host does not describe its cache of level {level}", "chains of dependent loads")
    largest = max((kib for kib, _ in have.levels.values()), default=0)
    dram_kib = min(max(4 * largest, LEAST_DRAM_KIB), MOST_DRAM_KIB, max(have.memory_kib // 8, 1))
    if dram_kib <= 2 * largest:
        missing["dram"] = missing["far_dram"] = f"{have.memory_kib} KiB of memory are too few"
    else:
        add("dram", "chase", [[node(place), dram_kib, place.cpu] for place in
                              spread_out(cores, TRIP_PAIRS)], words="chains of dependent loads")
        add("far_dram", "chase", [[far, dram_kib, place.cpu] for place in
                                  spread_out(socket, TRIP_PAIRS)] if far is not None else [],
            "the host has one socket, or no node that is in one socket only", "memory of the "
            "other socket")
    alone = {distance: f"the host has no two {IN_WORDS[distance]}" for distance in DISTANCES}
    for name, distance in (("smt_line", "smt"), ("other_core", "llc"), ("other_llc", "other_llc"),
                           ("other_socket", "other_socket")):
        add(name, "bounce", [[node(one), one.cpu, two.cpu] for one, two in
                             spread_out(near[distance], length.pairs)], alone[distance],
            "pairs, half a round trip by compare-and-swap")
    # Where a line is homed matters between LLCs; where a socket has one LLC, between its cores.
    inside = [pair for pair in near["other_llc"] or near["llc"] if pair[0].socket == first.socket]
    add("home_near", "bounce", [[home, one.cpu, two.cpu] for one, two in
                                spread_out(inside, length.pairs)] if far is not None else [],
        missing.get("far_dram", ""), "pairs of a socket, the line homed there")
    add("home_far", "bounce", [[far, one.cpu, two.cpu] for one, two in
                               spread_out(inside, length.pairs)] if far is not None else [],
        missing.get("far_dram", ""), "pairs of a socket, the line homed in the other socket")
    add("store", "store", [[node(one), one.cpu, two.cpu] for one, two in
                           spread_out(near["llc"], TRIP_PAIRS)], alone["llc"],
        "stores to lines that the other core of the pair has written")
    kib = max(LEAST_READ_KIB, 4 * largest // max(len(local), 1))
    for name, readers, at in (("read_core", [first], home), ("read_llc", local, home),
                              ("read_socket", socket, None), ("read_far", socket, far)):
        if kib * len(readers) > have.memory_kib // 2:
            missing[name] = f"{len(readers)} CPUs that read {kib // KIB_PER_MIB} MiB each need more "\
                            "memory than half of what is available"
        elif name == "read_far" and far is None:
            missing[name] = "the host has one socket, or no node that is in one socket only"
        else:
            # Without a node each CPU reads memory of its own.
            add(name, "read", [[-1 if at is None else at, kib, *(place.cpu for place in readers)]],
                words=f"{len(readers)} cores read {kib // KIB_PER_MIB} MiB each")
    one_each = list({place.llc: place for place in reversed(cores)}.values())[::-1]
    for name, group in (("llc", local), ("llcs", one_each), ("all", cores)):
        for count in steps(len(group)) if name != "all" or len(cores) > len(local) else ():
            add(f"add_{name}/{count}", "add", [[home, *(place.cpu for place in group[:count])]])
    for what in ("pipe", "futex"):
        for distance in DISTANCES:
            add(f"{what}/{distance}", what, [[one.cpu, two.cpu] for one, two in
                                             spread_out(near[distance], TRIP_PAIRS)], alone[distance])
    add("ipi", "ipi", [[one.cpu, two.cpu] for one, two in spread_out(near["llc"], TRIP_PAIRS)],
        alone["llc"], "half of what membarrier() takes with a thread on another core of the LLC")
    return figures, missing


def seconds_of(figures, length):
    """How long measuring takes, about, in seconds."""
    return sum(len(one.samples) for one in figures) * length.runs * (length.ms / 1000 + START_SECONDS)


# ---- measuring ----

def program():
    """The path of guest/calibrate.c as a program: the one that was packed, or compiled here. Error
    without either."""
    if PACKED.exists():
        try:
            subprocess.run([PACKED], capture_output=True, check=False, timeout=10)
            return PACKED
        except OSError:
            warn(f"{PACKED} does not run on this host: compiling it")
    if not shutil.which("gcc"):
        raise Error("calibrate needs gcc, or a directory that was made where gcc is")
    built = BUILD / "calibrate" / "calibrate"
    built.parent.mkdir(parents=True, exist_ok=True)
    sh(["gcc", "-O2", "-pthread", "-o", built, SOURCE], capture=True, timeout=120)
    return built


def run(path, figure, sample, ms):
    """The numbers that one measurement prints. Cannot if the host cannot measure it, Error if the
    program fails."""
    # NODE is the first argument of some, MS comes behind it.
    split = 1 if figure.what in ("chase", "bounce", "store", "add", "read") else 0
    words = [str(path), figure.what, *map(str, sample[:split]), str(ms), *map(str, sample[split:])]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False,
                              timeout=2 * ms / 1000 + FILL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Error(f"{' '.join(words)}: killed after {error.timeout:.0f} s") from None
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    if done.returncode == CANNOT:
        raise Cannot(last.partition(": ")[2] or last)
    if done.returncode:
        raise Error(f"{' '.join(words)}: status {done.returncode}: {last}")
    return [float(word) for word in done.stdout.split()]


def measure(path, figures, length, missing, show=lambda text: None):
    """Measure Figures: {name: [[numbers of each run] of each sample]}. A figure that the host turns
    out not to be able to measure, or whose program fails, is added to `missing`."""
    found = {}
    for number, figure in enumerate(figures, 1):
        show(f"[{number}/{len(figures)}] {figure.name}")
        try:
            found[figure.name] = [[run(path, figure, sample, length.ms) for _ in range(length.runs)]
                                  for sample in figure.samples]
        except (Cannot, Error) as error:
            missing[figure.name] = str(error)
    return found


def value(samples, number=0):
    """The median over the samples of the medians of their runs, of one of the numbers printed."""
    return statistics.median(statistics.median(run_[number] for run_ in runs) for runs in samples)


def idle_states(one, two, root=CPU):
    """{"POLL": writes, "C1": writes}, the (file, value) pairs below `root` that leave two CPUs one
    idle state only. Cannot if the host has not both states, or does not allow a choice."""
    states = {}
    for cpu in (one, two):
        for path in sorted((root / f"cpu{cpu}/cpuidle").glob("state[0-9]*")):
            states.setdefault(cpu, {})[(path / "name").read_text().strip()] = (
                str((path / "disable").relative_to(root)))
    if any({"POLL", "C1"} - set(states.get(cpu, ())) for cpu in (one, two)):
        raise Cannot("cpuidle has not both of POLL and C1")
    if os.geteuid():
        raise Cannot("only root can disable idle states")
    return {wanted: [(file, str(int(name != wanted))) for cpu in (one, two)
                     for name, file in states[cpu].items()] for wanted in ("POLL", "C1")}


def measure_idle(path, cpus, length, missing):
    """Futex round trips of two cores of an LLC that poll, and that wait in C1 only: {"idle_poll": ...,
    "idle_c1": ...} as from measure(), or nothing. The idle states are as before afterwards, however
    this ends (see knobs.Guard)."""
    near = pairs(cpus)["llc"]
    found = {}
    try:
        if not near:
            raise Cannot("an LLC has one core")
        one, two = (place.cpu for place in near[0])
        writes = idle_states(one, two)
        guard = knobs.Guard(list(writes.values()), CPU)
        try:
            for name, wanted in (("idle_poll", "POLL"), ("idle_c1", "C1")):
                knobs.write(writes[wanted], CPU)
                found[name] = measure(path, [Figure(name, "futex", ((one, two),))], length,
                                      missing)[name]
        finally:
            guard.close()
    except (Cannot, Error) as error:
        missing["idle_c1"] = str(error)
    return found


# ---- the file ----

def tables(found, cpus, have, missing, source):
    """The tables of a file of machines/caches/, {table: {key: value}}, source included, of measured
    figures; and {"table.key": reason} of what is missing. source(names) writes where figures are
    from."""
    out, absent = {}, {}

    def put(table, key, names, make, kind=float):
        """Fill in a key by make(values of the named figures), unless one of them is missing, or noise
        made the result no number above 0."""
        out.setdefault(table, {})
        for name in names:
            if name not in found:
                absent[f"{table}.{key}"] = missing.get(name, "not measured")
                return
        number = make(*(value(found[name]) for name in names))
        if kind is not bool:
            number = round(number, 0 if kind is int else 2)
            if number <= 0:
                absent[f"{table}.{key}"] = f"measured as {number:g}: lost in noise"
                return
        out[table][key] = kind(number)
        sources.setdefault(table, []).extend(names)

    sources = {}
    one_llc = len({place.llc for place in cpus}) == len({place.socket for place in cpus})
    put("core", "mhz", ("mhz",), float, int)
    put("core", "cycles_per_instruction", ("cpi",), float)
    put("core", "smt_percent", ("smt_percent",), float, int)
    put("core", "store_percent", ("store", "other_core"), lambda one, two: 100 * one / two, int)
    for level, table in ((1, "l1"), (2, "l2"), (3, "l3")):
        kib, ways = have.levels.get(level, (0, 0))
        out[table] = {}
        cores = sum(place.llc == cpus[0].llc for place in cores_of(cpus))
        for key, number in (("kib_per_core" if level == 3 else "kib",
                             kib // cores if level == 3 else kib), ("ways", ways)):
            if number:
                out[table][key] = number
            else:
                absent[f"{table}.{key}"] = f"the host does not describe its cache of level {level}"
        if level > 1:
            put(table, "ns", (table,), float)
    put("other_core", "ns", ("other_core",), float)
    put("other_llc", "ns", ("other_core",) if one_llc else ("other_llc",), float)
    put("other_socket", "ns", ("other_socket",), float)
    put("dram", "ns", ("dram",), float)
    put("far_dram", "ns", ("far_dram",), float)
    # Nearer to what a line takes between sockets than to what it takes at home.
    put("home", "passed", ("home_near", "home_far", "other_socket"),
        lambda near, far, socket: far > (near + socket) / 2, bool)
    put("misses", "outstanding", ("read_core", "dram"), lambda gbs, ns: gbs * ns / 64, int)
    if one_llc:
        out["bandwidth"] = {"link_gbs": 0}
    else:
        put("bandwidth", "link_gbs", ("read_llc",), float, int)
    put("bandwidth", "memory_gbs", ("read_socket",), float, int)
    put("bandwidth", "socket_gbs", ("read_far",), float, int)
    put("sleep", "c1_exit_ns", ("idle_c1", "idle_poll"), lambda one, two: (one - two) / 2, int)
    put("sleep", "ipi_ns", ("ipi",), float, int)
    for table, numbers in out.items():
        words = ["sizes as the host describes them"] if table in ("l1", "l2", "l3") else []
        words += [source(list(dict.fromkeys(sources[table])))] if table in sources else []
        words += ["a socket has one LLC"] if one_llc and table in ("other_llc", "bandwidth") else []
        if numbers:
            numbers["source"] = "; ".join(words)
    return {table: numbers for table, numbers in out.items() if numbers}, absent


def qemu_cpu(root=facts.ROOT):
    """QEMU's model of a host's CPU, or None if none is known."""
    lines = (line.partition(":") for line in
             (root / "proc/cpuinfo").read_text(errors="replace").splitlines())
    said = {}
    for name, _, text in lines:
        said.setdefault(name.strip(), text.strip())
    for vendor, family, models, name in QEMU_CPUS:
        if said.get("vendor_id") == vendor and said.get("cpu family") == str(family) and (
                said.get("model", "").isdecimal() and int(said["model"]) in models):
            return name
    return None


def toml(description, model, numbers, absent):
    """The text of a file of machines/caches/. What is missing is listed as `incomplete`."""
    def text(value_):
        return str(value_).lower() if isinstance(value_, bool) else json.dumps(value_)
    lines = ["# SPDX-License-Identifier: GPL-2.0-only", f"description = {text(description)}"]
    if model:
        lines.append(f"qemu_cpu = {text(model)}")
    else:
        absent = {**absent, "qemu_cpu": "no model of QEMU is known for this CPU"}
    if absent:
        lines += ["# These were not measured, and the simulation refuses the file.", "incomplete = [",
                  *(f"    {text(f'{key}: {reason}')}," for key, reason in absent.items()), "]"]
    for table, keys in numbers.items():
        lines += ["", f"[{table}]", *(f"{key} = {text(number)}" for key, number in keys.items())]
    return "\n".join(lines) + "\n"


# ---- the command ----

def command(_args=None):
    """make calibrate, or `./run calibrate` in a directory that was copied to a host: measure, write
    the file and the raw values, print what is missing; 0."""
    short, noisy, save = (settings.get(name) for name in ("SHORT", "NOISY", "SAVE"))
    if short and save:
        raise Error("SHORT=1 SAVE=1: a short run is not for machines/caches/")
    about, kernel = facts.gather(), facts.kernel()
    name = settings.get("NAME") or facts.name(about)
    length = SHORT if short else FULL
    path = (ROOT if save else BUILD) / "machines/caches" / f"{name}.toml"
    if save and path.exists():
        raise Error(f"{path} exists: remove it, or choose another NAME=")
    knobs.recover()
    cpus, have = places(), caches()
    figures, missing = plan(cpus, have, length)
    for words in facts.warnings(about):
        warn(f"note      {words}")
    say(f"host      {about['cpu']}, {about['packages']} sockets, {about['llcs']} LLCs, "
        f"{about['cores']} cores, {about['nodes']} NUMA nodes")
    say(f"takes     about {max(round(seconds_of(figures, length) / 60), 1)} min: {len(figures)} figures")
    used, stolen, names = facts.busy(WATCH_SECONDS)
    if max(used, stolen) > facts.limit(about["cpus"]):
        words = (f"the host is not quiet: others keep {used:.2f} of its {about['cpus']} CPUs busy "
                 f"({', '.join(names)}), a hypervisor took {stolen:.2f}")
        if not noisy:
            raise Error(f"{words}. NOISY=1 measures nevertheless")
        warn(words)
    built = program()
    found = measure(built, figures, length, missing, say)
    found |= measure_idle(built, cpus, length, missing)
    date = time.strftime("%Y-%m-%d")
    words = {figure.name: figure for figure in figures}

    def source(names_):
        parts = []
        for one in names_:
            about_it = f" ({words[one].words})" if one in words and words[one].words else ""
            parts.append(f"{one}{about_it}: median of {len(found[one])} samples, {length.runs} runs "
                         "of each")
        return (f"make calibrate on {platform.node()} ({about['cpu']}), Linux {kernel['release']}, "
                f"{date}: " + "; ".join(parts))
    numbers, absent = tables(found, cpus, have, missing, source)
    if short:
        absent = {"SHORT=1": "each figure was measured once and for a moment", **absent}
    description = (f"{about['cpu']}, {about['packages']} sockets, {about['nodes']} NUMA nodes, "
                   f"measured on {platform.node()}" + (", NOISY=1" if noisy else ""))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(toml(description, qemu_cpu(), numbers, absent))
    raw = _raw_path((ROOT if save else BUILD) / "results" / name / "calibrate", kernel["release"])
    raw.parent.mkdir(parents=True, exist_ok=True)
    raw.write_text(json.dumps({
        "host": about, "kernel": kernel, "date": date, "ms": length.ms, "runs": length.runs,
        "noise": {"others": used, "stolen": stolen}, "missing": missing,
        "figures": {one: {"samples": [list(sample) for sample in words[one].samples]
                          if one in words else [], "values": values}
                    for one, values in found.items()}}, indent=1) + "\n")
    _conclude(found, absent)
    say(f"kept as {path} and {raw}")
    return 0


def _raw_path(directory, release):
    """A file for the raw values that does not exist yet."""
    number = 1
    while (path := directory / f"{release}-{number}.json").exists():
        number += 1
    return path


def _conclude(found, absent):
    """Print the median of each figure, and what is missing."""
    for name, samples in found.items():
        say(f"{name:<22}{value(samples):g}")
    for key, reason in absent.items():
        warn(f"missing   {key}: {reason}")
