# SPDX-License-Identifier: GPL-2.0-only
"""make bench-host: the order of the runs, the settings it refuses, the figures it reads from the
programs' output, and that it restores what it toggles; on made-up files, and once in a guest."""

import dataclasses
import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from here import call, gone, named, script, wait_for
from kit import settings
from kit.host import facts, knobs, measure, portable, workloads
from kit.process import Error
from kit.results import store
from kit.trials.programs import libraries
from kit.vm import guest, kernel, ktap, machine

SHAPE = facts.Shape(16, 8)
TINY = workloads.Size(0.001, 1, 1)


# ---- the order ----

@pytest.mark.parametrize("count", [2, 3, 6])
def test_what_drifts_evenly_is_the_same_for_all(count):
    """In each round, all states are measured equally late on average."""
    subjects = [f"s{i}" for i in range(count)]
    order = [name for pass_ in measure.passes(subjects, 5) for name in pass_]
    for i in range(5):
        part = order[i * 2 * count:(i + 1) * 2 * count]
        when = {name: sum(at for at, other in enumerate(part) if other == name)
                for name in subjects}
        assert set(when.values()) == {2 * count - 1}, when
    assert len({pass_[0] for pass_ in measure.passes(subjects, count)[::2]}) == count


# ---- switches, with made-up files in place of debugfs ----

@pytest.fixture(name="sched")
def made_up(tmp_path, monkeypatch):
    """A directory like that of debugfs: a write to `features` changes one of them."""
    sched = tmp_path / "sched"
    (sched / "llc_balancing").mkdir(parents=True)
    (sched / "features").write_text("NEXT_BUDDY NO_TTWU_QUEUE_L2 SIS_FAST SCHED_CACHE \n")
    (sched / "llc_balancing/enabled").write_text("1\n")
    (sched / "llc_balancing/aggr_tolerance").write_text("7\n")

    def put(path, text):
        if not path.exists():
            raise FileNotFoundError(2, "No such file")
        if path.name == "features":
            name = text.removeprefix("NO_")
            words = [text if word.removeprefix("NO_") == name else word
                     for word in path.read_text().split()]
            if text not in words:
                raise OSError(22, "Invalid argument")
            text = " ".join(words) + " "
        if (path.name, text) != ("aggr_tolerance", "13"):
            path.write_text(text + "\n")
    monkeypatch.setattr(knobs, "put", put)
    return sched


def wanted(**more):
    return dataclasses.replace(measure.asked(settings.read("bench-host", more)),
                               features=("TTWU_QUEUE_L2", "SIS_FAST", "SCHED_CACHE"))


def everything(sched):
    return {str(path): path.read_text() for path in sorted(sched.rglob("*")) if path.is_file()}


def test_states(sched):
    """Each state sets all switches, so that none keeps the value of the state before."""
    more = "more:features=TTWU_QUEUE_L2,llc_balancing/aggr_tolerance=9"
    found, left = measure.states(wanted(STATES=more), sched)
    for name, pairs in found.items():
        print(name, pairs)
    assert list(found) == ["off", "off again", "TTWU_QUEUE_L2", "SIS_FAST", "SCHED_CACHE", "more"]
    assert found["off"] == found["off again"] == [
        ("features", "NO_TTWU_QUEUE_L2"), ("features", "NO_SIS_FAST"),
        ("features", "NO_SCHED_CACHE"), ("llc_balancing/aggr_tolerance", "7")]
    assert found["more"] == [
        ("features", "TTWU_QUEUE_L2"), ("features", "NO_SIS_FAST"), ("features", "NO_SCHED_CACHE"),
        ("llc_balancing/aggr_tolerance", "9")]
    assert {len(pairs) for pairs in found.values()} == {4} and left == {}


def test_states_of_mainline(sched):
    """Mainline has no feature bit, but a file that switches it."""
    (sched / "features").write_text("NEXT_BUDDY \n")
    found, left = measure.states(wanted(), sched)
    assert found == {"off": [("llc_balancing/enabled", "0")],
                     "off again": [("llc_balancing/enabled", "0")],
                     "llc_balancing/enabled": [("llc_balancing/enabled", "1")]}
    assert left["SIS_FAST"] == "the running kernel does not have it"


@contextmanager
def child(body):
    """Start another process that runs body() and then waits for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
            while True:
                time.sleep(100)
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_killed_run_is_put_back_by_the_guard(sched, tmp_path):
    """SIGKILL cannot be caught. The workload that ran is ended too."""
    before = everything(sched)

    def body():
        guard = knobs.Guard([[("features", "TTWU_QUEUE_L2")]], sched)
        proc = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        guard.running(proc.pid)
        (tmp_path / "pid").write_text(str(proc.pid))
        knobs.write([("features", "TTWU_QUEUE_L2")], sched)
    with child(body) as pid:
        wait_for(lambda: everything(sched) != before)
        sleeper = (tmp_path / "pid").read_text()
        assert not gone(sleeper)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: everything(sched) == before)
        wait_for(lambda: gone(sleeper))


def test_guard_ignores_polite_signals(sched, monkeypatch):
    """As when a whole session or control group gets a signal. The guard restores the switches, not
    this process."""
    before = everything(sched)
    guard = knobs.Guard([[("features", "TTWU_QUEUE_L2")]], sched)
    monkeypatch.setattr(knobs, "_restore", lambda *args: pytest.fail("the guard was killed"))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guard.pid, number)
    knobs.write([("features", "TTWU_QUEUE_L2")], sched)
    guard.close()
    assert everything(sched) == before


def test_killed_guard(sched):
    """The run notices that the guard is gone, and restores the switches itself."""
    before = everything(sched)
    guard = knobs.Guard([[("features", "TTWU_QUEUE_L2")]], sched)
    knobs.write([("features", "TTWU_QUEUE_L2")], sched)
    os.kill(guard.pid, signal.SIGKILL)
    os.waitid(os.P_PID, guard.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Error, match="was killed"):
        guard.running(1)
    guard.close()
    assert everything(sched) == before


def test_what_cannot_be_put_back_is_said(sched, capfd):
    guard = knobs.Guard([[("llc_balancing/enabled", "0")]], sched)
    (sched / "llc_balancing/enabled").unlink()
    with pytest.raises(Error, match="not all in"):
        guard.close()
    assert "could not be put back" in capfd.readouterr().err


def test_write_that_does_not_last(sched):
    with pytest.raises(Error, match="wrote 13, it reads 7"):
        knobs.write([("llc_balancing/aggr_tolerance", "13")], sched)
    with pytest.raises(Error, match="No such file"):
        knobs.write([("llc_balancing/none", "1")], sched)


# ---- refusals ----

@pytest.mark.parametrize("env, says", [
    ({"SHORT": "1", "SAVE": "1"}, "not for results/"),
    ({"SHORT": "1", "FULL": "1"}, "nor a full one"),
    ({"ROUNDS": "0"}, "ROUNDS=0: must be a whole number from 1 to 999"),
    ({"STATES": "x"}, "STATES=x: must be NAME:FILE=VALUE"),
    ({"STATES": "x:features"}, "not FILE=VALUE"),
    ({"STATES": "x:../../trace=1"}, "not FILE=VALUE, with a file below"),
    ({"STATES": "off:features=SIS_FAST"}, "must be NAME"),
])
def test_settings_that_cannot_be_meant(env, says):
    with pytest.raises(Error, match=re.escape(says)):
        wanted(**env)


@pytest.mark.parametrize("env, says", [
    ({"FEATURES": "NO_SUCH"},
     "FEATURES=NO_SUCH: the running kernel has none of that name (it has, of the stack's: "
     "TTWU_QUEUE_L2 SIS_FAST SCHED_CACHE)"),
    ({"STATES": "x:features=NONE"}, "this kernel has no feature NONE"),
    ({"STATES": "x:llc_balancing/none=1"}, "llc_balancing/none: No such file"),
    ({"STATES": "x:llc_balancing=1"}, "llc_balancing: Is a directory"),
])
def test_what_the_kernel_does_not_have(sched, env, says):
    with pytest.raises(Error, match=re.escape(says)):
        measure.states(wanted(**env), sched)


def test_nothing_to_toggle(sched):
    (sched / "features").write_text("NEXT_BUDDY \n")
    shutil.rmtree(sched / "llc_balancing")
    with pytest.raises(Error, match="AS_IS=1 measures it as it is"):
        measure.states(wanted(), sched)
    assert measure.states(wanted(AS_IS="1"), sched) == ({"as it is": []}, {})


def test_no_debugfs(tmp_path):
    with pytest.raises(Error, match="is debugfs mounted"):
        measure.states(wanted(), tmp_path / "none")


def test_not_root(monkeypatch, run):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Error, match="only root can toggle"):
        run()
    rt = [workload for workload in workloads.every(SHAPE, TINY, "python3") if workload.root]
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/bin/{name}")
    assert {workloads.missing(workload, False) for workload in rt} == {
        "needs root for real-time priorities"}
    assert workloads.missing(rt[0], True) is None


def test_not_installed(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    here, left = measure.choose(wanted(), SHAPE)
    assert here == [] and left["perf/pipe"] == "perf is not installed"
    with pytest.raises(Error, match="WORKLOADS=hackbank: there is none whose name begins so"):
        measure.choose(wanted(WORKLOADS="hackbank"), SHAPE)


@pytest.mark.parametrize("others, steal, noisy", [(0, 0, False), (15, 0, False), (20, 0, True),
                                                  (0, 20, True)])
def test_noise(tmp_path, others, steal, noisy):
    """Of 16 CPUs for a second, 1600 ticks, a tenth of a CPU is 10 of them; of 384 it is half a
    percent of all."""
    cpus = 16
    def stat(used, stolen, idle):
        (tmp_path / "proc").mkdir(exist_ok=True)
        (tmp_path / "proc/stat").write_text(f"cpu  {used} 0 0 {idle} 0 0 0 {stolen} 0 0\n")
    (tmp_path / facts.CPU).mkdir(parents=True)
    (tmp_path / facts.CPU / "online").write_text(f"0-{cpus - 1}\n")
    stat(1000, 10, 50_000)
    used, stolen, _ = facts.busy(1, tmp_path, lambda seconds: stat(
        1000 + others, 10 + steal, 50_000 + 2400 - others - steal))
    print(used, stolen)
    assert (max(used, stolen) > facts.limit(cpus)) == noisy
    assert facts.limit(384) == pytest.approx(1.92)


# ---- the plan of a run ----

ALL_OF_OURS = {measure.OFF: [("features", "NO_SIS_FAST")], measure.AGAIN: [("features", "NO_SIS_FAST")],
               **{feature.name: [("features", feature.name)] for feature in measure.FEATURES}}


def planned(subjects):
    shape = facts.Shape(384, 16)
    return measure.plan(subjects, workloads.every(shape, workloads.NORMAL, "python3"), shape, False)


def test_each_feature_has_about_three_primary_metrics():
    """Each names a figure of a workload that exists on large and small hosts, and has a reason."""
    for shape in (facts.Shape(384, 16), facts.Shape(240, 60), SHAPE, facts.Shape(2, 2)):
        metrics = {one.name + figure.suffix for one in workloads.every(shape, workloads.NORMAL, "p")
                   for figure in one.figures}
        for feature in measure.FEATURES:
            names = workloads.primary(feature.name, shape)
            assert 2 <= len(names) <= 4 and set(names) <= metrics
    assert all(one.reason for one in workloads.PRIMARY)
    assert {name for one in workloads.PRIMARY for name in one.features} == {
        feature.name for feature in measure.FEATURES}


def test_default_run_measures_primary_figures_in_about_an_hour():
    """The state of a feature runs the workloads with its primary metrics; the base and the control
    run all of them."""
    runs, primary = planned(ALL_OF_OURS)
    by_name = {one.name: subjects for one, subjects in runs}
    assert "pi_stress" not in by_name and "SIS_FAST" in by_name["netperf/TCP_RR-384-slice"]
    assert all(len(subjects) > 2 for subjects in by_name.values())
    for feature in measure.FEATURES:
        assert primary[feature.name] == workloads.primary(feature.name, facts.Shape(384, 16))
    assert 40 * 60 < measure.seconds_of(runs, workloads.NORMAL) < 80 * 60


def test_primary_metrics_of_further_states():
    """A state has the primary metrics of the features it switches on; its knobs, of SCHED_CACHE."""
    off = [("features", "NO_SIS_FAST"), ("llc_balancing/aggr_tolerance", "1")]
    _, primary = planned({"off": off, "off again": off, "posted": [("features", "SIS_FAST")],
                          "tolerant": [("features", "NO_SIS_FAST"),
                                       ("llc_balancing/aggr_tolerance", "100")],
                          "SCHED_CACHE": [("features", "SCHED_CACHE"),
                                          ("llc_balancing/aggr_tolerance", "1")]})
    shape = facts.Shape(384, 16)
    assert primary == {"posted": workloads.primary("SIS_FAST", shape),
                       "tolerant": workloads.primary("SCHED_CACHE_LB", shape),
                       "SCHED_CACHE": workloads.primary("SCHED_CACHE", shape)}


def test_workloads_that_the_user_names():
    """They run in all states, and the first figure of each is declared."""
    chosen = [one for one in workloads.every(SHAPE, TINY, "p") if one.name.startswith("schbench")]
    runs, primary = measure.plan(ALL_OF_OURS, chosen, SHAPE, True, True)
    assert all(subjects == list(ALL_OF_OURS) for _, subjects in runs)
    assert primary["SIS_FAST"] == ["schbench/2/wake-p99", "schbench/4/wake-p99",
                                   "schbench/8/wake-p99"]
    assert set(primary) == set(ALL_OF_OURS) - {"off", "off again"}


def test_plan_where_nothing_is_toggled():
    """AS_IS=1: the workloads with any primary metric, once."""
    runs, primary = planned({measure.PLAIN: []})
    assert {tuple(subjects) for _, subjects in runs} == {(measure.PLAIN,)}
    assert {one.name for one, _ in runs} == {one.name for one, _ in planned(ALL_OF_OURS)[0]}
    assert len(primary[measure.PLAIN]) == len(runs)


# ---- measuring, with workloads of our own ----

def workload(name, command, pattern=workloads.HACKBENCH):
    return workloads.Workload(name, name, command, ("sh",), pattern, 1)


@pytest.fixture
def run(tmp_path):
    """A function that runs make bench-host with settings."""
    return lambda **given: measure.command(settings.read("bench-host", {
        "KIT_BUILD": str(tmp_path / "build"), "SHORT": "1", "FEATURES": "SIS_FAST", "NAME": "here", **given}))


@pytest.fixture(name="ready")
def made_ready(sched, tmp_path, monkeypatch):
    """Replace switches and facts by those of a quiet host; return the directory of the results."""
    monkeypatch.setattr(measure, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(facts, "busy", lambda seconds: (0.0, 0.0, []))
    monkeypatch.setattr(measure, "states", lambda wanted, real=measure.states: real(wanted, sched))
    init = measure.Host.__init__
    monkeypatch.setattr(measure.Host, "__init__", lambda self, subjects, shape, noisy: init(
        self, subjects, shape, noisy, sched))
    toy = [feature for feature in measure.FEATURES if feature.name == "SIS_FAST"]
    monkeypatch.setattr(measure, "FEATURES", toy)
    return tmp_path / "build/results/here"


def run_these(monkeypatch, *chosen):
    monkeypatch.setattr(workloads, "every", lambda shape, size, python: list(chosen))


def test_measures_each_state_in_its_state(ready, sched, monkeypatch, run):
    before = everything(sched)
    told = []
    monkeypatch.setattr(knobs.Guard, "running", lambda guard, group: told.append(group))
    run_these(monkeypatch, workload("w", f"grep -q NO_SIS_FAST {sched}/features && echo Time: 2 || "
                                         "echo Time: 1"))
    assert run() == 0
    assert everything(sched) == before
    [path] = ready.glob("*.json")
    found = store.load(path)
    print(found.values)
    assert found.values == {"off": {"w": [2, 2]}, "off again": {"w": [2, 2]},
                            "SIS_FAST": {"w": [1, 1]}}
    assert store.control(found, "off") == "off again" and found.metrics["w"].better == "less"
    assert found.repeat["commands"]["w"].startswith("grep")
    assert found.repeat["primary_of"] == {"SIS_FAST": []} and found.repeat["primary"] == []
    # The guard does not end a group that is no more: its number may be another's by then.
    assert len(told) == 2 * 7 and set(told[1::2]) == {0} and min(told[::2]) > 1
    assert run() == 0 and len(list(ready.glob("*.json"))) == 2


def test_failed_workload_is_left_out(ready, monkeypatch, capsys, run):
    run_these(monkeypatch, workload("a", "echo oops; exit 3"), workload("b", "echo Time: 1"),
              workload("c", "echo nothing of use"))
    assert run() == 0
    [path] = ready.glob("*.json")
    found = store.load(path)
    assert set(found.metrics) == {"b"}
    assert found.repeat["left_out"] == {"a": "status 3: oops",
                                        "c": "0 figures in its output, not one: nothing of use"}
    assert "left out: status 3: oops" in capsys.readouterr().err


def test_workload_that_hangs(ready, monkeypatch, run):
    monkeypatch.setattr(measure, "RUN_SECONDS", 0.5)
    run_these(monkeypatch, workload("a", "sleep 1000"))
    with pytest.raises(Error, match="nothing could be measured"):
        run()


def test_host_that_gets_noisy(ready, monkeypatch, run):
    monkeypatch.setattr(measure, "WAIT_SECONDS", 0)
    monkeypatch.setattr(facts, "busy", lambda seconds: (
        (0.0, 0.0, []) if seconds == measure.WATCH_SECONDS else (1.0, 0.0, ["make"])))
    run_these(monkeypatch, workload("a", "echo Time: 1"))
    with pytest.raises(Error, match="nothing could be measured"):
        run()


def test_noisy_host(ready, monkeypatch, sched, run):
    before = everything(sched)
    monkeypatch.setattr(facts, "busy", lambda seconds: (1.0, 0.0, ["make"]))
    run_these(monkeypatch, workload("a", "echo Time: 1"))
    with pytest.raises(Error, match=r"not quiet: others keep 1.00 of its \d+ CPUs busy \(make\)"):
        run()
    assert run(NOISY="1") == 0 and everything(sched) == before


def test_interrupted(ready, monkeypatch, sched, tmp_path, run):
    """The figures so far are kept, the switches are restored, and the workload is ended."""
    before = everything(sched)

    def body():
        run_these(monkeypatch, workload("a", "echo Time: 1"),
                  workload("b", f"echo $$ > {tmp_path}/pid; kill -INT {os.getpid()}; sleep 1000"))
        try:
            run()
        except KeyboardInterrupt:
            (tmp_path / "interrupted").touch()
    # In a process of its own, as this one has threads: one of them may take the signal while the main
    # thread holds signals.
    with child(body):
        wait_for((tmp_path / "interrupted").exists)
    assert everything(sched) == before
    [path] = ready.glob("*.json")
    assert set(store.load(path).metrics) == {"a"}
    assert gone((tmp_path / "pid").read_text().strip())


# ---- what the programs print ----

CYCLIC = """\
stress-ng: info:  [9796] cyclic:   mean: 25830.61 ns, mode: 27401 ns
stress-ng: metrc: [95] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo
stress-ng: metrc: [95]                           (secs)    (secs)    (secs)   (real time) (usr+sys
stress-ng: metrc: [95] cyclic            29639      2.00      0.10      0.61     14805.52    42051.7
"""
CYCLICTEST = """\
# Total: 000009876 000009925
# Min Latencies: 00009 00014
# Avg Latencies: 00018 00017
# Max Latencies: 04829 02250
"""
SCHBENCH = """\
Wakeup Latencies percentiles (usec) runtime 1 (s) (212 total samples)
	  50.0th: 7          (7806 samples)
	* 99.0th: 1          (2590 samples)
Wakeup Latencies percentiles (usec) runtime 10 (s) (30212 total samples)
	  50.0th: 7          (7806 samples)
	* 99.0th: 175        (2590 samples)
	  99.9th: 909        (271 samples)
Request Latencies percentiles (usec) runtime 10 (s) (30246 total samples)
	* 99.0th: 17248      (616 samples)
RPS percentiles (requests) runtime 10 (s) (1 total samples)
	* 50.0th: 3020       (0 samples)
average rps: 3024.60
"""
NETPERF = """\
16384  131072 1       1      1.00    15059.22  32.79  32.79  43.547  43.547
16384  131072
16384  131072 1       1      1.00    4940.78  32.79  32.79  43.547  43.547
16384  131072
"""
SOCKPERF = """\
sockperf: Summary: Latency is 33.750 usec
sockperf: ---> percentile 99.900 =   66.789
sockperf: ---> percentile 99.000 =   47.155
"""
TBENCH = """\
   2     45289   261.10 MB/sec  execute   2 sec  latency 7.802 ms
 Flush           2002     0.033    10.288

Throughput 261.095 MB/sec  2 clients  2 procs  max_latency=12.552 ms
"""
PERF = """\
# Running 'sched/pipe' benchmark:
     Total time: 0.097 [sec]

      48.594000 usecs/op
"""


@pytest.mark.parametrize("figures, output, values", [
    (workloads.HACKBENCH, "Running in threaded mode\nTime: 0.020\n", [0.02]),
    (workloads.PERF, PERF, [0.097]),
    (workloads.CYCLIC, CYCLIC, [14805.52]),
    (workloads.PI_STRESS, "Current Inversions: 5\nTotal inversion performed: 101118\n", [101118]),
    (workloads.CYCLICTEST, CYCLICTEST, [17.5, 4829]),
    (workloads.SCHBENCH, SCHBENCH, [175, 17248, 3024.6]),
    (workloads.netperf(2), NETPERF, [20000]),
    (workloads.sockperf(1), SOCKPERF, [33.75, 47.155]),
    (workloads.TBENCH, TBENCH, [261.095]),
])
def test_figures(figures, output, values):
    assert [figure.read(output) for figure in figures] == pytest.approx(values)
    for figure in figures:
        for rubbish in ("", "Segmentation fault\n", output[:20]):
            with pytest.raises(ValueError):
                figure.read(rubbish)


def test_figure_of_nothing():
    with pytest.raises(ValueError, match="too short a time"):
        workloads.HACKBENCH[0].read("Time: 0.000\n")


def test_one_of_several_clients_that_fails():
    with pytest.raises(ValueError, match="2 figures in its output, not 3"):
        workloads.netperf(3)[0].read(NETPERF)


def test_tbench(tmp_path, monkeypatch):
    """With stand-ins: the server is started before the clients and ended after them, and a client
    that fails is a failure."""
    log = tmp_path / "log"
    script(tmp_path / "tbench_srv", f"echo server >> {log}; exec sleep 1000")
    script(tmp_path / "tbench", f"echo clients $* >> {log}; echo 'Throughput 5 MB/sec'; exit $(cat {tmp_path}/status)")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    one = next(one for one in workloads.every(SHAPE, TINY, "p") if one.name == "tbench/4")
    host = measure.Host({"as it is": []}, SHAPE, True)
    (tmp_path / "status").write_text("0")
    assert host.run("as it is", one) == [5]
    assert log.read_text() == "server\nclients -t 1 4 127.0.0.1\n"
    (tmp_path / "status").write_text("3")
    with pytest.raises(measure.Failed, match="status 3"):
        host.run("as it is", one)


# ---- facts ----

@pytest.fixture(name="epyc")
def made_epyc(tmp_path):
    """The files of two sockets with two NUMA nodes each, of two LLCs with two cores of two
    threads."""
    def put(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    cpus = 32
    put(f"{facts.CPU}/online", f"0-{cpus - 1}")
    for cpu in range(cpus):
        core, llc = cpu % 16, cpu % 16 // 2
        where = f"{facts.CPU}/cpu{cpu}"
        put(f"{where}/topology/physical_package_id", str(llc // 4))
        put(f"{where}/topology/core_cpus_list", f"{core},{core + 16}")
        put(f"{where}/cache/index0/level", "1")
        put(f"{where}/cache/index1/level", "2")
        put(f"{where}/cache/index3/level", "3")
        put(f"{where}/cache/index3/size", "32768K")
        put(f"{where}/cache/index3/shared_cpu_list",
            f"{llc * 2}-{llc * 2 + 1},{llc * 2 + 16}-{llc * 2 + 17}")
        put(f"{where}/cpufreq/scaling_governor", "schedutil" if cpu == 3 else "performance")
    for node in range(4):
        put(f"sys/devices/system/node/node{node}/cpulist",
            f"{node * 4}-{node * 4 + 3},{node * 4 + 16}-{node * 4 + 19}")
    put(f"{facts.CPU}/smt/control", "on")
    put(f"{facts.CPU}/cpufreq/boost", "1")
    put(f"{facts.CPU}/vulnerabilities/spectre_v2", "Mitigation: Enhanced IBRS")
    put(f"{facts.CPU}/vulnerabilities/l1tf", "Not affected")
    put("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\n"
                        "flags\t\t: fpu vme")
    put("proc/cmdline", "BOOT_IMAGE=/vmlinuz quiet")
    put("proc/sys/kernel/numa_balancing", "1")
    return tmp_path


def test_facts(epyc):
    found = facts.gather(epyc)
    print(found)
    names = ("packages", "nodes", "nodes_per_socket", "llcs", "cores", "cpus", "llc_cpus")
    assert [found[name] for name in names] == [2, 4, 2, 8, 16, 32, 4]
    assert found["governor"] == "performance schedutil" and found["boost"] == "1"
    assert found["mitigations"] == {"spectre_v2": "Mitigation: Enhanced IBRS"}
    assert facts.name(found) == "amd-epyc-9654-2s-4n"
    assert len(facts.warnings(found)) == 2
    assert facts.shape(epyc) == facts.Shape(32, 4)


def test_facts_of_a_host_that_tells_nothing(tmp_path):
    found = facts.gather(tmp_path)
    assert found["cpus"] == 1 and found["governor"] == "-" and facts.name(found) == "host-1s-1n"


@pytest.mark.parametrize("build", ["", "debug-", "leak-", "offstack-", "cloud-", "2.1-", "generic-2.1-"])
def test_kernel_says_which_stack_it_is(build):
    class Uname:
        release, version = f"6.12.117-cachetopo-{build}9d90a8d1f731-dirty", "#1 SMP"
    assert facts.kernel(Path("/nowhere"), Uname) == {
        "release": Uname.release, "source": "#1 SMP", "config": "-", "stack": "9d90a8d1f731-dirty"}


# ---- the directory to copy ----

def test_directory_is_for_old_pythons(tmp_path):
    portable.pack(tmp_path)
    for path in sorted(tmp_path.rglob("*.py")):
        tree = ast.parse(path.read_text(), feature_version=(3, 9))
        unions = [node for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)
                  and "|" in ast.unparse(node.annotation)]
        assert not unions or "from __future__ import annotations" in path.read_text(), path


def test_directory_runs_without_numpy(tmp_path):
    """Run the copied directory with a python that has no other packages."""
    portable.pack(tmp_path / "bench")
    python = script(tmp_path / "python", f'exec {sys.executable} -S "$@"')
    script(tmp_path / "hackbench", "echo Time: 0.25")
    done = call(tmp_path / "bench/run", "SHORT=1", "AS_IS=1", "NOISY=1", "NAME=here", "WORKLOADS=hackbench/4x", cwd="/",
                env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": str(python)})
    assert done.returncode == 0 and "These are medians" in done.stdout
    [path] = (tmp_path / "bench/results/here").glob("host-*.json")
    found = store.load(path)
    values = [value for metric in found.values["as it is"].values() for value in metric]
    assert values and all(value > 0 for value in values)


def test_directory_with_something_else_in_it(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(Error, match="something else in it"):
        portable.pack(tmp_path)


def test_usage(tmp_path):
    """The copied directory lists its settings, and refuses any other name."""
    portable.pack(tmp_path)
    shown = call(tmp_path / "run", "--help")
    assert shown.returncode == 0 and "AS_IS=" in shown.stdout and "SEEDS=" not in shown.stdout
    done = call(tmp_path / "run", "SEEDS=3")
    assert done.returncode == 1 and "bench-host does not take this setting" in done.stderr


# ---- in the guest ----

def bench_files(directory):
    """Return the files that a guest needs to run bench-host, as guest.run() takes them: python with
    its library, a benchmark, and the directory that is copied to hosts."""
    portable.pack(directory / "bench")
    files = {f"bench/{path.relative_to(directory / 'bench')}": path
             for path in sorted((directory / "bench").rglob("*")) if path.is_file()}
    return files | python_files(directory, [shutil.which("hackbench")])


def python_files(directory, others=()):
    """Return the files that a guest needs to run python and other programs, as guest.run() takes them.
    The guest needs PYTHONHOME=/usr. directory: for the archive of python's library."""
    library = Path(sysconfig.get_path("stdlib"))
    version = sysconfig.get_config_var("py_version_nodot")
    archive = directory / f"python{version}.zip"
    with zipfile.PyZipFile(archive, "w") as zipped:
        for path in [library, *(library / name for name in (
                "collections", "ctypes", "encodings", "importlib", "json", "re", "urllib"))]:
            zipped.writepy(path, filterfunc=lambda name: "/test/" not in name)
    extension = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    programs = {"bin/python3": Path("/usr/bin/python3").resolve(),
                **{f"bin/{Path(path).name}": Path(path) for path in others}}
    for name in ("_contextvars", "_ctypes", "_decimal"):
        found = next(extension.glob(f"{name}.cpython*.so"))
        programs[f"usr/lib/python{sysconfig.get_python_version()}/lib-dynload/{found.name}"] = found
    return programs | {f"usr/lib/{archive.name}": archive} | libraries(programs.values())


@pytest.mark.boot
def test_in_the_guest(tmp_path):
    """On a kernel with the patches: bench-host measures, toggles the switches, and restores them
    however it ends."""
    kernel.build(named("stack"))
    m = machine.load("two-ccx")
    files = bench_files(tmp_path)
    run = guest.run(m, named("stack"), "host", timeout=1200, files=files)
    tests = ktap.parse(run.ktap)
    lines = [line for line in run.ktap.splitlines() if not line.startswith("# {")]
    print(*lines, f"{run.seconds:.0f} s", sep="\n")
    assert run.failures() + tests.failures() == []
    assert len(tests.leaves()) == 6
    # Above all the state in which it was measured: wrong ones would have been an error.
    (tmp_path / "result.json").write_text(json.dumps(*tests.figures["result"]))
    found = store.load(tmp_path / "result.json")
    assert list(found.subjects) == ["off", "off again", "TTWU_QUEUE_L2", "both", "tolerant"]
    assert set(found.metrics) == {"hackbench/threads-pipe-2", "hackbench/threads-sockets-2"}
    assert {len(values) for rows in found.values.values() for values in rows.values()} == {2}
    about = found.repeat["host"]
    assert (about["cpus"], about["llcs"], about["llc_cpus"]) == (16, 2, 8)
    [identity] = found.kernels.values()
    assert identity["release"] == kernel.release(named())
    assert identity["stack"] in identity["release"]
    assert identity["config"] != "-"
