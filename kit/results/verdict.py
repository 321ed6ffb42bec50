# SPDX-License-Identifier: GPL-2.0-only
"""The one rule by which every instrument compares two sets of figures.

A figure is a positive number: a time, a rate, a count. All tests are made on logarithms, so a change
is a ratio, and a time and the rate that is its inverse get the same verdict.

- The A/A control runs are of the same kernel in the same state as the base. They are pooled with the
  base. How far the control is from the base is reported as drift and decides nothing.
- If the smaller sample has EXACT or more values, Welch's t test decides. Below, the exact permutation
  test of the difference of the means has to agree with it: Welch's test relies on a distribution,
  the exact test on equal spreads. The p-value, the interval and the equivalence test are those of the
  same test, so they agree with each other.
- Blocked figures (`paired`: block i of the base and of the other were measured in the same
  circumstances, as in a memory layout of bench-cost, or in the windows of one boot) are compared by
  block: the t test of the differences, below EXACT blocks the exact test that changes their signs.
  Of instructions (`screened`), blocks of another regime are left out and counted (see regime()). Of
  times nothing is left out: a placement that a feature reaches in some blocks is its effect.
- The primary metrics are declared before a run. Holm's method corrects their p-values; one result is
  one family. Any other metric is secondary: it has an interval and no verdict.
- GAIN or LOSS: the corrected p is below 5 %. Else EQUIVALENT: two one-sided tests (TOST), corrected
  in the same way, show that the ratio is between 1 / (1 + margin) and 1 + margin. Else NONE, with what
  is missing. All are at one level: of a family of one, a GAIN or LOSS has an interval without 1, and what is
  EQUIVALENT one inside the margin. `equivalent` is set for a GAIN or LOSS that is proved to be inside the margin, too.

The last digits of a logarithm, a sum or a quantile depend on the processor and on the versions of the
C library, numpy and scipy. Sums are exact here, and what comes of a test is rounded to DIGITS, so that
equal figures are equal, and every page has the same digits, everywhere.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from dataclasses import dataclass

import numpy
from scipy import special

from kit.results import store

ALPHA = 0.05
# Design: "equivalent to off, margin 5 %".
MARGIN = 0.05
# Below this number of values in the smaller sample, Welch's test of a two-point mixture (two
# placements) has up to 8 % false positives, and the exact test 17 % where the other's spread is three
# times the base's; together they have 1 to 5 and 8 %.
EXACT = 8
# Enumerate all assignments up to this number (6 of 18 values: 18,564), else draw so many.
ASSIGNMENTS, DRAWN = 20_000, 9_999
# A block is of another regime if it is off the median by more than so many standard deviations (from
# the median absolute deviation), and by 0.5 %: in the committed runs of bench-cost, a migration in the
# measured batch moved a figure by 0.6 to 10 %, and layouts differ by up to 0.3 %.
REGIME_SD, REGIME = 5, 0.005
# There is no verdict if more of the blocks than this are of another regime.
MOST_LEFT_OUT = 1 / 3
# Do not plan for more values than this.
MOST_PLANNED = 100_000
# A difference of logarithms that comes from rounding.
ROUNDING = 1e-12
# Significant digits of a Change: far more than any page shows, and less than a processor gets right.
DIGITS = 12
# Instruments whose figures are blocked and screened; and margins that are not 5 %: of instructions, that is the
# largest budget of the design for what a feature may cost.
SCREENED, MARGINS = ("cost",), {"cost": 0.01}
# Two changes of different times differ by more than their intervals and this: what a change of the
# compiler or of an unrelated line moves. Where one has no interval, by more than FLOOR_ALONE.
FLOOR, FLOOR_ALONE = 0.0005, 0.02

GAIN, LOSS, EQUIVALENT, NONE, SECONDARY = "GAIN", "LOSS", "EQUIVALENT", "no verdict", "secondary"


@dataclass(frozen=True)
class Case:
    """What is compared: `better` is "less" or "more", base, other and control are lists of figures.

    paired: the lists have the same blocks in the same order; screened: of these, leave out the ones
    of another regime; primary: declared before the run; margin: of equivalence, 0.05 being 5 %.
    """
    better: str
    base: tuple
    other: tuple
    control: tuple = ()
    paired: bool = False
    screened: bool = False
    primary: bool = True
    margin: float = MARGIN

    def __post_init__(self):
        for name in ("base", "other", "control"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


@dataclass(frozen=True)
class Change:
    """A ratio of two means (geometric) and its 95 % interval.

    ratio, low, high: 1.01 is 1 % more; None where there is none. p: of no change, not corrected; None
    without a test. method: of the test; n: the number of values, (base, other); left_out: blocks of
    another regime, which are not among them.
    """
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    method: str = ""
    n: tuple = (0, 0)
    left_out: int = 0

    @property
    def half(self):
        """Half the width of the interval, as a factor: 0.05 is 5 % to each side in logarithms. None
        without an interval."""
        return None if self.low is None else math.sqrt(self.high / self.low) - 1


@dataclass(frozen=True)
class Verdict:
    """What came of a Case.

    word: GAIN, LOSS, EQUIVALENT, NONE or SECONDARY; change: of the other against base and control;
    p: of no change and p_equivalent: of a change beyond the margin, both corrected, None without a
    test; equivalent: proved to be inside the margin; drift: the Change of the control against the
    base, None without one; more: values to add to each sample for an interval that reaches the margin
    to each side, None if unknown, 0 if it is as narrow; reason: why there is no verdict.
    """
    word: str
    change: Change
    better: str
    margin: float
    p: float | None = None
    p_equivalent: float | None = None
    equivalent: bool = False
    drift: Change | None = None
    more: int | None = None
    reason: str = ""

    @property
    def gain(self):
        """(value, low, high) as gains: 0.01 is 1 % better, -0.01 is 1 % worse, whatever `better` is.
        None where there is none."""
        ends = [None if ratio is None else ratio - 1 if self.better == "more" else 1 - ratio
                for ratio in (self.change.ratio, self.change.low, self.change.high)]
        return tuple(ends if self.better == "more" else (ends[0], ends[2], ends[1]))

    def __str__(self):
        """The word, and what one has to know with it."""
        notes = []
        if self.word in (GAIN, LOSS) and self.equivalent or self.word == EQUIVALENT:
            notes.append(f"within {100 * self.margin:g} %")
        out = self.change.left_out
        if out and self.word != NONE:
            notes.append(f"{out} disturbed block{'s' * (out > 1)} left out")
        return self.word + (f" ({'; '.join([self.reason] * bool(self.reason) + notes)})"
                            if self.reason or notes else "")


# ---- a test is what it says of each possible true change ----

def quantile(freedom):
    """Give the t that a true change of zero exceeds to one side with a chance of ALPHA / 2. Versions of scipy
    agree in nine digits of stdtrit; a step of Newton's method with stdtr gives the others."""
    t = float(special.stdtrit(freedom, 1 - ALPHA / 2))
    density = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(
        freedom * math.pi) * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
    return t - (float(special.stdtr(freedom, t)) - (1 - ALPHA / 2)) / density


@dataclass(frozen=True)
class _T:
    """A t test: an estimate, its standard error, and degrees of freedom."""
    estimate: float
    error: float
    freedom: float

    def tails(self, change):
        """Give the one-sided p-values of "the true change is not more than this" and "not less"."""
        t = (self.estimate - change) / self.error
        return float(special.stdtr(self.freedom, -t)), float(special.stdtr(self.freedom, t))

    def interval(self):
        """Give both ends of the 95 % interval."""
        reach = quantile(self.freedom) * self.error
        return self.estimate - reach, self.estimate + reach


@dataclass(frozen=True)
class _Permutation:
    """A permutation test. Each assignment of the values to the two samples but the real one has a
    turning point: the least change to be subtracted from the other sample with which its difference
    is no smaller than the real one's. So all p-values are counts of turning points, and the ends of
    the interval are two of them (J. A. Hartigan, JASA 64, 1969: typical values)."""
    estimate: float
    turning: numpy.ndarray

    def tails(self, change):
        """As of _T."""
        below = int(numpy.searchsorted(self.turning, change + ROUNDING, side="right"))
        above = len(self.turning) - int(numpy.searchsorted(self.turning, change - ROUNDING))
        return (below + 1) / (len(self.turning) + 1), (above + 1) / (len(self.turning) + 1)

    def interval(self):
        """As of _T; None if there are too few assignments for any."""
        k = math.floor(ALPHA / 2 * (len(self.turning) + 1) + ROUNDING)
        return (float(self.turning[k - 1]), float(self.turning[-k])) if k else None


@dataclass(frozen=True)
class _Both:
    """Two tests that have to agree."""
    one: object
    two: object

    @property
    def estimate(self):
        """That of both."""
        return self.one.estimate

    def tails(self, change):
        """As of _T: the larger ones."""
        return tuple(map(max, self.one.tails(change), self.two.tails(change)))

    def interval(self):
        """As of _Permutation: all that either does not reject."""
        ends = self.one.interval(), self.two.interval()
        return (min(ends[0][0], ends[1][0]), max(ends[0][1], ends[1][1])) if all(ends) else None


def _logs(values):
    return [math.log(value) for value in values]


def _differences(base, other):
    return [two - one for one, two in zip(base, other)]


def _mean(values):
    return math.fsum(values) / len(values)


def variance(values):
    """The variance of a sample, of two values or more."""
    middle = _mean(values)
    return math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1)


def _digits(value):
    return float(f"{value:.{DIGITS}g}")


def _exp(value):
    return _digits(math.exp(value))


@functools.lru_cache(8)
def _assignments(base, other):
    """Give a matrix with a row for each way to choose `other` of all values but the last `other`
    ones, which is the real one: all, or DRAWN at random, the same each time. And how much less than
    the real difference each one's changes if a change is subtracted from the last values."""
    every = base + other
    if math.comb(every, other) <= ASSIGNMENTS:
        chosen = numpy.fromiter(itertools.chain.from_iterable(itertools.islice(
            itertools.combinations(range(every), other), math.comb(every, other) - 1)),
            int).reshape(-1, other)
    else:
        chosen = numpy.random.default_rng(1).random((DRAWN, every)).argpartition(other)[:, :other]
        chosen = chosen[(chosen < base).any(axis=1)]
    matrix = numpy.zeros((len(chosen), every))
    numpy.put_along_axis(matrix, chosen, 1, axis=1)
    stay = matrix[:, base:].sum(axis=1) / other
    return matrix, 1 - (stay - (1 - stay) * other / base)


@functools.lru_cache(8)
def _flips(blocks):
    """Give a matrix with a row for each choice of blocks but the empty one: whose sign is changed."""
    if 2 ** blocks <= ASSIGNMENTS:
        return numpy.array(list(itertools.product((0, 1), repeat=blocks))[1:], float)
    drawn = numpy.random.default_rng(1).integers(0, 2, (DRAWN, blocks)).astype(float)
    return drawn[drawn.any(axis=1)]


def _exact(base, other):
    """Give the permutation test of two samples of logarithms."""
    nb, no = len(base), len(other)
    estimate = _mean(other) - _mean(base)
    matrix, less = _assignments(nb, no)
    values = numpy.array([*base, *other])
    # Against rounding, which would tell equal values apart.
    values = values - values.mean()
    sums = matrix @ values
    difference = sums / no - (values.sum() - sums) / nb
    return _Permutation(estimate, numpy.sort((estimate - difference) / less))


def _two_samples(base, other):
    """Give the test of two samples of logarithms, each with two values or more, and its name."""
    nb, no = len(base), len(other)
    vb, vo = variance(base) / nb, variance(other) / no
    if vb + vo <= ROUNDING ** 2:
        return _exact(base, other), "permutation"
    freedom = (vb + vo) ** 2 / (vb ** 2 / (nb - 1) + vo ** 2 / (no - 1))
    welch = _T(_mean(other) - _mean(base), math.sqrt(vb + vo), freedom)
    if min(nb, no) >= EXACT:
        return welch, "Welch"
    return _Both(_exact(base, other), welch), "permutation and Welch"


def _blocks(differences):
    """Give the test of differences of logarithms, one for each block."""
    n = len(differences)
    estimate, sd = _mean(differences), math.sqrt(variance(differences))
    if n >= EXACT and sd > ROUNDING:
        return _T(estimate, sd / math.sqrt(n), n - 1), "paired t"
    flips = _flips(n)
    return _Permutation(estimate, numpy.sort(flips @ numpy.array(differences) / flips.sum(axis=1))), "sign flips"


# ---- what is compared ----

def problem(case):
    """Say what makes a Case one that cannot be compared, or give ""."""
    values = [*case.base, *case.other, *case.control]
    missing = sum(value is None or not math.isfinite(value) for value in values)
    if not case.base or not case.other:
        return "there are no values"
    if missing:
        return f"{missing} of {len(values)} values are missing"
    if min(values) <= 0:
        return "a value is zero or negative: there is no ratio"
    if case.paired and {len(case.other), len(case.control or case.base)} != {len(case.base)}:
        return "not as many blocks as of the base"
    return ""


def regime(differences):
    """Say which blocks are of the usual regime, a list of bool, from their differences of logarithms.

    Now and then one block is of another kind, as a task migrated during the measured batch, and its
    figure says nothing of the change. Such a block is off the median of all by REGIME_SD robust
    standard deviations and by REGIME. Where no majority of blocks agrees the deviation is large, no
    block is left out, and the interval is as wide as the figures are. If a feature causes such
    migrations, the change does not show them, but the number of blocks left out does.
    """
    middle = statistics.median(differences)
    off = [abs(difference - middle) for difference in differences]
    # 1.4826: the standard deviation of a normal distribution in median absolute deviations.
    most = max(REGIME_SD * 1.4826 * statistics.median(off), math.log1p(REGIME)) + ROUNDING
    return [one <= most for one in off]


def change(base, other, paired=False, screened=False):
    """Give the Change from the figures of base to those of other, which problem() finds nothing
    wrong with."""
    return _change(base, other, paired, screened)[1]


def level(values):
    """Give the Change from 1 to the geometric mean of figures: what they are by themselves. One without
    an interval if there are less than two. problem() finds nothing wrong with them."""
    logs = _logs(values)
    n = (len(logs), len(logs))
    if len(logs) < 2:
        return Change(_exp(_mean(logs)), n=n)
    low, high = _T(_mean(logs), math.sqrt(variance(logs) / len(logs)), len(logs) - 1).interval()
    return Change(_exp(_mean(logs)), _exp(low), _exp(high), method="t", n=n)


def drift(base, control):
    """Give the Change of a control against its base; one without a ratio if there is none."""
    return Change() if problem(Case("less", base, control)) else change(base, control)


def _change(base, other, paired, screened):
    base, other = _logs(base), _logs(other)
    left_out = 0
    if paired and screened:
        usual = regime(_differences(base, other))
        left_out = usual.count(False)
        base, other = (list(itertools.compress(values, usual)) for values in (base, other))
    n = len(base), len(other)
    if min(n) < 2:
        return None, Change(_exp(_mean(other) - _mean(base)), n=n, left_out=left_out)
    test, method = _blocks(_differences(base, other)) if paired else _two_samples(base, other)
    low, high = map(_exp, test.interval()) if test.interval() else (None, None)
    return test, Change(_exp(test.estimate), low, high, _digits(min(1.0, 2 * min(test.tails(0)))), method,
                        n, left_out)


def mean(values):
    """The geometric mean of positive values, of which a Change is the ratio."""
    return _exp(_mean(_logs(values)))


def signed(value, digits):
    """Write a number with its sign and so many digits behind the point; what rounds to zero has no sign."""
    text_ = f"{value:+.{digits}f}"
    return text_ if text_.strip("+-0.") else text_[1:]


def spread(base, other, paired):
    """Give the standard deviation of logarithms: of the differences of two states if `paired`, else of one state,
    of both variances weighted by their degrees of freedom. None with less than two values."""
    base, other = _logs(base), _logs(other)
    if min(len(base), len(other)) < 2:
        return None
    if paired:
        return math.sqrt(variance(_differences(base, other)))
    nb, no = len(base) - 1, len(other) - 1
    return math.sqrt((variance(base) * nb + variance(other) * no) / (nb + no))


def text(change_):
    """Write a Change of a figure with both ends of its interval: "+1.26 % (+1.21 to +1.31)"."""
    if change_.ratio is None:
        return "-"
    ratio, low, high = (None if one is None else signed(100 * (one - 1), 2)
                        for one in (change_.ratio, change_.low, change_.high))
    return f"{ratio} %" + (f" ({low} to {high})" if low else "")


def holm(ps):
    """Correct the p-values of tests that are made at once by Holm's method: whichever of the
    hypotheses hold, the chance that any of them gets less than 5 % is no more than that."""
    corrected, largest = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[i]))
        corrected[i] = largest
    return corrected


def more(base, other, paired=False, screened=False, target=MARGIN):
    """Say how many values to add to each sample (each block of a pair) for an interval that reaches
    `target` to each side, if they spread as those that are there: 0 if it is as narrow; None with less
    than two values, or if it were more than MOST_PLANNED. A larger base stays as much larger."""
    base, other = _logs(base), _logs(other)
    if min(len(base), len(other)) < 2:
        return None
    if paired:
        differences = _differences(base, other)
        if screened:
            differences = list(itertools.compress(differences, regime(differences)))
        have, times = len(differences), 1.0
        vb, vo = 0.0, variance(differences) if have > 1 else 0.0
    else:
        have, times = len(other), len(base) / len(other)
        vb, vo = variance(base) / times, variance(other)
    if vb + vo <= ROUNDING ** 2:
        return 0

    # By the normal distribution, whose quantile is the least of any t distribution.
    normal = (float(special.ndtri(1 - ALPHA / 2)) / math.log1p(target)) ** 2 * (vb + vo)
    if normal > MOST_PLANNED:
        return None
    wanted = max(have, 2, math.floor(normal))
    while True:
        freedom = wanted - 1 if paired else (vb + vo) ** 2 / (
            vb ** 2 / max(wanted * times - 1, 1) + vo ** 2 / (wanted - 1))
        if special.stdtrit(freedom, 1 - ALPHA / 2) ** 2 * (vb + vo) <= (
                math.log1p(target) ** 2 * wanted):
            return wanted - have
        wanted += 1


# ---- the verdict ----

def judge(cases):
    """Judge Cases that were measured together, one family; give a Verdict for each."""
    found, tests = [], {}
    for i, case in enumerate(cases):
        wrong = problem(case)
        if wrong:
            found.append(Verdict(NONE if case.primary else SECONDARY, Change(), case.better,
                                 case.margin, reason=wrong))
            continue
        base = [*case.base, *case.control]
        if case.paired and case.control:
            # One value for each block: the geometric mean.
            base = [math.sqrt(one * two) for one, two in zip(case.base, case.control)]
        test, change_ = _change(base, case.other, case.paired, case.screened)
        if test and case.primary:
            tests[i] = test
        found.append(Verdict(NONE if case.primary else SECONDARY, change_, case.better, case.margin,
                             drift=drift(case.base, case.control) if case.control else None,
                             more=more(base, case.other, case.paired, case.screened,
                                       case.margin)))
    ps = holm([found[i].change.p for i in tests])
    equal = holm([max(test.tails(-math.log1p(cases[i].margin))[0],
                      test.tails(math.log1p(cases[i].margin))[1]) for i, test in tests.items()])
    for i, p, p_equivalent in zip(tests, ps, equal):
        found[i] = _decide(found[i], len(cases[i].other), p, p_equivalent)
    return [_explain(one) if one.word == NONE and not one.reason else one for one in found]


def _decide(one, blocks, p, p_equivalent):
    """Give a Verdict its word, by its corrected p-values."""
    one = dataclasses.replace(one, p=p, p_equivalent=p_equivalent)
    if one.change.left_out > MOST_LEFT_OUT * blocks:
        return dataclasses.replace(
            one, reason=f"{one.change.left_out} of {blocks} blocks are of another regime")
    # Two tests, each at half of ALPHA: the interval that is shown is inside the margin.
    equivalent = p_equivalent < ALPHA / 2
    if p < ALPHA:
        word = GAIN if (one.change.ratio > 1) == (one.better == "more") else LOSS
    else:
        word = EQUIVALENT if equivalent else NONE
    return dataclasses.replace(one, word=word, equivalent=equivalent)


def _explain(one):
    """Give a Verdict without a verdict its reason: what is missing."""
    change_ = one.change
    if change_.p is None:
        reason = "one value" if max(change_.n) == 1 else f"{change_.n[0]} and {change_.n[1]} values"
        return dataclasses.replace(one, reason=f"{reason}: two of each are the least")
    if change_.low is None:
        return dataclasses.replace(one, reason=f"{change_.n[0]} and {change_.n[1]} values are too few "
                                   "for any")
    reason = f"the interval is +-{100 * change_.half:.1f} %"
    if one.more:
        reason += f", {one.more} more would make it +-{100 * one.margin:g} %"
    elif one.more is None:
        reason += f", more than {MOST_PLANNED} would make it +-{100 * one.margin:g} %"
    else:
        reason += f", p {one.p:.2g}"
    return dataclasses.replace(one, reason=reason)


# ---- of results ----

class Judged(store.Result):
    """A Result that stays as it is, so that it is judged once however many tables show it."""

    @functools.cached_property
    def verdicts(self):
        """{subject: {metric: Verdict}}, see of()."""
        return of(self)


def judged(result):
    """Give a store.Result as a Judged one."""
    return Judged(*(getattr(result, each.name) for each in dataclasses.fields(store.Result)))


def of(result):
    """Judge a store.Result, one family: give {subject: {metric: Verdict}} of all that is compared with
    something, but for the A/A controls. Every page and command shows these."""
    keys, cases = [], []
    for subject, what in result.subjects.items():
        control = what.against and store.control(result, what.against)
        screened = result.instrument in SCREENED
        if what.against is None or subject == control:
            continue
        primary = store.primary(result, subject)
        for metric, values in result.values.get(subject, {}).items():
            base = result.values.get(what.against, {}).get(metric)
            if base is not None:
                keys.append((subject, metric))
                cases.append(Case(result.metrics[metric].better, base, values,
                                  result.values.get(control, {}).get(metric, ()),
                                  screened or "window_ms" in result.repeat, screened,
                                  metric in primary,
                                  MARGINS.get(result.instrument, result.repeat.get("margin", MARGIN))))
    found = {}
    for (subject, metric), one in zip(keys, judge(cases)):
        found.setdefault(subject, {})[metric] = one
    return found


def moved(old, new):
    """Whether two Changes of the same thing, measured at different times, differ by more than both
    their intervals and FLOOR; by more than FLOOR_ALONE if one has no interval. The interval of the
    difference is by Zou and Donner (Statistics in Medicine 27, 2008), which takes the ends of each."""
    if old.low is None or new.low is None:
        return abs(math.log(new.ratio / old.ratio)) > FLOOR_ALONE
    one, two = (old, new) if old.ratio < new.ratio else (new, old)
    return math.log(two.ratio / one.ratio) > FLOOR + math.hypot(
        math.log(one.high / one.ratio), math.log(two.ratio / two.low))
