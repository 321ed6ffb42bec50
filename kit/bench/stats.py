# SPDX-License-Identifier: GPL-2.0-only
"""Ratios and how far they can be trusted, for results of any instrument."""

import math
from dataclasses import dataclass

import numpy
from scipy import stats

CONFIDENCE = 0.95
# Smaller changes are not reported, however well they repeat: what a change of the compiler or of
# an unrelated line moves.
FLOOR = 0.0005
# The same for what was measured in one block, and so has no interval.
FLOOR_ALONE = 0.02


@dataclass(frozen=True)
class Change:
    """A relative difference: value (0.01 is one percent more), and how far its 95 % confidence
    interval reaches, to the side where that is further; None if there was one block only."""
    value: float
    half: float | None


def median(values):
    """The median of some numbers."""
    return float(numpy.median(values))


def spread(values):
    """How far values are from each other: their standard deviation relative to the mean, 0.01
    being one percent; None for one value."""
    if len(values) < 2 or not numpy.mean(values):
        return None
    return float(numpy.std(values, ddof=1) / numpy.mean(values))


def change(base, other):
    """Give the Change from the values of base to those of other, block by block.

    The median of the logarithms of the blocks' ratios, taken back: now and then one block is of
    another kind altogether, as a task was woken elsewhere, and is not to decide. Its interval needs
    no assumption about how they are distributed: from the k-th smallest to the k-th largest, for
    the largest k with which the binomial distribution gives it CONFIDENCE; from nine blocks that
    leaves out one on each side. With less than six there is no such k, and it is their range. None
    if the blocks are not the same in number, or a value is not positive.
    """
    if len(base) != len(other) or min(*base, *other, math.inf) <= 0:
        return None
    logs = numpy.sort(numpy.log(numpy.array(other) / numpy.array(base)))
    value = float(numpy.median(logs))
    if len(logs) < 2:
        return Change(math.expm1(value), None)
    # From 0; ppf() is 0 where not even the range has CONFIDENCE.
    k = max(int(stats.binom.ppf((1 - CONFIDENCE) / 2, len(logs), 0.5)) - 1, 0)
    return Change(math.expm1(value),
                  math.expm1(float(max(logs[-1 - k] - value, value - logs[k]))))


def moved(old, new):
    """Whether two Changes of the same thing, measured at different times, differ by more than
    both their intervals and FLOOR, or than FLOOR_ALONE if one has no interval."""
    if old.half is None or new.half is None:
        return abs(new.value - old.value) > FLOOR_ALONE
    return abs(new.value - old.value) > FLOOR + math.hypot(old.half, new.half)
