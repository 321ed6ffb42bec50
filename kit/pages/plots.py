# SPDX-License-Identifier: GPL-2.0-only
"""Plots of what was compared, as SVG. The same figures give the same file again."""

import matplotlib

from kit.results import verdict

matplotlib.use("svg")
# pylint: disable=wrong-import-position
from matplotlib import pyplot  # noqa: E402

COLOURS = {verdict.GAIN: "tab:green", verdict.LOSS: "tab:red", verdict.EQUIVALENT: "tab:blue",
           verdict.NONE: "tab:orange", verdict.SECONDARY: "tab:gray"}
# Text stays text, and what is numbered is numbered the same each time.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "kit", "font.size": 8,
         "font.sans-serif": ["DejaVu Sans"]}
ROW_INCHES, COLUMN_INCHES, NAMES_INCHES = 0.2, 2.4, 2.6


def intervals(path, judged):
    """Draw {subject: {metric: Verdict}} to a file, and give its name: a panel for each subject and a line for each metric
    that has an interval, in the colour of its verdict; in grey the margin of equivalence."""
    metrics = list(dict.fromkeys(metric for rows in judged.values() for metric in rows))
    with matplotlib.rc_context(STYLE):
        figure, panels = pyplot.subplots(
            1, len(judged), sharey=True, squeeze=False, layout="constrained",
            figsize=(NAMES_INCHES + COLUMN_INCHES * len(judged), 1 + ROW_INCHES * len(metrics)))
        for panel, (subject, rows) in zip(panels[0], judged.items()):
            panel.set_title(subject)
            panel.axvline(0, color="black", linewidth=0.5)
            _draw(panel, [(metrics.index(metric), found) for metric, found in rows.items()])
            panel.set_xlabel("% better")
            if panel is not panels[0][0]:
                panel.tick_params(axis="y", left=False)
        panels[0][0].set_yticks(range(len(metrics)), metrics)
        panels[0][0].set_ylim(len(metrics) - 0.5, -0.5)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return path


def _draw(panel, lines):
    """Draw (place, Verdict) pairs, all of one verdict at once: it makes for smaller files."""
    lines = [(y, one) for y, one in lines if one.change.low is not None]
    for margin in {one.margin for _, one in lines}:
        panel.axvspan(-100 * margin, 100 * margin, color="0.92", linewidth=0)
    for word, colour in COLOURS.items():
        own = [(y, [100 * end for end in one.gain]) for y, one in lines if one.word == word]
        places = [y for y, _ in own]
        panel.hlines(places, [low for _, (_, low, _) in own], [high for _, (_, _, high) in own],
                     color=colour, linewidth=1.5)
        panel.plot([gain for _, (gain, _, _) in own], places, color=colour, marker="o", markersize=3,
                   linestyle="none")
