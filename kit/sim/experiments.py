# SPDX-License-Identifier: GPL-2.0-only
"""make sim-all: run the experiments of results/experiments.toml that are not up to date, and make all pages
again.

A boot is determined by what goes into it, so what it gave is kept until the whole table is up to date. An
interrupted run repeats only the boots that it had not finished.
"""

import dataclasses
import hashlib
import json
import math
import os
import shutil
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from kit import settings, toml
from kit.paths import RESULTS
from kit.process import Error, lock, say
from kit.results import power, store, tables, verdict
from kit.sim import costs, simulate, workloads
from kit.vm import initramfs, kernel, qemu

TABLE = RESULTS / "experiments.toml"
# The settings of each kernel that a row can be for. Without any, a row has its own.
KERNELS = {"ours": {"BUILD": "stack", "STATE": "features=SCHED_CACHE", "AGAINST": "features=NO_SCHED_CACHE"},
           "mainline": {"BUILD": "7.3/base", "STATE": "llc_balancing/enabled=1",
                        "AGAINST": "llc_balancing/enabled=0"}}
# What a row declares before it is run: whether it must win, must not lose, or is what can be had by hand; the size of
# a change that matters; the spread of the figure, see verdict.spread(), and what that rests on; seconds of a boot.
DECLARED = ("must", "size", "spread", "rests_on", "boot_s")
MUST = ("win", "not lose", "ceiling")
# What may be declared, in hours of a host of CPUS, unless the row says `long`.
HOURS, CPUS = 2, 2
# Settings of make sim that are a row's keys, in lower case.
KEYS = ("machine", "workload", "build", "state", "against", "start", "abba", "window_ms", "stats", "seeds",
        "cgroups", "settle_ms")
OTHER_KEYS = ("kernels", "sensitivity", "feature", "title", *DECLARED, "long")
# By how much SENSITIVITY=1 changes each cost: many sources of one figure differ by so much.
CHANGE = 0.3
# The boots of most rows: two states and a control, with 10 seeds each.
BOOTS = 30
# Added to the seeds of PILOT=1, so that the runs of a row are none of those that its number rests on.
PILOT_SEEDS = 10_000
# What changes from run to run, and says nothing about whether a result is up to date.
INCIDENTAL = ("commit", "seconds", "seeds", "command")


@dataclass(frozen=True)
class Row:
    """An experiment of the table for one kernel. name: of its result; env: {setting of make sim: text};
    sensitivity: the number of seeds to try it with, 0 for not at all; feature: what it tries, "" where its state says
    so; title: of the workload; declared: {one of DECLARED: value}, {} of a row that declares nothing."""
    name: str
    env: dict
    sensitivity: int = 0
    feature: str = ""
    title: str = ""
    declared: dict = field(default_factory=dict)

    def experiment(self, **env):
        """Make the simulate.Experiment, with some settings changed."""
        try:
            return simulate.experiment(settings.read("sim", self.env | env))
        except Error as error:
            raise Error(f"{TABLE.name}: {self.name}: {error}") from error

    @property
    def hours(self):
        """How many hours of CPUS CPUs the declared runs take."""
        boots = 1 if self.env.get("ABBA") == "1" else len(self.env.get("STATE", "").split()) + 2
        return int(self.env["SEEDS"]) * boots * self.declared["boot_s"] / CPUS / 3600

    @property
    def path(self):
        """The file of its result."""
        return RESULTS / settings.read("sim", self.env).series.results(self.env["MACHINE"]) / f"sim-{self.name}.json"


def rows(path=None):
    """Read the table of experiments; give its Rows in order. Error that names what is wrong."""
    path = path or TABLE
    return [row for name, values in toml.read(path).items() for row in _rows_of(path.name, name, values)]


def _rows_of(file, name, values):
    if not isinstance(values, dict):
        raise Error(f"{file}: {name}: is to be in the table of a row")
    unknown = [key for key in values if key not in (*KEYS, *OTHER_KEYS)]
    if unknown:
        raise Error(f"{file}: {name}: {unknown[0]}: unknown key; known are: "
                    f"{', '.join((*KEYS, *OTHER_KEYS))}")
    for key in ("machine", "workload"):
        if key not in values:
            raise Error(f"{file}: {name}: {key}: missing")
    for key, value in values.items():
        if key in KEYS and not isinstance(value, (str, int)) or value == "":
            raise Error(f"{file}: {name}: {key}: must be a text or a number")
    own = {key.upper(): str(int(value) if isinstance(value, bool) else value)
           for key, value in values.items() if key in KEYS}
    kernels, sensitivity = values.get("kernels", [""]), values.get("sensitivity", 0)
    if not isinstance(kernels, list) or not set(kernels) <= {"", *KERNELS}:
        raise Error(f"{file}: {name}: kernels: must be a list of {', '.join(KERNELS)}")
    if type(sensitivity) is not int or sensitivity < 0:
        raise Error(f"{file}: {name}: sensitivity: must be a number of seeds")
    declared = {key: values[key] for key in DECLARED if key in values}
    if declared:
        own["SEEDS"] = _runs(f"{file}: {name}", values, declared)
    for which in kernels:
        row = Row(name + ("-mainline" if which == "mainline" else ""), KERNELS.get(which, {}) | own,
                  sensitivity, values.get("feature", ""), values.get("title", name), declared)
        if declared and not values.get("long") and row.hours > HOURS:
            raise Error(f"{file}: {row.name}: takes {row.hours:.1f} hours of {CPUS} CPUs, more than {HOURS}")
        yield row


def _runs(where, values, declared):
    """Give the number of runs that a row needs, as a text; Error for a row that is not declared completely."""
    for key in DECLARED:
        kind = str if key in ("must", "rests_on") else (int, float)
        if not isinstance(declared.get(key), kind) or kind != str and declared[key] <= 0:
            raise Error(f"{where}: {key}: missing, or not a {'text' if kind == str else 'number above 0'}")
    if declared["must"] not in MUST:
        raise Error(f"{where}: must: is to be one of {', '.join(MUST)}")
    if "seeds" in values:
        raise Error(f"{where}: seeds: follow from size and spread")
    found = power.runs(declared["spread"], declared["size"], bool(values.get("abba")))
    if found is None:
        raise Error(f"{where}: needs more than {power.MOST} runs")
    return str(found)


def chosen(every, names):
    """Give those of the Rows that EXPERIMENTS= names, all if it names none. Error for a name that is none."""
    known = {row.name: row for row in every}
    for name in names:
        if name not in known:
            raise Error(f"EXPERIMENTS={name}: there is no such row in {TABLE.name}; there are:"
                        f" {', '.join(known)}")
    return [known[name] for name in names] or every


def outdated(one, path):
    """Say what of an Experiment is not what it was when the result in the file `path` was made, or ""."""
    if not path.exists():
        return "not run yet"
    try:
        old = store.load(path)
    except Error:
        return "not readable"
    had, count = old.repeat, old.repeat.get("seeds", 0)
    now = simulate.repeat_info(one.machine, one.task, list(one.states), count, one.round_ns)
    # As JSON has it: lists for tuples.
    now = json.loads(json.dumps(now))
    found = [key for key in now if key not in INCIDENTAL and now[key] != had.get(key)]
    if one.command(count) != had.get("command"):
        found.append("command")
    if one.seeds > count:
        found.append("seeds")
    for build in one.builds():
        if kernel.identity(build) != old.kernels.get(str(build)):
            found.append(f"kernel {build}")
    return ", ".join(found)


class Boots:
    """Runs boots for all rows together, as many at a time as there are CPUs, and keeps what they gave in
    files in `directory`. Called from several threads."""

    def __init__(self, directory):
        self.directory = directory
        self.slots = threading.BoundedSemaphore(len(os.sched_getaffinity(0)))
        self.made, self.kept = 0, 0

    def __call__(self, m, state, tasks, seed, round_ns, stop=None, windows=workloads.Windows()):
        """Give what simulate.run() gives, or gave when it was asked for the same."""
        path = self.directory / f"{self.key(m, state, tasks, seed, round_ns, windows)}.json"
        if path.exists():
            self.kept += 1
            return [simulate.Region(**each) for each in json.loads(path.read_text())]
        with self.slots:
            if stop and stop.is_set():
                raise Error("it was stopped")
            found = simulate.run(m, state, tasks, seed, round_ns, stop, windows)
        self.made += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{threading.get_ident()}.part")
        part.write_text(json.dumps([dataclasses.asdict(each) for each in found]))
        part.replace(path)
        return found

    @staticmethod
    def key(m, state, tasks, seed, round_ns, windows):
        """A name for all that determines what a boot gives: the files that run, not their sources."""
        series = state.build.series
        files = [state.build.image, state.build.out / "System.map"]
        text = repr((m, costs.of(m), str(state), state.cgroups, tasks, seed, round_ns, windows,
                     simulate.model(), qemu.version(qemu.find(series.build)),
                     hashlib.sha256(initramfs.base(initramfs.small(series))).hexdigest(),
                     [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def run_all(experiments, boot, finish):
    """Measure {name: Experiment} side by side, about as many as keep all CPUs busy, and call
    finish(name, Result, seconds) for each as it completes. One that fails does not end the others; give
    {name: its error}. Interrupted, all are ended."""
    stops, failed = {name: threading.Event() for name in experiments}, {}

    def one(name):
        begin = time.monotonic()
        return experiments[name].measure(boot, stops[name]), time.monotonic() - begin

    with ThreadPoolExecutor(math.ceil(len(os.sched_getaffinity(0)) / BOOTS)) as pool:
        try:
            futures = {pool.submit(one, name): name for name in experiments}
            for future in as_completed(futures):
                name = futures[future]
                try:
                    finish(name, *future.result())
                except (Error, OSError) as error:
                    failed[name] = error
                    say(f"row {name} FAILED: {error}")
        except BaseException:
            for stop in stops.values():
                stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return failed


def prepare(experiments):
    """Build what {name: Experiment} need. Give {name: error} of those whose kernel does not build."""
    bad = {}
    for build in dict.fromkeys(build for one in experiments.values() for build in one.builds()):
        simulate.check_qemu(build.series.build)
        try:
            initramfs.base(initramfs.small(build.series))
            kernel.build(build)
        except (Error, OSError) as error:
            bad |= {name: error for name, one in experiments.items() if build in one.builds()}
            say(f"BUILD={build}: {error}")
    return bad


def run_table(wanted, boot):
    """Run the Rows whose results are not up to date; give {name: error} of those that failed."""
    experiments = {row.name: row.experiment() for row in wanted}
    paths, margins = ({row.name: value(row) for row in wanted} for value in (
        lambda row: row.path, lambda row: row.declared.get("size")))
    failed = prepare(experiments)
    to_do, seconds = {}, {}
    for name, one in experiments.items():
        if name in failed:
            continue
        why = outdated(one, paths[name])
        if why:
            to_do[name] = one
        say(f"row {name}: " + (f"to run: {why}" if why else "up to date"))

    def finish(name, result, took):
        result = verdict.judged(result)
        if margins[name]:
            result.repeat["margin"] = margins[name]
        simulate.save(result, paths[name])
        seconds[name] = took
        for line in tables.conclusions(result, to_do[name].task.name):
            say(f"row {name}: {line}")
        say(f"row {name}: {took:.0f} s; kept as {paths[name]}")

    failed |= run_all(to_do, boot, finish)
    if seconds:
        say("")
        for line in tables.text([["row", "s"], *([name, f"{took:.0f}"] for name, took in seconds.items())]):
            say(line)
    return failed


# ---- sensitivity ----

def variants(row):
    """Give {what is changed: Experiment} of a Row: first nothing, then each class of costs, and the length
    of a round, CHANGE lower and higher. There is no control, as runs of the same seeds are compared."""
    def changed(**env):
        return dataclasses.replace(row.experiment(SEEDS=str(row.sensitivity), **env), control=False)

    found = {"nothing": changed()}
    for factor in (1 - CHANGE, 1 + CHANGE):
        for name in costs.CLASSES:
            found[f"{name} x {factor:g}"] = changed(SCALE=f"{name}={factor:g}")
        length = round(found["nothing"].round_ns * factor)
        found[f"round x {factor:g}"] = changed(ROUND_NS=str(length))
    return found


def gain(result, metric):
    """The gain of the last subject of a Result against the first, without its control, as a ratio: 0.1 is
    10 % better."""
    base, *others = (name for name in result.subjects if name != simulate.CONTROL)
    found = verdict.change(result.values[base][metric], result.values[others[-1]][metric])
    return (found.ratio if result.metrics[metric].better == "more" else 1 / found.ratio) - 1


def sensitivity_page(found, command):
    """Give the lines of results/sensitivity.md. found: {row: {what is changed: gain}}."""
    lines = ["# Sensitivity of the simulation", "",
             f"Made by `{command}`: each cost of the machine, and the length of a round, {100 * CHANGE:.0f} % "
             "lower and higher. Each figure is the gain of the row's state, without an interval: only its sign "
             "is to be compared. Rows: [experiments.toml](experiments.toml).", ""]
    for name, gains in found.items():
        sign = gains["nothing"] > 0
        other = [what for what, value in gains.items() if (value > 0) != sign]
        lines += [f"## {name}", "", "The sign " + (f"changes with: {', '.join(other)}." if other else
                  f"holds for all {len(gains) - 1} changes."), "",
                  *tables.markdown([["changed", "gain"],
                                    *([what, f"{verdict.signed(100 * value, 1)} %"] for what, value in gains.items())]), ""]
    return lines


def run_sensitivity(wanted, boot):
    """Run all variants of the Rows that declare a number of seeds for it, and write the page; give
    {name: error} of those that failed."""
    subset = {row.name: row for row in wanted if row.sensitivity}
    if not subset:
        raise Error("none of these rows declares `sensitivity`")
    experiments = {(name, what): one for name, row in subset.items() for what, one in variants(row).items()}
    failed = prepare(experiments)
    found = {name: {} for name in subset}

    def finish(key, result, took):
        name, what = key
        found[name][what] = gain(result, experiments[key].task.name)
        say(f"row {name}, {what}: {verdict.signed(100 * found[name][what], 1)} %, {took:.0f} s")

    failed |= run_all({key: one for key, one in experiments.items() if key not in failed}, boot, finish)
    # In the order of the experiments, and not in that in which they ended; only rows that are complete.
    complete = {name: {what: found[name][what] for row, what in experiments if row == name}
                for name in subset if not any(row == name for row, _ in failed)}
    declared = sum(bool(row.sensitivity) for row in rows())
    names = f" EXPERIMENTS='{' '.join(subset)}'" if len(subset) < declared else ""
    if complete:
        path = RESULTS / "sensitivity.md"
        path.write_text("\n".join(sensitivity_page(complete, f"make sim-all SENSITIVITY=1{names}")))
        say(f"kept as {path}")
    return {f"{name}, {what}": error for (name, what), error in failed.items()}


# ---- pilot runs ----

def run_pilots(wanted, boot):
    """Run the states of the Rows with the fewest seeds that may be declared, and those of no row. Print the spread that
    was found, the largest of a state and its base, and what number of runs follows; give {name: error} of those that
    failed. No result is kept."""
    subset = {row.name: row for row in wanted if row.declared}
    if not subset:
        raise Error("none of these rows declares what it must show")
    experiments = {name: dataclasses.replace(row.experiment(), seeds=power.LEAST, control=False)
                   for name, row in subset.items()}
    failed = prepare(experiments)

    def other_seeds(m, state, tasks, seed, *rest):
        return boot(m, state, tasks, seed + PILOT_SEEDS, *rest)

    def finish(name, result, took):
        row, one = subset[name], experiments[name]
        base, *others = (result.values[subject][one.task.name] for subject in result.subjects)
        paired = bool(one.window_ms)
        spread = max(verdict.spread(base, other, paired) for other in others)
        runs = power.runs(spread, row.declared["size"], paired) or f"more than {power.MOST}"
        say(f"row {name}: spread {spread:.2g}, so {runs} runs; declared are {row.declared['spread']:.2g} and "
            f"{row.env['SEEDS']}; {took:.0f} s")

    return failed | run_all({name: one for name, one in experiments.items() if name not in failed}, other_seeds, finish)


def command(given):
    """make sim-all: bring the results of the table up to date; Error that names the rows that failed."""
    selected = {name: text for name, text in given.texts.items() if name in ("KIT_BUILD", "SERIES", "LINUX")}
    wanted = [dataclasses.replace(row, env=row.env | selected) for row in chosen(rows(), given["EXPERIMENTS"])]
    directory, begin = given.build / "sim-all", time.monotonic()
    with lock(given.build / "sim-all.lock"):
        boot = Boots(directory)
        run = run_pilots if given["PILOT"] else run_sensitivity if given["SENSITIVITY"] else run_table
        everything = run == run_table
        failed = run(wanted, boot)
        if everything and not failed and not given["EXPERIMENTS"]:
            shutil.rmtree(directory, ignore_errors=True)
        say(f"all: {time.monotonic() - begin:.0f} s, {boot.made} boots, {boot.kept} kept from before")
    if failed:
        raise Error("\n".join([f"{len(failed)} failed; the boots that ended well are kept:", *(
            textwrap.indent(f"{name}: {error}", "  ") for name, error in failed.items())]))
    return 0
