# SPDX-License-Identifier: GPL-2.0-only
"""The stack's feature bits. Tables of features elsewhere are generated from this one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """A bit of sched/features.

    default: its state at boot; does: what it does; use: when to switch it; test: the kernel
    selftest that measures it; more: whether the selftest's figure rises with the bit on; needs:
    the bits without which it has no or less effect.
    """

    name: str
    default: str
    does: str
    use: str
    test: str
    more: bool
    needs: tuple = ()


FEATURES = (
    Feature("TTWU_QUEUE_L2", "off",
            "Queue a wakeup for the target CPU if that CPU is busy and in another L2 group "
            "of the same LLC, instead of taking its runqueue lock.",
            "many tasks wake each other across one large LLC",
            "ttwu_queue", True),
    Feature("TTWU_QUEUE_L2_ON_CPU", "off",
            "Do the same for a task that its previous CPU is still switching out. The task stays on "
            "that CPU: no other CPU is selected.",
            "as TTWU_QUEUE_L2, after measuring both",
            "ttwu_queue", True),
    Feature("TTWU_QUEUE_L2_DELAYED", "off",
            "Leave the wakeup of a task whose dequeue is delayed to the CPU where it is queued, if "
            "that CPU is in another L2 group.",
            "as TTWU_QUEUE_L2, if wakeup_stats shows many such wakeups",
            "ttwu_queue", True),
    Feature("SIS_FAST", "off",
            "Scan fewer CPUs or none for an idle one on wakeup if the task has a custom slice shorter "
            "than the base slice and would run at once on the target CPU.",
            "short requests with a custom slice on an LLC of many CPUs",
            "sis_fast", False),
    Feature("SCHED_CACHE", "on",
            "Track, for each process with several threads, the LLC in which they run most: their "
            "preferred LLC.",
            "off to do without any of cache-aware scheduling",
            "sched_cache", True),
    Feature("SCHED_CACHE_LB", "on",
            "Let the load balancer aggregate the threads of a process in their preferred LLC, as far "
            "as that LLC has capacity.",
            "off if aggregation costs memory bandwidth",
            "sched_cache_lb", True, ("SCHED_CACHE",)),
    Feature("SCHED_CACHE_WAKE", "off",
            "Wake a thread in its preferred LLC if that LLC has capacity and an idle CPU.",
            "threads that sleep often, and whose process fits into an LLC",
            "sched_cache_lb", True, ("SCHED_CACHE", "SCHED_CACHE_LB")),
)
