# SPDX-License-Identifier: GPL-2.0-only
"""make report: the statistics behind its verdicts, and the page with its tables and plots."""

import re

import numpy
import pytest

from kit.bench import report, results, stats, summary
from kit.paths import LAYOUT, ROOT
from kit.run import Error

PASSES = 10


@pytest.fixture
def quick(monkeypatch):
    """Fewer draws for each interval, where there are thousands of them."""
    monkeypatch.setattr(stats, "RESAMPLES", 499)


def noise(random, count=PASSES, cv=0.01):
    """Figures of a host: with a long tail upwards, as of times."""
    return 100 * numpy.exp(cv * (random.standard_normal(count) + random.exponential(0.5, count)))


# ---- statistics ----

def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.9, 0.9]) == [1.0, 1.0] and stats.holm([]) == []


def test_gain_is_what_is_better():
    """49 s to 34 s is 31 % better, and from 34 to 49 it is 44 % worse; 100 to 130 a second is 30 %
    better."""
    assert stats.gain(34 / 49, "less") == pytest.approx(0.306, abs=0.001)
    assert stats.gain(49 / 34, "less") == pytest.approx(-0.441, abs=0.001)
    assert stats.gain(1.3, "more") == pytest.approx(0.3)
    assert stats.gain(0.7, "more") == pytest.approx(-0.3)


@pytest.mark.parametrize("better, factor, verdict", [
    ("less", 0.9, stats.GAIN), ("less", 1.1, stats.LOSS), ("more", 0.9, stats.LOSS),
    ("more", 1.1, stats.GAIN), ("less", 1.0, stats.NONE)])
def test_verdicts(better, factor, verdict):
    random = numpy.random.default_rng(7)
    [found] = stats.compare([(better, noise(random), factor * noise(random), 0.02)])
    print(found)
    assert found.verdict == verdict
    assert found.low <= found.gain <= found.high


def test_no_verdict_inside_the_floor():
    """However sure it is: the same kernel in the same state differs as much."""
    base = numpy.linspace(100, 100.1, PASSES)
    assert stats.compare([("less", base, 1.02 * base, 0.019)])[0].verdict == stats.LOSS
    [found] = stats.compare([("less", base, 1.02 * base, 0.021)])
    assert found.verdict == stats.NONE and found.reason == "inside the A/A floor"
    [found] = stats.compare([("less", base, 1.02 * base, None)])
    assert found.verdict == stats.NONE and found.reason == "no A/A control"


def test_what_cannot_be_compared():
    assert stats.compare([("less", [1.0], [1.0, 2.0], 0.1),
                          ("less", [0.0, 1.0], [1.0, 1.0], 0.1)]) == [None, None]
    [found] = stats.compare([("less", [1.0] * 9, [1.0] * 9, 0.0)])
    assert found.verdict == stats.NONE and found.p == 1


def judged_at_random(random, effect=1.0, subjects=3, metrics=5):
    """The Comparisons of a run in which all states are the same, but for an effect on the first
    metric of the first. The host drifts by 2 %; passes go there and back."""
    def passes(position):
        drift = []
        for pair in range(PASSES // 2):
            at = 2 * (subjects + 2) * pair
            drift += [at + position, at + 2 * (subjects + 2) - 1 - position]
        return noise(random) * (1 + 0.02 * numpy.array(drift) / (PASSES * (subjects + 2)))
    cases = []
    for metric in range(metrics):
        base, control = passes(0), passes(1)
        floor = stats.floor(base, control)
        for subject in range(subjects):
            factor = effect if metric == subject == 0 else 1
            cases.append(("less", base, factor * passes(2 + subject), floor))
    return stats.compare(cases)


@pytest.mark.usefixtures("quick")
def test_chance_gets_no_verdict():
    """Where all states are the same, at most 5 % of the runs come to any verdict. By the
    uncorrected p alone it would have been a quarter of them: the test can fail."""
    random = numpy.random.default_rng(2)
    runs = 400
    wrong = tempted = 0
    for _ in range(runs):
        found = judged_at_random(random)
        wrong += any(one.verdict != stats.NONE for one in found)
        # What Holm's method made of it: the smallest p is times the number of them.
        tempted += min(one.p for one in found) / len(found) < 0.05
    print(f"{runs} runs of 15 comparisons: {wrong / runs:.1%} with a verdict, {tempted / runs:.0%} "
          "with some uncorrected p below 0.05")
    assert wrong / runs <= 0.05 < 0.15 < tempted / runs


@pytest.mark.usefixtures("quick")
def test_effects_are_found():
    """A gain of 4 % with 1 % of noise, and it is not lost among others that are none."""
    random = numpy.random.default_rng(3)
    verdicts = [judged_at_random(random, 0.96)[0].verdict for _ in range(100)]
    print({verdict: verdicts.count(verdict) for verdict in set(verdicts)})
    assert verdicts.count(stats.GAIN) >= 90 and stats.LOSS not in verdicts


@pytest.mark.usefixtures("quick")
def test_interval_holds_the_ratio():
    """In as many cases as it says, but for chance and a percent for so few values."""
    random = numpy.random.default_rng(4)
    cases = 1000
    inside = 0
    for _ in range(cases):
        low, high = stats.interval(noise(random), 1.1 * noise(random))
        inside += low <= 1.1 <= high
    print(inside / cases)
    assert inside / cases > stats.CONFIDENCE - 0.025


def test_interval_is_the_same_each_time():
    random = numpy.random.default_rng(5)
    base, other = noise(random), noise(random)
    assert stats.interval(base, other) == stats.interval(base, other)


# ---- results ----

def made(machine="m", release="k", boot="b", factor=1.0, control=True, seed=1, stack="-", **more):
    """A Result of a host: `gains` gets better by 10 % with the feature on, `loses` worse, `rests`
    neither."""
    random = numpy.random.default_rng(seed)
    metrics = {"gains": results.Metric("s", "less", "what gains"),
               "loses": results.Metric("1/s", "more", "what loses"),
               "rests": results.Metric("us", "less", "what rests")}
    subjects = {"off": results.Subject(release, "off", None)}
    if control:
        subjects["off again"] = results.Subject(release, "off", "off")
    subjects["ON"] = results.Subject(release, "ON", "off")
    values = {name: {metric: list(numpy.round(factor * noise(random, cv=0.002) * (
                         0.9 if name == "ON" and metric != "rests" else 1), 3))
                     for metric in metrics} for name in subjects}
    host = {"boot": boot, "governor": "performance", "mitigations": {"l1tf": "some"}, **more}
    repeat = {"command": "make bench-host", "commit": "c", "host": host,
              "left_out": {"perf/pipe": "perf is not installed"},
              "commands": {metric: f"run {metric}" for metric in metrics}}
    return results.Result("host", machine, repeat, {release: {"release": release, "stack": stack}},
                          metrics, subjects, values)


def test_control():
    assert results.control(made(), "off") == "off again"
    assert results.control(made(control=False), "off") is None


def test_judge():
    judged = summary.judge(made())
    assert {metric: one.verdict for metric, one in judged["ON"].items()} == {
        "gains": stats.GAIN, "loses": stats.LOSS, "rests": stats.NONE}
    assert list(judged) == ["ON"]
    unknown = summary.judge(made(control=False))["ON"]
    assert {one.verdict for one in unknown.values()} == {stats.NONE}


def test_tables_as_on_lkml():
    result = made()
    judged = summary.judge(result)
    head, *rows = summary.rows(result, judged, "ON")
    print("\n".join(report.text([head, *rows])))
    assert head[1:3] == ["baseline (std%)", "compare% (std%)"]
    assert re.fullmatch(r"100 s \(0\.\d\d\)", rows[0][1])
    assert re.fullmatch(r"\+(10|9)\.\d\d \(0\.\d\d\)", rows[0][2])
    assert [row[-1].split(" (")[0] for row in rows] == ["GAIN", "LOSS", "no verdict"]
    lines = summary.mail(result, judged)
    print("\n".join(lines))
    assert max(len(line) for line in lines) <= 80 and any("LOSS" in line for line in lines)


def test_losses_are_as_loud_as_gains():
    [line] = summary.sums(summary.judge(made()))
    print(line)
    assert re.fullmatch(r"ON: 1 LOSS, most -\S+ % \(loses\); 1 GAIN, most \+\S+ % \(gains\); no "
                        r"verdict on 1 of 3", line)


# ---- kernels compared ----

def boots(release, count, factor=1.0, stack="-", **more):
    return [made(release=release, boot=f"{release}{i}", factor=factor * (1 + 0.001 * i), seed=i,
                 stack=stack, **more) for i in range(count)]


def test_kernels_are_compared_by_boots():
    """Each boot is one value, of the state that others are compared with and of each feature."""
    whole = summary.across([*boots("6.12-stack", 8, 0.8, stack="t"), *boots("6.12-base", 8)])
    assert list(whole.kernels) == ["6.12-base", "6.12-stack"]
    assert list(whole.subjects) == ["6.12-base off", "6.12-stack off", "6.12-stack ON"]
    assert len(whole.values["6.12-stack ON"]["rests"]) == 8
    judged = summary.judge(whole)
    print(summary.sums(judged))
    assert judged["6.12-stack off"]["rests"].verdict == stats.GAIN
    assert judged["6.12-stack off"]["loses"].verdict == stats.LOSS


def test_few_boots_tell_nothing():
    """Two of each cannot, by however much they differ; and one has no floor."""
    for count in (1, 2):
        whole = summary.across([*boots("b", count), *boots("s", count, 0.5, stack="t")])
        assert not [one for rows in summary.judge(whole).values() for one in rows.values()
                    if one.verdict != stats.NONE]


def test_runs_of_one_boot_are_one_value():
    again = made(release="s", boot="same", seed=9)
    whole = summary.across([made(release="b"), again, made(release="s", boot="same")])
    assert len(whole.values["s off"]["gains"]) == 1


def test_other_commands_are_not_compared():
    other = made(release="s")
    other.repeat["commands"]["gains"] = "run gains longer"
    whole = summary.across([made(release="b"), other])
    assert "gains" not in whole.values["s off"] and "loses" in whole.values["s off"]
    assert whole.repeat["left_out"] == {"gains": "not run by the same command each time"}


def test_base_by_name(tmp_path):
    runs = [made(release="a"), made(release="b")]
    assert next(iter(summary.across(runs, "b").subjects)) == "b off"
    assert summary.across(runs[:1]) is None
    save(tmp_path, *runs, made("other", release="d"), made("other", release="e"))
    summary.write(tmp_path, "b")
    with pytest.raises(Error, match="BASE=c: no results of that kernel"):
        summary.write(tmp_path, "c")


def test_hosts_set_up_differently():
    lines = summary.differences([made(boot="1"), made(boot="2"), made(governor="powersave")])
    assert lines == ["governor was not always the same: performance; powersave"]


# ---- the page ----

def save(directory, *runs):
    for i, run in enumerate(runs):
        results.save(run, directory / run.machine / f"host-{i}.json")


def test_page(tmp_path):
    save(tmp_path, made("one"),
         *(made("two", release=release, boot=f"{release}{boot}", seed=boot, stack=stack)
           for release, stack in (("k", "-"), ("s", "t")) for boot in (1, 2)))
    written = summary.write(tmp_path)
    page = (tmp_path / "README.md").read_text()
    print(page)
    assert {str(path.relative_to(tmp_path)) for path in written} == {
        "README.md", "tables.txt", "one/host-0.svg", *(f"two/host-{i}.svg" for i in (1, 2, 3, 4)),
        "two/boots.svg"}
    for words in ("## one", "## two", "### Kernels compared", "make bench-host",
                  "mitigations: l1tf: some", "not measured: perf/pipe: perf is not installed",
                  "![intervals](one/host-0.svg)",
                  "| case | baseline (std%) | compare% (std%) |", "run loses", "1 LOSS"):
        assert words in page, words
    assert "loses" in (tmp_path / "tables.txt").read_text()


def test_page_of_what_is_compared_with_nothing(tmp_path):
    """A kernel that was measured as it is, and two kernels with one boot each: medians only."""
    alone = made()
    for name in ("off again", "ON"):
        del alone.subjects[name], alone.values[name]
    save(tmp_path, alone, made(release="s", stack="t"))
    summary.write(tmp_path)
    page = (tmp_path / "README.md").read_text()
    print(page)
    assert not (tmp_path / "m/host-0.svg").exists() and not (tmp_path / "m/boots.svg").exists()
    assert page.count("There are too few values to compare, or nothing to compare with.") == 2
    assert re.search(r"\| gains \(s\) \| 10[01] \(0\.\d\d\) \|\n", page)
    assert re.search(r"\| gains \(s\) \| 10[01] \(-\) \| 10[01] \(-\) \| 9[\d.]* \(-\) \|\n", page)


def test_page_is_the_same_each_time(tmp_path):
    """With the plots, to the last byte."""
    found = []
    for name in ("one", "two"):
        save(tmp_path / name, made("m"), made("m", release="s", stack="t", seed=2))
        found.append({path.name: path.read_bytes() for path in summary.write(tmp_path / name)})
    assert found[0] == found[1]
    svg = found[0]["host-0.svg"].decode()
    print(f"{len(svg)} bytes")
    assert len(svg) < 40_000 and "loses" in svg
    assert not re.search(r"20\d\d-\d\d-\d\d|<dc:date>", svg)


def test_other_instruments_have_the_same_tables(tmp_path):
    """What does not come from a host has no facts of one, and perhaps no commands."""
    result = made("sim")
    result.instrument, result.repeat = "sim", {"command": "make sim", "commit": "c"}
    save(tmp_path, result)
    summary.write(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "By `make sim`" in page and "LOSS" in page


def test_simulations_are_put_together(tmp_path):
    """Those of the same kernels and states in a table, of each workload its own figure only; and
    those of another kernel in another."""
    for file, figure, release in (("sim-a", "gains", "k"), ("sim-b", "loses", "k"),
                                  ("sim-c", "loses", "other"), ("sim-z", "gains", "k")):
        result = made("m", release=release)
        result.instrument = f"sim-{figure}"
        result.repeat = {"command": f"make sim NAME={file}", "commit": "c", "seeds": 10,
                         "qemu": "10.0.2", "workload": f"{file}:1".replace("z", "a"),
                         "seconds": 600}
        results.save(result, tmp_path / "m" / f"{file}.json")
    written = {path.name for path in summary.write(tmp_path)}
    page = (tmp_path / "README.md").read_text()
    print(page)
    assert {"sim-0.svg", "sim-1.svg"} <= written and page.count("| case |") == 2
    assert [page.count(f"\n| sim-{name}:1 |") for name in "abc"] == [1, 1, 1]
    # The same workload once more.
    assert page.count("\n| sim-a:1 (sim-z) |") == 1
    assert "[sim-a](m/sim-a.md), [sim-b](m/sim-b.md), [sim-z]" in page and "10 minutes" in page
    assert "rests" not in page and "make sim NAME=sim-b\n" in page


def test_no_results(tmp_path):
    with pytest.raises(Error, match="no results in"):
        summary.write(tmp_path)


def test_committed_page_is_that_of_the_committed_results(tmp_path):
    """make report was run after results/ had changed."""
    for path in sorted((ROOT / "results").glob("*/*.json")):
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    summary.write(tmp_path)

    def page(directory):
        """Without the way from there to docs/, which it has only inside this repository."""
        return re.sub(r"\[(docs/measuring\.md)\]\([./]*\1\)", r"\1",
                      (directory / "README.md").read_text())

    assert page(ROOT / "results") == page(tmp_path)
    assert (ROOT / "results/tables.txt").read_text() == (tmp_path / "tables.txt").read_text()


# ---- what README and the cover letter quote ----

def cost_rows():
    """The rows of the committed tables of bench-cost as texts of figures, without what cannot be
    quoted: "-" and the spread."""
    from kit.bench import cost
    rows = []
    for path in sorted((ROOT / "results").glob("*/cost.json")):
        for _, table in cost.tables(results.load(path)):
            rows += [row[1:] for row in table[1:]]
    return rows


def is_quoted(figures, rows):
    """Whether all figures are in one of the rows, in that order."""
    for row in rows:
        cells = iter(row)
        if all(figure in cells for figure in figures):
            return True
    return False


def test_readme_quotes_the_results():
    """The table of costs, cell by cell."""
    text = (ROOT / "README.md").read_text()
    begin = text.index("| | without | all off | `TTWU_QUEUE_L2`")
    end = text.index("All rows, and memory: [results/")
    quoted = [[cell.strip() for cell in line.split("|")[2:-1]]
              for line in text[begin:end].splitlines()[2:] if line]
    rows = cost_rows()
    wrong = [figures for figures in quoted if not is_quoted(figures, rows)]
    print(f"{len(quoted)} rows")
    assert len(quoted) > 5 and wrong == []
    assert not is_quoted(["8757", "-0.04 ±0.14 %"], rows)


def test_cover_letter_quotes_the_results():
    """Its tables of costs, which have the changes without their intervals."""
    text = (LAYOUT.patches / "cover-letter.txt").read_text()
    tables = re.findall(r"^ +base +off .*\n((?: .*%\n)+)", text, re.M)
    rows = [[re.sub(r" ±.*", "%", cell) for cell in row] for row in cost_rows()]
    quoted = [re.findall(r"(?<=\s)(?:[+-]\d+\.\d+%|\d{4,})", line)
              for table in tables for line in table.splitlines()]
    wrong = [figures for figures in quoted if not is_quoted(figures, rows)]
    print(*quoted, sep="\n")
    assert len(tables) == 2 and len(quoted) > 10 and set(map(len, quoted)) == {5} and wrong == []


def simulated():
    """What the committed page says of simulations of one machine: {(section, case): (compare%, from,
    to, verdict)}. A section is the subject and what it is compared with."""
    found, section, here = {}, None, False
    for line in (ROOT / "results/README.md").read_text().splitlines():
        if line.startswith("## "):
            here = line == "## epyc-2x2x8"
        if match := re.fullmatch(r"\*\*(.*)\*\* against (.*)", line):
            section = match[0]
        row = [cell.strip() for cell in line.split("|")[1:-1]]
        if here and len(row) == 7 and (interval := re.fullmatch(r"(\S+) to (\S+)", row[3])):
            assert (section, row[0]) not in found, "measured twice"
            found[section, row[0]] = (row[2].split()[0], *interval.groups(), row[6].split(" (")[0])
    return found


def quoted_rows(text):
    """The rows of a table of simulations: [(case, what is said of ours, of mainline's)]."""
    begin = text.index("| | | `SCHED_CACHE` | mainline 7.3.4 |")
    table = text[begin:text.index("\n\n", begin)].splitlines()[2:]
    return [(row[1].strip("` "), row[2].strip(), row[3].strip()) for row in
            ([cell.strip() for cell in line.split("|")[1:-1]] for line in table)]


def said(row):
    """How such a table quotes a row of simulated()."""
    compare, low, high, verdict = row
    change, low, high = (f"{float(x):+.1f}" for x in (compare, low, high))
    return f"{change} % ({low} to {high}) {verdict}"


OURS = "**stack features=SCHED_CACHE** against stack features=NO_SCHED_CACHE"
MAINLINE = "**7.3 llc_balancing/enabled=1** against 7.3 llc_balancing/enabled=0"


def test_measuring_quotes_the_simulations():
    """All of cache-aware scheduling that is in results/, and nothing else."""
    rows, page = quoted_rows((ROOT / "docs/measuring.md").read_text()), simulated()
    print(*rows, sep="\n")
    for case, *quotes in rows:
        expected = [said(page[section, case]) if (section, case) in page else "not run"
                    for section in (OURS, MAINLINE)]
        assert quotes == expected, case
    assert {case for case, *_ in rows} == {case for section, case in page if section in (OURS, MAINLINE)}


def test_readme_quotes_a_simulation():
    """Of the processes that share memory, in whole percents."""
    text = " ".join((ROOT / "README.md").read_text().split())
    quoted = re.search(r"are (\d+) % faster with `SCHED_CACHE` \(95 %: (\d+) to (\d+)\), and (\d+) % with "
                       r"mainline 7.3.4's cache-aware scheduling \((\d+) to (\d+)\)", text).groups()
    page, case = simulated(), "sharing:4:6:512:150:30"
    assert page[OURS, case][-1] == page[MAINLINE, case][-1] == "GAIN"
    expected = [f"{float(x):.0f}" for section in (OURS, MAINLINE) for x in page[section, case][:3]]
    print(quoted)
    assert list(quoted) == expected


def test_cover_letter_quotes_the_simulations():
    """Each pair of figures is that of a case, with the verdicts in the line below."""
    text = (LAYOUT.patches / "cover-letter.txt").read_text()
    figure, verdict = r"([+-][\d.]+)% (\(.*?\))", "(GAIN|LOSS|-)"
    quoted = {(f"{a} % {b} {c}", f"{d} % {e} {f}") for a, b, d, e, c, f in
              re.findall(rf"^ +{figure} +{figure}\n +{verdict} +{verdict}$", text, re.M)}
    page = simulated()
    expected = {tuple(said(page[section, case]).replace("no verdict", "-") for section in (OURS, MAINLINE))
                for section, case in page if section == OURS and (MAINLINE, case) in page}
    print(*quoted, sep="\n")
    ends = len(re.findall(r" (?:GAIN|LOSS|-)$", text, re.M))
    assert len(quoted) == ends >= 4 and quoted <= expected
