# SPDX-License-Identifier: GPL-2.0-only
"""make peers: where do the same programs run with cache-aware scheduling off and on, with scx_rusty, with mainline's
cache-aware scheduling, and pinned to LLCs by hand?

Two guests of each machine run the programs of guest/cases in rounds of all states (guest/jobs/peers.sh): one with the
patches, where scx_rusty is loaded in turn, and one with mainline. It needs cargo and clang, and is no part of the
tests. SAVE=1 writes results/peers.md. What scx_rusty does not survive is reported and no figure.
"""

import dataclasses
import re
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean

from kit.paths import RESULTS
from kit.process import Error, lock, say, sh
from kit.results import tables
from kit.trials import cases
from kit.vm import guest, kernel, ktap, machine

VERSION = "1.0.8"
# bindgen 0.69.4, which Cargo.lock pins, fails with libclang 19.
CLANGS = range(16, 19)
BUILD_SECONDS = 3600
# Its map of tasks takes 230 MiB.
MORE_MIB = 512
PROGRAMS = {
    "2 threads": "mixed 1 2 2 100",
    "3 threads": "mixed 1 3 3 100",
    "6 threads": "mixed 1 6 6 100",
    "2 processes of 6 threads": "mixed 2 6 6 100",
    "12 threads": "mixed 1 12 12 100",
    "3 threads of 60 % duty": "mixed 1 3 3 60",
    "8 processes of 2 to 4 threads": "mixed 8 2 4 100",
    "2 threads that wake each other": "stages 2 1",
}
# Name, heading, whether more is better, and the difference that counts if it shows in all rounds.
FIGURES = (("together", "Placement: % of the looks at which a process is in as few LLCs as it needs", True, 5),
           ("migrations", "Migrations between LLCs, per second, of all threads", False, 2),
           ("p99", "Waits for a CPU: the 99th percentile, in ms", False, 0.5))
# {BUILD: {state of the job: column}}, and what switches cache-aware scheduling in each.
ON = "6.12 on"
STATES = {"host": {"off": "6.12 off", "on": ON, "rusty": "scx_rusty", "pinned": "pinned"},
          "7.3/base": {"off": "7.3 off", "on": "7.3 on"}}
SWITCHES = {"host": (cases.AGAINST, cases.STATE),
            "7.3/base": ("llc_balancing/enabled=0", "llc_balancing/enabled=1")}
COLUMNS = [column for states in STATES.values() for column in states.values()]
ROUNDS = 3

LIMITS = """## What these figures do not say

- **Nothing about speed.** The guests are emulated and have no caches. Only placement, migrations and waits mean something.
- **Nothing about scx_rusty on hardware.** Its balancer is a program with wall-clock periods of 2 s and 0.1 s; it ran with
  `--interval 0.5 --tune-interval 0.1`, as a program is measured for about a second. All CPUs of a guest share the
  instructions of its clock, so its own work seems as many times as expensive as there are busy CPUs.
- scx_rusty does not know processes: it places each thread, and balances load between LLCs. That it does not keep a
  process in few LLCs is its design and no fault.
- 6.12 is built as `BUILD=host`, with the options of Debian's kernel; 7.3 as `7.3/base`, with fewer. So the columns of the
  one and of the other differ in more than the scheduler.
- A wait is by how much later than after its CPU time a thread has computed for 5 to 15 ms, or how late it runs after a
  wakeup. It grows with the number of busy CPUs, which share the clock: compare columns, not rows.
- A migration is seen when a thread has computed for 0.5 ms or has been woken; more of them in between are not counted.
- *needs*: threads times their duty, in LLCs of 8 CPUs. 12 threads on 16 CPUs need both LLCs, so that any placement is
  right there. *pinned*: each process is confined to so many LLCs, the least loaded, features off; its threads are free
  within these.
"""


def tools():
    """The number of the clang to compile with; Error for a tool of the build that is not there."""
    if not shutil.which("cargo"):
        raise Error("cargo is not installed: Rust 1.74 or newer has it, of rustup or of the distribution")
    for number in CLANGS:
        if shutil.which(f"clang-{number}") and list(Path(f"/usr/lib/llvm-{number}/lib").glob("libclang*.so*")):
            return number
    raise Error(f"no clang-{CLANGS[0]} to clang-{CLANGS[-1]} with libclang is installed (a newer libclang does not work):"
                f" apt-get install clang-{CLANGS[0]} libclang1-{CLANGS[0]} libclang-common-{CLANGS[0]}-dev")


def rusty(build):
    """Build scx_rusty below the build directory, unless it is there; give the files that a guest needs for it, {path in
    the guest without the first slash: path here}. Error if it cannot be built."""
    root = build / f"scx_rusty-{VERSION}"
    program = root / "bin/scx_rusty"
    with lock(build / "scx_rusty.lock"):
        if not program.exists():
            number = tools()
            say(f"scx_rusty {VERSION}: building with clang-{number} (log: {root}.log)")
            sh(["cargo", "install", f"scx_rusty@{VERSION}", "--locked", "--root", root, "--target-dir", root / "target"],
               env={"BPF_CLANG": f"clang-{number}", "LIBCLANG_PATH": f"/usr/lib/llvm-{number}/lib",
                    "CARGO_PROFILE_RELEASE_STRIP": "symbols"}, log=Path(f"{root}.log"), timeout=BUILD_SECONDS)
    return {"bin/scx_rusty": program, **libraries(sh(["ldd", program], capture=True).out)}


def libraries(text):
    """The libraries that ldd prints, as rusty() gives files. Error for one that is not there."""
    if "not found" in text:
        raise Error(f"scx_rusty lacks a library:\n{text}")
    return {path[1:]: Path(path) for path in re.findall(r"(/\S+) \(0x", text)}


def machines():
    """The Machines: 16 CPUs in two LLCs, and 32 in four."""
    large = machine.load("epyc-2x2x8")
    small = dataclasses.replace(large, name="epyc-1x2x8", description="2 CCX of 8 cores without SMT", sockets=1,
                                numa_nodes=1, numa_distances=[])
    return [dataclasses.replace(m, memory_mib=m.memory_mib + MORE_MIB) for m in (small, large)]


def parse(figures, columns):
    """What a guest measured, of the figures of its ktap.Results; columns: of its states. ({(program, column): {figure:
    [value of each round]}}, {(program, column): ["loading" or "running", when scx_rusty was lost, for each round with
    that]})."""
    names = {arguments: name for name, arguments in PROGRAMS.items()}
    found, lost = defaultdict(lambda: defaultdict(list)), defaultdict(list)
    for one in figures.get("case", ()):
        for name, *_ in FIGURES:
            found[names[one["program"]], columns[one["state"]]][name].append(one[name])
    for one in figures.get("lost", ()):
        lost[names[one["program"]], columns["rusty"]].append(one["when"])
    return found, lost


def cell(values, lost, rounds):
    """The text of a cell: mean, least and most of the values of all rounds; or why there are none."""
    if lost:
        return f"{'thrown out' if 'running' in lost else 'not loaded'}, {len(lost)} of {rounds}"
    if len(values) < rounds:
        return "not measured"
    low, high = (f"{value:.3g}" for value in (min(values), max(values)))
    return low if low == high else f"{mean(values):.3g} ({low} to {high})"


def differences(found, rounds):
    """How ON differs from each other column, in all rounds and by more than the figure's margin: {column: ([worse, a text
    each], [better], number of figures that both have)}. What was not measured in all rounds is left out."""
    differs = {column: ([], [], []) for column in COLUMNS if column != ON}
    for program in PROGRAMS:
        for column, (worse, better, compared) in differs.items():
            for name, _, more, margin in FIGURES:
                ours, theirs = (found[program, which][name] for which in (ON, column))
                if min(len(ours), len(theirs)) < rounds:
                    continue
                compared.append(name)
                if (min(ours) > max(theirs) or max(ours) < min(theirs)) and abs(mean(ours) - mean(theirs)) > margin:
                    (better if (mean(ours) > mean(theirs)) == more else worse).append(
                        f"{program}: {name} {mean(ours):.3g}, {mean(theirs):.3g} there")
    return {column: (worse, better, len(compared)) for column, (worse, better, compared) in differs.items()}


def section(m, releases, found, lost, rounds):
    """The lines of the page on a Machine; releases: {BUILD: uname -r}."""
    lines = [f"## {m.cpus} CPUs in {m.sockets * m.llcs_per_socket} LLCs", "",
             f"{m.description}, {m.memory_mib} MiB; {' and '.join(releases.values())}.", ""]
    for column, (worse, better, compared) in differences(found, rounds).items():
        for word, some in (("worse", worse), ("better", better)) if compared else ():
            lines.append(f"- `{ON}` **{word}** than `{column}` in {len(some)} of {compared}"
                         f"{': ' + '; '.join(some) if some else ''}.")
        if not compared:
            lines.append(f"- `{ON}` and `{column}` are **not compared**: one of them has no figures.")
    for name, title, *_ in FIGURES:
        lines += ["", f"{title}:", "", *tables.markdown([["program", *COLUMNS], *(
            [program, *(cell(found[program, column][name], lost[program, column], rounds) for column in COLUMNS)]
            for program in PROGRAMS)])]
    return lines


def page(sections, rounds, ms):
    """The text of results/peers.md, of the lines of each machine."""
    return "\n".join([
        "# Peers", "",
        f"Written by `make peers SAVE=1 ROUNDS={rounds}` on {time.strftime('%Y-%m-%d')}, on emulated machines. Each program ran"
        " in", f"{rounds} rounds of all states, for {ms} ms of the guest's clock after 1.5 s to settle; all states of a kernel in"
        " one boot.", f"scx_rusty is {VERSION}, as published. A cell is the mean of the rounds, with the least and the most."
        " *better* and *worse*:", "the ranges of the rounds do not overlap, and the means differ by more than "
        + ", ".join(f"{margin} of `{name}`" for name, _, _, margin in FIGURES) + ".", "",
        *(line for lines in sections for line in [*lines, ""]), LIMITS])


def measure(m, which, name, rounds, ms, files):
    """Run all programs in one guest on a Machine with a Kernel, the BUILD `name`: (found and lost as of parse(), lines on
    what failed)."""
    off, on = SWITCHES[name]
    env = {"ROUNDS": rounds, "MS": ms, "OFF": off, "ON": on, "STATES": " ".join(STATES[name]),
           "PROGRAMS": "".join(f"{arguments}\n" for arguments in PROGRAMS.values())}
    runs = rounds * len(PROGRAMS) * len(STATES[name])
    result = guest.run(m, which, "peers", env, timeout=600 + cases.RUN_SECONDS * runs, follow=say, files=files)
    tests = ktap.parse(result.ktap)
    found, lost = parse(tests.figures, STATES[name])
    say(f"peers: {name} on {m.name}, {result.seconds:.0f} s")
    wrong = result.failures() + tests.failures()
    wrong += [f"not measured: {program}, {column}, {m.cpus} CPUs" for program in PROGRAMS for column in STATES[name].values()
              if len(found[program, column]["p99"]) + len(lost[program, column]) < rounds]
    return found, lost, wrong


def command(settings):
    """make peers; the exit status. That scx_rusty is thrown out is a result and no failure."""
    if settings["SHORT"] and settings["SAVE"]:
        raise Error("SHORT=1 SAVE=1: a short run is not for results/")
    rounds = settings["ROUNDS"] or (cases.SHORT_ROUNDS if settings["SHORT"] else ROUNDS)
    ms = cases.SHORT_MS if settings["SHORT"] else cases.MS
    files = rusty(settings.build)
    kernels = {name: kernel.named(settings.series, name) for name in STATES}
    for which in kernels.values():
        kernel.build(which)
    releases = {name: kernel.release(which) for name, which in kernels.items()}
    sections, wrong = [], []
    for m in machines():
        found, lost = defaultdict(lambda: defaultdict(list)), defaultdict(list)
        for name, which in kernels.items():
            some = measure(m, which, name, rounds, ms, files if "rusty" in STATES[name] else None)
            found |= some[0]
            lost |= some[1]
            wrong += some[2]
        sections.append(section(m, releases, found, lost, rounds))
        print(*sections[-1], sep="\n", flush=True)
    if settings["SAVE"]:
        (RESULTS / "peers.md").write_text(page(sections, rounds, ms), encoding="utf-8")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0
