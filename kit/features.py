# SPDX-License-Identifier: GPL-2.0-only
"""The features of the patches. Tables of features elsewhere are generated from this one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """A bit of sched/features.

    default: its state at boot; does: what it does; use: when to switch it; test: the kernel
    selftest that measures it; more: whether the selftest's figure rises with the bit on; needs:
    the bits without which it has no or less effect; realtime: its state at boot with PREEMPT_RT,
    if that is another one.
    """

    name: str
    default: str
    does: str
    use: str
    test: str
    more: bool
    needs: tuple = ()
    realtime: str = ""

    def at_boot(self, realtime):
        """Its state at boot, on or off, of a kernel with PREEMPT_RT or without."""
        return realtime and self.realtime or self.default


FEATURES = (
    Feature("TTWU_QUEUE_L2", "off",
            "Queue a wakeup for the target CPU if that CPU is busy and in another L2 group "
            "of the same LLC, instead of taking its runqueue lock.",
            "to measure, where many tasks pass messages: +5 % with 54 tasks on 16 CPUs, in a simulation where an "
            "interrupt reaches a CPU at once",
            "ttwu_queue", True),
    Feature("TTWU_QUEUE_L2_ON_CPU", "off",
            "Do the same for a task that its previous CPU is still switching out. The task stays on "
            "that CPU: no other CPU is selected.",
            "with TTWU_QUEUE_L2: published figures are for both together",
            "ttwu_queue", True),
    Feature("SIS_FAST", "off",
            "Search fewer CPUs for an idle one, or none, if the wakee has a custom slice shorter than the base "
            "slice and would run at once on the target CPU.",
            "pairs of tasks with short requests and custom slices that keep most CPUs of a large LLC busy",
            "sis_fast", False),
    Feature("UTIL_FITS_CAPACITY", "off",
            "Accept a busy CPU (target, previous or recently used) with spare capacity.",
            "many tasks wake each other in turn, and migrations cost more than waiting; not for requests and "
            "responses between two tasks",
            "wake_place", True),
    Feature("SELECT_BIAS_PREV", "off",
            "Prefer the previous CPU to the target, above all if no CPU of the LLC is idle.",
            "as UTIL_FITS_CAPACITY, alone or with it",
            "wake_place", True),
    Feature("WAKE_RECENT_IDLE", "off",
            "Accept a busy CPU (target, previous or recently used) that was idle less than 1 ms ago and has at "
            "most 4 tasks.",
            "as UTIL_FITS_CAPACITY; not for requests and responses that overlap",
            "wake_place", True),
    Feature("WAKE_RATE_LIMIT", "off",
            "Do not let a wakeup migrate a task that a wakeup has migrated less than "
            "`wake_migration_us` ago.",
            "wakeups migrate tasks too often, whatever the cause",
            "wake_place", False),
    Feature("WAKE_PREDICT", "off",
            "Search for an idle CPU near the tasks that wake the wakee and that it wakes: on their core, in "
            "their LLC or in their node; in another LLC if the wakee's own is busier.",
            "an experiment, to compare with the four features above",
            "wake_predict", True),
    Feature("SCHED_CACHE", "on",
            "Choose preferred LLCs for each process with several threads: as few as hold those that run, where other "
            "tasks leave room.",
            "off to disable all of cache-aware scheduling; off at boot with PREEMPT_RT",
            "sched_cache", True, realtime="off"),
    Feature("SCHED_CACHE_SAMPLE", "off",
            "For a process larger than its LLCs, sample its pages by NUMA hinting faults; prefer these LLCs if threads "
            "share the pages or these fit.",
            "threads that share data, with much memory that is seldom used",
            "sched_cache_sample", True, ("SCHED_CACHE",)),
    Feature("SCHED_CACHE_LB", "on",
            "Let threads migrate to the preferred LLCs of their process, as far as these "
            "have capacity.",
            "off if aggregation costs memory bandwidth",
            "sched_cache_lb", True, ("SCHED_CACHE",)),
    Feature("SCHED_CACHE_WAKE", "off",
            "Wake a thread in a preferred LLC if that LLC has capacity and an idle CPU.",
            "threads that sleep often, in a process that is aggregated",
            "sched_cache_lb", True, ("SCHED_CACHE", "SCHED_CACHE_LB")),
)
