# SPDX-License-Identifier: GPL-2.0-only
"""make bench-cost: what it measures, the format of results, statistics, tables, and that the guest
gives the same figures again. The figures themselves are no test's business."""

import math
import threading

import numpy
import pytest

from kit import kernel, machine
from kit.bench import cost, profile, report, results, stats
from kit.run import Error

TWO = machine.load("two-ccx")
ONE = machine.load("one-llc")
# A cheap operation, measured for a moment.
TINY = cost.Size(layouts=1, ms=2, processes=10, memory_mib=1024)


def made(values, **more):
    """A Result of one metric on a base and two columns."""
    subjects = {"base": results.Subject("k", "base", None),
                "off": results.Subject("k", "off", "base"),
                "on": results.Subject("k", "on", "base")}
    return results.Result("cost", "m", {"command": "c"}, {"k": {}},
                          {"pipe": results.Metric("instructions", "less", "a pipe")},
                          subjects, {name: {"pipe": numbers} for name, numbers in values.items()},
                          **more)


# ---- what is measured ----

def names(m):
    return {row.name for boot in cost.boots(m, cost.FULL) for row in boot.rows}


def test_rows_are_what_the_machine_has():
    """A distance that a machine does not have has no row."""
    print(*sorted(names(TWO)))
    gone = {f"{operation}/{place}" for operation in ("pipe", "thread-pipe", "futex")
            for place in ("one-LLC", "two-LLCs")}
    assert names(TWO) - names(ONE) == gone
    commands = {row.name: row.command for boot in cost.boots(TWO, cost.FULL) for row in boot.rows}
    assert [commands[f"pipe/{place}"].split(":")[3] for place in
            ("one-CPU", "one-group", "one-LLC", "two-LLCs")] == ["0", "1", "2", "8"]
    assert commands["hot-unplug"].split(":")[3] == "15"


def test_columns():
    """The stack is compared with the base, mainline with itself without the feature."""
    against = {state.column: state.against for build in ("base", "stack", "7.3-nocache", "7.3")
               for state in cost.states(build)}
    print(against)
    assert against.pop("base") is None and against.pop("7.3-nocache") is None
    assert against.pop("7.3 on") == against.pop("7.3 off") == "7.3-nocache"
    assert set(against.values()) == {"base"} and {"off", "SIS_FAST"} <= set(against)
    on = next(state for state in cost.states("stack") if state.column == "SIS_FAST")
    assert on.writes.endswith(",features=SIS_FAST") and "features=NO_TTWU_QUEUE_L2," in on.writes


def test_collect(monkeypatch):
    """What the boots give comes together by column and metric, each figure by its name."""
    monkeypatch.setattr(cost, "identity", lambda build: {})

    def measure(m, build, boot, size, state, stop):
        return {row.name: [(len(build), number) for number in range(3)] for row in boot.rows}
    monkeypatch.setattr(cost, "measure", measure)
    result = cost.collect(TWO, ["base", "stack"], cost.FULL, {})
    assert results.problems(result) == []
    assert result.values["off"]["pipe/one-CPU"] == [5, 5, 5]
    assert result.values["off"]["pipe/one-CPU+ticks"] == [0, 1, 2]
    assert result.values["base"]["memory/1/percpu"] == [0, 1, 2]
    assert "balance+ticks" not in result.metrics and "balance" in result.metrics
    assert "memory/1/slab" not in result.values["SIS_FAST"]
    rows = [row for _, table in cost.tables(result) for row in table[1:]]
    assert len(rows) == len(result.metrics)


# ---- the format ----

def test_results_come_back_as_they_were(tmp_path):
    path = tmp_path / "new" / "cost.json"
    result = made({"base": [1.0, 2.5], "off": [1.0, 2.0]})
    results.save(result, path)
    print(path.read_text())
    assert results.load(path) == result
    assert '"pipe": [1.0, 2.5]' in path.read_text()


@pytest.mark.parametrize("old, new, says", [
    ('"format": 1', '"format": 9', "not of format 1"),
    ('"format": 1,', '', "no result"),
    ('{', '', "no result"),
    ('"unit"', '"inches"', "no result"),
    ('"against": "base"', '"against": "nobody"', "no subject nobody"),
    ('"kernel": "k"', '"kernel": "other"', "no kernel other"),
    ('1.5', '"x"', "not numbers"),
    ('1.5', 'null', "not numbers"),
    ('1.5', 'NaN', "NaN is no number"),
    ('1.5', '1.5, 2', "values of pipe for off: not as many as for base"),
])
def test_bad_result_is_refused(tmp_path, old, new, says):
    path = tmp_path / "cost.json"
    results.save(made({"base": [1.5], "off": [1.5]}), path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(Error, match=says) as caught:
        results.load(path)
    print(caught.value)
    assert str(path) in str(caught.value)


def test_no_result_there(tmp_path):
    with pytest.raises(Error, match="No such file"):
        results.load(tmp_path / "none.json")


# ---- statistics ----

def test_change_by_hand():
    """The median ratio; of three blocks the range is the interval."""
    change = stats.change([100, 200, 100], [101, 206, 102])
    assert change.value == pytest.approx(0.02)
    assert change.half == pytest.approx(1.02 / 1.01 - 1)


def test_interval_of_nine_blocks():
    """From the second to the eighth: with 10 / 512 the true median is below the second of nine, with
    46 / 512 below the third."""
    base, ratios = [100] * 9, [1, 101, 102, 103, 104, 105, 106, 107, 999]
    change = stats.change(base, ratios)
    assert change.value == pytest.approx(0.04)
    assert change.half == pytest.approx(1.04 / 1.01 - 1)


def test_interval_holds_the_median():
    """In as many of 2000 cases as it says, here with a long tail, but for chance (0.5 %)."""
    random = numpy.random.default_rng(1)
    inside = 0
    for _ in range(2000):
        noise = numpy.exp(random.standard_t(2, cost.FULL.layouts))
        change = stats.change([1] * len(noise), noise)
        inside += abs(math.log1p(change.value)) <= math.log1p(change.half)
    print(inside / 2000)
    assert inside / 2000 > stats.CONFIDENCE - 0.015


def test_odd_block_does_not_decide():
    change = stats.change([100] * 9, [101] * 8 + [150])
    assert change == stats.Change(pytest.approx(0.01), pytest.approx(0, abs=1e-12))


def test_change_is_by_blocks():
    """What blocks have in common does not widen the interval."""
    change = stats.change([100, 1000, 10], [110, 1100, 11])
    assert change.value == pytest.approx(0.1) and change.half == pytest.approx(0, abs=1e-9)


def test_change_of_what_cannot_be_compared():
    assert stats.change([1, 2], [1]) is None
    assert stats.change([0.0], [1.0]) is None
    assert stats.change([1.0], [2.0]) == stats.Change(pytest.approx(1.0), None)


def test_spread():
    assert stats.spread([5.0]) is None and stats.spread([0.0, 0.0]) is None
    assert stats.spread([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)


def test_moved():
    """Only what is beyond both intervals and the floor."""
    def change(value, half=0.0):
        return stats.Change(value, half)
    assert stats.moved(change(0.0), change(0.002))
    assert not stats.moved(change(0.0), change(stats.FLOOR * 0.9))
    assert not stats.moved(change(0.0, 0.003), change(0.004, 0.003))
    assert stats.moved(change(0.0), stats.Change(0.03, None))
    assert not stats.moved(stats.Change(0.0, None), stats.Change(0.01, None))


# ---- tables ----

def test_table():
    rows = report.table(made({"base": [100.0, 102.0], "off": [101.0, 103.02]}), ["pipe"])
    print("\n".join(report.text(rows)))
    assert rows == [["", "base", "spread", "off", "on"],
                    ["a pipe", "101", "1.40 %", "+1.00 ±0.00 %", "-"]]
    assert report.markdown(rows)[1:] == ["| --- | ---: | ---: | ---: | ---: |",
                                         "| a pipe | 101 | 1.40 % | +1.00 ±0.00 % | - |"]


def test_table_of_differences_from_nothing():
    """There is no ratio to 0."""
    rows = report.table(made({"base": [0.0], "off": [12.0]}), ["pipe"])
    assert rows[1] == ["a pipe", "0.0", "-", "+12.0", "-"]


def test_moves():
    """A regression is said to be one, an improvement too, and what is new; the rest is quiet."""
    old = made({"base": [100.0, 100.0], "off": [101.0, 101.0]})
    worse = made({"base": [200.0, 200.0], "off": [204.0, 204.0], "on": [200.0, 200.0]})
    lines = report.moves(old, worse)
    print("\n".join(lines))
    assert lines == ["a pipe, off: was +1.00 ±0.00 %, is +2.00 ±0.00 %: WORSE",
                     "a pipe, on: new, +0.00 ±0.00 %"]
    assert report.moves(worse, old) == ["a pipe, on: gone",
                                        "a pipe, off: was +2.00 ±0.00 %, is +1.00 ±0.00 %: better"]
    assert report.moves(old, old) == []


def test_moves_without_a_kernel():
    """A run without COMPARE says nothing of the kernels that it left out."""
    old = made({"base": [100.0, 100.0], "off": [101.0, 101.0]})
    old.kernels["7.3"] = {}
    old.subjects["7.3 off"] = results.Subject("7.3", "7.3 off", "base")
    old.values["7.3 off"] = {"pipe": [102.0, 102.0]}
    assert report.moves(old, made({"base": [100.0, 100.0], "off": [101.0, 101.0]})) == []


# ---- the profile ----

def test_instructions_are_those_of_the_function_they_are_in():
    counts = "ffffffff81000010 3 10\nffffffff81000020 1 1\nffffffff81000030 2 2\n401000 5 2\n"
    found = profile.by_function(counts, [0xffffffff81000000, 0xffffffff81000020,
                                         0xffffffff81000030], ["one", "two", "one.cold"])
    print(found)
    assert found == {"one": 34, "two": 1, profile.USER_SPACE: 10}


@pytest.mark.parametrize("what", ["pip", "pipe/one-CPU,none", "pipe/one-CPU,base", "memory/1"])
def test_profile_of_what_there_is_not(what):
    with pytest.raises(Error, match="ROW is one of pipe/one-CPU, ") as caught:
        profile.show(TWO, what, ["base", "stack"], TINY)
    print(caught.value)


def test_compare_with_what_there_is_not(monkeypatch):
    class Args:
        machine = "one-llc"
    monkeypatch.setenv("COMPARE", "5.4")
    with pytest.raises(Error, match="COMPARE=5.4"):
        cost.command(Args)


@pytest.mark.parametrize("env, says", [({"SHORT": "1", "SAVE": "1"}, "not for results/"),
                                       ({"SAVE": "yes"}, "SAVE=yes: is to be 0 or 1")])
def test_switches(monkeypatch, env, says):
    class Args:
        machine = "one-llc"
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Error, match=says):
        cost.command(Args)


# ---- in the guest ----

@pytest.fixture(scope="module")
def built():
    """Both kernels, which is quick if they are there."""
    for build in ("base", "stack"):
        kernel.build(build)


def only(name, m=ONE, size=TINY):
    """A Boot with one row."""
    row = next(row for boot in cost.boots(m, size) for row in boot.rows if row.name == name)
    return cost.Boot("test", [row])


@pytest.mark.usefixtures("built")
def test_figures_are_the_same_again():
    first, second = (cost.measure(ONE, "stack", only("fork-exit"), TINY, cost.states("stack")[0])
                     for _ in range(2))
    print(first, second)
    assert first == second and first["fork-exit"][0][0] > 1000


@pytest.mark.usefixtures("built")
def test_profile_adds_up():
    """The plugin's count is that of the guest's clock, to what reading the clock takes."""
    boot = only("pipe/one-CPU", size=cost.Size(1, 20, 10, 1024))
    state = cost.states("stack")[0]
    clock = cost.measure(ONE, "stack", boot, TINY, state)["pipe/one-CPU"][0][1]
    found = profile.measure(ONE, "stack", state, boot.rows[0], cost.Size(1, 20, 10, 1024))
    print(f"clock {clock:.0f}, plugin {sum(found.values()):.0f}")
    assert sum(found.values()) == pytest.approx(clock, rel=0.02)
    assert found["try_to_wake_up"] > 10 and found[profile.USER_SPACE] > 10


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("writes, says", [
    ("features=NO_SUCH_FEATURE", "odd, on stack"),
    # It is written as a number with a sign and read as one without.
    ("latency_warn_ms=+7", "latency_warn_ms=[+]7 does not last")])
def test_state_that_the_kernel_does_not_take_is_an_error(writes, says):
    with pytest.raises(Error, match=says) as caught:
        cost.measure(ONE, "stack", only("yield"), TINY, cost.State("odd", writes))
    print(caught.value)


@pytest.mark.usefixtures("built")
def test_stopped_run_ends():
    """As when somebody presses Ctrl-C while guests run."""
    stop = threading.Event()
    stop.set()
    with pytest.raises(Error, match="the run was stopped"):
        cost.measure(ONE, "stack", only("yield"), cost.FULL, cost.states("stack")[0], stop)


@pytest.mark.usefixtures("built")
def test_memory_is_that_of_the_processes():
    """A percpu counter for each of four kinds of pages is what a process of the base has, and mm_cid:
    at least so much, in whole words."""
    boot = cost.boots(ONE, cost.SHORT)[-1]
    found = cost.measure(ONE, "stack", boot, cost.SHORT, cost.states("stack")[0])
    print(found)
    [(slab, percpu)] = found["memory/1"]
    assert slab > 4000 and 4 * 4 * ONE.cpus <= percpu < 1000 * ONE.cpus
    assert percpu % 4 == 0


@pytest.mark.usefixtures("built")
def test_short_form(capsys):
    """All there is to measure, for a moment each. What it gives is printed, not judged."""
    result = cost.collect(TWO, ["base", "stack"], cost.SHORT,
                          cost.repeat_info(TWO, cost.SHORT, None))
    assert results.problems(result) == []
    for heading, rows in cost.tables(result):
        print("", heading, "", *report.text(rows), sep="\n")
    for column, values in result.values.items():
        missing = {metric for metric in result.metrics if metric not in values}
        assert not missing or all(name.startswith("memory/") for name in missing), column
        assert all(number > 100 for metric, numbers in values.items()
                   for number in numbers if not metric.startswith("memory/"))
