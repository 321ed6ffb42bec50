# SPDX-License-Identifier: GPL-2.0-only
"""What runs on a host: the command lines with which the authors of the patches measured, scaled to
the host, and how the figures are read from what the programs print."""

from __future__ import annotations

import re
import shlex
import shutil
import statistics
from dataclasses import dataclass

SLICE_NS = 100_000
PORT = 12867
NUMBER = r"([0-9.]+)"


@dataclass(frozen=True)
class Figure:
    """A figure of a workload: a suffix of its name, one of its title, the unit, whether less or
    more is better, and read(output), which gives it, or raises ValueError."""
    suffix: str
    words: str
    unit: str
    better: str
    read: object


@dataclass(frozen=True)
class Workload:
    """Something to run: `command`, as one would type it; the programs it needs; whether it has to
    be root, as it uses real-time priorities."""
    name: str
    title: str
    command: str
    needs: tuple
    figures: tuple
    root: bool = False


@dataclass(frozen=True)
class Size:
    """How long things run: `work` is the share of the loops that the authors ran, `seconds` what
    those run that take a time; rounds: how often each state is measured, twice in each."""
    work: float
    seconds: int
    rounds: int


FULL = Size(1, 30, 5)
NORMAL = Size(0.1, 10, 5)
SHORT = Size(0.001, 1, 1)


def all_of(pattern, count=None):
    """Give read(output): the mean of what a pattern with one group finds, which must be `count`
    times if that is given."""
    def read(output):
        found = [float(text) for text in re.findall(pattern, output, re.M)]
        if not found or count not in (None, len(found)):
            raise ValueError(f"{len(found)} figures in its output, not {count or 'one'}")
        # hackbench tells milliseconds; nothing can be told against none.
        if not all(found):
            raise ValueError("a figure of 0 in its output: it ran for too short a time")
        return statistics.fmean(found)
    return read


def sum_of(pattern, count):
    """The same, but their sum."""
    mean = all_of(pattern, count)
    return lambda output: count * mean(output)


def last_of(section, pattern):
    """Give read(output): what a pattern finds after the last line that begins with `section`."""
    def read(output):
        _, found, rest = output.rpartition(section)
        match = re.search(pattern, rest, re.M) if found else None
        if not match:
            raise ValueError(f"no {section!r} with figures in its output")
        return float(match[1])
    return read


def columns(heading, take):
    """Give read(output): of a line of figures behind a heading, what take() makes of them."""
    def read(output):
        match = re.search(rf"^{heading}((?: +\d+)+)$", output, re.M)
        if not match:
            raise ValueError(f"no {heading!r} in its output")
        return float(take([int(word) for word in match[1].split()]))
    return read


def some(*figures):
    """Give Figures, each from a tuple of what it is made of."""
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


def netperf(jobs):
    """The figures of so many netperf: the sixth of the figures on a line, in its table."""
    return some(("", "", "1/s", "more",
                 sum_of(rf"^\d+ +\d+ +\d+ +\d+ +[0-9.]+ +{NUMBER}\b", jobs)))


def sockperf(jobs):
    """Those of so many sockperf."""
    return some(("", "", "us", "less", all_of(rf"Summary: Latency is {NUMBER} usec", jobs)),
                ("/p99", ", p99", "us", "less", all_of(rf"percentile 99\.000 = +{NUMBER}", jobs)))


def every(shape, size, python):
    """Give all Workloads, in sizes that fit a facts.Shape; python: the program that runs kit."""
    return [*_hackbench(shape, size), *_perf(shape, size), *_schbench(shape, size),
            *_realtime(shape, size), *_network(shape, size, python)]


def _loops(number, size):
    return max(round(number * size.work), 1)


def _hackbench(shape, size):
    """The RFC of queued wakeups had 32 groups on 384 CPUs; that of cache-aware scheduling one
    group with as many pairs as a part of the LLC's CPUs, or a little more, and four such at
    once."""
    groups = max(shape.cpus // 12, 1)
    loops = _loops(480_000, size)
    found = [Workload(f"hackbench/threads-pipe-{groups}g",
                      f"hackbench, {groups} groups, threads, pipes",
                      f"hackbench -g {groups} -f 20 --threads --pipe -l {loops} -s 100",
                      ("hackbench",), HACKBENCH)]
    pairs = sorted({max(round(shape.llc_cpus * part), 1)
                    for part in (1 / 8, 1 / 4, 1 / 2, 1, 3 / 2)})
    for kind, option in (("pipe", "--pipe "), ("sockets", "")):
        for number in pairs:
            # Each of `number` senders writes to as many receivers. With as many loops as in the RFC
            # where they fill the LLC, the others take about as long.
            loops = _loops(1_000_000 * shape.llc_cpus / number, size)
            one = f"hackbench -g 1 --threads {option}-l {loops} -s 100 -f {number}"
            found.append(Workload(f"hackbench/threads-{kind}-{number}",
                                  f"hackbench, 1 group, {number} pairs of threads, {kind}", one,
                                  ("hackbench",), HACKBENCH))
    few = max(shape.llc_cpus // 8, 1)
    loops = _loops(1_000_000 * shape.llc_cpus / few, size)
    one = f"hackbench -g 1 --threads --pipe -l {loops} -s 100 -f {few}"
    found.append(Workload(f"hackbench/4x-threads-pipe-{few}",
                          f"four times hackbench, 1 group, {few} pairs of threads, pipe",
                          f"for i in 1 2 3 4; do {one} & done; wait", ("hackbench",),
                          some(("", "", "s", "less", all_of(rf"^Time: {NUMBER}$", 4)))))
    return found


def _perf(shape, size):
    groups = max(shape.cpus // 12, 1)
    found = [Workload(f"perf/messaging-{groups}g", f"perf bench sched messaging, {groups} groups",
                      f"perf bench sched messaging -g {groups} -p -t -l {_loops(100_000, size)}",
                      ("perf",), PERF)]
    for name, title, option in (("pipe", "processes", ""), ("pipe-threads", "threads", " -T")):
        found.append(Workload(f"perf/{name}", f"perf bench sched pipe, {title}",
                              f"perf bench sched pipe -l {_loops(5_000_000, size)}{option}",
                              ("perf",), PERF))
    return found


def _schbench(shape, size):
    return [Workload(f"schbench/{number}", f"schbench, 2 x {number} workers",
                     f"schbench -m 2 -t {number} -r {size.seconds}", ("schbench",), SCHBENCH)
            for number in sorted({max(shape.cpus // part, 1) for part in (8, 4, 2)})]


def _realtime(shape, size):
    """As with the patches to struct root_domain and cpupri."""
    return [
        Workload("stress-ng/cyclic", "stress-ng cyclic, FIFO",
                 f"stress-ng --cyclic {shape.cpus} --cyclic-policy fifo --timeout {size.seconds} "
                 "--minimize --metrics", ("stress-ng",), CYCLIC, root=True),
        Workload("pi_stress", "pi_stress",
                 f"pi_stress -D {size.seconds} -g {max(shape.cpus // 2, 1)}", ("pi_stress",),
                 PI_STRESS, root=True),
        Workload("cyclictest", "cyclictest",
                 f"cyclictest -t -i200 -h 32 -m -p 95 -q -D {size.seconds}", ("cyclictest",),
                 CYCLICTEST, root=True)]


def _network(shape, size, python):
    """As with SIS_FAST: a quarter, a half, three quarters and as many clients as CPUs, with slices
    of 0.1 ms. With half as many also without."""
    found = []
    tool = "netperf" if shutil.which("netperf") or not shutil.which("sockperf") else "sockperf"
    counts = sorted({max(shape.cpus * part // 4, 1) for part in (1, 2, 3, 4)})
    for jobs, own in [*((jobs, True) for jobs in counts), (max(shape.cpus // 2, 1), False)]:
        numbers = f"$(seq {jobs})"
        if tool == "netperf":
            start = f"netserver -D -4 -L 127.0.0.1 -p {PORT} > /dev/null & servers=$!; sleep 1"
            one = f"netperf -P 0 -4 -H 127.0.0.1 -p {PORT} -t TCP_RR -c -C -l {size.seconds}"
            needs, figures, what = ("netperf", "netserver"), netperf(jobs), "TCP_RR"
        else:
            at = f"--tcp -i 127.0.0.1 -p $(({PORT} + i))"
            start = (f"for i in {numbers}; do sockperf server {at} > /dev/null & "
                     "servers=\"$servers $!\"; done; sleep 1")
            one = f"sockperf ping-pong {at} -t {size.seconds}"
            needs, figures, what = ("sockperf",), sockperf(jobs), "ping-pong"
        command = (f"{start}; for i in {numbers}; do {one} & clients=\"$clients $!\"; done; "
                   "wait $clients; kill $servers; wait")
        if own:
            command = f"{python} -m kit.bench.slice {SLICE_NS} sh -c {shlex.quote(command)}"
        found.append(Workload(f"{tool}/{what}-{jobs}" + ("-slice" if own else ""),
                              f"{tool} {what}, {jobs} clients"
                              + (", slices of 0.1 ms" if own else ""), command, needs, figures))
    return found


def missing(workload, is_root):
    """Say why a Workload cannot run here, or give None."""
    absent = [program for program in workload.needs if not shutil.which(program)]
    if absent:
        return f"{', '.join(absent)} is not installed"
    if workload.root and not is_root:
        return "needs root for real-time priorities"
    return None
