# SPDX-License-Identifier: GPL-2.0-only
"""The generated parts of README.md, docs/, results/ and the cover letters.

A block is everything between two lines of their own:

    <!-- begin NAME: make report -->        [begin NAME: make report]
    <!-- end NAME -->                       [end NAME]

The left form is for Markdown, the right one for plain text. NAME is a key of BLOCKS, whose function
makes the block's parts from all results. A part is a paragraph, or a table: rows, lists of cells,
of which the first is the head. An empty first cell means the same as above. Plain text is at most
WIDTH columns wide.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from kit import settings
from kit.commands import COMMANDS
from kit.features import FEATURES
from kit.host import workloads as host
from kit.paths import MACHINES, RESULTS, ROOT, SIMULATED
from kit.process import Error
from kit.results import tables, verdict
from kit.sim import experiments as declared
from kit.sim import simulate, validate
from kit.sim.published import ROWS
from kit.vm import machine

WIDTH = 74
# Begins the names of the instruments of make sim.
SIM = "sim-"
_MARK = re.compile(r"(?:<!-- |\[)(begin|end) ([\w-]+)(?:: make report)?(?: -->|\])")

OURS, MAINLINE = "`SCHED_CACHE`", "`SCHED_CACHE` of mainline 7.3"
# The rows of bench-cost that README and the cover letter show, and the machine. Its page has all.
COST_MACHINE = "two-ccx"
LEFT_OUT = ("*: for each asterisk, one of the nine memory layouts was left out, because its figure is "
            "far from those of the others. Where too few are left, there is no interval.")
COST_ROWS = ("pipe/one-CPU", "pipe/one-LLC", "pipe/any-of-one-LLC", "thread-pipe/one-CPU",
             "thread-pipe/two-LLCs", "thread-pipe/any-of-two-LLCs",
             "futex/two-LLCs", "fork-exit", "vfork-exec", "thread-join", "balance", "hot-unplug")
# What summary() puts before the word of a change that is proved to be less than the size that matters.
SLIGHT = "slight "
# What the front page says of all rows whose names match: the smallest and the largest change.
COST_KINDS = {"a round trip of two processes": r"pipe/[\w-]+", "a round trip of two threads": r"(thread-pipe|futex)/[\w-]+",
              "creating a process": r"fork-exit|vfork-exec|posix-spawn", "creating a thread": "thread-join",
              "a pass of the load balancer": "balance",
              "taking a CPU offline": "hot-unplug"}
# Those that docs/which-switch.md shows for each feature: processes, threads, their creation, and balancing.
COST_FEATURE_ROWS = ("pipe/one-LLC", "thread-pipe/one-LLC", "thread-pipe/two-LLCs", "thread-join", "balance")


# ---- what fills the blocks ----

def features(_results):
    """The features: default, what each one does, when to switch it."""
    return [[["feature", "default", "what it does when on", "when to switch it"],
             *([f"`{one.name}`", one.default, one.does, one.use] for one in FEATURES)]]


def machines(_results):
    """The machines of machines/, emulated and simulated."""
    rows = []
    for path in [*sorted(MACHINES.glob("*.toml")), *sorted(SIMULATED.glob("*.toml"))]:
        one = machine.load(path)
        rows.append([f"`{path.stem}`", str(one.cpus), one.description,
                     ", ".join((["tests"] if path.parent == MACHINES else [])
                               + (["`make sim`"] if one.caches else []))])
    return [[["machine", "CPUs", "what it is", "for"], *rows]]


def settings_of(*commands):
    """Give the function that makes the table of the settings that any of these commands takes."""
    def rows(_results):
        return [[["setting", "what it is", "default"],
                 *([f"`{one.name}=`", one.help, f"`{one.default}`"
                    if isinstance(one.default, str) and one.default else ""]
                   for one in settings.SETTINGS
                   if any(one.name in COMMANDS[command].settings for command in commands)
                   and not one.help.startswith("set by"))]]
    return rows


def primary(_results):
    """The figures of bench-host that get a verdict, and for which features."""
    return [[["figure", "decides about", "why, and published results"],
             *([f"`{one.metric}`", ", ".join(f"`{name}`" for name in one.features), one.reason]
               for one in host.PRIMARY)]]


def measured(results):
    """What has been measured, where, and what has not."""
    kinds = {"cost": "Instructions and memory, in an emulated guest", SIM: "Simulated",
             "host": "On hosts"}
    lines = []
    for kind, name in kinds.items():
        found = [one for one in results.values() if one.instrument.startswith(kind)]
        where = sorted({f"`{one.machine}`" for one in found})
        lines.append(f"- {name}: {len(found)} result{'s' * (len(found) != 1)}"
                     f"{' on ' + ', '.join(where) if found else ''}.")
    if not any(one.instrument == "host" for one in results.values()):
        lines[-1] += " **No result from an EPYC or Sapphire Rapids host exists.**"
    return ["\n".join(lines)]


def _cost_result(results):
    """The path and the result of bench-cost on COST_MACHINE; (None, None) if there is none."""
    return next(((path, result) for path, result in results.items()
                 if result.instrument == "cost" and path.parent.name == COST_MACHINE), (None, None))


def cost(*columns):
    """Give the function that makes a table of bench-cost from some of the columns of its own table:
    (subject, head)."""
    def rows(results):
        path, result = _cost_result(results)
        if not result:
            return ["Not measured."]
        head, *body = tables.table(result, [name for name in COST_ROWS if name in result.metrics])
        # Results saved before a kernel was named SERIES/BUILD have "7.3-nocache".
        names = {subject.replace("/", "-"): subject for subject in head}
        missing = [subject for subject, _ in columns if subject.replace("/", "-") not in names]
        if missing == [subject for subject, _ in columns]:
            return ["Not measured."]
        if missing:
            raise Error(f"{path}: no column {', '.join(missing)}: make bench-cost COMPARE=7.3 SAVE=1")
        shown = [(head.index(names[subject.replace("/", "-")]), title) for subject, title in columns]
        return [[["operation", *(title for _, title in shown)],
                 *([row[0], *(row[at] for at, _ in shown)] for row in body)],
                *([LEFT_OUT] if "*" in str(body) else [])]
    return rows


def cost_features(results):
    """What each feature costs by itself, with those that it needs and no other: some operations
    against the unpatched kernel, and "not measured" for one that the result has no column of."""
    _, result = _cost_result(results)
    if not result:
        return ["Not measured."]
    head, *body = tables.table(result, [name for name in COST_FEATURE_ROWS if name in result.metrics])
    rows = [["on", *(row[0] for row in body)]]
    for name in ("off", *(feature.name for feature in FEATURES)):
        cells = [row[head.index(name)] for row in body] if name in head else ["not measured"] * len(body)
        rows.append(["no feature" if name == "off" else f"`{name}`", *cells])
    return [rows, *([LEFT_OUT] if "*" in str(rows) else [])]


def _tried(results):
    """Give (row, feature, Verdict, result) of each comparison that results/experiments.toml declares, in its order;
    None for the last two if it was not run."""
    there = {path.stem: result for path, result in results.items() if result.instrument.startswith(SIM)}
    for row in declared.rows():
        found, base = there.get(row.path.stem), row.env.get("AGAINST", "")
        states = {state: None for state in row.env.get("STATE", row.name).split()}
        if found:
            own = found.instrument.removeprefix(SIM)
            states = {subject: verdicts[own] for subject, verdicts in found.verdicts.items()}
        for state, one in states.items():
            yield row, row.feature or (MAINLINE if row.name.endswith("-mainline") else _on(state, base)), one, found


def _sides(results):
    """Give {title: {OURS or MAINLINE: (row, Verdict or None)}} of what tries cache-aware scheduling at its
    defaults."""
    found = {}
    for row, feature, one, _ in _tried(results):
        if feature in (OURS, MAINLINE) and row.declared["must"] != "ceiling":
            found.setdefault(row.title, {})[feature] = row, one
    return found


def _outcome(one):
    """The word of a Verdict, or None, with SLIGHT before it if a change is proved to be less than the size that matters."""
    if not one:
        return None
    return SLIGHT * bool(one.word in (verdict.GAIN, verdict.LOSS) and one.equivalent) + one.word


def summary(results):
    """What cache-aware scheduling gains and costs, ours beside mainline's, in one table: of the declared rows, how
    many it wins, loses, and leaves as they are."""
    found = _sides(results)
    sides = [{title: both[side] for title, both in found.items()} for side in (OURS, MAINLINE)]
    rows = [["cache-aware scheduling, on against off", "these patches, defaults", "mainline 7.3"]]
    for must in ("win", "not lose"):
        words = [[_outcome(one) for row, one in side.values() if row.declared["must"] == must] for side in sides]
        rows += [[f"simulated workloads that it must {must}: {title}", *(f"{of.count(word)} of {len(of)}" for of in words)]
                 for title, word in (("slower", verdict.LOSS), ("slightly slower", SLIGHT + verdict.LOSS),
                                     ("faster", verdict.GAIN), ("slightly faster", SLIGHT + verdict.GAIN),
                                     ("equal", verdict.EQUIVALENT), ("undecided", verdict.NONE), ("not run", None))
                 if any(word in of for of in words) or word == {"win": verdict.GAIN}.get(must, verdict.LOSS)]
    for title, word, pick in (("largest loss", verdict.LOSS, min), ("largest gain", verdict.GAIN, max)):
        of = [{name: one.gain[0] for name, (_, one) in side.items() if one and one.word == word} for side in sides]
        most = [pick(side, key=side.get) if side else "" for side in of]
        figures = [f"{verdict.signed(100 * pick(side.values()), 1)} %" if side else "none" for side in of]
        rows.append([f"{title}: {most[0]}", *figures] if len(set(most)) == 1 else
                    [title, *(f"{figure}: {one}" if one else figure for figure, one in zip(figures, most))])
    _, result = _cost_result(results)
    judged = result.verdicts if result else {}
    columns = [judged.get(name, {}) for name in ("SCHED_CACHE_LB", "7.3 on")]
    for title, pattern in COST_KINDS.items():
        changes = [[100 * (one.change.ratio - 1) for name, one in column.items()
                    if one.change.ratio and re.fullmatch(pattern, name)]
                   for column in columns]
        if any(changes):
            rows.append([f"instructions of {title}", *(_range(one) if one else "not measured" for one in changes)])
    return [rows]


def _range(changes):
    """Write the smallest and the largest of some changes in percent: "+1.2 to +1.4 %"."""
    ends = dict.fromkeys(verdict.signed(change, 1) for change in (min(changes), max(changes)))
    return " to ".join(ends) + " %"


def reproduced(_results):
    """How many published results the simulation reproduces."""
    found = validate.saved(ROWS, RESULTS / validate.FILE)
    good = [row.number for row in ROWS if validate.word(row, found.get(row.number, {})) == validate.REPRODUCED]
    missing = [row.number for row in ROWS if row.number not in found]
    bad = [row.number for row in ROWS if row.number not in (*good, *missing)]
    return [f"The simulation reproduces {len(good)} of {len(ROWS)} published results of real machines (rows "
            f"{_listed(good)} of the table in docs/simulation.md). It misses {len(bad)} ({_listed(bad)}), and "
            f"{len(missing)} were not run ({_listed(missing)})."]


def _listed(numbers):
    return ", ".join(map(str, numbers)) or "none"


def verdicts(results):
    """For each feature, in how many of the declared comparisons it loses, gains, is equivalent, has no verdict,
    and was not run; losses first."""
    words = (verdict.LOSS, verdict.GAIN, verdict.EQUIVALENT, verdict.NONE, None)
    counted = {}
    for row, feature, one, _ in _tried(results):
        if row.declared["must"] != "ceiling":
            counts = counted.setdefault(feature, dict.fromkeys(words, 0))
            counts[one and one.word] += 1
    rows = sorted(counted.items(), key=lambda item: (-item[1][verdict.LOSS], -item[1][verdict.GAIN]))
    return [[["switched on", "comparisons", *(word or "not run" for word in words)],
             *([feature, str(sum(counts.values())), *map(str, counts.values())] for feature, counts in rows)]]


def declarations(results):
    """The declared rows: what each has to show, the runs that it takes, and what came of it, ours beside
    mainline's."""
    rows, old = {}, False
    for row, feature, one, found in _tried(results):
        size, spread = (f"{100 * row.declared[key]:g} %" for key in ("size", "spread"))
        cell = f"{one.word}, {_judged(one)[0]}" if one else "not run"
        if one and found.repeat.get("model") != simulate.model():
            cell, old = f"{cell}*", True
        mainline = feature == MAINLINE
        lines = rows.setdefault((row.title, OURS if mainline else feature), [
            row.title, OURS if mainline else feature, f"{row.declared['must']}, {size}", spread, row.declared["rests_on"],
            row.env["SEEDS"], f"{row.hours:.1f}", "", ""])
        lines[-1 if mainline else -2] = cell
    table = [["workload", "switched on", "must", "spread", "rests on", "runs", "hours of two CPUs", "these patches", "mainline 7.3"],
             *rows.values()]
    return [table, *(["*: run with an earlier form of the simulation. [NOTES.md](NOTES.md#which-results-are-of-the-present-patches)"
                     " says which kernel, and whether it is valid."] if old else [])]


def validation(results):
    """The table of published results, with what sim-validate has found, and the gaps."""
    return [validate.table(ROWS, validate.saved(ROWS, RESULTS / validate.FILE)),
            "Gaps:\n\n" + "\n".join(f"- Row {row.number}: {row.gap}." for row in ROWS if row.gap)]


def _judged(one):
    """Give the cells of a Verdict: the change and the word. What is worse by more than 100 % is written as
    a ratio: that is a figure of which less is better."""
    if None in one.gain:
        return "", one.word
    if min(one.gain) < -1:
        change = one.change
        return f"{change.ratio:.1f} times as much ({change.low:.1f} to {change.high:.1f})", one.word
    return "{} % ({} to {})".format(*(verdict.signed(100 * x, 1) for x in one.gain)), one.word


def _on(subject, base=""):
    """Name what the state of a subject has that the base has not, without what is said to be off."""
    words = [word for pair in re.findall(r"features=(\w+)|(\w+=\d+)", subject) for word in pair if word]
    return ", ".join(f"`{word}`" for word in words
                     if word not in re.findall(r"features=(\w+)", base) and word != "NO_WAKE_PREDICT")


BLOCKS = {
    "features": features,
    "machines": machines,
    "primary": primary,
    "measured": measured,
    "cost": cost(("base", "6.12"), ("off", "all off"),
                 ("SCHED_CACHE_LB", "defaults")),
    "cost-features": cost_features,
    "cost-mainline": cost(("7.3/nocache", "7.3"), ("7.3 off", "built in, off"),
                          ("7.3 on", "on")),
    "summary": summary,
    "reproduced": reproduced,
    "verdicts": verdicts,
    "declared": declarations,
    "validation": validation,
    "settings-kernel": settings_of("kernel", "boot", "test"),
    "settings-bench-cost": settings_of("bench-cost"),
    "settings-bench-host": settings_of("bench-host", "bench-host-dir"),
    "settings-sim": settings_of("sim", "sim-all", "sim-validate"),
}


# ---- filling them ----

def files(root=ROOT):
    """The files that can have blocks."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted((root / "results").glob("*.md")),
            *sorted((root / "patches").glob("**/cover-letter.txt"))]


def fill(text, where, results):
    """Give a file's text with all its blocks made anew. where: its name, for errors; plain text if
    it ends in .txt. Error for an unknown block, a begin without its end, an end without its begin."""
    lines, inside = [], None
    for number, line in enumerate(text.splitlines(), 1):
        mark = _MARK.fullmatch(line.strip())
        if not mark:
            if inside is None:
                lines.append(line)
            continue
        kind, name = mark.groups()
        if kind == "begin":
            if inside is not None:
                raise Error(f"{where}:{number}: block {inside} has no end before {name} begins")
            if name not in BLOCKS:
                raise Error(f"{where}:{number}: there is no block {name}; there are: {' '.join(BLOCKS)}")
            lines += [line, *_lines(BLOCKS[name](results), where)]
            inside = name
            continue
        if name != inside:
            raise Error(f"{where}:{number}: end of {name}, which did not begin")
        lines.append(line)
        inside = None
    if inside is not None:
        raise Error(f"{where}: block {inside} has no end")
    return "\n".join(lines) + "\n"


def update(results, root=ROOT):
    """Make the blocks of all files anew; give the files that changed."""
    changed = []
    for path in files(root):
        old = path.read_text()
        new = fill(old, path.relative_to(root), results)
        if new != old:
            path.write_text(new)
            changed.append(path)
    return changed


def _lines(parts, where):
    """Give the lines of a block from its parts, with an empty line around each of them."""
    lines = [""]
    for part in parts:
        if Path(where).suffix != ".txt":
            lines += part.splitlines() if isinstance(part, str) else _aligned(part)
        elif isinstance(part, str):
            for line in re.sub(r"`|\*\*", "", part).splitlines():
                lines += textwrap.wrap(line, WIDTH, subsequent_indent="  " * line.startswith("- "))
        else:
            lines += _plain([[cell.replace("`", "") for cell in row] for row in part])
        lines.append("")
    return lines


def _aligned(rows):
    """A table in Markdown; columns of figures are aligned to the right."""
    lines = tables.markdown(rows)
    figures = [i > 0 and all(re.match(r"[-+]?\d|$", row[i]) for row in rows[1:])
               for i in range(len(rows[0]))]
    lines[1] = "| " + " | ".join("---:" if right else "---" for right in figures) + " |"
    return lines


def _plain(rows):
    """A table in plain text. If it is too wide, the first cell of each row has a line of its own;
    if the others are still too wide, each of them has lines of its own, behind the head of its
    column."""
    if max(map(len, tables.text(rows))) < WIDTH:
        return [f" {line}" for line in tables.text(rows)]
    rest = tables.text([["", *row[1:]] for row in rows])
    if max(map(len, rest)) < WIDTH:
        return [line for row, cells in zip(rows, rest)
                for line in _title(row) + [f" {cells}".rstrip()]]
    return [line for row in rows[1:] for line in (
        *_title(row), *(text for head, cell in zip(rows[0][1:], row[1:]) if cell
                        for text in textwrap.wrap(f"{head}: {cell}", WIDTH, initial_indent="   ",
                                                  subsequent_indent="     ")))]


def _title(row):
    """Give the lines of the first cell of a row in plain text."""
    return textwrap.wrap(row[0], WIDTH, initial_indent=" ", subsequent_indent="   ")
