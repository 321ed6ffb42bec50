# SPDX-License-Identifier: GPL-2.0-only
"""Ratios and how far they can be trusted, for results of any instrument."""

import math
from dataclasses import dataclass

import numpy
from scipy import stats

CONFIDENCE = 0.95
# The standard error of a median against that of a mean, of many normal values.
MEDIAN_ERROR = math.sqrt(math.pi / 2)
# Smaller changes are not reported, however well they repeat: what a change of the compiler or of
# an unrelated line moves.
FLOOR = 0.0005


@dataclass(frozen=True)
class Change:
    """A relative difference: value (0.01 is one percent more), and the half width of its 95 %
    confidence interval; None if there was one block only."""
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

    The median of the logarithms of the blocks' ratios, taken back, and an interval from their
    median absolute deviation: now and then one block is of another kind altogether, as a task was
    woken elsewhere, and is not to decide. None if the blocks are not the same in number, or a
    value is not positive.
    """
    if len(base) != len(other) or min(*base, *other, math.inf) <= 0:
        return None
    logs = numpy.log(numpy.array(other) / numpy.array(base))
    value = math.expm1(float(numpy.median(logs)))
    if len(logs) < 2:
        return Change(value, None)
    # scale="normal" makes a standard deviation of it; the median's error is larger than the mean's.
    error = (float(stats.median_abs_deviation(logs, scale="normal")) * MEDIAN_ERROR
             / math.sqrt(len(logs)))
    return Change(value, math.expm1(error * float(stats.t.ppf((1 + CONFIDENCE) / 2,
                                                             len(logs) - 1))))


def moved(old, new):
    """Whether two Changes of the same thing, measured at different times, differ by more than
    both their intervals and FLOOR."""
    return abs(new.value - old.value) > FLOOR + math.hypot(old.half or 0, new.half or 0)
