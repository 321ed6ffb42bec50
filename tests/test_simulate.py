# SPDX-License-Identifier: GPL-2.0-only
"""make sim and make sim-validate from the settings to the saved result, with made-up guests: no test
here boots one."""

import dataclasses
import json
import re
import threading
from types import SimpleNamespace

import pytest
from test_sim import SMALL, SYSTEM_MAP, region

from kit import settings
from kit.paths import PATCHES, Series
from kit.process import Error
from kit.results import pages, store, tables, verdict
from kit.sim import published, simulate, transfers, validate, workloads
from kit.vm import guest, initramfs, kernel, machine, qemu

HOOKS = "".join(f"{number:x} T {name}\n" for number, name in enumerate(
    simulate.HOOKS.values(), 0x1000))


def value_of(row, writes, seed):
    """Return the figure that the made-up guest prints: 100, half of it with SIS_FAST, twice as much
    to CPU 8 and 4 times as much to CPU 16, and a little more for each seed."""
    scale = 50 if "features=SIS_FAST" in writes else 100
    scale *= {"8": 2, "16": 4}.get(row.split(":")[-2], 1)
    return scale + seed % 1000 / 8


class Names:
    """Stands in for symbols.Symbols."""

    def function(self, pc):
        return "function"

    def place(self, *args):
        return "data of CPU 3.field"


@pytest.fixture
def guests(tmp_path, monkeypatch):
    """Replace kernels, QEMU and guests. Return a namespace: .runs, a dict for each run; .builds, the
    kernels built; .stack and .fast, States; .sim, which runs make sim with settings. A test can set .change,
    a function of run and Result that returns the guest's Result; .reports, how many reports the plugin writes for each figure; .version, of QEMU."""
    series = Series("6.12", PATCHES, tmp_path)
    done = SimpleNamespace(runs=[], builds=[], change=lambda run, result: result, reports=1,
                           out=tmp_path, version="10.0.2")
    done.stack = simulate.State(kernel.named(series, "stack"))
    done.fast = dataclasses.replace(done.stack, writes="features=SIS_FAST")
    done.sim = lambda **given: simulate.command(settings.read("sim", {
        "KIT_BUILD": str(tmp_path), "MACHINE": SMALL.name, "WORKLOAD": "ping-pong:0:8:300", **given}))
    monkeypatch.setattr(simulate, "RESULTS", tmp_path / "committed")
    for build in ("stack", "base"):
        (series.work / build).mkdir(parents=True)
        (series.work / build / "System.map").write_text(SYSTEM_MAP + HOOKS)
    monkeypatch.setattr(kernel, "build", lambda which: done.builds.append(str(which)))
    monkeypatch.setattr(kernel, "identity",
                        lambda build: {"release": f"6.12-{build}", "source": "s"})
    monkeypatch.setattr(initramfs, "base", lambda what: b"initramfs")
    monkeypatch.setattr(qemu, "find", lambda build: None)
    monkeypatch.setattr(qemu, "version", lambda program: done.version)
    monkeypatch.setattr(simulate, "plugin", lambda build: tmp_path / "sim.so")
    monkeypatch.setattr(transfers, "known", lambda build: Names())

    def run(m, build, job, env, **options):
        plugin, *rest = options["simulated"].plugin.split(",")
        chosen = dict(word.split("=") for word in rest)
        rows = env["ROWS"].split()
        # The states of the windows, or that of the whole boot.
        states = env.get("STATES", "").split() or [env["STATE"]]
        run_ = {"machine": m.name, "build": str(build), "job": job, "writes": env["STATE"], "rows": rows,
                "windows": states, "cgroups": env["CGROUPS"],
                "seed": options["simulated"].seed, "options": chosen, "plugin": plugin,
                **{name: options[name] for name in ("userland", "stop", "name")}}
        done.runs.append(run_)
        lines = ["# " + json.dumps({"figure": "sim", "row": row.split(":")[0], "unit": "unit",
                                    "value": value_of(row, state, run_["seed"]) + number})
                 for row in rows for number, state in enumerate(states)]
        text = "\n".join(["TAP version 13", "1..1", *lines, "ok 1 all", "END 0", ""])
        with open(chosen["out"], "w", encoding="utf-8") as file:
            for _ in range(len(lines) * done.reports):
                file.write(json.dumps(region(1).counted) + "\n")
        return done.change(run_, guest.Result("", text, 1.0, True, 0))
    monkeypatch.setattr(guest, "run", run)
    return done


def task(text="ping-pong:0:8:300"):
    return workloads.task(text, SMALL)


def test_run(guests):
    """A guest gets the rows, the state and the plugin's options, and a Region comes back for each
    row."""
    stop = threading.Event()
    found = simulate.run(SMALL, guests.fast, [task(), task("bounce:0:4:100")], 7, 15, stop)
    [run] = guests.runs
    print(run)
    assert [each.value for each in found] == [100.875, 50.875]
    assert found[0].counted == region(1).counted
    assert (run["machine"], run["build"], run["job"]) == ("epyc-2x2x2", "stack", "sim")
    assert run["writes"] == "features=SIS_FAST" and run["stop"] is stop
    assert run["rows"] == [task().row(7), task("bounce:0:4:100").row(7)]
    assert run["userland"] == initramfs.small(guests.stack.build.series)
    assert run["options"]["quantum_ps"] == "15000" and run["options"]["seed"] == "7"
    assert run["options"]["at_wakeup"] == str(0x1000) and run["options"]["nodes"] == "2"
    assert re.fullmatch(r"epyc-2x2x2-sim-stack-7-[0-9a-f]{8}", run["name"])
    simulate.run(SMALL, guests.stack, [task()], 7)
    # Runs of other states at the same time have other files.
    assert guests.runs[1]["name"] != run["name"]
    assert guests.runs[1]["options"]["quantum_ps"] == str(simulate.default_round(SMALL) * 1000)


def test_report_of_an_earlier_run_is_not_read(guests):
    simulate.run(SMALL, guests.stack, [task()], 1)
    guests.reports = 0
    with pytest.raises(Error, match="gave 1 figures and 0 reports"):
        simulate.run(SMALL, guests.stack, [task()], 1)


@pytest.mark.parametrize("reports, change, says", [
    (2, lambda run, result: result, "gave 1 figures and 2 reports"),
    (1, lambda run, result: guest.Result("", result.ktap.replace('"sim"', '"no"'), 1, True, 0),
     "gave 0 figures and 1 reports"),
    (1, lambda run, result: guest.Result("", result.ktap.replace("ok 1", "not ok 1"), 1, True, 0),
     "not ok: all"),
    (1, lambda run, result: guest.Result("", result.ktap, 1, True, 0, [], ["it was stopped"]),
     "it was stopped"),
])
def test_run_that_went_wrong(guests, reports, change, says):
    guests.reports, guests.change = reports, change
    with pytest.raises(Error, match=says) as caught:
        simulate.run(SMALL, guests.stack, [task()], 1)
    print(caught.value)
    # The guest's last lines come with it.
    assert "END 0" in str(caught.value)


def test_error_shows_the_last_lines_only(guests):
    guests.change = lambda run, result: guest.Result(
        "", "".join(f"line {n}\n" for n in range(100)), 1, True, 0)
    with pytest.raises(Error) as caught:
        simulate.run(SMALL, guests.stack, [task()], 1)
    assert f"\nline {100 - guest.LAST_PRINTED}\n" in str(caught.value)
    assert f"line {99 - guest.LAST_PRINTED}\n" not in str(caught.value)


def test_kernel_that_is_not_built(guests):
    (guests.out / "6.12/stack/System.map").unlink()
    with pytest.raises(Error, match="BUILD=stack is not built: make kernel BUILD=stack"):
        simulate.run(SMALL, guests.stack, [task()], 1)


def test_command_compares_two_states(guests, capsys):
    assert guests.sim(STATE="features=SIS_FAST", AGAINST="base", SEEDS="4", ROUND_NS="12") == 0
    shown = capsys.readouterr().out
    print(shown)
    assert guests.builds == ["base", "stack"]
    found = store.load(guests.out / "results/epyc-2x2x2/sim-ping-pong.json")
    print(found.values)
    # Each state has the seeds 1 to 4, the control others.
    columns = {"base": ("base", "", [1, 2, 3, 4]),
               "stack features=SIS_FAST": ("stack", "features=SIS_FAST", [1, 2, 3, 4]),
               simulate.CONTROL: ("base", "", [1001, 1002, 1003, 1004])}
    assert list(found.values) == list(columns)
    assert sorted((run["build"], run["writes"], run["seed"]) for run in guests.runs) == sorted(
        (build, writes, seed) for build, writes, seeds in columns.values() for seed in seeds)
    assert {run["options"]["quantum_ps"] for run in guests.runs} == {"12000"}
    for name, (build, writes, seeds) in columns.items():
        assert found.values[name]["ping-pong"] == pytest.approx(
            [value_of(task().row(1), writes, seed) for seed in seeds])
        against = None if name == "base" else "base"
        assert found.subjects[name] == store.Subject(build, writes, against)
    assert set(found.metrics) == {"ping-pong", *simulate.METRICS}
    # The control has the same state as the base, so where its lines moved is not shown.
    assert list(found.details) == ["base", "stack features=SIS_FAST"]
    # Lines of all CPUs count as one.
    assert found.details["base"]["lines"][0][:2] == ["data.field", "function"]
    assert list(found.kernels) == ["base", "stack"]
    assert (found.repeat["command"], found.repeat["seeds"], found.repeat["round_ns"]) == (
        "make sim MACHINE=epyc-2x2x2 WORKLOAD=ping-pong:0:8:300 ROUND_NS=12 BUILD=stack"
        " STATE=features=SIS_FAST AGAINST=base SEEDS=4", 4, 12)
    assert found.repeat["qemu"] == "10.0.2"
    assert "12 of 12" in shown and "Figures" in shown
    page = (guests.out / "results/epyc-2x2x2/sim-ping-pong.md").read_text()
    assert "ping-pong" in page and page.endswith("\n")
    assert not (guests.out / "committed").exists()


def test_command_compares_several_states_with_one(guests):
    """One family of verdicts, and the base runs once for all."""
    assert guests.sim(STATE="features=SIS_FAST features=X,features=Y", AGAINST="features=NO_X", SEEDS="2") == 0
    found = store.load(guests.out / "results/epyc-2x2x2/sim-ping-pong.json")
    print(found.subjects)
    base = "stack features=NO_X"
    assert {name: subject.against for name, subject in found.subjects.items()} == {
        base: None, "stack features=SIS_FAST": base, "stack features=X,features=Y": base, simulate.CONTROL: base}
    assert len(guests.runs) == 4 * 2
    assert set(verdict.of(found)) == {"stack features=SIS_FAST", "stack features=X,features=Y"}
    assert " STATE='features=SIS_FAST features=X,features=Y' AGAINST=stack,features=NO_X " in found.repeat["command"]


@pytest.mark.parametrize("busy, gap", [([8, 8, 8, 8], 0), ([8, 8, 0, 0], 100), ([8, 0, 8, 0], 0), ([2, 6, 1, 1], 37.5)])
def test_gap_between_nodes(busy, gap):
    """SMALL has two nodes of two LLCs of four CPUs; the region lasts 2 ps."""
    counted = region(1).counted | {"time_ps": 2, "busy_ps": busy}
    found = simulate.figures(dataclasses.replace(region(1), counted=counted), SMALL)
    assert (found["node_gap"], found["busy"]) == pytest.approx((gap, sum(busy) / 32 * 100))


def test_command_saves_one_state(guests):
    assert guests.sim(SEEDS="2", SAVE="1", NAME="other", CGROUPS="3") == 0
    found = store.load(guests.out / "committed/epyc-2x2x2/sim-other.json")
    assert list(found.values) == list(found.details) == ["stack"]
    assert found.subjects["stack"].against is None
    assert sorted(run["seed"] for run in guests.runs) == [1, 2]
    assert {run["cgroups"] for run in guests.runs} == {3}
    assert found.repeat["command"].endswith("CGROUPS=3 BUILD=stack SEEDS=2")


def test_command_keeps_the_result_of_another_experiment(guests):
    """Before the first run: a workload or state that differs needs a name of its own."""
    assert guests.sim(SEEDS="2") == 0
    runs = len(guests.runs)
    with pytest.raises(Error, match="has the result of another experiment.*NAME="):
        guests.sim(SEEDS="2", WORKLOAD="ping-pong:0:1:300")
    assert len(guests.runs) == runs
    assert guests.sim(SEEDS="2", WORKLOAD="ping-pong:0:1:300", NAME="near") == 0


def test_command_toggles_in_windows_of_one_boot(guests, capsys):
    """A B B A in one boot, B A A B in the next; a seed's value is the mean of its two windows."""
    assert guests.sim(WORKLOAD="sharing:1:4:64:6:2", STATE="features=SIS_FAST", AGAINST="stack", ABBA="1",
                WINDOW_MS="30", SEEDS="2") == 0
    print(capsys.readouterr().out)
    runs = sorted(guests.runs, key=lambda run: run["seed"])
    assert [(run["seed"], run["windows"]) for run in runs] == [
        (1, ["default", "features=SIS_FAST", "features=SIS_FAST", "default"]),
        (2, ["features=SIS_FAST", "default", "default", "features=SIS_FAST"])]
    assert all("window_ms=30" in run["rows"][0] for run in runs)
    found = store.load(guests.out / "results/epyc-2x2x2/sim-sharing-abba.json")
    # The made-up guest adds 0, 1, 2 and 3 to the four windows.
    assert found.values["stack"]["sharing"] == pytest.approx([100.125 + 1.5, 100.25 + 1.5])
    assert found.values["stack features=SIS_FAST"]["sharing"] == pytest.approx([51.625, 51.75])
    assert found.details["stack"]["windows"]["sharing"] == [[100.125, 103.125], [101.25, 102.25]]
    assert found.repeat["command"].endswith(" SEEDS=2 ABBA=1 WINDOW_MS=30")
    assert found.repeat["window_ms"] == 30 and simulate.CONTROL not in found.values
    a, b = "stack", "stack features=SIS_FAST"
    assert found.repeat["windows"] == [[a, b, b, a], [b, a, a, b]] and set(verdict.of(found)) == {b}
    # Where lines moved is of both windows of each boot.
    assert found.details[a]["functions"] == transfers.hottest([region(1)] * 4, Names())["functions"]


@pytest.mark.parametrize("windows, says", [(False, "its source changed"), (True, "built again")])
def test_kernel_that_is_built_meanwhile(guests, monkeypatch, windows, says):
    releases = iter(["one", "two"])
    monkeypatch.setattr(kernel, "identity", lambda build: {"release": next(releases)})
    wanted, states = workloads.task("sharing", SMALL), [guests.stack, guests.fast]
    with pytest.raises(Error, match=says):
        if windows:
            simulate.collect_windows(SMALL, wanted, states, 1, 20, 30)
        else:
            simulate.collect(SMALL, wanted, states, 1, 20)


def test_statistics_of_a_further_run(guests):
    """They are of a run of their own, whose figures do not count."""
    states, asked = [guests.stack, guests.fast], []

    def boot(m, state, tasks, seed, round_ns, stop, windows):
        asked.append(windows.stats)
        return [dataclasses.replace(region(1), statistics=[["queued_llc", 34 + len(asked)], ["sis_scans", 0]])]
    result = simulate.collect(SMALL, task(), states, 2, 20)
    before = {name: dict(values) for name, values in result.values.items()}
    simulate.add_statistics(result, SMALL, task(), states, 20, boot)
    assert result.values == before and asked == [True, True]
    assert result.repeat["command"].endswith(" STATS=1")
    [rows] = [rows for heading, rows in pages.simulation(verdict.judged(result)) if "schedstats" in heading]
    print(*tables.text(rows), sep="\n")
    assert rows == [["", *map(str, states)], ["queued_llc", "35", "36"]]


def test_further_figures_that_are_missing(guests):
    with pytest.raises(Error, match=r"gave the further figures \['p50'\], and not \['p50', 'p90', 'p99'\]"):
        simulate.collect(SMALL, workloads.task("rr", SMALL), [guests.stack], 1, 20,
                         lambda *_: [dataclasses.replace(region(1), more={"p50": 1.0})])


@pytest.mark.parametrize("given, says", [
    ({"WINDOW_MS": "30"}, "WINDOW_MS=30: only with ABBA=1"),
    ({"ABBA": "1", "AGAINST": "base"}, "needs AGAINST=, a state of the same BUILD"),
    ({"ABBA": "1"}, "needs AGAINST=, a state of the same BUILD"),
    ({"ABBA": "1", "AGAINST": "features=X", "WORKLOAD": "hackbench"}, "measures a number of"),
    ({"STATE": "features=X features=Y"}, "several states need AGAINST="),
])
def test_settings_that_contradict_each_other(guests, given, says):
    with pytest.raises(Error, match=says):
        guests.sim(**{"WORKLOAD": "sharing", **given})
    assert guests.builds == guests.runs == []


def test_default_number_of_seeds(guests):
    assert guests.sim() == 0
    assert sorted(run["seed"] for run in guests.runs) == list(range(1, 11))


def test_command_refuses_another_qemu_before_it_builds(guests):
    guests.version = "10.1.0"
    with pytest.raises(Error, match="needs QEMU 10.0"):
        guests.sim()
    assert guests.builds == guests.runs == []


# ---- where lines moved ----

class Sites(Names):
    """Names each function and datum by its address."""

    def function(self, pc):
        return f"f{pc}"

    def place(self, address, *args):
        return f"d{address}"


def moved(sites, costs=(1, 10, 100)):
    """A Region whose lines moved at (data, function, core, llc, socket)."""
    rows = [["0", f"{data:x}", f"{pc:x}", *counts] for data, pc, *counts in sites]
    return region(1, far=["core", "llc", "socket"], moved_ps=list(costs), sites=rows)


def test_15_most_expensive_are_shown():
    found = transfers.hottest([moved([(n, n, 0, n, 0) for n in range(1, 21)])], Sites())
    assert [row[0] for row in found["functions"]] == [f"f{n}" for n in range(20, 5, -1)]
    assert [row[0] for row in found["lines"]] == [f"d{n}" for n in range(20, 5, -1)]


def test_cost_is_number_times_latency():
    """Not their sum: 12 moves in an LLC cost less than 2 to another one. And all regions have the
    latencies of one machine."""
    found = transfers.hottest([moved([(1, 1, 12, 0, 0), (2, 2, 0, 2, 0)]),
                               moved([(3, 3, 5, 1, 0)], (1, 10, 100))], Sites())
    print(found)
    assert [row[0] for row in found["functions"]] == ["f2", "f3", "f1"]


def test_three_functions_are_named_for_data():
    found = transfers.hottest([moved([(1, pc, pc, 0, 0) for pc in range(1, 6)])], Sites())
    assert found["lines"] == [["d1", "f5, f4, f3", 15, 0, 0]]


# ---- the workloads ----

@pytest.mark.parametrize("name, small, large", [
    # The second machine has 4 LLCs of 8 cores with 2 CPUs each.
    ("hackbench", "1:8:100:processes:pipe:0:15", "4:8:100:processes:pipe:0:63"),
    ("hackbench-rate", "1:8:90:20:threads:pipe:0:15", "4:8:90:20:threads:pipe:0:63"),
    ("rr", "4:5:60:20:processes:0:15", "16:5:60:20:processes:0:63"),
    ("sharing", "4:2:512:60:30", "4:6:512:60:30"),
    ("tenants", "8:70:60:30", "8:70:60:30"), ("stw", "2:500:4:100:4096:60:30", "2:500:16:100:4096:60:30"),
    ("phase", "1:2:512:8192:20:60:40", "1:6:512:8192:20:60:40"),
    ("mixed", "1:8192:1:5:60:20", "4:8192:1:5:60:20"), ("barrier", "2:50:8192:60:30", "6:50:8192:60:30"),
    ("hog", "1:2:8192:60:20", "1:6:8192:60:20"),
    ("handoff", "1:50:4:1024:60:30", "4:50:4:1024:60:30"),
    ("latency", "4:2:100:100:60:30", "4:8:100:100:60:30"),
    ("scale", "open:8:2:2:3", "open:32:2:2:3"),
    ("pipeline", "4:3:100:20", "4:3:100:20"),
    ("cyclic", "24:1000:20", "96:1000:20"), ("pi", "8:2:5:10", "32:2:5:10"),
    ("ping-pong", "0:4:500", "0:16:500"),
    ("bounce", "0:4:2000", "0:16:2000"),
    ("counters", "0:4:2000", "0:16:2000"),
    ("chase", "0:0:8192:20000", "0:0:8192:20000"),
])
def test_default_arguments(name, small, large):
    """They follow the machine: saved results are named after the workload alone."""
    for m, arguments in ((SMALL, small), (machine.load("epyc-2x2x8x2"), large)):
        assert str(workloads.task(name, m)) == f"{name}:{arguments}"


def test_no_figure_of_a_workload_has_the_name_of_another():
    """A workload's figure is named as the workload is."""
    for name, workload in workloads.WORKLOADS.items():
        assert not {name, *workload.more} & simulate.METRICS.keys()
        assert name not in workload.more


def test_every_workload_has_a_row_of_defaults():
    [mark] = test_default_arguments.pytestmark
    assert {row[0] for row in mark.args[1]} == set(workloads.WORKLOADS)


def test_pair_on_a_machine_of_one_llc():
    assert str(workloads.task("bounce", machine.load("one-llc"))) == "bounce:0:3:2000"


# ---- make sim-validate ----

# Of two distances, with values that rise as value_of() says.
NEAR, FAR = (published.Variant(SMALL.name, f"ping-pong:0:{cpu}:300") for cpu in (1, 8))
FOUND = published.Row(1, "distance", "a paper", {"near": NEAR, "far": FAR},
                      (published.Check("far against near", "near", "far", 2.0, 1.5, 2.5),))
FAST_ROW = published.Row(2, "fast", "a paper", {
    "near": NEAR, "fast": dataclasses.replace(NEAR, state="features=SIS_FAST", cgroups=3)},
    (published.Check("fast", "near", "fast", 2.0, 1.5, 2.5),), full=True, gap="it is slow")


@pytest.fixture
def rows(guests, monkeypatch):
    """Replace the table by FOUND and FAST_ROW; return a function that runs the command with settings."""
    monkeypatch.setattr(validate, "ROWS", (FOUND, FAST_ROW))
    monkeypatch.setattr(validate, "RESULTS", guests.out / "committed")

    def run(**given):
        return validate.command(settings.read("sim-validate", {"KIT_BUILD": str(guests.out), **given}))
    return run


def test_validation_runs_the_short_rows(guests, rows, capsys):
    assert rows() == 0
    shown = capsys.readouterr().out
    print(shown)
    # One boot for both variants of a seed, which take turns to be the first.
    assert [run["seed"] for run in sorted(guests.runs, key=lambda run: run["seed"])] == [1, 2, 3, 4, 5]
    assert guests.builds == ["stack"] and all(len(run["rows"]) == 2 for run in guests.runs)
    assert len({run["rows"][0].split(":")[-2] for run in guests.runs}) == 2
    assert "1. distance" in shown and "x 2.00" in shown and "row 1: reproduced" in shown
    assert "fast" not in shown
    [found] = validate.load(guests.out / "results/validation.json").values()
    assert found["values"]["far"] == [200.125, 200.25, 200.375, 200.5, 200.625]


def test_validation_of_all_rows(guests, rows, capsys):
    """A known gap does not fail the command. What two rows share is run once."""
    assert rows(FULL="1", SAVE="1") == 0
    shown = capsys.readouterr().out
    assert "row 2: not reproduced" in shown and "gap, row 2: it is slow" in shown
    assert sum(len(run["rows"]) for run in guests.runs) == 3 * 5
    assert {(run["writes"], run["cgroups"]) for run in guests.runs} == {("", 0), ("features=SIS_FAST", 3)}
    assert set(validate.load(guests.out / "committed/validation.json")) == {1, 2}


def test_validation_fails_with_a_gap_that_is_not_listed(guests, rows, monkeypatch):
    monkeypatch.setattr(validate, "ROWS", (FOUND, dataclasses.replace(FAST_ROW, gap="")))
    assert rows(ROWS="1") == 0
    with pytest.raises(Error, match="row 2 is not reproduced, and is not listed as a gap"):
        rows(ROWS="2")


def test_validation_without_a_part_of_the_model_is_not_kept(guests, rows):
    assert rows(WITHOUT="home") == 0
    assert validate.load(guests.out / "results/validation.json") == {}


def test_validation_refuses_settings(guests, rows):
    for settings, says in (({"SEEDS": "4"}, "SEEDS=4: with fewer than 5 seeds"),
                           ({"ROWS": "1 7"}, "ROWS=7: there are rows 1, 2")):
        with pytest.raises(Error, match=says):
            rows(**settings)
    assert guests.builds == guests.runs == []
