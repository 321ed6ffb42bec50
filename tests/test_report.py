# SPDX-License-Identifier: GPL-2.0-only
"""make report: the page with its verdicts and tables. The rule is tested by test_verdict.py."""

import os
import re
import sys

import numpy
import pytest

from here import call
from kit.pages import report
from kit.paths import ROOT
from kit.process import Error, git
from kit.results import store, tables, verdict

PASSES = 10


def noise(random, count=PASSES, cv=0.01):
    """Figures of a host: with a long tail upwards, as of times."""
    return 100 * numpy.exp(cv * (random.standard_normal(count) + random.exponential(0.5, count)))


# ---- results ----

def made(machine="m", release="k", control=True, stack="-"):
    """A Result of a host: `gains` gets better by 10 % with the feature on, `loses` worse, `rests`
    neither."""
    random = numpy.random.default_rng(1)
    metrics = {"gains": store.Metric("s", "less", "what gains"),
               "loses": store.Metric("1/s", "more", "what loses"),
               "rests": store.Metric("us", "less", "what rests")}
    subjects = {"off": store.Subject(release, "off", None)}
    if control:
        subjects["off again"] = store.Subject(release, "off", "off")
    subjects["ON"] = store.Subject(release, "ON", "off")
    values = {name: {metric: list(numpy.round(noise(random, cv=0.002) * (
                         0.9 if name == "ON" and metric != "rests" else 1), 3))
                     for metric in metrics} for name in subjects}
    host = {"boot": "b", "governor": "performance", "mitigations": {"l1tf": "some"}}
    repeat = {"command": "make bench-host", "commit": "c", "host": host,
              "left_out": {"perf/pipe": "perf is not installed"},
              "commands": {metric: f"run {metric}" for metric in metrics}}
    return store.Result("host", machine, repeat, {release: {"release": release, "stack": stack}},
                          metrics, subjects, values)


def test_judge():
    judged = verdict.of(made())
    assert {metric: one.word for metric, one in judged["ON"].items()} == {
        "gains": verdict.GAIN, "loses": verdict.LOSS, "rests": verdict.EQUIVALENT}
    assert list(judged) == ["ON"]
    gains = judged["ON"]["gains"]
    assert gains.change.n == (2 * PASSES, PASSES) and gains.drift.n == (PASSES, PASSES)
    alone = verdict.of(made(control=False))["ON"]["gains"]
    assert alone.word == verdict.GAIN and alone.change.n == (PASSES, PASSES) and alone.drift is None


def test_primary_metrics_are_declared():
    """The others are shown without a verdict, and what was declared is judged as if they were not
    there; without a declaration all are."""
    result = made()
    result.repeat["primary"] = ["loses"]
    judged = verdict.of(result)["ON"]
    assert [one.word for one in judged.values()] == [verdict.SECONDARY, verdict.LOSS,
                                                     verdict.SECONDARY]
    del result.metrics["gains"], result.metrics["rests"], result.repeat["primary"]
    for values in result.values.values():
        del values["gains"], values["rests"]
    assert verdict.of(result)["ON"]["loses"] == judged["loses"]
    [line] = tables.sums({"ON": judged})
    assert line.endswith("no verdict on 0 of 1")


def test_windows_of_one_boot_are_compared_by_seed():
    """As of make sim ABBA=1: what seeds differ in does not widen the interval, and nothing is left out."""
    random = numpy.random.default_rng(1)
    seeds = noise(random, cv=0.3)
    result = made(control=False)
    result.values = {name: {metric: list(scale * seeds * noise(random, cv=0.002) / 100)
                            for metric in result.metrics} for name, scale in (("off", 1), ("ON", 0.9))}
    assert verdict.of(result)["ON"]["gains"].word == verdict.NONE
    result.repeat["window_ms"] = 300
    found = verdict.of(result)["ON"]["gains"]
    assert found.word == verdict.GAIN and found.change.method == "paired t"
    result.values["ON"]["gains"][0] *= 1.5
    assert verdict.of(result)["ON"]["gains"].change.left_out == 0


def test_primary_metrics_of_a_subject():
    """Each subject can have its own."""
    result = made()
    result.repeat |= {"primary": ["gains", "loses"], "primary_of": {"ON": ["rests"]}}
    words = [one.word for one in verdict.of(result)["ON"].values()]
    assert words == [verdict.SECONDARY, verdict.SECONDARY, verdict.EQUIVALENT]
    result.repeat["primary_of"]["ON"] = []
    assert {one.word for one in verdict.of(result)["ON"].values()} == {verdict.SECONDARY}


def test_primary_metrics_of_results_that_declare_none():
    result = made()
    assert store.primary(result) == ["gains", "loses", "rests"]
    result.instrument = "sim-loses"
    assert store.primary(result) == ["loses"]
    result.instrument = "cost"
    result.metrics["loses+ticks"] = result.metrics["loses"]
    assert store.primary(result) == ["gains", "loses", "rests"]


def test_losses_are_as_loud_as_gains():
    [line] = tables.sums(verdict.of(made()))
    print(line)
    assert re.fullmatch(r"ON: 1 LOSS, most -\S+ % \(loses\); 1 GAIN, most \+\S+ % \(gains\); 1 "
                        r"EQUIVALENT within 5 %; no verdict on 0 of 3", line)


# ---- the page ----

def test_commit_is_dirty_by_sources_only(tmp_path):
    """The first row of sim-all writes results and pages; the second one runs the same sources."""
    names = ("kit/a.py", "results/a.json", "docs/a.md", "README.md", "patches/6.12/cover-letter.txt",
             "patches/6.12/a.patch")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    # A downloaded archive may be unpacked within another repository.
    assert store.commit(tmp_path) == "unknown"
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=n", "-c", "user.email=e@e", "commit", "-m", "m")
    clean = store.commit(tmp_path)
    for name in names:
        (tmp_path / name).write_text("2\n")
        made = name not in ("kit/a.py", "patches/6.12/a.patch")
        assert store.commit(tmp_path) == clean + ("" if made else "-dirty"), name
        (tmp_path / name).write_text("1\n")
    (tmp_path / "new").write_text("1\n")
    assert store.commit(tmp_path) == clean


def save(directory, *runs):
    for i, run in enumerate(runs):
        store.save(run, directory / run.machine / f"host-{i}.json")


def test_page(tmp_path):
    save(tmp_path, made("one"), made("two", release="s", stack="t"))
    assert report.write(tmp_path) == [tmp_path / "all.md"]
    page = (tmp_path / "all.md").read_text()
    print(page)
    for words in ("## one", "## two", "make bench-host",
                  "mitigations: l1tf: some", "not measured: perf/pipe: perf is not installed",
                  "| case | baseline (std%) | compare% (std%) |", "run loses", "1 LOSS"):
        assert words in page, words


def test_page_of_what_is_compared_with_nothing(tmp_path):
    """A kernel that was measured as it is: medians only."""
    alone = made()
    for name in ("off again", "ON"):
        del alone.subjects[name], alone.values[name]
    save(tmp_path, alone)
    report.write(tmp_path)
    page = (tmp_path / "all.md").read_text()
    print(page)
    assert "There are too few values to compare, or nothing to compare with." in page
    assert re.search(r"\| gains \(s\) \| 10[01] \(0\.\d\d\) \|\n", page)


# What an old processor lacks: to the C library, to numpy, and to its linear algebra.
OLD = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2", "OPENBLAS_CORETYPE": "Prescott",
       "NPY_DISABLE_CPU_FEATURES": "FMA3 AVX2 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"}


def test_pages_are_the_same_on_every_processor(tmp_path):
    """Here and on an old one, which gets another last digit of some logarithms. Values in another order have
    a change of zero, up to that digit; and 0.125 % is just between two figures."""
    random = numpy.random.default_rng(1)
    result = made()
    for number in range(20):
        values, metric = [int(x) for x in random.integers(700, 900, 4 + number)], f"order {number}"
        result.metrics[metric] = store.Metric("s", "less", metric)
        for subject in result.subjects:
            result.values[subject][metric] = [int(x) for x in random.permutation(values)]
        result.metrics[f"{metric}, more"] = store.Metric("s", "less", metric)
        for subject in result.subjects:
            result.values[subject][f"{metric}, more"] = [800 + (subject == "ON")] * (4 + number)
    found = []
    for name, features in (("here", {}), ("old", OLD)):
        save(tmp_path / name, result)
        call(sys.executable, "-c", "import sys; from kit.pages import report; report.write(sys.argv[1])",
             tmp_path / name, cwd=ROOT, env=os.environ | features, check=True)
        found.append((tmp_path / name / report.PAGE).read_text())
    assert found[0] == found[1]


def test_no_results(tmp_path):
    with pytest.raises(Error, match="no results in"):
        report.write(tmp_path)


def test_committed_page_is_that_of_the_committed_results(tmp_path):
    """make report was run after results/ had changed."""
    for path in sorted((ROOT / "results").glob("*/*.json")):
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    (tmp_path / report.NOTES).write_text("")
    report.write(tmp_path)

    def page(directory):
        """Without the way from there to docs/, which it has only inside this repository."""
        return re.sub(r"\[(docs/[\w-]+\.md)\]\([./]*\1\)", r"\1",
                      (directory / "all.md").read_text())

    assert page(ROOT / "results") == page(tmp_path)
    for path in (ROOT / "results").glob("*/*.md"):
        assert path.read_text() == (tmp_path / path.parent.name / path.name).read_text(), path
