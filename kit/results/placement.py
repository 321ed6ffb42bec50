# SPDX-License-Identifier: GPL-2.0-only
"""Where the tasks of each simulated run ended up, and what it did to the figure.

For hackbench and pipelines the placement explains most of the variance between seeds. So a comparison
is three questions: how often is each placement reached, what is the figure given the placement, and
what is the change over all runs. Only the last one has a verdict: placement is an outcome, not a
condition that was set, and a comparison within one is an association.
"""

from kit.results import store, verdict

ONE_LLC, LLCS, SOCKETS = "within LLCs", "across LLCs", "across sockets"
PLACEMENTS = (ONE_LLC, LLCS, SOCKETS)
# Tasks that share data are apart if at least this part of the lines that moved between caches came
# from another LLC, or socket. In the committed runs of one hackbench group it is below 0.06 or above
# 0.1; kernel threads and interrupts move lines, too.
APART = 0.08


def llcs(busy_ps):
    """Give the least number of LLCs in which 90 % of the time was spent, from the busy time of each.
    One of eight tasks that is alone has 12 %; kernel threads have less than 5 %."""
    rest, count = 0.9 * sum(busy_ps), 0
    for busy in sorted(busy_ps, reverse=True):
        if rest <= 0:
            break
        rest, count = rest - busy, count + 1
    return count


def classify(core, llc, socket):
    """Name the placement of a run, by its number of lines that came from another core of the LLC, from
    another LLC of the socket, and from another socket; None if no line moved."""
    lines = core + llc + socket
    if not lines:
        return None
    if socket >= APART * lines:
        return SOCKETS
    return LLCS if llc + socket >= APART * lines else ONE_LLC


def placements(result, subject):
    """Give the placement of each run of a subject; none where an instrument does not count lines."""
    values = result.values[subject]
    if not {"core", "llc", "socket"} <= values.keys():
        return []
    return [classify(*moved) for moved in zip(values["core"], values["llc"], values["socket"])]


def table(result, subject, metric):
    """Give the table of a subject's metric by placement, lists of text, the first the head: how many
    runs of the base (and its control) and of the subject there are, their figure (geometric mean), and
    the change with its 95 % interval. [] for a
    base or its control, or if no run has a placement."""
    base = result.subjects[subject].against
    again = base and store.control(result, base)
    if base is None or subject == again:
        return []
    runs = [list(zip(placements(result, name), result.values[name][metric]))
            for name in (base, again, subject) if name]
    before, after = [pair for some in runs[:-1] for pair in some], runs[-1]
    rows = [["placement", "runs", base, "runs", subject, "change"]]
    for place in PLACEMENTS:
        one, two = ([value for found, value in some if found == place] for some in (before, after))
        if one or two:
            rows.append([place, _share(one, before), _figure(one), _share(two, after), _figure(two),
                         _change(one, two)])
    return rows if len(rows) > 1 else []


def _share(some, all_):
    return f"{len(some)} of {len(all_)}"


def _figure(values):
    return f"{verdict.mean(values):.4g}" if values and min(values) > 0 else "-"


def _change(base, other):
    if verdict.problem(verdict.Case("less", base, other)):
        return "-"
    return verdict.text(verdict.change(base, other))
