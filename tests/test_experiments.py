# SPDX-License-Identifier: GPL-2.0-only
"""make sim-all: the committed table, what is run again, and what an interruption loses. The guests are
made up, as in test_simulate.py."""

import dataclasses
import math
import re
import threading
import time

import pytest
from test_simulate import SMALL, guests  # noqa: F401, a fixture

from kit import settings
from kit.paths import RESULTS
from kit.process import Error
from kit.results import power, store
from kit.sim import costs, experiments, simulate
from kit.vm import guest, kernel

TABLE = """
[first]
machine = "epyc-2x2x2"
workload = "ping-pong:0:8:300"
state = "features=SIS_FAST"
against = "base"
seeds = 2
sensitivity = 1

[second]
machine = "epyc-2x2x2"
workload = "ping-pong:0:16:300"
seeds = 3
"""
# The boots of both: two states and the control with two seeds each, and one state with three.
FIRST, SECOND = 6, 3


# ---- the committed table ----

def test_each_result_has_a_row_that_asks_for_what_its_command_asks_for():
    rows, wrong = {row.path: row for row in experiments.rows()}, []
    for path, row in rows.items():
        one = row.experiment()
        if not path.exists():
            continue
        found = store.load(path)
        # Series had names of one part once.
        had = [(re.sub(r"^7\.3$", "7.3/base", subject.kernel), subject.state)
               for name, subject in found.subjects.items() if name != simulate.CONTROL]
        if (had, found.machine, found.repeat["workload"], found.repeat.get("start", "")) != (
                [(str(state.build), state.writes) for state in one.states], one.machine.name, str(one.task),
                one.task.start) or found.repeat["seeds"] < one.seeds:
            wrong.append(row.name)
        wrong += [row.name for state in one.states
                  if state.cgroups and f" CGROUPS={state.cgroups} " not in found.repeat["command"]]
    assert wrong == []
    assert {path for path in RESULTS.glob("*/sim-*.json")} <= set(rows), "results without a row in results/experiments.toml"


def test_each_row_declares_what_it_has_to_show():
    rows = experiments.rows()
    assert all(set(row.declared) == set(experiments.DECLARED) for row in rows)
    assert {row.name for row in rows if row.hours > experiments.HOURS} <= {"cyclic-384", "cyclic-384-offstack"}


DECLARED = 'machine = "epyc-2x2x2"\nworkload = "rr"\nmust = "win"\nsize = 0.05\nspread = 0.05\nrests_on = "x"\nboot_s = 60'


@pytest.mark.parametrize("change, says", [
    ('machine = ""\nworkload = ["rr"]', "first: machine: must be a text or a number"),
    ('machine = "epyc-2x2x2"\nworkload = "nothing"', "first: WORKLOAD=nothing: there is no nothing"),
    ('machine = "epyc-2x2x2"', "first: workload: missing"), ('window = "x"', "first: window: unknown key"),
    ('machine = "epyc-2x2x2"\nworkload = "rr"\nkernels = ["theirs"]', "first: kernels: must be a list of ours"),
    ('machine = "epyc-2x2x2"\nworkload = "rr"\nkernels = "ours"', "first: kernels: must be a list of ours"),
    ('machine = "epyc-2x2x2"\nworkload = "rr"\nsensitivity = "x"', "first: sensitivity: must be a number"),
    ('machine = "epyc-2x2x2"\nworkload = "rr"\nseeds = "many"', "first: SEEDS=many: must be"),
    ("first", "not TOML"),
    (DECLARED + "\nseeds = 5", "first: seeds: follow from size and spread"),
    (DECLARED.replace("win", "gain"), "first: must: is to be one of win, not lose, ceiling"),
    (DECLARED.replace("size = 0.05\n", ""), "first: size: missing, or not a number above 0"),
    (DECLARED.replace("spread = 0.05", "spread = 0.5"), "first: needs more than 500 runs"),
    (DECLARED.replace("boot_s = 60", "boot_s = 999"), "first: takes 5.0 hours of 2 CPUs, more than 2"),
])
def test_bad_table(tmp_path, change, says):
    path = tmp_path / "experiments.toml"
    path.write_text(f"[first]\n{change}\n")
    with pytest.raises(Error, match=re.escape(says)):
        for row in experiments.rows(path):
            row.experiment()


# ---- running it ----

@pytest.fixture
def table(guests, monkeypatch):  # noqa: F811
    """A table of two rows, and the made-up guests that run it."""
    path = guests.out / "experiments.toml"
    path.write_text(TABLE)
    monkeypatch.setattr(experiments, "TABLE", path)
    monkeypatch.setattr(experiments, "RESULTS", guests.out / "committed")
    for build in ("stack", "base"):
        image = dataclasses.replace(guests.stack.build, build=build).image
        image.parent.mkdir(parents=True)
        image.write_text(build)
    return guests


def sim_all(table, **given):
    """Run make sim-all with settings."""
    return experiments.command(settings.read("sim-all", {"KIT_BUILD": str(table.out), **given}))


def run_again(table, **given):
    """Run make sim-all with settings; give how many boots that took."""
    table.runs.clear()
    assert sim_all(table, **given) == 0
    return len(table.runs)


def test_table_is_run_once(table, capsys):
    assert run_again(table) == FIRST + SECOND
    shown = capsys.readouterr().out
    print(shown)
    found = store.load(table.out / "committed/epyc-2x2x2/sim-first.json")
    assert found.repeat["command"] == (
        "make sim MACHINE=epyc-2x2x2 WORKLOAD=ping-pong:0:8:300 BUILD=stack STATE=features=SIS_FAST"
        " AGAINST=base SEEDS=2")
    assert list(found.values) == ["base", "stack features=SIS_FAST", simulate.CONTROL]
    assert "row first: " in shown and re.search(r"^second +\d+$", shown, re.M) and "9 boots" in shown
    assert run_again(table) == 0
    assert "row first: up to date" in capsys.readouterr().out
    # Nothing is kept of a table that is up to date.
    assert not (table.out / "sim-all").exists()


@pytest.mark.parametrize("what, says, boots", [
    ("model", "model", FIRST + SECOND), ("guest", "initramfs", FIRST + SECOND),
    ("kernel", "kernel base", FIRST), ("costs", "caches", FIRST + SECOND), ("row", "seeds", 1),
    ("state", "command", 2), ("lost", "not readable", FIRST)])
def test_what_has_changed_is_run_again(table, monkeypatch, capsys, what, says, boots):
    """A row is run again if anything that goes into it has changed; of its boots, those that have not."""
    # Else the boots are removed with the last row.
    monkeypatch.setattr(experiments.shutil, "rmtree", lambda *args, **options: None)
    assert run_again(table) == FIRST + SECOND
    if what == "model":
        monkeypatch.setattr(simulate, "model", lambda: "other")
    elif what == "guest":
        monkeypatch.setattr(simulate.initramfs, "base", lambda which: b"other")
    elif what == "kernel":
        monkeypatch.setattr(kernel, "identity", lambda build: {"release": f"6.12-{build}", "source": (
            "t" if str(build) == "base" else "s")})
        for build in ("stack", "base"):
            dataclasses.replace(table.stack.build, build=build).image.write_text(f"{build} again")
    elif what == "costs":
        found = costs.load(SMALL.caches)
        found.tables["dram"]["ns"] += 1
        monkeypatch.setattr(costs, "load", lambda name: found)
    elif what == "row":
        experiments.TABLE.write_text(TABLE.replace("seeds = 3", "seeds = 4"))
    elif what == "state":
        experiments.TABLE.write_text(TABLE.replace("SIS_FAST", "X"))
    else:
        (table.out / "committed/epyc-2x2x2/sim-first.json").write_text("{")
        for kept in (table.out / "sim-all").glob("*.json"):
            kept.unlink()
    assert run_again(table) == boots
    assert re.search(rf"to run: .*{says}", capsys.readouterr().out)
    assert run_again(table) == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, Error])
def test_interrupted_run_continues_with_the_next_boot(table, monkeypatch, error):
    """Four boots end well, then the run ends: the next one needs the rest only."""
    monkeypatch.setattr(experiments.os, "sched_getaffinity", lambda pid: {0})

    def change(run, result):
        if len(table.runs) > 4:
            raise error("enough")
        return result
    table.change = change
    with pytest.raises(error):
        sim_all(table)
    table.change = lambda run, result: result
    assert run_again(table) == FIRST + SECOND - 4
    assert run_again(table) == 0


def test_failed_row_does_not_end_the_others(table):
    def change(run, result):
        bad = run["rows"][0].split(":")[-2] == "8" and run["seed"] == 2
        return guest.Result("", "", 1.0, True, 0, [], ["it broke"]) if bad else result
    table.change = change
    with pytest.raises(Error, match="1 failed; .*\n  first: epyc.*\n  it broke"):
        sim_all(table)
    committed = table.out / "committed"
    assert (committed / "epyc-2x2x2/sim-second.json").exists()
    assert not (committed / "epyc-2x2x2/sim-first.json").exists()


def test_kernel_that_does_not_build_fails_its_rows_only(table, monkeypatch):
    def build(which):
        if str(which) == "base":
            raise Error("a compiler's error")
    monkeypatch.setattr(kernel, "build", build)
    with pytest.raises(Error, match="1 failed; .*\n  first: a compiler's error"):
        sim_all(table)
    assert len(table.runs) == SECOND


def test_no_more_boots_than_cpus(table, monkeypatch):
    """Two rows side by side, on two CPUs."""
    monkeypatch.setattr(experiments.os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(experiments, "BOOTS", 1)
    at_once, most, guard = [], [], threading.Lock()

    def change(run, result):
        with guard:
            at_once.append(run["name"])
            most.append(len(at_once))
        # Until another one has come, if it ever does.
        for _ in range(1000):
            if max(most) > 1:
                break
            time.sleep(0.02)
        with guard:
            at_once.remove(run["name"])
        return result
    table.change = change
    assert run_again(table) == FIRST + SECOND
    print(most)
    assert max(most) == 2


def test_rows_are_selected(table):
    assert run_again(table, EXPERIMENTS="second") == SECOND
    with pytest.raises(Error, match="EXPERIMENTS=secnd: there is no such row"):
        sim_all(table, EXPERIMENTS="secnd")


# ---- sensitivity ----

def test_scaled_costs(table):
    """SCALE= multiplies what it names and nothing else, and the command repeats it."""
    env = {"MACHINE": "epyc-2x2x2", "WORKLOAD": "rr", "SCALE": "llc=1.3 store=0.7"}
    scaled, plain = (simulate.experiment(settings.read("sim", these)) for these in (env, env | {"SCALE": ""}))
    new, old = (costs.of(one.machine).tables for one in (scaled, plain))
    changed = {(table, key): new[table][key] / old[table][key] for table in old for key in old[table]
               if new[table][key] != old[table][key]}
    print(changed)
    assert changed == pytest.approx({("l2", "ns"): 1.3, ("l3", "ns"): 1.3, ("other_core", "ns"): 1.3,
                                     ("core", "store_percent"): 0.7})
    assert type(new["core"]["store_percent"]) is int
    # A round is a part of the shortest way, which is longer now.
    assert scaled.round_ns > plain.round_ns and simulate.default_round(scaled.machine) == scaled.round_ns
    assert " SCALE='llc=1.3 store=0.7'" in scaled.command(1) and "SCALE" not in plain.command(1)
    with pytest.raises(Error, match="SCALE=l9=.*: there is no such class"):
        simulate.experiment(settings.read("sim", env | {"SCALE": "l9=2"}))
    for text in ("llc", "llc=0", "llc=-1", "llc=x"):
        with pytest.raises(Error, match="must be NAME=FACTOR"):
            settings.read("sim", {"SCALE": text})


def test_all_latencies_are_in_a_class():
    numbers = [number for numbers in costs.CLASSES.values() for number in numbers]
    assert sorted(numbers) == sorted([("core", "store_percent"), *(
        (table, "ns") for table, keys in costs.TABLES.items() if "ns" in keys)])


def test_sensitivity(table, monkeypatch, capsys):
    """Each class of costs, and the round, lower and higher; the sign that changes is named."""
    def change(run, result):
        """With slow memory, the feature loses: ns of ping-pong, less is better."""
        slow = int(run["options"]["dram_ps"]) > costs.of(SMALL).ns("dram") * 1000
        scale = 5 if slow and run["writes"] else 1
        text = re.sub(r'("value": )([\d.]+)', lambda found: f"{found[1]}{scale * float(found[2])}", result.ktap)
        return guest.Result("", text, 1.0, True, 0)
    table.change = change
    (table.out / "committed").mkdir()
    assert sim_all(table, SENSITIVITY="1") == 0
    print(capsys.readouterr().out)
    # Two states, one seed, no control.
    assert len(table.runs) == 2 * (1 + 2 * (len(costs.CLASSES) + 1))
    page = (table.out / "committed/sensitivity.md").read_text()
    print(page)
    assert "## first" in page and "second" not in page
    assert "The sign changes with: memory x 1.3." in page and "| nothing | +99.9 % |" in page
    rounds = {int(run["options"]["quantum_ps"]) for run in table.runs}
    length = simulate.default_round(SMALL) * 1000
    assert {round(0.7 * length), length, round(1.3 * length)} <= rounds


def test_sensitivity_needs_a_row_that_declares_it(table):
    with pytest.raises(Error, match="none of these rows declares `sensitivity`"):
        sim_all(table, SENSITIVITY="1", EXPERIMENTS="second")
    assert not table.runs


def test_sign_that_holds():
    lines = "\n".join(experiments.sensitivity_page({"a": {"nothing": -0.1, "x": -0.2}}, "make sim-all"))
    assert "The sign holds for all 1 changes." in lines and "| x | -20.0 % |" in lines


# ---- pilot runs ----

DECLARED = '''must = "win"
size = 0.1
spread = 0.2
rests_on = "nothing"
boot_s = 1
'''


def test_pilot_says_how_many_runs_to_declare(table, capsys):
    """From the spread of a few runs of each state, with seeds that no row has. No result is kept."""
    experiments.TABLE.write_text(TABLE.replace("seeds = 2\n", DECLARED))

    def change(run, result):
        scale = 1 + 0.1 * (int(run["options"]["seed"]) % 2)
        text = re.sub(r'("value": )([\d.]+)', lambda found: f"{found[1]}{scale * float(found[2])}", result.ktap)
        return guest.Result("", text, 1.0, True, 0)
    table.change = change
    assert sim_all(table, PILOT="1", EXPERIMENTS="first") == 0
    shown = capsys.readouterr().out
    print(shown)
    seeds = [int(run["options"]["seed"]) for run in table.runs]
    assert len(seeds) == 2 * power.LEAST and min(seeds) > simulate.OTHER_SEEDS + power.MOST
    found = float(re.search(r"row first: spread (\S+), so (\d+) runs; declared are 0.2 and \d+;", shown)[1])
    # 1, 1.1, 1, 1.1, 1, in both states.
    assert found == pytest.approx(math.log(1.1) * math.sqrt(0.3), rel=0.03)
    assert f"so {power.runs(found, 0.1, False)} runs" in shown
    assert not (table.out / "committed").exists()


def test_pilot_needs_a_row_that_declares_something(table):
    with pytest.raises(Error, match="none of these rows declares what it must show"):
        sim_all(table, PILOT="1")
    assert not table.runs
