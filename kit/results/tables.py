# SPDX-License-Identifier: GPL-2.0-only
"""Tables of results, for the terminal and in Markdown."""

import math
import statistics

from kit.results import store, verdict

DISTURBED = "*: a memory layout was left out, because its figure is far from those of the others; one * for each."


def median(values):
    """The median of some numbers."""
    return statistics.median(values)


def spread(values):
    """How far values are from each other: their standard deviation relative to the mean, 0.01
    being one percent; None for one value."""
    if len(values) < 2 or not statistics.fmean(values):
        return None
    return math.sqrt(verdict.variance(values)) / statistics.fmean(values)


def middle(result, values):
    """The figure to show of a subject's values: the geometric mean, of which changes are the ratio. Of
    blocked figures, and where there is none, the median, which a disturbed block does not move."""
    if result.instrument in verdict.SCREENED or min(values) <= 0:
        return median(values)
    return verdict.mean(values)


def table(result, metrics):
    """Give the rows, lists of text, of a table of these metrics of a Judged result; the first is the head.

    For each subject that others are compared with: its figure and spread, then their change.
    """
    columns, judged = _columns(result), result.verdicts
    rows = [["", *(text for _, heads in columns for text in heads)]]
    for name in metrics:
        metric = result.metrics[name]
        row = [metric.title]
        for subject, _ in columns:
            row += _cells(result, judged, subject, name)
        rows.append(row)
    return rows


def _columns(result):
    """Give (subject, its heads), every base followed by what is compared with it."""
    columns = []
    for base, what in result.subjects.items():
        if what.against is None:
            columns.append((base, [base, "spread"]))
            columns += [(name, [name]) for name, other in result.subjects.items()
                        if other.against == base]
    return columns


def _cells(result, judged, subject, metric):
    values = result.values.get(subject, {}).get(metric)
    against = result.subjects[subject].against
    if against is None:
        if values is None:
            return ["-", "-"]
        return [number(middle(result, values)), percent(spread(values))]
    base = result.values.get(against, {}).get(metric)
    if values is None or base is None:
        return ["-"]
    if subject == store.control(result, against):
        found = verdict.drift(base, values)
    else:
        found = judged[subject][metric].change
    if found.ratio is None:
        # A ratio to nothing says nothing.
        return [verdict.signed(median(values) - median(base), 1)]
    return [verdict.text(found) + "*" * found.left_out]


def number(value):
    """Write a figure with the digits that mean something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def percent(value):
    """Write a relative figure, 0.01, as "1.00 %"; "-" for None."""
    return "-" if value is None else f"{value * 100:.2f} %"


def cost(result):
    """Give [(heading, rows)] of a Judged result: instructions without ticks, with them, and memory."""
    names = list(result.metrics)
    ticks = [name for name in names if name.endswith("+ticks")]
    memory = [name for name in names if result.metrics[name].unit == "bytes"]
    plain = [name for name in names if name not in ticks and name not in memory]
    return [("Instructions per operation, between ticks", table(result, plain)),
            ("Instructions per operation, with the ticks and what they set off",
             table(result, ticks)),
            ("Bytes of kernel memory per process", table(result, memory))]

def counts(statistics):
    """Give the rows of a table, the first is the head, of {subject: {what: count}}. What is 0 for all
    is left out."""
    titles = dict.fromkeys(title for found in statistics.values() for title in found)
    return [["", *statistics], *([title, *(str(found.get(title, 0)) for found in statistics.values())]
                                 for title in titles
                                 if any(found.get(title) for found in statistics.values()))]


def text(rows):
    """Give the lines of a table for a terminal."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
            for row in rows]


def markdown(rows):
    """Give the lines of a table in Markdown."""
    head, *body = rows
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
    return ["| " + " | ".join(line) + " |" for line in lines]


def tested(judged):
    """Whether there are enough values for any comparison."""
    return any(one.change.p is not None for found in judged.values() for one in found.values())


def sums(judged):
    """Give how many of each verdict there are for each subject, with the worst and the best."""
    lines = []
    for subject, found in judged.items():
        words = []
        for word, pick in ((verdict.LOSS, min), (verdict.GAIN, max)):
            all_ = {metric: one.gain[0] for metric, one in found.items() if one.word == word}
            if all_:
                most = pick(all_, key=all_.get)
                small = [found[metric].margin for metric in all_ if found[metric].equivalent]
                inside = f" ({len(small)} within {100 * small[0]:g} %)" if small else ""
                words.append(f"{len(all_)} {word}{inside}, most {verdict.signed(100 * all_[most], 2)} % ({most})")
            else:
                words.append(f"no {word}")
        equal = [one for one in found.values() if one.word == verdict.EQUIVALENT]
        words.append(f"{len(equal)} {verdict.EQUIVALENT} within {100 * equal[0].margin:g} %" if equal
                     else f"no {verdict.EQUIVALENT}")
        none = sum(one.word == verdict.NONE for one in found.values())
        primary = sum(one.word != verdict.SECONDARY for one in found.values())
        lines.append(f"{subject}: {'; '.join(words)}; no verdict on {none} of {primary}")
    return lines


def conclusions(result, metric):
    """Say in a line for each subject of a Judged result that is compared with another what came of one metric."""
    lines = []
    for subject, found in result.verdicts.items():
        one, base = found[metric], result.subjects[subject].against
        lines.append(f"{subject} against {base}: {verdict.text(one.change)}: {one}" + (
            f"; {base} against itself: {verdict.text(one.drift)}" if one.drift else ""))
    return lines


def moves(old, new):
    """Give what is different, in a Judged result, from an older one of the same instrument and machine, a line
    each: a change against its base that is not what it was, or that has come or gone. Columns that were
    not measured this time are left out."""
    was, now = ({(subject, metric): one.change for subject, found in result.verdicts.items()
                 for metric, one in found.items() if one.change.ratio is not None}
                for result in (old, new))
    lines = [f"{old.metrics[metric].title}, {subject}: gone" for subject, metric in was
             if subject in new.subjects and (subject, metric) not in now]
    for (subject, metric), change in now.items():
        before, title = was.get((subject, metric)), f"{new.metrics[metric].title}, {subject}"
        if before is None:
            lines.append(f"{title}: new, {verdict.text(change)}")
        elif verdict.moved(before, change):
            better = (change.ratio < before.ratio) == (new.metrics[metric].better == "less")
            lines.append(f"{title}: was {verdict.text(before)}, is {verdict.text(change)}: "
                         f"{'better' if better else 'WORSE'}")
    return lines
