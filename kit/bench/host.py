# SPDX-License-Identifier: GPL-2.0-only
"""The instrument behind make bench-host: well-known benchmarks on the host itself, with the
features and knobs of its running kernel off and on by turns. Runs on a host with nothing but python
3.9 too.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kit.bench import facts, knobs, results, workloads
from kit.paths import BUILD, ROOT
from kit.run import Error, git, kill_group, say, sh, warn

INSTRUMENT = "host"
# For the longest of runs, on the largest of hosts.
RUN_SECONDS = 900
# Time for what was toggled to take effect.
SETTLE_SECONDS = 0.5
WATCH_SECONDS = 5
WAIT_SECONDS = 60
# What a subject is called: everything off, the same once more (the A/A control), and a kernel on
# which nothing is toggled.
OFF, AGAIN, PLAIN = "off", "off again", "as it is"
LLC_SWITCH = "llc_balancing/enabled"


class Failed(Error):
    """A workload that did not do what it should. The others may."""


@dataclass(frozen=True)
class Settings:
    """What the user asked for, by variables of the environment.

    size: how long things run; as_is: toggle nothing; noisy: measure although others are busy; save:
    to results/; only: beginnings of the names of workloads, none for all; features: the stack's;
    asked: those to measure, none for all there are; states: further ones, {name: writes}; schbench:
    the directory of its source; name: what to call the host, "" for what its CPU is called.
    """
    size: workloads.Size
    as_is: bool
    noisy: bool
    save: bool
    only: tuple
    features: tuple
    asked: tuple
    states: dict
    schbench: Path | None
    name: str


def settings(env=None):
    """Give the Settings that variables ask for; Error for what cannot be meant."""
    env = os.environ if env is None else env

    def switch(name):
        if env.get(name, "") not in ("", "0", "1"):
            raise Error(f"{name}={env[name]}: is to be 0 or 1")
        return env.get(name) == "1"
    short, full, save = switch("SHORT"), switch("FULL"), switch("SAVE")
    if short and (full or save):
        raise Error("SHORT=1: a short run is not for results/, nor a full one")
    further = {}
    for state in filter(None, env.get("STATES", "").split(";")):
        name, _, writes = state.strip().partition(":")
        if not name or not writes or name in (OFF, AGAIN, PLAIN):
            raise Error(f"STATES={state}: is to be NAME:FILE=VALUE,... with ; between several")
        knobs.parse(writes)
        further[name] = writes
    names = env.get("STACK_FEATURES")
    if names is None:
        # At home; a directory that was copied to a host brings the names along.
        from kit.page import FEATURES
        names = " ".join(feature.name for feature in FEATURES)
    schbench = env.get("SCHBENCH")
    if schbench and not (Path(schbench) / "schbench.c").exists():
        raise Error(f"SCHBENCH={schbench}: no schbench.c in there")
    name = env.get("NAME", "")
    if "/" in name or name.startswith("."):
        raise Error(f"NAME={name}: cannot be the name of a directory in results/")
    size = workloads.SHORT if short else workloads.FULL if full else workloads.NORMAL
    rounds = env.get("ROUNDS", "")
    if rounds and not re.fullmatch("[1-9][0-9]*", rounds):
        raise Error(f"ROUNDS={rounds}: is to be a number, 1 or more")
    if rounds:
        size = replace(size, rounds=int(rounds))
    return Settings(size, switch("AS_IS"), switch("NOISY"), save,
                    tuple(env.get("WORKLOADS", "").split()), tuple(names.split()),
                    tuple(env.get("FEATURES", "").split()), further,
                    Path(schbench).resolve() if schbench else None, name)


# ---- what is measured ----

def states(wanted, sched=knobs.SCHED):
    """Give {subject: [(file, value)]}, the states to measure of the running kernel, the one that
    others are compared with first, then its A/A control; and why others are left out, {name:
    reason}.

    Error if the kernel has nothing to toggle, or not what was asked for.
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
                    "was asked for with STATES=; AS_IS=1 measures it as it is, to be compared with "
                    "other kernels")
    # Where all is off; and what else a state writes is in the others as it is now.
    off = {(knobs.FEATURES, name): f"NO_{name}" for name in dict.fromkeys([*ours, *wanted.asked])}
    off |= {(file, ""): "0" for file in switch}
    for file, value in (pair for pairs in own.values() for pair in pairs):
        if _key(file, value) not in off:
            off[_key(file, value)] = knobs.value(file, value, sched)

    def with_(pairs):
        whole = off | {_key(file, value): value for file, value in pairs}
        return [(file, value) for (file, _), value in whole.items()]
    return {OFF: with_([]), AGAIN: with_([]),
            **{name: with_(pairs) for name, pairs in own.items()}}, left


def _key(file, value):
    """Give what a write replaces: one feature, or all that is in the file."""
    return file, value.removeprefix("NO_") if file == knobs.FEATURES else ""


def passes(subjects, rounds):
    """Give the order of measuring, a list of subjects for each pass: there and back again (with two
    it is ABBA), so that what drifts evenly is the same for all, and beginning with another in each
    round."""
    found = []
    for i in range(rounds):
        start = i % len(subjects)
        order = [*subjects[start:], *subjects[:start]]
        found += [order, order[::-1]]
    return found


# ---- measuring ----

class Host:
    """The host while it is measured: brings about states, runs commands, and watches for others.
    Use it with `with`: at the end all is as it was."""

    def __init__(self, subjects, shape, noisy, sched=knobs.SCHED, state=knobs.STATE):
        self.subjects, self.shape, self.noisy, self.sched = subjects, shape, noisy, sched
        self.state = state
        self.guard = None
        self.most = [0.0, 0.0]

    def __enter__(self):
        if any(self.subjects.values()):
            self.guard = knobs.Guard(list(self.subjects.values()), self.sched, self.state)
        return self

    def __exit__(self, *what):
        if self.guard:
            # What cleans up must not be interrupted.
            before = {number: signal.signal(number, signal.SIG_IGN)
                      for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
            try:
                self.guard.close()
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def quiet(self, seconds=WATCH_SECONDS):
        """Say what makes the host too noisy to measure on now, or give None."""
        used, stolen, names = facts.busy(seconds)
        self.most = [max(self.most[0], used), max(self.most[1], stolen)]
        allowed = facts.limit(self.shape.cpus)
        if max(used, stolen) <= allowed:
            return None
        who = f" ({', '.join(names)})" if names else ""
        return (f"others keep {used:.2f} of its {self.shape.cpus} CPUs busy{who}, a hypervisor "
                f"took {stolen:.2f}; {allowed:.2f} is the most on a quiet one")

    def wait_for_quiet(self):
        """Say what makes the host noisy for a minute on end, or give None."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            words = self.quiet(1)
            if words is None or self.noisy:
                return None
            if time.monotonic() > end:
                return words

    def run(self, subject, workload):
        """Run a Workload in the state of a subject; give its figures. Failed if it does not, Error
        if the state cannot be brought about."""
        if self.guard:
            knobs.write(self.subjects[subject], self.sched)
            time.sleep(SETTLE_SECONDS)
        proc = None
        try:
            # Whoever interrupts right now is not to leave something running that nobody knows of.
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


def measure(host, workload, size, show=lambda text: None):
    """Measure a Workload on a Host in all states; give {subject: [figures of each pass]}. Failed if
    it failed once: what is left out is left out for all."""
    subjects = list(host.subjects)
    # The first run finds other things in the caches than the later ones.
    show("warming up")
    host.run(subjects[0], workload)
    found = {subject: [] for subject in subjects}
    order = passes(subjects, size.rounds)
    for number, pass_ in enumerate(order, 1):
        for subject in pass_:
            show(f"pass {number} of {len(order)}, {subject}")
            found[subject].append(host.run(subject, workload))
    return found


def result_of(name, repeat, kernel, subjects, measured):
    """Put what measure() gave, [(Workload, {subject: ...})], into a results.Result."""
    whole = results.Result(INSTRUMENT, name, repeat, {kernel["release"]: kernel}, {}, {}, {})
    first = next(iter(subjects))
    for subject in subjects:
        state = OFF if subject == AGAIN else subject
        whole.subjects[subject] = results.Subject(kernel["release"], state,
                                                  None if subject == first else first)
        whole.values[subject] = {}
    for workload, found in measured:
        for i, figure in enumerate(workload.figures):
            metric = workload.name + figure.suffix
            whole.metrics[metric] = results.Metric(figure.unit, figure.better,
                                                   workload.title + figure.words)
            repeat["commands"][metric] = workload.command
            for subject, passes_ in found.items():
                whole.values[subject][metric] = [figures[i] for figures in passes_]
    return whole


# ---- the command ----

def file_for(directory, release):
    """Give the file for the results of one more run on this kernel: nothing is overwritten, as each
    boot counts where kernels are compared."""
    number = 1
    while (path := directory / f"{INSTRUMENT}-{release}-{number}.json").exists():
        number += 1
    return path


def build_schbench(source):
    """Build schbench in a copy of its source, and let it be found as other programs are."""
    copy = BUILD / "schbench"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy,
                    ignore=shutil.ignore_patterns(".git", "*.o", ".depend", "schbench"))
    sh(["make", "-C", copy], capture=True, timeout=300)
    if not (copy / "schbench").exists():
        raise Error(f"SCHBENCH={source}: its make builds no schbench")
    os.environ["PATH"] = f"{copy}:{os.environ.get('PATH', os.defpath)}"


def choose(wanted, shape):
    """Give the Workloads that can run here, and why others cannot, {name: reason}."""
    if wanted.schbench:
        build_schbench(wanted.schbench)
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


def command(_args=None):
    """make bench-host, or the same from a directory that was copied to a host; 0 if anything was
    measured."""
    wanted = settings()
    if os.geteuid() and not wanted.as_is:
        raise Error("only root can toggle what is in debugfs: run it as root, or with AS_IS=1 to "
                    "measure the kernel as it is, to be compared with other kernels")
    # Before anything is looked at.
    knobs.recover()
    about, kernel = facts.gather(), facts.kernel()
    shape = facts.shape()
    subjects, left = states(wanted)
    chosen, more = choose(wanted, shape)
    left |= more
    _introduce(about, kernel, subjects, left)
    if not chosen:
        raise Error("there is nothing to run: install rt-tests (hackbench), perf, stress-ng, or "
                    "others of those above")
    name = wanted.name or facts.name(about)
    path = file_for((ROOT if wanted.save else BUILD) / "results" / name, kernel["release"])
    repeat = {"command": _command(), "commit": _commit(), **asdict(wanted.size),
              "host": about, "left_out": left, "commands": {}}
    # That nothing can be written there is not to be found out about after all the measuring.
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = []
    with Host(subjects, shape, wanted.noisy) as host:
        words = host.quiet()
        if words and not wanted.noisy:
            raise Error(f"the host is not quiet: {words}. NOISY=1 measures nevertheless")
        if words:
            warn(f"the host is not quiet: {words}")
        for number, workload in enumerate(chosen, 1):
            head = f"[{number}/{len(chosen)}] {workload.title}"
            words = host.wait_for_quiet()
            begin = time.monotonic()
            try:
                if words:
                    raise Failed(f"the host got noisy: {words}")
                measured.append((workload, measure(host, workload, wanted.size, _show(head))))
                _show(head)(None)
                say(f"{head}: {time.monotonic() - begin:.0f} s")
            except Failed as error:
                left[workload.name] = str(error)
                _show(head)(None)
                warn(f"{head}: left out: {error}")
            repeat["noise"] = {"others": round(host.most[0], 3), "stolen": round(host.most[1], 3)}
            # After each, so that nothing is lost with what comes.
            if measured:
                results.save(result_of(name, repeat, kernel, subjects, measured), path)
    if not measured:
        raise Error("nothing could be measured")
    _conclude(results.load(path), path)
    return 0


def _command():
    """Give how to do it again."""
    names = ("SHORT", "FULL", "ROUNDS", "AS_IS", "NOISY", "WORKLOADS", "FEATURES", "STATES", "SCHBENCH",
             "NAME")
    return " ".join(["make bench-host", *(f"{name}='{os.environ[name]}'" for name in names
                                          if os.environ.get(name))])


def _commit():
    """Give the commit of this repo, or what a copied directory says it was made from."""
    return os.environ.get("BENCH_COMMIT") or git(ROOT, "describe", "--always",
                                                 "--dirty").out.strip()


def _introduce(about, kernel, subjects, left):
    """Say what is going to be measured on what, and what is not."""
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


def _show(head):
    """Give show(text), which keeps one line of a terminal up to date; None empties it."""
    if not sys.stdout.isatty():
        return lambda text: None

    def show(text):
        width = shutil.get_terminal_size().columns - 1
        line = f"{head}: {text}"[:width].ljust(width) if text else " " * width
        print(f"\r{line}" + ("" if text else "\r"), end="", flush=True)
    return show


def _conclude(result, path):
    """Print what came of it."""
    say("")
    try:
        # These need numpy and scipy, which a host may not have.
        from kit.bench import summary
    except ImportError:
        for metric, about in result.metrics.items():
            figures = (f"{subject} {statistics.median(values[metric]):g}"
                       for subject, values in result.values.items())
            say(f"{about.title} ({about.unit}, {about.better} is better): {', '.join(figures)}")
        say("These are medians. What of it is more than chance, make report FROM=<directory of the")
        say("results> tells where numpy, scipy and matplotlib are.")
    else:
        for line in summary.text(result):
            say(line)
    say(f"kept as {path}")
