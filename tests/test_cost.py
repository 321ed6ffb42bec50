# SPDX-License-Identifier: GPL-2.0-only
"""make bench-cost: its rows and columns, the format of results, statistics, tables, and that a guest
repeats its figures. No test judges the figures themselves."""

import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from here import named
from kit import settings
from kit.cost import measure, plan, profile
from kit.paths import GUEST, Series
from kit.process import Error
from kit.results import pages, store, tables, verdict
from kit.vm import initramfs, kernel, machine, qemu

TWO = machine.load("two-ccx")
ONE = machine.load("one-llc")
# A cheap operation, measured for a moment.
TINY = plan.Size(layouts=1, ms=2, processes=10, memory_mib=1024)


def made(values, **more):
    """A Judged result of one metric on a base and two columns."""
    subjects = {"base": store.Subject("k", "base", None),
                "off": store.Subject("k", "off", "base"),
                "on": store.Subject("k", "on", "base")}
    return verdict.Judged("cost", "m", {"command": "c"}, {"k": {}},
                          {"pipe": store.Metric("instructions", "less", "a pipe")},
                          subjects, {name: {"pipe": numbers} for name, numbers in values.items()},
                          **more)


# ---- what is measured ----

def names(m):
    return {row.name for boot in plan.boots(m, plan.FULL) for row in boot.rows}


def test_rows_are_what_the_machine_has():
    """A distance that a machine does not have has no row."""
    print(*sorted(names(TWO)))
    gone = {f"{operation}/{place}" for operation in ("pipe", "thread-pipe", "futex", "fifo-pipe")
            for place in ("two-LLCs", "any-of-two-LLCs")}
    assert names(TWO) - names(ONE) == gone
    commands = {row.name: row.command for boot in plan.boots(TWO, plan.FULL) for row in boot.rows}
    assert [commands[f"pipe/{place}"].split(":")[3] for place in
            ("one-CPU", "one-group", "one-LLC", "two-LLCs")] == ["0", "1", "2", "8"]
    assert commands["hot-unplug"].split(":")[3] == "15"
    assert commands["futex/any-of-one-LLC"] == "cost:futex:0:2:@:25:0,1,2,3,4,5,6,7"
    assert commands["futex/any-of-two-LLCs"].split(":")[3:] == [
        "8", "@", "25", ",".join(map(str, range(16)))]


def test_columns():
    """The stack is compared with the base, mainline with itself without the feature."""
    against = {state.column: state.against for build in ("base", "stack", "7.3/nocache", "7.3/base")
               for state in plan.states(named(build))}
    print(against)
    assert against.pop("base") is None and against.pop("7.3/nocache") is None
    assert against.pop("7.3 on") == against.pop("7.3 off") == "7.3/nocache"
    assert set(against.values()) == {"base"} and {"off", "SIS_FAST"} <= set(against)
    on = next(state for state in plan.states(named("stack")) if state.column == "SIS_FAST")
    assert on.writes.endswith(",features=SIS_FAST") and "features=NO_TTWU_QUEUE_L2," in on.writes


def test_chosen_columns():
    """Those that they are compared with come along; an unknown name is an error."""
    builds = [named(name) for name in ("base", "stack", "7.3/nocache", "7.3/base")]
    found = {str(build): [state.column for state in states]
             for build, states in plan.chosen(builds, ["off", "SIS_FAST"]).items()}
    assert found == {"base": ["base"], "stack": ["off", "SIS_FAST"], "7.3/nocache": [], "7.3/base": []}
    assert plan.chosen(builds) == {build: plan.states(build) for build in builds}
    with pytest.raises(Error, match="COLUMNS=of: no column of; there are base, off, "):
        plan.chosen(builds, ["of"])


def test_columns_of_a_series_for_mainline():
    """It has no feature bits: it is compared with its base with the feature off, and on."""
    found = {state.column: state for build in ("base", "stack")
             for state in plan.states(kernel.Kernel(Series("7.3/leave-llc"), build))}
    assert {column: state.against for column, state in found.items()} == {
        "base off": None, "base on": None, "off": "base off", "on": "base on"}
    assert found["on"].writes == found["base on"].writes == "llc_balancing/enabled=1"
    assert [column for column, state in found.items() if state.memory] == ["base off", "off"]


def counted(monkeypatch):
    """Let measure() give a figure for each row; return the list of the columns that it is called for."""
    called = []

    def found(m, build, boot, size, state, userland, stop):
        called.append(state.column)
        return {row.name: [dict(middle=1.5, mean=2, slab=0, percpu=1, disturbed=0)] for row in boot.rows}
    monkeypatch.setattr(measure, "measure", found)
    return called


def test_boots_that_were_measured_before_are_not_again(monkeypatch, tmp_path):
    """If the kernel, the initramfs and QEMU are the same. A file that was cut off is none."""
    called, about = counted(monkeypatch), {"base": "a", "stack": "b"}
    monkeypatch.setattr(kernel, "identity", lambda build: {"source": about[str(build)]})
    builds = [kernel.named(Series("6.12", build=tmp_path), name) for name in ("base", "stack")]

    def collect(**more):
        called.clear()
        repeat = {"command": "c", "commit": "x", "qemu": "10", "initramfs": "i"} | more
        return measure.collect(TWO, builds, plan.SHORT, repeat, builds[1], ["off", "SIS_FAST"])
    first, boots = collect(), len(plan.boots(TWO, plan.SHORT))
    assert {column: called.count(column) for column in called} == {"base": boots, "off": boots, "SIS_FAST": boots - 1}
    assert collect() == first and not called
    about["stack"] = "c"
    assert collect().values == first.values and set(called) == {"off", "SIS_FAST"}
    collect(initramfs="j")
    assert set(called) == {"base", "off", "SIS_FAST"}
    for path in (tmp_path / "cost").glob("*.json"):
        path.write_text("{")
    collect(initramfs="j")
    assert set(called) == {"base", "off", "SIS_FAST"}
    about["stack"] = "d, with changes that are not committed"
    for _ in range(2):
        collect(initramfs="j")
        assert "off" in called and "base" not in called


def test_collect(monkeypatch, capsys, tmp_path):
    """What the boots give comes together by column and metric. A disturbed layout is left out for all
    columns, as the others are compared layout by layout; a row without a layout has no metric."""
    monkeypatch.setattr(kernel, "identity", lambda build: {})

    def found(m, build, boot, size, state, userland, stop):
        moved = {("pipe/one-LLC", "off", 1), *(("yield", "base", number) for number in range(3))}
        return {row.name: [dict(middle=len(str(build)), mean=number, slab=0, percpu=number,
                                disturbed=int((row.name, state.column, number) in moved))
                           for number in range(3)] for row in boot.rows}
    monkeypatch.setattr(measure, "measure", found)
    builds = [kernel.named(Series("6.12", build=tmp_path), name) for name in ("base", "stack")]
    result = measure.collect(TWO, builds, plan.FULL, {"command": "c", "commit": "x", "qemu": "10"}, builds[1])
    assert store.problems(result) == []
    assert result.repeat["disturbed"] == {"pipe/one-LLC": {"1": ["off"]},
                                          "yield": {str(number): ["base"] for number in range(3)}}
    for column in ("base", "off", "SIS_FAST"):
        assert result.values[column]["pipe/one-LLC+ticks"] == [0, 2]
        assert result.values[column]["pipe/two-LLCs+ticks"] == [0, 1, 2]
    assert "yield" not in result.metrics
    assert "pipe/one-LLC: layout 1 is left out" in capsys.readouterr().err
    assert result.values["off"]["pipe/one-CPU"] == [5, 5, 5]
    assert result.values["base"]["memory/1/percpu"] == [0, 1, 2]
    assert "balance+ticks" not in result.metrics and "balance" in result.metrics
    assert "memory/1/slab" not in result.values["SIS_FAST"]
    rows = [row for _, table in tables.cost(verdict.judged(result)) for row in table[1:]]
    assert len(rows) == len(result.metrics)


@pytest.fixture(name="program", scope="module")
def compiled(tmp_path_factory):
    """guest/cost.c, compiled for the host."""
    if not Path("/proc/self/sched").exists():
        pytest.skip("the host's kernel does not count migrations in /proc")
    program = tmp_path_factory.mktemp("cost") / "cost"
    subprocess.run(["gcc", "-O2", "-DSETTLE_NS=10000000", "-pthread", "-o", program, GUEST / "cost.c"], check=True)
    return program


def printed(program, *arguments, disturb=None):
    """What the program prints, {name: number}; disturb(pid) is called while it runs."""
    with subprocess.Popen([program, *map(str, arguments)], stdout=subprocess.PIPE,
                          text=True) as proc:
        while disturb and proc.poll() is None:
            disturb(proc.pid)
        output = proc.stdout.read()
    assert proc.returncode == 0
    return {name: float(number) for name, number in (word.split("=") for word in output.split())}


@pytest.mark.parametrize("operation", ["pipe", "thread-pipe", "futex", "fifo-pipe"])
def test_measurement_with_a_migration_is_repeated(program, operation):
    """The test migrates one of the tasks all the time, so the first attempt does not count. How many
    attempts are disturbed depends on the load of the host. Without migrations there is one attempt."""
    here, *more = sorted(os.sched_getaffinity(0))
    if not more:
        pytest.skip("the host has one CPU")
    def disturb(pid):
        for cpu in (here, more[0]):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, {cpu})
            time.sleep(0.002)
    # On a busy host the test may have no turn while one is measured.
    for _ in range(20):
        found = printed(program, operation, here, here, 0, 10, disturb=disturb)
        print(found)
        if found["attempts"] > 1:
            break
    assert found["attempts"] > 1 and (found["moved"] > 0) == (found["disturbed"] == 1)
    assert {"attempts": 1, "moved": 0, "disturbed": 0}.items() <= printed(
        program, operation, here, here, 0, 10).items()


def test_measurement_with_a_large_spread_is_repeated(program):
    """Between two CPUs the quartiles of the batches are to be close. On a host, where the clock counts
    time, work on one of the CPUs that comes and goes spreads them. On one CPU that is no
    disturbance."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("the host has one CPU")
    # The kernel divides time between it and the measured task in slices of some ms.
    noise = subprocess.Popen(["taskset", "-c", str(cpus[1]), sys.executable, "-c",
                              "while True: pass"])
    try:
        found = printed(program, "futex", *cpus[:2], 0, 50)
    finally:
        noise.kill()
        noise.wait()
    print(found)
    assert found["spread"] > 0.3 and found["disturbed"] == 1 and found["attempts"] == 4
    found = printed(program, "futex", cpus[0], cpus[0], 0, 50)
    print(found)
    assert {"attempts": 1, "moved": 0, "disturbed": 0}.items() <= found.items()


# ---- the format ----

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
    store.save(made({"base": [1.5], "off": [1.5]}), path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(Error, match=says) as caught:
        store.load(path)
    print(caught.value)
    assert str(path) in str(caught.value)


# ---- tables ----

def test_primary_rows_are_measured(monkeypatch):
    """Each machine has them, and a run declares them."""
    monkeypatch.setattr(qemu, "find", lambda build: None)
    monkeypatch.setattr(qemu, "version", lambda program: "10.0.2")
    monkeypatch.setattr(initramfs, "base", lambda build: b"")
    assert set(plan.PRIMARY) <= names(TWO) & names(ONE)
    result = made({"base": [100.0] * 9, "off": [101.0] * 9})
    result.repeat["primary"] = ["other"]
    assert verdict.of(result)["off"]["pipe"].word == verdict.SECONDARY
    monkeypatch.setattr(store, "commit", lambda: "commit")
    assert measure.repeat_info(TWO, TINY, "", named())["primary"] == list(plan.PRIMARY)


def test_blocks_are_compared():
    """What the layouts have in common does not widen the interval; a disturbed one is left out."""
    base = [100.0 + i for i in range(9)]
    result = made({"base": base, "off": [1.01 * value for value in base[:8]] + [150.0]})
    row = tables.table(result, ["pipe"])[1]
    print(row)
    assert row == ["a pipe", "104", "2.63 %", "+1.00 % (+1.00 to +1.00)*", "-"]
    assert verdict.of(result)["off"]["pipe"].word == verdict.LOSS
    assert verdict.of(result)["off"]["pipe"].margin == 0.01
    result.repeat |= {"commit": "c", "qemu": "10"}
    text = "\n".join(pages.own(result))
    assert "- off: 1 LOSS, most -1.00 % (pipe)" in text and tables.DISTURBED in text


def test_table_of_differences_from_nothing():
    """There is no ratio to 0."""
    rows = tables.table(made({"base": [0.0], "off": [12.0]}), ["pipe"])
    assert rows[1] == ["a pipe", "0.0", "-", "+12.0", "-"]


def test_moves():
    """A regression is said to be one, an improvement too, and what is new; the rest is quiet."""
    old = made({"base": [100.0] * 9, "off": [101.0] * 9})
    worse = made({"base": [200.0] * 9, "off": [204.0] * 9, "on": [200.0] * 9})
    lines = tables.moves(old, worse)
    print("\n".join(lines))
    one, two, none = ("+1.00 % (+1.00 to +1.00)", "+2.00 % (+2.00 to +2.00)",
                      "0.00 % (0.00 to 0.00)")
    assert lines == [f"a pipe, off: was {one}, is {two}: WORSE", f"a pipe, on: new, {none}"]
    assert tables.moves(worse, old) == ["a pipe, on: gone",
                                        f"a pipe, off: was {two}, is {one}: better"]
    assert tables.moves(old, old) == []


def test_moves_without_a_kernel():
    """A run without COMPARE says nothing of the kernels that it left out."""
    old = made({"base": [100.0, 100.0], "off": [101.0, 101.0]})
    old.kernels["7.3"] = {}
    old.subjects["7.3 off"] = store.Subject("7.3", "7.3 off", "base")
    old.values["7.3 off"] = {"pipe": [102.0, 102.0]}
    assert tables.moves(old, made({"base": [100.0, 100.0], "off": [101.0, 101.0]})) == []


# ---- the profile ----

def test_instructions_are_those_of_the_function_they_are_in():
    counts = "ffffffff81000010 3 10\nffffffff81000020 1 1\nffffffff81000030 2 2\n401000 5 2\n"
    found = profile.by_function(counts, [0xffffffff81000000, 0xffffffff81000020,
                                         0xffffffff81000030], ["one", "two", "one.cold"])
    print(found)
    assert found == {"one": 34, "two": 1, profile.USER_SPACE: 10}


@pytest.mark.parametrize("what", ["pip", "pipe/one-CPU,none", "pipe/one-CPU,base", "memory/1"])
def test_profile_of_what_there_is_not(what, monkeypatch):
    """Nothing is built before."""
    monkeypatch.setattr(kernel, "build", lambda which: pytest.fail("builds a kernel"))
    with pytest.raises(Error, match="ROW is one of pipe/one-CPU, "):
        measure.command(settings.read("bench-cost", {"PROFILE": what, "SHORT": "1"}))


def test_short_run_is_not_saved():
    with pytest.raises(Error, match="not for results/"):
        measure.command(settings.read("bench-cost", {"SHORT": "1", "SAVE": "1"}))


# ---- in the guest ----

@pytest.fixture(scope="module")
def built():
    """The kernel with the patches, which is quick if it is there."""
    kernel.build(named("stack"))


def only(name, m=ONE, size=TINY):
    """A Boot with one row."""
    row = next(row for boot in plan.boots(m, size) for row in boot.rows if row.name == name)
    return plan.Boot("test", [row])


@pytest.mark.usefixtures("built")
def test_figures_are_the_same_again():
    first, second = (measure.measure(ONE, named(), only("fork-exit"), TINY, plan.states(named("stack"))[0], named())
                     for _ in range(2))
    print(first, second)
    assert first == second and first["fork-exit"][0]["middle"] > 1000


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("name", [pytest.param("pipe/any-of-one-LLC", marks=pytest.mark.long),
                                  "futex/any-of-two-LLCs"])
def test_wakeups_select_a_cpu(name):
    """In the rows whose tasks may use several CPUs, and in no other."""
    state = plan.states(named("stack"))[0]
    for row, selects in ((name, True), (name.replace("any-of-", ""), False)):
        found = profile.measure(TWO, named(), state, only(row, TWO).rows[0], TINY, named())
        count = sum(number for function, number in found.items()
                    if function in ("select_task_rq_fair", "select_idle_sibling"))
        print(row, count)
        assert (count > 10) == selects


@pytest.mark.usefixtures("built")
def test_profile_adds_up():
    """The plugin counts as many instructions as the guest's clock, within 2 % for reading the clock."""
    boot = only("pipe/one-CPU", size=plan.Size(1, 20, 10, 1024))
    state = plan.states(named("stack"))[0]
    clock = measure.measure(ONE, named(), boot, TINY, state, named())["pipe/one-CPU"][0]["mean"]
    found = profile.measure(ONE, named(), state, boot.rows[0], plan.Size(1, 20, 10, 1024), named())
    print(f"clock {clock:.0f}, plugin {sum(found.values()):.0f}")
    assert sum(found.values()) == pytest.approx(clock, rel=0.02)
    assert found["try_to_wake_up"] > 10 and found[profile.USER_SPACE] > 10


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("writes, says", [
    ("features=NO_SUCH_FEATURE", "odd, on stack"),
    # It is written as a number with a sign and read as one without.
    ("latency_warn_ms=+7", "latency_warn_ms=[+]7 does not last")])
def test_state_that_the_kernel_does_not_take_is_an_error(writes, says):
    with pytest.raises(Error, match=says):
        measure.measure(ONE, named(), only("yield"), TINY, plan.State("odd", writes), named())


@pytest.mark.usefixtures("built")
def test_stopped_run_ends():
    """As with Ctrl-C while guests run."""
    stop = threading.Event()
    stop.set()
    with pytest.raises(Error, match="the run was stopped"):
        measure.measure(ONE, named(), only("yield"), plan.FULL, plan.states(named("stack"))[0], named(), stop)


@pytest.mark.usefixtures("built")
def test_memory_is_that_of_the_processes():
    """Memory is a multiple of 4 bytes and at least that of a process without the patches: a percpu
    counter for each of four kinds of pages."""
    boot = plan.boots(ONE, plan.SHORT)[-1]
    found = measure.measure(ONE, named(), boot, plan.SHORT, plan.states(named("stack"))[0], named())
    print(found)
    [figure] = found["memory/1"]
    assert figure["slab"] > 4000 and 4 * 4 * ONE.cpus <= figure["percpu"] < 1000 * ONE.cpus
    assert figure["percpu"] % 4 == 0


@pytest.mark.long
@pytest.mark.usefixtures("built")
def test_short_form(capsys):
    """Measure all rows and columns for a moment each. The figures are printed, not judged."""
    kernel.build(named("base"))
    result = measure.collect(TWO, [named("base"), named()], plan.SHORT,
                          measure.repeat_info(TWO, plan.SHORT, None, named()), named())
    assert store.problems(result) == []
    for heading, rows in tables.cost(verdict.judged(result)):
        print("", heading, "", *tables.text(rows), sep="\n")
    for column, values in result.values.items():
        missing = {metric for metric in result.metrics if metric not in values}
        assert not missing or all(name.startswith("memory/") for name in missing), column
        assert all(number > 100 for metric, numbers in values.items()
                   for number in numbers if not metric.startswith("memory/"))
