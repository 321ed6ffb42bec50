# SPDX-License-Identifier: GPL-2.0-only
"""Tables of results, for the terminal and in Markdown."""

from kit.bench import stats


def table(result, metrics):
    """Give the rows, lists of text, of a table of these metrics; the first is the head.

    For each subject that others are compared with: its median and spread, then their change.
    """
    columns = _columns(result)
    rows = [["", *(text for _, heads in columns for text in heads)]]
    for name in metrics:
        metric = result.metrics[name]
        row = [metric.title]
        for subject, _ in columns:
            row += _cells(result, subject, name)
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


def _cells(result, subject, metric):
    values = result.values.get(subject, {}).get(metric)
    against = result.subjects[subject].against
    if against is None:
        if values is None:
            return ["-", "-"]
        return [number(stats.median(values)), percent(stats.spread(values), "")]
    base = result.values.get(against, {}).get(metric)
    if values is None or base is None:
        return ["-"]
    difference = stats.change(base, values)
    if difference is None:
        # A ratio to nothing says nothing.
        return [f"{stats.median(values) - stats.median(base):+.1f}"]
    return [change(difference)]


def number(value):
    """Write a figure with the digits that mean something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def percent(value, sign="+"):
    """Write a relative figure, 0.01, as "1.00 %"; "-" for None."""
    return "-" if value is None else f"{value * 100:{sign}.2f} %"


def change(difference):
    """Write a Change."""
    half = "" if difference.half is None else f" ±{difference.half * 100:.2f}"
    return f"{difference.value * 100:+.2f}{half} %"


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


def moves(old, new):
    """Give what is different from an older result of the same instrument and machine, a line
    each: a change against its base that is not what it was, or that has come or gone. What a kernel
    showed that was not measured this time is left out."""
    lines = [f"{old.metrics[metric].title}, {subject}: gone"
             for subject, what in old.subjects.items() if what.kernel in new.kernels
             for metric in old.values.get(subject, {})
             if _change(old, subject, metric) and not _change(new, subject, metric)]
    for subject, what in new.subjects.items():
        if what.against is None:
            continue
        for metric in new.values.get(subject, {}):
            was, now = (_change(result, subject, metric) for result in (old, new))
            if now is None:
                continue
            title = f"{new.metrics[metric].title}, {subject}"
            if was is None:
                lines.append(f"{title}: new, {change(now)}")
            elif stats.moved(was, now):
                better = (now.value < was.value) == (new.metrics[metric].better == "less")
                lines.append(f"{title}: was {change(was)}, is {change(now)}: "
                             f"{'better' if better else 'WORSE'}")
    return lines


def _change(result, subject, metric):
    what = result.subjects.get(subject)
    values = result.values.get(subject, {}).get(metric)
    base = result.values.get(what.against, {}).get(metric) if what else None
    return stats.change(base, values) if values and base else None
