# SPDX-License-Identifier: GPL-2.0-only
"""make cases without guests: its table, what must hold, and when it holds, fails, or is not told."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from here import call
from kit import settings
from kit.paths import GUEST
from kit.process import Error
from kit.trials import cases, peers
from kit.vm import initramfs, machine


def test_each_case_is_one_that_the_program_knows():
    source = (GUEST / "cases/main.c").read_text()
    kinds = {name: int(count) for name, count in re.findall(r'\{ "([\w-]+)", (\d), \w+, "', source)}
    assert len(kinds) > 10
    used = set()
    for run in [*(case.run for case in cases.load()), *peers.PROGRAMS.values()]:
        kind, *arguments = run.split()
        assert kinds[kind] == len(arguments), run
        used.add(kind)
    assert used == set(kinds)


def test_each_figure_is_one_that_the_case_prints():
    text = "".join(path.read_text() for path in (GUEST / "cases").glob("*.c"))
    functions = dict(re.findall(r'\{ "([\w-]+)", \d, (\w+), "', text))
    for case in cases.load():
        body = re.search(rf"^void {functions[case.run.split()[0]]}\(void\)\n{{(.*?)^}}", text, re.M | re.S)[1]
        for limit in case.must:
            assert f'figure("{limit.figure}"' in body, (case.name, limit.figure)


# One of each kind that needs no privilege and no cgroup; those run in the guest of test_boot.py, or by hand.
SMALL = ("frame 2 2 16", "collector 2 2 50 10", "pool 1 2 1 2", "instances 2 1 1 2", "barriers 2 1 0", "model 2 4 anon",
         "hackbench 1 2 threads", "hackbench 1 1 processes", "pipes 1 1 threads", "requests 2 1 0.5 processes",
         "periodic 1 1 0 0", "stages 2 1", "lock 2 0.2 1", "spin 2", "batch 1 1 20 batch", "build 1 5 1",
         "mixed 2 1 2 50")


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/cpu0/cache/index3").exists(), reason="no L3 is known here")
def test_the_program_measures_what_it_is_asked_for(tmp_path):
    """On this host: each case ends well, and prints finite figures, however busy the host is."""
    program = initramfs.compiled(GUEST / "cases", tmp_path)
    with ThreadPoolExecutor(4) as pool:
        done = dict(zip(SMALL, pool.map(lambda words: call(program, "1000", *words.split()), SMALL)))
    assert not {words: one.stderr for words, one in done.items() if one.returncode}
    for words, one in done.items():
        [figures] = [line for line in one.stdout.splitlines() if line.startswith('# {"figure": "case"')]
        assert "nan" not in figures and "inf" not in figures, words


def test_an_unknown_word_is_refused(tmp_path):
    program = initramfs.compiled(GUEST / "cases", tmp_path)
    done = call(program, "100", *"model 2 4 rubbish".split())
    assert done.returncode == 2 and not done.stdout


@pytest.mark.parametrize("text, state, against, excess", [
    ("p99 at most 1.05 off + 0.5", 2.0, 1.0, 0.45),
    ("p99 at most 2 off", 2.0, 1.0, 0.0),
    ("requests at least 0.9 off", 80, 100, 10),
    ("gap at most 20", 25, 400, 5),
    ("together at least 90", 100, 0, -10),
])
def test_how_far_a_figure_is_beyond_what_must_hold(text, state, against, excess):
    assert cases.must(text).excess(state, against) == pytest.approx(excess)


@pytest.mark.parametrize("text", ["p99 at most", "p99 below 3", "at most 3", "p99 at most 3 + 1", "p99 at most off"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ValueError):
        cases.must(text)


def values(state, against):
    return {"state": {nr: [one, one] for nr, one in enumerate(state, 1)},
            "against": {nr: [one, one] for nr, one in enumerate(against, 1)}}


@pytest.mark.parametrize("state, word", [
    ([10.0, 10.1, 9.9], cases.HOLDS),
    ([13.0, 13.1, 12.9], cases.FAILS),
    ([10.0, 14.0, 12.0], cases.OPEN),
    # One round does not tell.
    ([10.0], cases.OPEN),
    ([99.0], cases.OPEN),
])
def test_a_comparison_holds_or_fails_only_if_all_rounds_say_so(state, word):
    limit = cases.must("p99 at most 1.2 off")
    assert cases.judge(limit, values(state, [10.0] * len(state)), len(state))[0] == word


@pytest.mark.parametrize("state, word", [([1.6], cases.HOLDS), ([21.0], cases.FAILS), ([1.6] * 9 + [400.0], cases.FAILS)])
def test_one_run_beyond_a_number_is_a_failure(state, word):
    assert cases.judge(cases.must("gap at most 20"), values(state, [0.0] * len(state)), len(state))[0] == word


def test_nothing_is_compared_with_nothing():
    with pytest.raises(Error, match="rounds is 0 without, in round 2"):
        cases.judge(cases.must("rounds at least 0.95 off"), values([3.0, 0.0], [3.0, 0.0]), 2)


def test_what_was_not_measured_is_no_result():
    [case] = [one for one in cases.load() if one.name == "cookies"]
    figures = {"case": [{"figure": "case", "case": "cookies", "state": state, "round": 1, "cpus": cpus}
                        for state, cpus in (("against", 9), ("state", 9), ("state", float("nan")), ("against", 9))]}
    with pytest.raises(Error, match="least was not measured"):
        cases.judge(case.must[1], cases.parse(figures)["cookies"]["least"], 1)
    table, wrong = cases.rows([case], cases.parse(figures), 1)
    assert not table and wrong == ["cookies: cpus was not measured in round 1", "cookies: least was not measured in round 1"]
    figures["case"][2]["cpus"] = 8.9
    table, wrong = cases.rows([case], cases.parse(figures), 1)
    assert [row[2] for row in table] == [cases.OPEN] and len(wrong) == 1
    assert "| `cookies 3 3` | cpus >= 0.97 off | 8.95 | 9 | -0.22 to -0.22 | open |" in cases.page(table)


@pytest.mark.parametrize("row, error", [
    ('name = "a"\nrun = "cookies 1 1"\nreports = "x"\nmust = []', "a: has"),
    ('name = "a"\nrun = "cookies 1 1"\nreports = "x"\nmust = ["cpus is 3"]', "'cpus is 3' is not FIGURE"),
    ('name = "a"\nrun = "cookies 1 1"\nmust = ["cpus at least 3"]', "a: has"),
    ('name = "a"\nrun = "cookies 1 1"\nreports = "x"\nmust = ["cpus at least 3"]\nrounds = 3', "a: has"),
    ('name = "a"\nrun = "cookies 1 1"\nreports = "x"\nmust = ["cpus at least 3"]\nmachine = "two-ccx"',
     "a: two-ccx is no machine of the simulation"),
])
def test_a_wrong_table_is_refused(tmp_path, row, error):
    (tmp_path / "cases.toml").write_text(f"[[case]]\n{row}\n")
    with pytest.raises(Error, match=re.escape(error)):
        cases.load(tmp_path / "cases.toml")


def test_cases_are_those_of_the_machine_and_of_the_setting():
    table, m = cases.load(), machine.load("two-ccx")
    names = [case.name for case in cases.chosen(table, m, ())]
    assert "model-4-file" in names and "model-8-file" not in names
    assert [case.name for case in cases.chosen(table, m, ("quota",))] == ["quota"]
    assert "starts-8" not in names
    assert [case.name for case in cases.chosen(table, machine.load("epyc-1x8x8"), ())] == ["starts-8", "starts-full"]
    with pytest.raises(Error, match="CASES=nonsense: no case for two-ccx; there are: frame-busy"):
        cases.chosen(table, m, ("nonsense",))


def test_most_simulated_machines_have_no_case():
    with pytest.raises(Error, match="no case is for epyc-milan"):
        cases.chosen(cases.load(), machine.load("epyc-milan"), ())


def test_a_machine_of_one_llc_has_nothing_to_choose():
    with pytest.raises(Error, match="one-llc has one LLC"):
        cases.command(settings.read("cases", {"MACHINE": "one-llc"}))


def test_a_kernel_without_features_has_nothing_to_compare():
    with pytest.raises(Error, match="no features"):
        cases.command(settings.read("cases", {"BUILD": "base"}))
