# SPDX-License-Identifier: GPL-2.0-only
"""The tables of one result as text, for a terminal and for pages: figures, changes and verdicts."""

from kit.results import store, tables, verdict

HEAD = ["case", "baseline (std%)", "compare% (std%)", "95 % interval", "drift", "p", "verdict"]


def rows(result, subject):
    """Give the table of a subject of a Judged result against its base, lists of text, the first the head: as in the
    tables of LKML, but that the baseline is its figure and not 1.00, and more is always better."""
    against = result.subjects[subject].against
    control = result.values.get(store.control(result, against), {})
    table = [HEAD]
    for metric, found in result.verdicts[subject].items():
        base = [*result.values[against][metric], *control.get(metric, ())]
        gain, low, high = _changes(found)
        table.append([metric, f"{_figure(tables.middle(result, base))} {result.metrics[metric].unit} "
                      f"({_std(base)})", f"{gain or '-'} ({_std(result.values[subject][metric])})",
                      f"{low} to {high}" if low else "-",
                      _drift(found.drift), "-" if found.p is None else f"{found.p:.2g}", str(found)])
    return table


def _changes(found):
    """Write the three figures of a Verdict's gain, None where there is none: in percent, or as ratios to the
    base where a loss of more than 100 % would be a riddle."""
    change = found.change
    if None not in found.gain and min(found.gain) < -1:
        return [f"x {ratio:.2f}" for ratio in (change.ratio, change.low, change.high)]
    return [None if x is None else verdict.signed(100 * x, 2) for x in found.gain]


def _drift(found):
    """Write how far a control is from its base, with the p-value if that is more than chance."""
    if found is None or found.ratio is None:
        return "-"
    shown = verdict.signed(100 * (found.ratio - 1), 2)
    return shown + (f", p {found.p:.1g}" if found.p is not None and found.p < verdict.ALPHA else "")


def medians(result):
    """Give a table of all medians, for what is compared with nothing."""
    table = [["case", *(f"{subject} (std%)" for subject in result.subjects)]]
    for metric, about in result.metrics.items():
        row = [f"{metric} ({about.unit})"]
        for subject in result.subjects:
            values = result.values.get(subject, {}).get(metric)
            row.append(f"{_figure(tables.median(values))} ({_std(values)})" if values else "-")
        table.append(row)
    return table


def _figure(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _std(values):
    spread = tables.spread(values)
    return "-" if spread is None else f"{100 * spread:.2f}"


def of(result):
    """Give the lines of a Result for a terminal, ending in what it comes to."""
    result = verdict.judged(result)
    tested = tables.tested(result.verdicts)
    lines = [] if tested else tables.text(medians(result))
    for subject in result.verdicts if tested else ():
        lines += [f"{subject}, against {result.subjects[subject].against}", "",
                  *tables.text(rows(result, subject)), ""]
    return [*lines, *tables.sums(result.verdicts)]
