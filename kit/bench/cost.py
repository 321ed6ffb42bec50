# SPDX-License-Identifier: GPL-2.0-only
"""The instrument behind make bench-cost: instructions per operation, and memory per process.

Under icount the guest's clock counts the instructions that all its CPUs execute, so that a figure
does not depend on the host. The kernels have the same configuration and run the same initramfs, and
nothing in the guest is random: the same kernels give the same figures again, to the last digit. What
is left to chance is where things lie in memory; so everything is measured in several layouts, the
same ones for each kernel.
"""

import dataclasses
import hashlib
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kit import guest, kernel, ktap, machine, mainline, qemu, stack
from kit.bench import report, results
from kit.page import FEATURES
from kit.paths import BUILD, LAYOUT, MAINLINE, MAINLINE_BUILDS, ROOT
from kit.run import Error, git, say, warn

INSTRUMENT = "cost"
RESULTS = ROOT / "results"
TIMEOUT = 7200
POSSIBLE_TIMES = 4
MOST_POSSIBLE = 64
# Lines of a guest's output that an Error shows.
LAST = 10
# The features with which a process takes another amount of memory.
ALLOCATING = ("SCHED_CACHE",)


@dataclass(frozen=True)
class Size:
    """How much is measured: layouts; ms of the guest's time, so many millions of instructions,
    for each operation in each layout; processes to sleep at once; MiB of memory they need."""
    layouts: int
    ms: int
    processes: int
    memory_mib: int
    # With the boots that take minutes.
    slow: bool = True


# Nine layouts: the interval of a median leaves out the first and the last (see stats.change).
FULL = Size(9, 25, 10_000, 6144)
SHORT = Size(1, 6, 500, 1024, slow=False)


@dataclass(frozen=True)
class Row:
    """What a program of guest/ measures: its name, title, arguments and what the two figures are
    that it prints, each a suffix of the name, one of the title, and the unit."""
    name: str
    title: str
    command: str
    figures: tuple = (("", "", "instructions"), ("+ticks", ", with ticks", "instructions"))


@dataclass(frozen=True)
class Boot:
    """One way to boot, and what is measured there."""
    name: str
    rows: list
    kernel_args: tuple = ()
    # What is different about the machine.
    change: dict = field(default_factory=dict)
    # Whether it is about memory: in one layout, and not in States that change none.
    memory: bool = False


def boots(m, size):
    """Give the Boots that measure all there is to measure on a Machine."""
    ms = size.ms
    near = [cpu for cpu in m.expected() if cpu.group >= 0]
    first, places = near[0], {"one CPU": near[0].cpu}
    for cpu in near[1:]:
        place = ("one group" if cpu.group == first.group else
                 "one LLC" if cpu.llc == first.llc else "two LLCs")
        places.setdefault(place, cpu.cpu)
    here = first.cpu

    def cost(operation, other, times=1):
        return f"cost:{operation}:{here}:{other}:@:{times * ms}"

    rows = [Row(f"{operation}/{place.replace(' ', '-')}", f"{title}, {place}",
                cost(operation, cpu))
            for operation, title in (("pipe", "pipe round trip, processes"),
                                     ("thread-pipe", "pipe round trip, threads"),
                                     ("futex", "futex round trip, threads"))
            for place, cpu in places.items()]
    alone = (("yield", "sched_yield, two processes"), ("fork-exit", "fork, exit, wait"),
             ("vfork-exec", "vfork, exec, exit, wait"), ("posix-spawn", "posix_spawn, exit, wait"),
             ("thread-join", "thread create, join"),
             ("exec-threads", "fork, 3 threads, exec, exit, wait"))
    # What starts processes takes 0.2 ms and more.
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
                  (("/slab", ", slab", "bytes"), ("/percpu", ", percpu", "bytes")))
              for threads, words in ((1, "1 thread"), (2, "2 threads"))]
    return [Boot("operations", rows),
            Boot("hot-unplug", [unplug]),
            # The further sockets stay offline. On larger machines QEMU gets too slow, and with
            # nodes the first sockets would not be what they were.
            # In parallel the kernel would bring up one thread of each core first.
            *([Boot("possible", wide, (f"maxcpus={m.cpus}", "cpuhp.parallel=0"),
                    {"sockets": m.larger(POSSIBLE_TIMES).sockets,
                     "memory_mib": max(m.memory_mib, 1024)})]
              if size.slow and possible <= MOST_POSSIBLE and m.numa_nodes == 1 and not m.nosmt else []),
            Boot("balance", [balance], ("nohz=off", "skew_tick=1")),
            Boot("memory", memory, change={"memory_mib": max(m.memory_mib, size.memory_mib)},
                 memory=True)]


@dataclass(frozen=True)
class State:
    """A kernel in a state: what its column is called, the files to write that bring it about
    (FILE=VALUE,... as guest/jobs/cost.sh takes them), and the column it is compared with."""
    column: str
    writes: str = ""
    against: str | None = None
    # Whether it may use another amount of memory than the States before it.
    memory: bool = True


def states(build):
    """Give the States in which a BUILD is measured."""
    if build == "stack":
        off = ",".join(f"features=NO_{feature.name}" for feature in FEATURES)
        return [State("off", off, "base"),
                *(State(feature.name, ",".join([off, *(f"features={name}" for name in
                                                       (*feature.needs, feature.name))]),
                        "base", feature.name in ALLOCATING)
                  for feature in FEATURES)]
    plain = MAINLINE_BUILDS[1]
    if build == MAINLINE:
        return [State(f"{MAINLINE} off", "llc_balancing/enabled=0", plain),
                State(f"{MAINLINE} on", "llc_balancing/enabled=1", plain)]
    return [State(build)]


def measure(m, build, boot, size, state, stop=None):
    """Boot a BUILD on a Machine, bring about a State, and give {row name: [(figure, figure) of each
    layout]}; setting `stop`, a threading.Event, ends it. Error if the run failed.

    One state in a boot, so that all that came before a measurement is the same in each column."""
    m = dataclasses.replace(m, **boot.change)
    blocks = 1 if boot.memory else size.layouts
    name = f"{m.name}-cost-{boot.name}-{state.column.replace(' ', '-')}"
    result = guest.run(m, build, "cost", {
        "ROWS": " ".join(f"{row.name}:{row.command}" for row in boot.rows),
        "STATE": state.writes, "BLOCKS": blocks,
    }, timeout=TIMEOUT, icount=True, userland="stack", kernel_args=boot.kernel_args, stop=stop,
        name=name)
    bad = result.failures() + ktap.parse(result.ktap).failures()
    if bad:
        raise Error("\n".join([f"{name}, on {build}:", *bad, *result.ktap.splitlines()[-LAST:]]))
    found = {}
    for row, one, two in re.findall(r"^# cost (\S+) \d+ ([\d.-]+) ([\d.-]+)(?: \d+)?$", result.ktap,
                                    re.M):
        found.setdefault(row, []).append((float(one), float(two)))
    for row in boot.rows:
        if len(found.get(row.name, ())) != blocks:
            raise Error("\n".join([f"{name}, on {build}: no {row.name}:",
                                   *result.ktap.splitlines()[-LAST:]]))
    say(f"  {name}: {result.seconds:.0f} s")
    return found


def collect(m, builds, size, repeat):
    """Measure BUILDs that are built on a Machine; give a results.Result."""
    planned = [(boot, build, state) for boot in boots(m, size) for build in builds
               for state in states(build) if state.memory or not boot.memory]
    # What was built, before somebody builds something else.
    kernels = {build: identity(build) for build in builds}
    stop = threading.Event()
    # Each guest takes one CPU of the host.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        futures = [pool.submit(measure, m, build, boot, size, state, stop)
                   for boot, build, state in planned]
        try:
            done = [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if kernels != {build: identity(build) for build in builds}:
        raise Error("a kernel was built anew meanwhile, or its source is another now: nobody knows "
                    "which one was measured")
    subjects = {state.column: results.Subject(build, state.column, state.against)
                for build in builds for state in states(build)}
    metrics = {}
    values = {column: {} for column in subjects}
    for (boot, _, state), found in zip(planned, done):
        for row in boot.rows:
            for i, (suffix, words, unit) in enumerate(row.figures):
                metrics[row.name + suffix] = results.Metric(unit, "less", row.title + words)
                values[state.column][row.name + suffix] = [pair[i] for pair in found[row.name]]
    return results.Result(INSTRUMENT, m.name, repeat, kernels, metrics, subjects, values)


def identity(build):
    """What says which kernel a BUILD is: its release, the SHA-256 of its configuration, its
    source, and for a kernel with patches that of the patches."""
    config = (LAYOUT.out(build) / ".config").read_bytes()
    if build in MAINLINE_BUILDS:
        source = f"Debian {mainline.version()}"
    else:
        source = "git tree " + git(LAYOUT.source(build), "rev-parse", "HEAD^{tree}").out.strip()
        if git(LAYOUT.source(build), "status", "--porcelain").out:
            source += ", with changes that are not committed"
    about = {"release": kernel.release(build), "source": source,
             "config": hashlib.sha256(config).hexdigest()}
    if build == "stack":
        patches = b"".join((LAYOUT.patches / name).read_bytes() for name in stack.series())
        about["patches"] = hashlib.sha256(patches).hexdigest()
    return about


def repeat_info(m, size, compare):
    """What one needs to know to do it again."""
    command = f"make bench-cost MACHINE={m.name}" + (f" COMPARE={compare}" if compare else "") + (
        " SHORT=1" if size == SHORT else "")
    return {"command": command, **dataclasses.asdict(size),
            "commit": git(ROOT, "describe", "--always", "--dirty").out.strip(),
            "qemu": qemu.version(qemu.find(m.needs_smp_cache)),
            "machine": dataclasses.asdict(m),
            "initramfs": hashlib.sha256(guest.initramfs("stack")).hexdigest()}


def tables(result):
    """Give [(heading, rows)]: instructions without ticks, with them, and memory."""
    names = list(result.metrics)
    ticks = [name for name in names if name.endswith("+ticks")]
    memory = [name for name in names if result.metrics[name].unit == "bytes"]
    plain = [name for name in names if name not in ticks and name not in memory]
    return [("Instructions per operation, between ticks", report.table(result, plain)),
            ("Instructions per operation, with the ticks and what they set off",
             report.table(result, ticks)),
            ("Bytes of kernel memory per process", report.table(result, memory))]


def page(result):
    """Give the lines of a result as a page of Markdown."""
    lines = [f"# Cost on {result.machine}", "",
             f"By `{result.repeat['command']}` at {result.repeat['commit']}, QEMU "
             f"{result.repeat['qemu']}. How to read it: [docs/measuring.md]"
             "(../../docs/measuring.md).", ""]
    for name, kernel_ in result.kernels.items():
        lines.append(f"- {name}: {kernel_['release']}, {kernel_['source']}")
    for heading, rows in tables(result):
        lines += ["", f"## {heading}", "", *report.markdown(rows)]
    return lines


def switch(name):
    """Whether a variable of the environment is 1; Error if it is neither that nor 0 nor empty."""
    value = os.environ.get(name) or "0"
    if value not in ("0", "1"):
        raise Error(f"{name}={value}: is to be 0 or 1")
    return value == "1"


def command(args):
    """make bench-cost: build, measure, print, compare with the committed results; 0."""
    m = machine.load(args.machine)
    compare = os.environ.get("COMPARE")
    if compare not in (None, "", MAINLINE):
        raise Error(f"COMPARE={compare}: can compare with {MAINLINE} only")
    short, save = switch("SHORT"), switch("SAVE")
    if short and save:
        raise Error("SHORT=1 SAVE=1: a short run is not for results/")
    builds = ["base", "stack", *(reversed(MAINLINE_BUILDS) if compare else ())]
    size = SHORT if short else FULL
    if compare and m.sockets * m.llcs_per_socket < 2:
        warn(f"{m.name} has one LLC: there mainline's cache-aware scheduling does nothing, and "
             f"\"{MAINLINE} on\" is what off is")
    # A file that cannot be read is not found out about after all the measuring.
    committed = RESULTS / m.name / f"{INSTRUMENT}.json"
    old = results.load(committed) if committed.exists() else None
    for build in builds:
        kernel.build(build)
    guest.initramfs("stack")
    if os.environ.get("PROFILE"):
        # Here, as it needs this module.
        from kit.bench import profile
        profile.show(m, os.environ["PROFILE"], builds, size)
        return 0
    say(f"measuring on {m.name}: {', '.join(builds)}")
    result = collect(m, builds, size, repeat_info(m, size, compare))
    for heading, rows in tables(result):
        for line in ["", heading, "", *report.text(rows)]:
            say(line)
    say("")
    if short:
        say("a short run is not compared with what is committed")
    elif old:
        lines = report.moves(old, result)
        say(f"against {committed.relative_to(ROOT)}: {len(lines) or 'nothing'} moved")
        for line in lines:
            say(f"  {line}")
    else:
        say(f"there is no {committed.relative_to(ROOT)} to compare with")
    where = RESULTS if save else BUILD / "results"
    path = where / m.name / f"{INSTRUMENT}.json"
    results.save(result, path)
    path.with_suffix(".md").write_text("\n".join(page(result)) + "\n")
    say(f"kept as {path} and {path.with_suffix('.md').name}")
    return 0
