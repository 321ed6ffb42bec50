# SPDX-License-Identifier: GPL-2.0-only
"""Results that were published of real machines, and what make sim-validate runs to find them again.

A figure that a file of machines/caches/ contains is an input of the simulation. No row is made of
one alone. Where a workload is a stand-in, or a machine is a part of the published one, the row says
so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """What is run: a machine, WORKLOAD and STATE as make sim takes them, a BUILD, and how many control
    groups deep the workload is."""
    machine: str
    workload: str
    state: str = ""
    build: str = "stack"
    cgroups: int = 0


@dataclass(frozen=True)
class Check:
    """A figure of a row: what the workload of the variant `other` gives, as a multiple of what that of
    `base` gives, or by itself if `base` is "".

    expected: as published; low, high: the range that its median must be in.
    """
    name: str
    base: str
    other: str
    expected: float
    low: float
    high: float


@dataclass(frozen=True)
class Order:
    """The change of the check `small` is less than `factor` times that of `large`; a change is the
    multiple minus 1."""
    small: str
    large: str
    factor: float = 1.0


@dataclass(frozen=True)
class Row:
    """A published result.

    number: in the table; source: where it was published, and what is different here; variants: {name:
    Variant}; full: only FULL=1 runs it, as it takes long; gap: why it is known not to be reproduced, "" if
    it is reproduced.
    """
    number: int
    title: str
    source: str
    variants: dict
    checks: tuple
    orders: tuple = ()
    full: bool = False
    gap: str = ""


_WILL_IT_SCALE = ("K. K. Dwivedi, 20250206105435.2159977-1-memxor@gmail.com: will-it-scale on 2 x "
                  "48 cores of "
                  "Xeon 8468, bpf-next of early 2025. The threads are taken to fill socket 0 first")
_L2 = ("04be42cb-0e8b-25f7-a34b-41b2873f39d4@efficios.com: hackbench -g 32 -f 20 on 2 x EPYC 9654, "
       "Linux 6.5")
_SIXTH = ("Here a sixth of the CPUs (2 x 2 of 12 CCX) and of the groups (5 for 32), in control "
          "groups three deep, "
          "without delayed dequeues and without the limit of updates of tg->load_avg")
_LIMIT = ("20230824075208.GA459974@ziqianlu-dell: hackbench on 2 x 56 cores of Sapphire Rapids, "
          "Linux 6.5-rc1. "
          "Control groups three deep, no delayed dequeue")


def _scale(kind, *counts):
    """Pinned threads, one on each core of socket 0, then of socket 1."""
    return {str(threads): Variant("spr-2x48x2", f"scale:{kind}:{threads}:2:2:3")
            for threads in counts}


def _switches(pairs):
    return {f"{pairs} pairs{'' if count else ' uncounted'}": Variant(
        "epyc-9654", f"scale:switch:{pairs}:2:2:3",
        f"features={'' if count else 'NO_'}LAZY_TLB_COUNT", "validate")
            for count in (True, False)}


def _old(machine, groups, *features, limit=False, l2=0, ms="40:20"):
    """A hackbench in the conditions of Linux 6.5. l2: how many CPUs an L2 group has, 0 as the caches say."""
    cpus = {"epyc-2x2x8x2": 64, "spr-2x56x2": 224}[machine]
    state = ["features=NO_DELAY_DEQUEUE", f"features={'' if limit else 'NO_'}TG_LOAD_AVG_LIMIT",
             *(f"features={name}" for name in features), *[f"l2_group_cpus={l2}"] * bool(l2)]
    return Variant(machine, f"hackbench-rate:{groups}:20:{ms}:threads:pipe:0:{cpus - 1}",
                   ",".join(state), "validate", 3)


# Of rows that need BUILD=validate.
_NOT_RUN = "not run yet"
_NOT_SEEN = (". The locks of the runqueues are hardly contended: in l2-65, the same workload for half the time, fewer "
             "than 0.2 of their lines move for each message")
_QUEUED = ("TTWU_QUEUE_L2", "TTWU_QUEUE_L2_ON_CPU")
_LLC = "group of 16"

ROWS = (
    Row(1, "a line between two CCX, its memory at the other socket, against near",
        "2 x EPYC 9454 in KCORES/core-to-core-latency-plus: 200.1 and 103.4 ns. Here with "
        "latencies of a 9654, whose "
        "file has 99 and 192 ns, but neither the pair of home and CPU",
        {"near": Variant("epyc-2x2x8", "bounce:0:8:2000:0"),
         "far": Variant("epyc-2x2x8", "bounce:0:8:2000:16")},
        (Check("far against near", "near", "far", 1.98, 1.5, 2.6),)),
    Row(2, "open1 of will-it-scale, Sapphire Rapids, threads to 1", _WILL_IT_SCALE,
        _scale("open", 1, 4, 48, 56, 96),
        (Check("4 threads", "1", "4", 1.70, 1.13, 2.55),
         Check("48 threads", "1", "48", 1.27, 0.85, 1.91),
         Check("96 threads", "1", "96", 0.84, 0.56, 1.26),
         Check("56 against 48", "48", "56", 0.73, 0.55, 0.87)),
        gap="more threads are slower than published, from 4 on: it is likely that the simulated lock of the open "
            "files is handed over too slowly. The step from 48 to 56 threads, to the other socket, is as "
            "published"),
    Row(3, "lock1 of will-it-scale, Sapphire Rapids, threads to 1", _WILL_IT_SCALE,
        _scale("lock", 1, 4, 48, 96),
        (Check("4 threads", "1", "4", 3.43, 2.29, 5.15),
         Check("48 threads", "1", "48", 2.11, 1.41, 3.17),
         Check("96 threads", "1", "96", 1.20, 0.80, 1.80)),
        (Order("48 threads", "4 threads"), Order("96 threads", "48 threads"))),
    Row(4, "context_switch1 of will-it-scale, EPYC 9654, mm_count not written",
        "M. Desnoyers, 20241002010205.1341915-1-mathieu.desnoyers@efficios.com, Linux 6.11. There "
        "hazard pointers "
        "take the place of the count, here nothing does. A pair is taken to be on the two CPUs of "
        "a core",
        {name: one for pairs in (24, 96, 192) for name, one in _switches(pairs).items()},
        tuple(Check(f"{pairs} pairs", f"{pairs} pairs", f"{pairs} pairs uncounted", *figures)
              for pairs, figures in ((24, (1.03, 1.0, 1.08)), (96, (1.21, 1.10, 1.42)),
                                     (192, (1.28, 1.14, 1.56)))),
        (Order("24 pairs", "96 pairs"), Order("96 pairs", "192 pairs")), full=True,
        gap=f"{_NOT_RUN}: two boots of 384 CPUs for each seed"),
    Row(5, "hackbench, EPYC 9654, queued wakeups by groups of 2 CPUs against 16",
        f"{_L2}: 34 and 49 s. {_SIXTH}",
        {_LLC: _old("epyc-2x2x8x2", 5), "group of 2": _old("epyc-2x2x8x2", 5, *_QUEUED)},
        (Check("2 against 16", _LLC, "group of 2", 1.44, 1.22, 1.88),), full=True,
        gap=f"no size of group has a gain that can be told from noise{_NOT_SEEN}"),
    Row(6, "the same, groups of 8 and of 4 CPUs", f"{_L2}: 39 and 34 s. {_SIXTH}",
        {_LLC: _old("epyc-2x2x8x2", 5), "group of 2": _old("epyc-2x2x8x2", 5, *_QUEUED),
         **{f"group of {cpus}": _old("epyc-2x2x8x2", 5, *_QUEUED, l2=cpus) for cpus in (4, 8)}},
        (Check("8 against 16", _LLC, "group of 8", 1.26, 1.0, 1.88),
         Check("4 against 16", _LLC, "group of 4", 1.44, 1.22, 1.88),
         Check("4 against 2", "group of 2", "group of 4", 1.0, 0.9, 1.1)),
        (Order("8 against 16", "4 against 16"),), full=True, gap=f"as row 5{_NOT_SEEN}"),
    Row(7, "the same, messages per ms of the group of 16",
        f"{_L2}: 192 million messages for each group in 49 s. "
        f"{_SIXTH}; a sixth of 125,400", {_LLC: _old("epyc-2x2x8x2", 5)},
        (Check("messages per ms", "", _LLC, 20_900, 10_450, 41_800),), full=True),
    Row(8, "hackbench, Sapphire Rapids, limit of tg->load_avg against none", _LIMIT,
        {f"{groups} groups{', limit' * limit}": _old("spr-2x56x2", groups, limit=limit)
         for groups in (10, 20, 32) for limit in (False, True)},
        tuple(Check(f"{groups} groups", f"{groups} groups", f"{groups} groups, limit", x,
                    1 + (x - 1) / 2, 1 + (x - 1) * 2) for groups, x in ((10, 1.28), (20, 1.47), (32, 2.7))),
        (Order("10 groups", "20 groups"), Order("20 groups", "32 groups")), full=True,
        gap=f"{_NOT_RUN}: 224 CPUs for 60 ms, six times for each seed"),
    Row(9, "the same, queued wakeups by groups of 2 CPUs, with the limit, without", _LIMIT,
        {f"{name}{', limit' * limit}": _old("spr-2x56x2", 20, *features, limit=limit)
         for name, features in ((_LLC, ()), ("group of 2", _QUEUED)) for limit in (False, True)},
        # The published gains; the row asks for their ratio, so any gain may pass.
        (Check("with the limit", f"{_LLC}, limit", "group of 2, limit", 1.12, 1.0, 1.56),
         Check("without", _LLC, "group of 2", 1.68, 1.0, 3.0)),
        (Order("with the limit", "without", 1 / 3),), full=True, gap=f"{_NOT_RUN}: as row 8"),
    Row(10, "hackbench, time of 16 groups to that of 3",
        "cover.1754712565.git.tim.c.chen@linux.intel.com: Milan 241 to 51.6 s, Sapphire Rapids "
        "75.3 to 40.4 s, "
        "Linux 6.16. Here without SCHED_CACHE",
        {f"{name}, {groups} groups": Variant(
            machine, f"hackbench:{groups}:20:20:threads:pipe:0:{cpus - 1}", "features=NO_SCHED_CACHE")
         for name, machine, cpus in (("Milan", "epyc-milan", 128),
                                      ("Sapphire Rapids", "spr-2x30x2", 120))
         for groups in (3, 16)},
        (Check("Milan", "Milan, 3 groups", "Milan, 16 groups", 4.66, 2.3, 9.3),
         Check("Sapphire Rapids", "Sapphire Rapids, 3 groups", "Sapphire Rapids, 16 groups", 1.87,
               1.4, 2.7)),
        (Order("Sapphire Rapids", "Milan"),), full=True,
        gap="Milan is in its range. On Sapphire Rapids 16 groups take longer than published, and the ratio is larger "
            "than Milan's, where the published one is smaller. Why was not looked at"),
    Row(11, "8 threads that share, in a CCX against one in each of 8 CCX",
        "cover.1750268218 and cover.1760206683.git.tim.c.chen@linux.intel.com: Verilator with 8 "
        "threads on 8 CCX of "
        "EPYC 9T24, 49.3 to 24.2 s, and on Genoa 50.9 to 28.3 s: x 1.8 to 2.04. Here `sharing` of "
        "512 KiB, its "
        "default, stands for Verilator, and all threads are pinned",
        {"a thread in each CCX": Variant("epyc-1x8x8", "sharing:1:8:512:5:10:pinned"),
         "one CCX": Variant("epyc-1x8x8", "sharing:1:8:512:5:10:near")},
        (Check("one CCX against 8", "a thread in each CCX", "one CCX", 1.9, 1.4, 2.9),)),
    Row(12, "SCHED_FIFO threads on 480 CPUs, cpupri_vec apart",
        "Pan Deng, 346b697a0bbf9b0ff6a62d787ccf6665dcefc99f.1753076363.git.pan.deng@intel.com: "
        "stress-ng --cyclic, "
        "+31 %; the wait for the line falls to a quarter", {}, (), full=True,
        gap="cannot be run: it needs a kernel with CPUMASK_OFFSTACK=y whose only patch is that of "
            "cpupri_vec, 480 CPUs, and the loops of stress-ng --cyclic. The nearest claim of cpupri below "
            "is that with CPUMASK_OFFSTACK=y on 384 CPUs, of all patches"),
)
