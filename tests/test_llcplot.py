# SPDX-License-Identifier: GPL-2.0-only
"""tools/llcplot on traces in the formats of tracefs, trace-cmd and perf, and the recipes of docs/llcstat.md in a
guest."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from here import call, named, tool
from kit.paths import ROOT
from kit.vm import guest, kernel, ktap, machine
from test_host import python_files

TOOL = ROOT / "tools/llcplot"
LLC_OF = {cpu: cpu // 8 for cpu in range(16)}
# A process 10 with threads 10 and 11, which prefers LLC 1 after half a second; 99 is no thread of it. At the
# begin of the trace, 11 runs on CPU 1.
EVENTS = (
    (100.0, 0, "sched_switch", (5, 10)), (100.4, 1, "sched_switch", (11, 99)),
    (100.5, 0, "sched_cache_gate", "comm=w pid=10 tgid=10 why=single on=0 value=2000 limit=3276"),
    (100.5, 0, "sched_cache_prefer", "comm=w pid=10 tgid=10 old=-1 new=1 why=open running=2000"),
    (100.6, 0, "sched_switch", (10, 0)), (100.6, 9, "sched_switch", (99, 10)),
    (100.7, 2, "sched_cache_prefer", "comm=x pid=99 tgid=99 old=-1 new=0 why=open running=1"),
    (100.8, 8, "sched_switch", (0, 11)),
    (100.9, 8, "sched_cache_gate", "comm=w pid=11 tgid=10 why=footprint on=1 value=5 limit=4"),
    (101.0, 3, "sched_switch", (0, 99)))


llcplot = tool("llcplot")


def trace(form):
    """The events as text of a program: tracefs, trace-cmd or perf."""
    lines = ["# tracer: nop", "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION", "cpus=16"]
    for seconds, cpu, event, text in EVENTS:
        pid = 7
        if event == "sched_switch":
            pid, following = text
            text = (f"a b:{pid} [120] S ==> swapper/3:{following} [120]" if form == "trace-cmd" else
                    f"prev_comm=a b prev_pid={pid} prev_prio=120 prev_state=R ==> next_comm=w "
                    f"next_pid={following} next_prio=120")
        head = {"tracefs": f"     a b-{pid}    [{cpu:03}] d..2. {seconds:.6f}: {event}:",
                "trace-cmd": f"     a b-{pid}    [{cpu:03}]   {seconds:.6f}: {event:20}",
                "perf": f"     a b  {pid} [{cpu:03}]   {seconds:.6f}: sched:{event}:"}[form]
        if form == "trace-cmd":
            head = head.replace(event, event + ":")
        lines.append(f"{head} {text}")
    return lines


@pytest.mark.parametrize("form", ["tracefs", "trace-cmd", "perf"])
def test_formats(form):
    """The same trace in each format: who ran where, with the thread that ran before the begin and those that
    run at the end; what it prefers, without that of another process."""
    found = llcplot.parse(trace(form), 10, [10, 11])
    assert (found.begin, found.end) == (100.0, 101.0)
    assert sorted(found.runs) == [(100.0, 100.4, 1), (100.0, 100.6, 0), (100.6, 101.0, 9),
                                  (100.8, 101.0, 8)]
    assert found.marks == [(100.5, "open", None, "gate open"), (100.5, "prefer", 1, "LLC 1"),
                           (100.9, "closed", None, "gate: footprint")]


def test_threads_are_found_by_their_group():
    """One that llcstat did not see, since it had ended or not begun, is known from an event of its process."""
    found = llcplot.parse(trace("tracefs"), 10, [11])
    assert (100.6, 101.0, 9) in found.runs


def test_residency():
    found = llcplot.parse(trace("perf"), 10, [10, 11])
    times, sums = llcplot.residency(found, LLC_OF, 5)
    assert times == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert sums[0] == pytest.approx([2, 2, 1, 0, 0]) and sums[1] == pytest.approx([0, 0, 0, 1, 2])
    with pytest.raises(llcplot.Failed, match="CPU [89]"):
        llcplot.residency(found, {cpu: 0 for cpu in range(8)})


def look(path, pid=10, tids=(10, 11)):
    """Write what llcplot needs of llcstat's JSON; the path."""
    path.write_text(json.dumps({
        "llcs": [{"id": 0, "cpus": "0-7"}, {"id": 1, "cpus": "8-15"}, {"id": 2, "cpus": "16-23"}],
        "processes": [{"pid": pid, "comm": "work", "list": [{"tid": tid} for tid in tids]}]}))
    return path


def test_picture(tmp_path):
    """Bands, marks and title are in it, and the same trace gives the same file."""
    (tmp_path / "trace").write_text("\n".join(trace("trace-cmd")))
    args = [sys.executable, TOOL, tmp_path / "trace", look(tmp_path / "look")]
    done = call(*args, tmp_path / "a.svg", check=True)
    assert "1.000 s; threads at a time: 1.00 in LLC 0, 0.60 in LLC 1," in done.stdout
    text = (tmp_path / "a.svg").read_text()
    for words in ("LLC 0", "LLC 1", "preferred", "gate: footprint", "gate open", "work (10)"):
        assert f">{words}<" in text, words
    # Nothing happened there.
    assert "LLC 2" not in text
    call(*args, tmp_path / "b.svg", "--title", "work (10)", check=True)
    assert (tmp_path / "b.svg").read_text() == text


def test_errors(tmp_path):
    good = look(tmp_path / "look")
    for name, text in {"trace": "\n".join(trace("perf")), "empty": "", "rubbish": "x\n\x00[1] y: sched_switch: z",
                       "bad": "{}"}.items():
        (tmp_path / name).write_text(text)
    for args, says in ((("empty", good), "no sched_switch"), (("rubbish", good), "no sched_switch"),
                       (("trace", "bad"), "is not what llcstat"), (("trace", "trace"), "is not what llcstat"),
                       (("none", good), "No such file"),
                       (("trace", look(tmp_path / "other", 20, [20])), "no thread of process 20")):
        done = call(sys.executable, TOOL, *args, "x.svg", cwd=tmp_path)
        assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "x.svg").exists()


@pytest.mark.parametrize("tracers", [pytest.param("", marks=pytest.mark.boot, id="by-hand"),
                                     pytest.param("1", marks=pytest.mark.long, id="with-tracers")])
def test_recipes_in_the_guest(tmp_path, tracers):
    """Each of the three ways to trace gives a picture of a process that leaves one LLC for the other or gathers
    in one; a thread that is moved is seen with the stack that moved it; settings are applied and refused;
    with `advise`, llcctl says which processes are aggregated, and which together. In CI, the way without trace-cmd
    and perf alone."""
    kernel.build(named("stack"))
    tools = {f"bin/{name}": ROOT / "tools" / name for name in ("llcctl", "llcstat", "sched-settings")}
    files = python_files(tmp_path, [shutil.which("trace-cmd"), shutil.which("perf")]) | tools
    run = guest.run(machine.load("two-ccx"), named("stack"), "tools", {"TRACERS": tracers}, timeout=1200, files=files)
    tests = ktap.parse(run.ktap)
    lines = run.ktap.splitlines()
    said = {name: "\n".join(line[len(name) + 3:] for line in lines if line.startswith(f"# {name} "))
            for name in ("settings", "refused", "look", "tracefs", "trace-cmd", "perf", "moved", "perf-moved",
                         "trace-cmd-said", "perf-said", "threads", "llcctl")}
    print(*(said[name] for name in ("settings", "refused", "threads", "trace-cmd-said", "perf-said", "llcctl")),
          said["moved"][:1500], f"{run.seconds:.0f} s", sep="\n")
    assert run.failures() + tests.failures() == [] and len(tests.leaves()) == (8 if tracers else 4)
    assert "left out: llc_balancing/none=1" in said["settings"]
    assert "llc_balancing/imb_pct=101: refused: Invalid argument" in said["refused"]
    pid = re.search(r" of (\d+)", said["threads"])[1]
    lists = said["llcctl"].split("enabled: advise")[1:]
    rows = [re.findall(rf"^{pid} +(\d+) +(\d+) +(\w+) +(\S+) .* (\w+) +workload$", text, re.M) for text in lists]
    assert rows == [[], [("1", "3", "always", "-", "open")], [("2", "3", "always", "0", "busy")],
                    [("1", "0", "never", "-", "never")]]
    assert f"workload ({pid})" in said["llcctl"] and "refuses" in said["llcctl"]
    # The thread runs when its affinity changes, or sleeps.
    for name in ("moved", "perf-moved") if tracers else ():
        assert re.search(r"sched_migrate_task.*\n(.*\n)*.*(migration_cpu_stop|set_cpus_allowed_ptr)", said[name])
    # Both can parse the formats of all events.
    assert "PARSE" not in said["trace-cmd"] and "PARSE" not in said["perf"]
    (tmp_path / "look").write_text(said["look"])
    for name in ("tracefs", "trace-cmd", "perf") if tracers else ("tracefs",):
        (tmp_path / name).write_text(said[name])
        done = call(sys.executable, TOOL, tmp_path / name, tmp_path / "look", tmp_path / f"{name}.svg", check=True)
        total = sum(map(float, re.findall(r"([\d.]+) in LLC", done.stdout)))
        assert 2 < total < 3.1
        assert ">preferred<" in Path(tmp_path / f"{name}.svg").read_text()
