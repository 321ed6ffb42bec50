# SPDX-License-Identifier: GPL-2.0-only
"""Ratios and how far they can be trusted, for results of any instrument."""

from __future__ import annotations

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
RESAMPLES = 9999

GAIN, LOSS, NONE = "GAIN", "LOSS", "no verdict"


@dataclass(frozen=True)
class Change:
    """A relative difference: value (0.01 is one percent more), and how far its 95 % confidence
    interval reaches, to the side where that is further; None if there was one block only."""
    value: float
    half: float | None


@dataclass(frozen=True)
class Comparison:
    """What another subject did better than its base, all relative to the base, 0.01 being one
    percent better and -0.01 one worse, whatever is better, less or more.

    gain: that of the medians; low, high: its 95 % interval; p: of the Mann-Whitney test, corrected
    for all comparisons that were made at once; floor: what an A/A control shows, None without one;
    verdict: GAIN, LOSS or NONE; reason: the first why there is none.
    """
    gain: float
    low: float
    high: float
    p: float
    floor: float | None
    verdict: str
    reason: str = ""


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


def interval(base, other):
    """Give (low, high), the 95 % interval of the ratio of the medians of other and of base, each a
    list of two positive values or more; by bootstrap, the same each time.

    Values are drawn from each list for itself: where both drifted alike that makes it wider than it
    had to be, never narrower.
    """
    def ratio(one, two, axis):
        return numpy.median(two, axis=axis) / numpy.median(one, axis=axis)
    # A percentile interval: the corrected kinds (BCa) are not defined where many values are equal.
    found = stats.bootstrap((base, other), ratio, vectorized=True, method="percentile",
                            confidence_level=CONFIDENCE, n_resamples=RESAMPLES,
                            random_state=numpy.random.default_rng(1))
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def holm(ps):
    """Correct the p-values of tests that are made at once by Holm's method: whichever of the
    hypotheses hold, the chance that any of them gets less than 0.05 is no more than that."""
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = largest
    return corrected


def gain(ratio, better):
    """Give what a ratio of the other to the base is as a gain: of time, where less is better, the
    part that is saved, of throughput what comes on top."""
    return ratio - 1 if better == "more" else 1 - ratio


def floor(base, control):
    """How far from nothing the interval of the control reaches, which was measured on what base
    was, at the same time: a gain or loss, 0.01 being a percent. What is no larger may be chance."""
    return max(abs(end - 1) for end in interval(base, control))


def compare(cases):
    """Judge what was measured together: cases is a list of (better, base, other, floor), better
    "less" or "more", base and other lists of two positive values or more; give a Comparison each,
    or None for what cannot be compared.

    A verdict needs all of these: p below 0.05 after the correction, an interval without 0, and a
    gain or loss that is larger than the floor.
    """
    fit = [i for i, (_, base, other, _) in enumerate(cases)
           if min(len(base), len(other)) >= 2 and min(*base, *other) > 0]
    ps = holm([float(stats.mannwhitneyu(cases[i][1], cases[i][2]).pvalue) for i in fit])
    found = [None] * len(cases)
    for i, p in zip(fit, ps):
        better, base, other, floor_ = cases[i]
        value = gain(median(other) / median(base), better)
        low, high = sorted(gain(end, better) for end in interval(base, other))
        reasons = [reason for wrong, reason in (
            (floor_ is None, "no A/A control"),
            (floor_ is not None and abs(value) <= floor_, "inside the A/A floor"),
            (p >= 1 - CONFIDENCE, f"p is not below {1 - CONFIDENCE:.2g}"),
            (low <= 0 <= high, "the interval has 0 in it")) if wrong]
        verdict = NONE if reasons else GAIN if value > 0 else LOSS
        found[i] = Comparison(value, low, high, p, floor_, verdict, "".join(reasons[:1]))
    return found
