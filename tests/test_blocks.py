# SPDX-License-Identifier: GPL-2.0-only
"""The generated blocks of README.md, docs/, results/ and the cover letters."""

import copy
import re

import pytest

from kit.features import FEATURES
from kit.pages import blocks, report
from kit.paths import PATCHES, RESULTS, ROOT
from kit.process import Error
from kit.results import store, verdict

BEGIN, END = "<!-- begin {}: make report -->", "<!-- end {} -->"


@pytest.fixture(scope="module")
def results():
    """All committed results."""
    return report.load(RESULTS)


def page(*names):
    """A page of Markdown with these blocks, filled with something old."""
    lines = ["# A page", "Before."]
    for name in names:
        lines += [BEGIN.format(name), "old", END.format(name), f"After {name}."]
    return "\n".join(lines) + "\n"


def test_blocks_are_current(results):
    """`make report` changes nothing on a clean checkout."""
    stale = []
    found = 0
    for path in blocks.files():
        text = path.read_text()
        found += text.count(": make report -->") + text.count(": make report]")
        if blocks.fill(text, path.relative_to(ROOT), results) != text:
            stale.append(str(path.relative_to(ROOT)))
    print(f"{found} blocks")
    assert stale == [], "run `make report`"
    assert found > 5


def test_make_report_fills_the_blocks(tmp_path, results):
    """In README.md, docs/, results/ and cover letters; the lines around the blocks stay."""
    for name in ("README.md", "docs/a.md", "patches/6.12/cover-letter.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(page("features"))
    (tmp_path / "docs/b.md").write_text("No block.\n")
    changed = [str(path.relative_to(tmp_path)) for path in blocks.update(results, tmp_path)]
    assert changed == ["README.md", "docs/a.md", "patches/6.12/cover-letter.txt"]
    text = (tmp_path / "docs/a.md").read_text()
    assert text.startswith("# A page\nBefore.\n<!-- begin")
    assert text.endswith("-->\nAfter features.\n")
    assert "\nold\n" not in text and "| `SIS_FAST` | off | " in text
    assert blocks.update(results, tmp_path) == []


@pytest.mark.parametrize("text, error", [
    (page("nonsense"), "x.md:3: there is no block nonsense; there are: features machines"),
    (page("features").replace(END.format("features") + "\n", ""),
     "x.md: block features has no end"),
    (page("features", "cost").replace(END.format("features") + "\n", ""),
     "x.md:6: block features has no end before cost begins"),
    (page("features").replace(BEGIN.format("features"), ""),
     "x.md:5: end of features, which did not"),
    (page("features").replace(END.format("features"), END.format("cost")), "x.md:5: end of cost"),
])
def test_wrong_markers_are_errors(results, text, error):
    with pytest.raises(Error) as found:
        blocks.fill(text, "x.md", results)
    print(found.value)
    assert str(found.value).startswith(error)


def changed(results, instrument, subject, metric, factor):
    """The results, but for one subject's figures of one metric in all results of an instrument."""
    results = dict(results)
    for path, one in results.items():
        if one.instrument == instrument and metric in one.values.get(subject, {}):
            one = copy.deepcopy(one)
            one.values[subject][metric] = [factor * x for x in one.values[subject][metric]]
            results[path] = verdict.judged(one)
    return results


@pytest.mark.parametrize("name, what", [
    ("cost", ("cost", "off", "fork-exit", 1.07)),
    ("cost-mainline", ("cost", "7.3 on", "fork-exit", 1.07)),
    ("cost-features", ("cost", "SCHED_CACHE_WAKE", "thread-join", 1.07)),
    ("summary", ("cost", "SCHED_CACHE_LB", "thread-join", 1.07)),
])
def test_a_changed_result_changes_the_block(results, name, what):
    """And no other line than that of the changed figure."""
    def filled(these):
        return blocks.fill(page(name), "x.md", these).splitlines()
    before, after = filled(results), filled(changed(results, *what))
    lines = [(old, new) for old, new in zip(before, after) if old != new]
    print(*lines, sep="\n")
    assert len(before) == len(after) and lines
    # The tables have a row for each operation, or for each bit.
    row = {"cost-features": "`SCHED_CACHE_WAKE`", "summary": "instructions of creating a thread"}.get(
        name, "fork, exit, wait")
    assert [old.split(" |")[0] for old, _ in lines] == [f"| {row}"]


def test_losses_are_counted_alike(results):
    """In the summary, the table of verdicts and that of the declared rows; so too if results become losses."""
    counts, large = [], []
    for these in (results, changed(results, "sim-sharing", "stack features=SCHED_CACHE", "sharing", 0.2)):
        rows = [row for row in blocks.declarations(these)[0] if row[1] == blocks.OURS and "ceiling" not in row[2]]
        losses = sum(row[-2].startswith("LOSS") for row in rows)
        shown = {row[0]: int(row[1].split()[0]) for row in blocks.summary(these)[0] if "slower" in row[0]}
        large.append(sum(count for title, count in shown.items() if "slightly" not in title))
        [counted] = [row for row in blocks.verdicts(these)[0] if row[0] == blocks.OURS]
        print(*rows, sep="\n")
        assert sum(shown.values()) == losses and counted[1:3] == [str(len(rows)), str(losses)]
        counts.append(losses)
    # The one that is there is of less than the size that matters.
    assert counts[1] - counts[0] == large[1] - large[0] > 0 and large[0] < counts[0]


def test_what_was_not_run_is_shown_so(results):
    """It is no result in any table; nor is a result without a row."""
    [table, *_] = blocks.declarations({})
    assert {cell for row in table[1:] for cell in row[-2:]} == {"not run", ""} and len(table) > 20
    assert all(row[-1] == row[1] for row in blocks.verdicts({})[0][1:])
    assert {row[1].split()[0] for row in blocks.summary({})[0][1:] if "faster" in row[0] or "slower" in row[0]} == {"0"}
    shown = [row for row in blocks.declarations(results)[0] if "*" in row[-2]]
    assert shown and "earlier form" in blocks.declarations(results)[1]


def test_a_loss_of_more_than_all_is_a_ratio():
    times = verdict.Verdict(verdict.NONE, verdict.Change(3.29, 0.28, 39.28), "less", 0.05)
    rate = verdict.Verdict(verdict.GAIN, verdict.Change(3.29, 2.9, 3.5), "more", 0.05)
    assert blocks._judged(times)[0] == "3.3 times as much (0.3 to 39.3)"
    assert blocks._judged(rate)[0] == "+229.0 % (+190.0 to +250.0)"


def test_missing_hardware_results_are_said(results):
    [text] = blocks.measured(results)
    hosts = [one for one in results.values() if one.instrument == "host"]
    assert ("No result from an EPYC or Sapphire Rapids host" in text) == (not hosts)


@pytest.mark.parametrize("name", blocks.BLOCKS)
def test_plain_text_fits_a_mail(results, name):
    """In a cover letter; and it has every word that Markdown has."""
    text = f"[begin {name}: make report]\n[end {name}]\n"
    lines = blocks.fill(text, "cover-letter.txt", results).splitlines()
    print(*lines, sep="\n")
    assert max(map(len, lines)) <= 76 and not any(line != line.rstrip() for line in lines)
    assert "`" not in "".join(lines) and "| " not in "".join(lines)


def test_all_features_are_there(results):
    rows = blocks.features(results)[0]
    assert [row[0].strip("`") for row in rows[1:]] == [one.name for one in FEATURES]


def test_knobs_are_those_of_the_patches():
    """docs/which-switch.md has the names, ranges and defaults of the kernel's documentation."""
    wanted = {}
    # A later patch may change one.
    for patch in (PATCHES / "6.12/series").read_text().split():
        text = (PATCHES / "6.12" / patch).read_text().replace("``", "`")
        wanted |= {name: rest for name, *rest in re.findall(
            r"^\+`(\w+)` \(([^;\n]+); (\S+)\)$", text, re.M)}
    section = (ROOT / "docs/which-switch.md").read_text().partition("\n## Knobs\n")[2].partition("\n## ")[0]
    print(wanted)
    found = {name: rest for name, *rest in re.findall(r"^\| `(\w+)` \| ([^|]+) \| (\S+) \|", section, re.M)}
    assert wanted and found == wanted


def test_bit_whose_cost_was_not_measured():
    """It has a row that says so; every bit has one."""
    path = ROOT / "results/two-ccx/cost.json"
    result = verdict.judged(store.load(path))
    del result.subjects["SCHED_CACHE_WAKE"], result.values["SCHED_CACHE_WAKE"]
    table = blocks.BLOCKS["cost-features"]({path: result})[0]
    assert [row[0] for row in table[1:]] == ["no feature", *(f"`{one.name}`" for one in FEATURES)]
    [row] = [row for row in table if row[0] == "`SCHED_CACHE_WAKE`"]
    assert set(row[1:]) == {"not measured"}
    [row] = [row for row in table if row[0] == "`SCHED_CACHE`"]
    assert all("%" in cell for cell in row[1:])
    assert blocks.BLOCKS["cost-features"]({}) == ["Not measured."]


def test_missing_column_of_the_cost_table(tmp_path):
    """A declared column that a result lacks is an error, and not a narrower table."""
    path = ROOT / "results/two-ccx/cost.json"
    result = store.load(path)

    def table():
        return blocks.BLOCKS["cost-mainline"]({path: verdict.judged(result)})
    assert table()[0][0] == ["operation", "7.3", "built in, off", "on"]
    del result.subjects["7.3 on"], result.values["7.3 on"]
    with pytest.raises(Error, match="no column 7.3 on"):
        table()
    for subject in ("7.3 off", "7.3/nocache"):
        del result.subjects[subject], result.values[subject]
    assert table() == ["Not measured."]
