# SPDX-License-Identifier: GPL-2.0-only
"""make sim-validate: does the simulation find what was published of real machines? The table is in
published.py. That the simulation costs what its machine files say is checked by tests/test_sim.py.

A check passes if its median is in the range, and if the 95 % interval of its change has the published
sign. Where a figure by itself is expected, or no change, the whole interval has to be in the range. A
row passes, "reproduced", if all its checks and orders pass; else it is "not reproduced", also if it
was not run or has too few values for an interval. A row that is not reproduced needs a gap, which says
why; a gap of a row that is reproduced is an error, too.
"""

import dataclasses
import json
import time
from dataclasses import asdict, dataclass

from kit.paths import RESULTS
from kit.process import Error, say
from kit.results import store, tables, verdict
from kit.sim import costs, simulate, workloads
from kit.sim.published import ROWS
from kit.vm import initramfs, kernel, machine

SEEDS = 5
FILE = "validation.json"
REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
HEAD = ["experiment", "published", "passes at", "median (95 %)", "verdict"]


@dataclass(frozen=True)
class Found:
    """What came of a Check: the median and the interval of its figure, None where there is none, and
    what is wrong with it, "" if it passes."""
    check: object
    median: float | None = None
    low: float | None = None
    high: float | None = None
    wrong: str = ""


# ---- the rule ----

def find(check, values):
    """Judge a Check by {variant: [figure for each seed]}; give a Found."""
    other, base = values.get(check.other, []), values.get(check.base, [])
    if not other or check.base and not base:
        return Found(check, wrong="not run")
    wrong = verdict.problem(verdict.Case("more", base or other, other))
    if wrong:
        return Found(check, wrong=wrong)
    if check.base:
        change, median = verdict.change(base, other), tables.median(other) / tables.median(base)
    else:
        change, median = verdict.level(other), tables.median(other)
    return Found(check, median, change.low, change.high, _wrong(check, median, change))


def _wrong(check, median, change):
    """Say why a Check does not pass, or give ""."""
    if change.low is None:
        return f"no verdict: {max(change.n)} values are too few"
    if not check.low <= median <= check.high:
        return "out of the range"
    if check.base and check.expected != 1:
        if not (change.low > 1 if check.expected > 1 else change.high < 1):
            return "no verdict: the interval has both signs"
    elif not (check.low <= change.low and change.high <= check.high):
        return "no verdict: the interval leaves the range"
    return ""


def judge(row, values):
    """Judge a Row; give ([Found], [text of each Order that is not kept])."""
    found = {check.name: find(check, values) for check in row.checks}
    return list(found.values()), [text for order in row.orders
                                  if (text := _order(order, found[order.small], found[order.large]))]


def _order(order, small, large):
    """Say why an Order is not kept, or give ""."""
    if small.median is None or large.median is None:
        return f"{order.small} and {order.large}: not run"
    if small.median - 1 < order.factor * (large.median - 1):
        return ""
    factor = f" {order.factor:.2g} of" if order.factor != 1 else ""
    return f"{order.small}: not less than{factor} {order.large}"


def word(row, values):
    """Say whether a Row is REPRODUCED or NOT_REPRODUCED."""
    found, orders = judge(row, values)
    good = found and not orders and not any(one.wrong for one in found)
    return REPRODUCED if good else NOT_REPRODUCED


def mistakes(rows, values):
    """Compare the Rows that were run, by {number: {variant: figures}}, with their gaps; give a line
    for each that contradicts."""
    lines = []
    for row in rows:
        what = word(row, values.get(row.number, {}))
        if what == REPRODUCED and row.gap:
            lines.append(f"row {row.number} is reproduced, but is listed as a gap: {row.gap}")
        elif what == NOT_REPRODUCED and not row.gap:
            lines.append(f"row {row.number} is not reproduced, and is not listed as a gap")
    return lines


# ---- the table ----

def _number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def table(rows, values):
    """Give the rows of a table, the first is the head, of published Rows and {number: {variant:
    figures}}; what has no figures was not run."""
    lines = [list(HEAD)]
    for row in rows:
        found, orders = judge(row, values.get(row.number, {}))
        result = word(row, values.get(row.number, {})) + " (not run)" * (not values.get(row.number))
        for one in found:
            times = "x " if one.check.base else ""
            shown = "" if one.median is None else times + _number(one.median) + (
                "" if one.low is None else f" ({_number(one.low)} to {_number(one.high)})")
            lines.append([one.check.name, times + _number(one.check.expected),
                          f"{times}{_number(one.check.low)} to {_number(one.check.high)}", shown,
                          one.wrong if values.get(row.number) else ""])
        at = len(lines) - len(found)
        lines.insert(at, [f"{row.number}. {row.title}", "", "", "", result])
        lines += [["in order", "", "", "", text] for text in orders if values.get(row.number)]
    return lines


# ---- what was found, in a file ----

def load(path):
    """Read what save() wrote, {number: row}; {} if there is no such file. Error for a damaged one."""
    try:
        return {int(number): row for number, row in json.loads(path.read_text())["rows"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(f"{path}: no result of sim-validate: {error!r}") from error


def save(path, row, found):
    """Put what was found for a Row into a file, in the place of what it had, and keep the other rows."""
    rows = load(path) | {row.number: found}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"rows": {str(number): rows[number] for number in sorted(rows)}},
                               indent=1) + "\n")
    part.replace(path)


def saved(rows, path):
    """Give {number: {variant: figures}} of the Rows that a file has as they are in the table: what was
    found for another variant of that name does not count."""
    found = {}
    stored = load(path)
    for row in rows:
        if row.number in stored and stored[row.number]["variants"] == _variants(row):
            found[row.number] = stored[row.number]["values"]
    return found


def _variants(row):
    return {name: asdict(variant) for name, variant in row.variants.items()}


# ---- the command ----

def _boot(variant):
    """What a boot needs to know of a Variant."""
    return dataclasses.replace(variant, workload="")


def measure(row, rows, seeds, known, series, without=()):
    """Run the Variants of a Row with `seeds` seeds; give {variant: [figure for each seed]}.

    Variants of one machine and state, of all `rows`, run one after the other in one boot, because most
    of the time goes into booting. known: {(Variant, seed): figure} of what has been run, which is not
    run again; without: the parts of the model that are off.
    """
    boots = {_boot(variant): [] for variant in row.variants.values()}
    for variant in dict.fromkeys(variant for one in (row, *rows) for variant in one.variants.values()):
        if _boot(variant) in boots:
            boots[_boot(variant)].append(variant)

    def one(stop, boot, seed):
        # Each seed begins with another one, so that none is always measured first.
        tasks = [variant for variant in boots[boot] if (variant, seed) not in known]
        tasks = tasks[seed % max(len(tasks), 1):] + tasks[:seed % max(len(tasks), 1)]
        if not tasks:
            return
        m, begin = costs.scaled(machine.load(boot.machine), (), without), time.monotonic()
        state = dataclasses.replace(simulate.state(boot.state, boot.build, series), cgroups=boot.cgroups)
        regions = simulate.run(m, state, [workloads.task(variant.workload, m) for variant in tasks], seed,
                               stop=stop)
        known.update({(variant, seed): region.value for variant, region in zip(tasks, regions)})
        say(f"  row {row.number}, seed {seed}, {time.monotonic() - begin:.0f} s: " + ", ".join(
            f"{variant.workload} {known[variant, seed]:g}" for variant in tasks))

    simulate.each_seed(one, boots, range(1, seeds + 1))
    return {name: [known[variant, seed] for seed in range(1, seeds + 1)]
            for name, variant in row.variants.items()}


def chosen(settings):
    """The Rows that ROWS= names; else all with FULL=1, and the short ones without. Error for a number
    that the table does not have."""
    by_number = {str(row.number): row for row in ROWS}
    for number in settings["ROWS"]:
        if number not in by_number:
            raise Error(f"ROWS={number}: there are rows {', '.join(by_number)}")
    if settings["ROWS"]:
        return [row for row in ROWS if str(row.number) in settings["ROWS"]]
    return [row for row in ROWS if settings["FULL"] or not row.full]


def command(settings):
    """make sim-validate: run rows of the table, print what came of them, keep it; 0. Error if a row is
    not reproduced and has no gap, or is reproduced and has one."""
    seeds, rows = settings["SEEDS"] or SEEDS, chosen(settings)
    if seeds < SEEDS:
        raise Error(f"SEEDS={seeds}: with fewer than {SEEDS} seeds intervals are too wide")
    path = (RESULTS if settings["SAVE"] else settings.build / "results") / FILE
    load(path)
    for boot in {_boot(one) for row in rows for one in row.variants.values()}:
        costs.scaled(machine.load(boot.machine), (), settings["WITHOUT"])
    series = settings.series
    qemu, commit = simulate.check_qemu(settings.build), store.commit()
    builds = {one.build: kernel.named(series, one.build) for row in rows for one in row.variants.values()}
    for which in builds.values():
        kernel.build(which)
    initramfs.base(initramfs.small(series))
    kernels = {name: kernel.identity(which) for name, which in builds.items()}
    values, known = {}, {}
    for row in rows:
        begin = time.monotonic()
        values[row.number] = measure(row, rows, seeds, known, series, settings["WITHOUT"])
        seconds = round(time.monotonic() - begin)
        if kernels != {name: kernel.identity(which) for name, which in builds.items()}:
            raise Error("a kernel was built or its source changed during the run; the result is discarded")
        if row.variants and not settings["WITHOUT"]:
            save(path, row, {"values": values[row.number], "variants": _variants(row), "seconds": seconds,
                             "commit": commit, "qemu": qemu,
                             "kernels": {one.build: kernels[one.build] for one in row.variants.values()}})
        say(f"row {row.number}: {word(row, values[row.number])}, {seconds} s")
    for line in tables.text(table(rows, values)):
        say(line)
    for row in rows:
        if row.gap:
            say(f"gap, row {row.number}: {row.gap}")
    wrong = mistakes(rows, values)
    if wrong:
        raise Error("\n".join(wrong))
    return 0
