# SPDX-License-Identifier: GPL-2.0-only
"""The one verdict rule: its arithmetic by hand and against scipy, and its error rates by simulation."""

import itertools
import math
import re

import numpy
import pytest
from scipy import special as scipy_special
from scipy import stats as scipy_stats

from kit.results import power as planned, verdict
from kit.results.verdict import EQUIVALENT, GAIN, LOSS, NONE, SECONDARY, Case

# hackbench-rate:1:3:60:10:threads:pipe:0:31 on epyc-2x2x8, messages per ms: with the feature off, six
# of eight runs split the group over two LLCs; with it on none does.
OFF, CONTROL = (2504, 6719, 2507, 2517), (6772, 2146, 2506, 2124)
ON = (6722, 6711, 6805, 6677)


def lognormal(random, n, sd=0.2, shift=0.0):
    return numpy.exp(random.normal(shift, sd, n))


def mixture(random, n, share=0.5, factor=2.7):
    """Two placements, one so many times as fast as the other."""
    return numpy.where(random.random(n) < share, factor, 1) * lognormal(random, n, 0.02)


def one(*args, **more):
    return verdict.judge([Case(*args, **more)])[0]


# ---- by hand, and against scipy ----

def test_example_of_two_placements():
    found = one("more", OFF, ON, CONTROL)
    assert found.word == GAIN and found.change.method == "permutation and Welch"
    assert found.change.n == (8, 4)
    # 10 of the 495 assignments have a difference as large.
    assert found.p == pytest.approx(20 / 495)
    assert found.change.ratio == pytest.approx(2.18, abs=0.01)
    assert 1 < found.change.low < 1.1 and 3 < found.change.high < 3.3
    assert one("less", OFF, ON, CONTROL).word == LOSS


def test_without_its_control_the_example_has_no_verdict():
    """So the control is part of the baseline: without it there are too few values."""
    assert one("more", OFF, ON).word == NONE


@pytest.mark.parametrize("nb, no", [(3, 3), (5, 4), (8, 4)])
def test_permutation_test_is_that_by_enumeration(nb, no):
    random = numpy.random.default_rng(nb)
    base, other = random.normal(0, 1, nb), random.normal(0.7, 1, no)

    def tails(shift):
        """How many assignments have a difference as large, and as small, as the real one."""
        values = numpy.concatenate([base, other - shift])
        real = (other - shift).mean() - base.mean()
        found = []
        for chosen in itertools.combinations(range(nb + no), no):
            rest = [i for i in range(nb + no) if i not in chosen]
            found.append(values[list(chosen)].mean() - values[rest].mean())
        found = numpy.array(found)
        return numpy.mean(found >= real - 1e-9), numpy.mean(found <= real + 1e-9)
    found = verdict._exact(base, other)
    for shift in (0, -0.4, 0.5, 3):
        assert found.tails(shift) == pytest.approx(tails(shift))
    if (nb, no) == (3, 3):
        # Of 20 assignments, none leaves less than 2.5 % on either side.
        assert found.interval() is None
        return
    # The interval has each change that the test does not reject.
    for end, inwards in zip(found.interval(), (1e-6, -1e-6)):
        assert 2 * min(tails(end + inwards)) > 0.05
        assert 2 * min(tails(end - inwards)) <= 0.05


def test_small_samples_have_to_pass_both():
    """Each of the two tests can be the one that objects."""
    random = numpy.random.default_rng(2)
    objections = set()
    for sd in [0.02, 0.6] * 20:
        base, other = lognormal(random, 8), lognormal(random, 4, sd, 0.3)
        change = verdict.change(base, other)
        exact = verdict._exact(numpy.log(base), numpy.log(other))
        welch = scipy_stats.ttest_ind(numpy.log(other), numpy.log(base), equal_var=False).pvalue
        ps = min(1, 2 * min(exact.tails(0))), welch
        assert change.p == pytest.approx(max(ps))
        assert math.log(change.low) <= exact.interval()[0] + 1e-9
        assert (change.p <= 0.05) == (not change.low < 1 < change.high)
        if min(ps) < 0.05 <= max(ps):
            objections.add(ps.index(max(ps)))
    assert objections == {0, 1}


def test_large_samples_get_welch():
    random = numpy.random.default_rng(1)
    base, other = lognormal(random, 20), lognormal(random, 8, 0.4, 0.3)
    change = verdict.change(base, other)
    right = scipy_stats.ttest_ind(numpy.log(other), numpy.log(base), equal_var=False)
    assert change.method == "Welch" and change.p == pytest.approx(right.pvalue)
    # The interval has the ratio that the test just does not reject as its end.
    for end in (change.low, change.high):
        assert scipy_stats.ttest_ind(numpy.log(other / end), numpy.log(base),
                                     equal_var=False).pvalue == pytest.approx(0.05)
    assert change.low < change.ratio < change.high
    # Two ends: as factors they are as far, as percentages they are not.
    assert change.high - change.ratio > 1.1 * (change.ratio - change.low)
    assert verdict.change(base, other[:7]).method == "permutation and Welch"
    assert verdict.change(base[:7], other).method == "permutation and Welch"


def test_many_assignments_are_drawn(monkeypatch):
    """And the same each time; the p-value is that of all of them, but for chance."""
    random = numpy.random.default_rng(3)
    base, other = random.normal(0, 1, 10), random.normal(1, 1, 7)
    assert math.comb(17, 7) <= verdict.ASSIGNMENTS < math.comb(21, 7)
    exact = verdict._exact(base, other).tails(0)[0]
    verdict._assignments.cache_clear()
    monkeypatch.setattr(verdict, "ASSIGNMENTS", 100)
    drawn = verdict._exact(base, other)
    verdict._assignments.cache_clear()
    again = verdict._exact(base, other)
    verdict._assignments.cache_clear()
    assert drawn.tails(0) == again.tails(0) and len(drawn.turning) <= verdict.DRAWN
    assert drawn.tails(0)[0] != exact and drawn.tails(0)[0] == pytest.approx(exact, rel=0.15)


def test_blocks_get_the_paired_test():
    random = numpy.random.default_rng(4)
    layout = lognormal(random, 9, 0.3)
    base, other = layout * lognormal(random, 9, 0.001), 1.002 * layout * lognormal(random, 9, 0.001)
    change = verdict.change(base, other, paired=True)
    right = scipy_stats.ttest_1samp(numpy.log(other / base), 0)
    assert change.method == "paired t" and change.p == pytest.approx(right.pvalue)
    assert change.left_out == 0 and change.n == (9, 9)
    # Compared without the blocks the layouts hide it.
    assert verdict.change(base, other).p > 0.5


def test_few_blocks_change_signs():
    # Of 2^6 choices of signs only the real one has a mean as large.
    change = verdict.change([100] * 6, [101, 102, 103, 101, 102, 104], paired=True)
    assert change.method == "sign flips" and change.p == pytest.approx(2 / 64)
    # The ends are the first and the last mean of a choice of blocks.
    assert change.low == pytest.approx(1.01) and change.high == pytest.approx(1.04)
    change = verdict.change([100] * 6, [101, 102, 103, 101, 102, 99], paired=True)
    differences = numpy.log([1.01, 1.02, 1.03, 1.01, 1.02, 0.99])
    signs = numpy.array(list(itertools.product((1, -1), repeat=6)))
    assert change.p == pytest.approx(2 * numpy.mean(
        signs @ differences >= differences.sum() - 1e-9))


@pytest.mark.parametrize("freedom", [1, 2.5, 8, 11.3, 26, 1000.5])
def test_quantile_does_not_depend_on_the_version_of_scipy(freedom):
    """stdtrit() is off by up to 1e-9, in each version otherwise; an interval that is wide in percent shows that."""
    assert scipy_special.stdtr(freedom, verdict.quantile(freedom)) == pytest.approx(0.975, abs=1e-14)


def test_holm_by_hand():
    assert verdict.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert verdict.holm([0.9, 0.9]) == [1.0, 1.0] and verdict.holm([]) == []


# ---- the outcomes ----

@pytest.mark.parametrize("factor, word", [(0.9, GAIN), (1.1, LOSS), (1.0, EQUIVALENT)])
def test_words(factor, word):
    random = numpy.random.default_rng(5)
    base, control = lognormal(random, 10, 0.02), lognormal(random, 10, 0.02)
    other = factor * lognormal(random, 10, 0.02)
    found = one("less", base, other, control)
    assert found.word == word and found.equivalent == (word == EQUIVALENT)
    gain, low, high = found.gain
    assert low < gain < high and gain == pytest.approx(1 - factor, abs=0.02)
    gain, low, high = one("more", base, other, control).gain
    assert low < gain < high and gain == pytest.approx(factor - 1, abs=0.02)


def test_time_and_its_inverse_have_the_same_verdict():
    random = numpy.random.default_rng(6)
    for n in (4, 10):
        for factor in (0.7, 0.93, 1, 1.04, 1.5):
            base, other = lognormal(random, n, 0.03), factor * lognormal(random, n, 0.03)
            time = one("less", base, other, base[::-1])
            rate = one("more", 1 / base, 1 / other, 1 / base[::-1])
            assert time.word == rate.word and time.p == pytest.approx(rate.p)
            assert time.p_equivalent == pytest.approx(rate.p_equivalent)
            assert time.change.low == pytest.approx(1 / rate.change.high)


def test_small_change_is_a_loss_inside_the_margin():
    """Equivalent within 5 % does not hide a change that is there."""
    random = numpy.random.default_rng(7)
    found = one("less", lognormal(random, 10, 0.003), 1.01 * lognormal(random, 10, 0.003))
    assert found.word == LOSS and found.equivalent
    assert str(found) == "LOSS (within 5 %)"
    found = one("less", lognormal(random, 10, 0.003), 1.04 * lognormal(random, 10, 0.003),
                margin=0.01)
    assert found.word == LOSS and not found.equivalent and str(found) == "LOSS"


def test_margin_is_of_the_ratio():
    """An interval from 1 / 1.05 to 1.05, whose test is of 90 %."""
    random = numpy.random.default_rng(8)
    base, other = lognormal(random, 20, 0.05), lognormal(random, 20, 0.05)
    found = one("less", base, other)
    lower = scipy_stats.ttest_ind(numpy.log(other * 1.05), numpy.log(base), equal_var=False,
                                  alternative="greater").pvalue
    upper = scipy_stats.ttest_ind(numpy.log(other / 1.05), numpy.log(base), equal_var=False,
                                  alternative="less").pvalue
    assert found.p_equivalent == pytest.approx(max(lower, upper))


def test_no_verdict_says_what_is_missing():
    random = numpy.random.default_rng(9)
    base, control, other = (lognormal(random, 10, 0.2) for _ in range(3))
    found = one("less", base, other, control)
    assert found.word == NONE and not found.equivalent
    assert found.more > 10 and f"{found.more} more would make it +-5 %" in found.reason
    assert f"+-{100 * found.change.half:.1f} %" in found.reason


@pytest.mark.parametrize("sd, times", [(0.06, 2), (0.07, 1), (0.2, 2)])
def test_more_is_as_many_as_it_takes(sd, times):
    """With so many values the interval is as narrow, with one less it is not."""
    def sample(count, sd):
        logs = numpy.linspace(-1, 1, count)
        return numpy.exp(sd * logs / logs.std(ddof=1))

    def half(n):
        return verdict.change(sample(times * n, sd), sample(n, 1.2 * sd)).half
    n = 10 + verdict.more(sample(times * 10, sd), sample(10, 1.2 * sd))
    print(f"{n} values")
    assert n > 10 and half(n) <= 0.05 < half(n - 1)
    # In blocks.
    blocks = sample(10, sd)
    n = 10 + verdict.more(blocks, blocks * sample(10, 1.2 * sd), paired=True)
    assert verdict.change([1] * n, sample(n, 1.2 * sd), paired=True).half <= 0.05
    assert n == 10 or verdict.change([1] * (n - 1), sample(n - 1, 1.2 * sd), paired=True).half > 0.05


def test_more_is_bounded():
    random = numpy.random.default_rng(11)
    assert verdict.more(lognormal(random, 5, 9), lognormal(random, 5, 9)) is None
    found = one("less", lognormal(random, 5, 9), lognormal(random, 5, 9))
    assert "more than 100000" in found.reason
    assert verdict.more(lognormal(random, 10, 0.01), lognormal(random, 10, 0.01)) == 0
    blocks = lognormal(random, 9, 0.3)
    assert verdict.more(blocks, blocks * lognormal(random, 9, 0.001), paired=True) == 0
    assert 100 < verdict.more(blocks, lognormal(random, 9, 0.3), paired=True) < 1000


def test_drift_is_reported_and_decides_nothing():
    random = numpy.random.default_rng(12)
    base, control = lognormal(random, 10, 0.01), 1.1 * lognormal(random, 10, 0.01)
    found = one("less", base, 1.5 * lognormal(random, 10, 0.01), control)
    assert found.word == LOSS and found.drift.p < 0.001
    assert found.drift.ratio == pytest.approx(1.1, abs=0.01)
    # 0.5 of 1 to 1.1: it is of the pool.
    assert found.change.ratio == pytest.approx(1.5 / math.sqrt(1.1), abs=0.02)
    assert one("less", base, control).drift is None
    assert verdict.drift([0.0, 1.0], [1.0, 1.0]) == verdict.Change() == verdict.drift([1.0], [])


def test_secondary_metrics_have_no_verdict_and_no_part_in_the_family():
    random = numpy.random.default_rng(13)
    cases = [Case("less", lognormal(random, 10, 0.1), 1.16 * lognormal(random, 10, 0.1))
             for _ in range(4)]
    alone = verdict.judge(cases[:1])
    others = verdict.judge([cases[0], *(Case("less", case.base, case.other, primary=False)
                                        for case in cases[1:])])
    together = verdict.judge(cases)
    assert others[0] == alone[0] and together[0].p > alone[0].p
    for found in others[1:]:
        assert found.word == SECONDARY == str(found) and found.p is None and found.change.low


# ---- what cannot be compared ----

@pytest.mark.parametrize("base, other, reason", [
    ([], [1.0], "there are no values"), ([1.0], [], "there are no values"),
    ([1.0, 2.0], [1.0, 0.0], "a value is zero or negative: there is no ratio"),
    ([0.0, 0.0], [0.0, 0.0], "a value is zero or negative: there is no ratio"),
    ([1.0, -2.0], [1.0, 1.0], "a value is zero or negative: there is no ratio"),
    ([1.0, None, 3.0], [1.0, math.nan, 1.0], "2 of 6 values are missing"),
    ([1.0, math.inf], [1.0, 1.0], "1 of 4 values are missing"),
    ([1.0], [1.1], "one value: two of each are the least"),
    ([1.0, 1.1], [1.1], "2 and 1 values: two of each are the least"),
    ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "3 and 3 values are too few for any"),
])
def test_what_cannot_be_compared(base, other, reason):
    found = one("less", base, other)
    assert found.word == NONE and found.reason == reason and found.change.low is None
    assert str(found) == f"no verdict ({reason})"
    assert one("less", base, other, primary=False).word == SECONDARY
    # Beside it, others are judged as if it were not there.
    good = Case("less", [1.0, 1.1] * 5, [2.0, 2.1] * 5)
    both = verdict.judge([Case("less", base, other), good])
    assert both[1].word == LOSS and (both[1] == verdict.judge([good])[0] or "too few" in reason)


def test_blocks_that_are_not_as_many():
    assert one("less", [1.0] * 9, [1.0] * 8, paired=True).reason == "not as many blocks as of the base"
    assert one("less", [1.0] * 9, [1.0] * 9, [1.0] * 8,
               paired=True).reason == "not as many blocks as of the base"
    assert one("less", [1.0] * 9, [1.0] * 9, [1.0] * 9, paired=True).word == EQUIVALENT


def test_one_value_has_a_ratio():
    found = one("more", [2.0], [3.0])
    assert found.change.ratio == pytest.approx(1.5) and found.gain == (pytest.approx(0.5), None, None)


@pytest.mark.parametrize("paired", [False, True])
def test_figures_that_are_all_the_same(paired):
    """An instrument that repeats exactly: the test is exact, the interval has no width, and it takes
    as many values as any exact test for a verdict."""
    found = one("less", [4367.0] * 9, [4367.0] * 9, paired=paired)
    assert found.word == EQUIVALENT and found.more == 0
    assert (found.change.low, found.change.ratio, found.change.high) == (1, 1, 1)
    found = one("less", [4367.0] * 9, [4368.0] * 9, paired=paired)
    assert found.word == LOSS and found.p < 0.01
    assert found.change.low == found.change.high == pytest.approx(4368 / 4367)
    assert one("less", [4367.0] * 2, [4368.0] * 2, paired=paired).word == NONE
    # One of the samples only.
    assert one("less", [4367.0] * 9, [4367.0 + i for i in range(9)]).word != NONE


def test_values_that_rounding_tells_apart():
    """Equal logarithms that were summed up in another order are equal."""
    found = one("less", [0.1, 0.2, 0.3, 0.7] * 2, [0.3, 0.7, 0.2, 0.1], [0.7, 0.1, 0.2, 0.3] * 2)
    assert found.p == 1


# ---- blocks of another regime ----

def test_disturbed_blocks_are_left_out_and_counted():
    """As of thread-pipe/one-LLC in the committed bench-cost: one block of the base was disturbed."""
    base = [13682, 13680, 13683, 13681, 13684, 13679, 13682, 13681, 14701]
    other = [13709, 13713, 13711, 13709, 13709, 13711, 13709, 13712, 13714]
    found = one("less", base, other, paired=True, screened=True, margin=0.01)
    assert found.change.left_out == 1 and found.word == LOSS and found.equivalent
    assert 1.0019 < found.change.low < found.change.ratio < found.change.high < 1.0025
    assert str(found) == "LOSS (within 1 %; 1 disturbed block left out)"


def test_too_many_disturbed_blocks_leave_no_verdict():
    """As of pipe/one-LLC: five agree, four do not."""
    ratios = [1.0023, 1.0025, 1.0022, 1.0023, 1.0273, 1.0428, 1.0224, 1.0022, 0.9631]
    found = one("less", [13412.0] * 9, [13412 * ratio for ratio in ratios], paired=True, screened=True)
    assert found.change.left_out == 4 and found.word == NONE and not found.equivalent
    assert found.reason == "4 of 9 blocks are of another regime"
    assert found.change.ratio == pytest.approx(1.0023) and found.change.low is None
    # Three are the most.
    ratios[4] = 1.0021
    found = one("less", [13412.0] * 9, [13412 * ratio for ratio in ratios], paired=True, screened=True)
    assert found.change.left_out == 3 and found.word == LOSS


def test_where_no_majority_agrees_nothing_is_left_out():
    """As of CPU hot-unplug, and of futex/one-LLC."""
    for percent in ([-0.98, 1.38, 1.12, -2.26, 1.65, 0.32, 2.73, -1.75, 0.98],
                    [0.25, 0.25, -1.78, 0.24, 0.21, 1.88, -1.05, 4.07, 4.74]):
        found = one("less", [1000.0] * 9, 1000 + 10 * numpy.array(percent), paired=True, screened=True,
                    margin=0.01)
        assert found.change.left_out == 0 and found.change.n == (9, 9)
        assert found.change.low < 1 < found.change.high and found.word == NONE
        # As many more as make it as narrow as the margin.
        assert re.fullmatch(r"the interval is \+-1\.\d %, [1-9]\d* more would make it \+-1 %",
                            found.reason)


def test_times_are_not_screened():
    """As of sim-apart on mainline: in three of ten runs the feature spreads the threads."""
    base = [2532.0 + i for i in range(10)]
    other = [*base[:7], 1378.0, 1379.0, 1470.0]
    found = one("more", base, other, paired=True)
    assert found.change.left_out == 0 and found.change.n == (10, 10)
    assert found.word == NONE and not found.equivalent and found.change.low < 0.75
    assert one("more", base, other, paired=True, screened=True).change.left_out == 3


def test_blocks_of_one_regime_are_rarely_left_out():
    random = numpy.random.default_rng(14)
    left_out = [verdict.regime(random.normal(0, 0.01, 9)).count(False) for _ in range(2000)]
    print(f"normal noise of 1 %, nine blocks: {numpy.mean(left_out) / 9:.2%} of the blocks left out")
    assert numpy.mean(left_out) / 9 < 0.015


def test_moved():
    """Only what is beyond both intervals and the floor; of each interval the end that is nearer."""
    def change(ratio, low=None, high=None):
        return verdict.Change(ratio, low, high)
    assert verdict.moved(change(1, 1, 1), change(1.002, 1.002, 1.002))
    assert not verdict.moved(change(1, 1, 1), change(1.0004, 1.0004, 1.0004))
    assert not verdict.moved(change(1, 0.997, 1.003), change(1.004, 1.001, 1.007))
    assert verdict.moved(change(1, 0.9, 1.003), change(1.005, 1.002, 1.1))
    assert verdict.moved(change(1.005, 1.002, 1.1), change(1, 0.9, 1.003))
    assert not verdict.moved(change(1, 0.999, 1.1), change(1.005, 1.002, 1.006))
    assert verdict.moved(change(1, 1, 1), change(1.03))
    assert not verdict.moved(change(1), change(1.01, 1.01, 1.01))
    assert not verdict.moved(change(1.5), change(1.51)) and verdict.moved(change(1.5), change(1.6))


# ---- error rates ----

def rate(runs, seed, wanted, draw):
    """How often a Verdict is as wanted, of so many experiments that draw(random) makes."""
    random = numpy.random.default_rng(seed)
    return sum(wanted(one("less", *draw(random))) for _ in range(runs)) / runs


@pytest.mark.parametrize("sample", [
    lognormal, mixture, lambda random, n: mixture(random, n, 0.25)],
    ids=["lognormal", "half and half", "one in four"])
@pytest.mark.parametrize("n", [4, 10, 20])
def test_false_positives(n, sample):
    """Nominally 5 %, of experiments without any change; less where two tests have to agree."""
    random = numpy.random.default_rng(n)
    found = sum(verdict.change(sample(random, 2 * n), sample(random, n)).p < verdict.ALPHA
                for _ in range(1500)) / 1500
    print(f"{n} + {n} against {n}: {found:.1%} GAIN or LOSS")
    assert (0.03 if n >= verdict.EXACT else 0.005) <= found <= 0.07


@pytest.mark.parametrize("n, sd", [(4, 0.6), (4, 0.02), (10, 0.6)])
def test_false_positives_where_spreads_differ(n, sd):
    """A feature that changes the spread and not the mean. By the exact test alone it is 17 % of four
    values with three times the spread."""
    random = numpy.random.default_rng(20)
    found = sum(verdict.change(lognormal(random, 2 * n), lognormal(random, n, sd)).p < verdict.ALPHA
                for _ in range(1000)) / 1000
    print(f"{2 * n} with a spread of 20 % against {n} with {sd:.0%}: {found:.1%} GAIN or LOSS")
    assert found <= 0.085


def test_false_positives_of_disturbed_blocks():
    """Nine layouts that differ by 1 %, noise of 0.05 %, and one figure in ten is another regime's."""
    def figures(random, layout):
        disturbed = random.random(9) < 0.1
        return layout * lognormal(random, 9, 0.0005) * (
            1 + disturbed * random.uniform(0.006, 0.1, 9))

    def draw(random):
        layout = lognormal(random, 9, 0.01)
        return figures(random, layout), figures(random, layout)
    random = numpy.random.default_rng(21)
    found = [one("less", *draw(random), paired=True, screened=True, margin=0.01) for _ in range(1000)]
    wrong = sum(one_.word in (GAIN, LOSS) for one_ in found) / 1000
    equal = sum(one_.word == EQUIVALENT for one_ in found) / 1000
    print(f"nine blocks, one figure in ten disturbed: {wrong:.1%} GAIN or LOSS, {equal:.0%} EQUIVALENT")
    assert wrong <= 0.07 and equal > 0.8


def power(effect, runs=500, sd=0.2):
    return rate(runs, 15, lambda one_: one_.word == LOSS, lambda random: [
        lognormal(random, 10, sd), lognormal(random, 10, sd, effect * sd),
        lognormal(random, 10, sd)])


@pytest.mark.parametrize("effect, least", [(1, 0.65), (1.5, 0.92), (2, 0.98)])
def test_power(effect, least):
    """Ten seeds and ten of the control against ten; without the control it is 0.56 for one sd."""
    found = power(effect)
    print(f"effect of {effect:g} standard deviations: found in {found:.0%}")
    assert found >= least


@pytest.mark.parametrize("n", [5, 10])
def test_equivalence_has_its_size(n):
    """A change of just the margin is taken for none in 5 % of cases."""
    def draw(random):
        return [lognormal(random, n, 0.03), lognormal(random, n, 0.03, math.log(1.05)),
                lognormal(random, n, 0.03)]
    found = rate(600, 16, lambda one_: one_.p_equivalent < 0.05, draw)
    print(f"{n} + {n} against {n}, change of the margin: {found:.1%} EQUIVALENT")
    assert 0.02 <= found <= 0.07


def test_power_of_equivalence():
    def draw(sd):
        return lambda random: [lognormal(random, 10, sd) for _ in range(3)]
    found = {sd: rate(300, 17, lambda one_: one_.equivalent, draw(sd)) for sd in (0.02, 0.03, 0.2)}
    print(", ".join(f"spread {sd:.0%}: {share:.0%} EQUIVALENT" for sd, share in found.items()))
    assert found[0.02] > 0.97 and found[0.03] > 0.9 and found[0.2] == 0


@pytest.mark.parametrize("real", [0, 4])
def test_family_wise_rate(real):
    """Of eight primary metrics, some of which have a real change: the others have any verdict in 5 %
    of runs at most; by the uncorrected p it were a third, so the test can fail."""
    random = numpy.random.default_rng(18)
    wrong = tempted = 0
    runs = 200
    for _ in range(runs):
        found = verdict.judge([Case("less", lognormal(random, 10), lognormal(
            random, 10, 0.2, 1.0 if i < real else 0), lognormal(random, 10)) for i in range(8)])
        wrong += any(one_.word in (GAIN, LOSS) for one_ in found[real:])
        tempted += any(one_.change.p < 0.05 for one_ in found[real:])
    print(f"{real} of 8 real: a wrong verdict in {wrong / runs:.1%}, uncorrected {tempted / runs:.0%}")
    assert 0.01 <= wrong / runs <= 0.08 < 0.12 < tempted / runs


# ---- how many runs a row needs ----

@pytest.mark.parametrize("spread, size, paired", [(0.05, 0.05, False), (0.05, 0.05, True), (0.2, 0.2, False)])
def test_power_is_what_it_says(spread, size, paired):
    """Of experiments with a change of the size that matters, the test finds nine of ten; with fewer runs, fewer."""
    n = planned.runs(spread, size, paired)
    random = numpy.random.default_rng(1)

    def found(count):
        shape = (count * (1 if paired else 2),)
        base = numpy.exp(spread / (math.sqrt(2) if paired else 1) * random.standard_normal(shape))
        other = (1 + size) * numpy.exp(spread / (math.sqrt(2) if paired else 1) * random.standard_normal(count))
        low, high = (lambda change: (change.low, change.high))(verdict.change(list(base), list(other), paired))
        return low > 1 or high < 1
    rates = [sum(found(count) for _ in range(600)) / 600 for count in (n, n // 2)]
    print(n, rates)
    assert 0.87 < rates[0] < 0.94 and rates[1] < 0.75
    assert planned.power(n, spread, size, paired) >= 0.9 > planned.power(n - 1, spread, size, paired)


def test_runs_are_bounded():
    assert (planned.runs(1e-4, 0.05, False), planned.runs(1e-4, 0.05, True)) == (planned.LEAST, planned.LEAST_PAIRED)
    assert planned.runs(0.8, 0.05, False) is None


def test_what_is_equivalent_has_an_interval_inside_the_margin():
    base = [100, 101, 99, 100.5, 99.5, 100.2, 99.8, 100.1]
    for shift in numpy.linspace(1.0, 1.06, 25):
        [one] = verdict.judge([verdict.Case("more", base, [x * shift for x in base])])
        inside = 1 / 1.05 < one.change.low and one.change.high < 1.05
        assert one.equivalent == inside, (shift, one)
