# SPDX-License-Identifier: GPL-2.0-only
"""Plots of what was compared, as SVG. The same figures give the same file again."""

import matplotlib

from kit.bench import stats

matplotlib.use("svg")
# pylint: disable=wrong-import-position
from matplotlib import pyplot  # noqa: E402

COLOURS = {stats.GAIN: "tab:green", stats.LOSS: "tab:red", stats.NONE: "tab:gray"}
# Text stays text, and what is numbered is numbered the same each time.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "kit", "font.size": 8,
         "font.sans-serif": ["DejaVu Sans"]}
ROW_INCHES, COLUMN_INCHES, NAMES_INCHES = 0.2, 2.4, 2.6


def intervals(path, judged):
    """Draw {subject: {metric: Comparison}} to a file: a panel for each subject and a line for each
    metric, with its interval, and in grey how far the A/A control reaches."""
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


def _draw(panel, lines):
    """Draw (place, Comparison) pairs, all of one verdict at once: it makes for smaller files."""
    floors = [(y, 100 * found.floor) for y, found in lines if found.floor is not None]
    if floors:
        places, ends = zip(*floors)
        panel.hlines(places, [-end for end in ends], ends, color="0.9", linewidth=10)
    for verdict, colour in COLOURS.items():
        own = [(y, found) for y, found in lines if found.verdict == verdict]
        places = [y for y, _ in own]
        panel.hlines(places, [100 * found.low for _, found in own],
                     [100 * found.high for _, found in own], color=colour, linewidth=1.5)
        panel.plot([100 * found.gain for _, found in own], places, color=colour, marker="o",
                   markersize=3, linestyle="none")
