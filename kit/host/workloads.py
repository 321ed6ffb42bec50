# SPDX-License-Identifier: GPL-2.0-only
"""The workloads of bench-host: the command lines with which the authors of the patches measured, scaled
to the host; how the figures are read from the programs' output; and which figures decide about which
feature (PRIMARY)."""

from __future__ import annotations

import re
import shlex
import shutil
import statistics
from dataclasses import dataclass

SLICE_NS = 100_000
PORT = 12867
# Seconds that servers get to start.
START_SECONDS = 1
NUMBER = r"([0-9.]+)"


@dataclass(frozen=True)
class Figure:
    """A figure of a workload: a suffix of its name, one of its title, the unit, whether "less" or
    "more" is better, and read(output), which returns the figure or raises ValueError."""
    suffix: str
    words: str
    unit: str
    better: str
    read: object


@dataclass(frozen=True)
class Workload:
    """A workload: `command`, a shell command line; the programs it needs; `seconds`, about how long
    one run takes; root: whether it needs to be root, for real-time priorities."""
    name: str
    title: str
    command: str
    needs: tuple
    figures: tuple
    seconds: float
    root: bool = False


@dataclass(frozen=True)
class Size:
    """How long the workloads run. work: the share of the loops that the authors ran; seconds: the
    time limit of the workloads that take one; rounds: each state is measured twice in a round."""
    work: float
    seconds: int
    rounds: int


FULL = Size(1, 30, 5)
NORMAL = Size(0.1, 10, 5)
SHORT = Size(0.001, 1, 1)


def all_of(pattern, count=None):
    """A read(output) that returns the mean of what a pattern with one group finds; ValueError unless
    it finds `count` figures, by default any number above 0."""
    def read(output):
        found = [float(text) for text in re.findall(pattern, output, re.M)]
        if not found or count not in (None, len(found)):
            raise ValueError(f"{len(found)} figures in its output, not {count or 'one'}")
        # hackbench prints milliseconds, and there is no ratio to 0.
        if not all(found):
            raise ValueError("a figure of 0 in its output: it ran for too short a time")
        return statistics.fmean(found)
    return read


def sum_of(pattern, count):
    """As all_of(), but their sum."""
    mean = all_of(pattern, count)
    return lambda output: count * mean(output)


def last_of(section, pattern):
    """A read(output) that returns what a pattern finds after the last line that begins with
    `section`."""
    def read(output):
        _, found, rest = output.rpartition(section)
        match = re.search(pattern, rest, re.M) if found else None
        if not match:
            raise ValueError(f"no {section!r} with figures in its output")
        return float(match[1])
    return read


def columns(heading, take):
    """A read(output) that returns take(figures) of the line of figures behind a heading."""
    def read(output):
        match = re.search(rf"^{heading}((?: +\d+)+)$", output, re.M)
        if not match:
            raise ValueError(f"no {heading!r} in its output")
        return float(take([int(word) for word in match[1].split()]))
    return read


def some(*figures):
    """A tuple of Figures, each from a tuple of its fields."""
    return tuple(Figure(*figure) for figure in figures)


HACKBENCH = some(("", "", "s", "less", all_of(rf"^Time: {NUMBER}$")))
PERF = some(("", "", "s", "less", all_of(rf"^\s*Total time: {NUMBER} \[sec\]$")))
SCHBENCH = some(
    ("/wake-p99", ", wakeup latency, p99", "us", "less",
     last_of("Wakeup Latencies percentiles", rf"99\.0th: {NUMBER}")),
    ("/request-p99", ", request latency, p99", "us", "less",
     last_of("Request Latencies percentiles", rf"99\.0th: {NUMBER}")),
    ("/rps", ", requests per second", "1/s", "more", last_of("average rps", rf": {NUMBER}")))
# The fifth figure: bogo ops/s (real time).
CYCLIC = some(("", "", "1/s", "more", all_of(rf"\] cyclic(?: +[0-9.]+){{4}} +{NUMBER} ")))
PI_STRESS = some(("", "", "inversions", "more",
                  all_of(rf"^Total inversions? performed: {NUMBER}$")))
CYCLICTEST = some(
    ("/mean", ", mean", "us", "less", columns("# Avg Latencies:", statistics.fmean)),
    ("/max", ", maximum", "us", "less", columns("# Max Latencies:", max)))
TBENCH = some(("", "", "MB/s", "more", all_of(rf"^Throughput {NUMBER} MB/sec")))


def netperf(jobs):
    """The figures of `jobs` netperf: the sixth figure of the line that each prints."""
    return some(("", "", "1/s", "more",
                 sum_of(rf"^\d+ +\d+ +\d+ +\d+ +[0-9.]+ +{NUMBER}\b", jobs)))


def sockperf(jobs):
    """The figures of `jobs` sockperf."""
    return some(("", "", "us", "less", all_of(rf"Summary: Latency is {NUMBER} usec", jobs)),
                ("/p99", ", p99", "us", "less", all_of(rf"percentile 99\.000 = +{NUMBER}", jobs)))


class Sizes:
    """The sizes of the workloads on a host of a facts.Shape; PRIMARY names them.

    groups: hackbench groups, 32 on the 384 CPUs of the RFC of queued wakeups; eighth, quarter, half,
    three_quarters, cpus, double: parts of the CPUs online; llc_eighth to llc_more: of those of an LLC,
    as in the RFC of cache-aware scheduling (8 to 90 pairs on 60 CPUs)."""

    def __init__(self, shape):
        def part(cpus, share):
            return max(round(cpus * share), 1)
        self.groups = max(shape.cpus // 12, 1)
        self.eighth, self.quarter, self.half, self.three_quarters, self.cpus, self.double = (
            part(shape.cpus, share) for share in (1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 2))
        self.llc_eighth, self.llc_quarter, self.llc_half, self.llc, self.llc_more = (
            part(shape.llc_cpus, share) for share in (1 / 8, 1 / 4, 1 / 2, 1, 3 / 2))
        self.llc_cpus = shape.llc_cpus


@dataclass(frozen=True)
class Primary:
    """A figure that decides about features: the name of the metric, with fields of Sizes in braces;
    the features; what is expected, with its source. It is declared here, before a run: only these
    figures get a verdict (see kit/results/)."""
    metric: str
    features: tuple
    reason: str


KNOWN = ("UTIL_FITS_CAPACITY", "SELECT_BIAS_PREV")
PLACED = (*KNOWN, "WAKE_RECENT_IDLE", "WAKE_RATE_LIMIT", "WAKE_PREDICT")
QUEUED = ("TTWU_QUEUE_L2", "TTWU_QUEUE_L2_ON_CPU")
PRIMARY = (
    Primary("hackbench/threads-pipe-{groups}g", QUEUED,
            "49 to 34 s on a 9654 (M. Desnoyers, LKML 2023-08-22)"),
    Primary("perf/messaging-{groups}g", QUEUED, "10.9 to 7.4 s, the same mail"),
    Primary("tbench/{quarter}", QUEUED,
            "the known loss: -11 % at a quarter as many clients as CPUs, 2 x 128 cores of Zen 4 "
            "(S. Sapkal, LKML 2023-09, on a kernel with the rate limit of tg->load_avg)"),
    Primary("{network}-{half}-slice", ("SIS_FAST",),
            "-1 % at half as many clients as CPUs: must do no harm (Chen Yu, LKML 2024-05-07)"),
    Primary("{network}-{three_quarters}-slice", ("SIS_FAST",), "+92 % at 180 of 240 CPUs, the same"),
    Primary("{network}-{cpus}-slice", ("SIS_FAST",), "+43 % at 240 of 240 CPUs, the same"),
    Primary("hackbench/threads-pipe-{groups}g", PLACED,
            "49 s on a 9654 to 40 with UTIL_FITS_CAPACITY, 49 with SELECT_BIAS_PREV, 29 with both, 34 with "
            "idle kept for 1 ms; 62 to 45 with the rate limit (M. Desnoyers, LKML 2023-07 to 10); 49 with "
            "placement by communication (the same, LPC 2023)"),
    Primary("tbench/{half}", PLACED,
            "the known loss: -9 % with 128 clients on 2 x 64 cores of Milan (K. P. Nayak, LKML 2023-10-27)"),
    Primary("schbench/{half}/wake-p99", KNOWN,
            "the known loss: -72 % with 256 workers, the same mail"),
    Primary("perf/pipe-threads", ("SCHED_CACHE", "SCHED_CACHE_WAKE"),
            "what the accounting costs a round trip of threads: mainline +2.5 to +6 % instructions"),
    Primary("hackbench/threads-pipe-{groups}g", ("SCHED_CACHE",),
            "what the accounting costs with many threads on all CPUs"),
    Primary("tbench/{half}", ("SCHED_CACHE", "SCHED_CACHE_SAMPLE"),
            "processes with one thread, which the feature is not for, must not pay"),
    Primary("hackbench/threads-pipe-{llc_half}", ("SCHED_CACHE_LB", "SCHED_CACHE_WAKE"),
            "a process that fits an LLC: +26 % at 30 pairs on 60 CPUs (T. Chen, RFC v3, 2025-06-18)"),
    Primary("hackbench/threads-sockets-{llc_more}", ("SCHED_CACHE_LB", "SCHED_CACHE_SAMPLE"),
            "the known loss, a process that does not fit: -8 % at 90 pairs on 60 CPUs, the same"),
    Primary("schbench/{quarter}/wake-p99", ("SCHED_CACHE_LB", "SCHED_CACHE_WAKE"),
            "the known loss: p99 14 to 32 times as high on 2 x 64 cores of Milan (K. P. Nayak, LKML "
            "2025-06-24)"),
)


def primary(feature, shape):
    """The names of the metrics that decide about a feature on a host of a facts.Shape, a list in the
    order of PRIMARY; empty for a feature that none is declared for."""
    sizes = vars(Sizes(shape))
    return list(dict.fromkeys(one.metric.format(network=_network_name(), **sizes) for one in PRIMARY
                              if feature in one.features))


def every(shape, size, python):
    """All Workloads, in sizes that fit a facts.Shape; python: the program that runs kit."""
    sizes = Sizes(shape)
    return [*_hackbench(sizes, size), *_perf(sizes, size), *_schbench(sizes, size),
            *_tbench(sizes, size), *_realtime(sizes, size), *_network(sizes, size, python)]


def _loops(number, size):
    return max(round(number * size.work), 1)


def _hackbench(sizes, size):
    """As the RFC of queued wakeups, many groups; and as that of cache-aware scheduling, one group with
    as many pairs as a part of the LLC's CPUs, or a little more, and four such at once. The seconds
    are those of the RFCs: 49 s on a 9654, 40 s on Sapphire Rapids."""
    found = [Workload(f"hackbench/threads-pipe-{sizes.groups}g",
                      f"hackbench, {sizes.groups} groups, threads, pipes",
                      f"hackbench -g {sizes.groups} -f 20 --threads --pipe -l "
                      f"{_loops(480_000, size)} -s 100", ("hackbench",), HACKBENCH, 49 * size.work)]
    seconds = 40 * size.work

    def one_group(number, option):
        # Each of `number` senders writes to as many receivers. With the RFC's number of loops where
        # they fill the LLC, the others take about as long.
        loops = _loops(1_000_000 * sizes.llc_cpus / number, size)
        return f"hackbench -g 1 --threads {option}-l {loops} -s 100 -f {number}"
    pairs = sorted({sizes.llc_eighth, sizes.llc_quarter, sizes.llc_half, sizes.llc, sizes.llc_more})
    for kind, option in (("pipe", "--pipe "), ("sockets", "")):
        found += [Workload(f"hackbench/threads-{kind}-{number}",
                           f"hackbench, 1 group, {number} pairs of threads, {kind}",
                           one_group(number, option), ("hackbench",), HACKBENCH, seconds)
                  for number in pairs]
    few = max(sizes.llc_cpus // 8, 1)
    found.append(Workload(f"hackbench/4x-threads-pipe-{few}",
                          f"four times hackbench, 1 group, {few} pairs of threads, pipe",
                          f"for i in 1 2 3 4; do {one_group(few, '--pipe ')} & done; wait",
                          ("hackbench",),
                          some(("", "", "s", "less", all_of(rf"^Time: {NUMBER}$", 4))), seconds))
    return found


def _perf(sizes, size):
    """perf bench: the messaging of the RFC of queued wakeups, which took 10.9 s, and pipe round trips
    of two tasks, 5 us each."""
    found = [Workload(f"perf/messaging-{sizes.groups}g",
                      f"perf bench sched messaging, {sizes.groups} groups",
                      f"perf bench sched messaging -g {sizes.groups} -p -t -l "
                      f"{_loops(100_000, size)}", ("perf",), PERF, 10.9 * size.work)]
    for name, title, option in (("pipe", "processes", ""), ("pipe-threads", "threads", " -T")):
        found.append(Workload(f"perf/{name}", f"perf bench sched pipe, {title}",
                              f"perf bench sched pipe -l {_loops(5_000_000, size)}{option}",
                              ("perf",), PERF, 25 * size.work))
    return found


def _schbench(sizes, size):
    return [Workload(f"schbench/{number}", f"schbench, 2 x {number} workers",
                     f"schbench -m 2 -t {number} -r {size.seconds}", ("schbench",), SCHBENCH,
                     size.seconds)
            for number in sorted({sizes.eighth, sizes.quarter, sizes.half})]


def _tbench(sizes, size):
    """As in the replies to the RFC of queued wakeups: a server process for each client, on loopback."""
    start = f"tbench_srv > /dev/null & server=$!; sleep {START_SECONDS}"
    return [Workload(f"tbench/{number}", f"tbench, {number} clients",
                     f"{start}; tbench -t {size.seconds} {number} 127.0.0.1; status=$?; "
                     "kill $server; wait; exit $status",
                     ("tbench", "tbench_srv"), TBENCH, size.seconds + START_SECONDS)
            for number in sorted({sizes.quarter, sizes.half, sizes.cpus, sizes.double})]


def _realtime(sizes, size):
    """As with the patches to struct root_domain and cpupri."""
    return [
        Workload("stress-ng/cyclic", "stress-ng cyclic, FIFO",
                 f"stress-ng --cyclic {sizes.cpus} --cyclic-policy fifo --timeout {size.seconds} "
                 "--minimize --metrics", ("stress-ng",), CYCLIC, size.seconds, root=True),
        Workload("pi_stress", "pi_stress",
                 f"pi_stress -D {size.seconds} -g {max(sizes.cpus // 2, 1)}", ("pi_stress",),
                 PI_STRESS, size.seconds, root=True),
        Workload("cyclictest", "cyclictest",
                 f"cyclictest -t -i200 -h 32 -m -p 95 -q -D {size.seconds}", ("cyclictest",),
                 CYCLICTEST, size.seconds, root=True)]


def _network_name():
    """Which program measures round trips on loopback: netperf, or sockperf where only that is."""
    return "sockperf/ping-pong" if shutil.which("sockperf") and not shutil.which("netperf") else (
        "netperf/TCP_RR")


def _network(sizes, size, python):
    """As with SIS_FAST: a quarter, a half, three quarters and as many clients as CPUs, with slices
    of 0.1 ms. With half as many also without."""
    found = []
    name = _network_name()
    tool, _, what = name.partition("/")
    counts = sorted({sizes.quarter, sizes.half, sizes.three_quarters, sizes.cpus})
    for jobs, own in [*((jobs, True) for jobs in counts), (sizes.half, False)]:
        numbers = f"$(seq {jobs})"
        if tool == "netperf":
            start = (f"netserver -D -4 -L 127.0.0.1 -p {PORT} > /dev/null & servers=$!; "
                     f"sleep {START_SECONDS}")
            one = f"netperf -P 0 -4 -H 127.0.0.1 -p {PORT} -t TCP_RR -c -C -l {size.seconds}"
            needs, figures = ("netperf", "netserver"), netperf(jobs)
        else:
            at = f"--tcp -i 127.0.0.1 -p $(({PORT} + i))"
            start = (f"for i in {numbers}; do sockperf server {at} > /dev/null & "
                     f"servers=\"$servers $!\"; done; sleep {START_SECONDS}")
            one = f"sockperf ping-pong {at} -t {size.seconds}"
            needs, figures = ("sockperf",), sockperf(jobs)
        command = (f"{start}; for i in {numbers}; do {one} & clients=\"$clients $!\"; done; "
                   "wait $clients; kill $servers; wait")
        if own:
            command = f"{python} -m kit.host.slice {SLICE_NS} sh -c {shlex.quote(command)}"
        found.append(Workload(f"{name}-{jobs}" + ("-slice" if own else ""),
                              f"{tool} {what}, {jobs} clients"
                              + (", slices of 0.1 ms" if own else ""), command, needs, figures,
                              size.seconds + START_SECONDS))
    return found


def missing(workload, is_root):
    """Why a Workload cannot run here, or None."""
    absent = [program for program in workload.needs if not shutil.which(program)]
    if absent:
        return f"{', '.join(absent)} is not installed"
    if workload.root and not is_root:
        return "needs root for real-time priorities"
    return None
