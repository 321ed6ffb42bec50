# SPDX-License-Identifier: GPL-2.0-only
"""tools/llcstat: on recordings of guests (tests/recorded/) and changes to them, and in a guest.

A recording is what `llcstat --record` wrote in a guest on machine two-ccx beside two processes that the job
guest/jobs/llcstat.sh starts, without the processes of one thread.
"""

import errno
import json
import re
import subprocess
import sys
import threading

import pytest

from here import call, named, tool
from kit.paths import ROOT
from kit.vm import guest, kernel, ktap, machine
from test_host import python_files

TOOL = ROOT / "tools/llcstat"
RECORDED = ROOT / "tests/recorded"
SCHED = "/sys/kernel/debug/sched"
FITS, LARGE = 125, 124


llcstat = tool("llcstat")


def recorded(name="6.12", changes=None, without=()):
    """The Recording of a kernel; changes: {path: text or errno, or function of the text}; without:
    beginnings of the paths to leave out."""
    files = llcstat.Recording((RECORDED / f"llcstat-{name}.txt").read_text())
    for path in [path for path in files.files if path.startswith(tuple(without))]:
        del files.files[path]
    for path, change in (changes or {}).items():
        files.files[path] = change(files.files[path]) if callable(change) else change
    return files


def shown(files, root=True, **options):
    """The lines that are shown of a recording."""
    lines = llcstat.render(llcstat.gather(files, options.get("pid"), root), **options)
    print(*lines, sep="\n")
    return lines


def of(seen, pid):
    """The process in what gather() returned."""
    return next(one for one in seen["processes"] if one["pid"] == pid)


def replaced(old, new):
    """A function that replaces a text that must be there."""
    def change(text):
        assert old in text
        return text.replace(old, new)
    return change


# ---- the patched kernel ----

def test_json_has_the_same():
    seen = json.loads(call(sys.executable, TOOL, "--json", "--from", RECORDED / "llcstat-6.12.txt", check=True).stdout)
    assert seen["features"]["SCHED_CACHE"] is True and seen["features"]["SIS_FAST"] is False
    large = of(seen, LARGE)
    assert large["gates"] == {"footprint": 2} and large["limit"] == (16 << 20) * 7 // 8
    assert large["runtime_us"]["0"] == 0 and large["last_ran"] == {"1": 2}
    assert [one["tid"] for one in of(seen, FITS)["list"]] == [125, 126, 127]
    assert all(one["preferred_llc"] == 0 for one in of(seen, FITS)["list"])
    assert seen["notes"] == []


def test_one_process():
    lines = shown(recorded(changes={f"/proc/{LARGE}/task/{LARGE}/status": "Cpus_allowed_list:\t0-3,8\n"}),
                  pid=LARGE)
    assert ("workload (124) is not aggregated: gate footprint, value 67M, limit 14M; 0 of 2 threads follow"
            " LLC 1.") in lines
    assert "Runtime per epoch: LLC 1 100%" in lines
    [leader] = [line for line in lines if line.split()[:1] == [str(LARGE)]]
    assert leader.split()[-1] == "0-3,8" and "footprint" in leader
    lines = shown(recorded(), pid=FITS)
    assert any("workload (125) may be aggregated: gate open" in line for line in lines)
    # All migrations of each thread: the kernel counts those across LLCs for the process only.
    [head] = [line.split() for line in lines if line.lstrip().startswith("TID")]
    rows = {line.split()[0]: line.split() for line in lines if re.match(r" *12[567] ", line)}
    assert [rows[tid][head.index("MIGRATED")] for tid in ("125", "126", "127")] == ["0", "0", "2"]


def test_process_with_one_running_thread():
    """With the gate `single`, the process has chosen no LLC."""
    lines = shown(recorded(changes={f"/proc/{FITS}/task/{tid}/sched": lambda text: re.sub(
        r"(preferred_llc +: +)0$", r"\g<1>-1", text, flags=re.M).replace(" open\n", " single\n")
        for tid in (125, 126, 127)}), pid=FITS)
    assert "workload (125) is not aggregated: gate single, value 2.8, limit 3.2." in lines


def test_threads_that_have_exited():
    """They count in the migrations across LLCs only; and a kernel without that number shows neither."""
    def changed(line):
        return {f"/proc/{FITS}/task/{tid}/sched": lambda text: re.sub(
            r"^cache.group.migrations_llc.*\n", line, text, flags=re.M) for tid in (125, 126, 127)}
    one = of(llcstat.gather(recorded(changes=changed("cache.group.migrations_llc : 99\n"))), FITS)
    assert (one["within"], one["across"]) == (0, 99)
    one = of(llcstat.gather(recorded(changes=changed(""))), FITS)
    assert (one["within"], one["across"]) == (None, None)


def test_what_a_later_kernel_may_add():
    """Another gate, bit, knob, path of wakeups and column of llcs are shown under the kernel's names."""
    task = f"/proc/{LARGE}/task/{LARGE}/sched"
    lines = shown(recorded(changes={
        task: lambda text: re.sub(r"footprint(\n.*: +)\d+(\n.*: +)\d+", r"sharing\g<1>17\g<2>25", text),
        f"{SCHED}/features": lambda text: text.strip() + " NO_SCHED_CACHE_SAMPLE\n",
        f"{SCHED}/llc_balancing/sharing_pct": "33\n",
        f"{SCHED}/llc_balancing/a_table": "a b\n1 2\n",
        f"{SCHED}/llc_balancing/llcs": lambda text: text.replace("home\n", "home away\n").replace(
            " 3 3\n", " 3 3 17\n").replace(" 0 0\n", " 0 0 0\n"),
        f"{SCHED}/wakeup_stats": lambda text: re.sub(r"(\d)$", r"\1 5", text, flags=re.M).replace(
            "took_predicted", "took_predicted new_remote", 1)}))
    text = re.sub(" +", " ", "\n".join(lines))
    # Gates differ between the threads; of two that are as frequent, the first thread's is shown.
    assert "sharing+ 17 25" in text
    assert "SCHED_CACHE_SAMPLE" in text and "sharing_pct=33" in text and "a_table" not in text
    assert "HOME AWAY" in text and "0 0-7 16M 0 3 3 17 4" in text
    assert "\nnew - - 80" in text


def test_a_leader_that_has_exited():
    """It has no group any more; that of another thread is shown."""
    path = f"/proc/{FITS}/task/{FITS}/sched"
    seen = llcstat.gather(recorded(changes={path: lambda text: "".join(
        line for line in text.splitlines(True) if "cache." not in line)}))
    assert of(seen, FITS)["preferred_llcs"] == [0] and of(seen, FITS)["gates"] == {"open": 2}


def test_a_process_that_ends_while_it_is_read():
    path = f"/proc/{LARGE}"
    files = recorded(changes={f"{path}/task/{tid}/{name}": errno.ESRCH for tid in (124, 141)
                              for name in ("stat", "sched")})
    assert [one["pid"] for one in llcstat.gather(files)["processes"]] == [FITS]
    with pytest.raises(llcstat.Failed, match="there is no process 124"):
        llcstat.gather(files, LARGE)


def test_names_of_programs():
    path = f"/proc/{FITS}/stat"
    seen = llcstat.gather(recorded(changes={path: replaced("(workload)", "(a) R (1 \x1b[2J\n)")}))
    assert of(seen, FITS)["comm"] == "a) R (1 ?[2J?"


# ---- rates ----

def test_rates():
    """What happened between two looks, in a second: counters that wrap around, a thread that is new, and a
    process that has the PID of another one."""
    tid = next(one["tid"] for one in of(llcstat.gather(recorded()), FITS)["list"] if one["tid"] != FITS)
    old = llcstat.gather(recorded(without=[f"/proc/{FITS}/task/{tid}/"]))
    new = llcstat.gather(recorded())
    old["time"], new["time"] = 100, 102
    old["wakeups"]["queued_llc"] = (1 << 32) - 7
    leader = of(old, FITS)["list"][0]
    leader["migrated"], leader["ticks"] = 1, leader["ticks"] - 30
    of(old, FITS)["across"], of(new, FITS)["across"] = (1 << 32) - 4, 2
    for one in of(old, FITS)["list"][1:]:
        one["migrated"] = 2
    for one in of(new, FITS)["list"]:
        one["migrated"] = {FITS: 5, tid: 9}.get(one["tid"], 2)
    of(old, LARGE)["start"] -= 1
    for own in of(new, LARGE)["list"]:
        own["ticks"] = 50
    diff = llcstat.since(old, new)
    assert diff["seconds"] == 2 and diff["wakeups"]["queued_llc"] == 57
    own = {one["tid"]: one for one in of(diff, FITS)["list"]}
    assert own[FITS]["migrated"] == 4 and own[FITS]["ticks"] == 30 and own[tid]["migrated"] == 9
    assert (of(diff, FITS)["across"], of(diff, FITS)["within"]) == (6, 7)
    assert of(diff, LARGE)["ticks"] == 100
    lines = llcstat.render(diff, sort="cpu")
    print(*lines, sep="\n")
    assert lines[0].endswith("2 LLCs, per second over 2.0 s")
    # A terminal may have no space for the rest.
    assert lines[2].split()[:2] == ["PID", "COMMAND"]
    assert re.search(r"^queued +\d+ +28 ", "\n".join(lines), re.M)
    [row] = [line.split() for line in lines if line.startswith("124 ")]
    assert row[3] == "50"
    # After exec, the group of the process is another one.
    of(old, FITS)["across"], of(new, FITS)["across"] = 50, 3
    assert of(llcstat.since(old, new), FITS)["across"] == 3


@pytest.mark.parametrize("ticks, llcs, says", [
    ((60, 60, 60), (0, 0, 1), "may gain; 1 of 1 "), ((60, 60, 60), (0, 0, 0), "nothing to gain now; 0 of 1 "),
    ((180, 0, 0), (0, 1, 1), "nothing to gain now; 0 of 1 "), ((75, 74, 0), (0, 1, 1), "now; 0 of 0 "),
])
def test_line(ticks, llcs, says, monkeypatch):
    """A process is busy from 1.5 CPUs on, here 150 ticks in a second. What it is called is not shown."""
    monkeypatch.setattr(llcstat.os, "sysconf", lambda name: 100)
    seen = dict(llcstat.gather(recorded()), seconds=1)
    for one in seen["processes"]:
        one["ticks"] = sum(ticks) if one["pid"] == FITS else 0
    for own, llc, count in zip(of(seen, FITS)["list"], llcs, ticks):
        own["llc"], own["ticks"] = llc, count
    line = llcstat.line_of(seen, "A CPU")
    print(line)
    assert says + "busy processes in several LLCs; A CPU; LLCs: 2 of 8 CPUs 16M; nodes: 1; Linux 6.12" in line
    assert "workload" not in line and "\n" not in line
    seen["llcs"] = seen["llcs"][:1]
    assert llcstat.line_of(seen, "A CPU").startswith("llcstat: cannot gain; ")


def test_line_of_this_machine():
    done = call(sys.executable, TOOL, "--line", "--watch", "0.1", check=True)
    assert re.fullmatch(r"llcstat: .* gain.*; \d+ of \d+ busy processes .*; Linux \S+\n", done.stdout)
    done = call(sys.executable, TOOL, "--line", "--from", RECORDED / "llcstat-6.12.txt")
    assert done.returncode == 1 and "needs a running kernel" in done.stderr


def test_sort_and_top():
    seen = llcstat.gather(recorded())
    first = {key: next(line for line in llcstat.render(seen, sort=key) if "workload" in line).split()[0]
             for key in llcstat.SORT}
    print(first)
    assert first["running"] == first["threads"] == first["across"] == "125" and first["pid"] == "124"
    lines = llcstat.render(seen, top=1)
    assert sum("workload" in line for line in lines) == 1 and "... and 1 more" in lines
    assert "... and" not in "\n".join(llcstat.render(seen, top=0))


def test_watch_on_this_host():
    """A program with two threads here, whatever kernel this is."""
    go = threading.Event()
    other = threading.Thread(target=go.wait)
    other.start()
    try:
        done = subprocess.run([sys.executable, TOOL, "--watch", "0.1", "--count", "2", "--json"],
                              capture_output=True, text=True, check=True, timeout=60)
    finally:
        go.set()
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(looks) == 2 and all(0.1 <= one["seconds"] < 30 for one in looks)
    assert all(one["processes"] and one["llcs"] for one in looks)


# ---- other kernels, and less than all ----

def test_mainline():
    """7.3 has bits and knobs, and no list of LLCs and preferences."""
    lines = shown(recorded("7.3"))
    text = re.sub(" +", " ", "\n".join(lines))
    assert "\n 0 0-7 16M 0\n" in text and "aggr_tolerance=1" in text and "enabled=1" in text
    assert "the kernel does not list its own" in text and "No process shows a preferred LLC" in text
    assert "WAKEUPS" not in text and "ACROSS" not in text
    assert re.search(r"PID COMMAND THR LAST RAN\n ?\d+ workload 3 0:3\n", text)


def test_kernel_without_cache_aware_scheduling():
    text = "\n".join(shown(recorded("7.3", without=[f"{SCHED}/llc_balancing"])))
    assert "This kernel has no cache-aware scheduling" in text and "knobs:    base_slice_ns" in text


@pytest.mark.parametrize("code, root, lockdown, says", [
    (errno.EACCES, False, None, "Only root may read debugfs"),
    (errno.EPERM, True, "none [integrity] confidentiality", "The kernel is locked down (integrity)"),
    (errno.EPERM, True, "[none] integrity confidentiality", "Operation not permitted"),
    (errno.ENOENT, True, None, "debugfs is not mounted"),
])
def test_without_debugfs(code, root, lockdown, says):
    """It says why, and shows what is left."""
    changes = {"/sys/devices/system/cpu/online": "0-15\n"}
    if code != errno.ENOENT:
        changes[f"{SCHED}/features"] = code
    if lockdown:
        changes["/sys/kernel/security/lockdown"] = lockdown
    text = "\n".join(shown(recorded(changes=changes, without=["/sys/kernel/debug/"]), root))
    text += "\n".join(shown(recorded("7.3", changes=changes, without=["/sys/kernel/debug/"]), root))
    assert says in text.replace("\n", " ") and "bits on" not in text
    # The lines of /proc/PID/sched need no debugfs.
    assert "footprint" in text and "numa_balancing=0" in text


def test_schedstats_are_off():
    text = "\n".join(shown(recorded(changes={"/proc/sys/kernel/sched_schedstats": "0\n"})))
    assert "sysctl kernel.sched_schedstats=1" in text and "WAKEUPS" not in text


def sysfs(llcs, nodes, online):
    """The files of sysfs: {CPU list of an L3: its size or None}, {node: its CPU list}."""
    files = {"/sys/devices/system/cpu/online": online + "\n"}
    for cpus, size in llcs.items():
        for cpu in llcstat.cpus_of(cpus):
            top = f"/sys/devices/system/cpu/cpu{cpu}/cache"
            files |= {f"{top}/index0/level": "1\n", f"{top}/index0/type": "Data\n",
                      f"{top}/index0/shared_cpu_list": f"{cpu}\n", f"{top}/index0/size": "32K\n",
                      f"{top}/index3/level": "3\n", f"{top}/index3/type": "Unified\n",
                      f"{top}/index3/shared_cpu_list": cpus + "\n"}
            if size:
                files[f"{top}/index3/size"] = size + "\n"
    for node, cpus in nodes.items():
        files[f"/sys/devices/system/node/node{node}/cpulist"] = cpus + "\n"
    found = llcstat.Recording("")
    found.files = files
    return found


@pytest.mark.parametrize("files, want", [
    # Two sockets.
    (sysfs({"0-3": "32768K", "4-7": "32768K"}, {0: "0-3", 1: "4-7"}, "0-7"),
     [("0-3", 32 << 20, 0), ("4-7", 32 << 20, 1)]),
    # SMT siblings behind the cores, one CPU offline.
    (sysfs({"0-1,4-5": "16384K", "2-3,6-7": "16384K"}, {0: "0-7"}, "0-5,7"),
     [("0-1,4-5", 16 << 20, 0), ("2-3,7", 16 << 20, 0)]),
    # Sub-NUMA clustering: one cache in two nodes.
    (sysfs({"0-7": "61440K"}, {0: "0-3", 1: "4-7"}, "0-7"),
     [("0-3", 60 << 20, 0), ("4-7", 60 << 20, 1)]),
    # A guest that does not know the size, without nodes.
    (sysfs({"0-1": None}, {}, "0-1"), [("0-1", 0, 0)]),
])
def test_llcs_of_sysfs(files, want):
    llcs, source = llcstat.llcs_of(files)
    assert source == "sysfs" and [(one["cpus"], one["bytes"], one["node"]) for one in llcs] == want
    assert [one["id"] for one in llcs] == list(range(len(want)))


def test_no_caches_in_sysfs():
    """A CPU whose caches are not known is an LLC of its own."""
    files = sysfs({}, {0: "0-1"}, "0-1")
    assert [one["cpus"] for one in llcstat.llcs_of(files)[0]] == ["0", "1"]
    with pytest.raises(llcstat.Failed, match="is sysfs mounted"):
        llcstat.gather(llcstat.Recording(""))


# ---- the command ----

def test_recording_shows_the_same(tmp_path):
    path = tmp_path / "recording"
    live, again = (call(sys.executable, TOOL, option, path, check=True).stdout for option in ("--record", "--from"))
    assert live == again and "LLC" in live


@pytest.mark.parametrize("args, status, says", [
    (["--pid", "x"], 2, "'x' is not a whole number"), (["--watch", "0"], 2, "not a number above 0"),
    (["--watch", "nan"], 2, "not a number above 0"), (["--sort", "size"], 2, "invalid choice"),
    (["--pid", "0"], 1, "no process 0"), (["--pid", "4194304999"], 1, "no process 4194304999"),
    (["--from", "/nowhere"], 1, "No such file"), (["--from", str(TOOL)], 1, "line 1: not a recording"),
    (["--from", str(TOOL), "--watch"], 1, "needs a running kernel"),
    (["--record", "/nowhere/x"], 1, "No such file")])
def test_bad_arguments(args, status, says):
    done = call(sys.executable, TOOL, *args)
    assert (done.returncode, done.stdout) == (status, "") and says in done.stderr
    assert "Traceback" not in done.stderr


def test_reader_that_ends():
    assert call("sh", "-c", f"{sys.executable} {TOOL} | true").stderr == ""


def test_docs_show_what_it_prints():
    """docs/llcstat.md has the text of the recording."""
    lines = llcstat.render(llcstat.gather(recorded()), width=100)
    assert "\n".join(("    " + line).rstrip() for line in lines) in (ROOT / "docs/llcstat.md").read_text()


@pytest.mark.boot
def test_in_the_guest(tmp_path):
    """On the patched kernel: a process that fits is shown with its open gate, one that does not with the gate
    that keeps it out; what is recorded there shows the same here."""
    kernel.build(named("stack"))
    files = python_files(tmp_path) | {"bin/llcstat": TOOL, "bin/sched-ab": ROOT / "tools/sched-ab"}
    run = guest.run(machine.load("two-ccx"), named("stack"), "llcstat", timeout=1200, files=files)
    tests = ktap.parse(run.ktap)
    lines = run.ktap.splitlines()
    runs = ("ab-off-1", "ab-on-1", "ab-on-2", "ab-off-2")
    text = {name: [line[len(name) + 3:] for line in lines if line.startswith(f"# {name} ")]
            for name in ("text", "pid", "watch", "record", "workload", "ab", *runs)}
    print(*text["text"], *text["pid"], *text["watch"], *text["workload"], *text["ab"], f"{run.seconds:.0f} s",
          sep="\n")
    assert run.failures() + tests.failures() == [] and len(tests.leaves()) == 4
    for name in runs:
        bits = {"SIS_FAST", "SCHED_CACHE"} if "on" in name else {"NO_SIS_FAST", "NO_SCHED_CACHE"}
        assert bits <= set(text[name][0].split()), name
    again = llcstat.gather(llcstat.Recording("\n".join(text["record"])))
    assert "\n".join(llcstat.render(again, width=110)) == "\n".join(text["text"]).rstrip()
    fits, large = (next(one for one in again["processes"] if one["threads"] == count) for count in (3, 2))
    assert next(iter(fits["gates"])) == "open" and fits["following"] == 3
    assert fits["runtime_us"][fits["preferred_llcs"][0]] > 0
    # Both began in any LLC, and migrations are counted by process.
    assert all(one["across"] is not None and one["within"] is not None for one in (fits, large))
    assert next(iter(large["gates"])) != "open" and large["value"] > large["limit"] == 16 << 20
    assert again["wakeups"]["queued_llc"] + again["wakeups"]["locked_llc"] > 0
    assert any("may be aggregated: gate open" in line for line in text["pid"])
    assert any("per second over" in line for line in text["watch"])
