#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Can load balancing of Linux 7.3 undo at once what cache-aware scheduling has moved?

    python3 llc_policy.py

tries all states of two LLCs of one capacity, in steps of a percent. decide() is can_migrate_llc() of
kernel/sched/fair.c. A move to the preferred LLC may be undone if, with the same loads, the policy does not forbid the
move out of it then. overaggr_pct 50 is for SMT, 75 is what fits_llc_capacity() makes of it without SMT; imb_pct 20 is
the default, 17 is imbalance_pct - 100 of a domain of LLCs.

For 7.3.4 it finds that of all moves, 70 of 105014 may be undone with SMT, and 248 of 212734 without. In passes that
gather, which llc_balance() starts, there is none. These are states, not times: whether balancing does undo such a move
was not looked for, and the loads that the kernel compares are those of an earlier pass.
"""
FORBID, LLC, UNRESTRICTED = "N", "Y", "G"


def decide(src, dst, task, to_pref, overaggr, imb):
    """The decision about a task: the loads of both LLCs before the move, and of the task, in percent of an LLC."""
    src, dst = max(src - task, 0), dst + task
    fits_src, fits_dst = src < overaggr, dst < overaggr
    if not fits_dst and not fits_src:
        return UNRESTRICTED
    if to_pref:
        return FORBID if not fits_dst and dst * 100 > src * (100 + imb) else LLC
    return FORBID if fits_src or src * 100 <= dst * (100 + imb) else LLC


def search(overaggr, imb, gathering):
    """The number of moves, and those that may be undone, as (source, preferred LLC, task).

    gathering: in passes that llc_balance() starts, which asks with a load of 0; any task may move then, as active
    balancing does not ask about it. Otherwise: in any pass, the moves that the policy wants."""
    moves, undone = 0, []
    for src in range(1, 101):
        for dst in range(100):
            if gathering and decide(src, dst, 0, True, overaggr, imb) != LLC:
                continue
            for task in range(1, min(src, 100 - dst) + 1):
                if gathering or decide(src, dst, task, True, overaggr, imb) == LLC:
                    moves += 1
                    if decide(dst + task, src - task, task, False, overaggr, imb) != FORBID:
                        undone.append((src, dst, task))
    return moves, undone


if __name__ == "__main__":
    for percent in (50, 75):
        for bias in (20, 17, 0):
            for passes in (False, True):
                count, bad = search(percent, bias, passes)
                apart = sum((dst + task) * 100 > (src - task) * 117 for src, dst, task in bad)
                print(f"overaggr_pct {percent}, imb_pct {bias}, {'gathering' if passes else 'any'} pass: {len(bad)} of"
                      f" {count} moves may be undone, {apart} with loads that differ by more than 17 %")
