# SPDX-License-Identifier: GPL-2.0-only
"""How many runs a row of results/experiments.toml needs, from the spread of what was run before.

A row that must win has to show a change of the size that matters. One that must not lose has to show that a loss is
smaller. Both need the same number of runs, as the test and the interval of verdict.py are at one level: the interval
has to end before what is `size` away.
"""

import math

from scipy import special

from kit.results.verdict import ALPHA

POWER = 0.9
# The fewest runs that a test can decide with, and what is never declared.
LEAST, LEAST_PAIRED, MOST = 5, 6, 500


def power(runs, spread, size, paired):
    """Give the chance that so many runs of each state decide about a change of `size`, 0.05 being 5 %. spread: as
    verdict.spread() gives it. If not paired, the base has a control, and so twice as many runs."""
    variance, freedom = (spread ** 2, runs - 1) if paired else (1.5 * spread ** 2, 3 * runs - 2)
    shift = math.log1p(size) / math.sqrt(variance / runs)
    critical = special.stdtrit(freedom, 1 - ALPHA / 2)
    return float(1 - special.nctdtr(freedom, shift, critical))


def runs(spread, size, paired):
    """Give the least number of runs that has POWER; None if it were more than MOST."""
    least = LEAST_PAIRED if paired else LEAST
    return next((n for n in range(least, MOST + 1) if power(n, spread, size, paired) >= POWER), None)
