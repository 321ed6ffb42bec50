# SPDX-License-Identifier: GPL-2.0-only
"""make bench-cost: instructions per operation, and memory per process.

Under icount the guest's clock counts the instructions that all its CPUs execute, so that a figure
does not depend on the host. The kernels have the same configuration and run the same initramfs, and
nothing in the guest is random: the same kernels give the same figures again, to the last digit. The
layout of memory is left to chance; so everything is measured in several layouts, the same ones for
each kernel.

A round trip between CPUs now and then takes 1 to 10 % more for some ticks. guest/cost.c detects and
repeats such a measurement; a layout that is disturbed in all attempts is left out of the row, for all
kernels.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

from kit.cost import plan, profile
from kit.paths import RESULTS, ROOT
from kit.process import Error, say, warn
from kit.results import pages, store, tables, verdict
from kit.vm import guest, initramfs, kernel, ktap, machine, qemu

INSTRUMENT = "cost"


def measure(m, which, boot, size, state, userland, stop=None):
    """Boot a Kernel on a Machine, set a State, and measure the rows of a Boot: {row name: [what the
    program printed in each layout, {name: number}]}. Setting `stop`, a threading.Event, ends the run. Error if the
    run fails.

    A boot has one state, so that everything before a measurement is the same in each column."""
    m = dataclasses.replace(m, **boot.change)
    blocks = 1 if boot.memory else size.layouts
    name = f"{m.name}-cost-{boot.name}-{state.column.replace(' ', '-')}"
    result = guest.run(m, which, "cost", {
        "ROWS": " ".join(f"{row.name}:{row.command}" for row in boot.rows),
        "STATE": state.writes, "BLOCKS": blocks,
    }, timeout=plan.TIMEOUT, icount=True, userland=userland, kernel_args=boot.kernel_args, stop=stop,
        name=name)
    tests, found = ktap.parse(result.ktap), {}
    for figure in tests.figures["cost"]:
        found.setdefault(figure["row"], []).append(figure)
    result.check(f"{name}, on {which}", tests, [f"no {row.name}" for row in boot.rows
                                                if len(found.get(row.name, ())) != blocks])
    say(f"  {name}: {result.seconds:.0f} s")
    return found


def kept(m, which, boot, size, state, userland, stop, about):
    """The same as measure(), or what that gave before: a run of all columns takes hours, and one that was ended goes on
    where it was. about: what the figures depend on besides."""
    if kernel.UNCOMMITTED in about[-1].get("source", ""):
        return measure(m, which, boot, size, state, userland, stop)
    key = hashlib.sha256(repr((m, str(which), boot, size, state, about)).encode()).hexdigest()
    path = which.series.build / "cost" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text())
    found = measure(m, which, boot, size, state, userland, stop)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(path)
    return found


def _code():
    """What boots a guest and measures in it: a hash of the files of the kit that do."""
    text = b"".join(path.read_bytes() for where in ("cost", "vm") for path in sorted((ROOT / "kit" / where).glob("*.py")))
    return hashlib.sha256(text).hexdigest()


def collect(m, builds, size, repeat, userland, columns=()):
    """Measure Kernels that are built on a Machine; a store.Result. columns: as for plan.chosen().
    repeat["disturbed"] has the layouts that are left out of a row, {row: {layout: columns}}."""
    states = plan.chosen(builds, columns)
    planned = [(boot, build, state) for boot in plan.boots(m, size) for build in builds
               for state in states[build] if state.memory or not boot.memory]
    # Read before and after: a kernel that is rebuilt meanwhile makes the result useless.
    kernels = {str(build): kernel.identity(build) for build in builds}
    same = (repeat["qemu"], repeat.get("initramfs"), _code())
    stop = threading.Event()
    # Each guest takes one CPU of the host.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        futures = [pool.submit(kept, m, build, boot, size, state, userland, stop, (*same, kernels[str(build)]))
                   for boot, build, state in planned]
        try:
            done = [future.result() for future in futures]
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    if kernels != {str(build): kernel.identity(build) for build in builds}:
        raise Error("a kernel or its source changed during the run; the results are discarded")
    subjects = {state.column: store.Subject(str(build), state.column, state.against)
                for build in builds for state in states[build]}
    metrics = {}
    values = {column: {} for column in subjects}
    out = disturbed(planned, done)
    for (boot, _, state), found in zip(planned, done):
        for row in boot.rows:
            blocks = [block for number, block in enumerate(found[row.name])
                      if str(number) not in out.get(row.name, ())]
            for name, suffix, words, unit in row.figures if blocks else ():
                metrics[row.name + suffix] = store.Metric(unit, "less", row.title + words)
                values[state.column][row.name + suffix] = [block[name] for block in blocks]
    for row, layouts in out.items():
        for number, columns in layouts.items():
            warn(f"{row}: layout {number} is left out: disturbed in each attempt "
                 f"({', '.join(columns)})")
    repeat = {**repeat, "disturbed": out}
    return store.Result(INSTRUMENT, m.name, repeat, kernels, metrics, subjects, values)


def disturbed(planned, done):
    """The layouts that were disturbed in each attempt, in any column: {row name: {layout, as text:
    [column]}}; planned: [(Boot, build, State)], done: what measure() returned for each."""
    out = {}
    for (_, _, state), found in zip(planned, done):
        for row, blocks in found.items():
            for number, block in enumerate(blocks):
                if block.get("disturbed"):
                    out.setdefault(row, {}).setdefault(str(number), []).append(state.column)
    return out


def repeat_info(m, size, compare, stack, columns=()):
    """What repeats the run: its command, sizes, commit, QEMU, machine and initramfs."""
    command = f"make bench-cost MACHINE={m.name}{stack.series.setting}" + (f" COMPARE={compare}" if compare else "") + (
        f" COLUMNS='{','.join(columns)}'" if columns else "") + (" SHORT=1" if size == plan.SHORT else "")
    return {"command": command, "primary": list(plan.PRIMARY), **dataclasses.asdict(size),
            "commit": store.commit(),
            "qemu": qemu.version(qemu.find(stack.series.build)),
            "machine": dataclasses.asdict(m),
            "initramfs": hashlib.sha256(initramfs.base(stack)).hexdigest()}


def command(settings):
    """make bench-cost: build, measure, print, compare with the committed results; 0."""
    m = machine.load(settings["MACHINE"])
    compare = settings["COMPARE"]
    short, save = settings["SHORT"], settings["SAVE"]
    if short and save:
        raise Error("SHORT=1 SAVE=1: a short run is not for results/")
    series = settings.series
    builds = [kernel.named(series, name) for name in (
        "base", "stack", *([f"{compare}/nocache", f"{compare}/base"] if compare else ()))]
    stack = builds[1]
    columns = [column.strip() for column in settings["COLUMNS"].split(",") if column.strip()]
    plan.chosen(builds, columns)
    size = plan.SHORT if short else plan.FULL
    if compare and m.sockets * m.llcs_per_socket < 2:
        warn(f"{m.name} has one LLC, where mainline's cache-aware scheduling does nothing: "
             f"\"{compare} on\" is the same as off")
    # Fails now, and not after all the measuring, if the file cannot be read.
    committed = RESULTS / series.results(m.name) / f"{INSTRUMENT}.json"
    old = verdict.judged(store.load(committed)) if committed.exists() else None
    if settings["PROFILE"]:
        profile.wanted(m, settings["PROFILE"], builds, size)
    for build in builds:
        kernel.build(build)
    initramfs.base(stack)
    if settings["PROFILE"]:
        profile.show(m, settings["PROFILE"], builds, size, stack)
        return 0
    say(f"measuring on {m.name}: {', '.join(map(str, builds))}")
    result = verdict.judged(collect(m, builds, size, repeat_info(m, size, compare, stack, columns), stack, columns))
    for heading, rows in tables.cost(result):
        for line in ["", heading, "", *tables.text(rows)]:
            say(line)
    for line in ["", tables.DISTURBED, "", *tables.sums(result.verdicts), ""]:
        say(line)
    if short:
        say("a short run is not compared with what is committed")
    elif old:
        lines = tables.moves(old, result)
        say(f"against {committed.relative_to(ROOT)}: {len(lines) or 'nothing'} moved")
        for line in lines:
            say(f"  {line}")
    else:
        say(f"there is no {committed.relative_to(ROOT)} to compare with")
    where = RESULTS if save else settings.build / "results"
    path = where / series.results(m.name) / f"{INSTRUMENT}.json"
    store.save(result, path)
    path.with_suffix(".md").write_text("\n".join(pages.own(result)) + "\n")
    say(f"kept as {path} and {path.with_suffix('.md').name}")
    return 0
