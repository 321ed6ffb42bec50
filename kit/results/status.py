# SPDX-License-Identifier: GPL-2.0-only
"""Which committed results are no longer to be believed, and why."""

# Simulations at these commits ran on a cache model with errors: it dropped the queue of a contended
# line after one transfer, and charged a write for the data but not for sharers further away.
OLD_MODEL = ("1fbd0e8", "2ea3e77", "746be55", "cfcb0fe", "27344cc", "8133b0d", "56ed862")
# The workloads whose figure depends on contended lines.
CONTENDED = ("hackbench", "hackbench-rate", "pipeline", "cyclic", "counters", "ping-pong")

VOID = "void: the workload depends on contended lines, which the cache model served too fast"
OLD = ("simulated with a cache model that charged too little for a write to a line with distant "
       "sharers, which favours aggregation")


def old(result):
    """Whether a store.Result was simulated with the cache model that has known errors."""
    return result.instrument.startswith("sim-") and result.repeat.get("commit") in OLD_MODEL


def void(result):
    """Whether such a result depends on what that model gets wrong most, and says nothing."""
    return old(result) and result.repeat.get("workload", "").partition(":")[0] in CONTENDED


def note(result):
    """Give what a reader of a result has to know first, or ""."""
    return VOID if void(result) else OLD if old(result) else ""
