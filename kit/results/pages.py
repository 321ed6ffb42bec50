# SPDX-License-Identifier: GPL-2.0-only
"""The page of one result in Markdown, and its tables, of make sim and make bench-cost."""

from kit.results import placement, tables


def own(result):
    """Give the lines of the page of a Judged result of these two; None of another instrument."""
    if result.instrument == "cost":
        return _cost(result)
    return _simulation(result) if result.instrument.startswith("sim-") else None


def _head(result, title, guide):
    repeat = result.repeat
    return [f"# {title}", "",
            f"By `{repeat['command']}` at {repeat['commit']}, QEMU {repeat['qemu']}. How to read it: "
            f"[{guide}](../../{guide}).", "",
            *(f"- {name}: {about.get('release', '?')}, {about.get('source', '?')}"
              for name, about in result.kernels.items()), ""]


def _tables(found):
    return [line for heading, rows in found if len(rows) > 1
            for line in ["", f"## {heading}", "", *tables.markdown(rows)]]


def _cost(result):
    return [*_head(result, f"Cost on {result.machine}", "docs/cost.md"),
            *(f"- {line}" for line in tables.sums(result.verdicts)),
            *(f"- {row}: layout {number} is left out, disturbed in each attempt ({', '.join(columns)})"
              for row, layouts in result.repeat.get("disturbed", {}).items()
              for number, columns in layouts.items()), "", tables.DISTURBED,
            *_tables(tables.cost(result))]


def _simulation(result):
    name = result.instrument.removeprefix("sim-")
    return [*_head(result, f"{name} on a simulated {result.machine}", "docs/simulation.md"),
            *(f"**{line}**" for line in tables.conclusions(result, name)),
            *_tables(simulation(result))]


def simulation(result):
    """Give [(heading, rows)] of a Judged simulation: the figures, and for each subject its placements and
    where lines moved."""
    found = [("Figures", tables.table(result, list(result.metrics)))]
    for column, subject in result.subjects.items():
        rows = placement.table(result, column, next(iter(result.metrics)))
        if rows:
            found.append((f"By placement, {column} against {subject.against}", rows))
    for column, detail in result.details.items():
        head = ["core", "LLC", "socket"]
        for what in ("functions", "lines"):
            title = {"functions": ["function"], "lines": ["data", "functions"]}[what]
            found.append((f"Lines that moved between caches, by {title[0]}, {column}",
                          [[*title, *head], *([str(cell) for cell in row] for row in detail[what])]))
    statistics = {column: dict(detail["statistics"]) for column, detail in result.details.items()
                  if "statistics" in detail}
    if statistics:
        found.append(("Wakeups and load balancing, in one further run with schedstats",
                      tables.counts(statistics)))
    return found
