# SPDX-License-Identifier: GPL-2.0-only
"""The workloads of the simulation: the kinds of guest/workload (its usage text, `workload help`,
describes them and their arguments), and the figures that each kind gives."""

import re
from dataclasses import dataclass, field

from kit.process import Error
from kit.results import store

# Where the guest's job leaves the kernel's statistics, and the script to call between windows.
STATS_DIRECTORY, BETWEEN = "/tmp/stats", "/jobs/sim.sh"


@dataclass(frozen=True)
class Workload:
    """A kind of guest/workload.

    kind: its name there; metric: of its own figure; arguments: called with a Machine, gives the
    arguments that are used if none are given; placed: its tasks can be placed by a prescribed start;
    timed: it measures windows of a given length, and not a number of operations; more: the metrics of
    the further figures that it prints, {name: Metric}.
    """
    kind: str
    metric: store.Metric
    arguments: object
    placed: bool = True
    timed: bool = False
    more: dict = field(default_factory=dict)


def _hackbench(m):
    return [max(m.cpus // 16, 1), 8, 100, "processes", "pipe", 0, m.cpus - 1]


def _pair(times):
    """The first CPU, and the first one of another LLC."""
    return lambda m: [0, min(m.cores_per_llc * m.threads_per_core, m.cpus - 1), times]


def _llcs(m):
    return m.sockets * m.llcs_per_socket


def _most_of_an_llc(m):
    """Three quarters of the cores of an LLC, which is how many threads fit by default, about."""
    return max(m.cores_per_llc * 3 // 4, 2)


def _percentiles(what, *percents):
    return {f"p{percent}": store.Metric("us", "less", f"{what}, {percent}th percentile")
            for percent in percents}


# Round trips through AF_UNIX take about 10 us, so 5 us of work is a small request.
_RR_WORK_US = 5
# More wakeups per CPU second than 10,000, but so much work that they are not all that counts.
_HANDOFF_US = 50
# schbench computes much longer (3.7 ms), so that tens of ms would have no 99th percentile.
_WORKER_US, _PAUSE_US = 100, 100
# Private memory of a thread, of which those of most of an LLC's cores do not fit into its L3 (32 MiB).
_OWN_KIB = 8192

WORKLOADS = {
    "hackbench": Workload("messages", store.Metric("ms", "less", "time of all messages"),
                          _hackbench),
    "hackbench-rate": Workload("rate", store.Metric("messages/ms", "more", "messages per ms"),
                               lambda m: [max(m.cpus // 16, 1), 8, 90, 20, "threads", "pipe", 0,
                                          m.cpus - 1], timed=True),
    "rr": Workload("rr", store.Metric("requests/ms", "more", "requests per ms"),
                   lambda m: [max(m.cpus // 4, 1), _RR_WORK_US, 60, 20, "processes", 0, m.cpus - 1],
                   timed=True, more=_percentiles("round trip", 50, 90, 99)),
    "sharing": Workload("sharing", store.Metric("steps/ms", "more", "steps per ms"),
                        lambda m: [_llcs(m), _most_of_an_llc(m), 512, 60, 30], timed=True),
    "tenants": Workload("tenants", store.Metric("steps/ms", "more", "steps per ms of a process, geometric mean"),
                        lambda m: [2 * _llcs(m), 70, 60, 30], timed=True),
    "stw": Workload("stw", store.Metric("rounds/ms", "more", "rounds per ms"),
                    lambda m: [2, 500, 2 * m.cores_per_llc, 100, 4096, 60, 30], timed=True,
                    more=_percentiles("from the end of the mutators to running", 50, 90, 99)),
    "phase": Workload("phase", store.Metric("steps/ms", "more", "steps per ms"),
                      lambda m: [1, _most_of_an_llc(m), 512, _OWN_KIB, 20, 60, 40], timed=True),
    "hog": Workload("hog", store.Metric("GB/s", "more", "memory gone through"),
                    lambda m: [1, _most_of_an_llc(m), _OWN_KIB, 60, 20], timed=True),
    "handoff": Workload("handoff", store.Metric("handoffs/ms", "more", "hand-offs per ms"),
                        lambda m: [max(m.cores_per_llc // 2, 1), _HANDOFF_US, 4, 1024, 60, 30],
                        timed=True, more=_percentiles("wakeup of the other thread", 50, 90, 99)),
    "mixed": Workload("mixed", store.Metric("GB/s", "more", "memory that the hogs went through"),
                      lambda m: [max(m.cores_per_llc // 2, 1), _OWN_KIB, 1, _RR_WORK_US, 60, 20],
                      timed=True, more=_percentiles("wakeup of the other thread", 50, 90, 99)),
    "barrier": Workload("barrier", store.Metric("rounds/ms", "more", "rounds per ms"),
                        lambda m: [_most_of_an_llc(m), _HANDOFF_US, _OWN_KIB, 60, 30], timed=True),
    "latency": Workload("latency", store.Metric("us", "less", "wakeup to running, 99th percentile"),
                        lambda m: [_llcs(m), m.cores_per_llc, _WORKER_US, _PAUSE_US, 60, 30],
                        timed=True, more=_percentiles("wakeup to running", 50, 90) | {
                            "per_ms": store.Metric("requests/ms", "more", "requests per ms")}),
    # A step of one core: each core gets a thread before any gets a second one.
    "scale": Workload("scale", store.Metric("operations/ms", "more", "system calls per ms"),
                      lambda m: ["open", m.cpus // m.threads_per_core, m.threads_per_core, 2, 3],
                      placed=False, timed=True),
    "pipeline": Workload("pipeline", store.Metric("ms", "less", "time of all messages"),
                         lambda m: [_llcs(m), 3, 100, 20]),
    "cyclic": Workload("cyclic", store.Metric("us", "less", "lateness of real-time threads"),
                       lambda m: [m.cpus * 3 // 2, 1000, 20]),
    # As many groups as `pi_stress -g $(($(nproc) / 2))` has: with SMT, one on each core.
    "pi": Workload("pi", store.Metric("inversions/ms", "more", "priority inversions per ms"),
                   lambda m: [max(m.cpus // 2, 1), 2, 5, 10], placed=False, timed=True),
    "ping-pong": Workload("ping-pong", store.Metric("ns", "less", "a byte there and back"),
                          _pair(500), placed=False),
    "bounce": Workload("bounce", store.Metric("ns", "less", "a line to the other CPU"),
                       _pair(2000), placed=False),
    "counters": Workload("counters", store.Metric("ns", "less", "increment in a shared line"),
                         _pair(2000), placed=False),
    "chase": Workload("chase", store.Metric("ns", "less", "load that depends on the last one"),
                      lambda m: [0, 0, 8192, 20000], placed=False),
}


@dataclass(frozen=True)
class Windows:
    """How a Task is measured.

    states: what the guest writes before each window, FILE=VALUE,... as guest/lib.sh takes them; with
    one window there is nothing to write between. ms: the length of each window, 0 for what the task's
    arguments say. stats: switch schedstats on and keep the kernel's statistics.
    """
    states: tuple = ("",)
    ms: int = 0
    stats: bool = False

    def options(self):
        """The options of guest/workload."""
        found = []
        if len(self.states) > 1:
            found += [f"windows={len(self.states)}", f"between={BETWEEN}"]
        if self.ms:
            found.append(f"window_ms={self.ms}")
        if self.stats:
            found.append(f"stats={STATS_DIRECTORY}")
        return found

    def variables(self):
        """The variables of guest/jobs/sim.sh."""
        several = self.states if len(self.states) > 1 else ()
        return {"STATES": " ".join(state or "default" for state in several),
                "STATS": int(self.stats)}


@dataclass(frozen=True)
class Task:
    """A Workload with its arguments, one of settings.STARTS or "" for none, and how long it runs without the
    simulated caches before its warm-up."""
    name: str
    arguments: tuple
    start: str = ""
    settle_ms: int = 0

    def __str__(self):
        """As WORKLOAD= takes it."""
        return ":".join([self.name, *map(str, self.arguments)])

    def row(self, seed, windows=Windows()):
        """What guest/jobs/sim.sh runs."""
        options = [*([f"start={self.start}"] if self.start else []),
                   *([f"settle_ms={self.settle_ms}"] if self.settle_ms else []), *windows.options()]
        return ":".join(map(str, [self.name, "workload", seed, *options, WORKLOADS[self.name].kind,
                                  *self.arguments]))


def task(text, m, start="", settle_ms=0):
    """Make the Task that WORKLOAD=NAME or NAME:ARGUMENT:... names, on a Machine, with one of
    settings.STARTS or "". Error if there is no such workload, or it cannot start like that on the machine."""
    name, *arguments = text.split(":")
    if name not in WORKLOADS:
        raise Error(f"WORKLOAD={text}: there is no {name}; there are: {', '.join(WORKLOADS)}")
    if any(not re.fullmatch(r"[\w.-]+", argument) for argument in arguments):
        raise Error(f"WORKLOAD={text}: arguments are words and numbers between colons")
    if start and not WORKLOADS[name].placed:
        raise Error(f"START={start}: the tasks of {name} run on given CPUs")
    if (start == "two-sockets" and m.sockets < 2 or start == "two-llcs" and m.llcs_per_socket < 2
            or start == "scattered" and _llcs(m) < 2):
        raise Error(f"START={start}: {m.name} has {m.sockets} x {m.llcs_per_socket} LLCs")
    if settle_ms and start:
        raise Error(f"SETTLE_MS={settle_ms}: with START={start} tasks stay where they are until the measurement begins")
    if settle_ms and not WORKLOADS[name].timed:
        raise Error(f"SETTLE_MS={settle_ms}: {name} measures a number of operations")
    return Task(name, tuple(arguments or map(str, WORKLOADS[name].arguments(m))), start, settle_ms)


# ---- A and B in one boot ----

def abba(seed, a, b):
    """Give the states of four windows: A B B A, and B A A B with even seeds. A drift that is linear
    within a boot is in neither mean; that the first window differs from the others is in both, as the
    order alternates."""
    return (a, b, b, a) if seed % 2 else (b, a, a, b)
