# SPDX-License-Identifier: GPL-2.0-only
"""make bench-host: well-known benchmarks on the host itself, with the features and knobs of its
running kernel off and on in turn. Python 3.9 without further packages is enough.

By default it runs, for each feature, the workloads with the feature's primary figures
(workloads.PRIMARY), in about an hour. WORKLOADS= runs the named workloads in every state, and FULL=1
all of them.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace

from kit.features import FEATURES
from kit.host import facts, knobs, workloads
from kit.paths import ROOT
from kit.process import Error, kill_group, say, warn
from kit.results import store

INSTRUMENT = "host"
# Limit of one run, for the longest workload on the largest host.
RUN_SECONDS = 900
# Time for what was toggled to take effect.
SETTLE_SECONDS = 0.5
# How long to watch whether the host is quiet, before all and before each workload; how long to wait
# until it is.
WATCH_SECONDS, LOOK_SECONDS = 5, 1
WAIT_SECONDS = 60
# Names of subjects: everything off, the same again (the A/A control), and a kernel on which nothing
# is toggled.
OFF, AGAIN, PLAIN = "off", "off again", "as it is"
LLC_DIRECTORY = "llc_balancing/"
LLC_SWITCH = LLC_DIRECTORY + "enabled"
# The feature whose primary figures are those of mainline's cache-aware scheduling and its knobs.
LLC_FEATURE = "SCHED_CACHE_LB"


class Failed(Error):
    """A workload failed. The others may still run."""


@dataclass(frozen=True)
class Wanted:
    """What the user asked for.

    size: how long the workloads run; every: run all workloads in all states, not only those with
    primary figures; as_is: toggle nothing; noisy: measure although the host is not quiet; save: write
    to results/; only: beginnings of the names of workloads, empty for all; features: the stack's;
    asked: the features to measure, empty for all that the kernel has; states: further states, {name:
    writes}; name: of the host, "" for that of its CPU.
    """
    size: workloads.Size
    every: bool
    as_is: bool
    noisy: bool
    save: bool
    only: tuple
    features: tuple
    asked: tuple
    states: dict
    name: str


def asked(settings):
    """The Wanted of the Settings of make bench-host; Error for settings that contradict."""
    short, full, save = (settings[name] for name in ("SHORT", "FULL", "SAVE"))
    if short and (full or save):
        raise Error("SHORT=1: a short run is not for results/, nor a full one")
    further = {}
    for state in filter(None, settings["STATES"].split(";")):
        name, _, writes = state.strip().partition(":")
        if not name or not writes or name in (OFF, AGAIN, PLAIN):
            raise Error(f"STATES={state}: must be NAME:FILE=VALUE,... with ; between several")
        knobs.parse(writes)
        further[name] = writes
    size = workloads.SHORT if short else workloads.FULL if full else workloads.NORMAL
    if settings["ROUNDS"]:
        size = replace(size, rounds=settings["ROUNDS"])
    return Wanted(size, short or full or bool(settings["WORKLOADS"]), settings["AS_IS"], settings["NOISY"], save, settings["WORKLOADS"],
                    tuple(feature.name for feature in FEATURES), settings["FEATURES"], further,
                  settings["NAME"])


# ---- what is measured ----

def states(wanted, sched=knobs.SCHED):
    """The states to measure on the running kernel, {subject: [(file, value)]}, first the one that the
    others are compared with, then its A/A control; and the states left out, {name: reason}.

    Error if the kernel has nothing to toggle, or lacks what was asked for.
    """
    if wanted.as_is:
        return {PLAIN: []}, {}
    have = knobs.features(sched)
    for name in wanted.asked:
        if name not in have:
            ours = " ".join(name for name in wanted.features if name in have) or "none"
            raise Error(f"FEATURES={name}: the running kernel has none of that name (it has, of "
                        f"the stack's: {ours})")
    left = {name: "the running kernel does not have it" for name in wanted.features
            if name not in have and not wanted.asked}
    ours = [name for name in wanted.features if name in have]
    # Mainline's cache-aware scheduling has no feature bit.
    switch = [] if "SCHED_CACHE" in have or not (sched / LLC_SWITCH).exists() else [LLC_SWITCH]
    own = {name: [(knobs.FEATURES, name)] for name in wanted.asked or ours}
    if switch and not wanted.asked:
        own[LLC_SWITCH] = [(LLC_SWITCH, "1")]
    own |= {name: knobs.parse(writes) for name, writes in wanted.states.items()}
    if not own:
        raise Error("the running kernel has none of the stack's features, and nothing to toggle "
                    "was asked for with STATES=; AS_IS=1 measures it as it is")
    # All features are off. Any other file that a state writes has its present value in the others.
    off = {(knobs.FEATURES, name): f"NO_{name}" for name in dict.fromkeys([*ours, *wanted.asked])}
    off |= {(file, ""): "0" for file in switch}
    for file, value in (pair for pairs in own.values() for pair in pairs):
        if knobs.key(file, value) not in off:
            off[knobs.key(file, value)] = knobs.value(file, value, sched)

    def with_(pairs):
        whole = off | {knobs.key(file, value): value for file, value in pairs}
        return [(file, value) for (file, _), value in whole.items()]
    return {OFF: with_([]), AGAIN: with_([]),
            **{name: with_(pairs) for name, pairs in own.items()}}, left


def passes(subjects, rounds):
    """The order of measuring, a list of subjects for each pass: forward, then backward (ABBA with two
    subjects), so that an even drift is the same for all; each round begins with another subject."""
    found = []
    for i in range(rounds):
        start = i % len(subjects)
        order = [*subjects[start:], *subjects[:start]]
        found += [order, order[::-1]]
    return found


def deciding(subject, pairs, shape):
    """The names of the primary metrics of a subject, in a list: those of each feature that its
    (file, value) pairs switch on, and those of cache-aware scheduling for its knobs."""
    features = [value for file, value in pairs if file == knobs.FEATURES and value[:3] != "NO_"]
    if subject in features:
        features = [subject]
    elif subject not in (OFF, AGAIN) and any(file.startswith(LLC_DIRECTORY) for file, _ in pairs):
        features.append(LLC_FEATURE)
    return list(dict.fromkeys(metric for feature in features
                              for metric in workloads.primary(feature, shape)))


def plan(subjects, chosen, shape, every=False, named_by_user=False):
    """What to measure: [(Workload, [subject])] with the subjects that the workload is run for, in the
    order of `chosen`; and {subject: [names of its primary metrics]} of those.

    Unless `every`, a subject runs the workloads with its primary metrics only, and a workload that is
    left with no subject but the base and its control does not run. Where nothing is toggled, the
    workloads with any primary metric run. A user who names the workloads declares the first figure
    of each for all subjects.
    """
    first, *rest = subjects
    if named_by_user:
        metrics = [workload.name + workload.figures[0].suffix for workload in chosen]
        return ([(workload, list(subjects)) for workload in chosen],
                {subject: metrics for subject in rest or [first] if subject != AGAIN})
    named = {subject: deciding(subject, subjects[subject], shape) for subject in rest
             if subject != AGAIN}
    if not rest:
        features = dict.fromkeys(feature for one in workloads.PRIMARY for feature in one.features)
        named = {first: list(dict.fromkeys(metric for feature in features
                                           for metric in workloads.primary(feature, shape)))}
    planned = []
    for workload in chosen:
        metrics = {workload.name + figure.suffix for figure in workload.figures}
        here = [subject for subject in subjects
                if every or subject == AGAIN or metrics & set(named.get(subject, ()))
                or subject == first and rest]
        if every or set(here) - {first, AGAIN} or not rest and here:
            planned.append((workload, here))
    have = {workload.name + figure.suffix for workload, _ in planned for figure in workload.figures}
    return planned, {subject: [metric for metric in metrics if metric in have]
                     for subject, metrics in named.items()}


def seconds_of(planned, size):
    """How long measuring takes, in seconds: of [(Workload, [subject])], by the Workloads' own
    estimates."""
    return sum(LOOK_SECONDS + (2 * size.rounds * len(here) + 1) * (SETTLE_SECONDS + workload.seconds)
               for workload, here in planned)


def duration(seconds):
    """Write a time: "about 50 min"; "about 1 min" for anything shorter."""
    minutes = max(round(seconds / 60), 1)
    return f"about {minutes} min" if minutes < 120 else f"about {minutes / 60:.1f} h"


# ---- measuring ----

class Host:
    """The host while it is measured: sets states, runs commands, and watches for other load. A
    context manager, which restores what was toggled."""

    def __init__(self, subjects, shape, noisy, sched=knobs.SCHED):
        self.subjects, self.shape, self.noisy, self.sched = subjects, shape, noisy, sched
        self.guard = None
        self.most = [0.0, 0.0]

    def __enter__(self):
        if any(self.subjects.values()):
            self.guard = knobs.Guard(list(self.subjects.values()), self.sched)
        return self

    def __exit__(self, *what):
        if self.guard:
            # The cleanup must not be interrupted.
            before = {number: signal.signal(number, signal.SIG_IGN)
                      for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
            try:
                self.guard.close()
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def quiet(self, seconds=WATCH_SECONDS):
        """Why the host is too noisy to measure on now, or None."""
        used, stolen, names = facts.busy(seconds)
        self.most = [max(self.most[0], used), max(self.most[1], stolen)]
        allowed = facts.limit(self.shape.cpus)
        if max(used, stolen) <= allowed:
            return None
        who = f" ({', '.join(names)})" if names else ""
        return (f"others keep {used:.2f} of its {self.shape.cpus} CPUs busy{who}, a hypervisor "
                f"took {stolen:.2f}; {allowed:.2f} is the most on a quiet one")

    def wait_for_quiet(self):
        """Why the host is too noisy, if it is for WAIT_SECONDS on end, or None."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            words = self.quiet(LOOK_SECONDS)
            if words is None or self.noisy:
                return None
            if time.monotonic() > end:
                return words

    def run(self, subject, workload):
        """Run a Workload in the state of a subject; its figures. Failed if the workload fails, Error
        if the state cannot be set."""
        if self.guard:
            knobs.write(self.subjects[subject], self.sched)
            time.sleep(SETTLE_SECONDS)
        proc = None
        try:
            # Block signals until the guard knows the process group, so that an interrupt cannot
            # leave it running.
            with knobs.signals_held() as mask:
                proc = subprocess.Popen(
                    ["sh", "-c", workload.command], cwd=ROOT, env=os.environ | {"LC_ALL": "C"},
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask))
                if self.guard:
                    self.guard.running(proc.pid)
            output = proc.communicate(timeout=RUN_SECONDS)[0].decode(errors="replace")
        except subprocess.TimeoutExpired as error:
            raise Failed(f"killed after {RUN_SECONDS} s") from error
        finally:
            if proc:
                kill_group(proc)
            if self.guard:
                self.guard.running(0)
        last = (output.strip().splitlines() or ["it printed nothing"])[-1]
        if proc.returncode:
            raise Failed(f"status {proc.returncode}: {last}")
        try:
            return [figure.read(output) for figure in workload.figures]
        except ValueError as error:
            raise Failed(f"{error}: {last}") from error


def measure(host, workload, subjects, size):
    """Measure a Workload on a Host in the states of `subjects`, names; {subject: [figures of each
    pass]}. Failed if one run fails: then the workload is left out in all states."""
    # The first run finds other data in the caches than the later ones.
    host.run(subjects[0], workload)
    found = {subject: [] for subject in subjects}
    for pass_ in passes(subjects, size.rounds):
        for subject in pass_:
            found[subject].append(host.run(subject, workload))
    return found


def result_of(name, repeat, kernel, subjects, measured):
    """Put the results of measure(), [(Workload, {subject: ...})], into a store.Result."""
    whole = store.Result(INSTRUMENT, name, repeat, {kernel["release"]: kernel}, {}, {}, {})
    first = next(iter(subjects))
    for subject in subjects:
        state = OFF if subject == AGAIN else subject
        whole.subjects[subject] = store.Subject(kernel["release"], state,
                                                  None if subject == first else first)
        whole.values[subject] = {}
    for workload, found in measured:
        for i, figure in enumerate(workload.figures):
            metric = workload.name + figure.suffix
            whole.metrics[metric] = store.Metric(figure.unit, figure.better,
                                                   workload.title + figure.words)
            repeat["commands"][metric] = workload.command
            for subject, passes_ in found.items():
                whole.values[subject][metric] = [figures[i] for figures in passes_]
    return whole


# ---- the command ----

def file_for(directory, release):
    """The file for one more result of this kernel. Earlier results stay: a comparison of kernels uses
    each boot."""
    number = 1
    while (path := directory / f"{INSTRUMENT}-{release}-{number}.json").exists():
        number += 1
    return path


def choose(wanted, shape):
    """The Workloads that can run here, and why others cannot, {name: reason}."""
    everything = workloads.every(shape, wanted.size, sys.executable)
    for begin in wanted.only:
        if not any(workload.name.startswith(begin) for workload in everything):
            raise Error(f"WORKLOADS={begin}: there is none whose name begins so; there are: "
                        + " ".join(workload.name for workload in everything))
    here, left = [], {}
    for workload in everything:
        reason = workloads.missing(workload, os.geteuid() == 0)
        if wanted.only and not workload.name.startswith(wanted.only):
            continue
        if reason:
            left[workload.name] = reason
        else:
            here.append(workload)
    return here, left


def command(settings):
    """make bench-host, or ./run in a directory that was copied to a host: say how long it takes,
    measure, save after each workload, print the results; 0 if anything was measured."""
    wanted = asked(settings)
    if os.geteuid() and not wanted.as_is:
        raise Error("only root can toggle what is in debugfs: run it as root, or with AS_IS=1 to "
                    "measure the kernel as it is, to be compared with other kernels")
    about, kernel = facts.gather(), facts.kernel()
    directory = (ROOT if wanted.save else settings.build) / "results" / (wanted.name or facts.name(about))
    repeat = {"command": _command(settings), "commit": settings["BENCH_COMMIT"] or store.commit(), **asdict(wanted.size), "host": about}
    shape = facts.shape()
    subjects, left = states(wanted)
    chosen, more = choose(wanted, shape)
    planned, primary = plan(subjects, chosen, shape, wanted.every, bool(wanted.only))
    left |= {name: reason for name, reason in more.items() if wanted.every or _decides(name, shape)}
    _introduce(about, kernel, subjects, left)
    if not planned:
        raise Error("there is nothing to run: install rt-tests (hackbench), perf, stress-ng, or "
                    "others of those above")
    path = file_for(directory, kernel["release"])
    repeat |= {"left_out": left, "commands": {},
               # Declared before the run: each subject's, and all of them.
               "primary": sorted(set().union(*primary.values())), "primary_of": primary}
    _announce(planned, primary, wanted)
    measured = []

    def keep(workload, found, noise):
        repeat["noise"] = noise
        if found:
            measured.append((workload, found))
        if measured:
            store.save(result_of(directory.name, repeat, kernel, subjects, measured), path)
    _measure_all(planned, subjects, shape, wanted, left, directory, keep)
    _conclude(store.load(path), path)
    return 0


def _measure_all(planned, subjects, shape, wanted, left, directory, keep):
    """Measure what is planned in the states of subjects, and call keep(workload, figures, noise) after each
    workload, so that a failure loses nothing; figures is None if it failed, and `left` has the reason. Error if
    nothing could be measured, or if `directory`, for the results, cannot be made."""
    # Fails now, and not after all the measuring, if it cannot be written.
    directory.mkdir(parents=True, exist_ok=True)
    kept = 0
    with Host(subjects, shape, wanted.noisy) as host:
        words = host.quiet()
        if words and not wanted.noisy:
            raise Error(f"the host is not quiet: {words}. NOISY=1 measures nevertheless")
        if words:
            warn(f"the host is not quiet: {words}")
        for number, (workload, here) in enumerate(planned, 1):
            head = f"[{number}/{len(planned)}] {workload.title}"
            words = host.wait_for_quiet()
            begin = time.monotonic()
            try:
                if words:
                    raise Failed(f"the host got noisy: {words}")
                found = measure(host, workload, here, wanted.size)
                took = time.monotonic() - begin
                left_seconds = seconds_of(planned[number:], wanted.size)
                say(f"{head}: {took:.0f} s" + (f", {duration(left_seconds)} left" if left_seconds
                                               else ""))
            except Failed as error:
                found = None
                left[workload.name] = str(error)
                warn(f"{head}: left out: {error}")
            keep(workload, found, {"others": round(host.most[0], 3), "stolen": round(host.most[1], 3)})
            kept += bool(found)
    if not kept:
        raise Error("nothing could be measured")


def _decides(name, shape):
    """Whether a workload has a primary metric of any feature."""
    return any(f"{metric}/".startswith(f"{name}/") for one in workloads.PRIMARY
               for feature in one.features for metric in workloads.primary(feature, shape))


def _announce(planned, primary, wanted):
    """Say before the run how long it takes, and which figures decide about what."""
    for subject, metrics in primary.items():
        say(f"decides   {subject}: {', '.join(metrics) or 'nothing that is installed'}")
    runs = sum(2 * wanted.size.rounds * len(here) + 1 for _, here in planned)
    say(f"takes     {duration(seconds_of(planned, wanted.size))}: {len(planned)} workloads, {runs} "
        "runs" + ("" if wanted.every else "; FULL=1 runs all workloads in all states"))


def _command(settings):
    """The command that repeats the run."""
    return " ".join(["make bench-host", *(f"{name}='{text}'" for name, text in settings.texts.items()
                                          if name not in ("KIT_BUILD", "BENCH_COMMIT"))])


def _introduce(about, kernel, subjects, left):
    """Say what is measured on which host, and what is left out."""
    say(f"host      {about['cpu']}, {about['packages']} sockets, {about['nodes_per_socket']:g} "
        f"nodes per socket, {about['llcs']} LLCs, {about['cores']} cores, {about['cpus']} CPUs")
    say(f"set up    governor {about['governor']}, boost {about['boost']}, SMT {about['smt']}, NUMA "
        f"balancing {about['numa_balancing']}, {about['cmdline']}")
    say(f"kernel    {kernel['release']}, stack {kernel['stack']}, config {kernel['config'][:12]}")
    say(f"states    {', '.join(subjects)}")
    for words in facts.warnings(about):
        warn(f"note      {words}")
    for name, reason in left.items():
        warn(f"left out  {name}: {reason}")


def _text():
    """The module kit.results.text; None without numpy and scipy, which a host may not have."""
    try:
        from kit.results import text
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "scipy"):
            raise
        say("These are medians. For verdicts run `make report FROM=<directory of the results>` on a")
        say("machine with numpy and scipy.")
        return None
    return text


def _medians(result):
    """Print the median of each figure."""
    for metric, about in result.metrics.items():
        figures = (f"{subject} {statistics.median(values[metric]):g}"
                   for subject, values in result.values.items() if metric in values)
        say(f"{about.title} ({about.unit}, {about.better} is better): {', '.join(figures)}")


def _conclude(result, path):
    """Print the results."""
    say("")
    text = _text()
    for line in text.of(result) if text else ():
        say(line)
    if not text:
        _medians(result)
    say(f"kept as {path}")
