# SPDX-License-Identifier: GPL-2.0-only
"""tools/llcctl on made-up directories in place of debugfs, /proc, the control groups and tracefs."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from here import call, script, tool
from kit.paths import ROOT

TOOL = ROOT / "tools/llcctl"
RECORDED = ROOT / "tests/recorded/llcstat-6.12.txt"
HEAD = "leader processes threads mode tolerance demand llcs gate\n"
FITS, LARGE = 125, 124


llcctl = tool("llcctl")


class Host:
    """A host whose kernel takes commands for the processes that are in its /proc."""

    def __init__(self, top, monkeypatch):
        self.top, self.refuses = top, {}
        for name, path in (("SCHED", "sched"), ("KNOBS", "sched/llc_balancing"), ("PROC", "proc"),
                           ("CGROUPS", "cgroup"), ("TRACING", "tracing"), ("SMT", "smt")):
            monkeypatch.setattr(llcctl, name, top / path)
        self.groups = top / "sched/llc_balancing/groups"
        monkeypatch.setattr(llcctl, "GROUPS", self.groups)
        self.write("sched/llc_balancing/enabled", "advise\n")
        self.write("sched/llc_balancing/groups", "")
        self.write("sched/features", "SCHED_CACHE NO_SIS_FAST\n")
        real = llcctl.send

        def send(text):
            """Write it, or fail as the kernel does."""
            pid, *words = text.split()
            code = self.refuses.get(text) or self.refuses.get(int(pid))
            ended = [each for each in (pid, *words[1:]) if not (top / "proc" / each / "stat").exists()]
            if code or ended and words[0] != "tolerance":
                raise OSError(code or errno.ESRCH, os.strerror(code or errno.ESRCH))
            real(text)
        monkeypatch.setattr(llcctl, "send", send)

    def write(self, path, text):
        """Write a file below the made-up root."""
        (self.top / path).parent.mkdir(parents=True, exist_ok=True)
        (self.top / path).write_text(text)

    def start(self, *pids, comm="a b", flags=0, state="S", began=7, tgid=None, threads=1):
        """Start processes."""
        for pid in pids:
            self.write(f"proc/{pid}/stat", f"{pid} ({comm}) {state} 1 1 1 0 -1 {flags} " + "0 " * 10 +
                       f"{threads} 0 {began} 0\n")
            self.write(f"proc/{pid}/status", f"Name:\tx\nTgid:\t{tgid or pid}\n")

    def end(self, pid):
        """End a process."""
        shutil.rmtree(self.top / f"proc/{pid}")

    def cgroup(self, path, *pids, start=True):
        """Have a control group contain these processes."""
        self.write(f"cgroup/{path}/cgroup.procs", "".join(f"{pid}\n" for pid in pids))
        for pid in pids if start else ():
            self.start(pid)

    def said(self):
        """What the kernel was asked for."""
        return self.groups.read_text().splitlines()


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A made-up host."""
    return Host(tmp_path, monkeypatch)


def fails(says, *args):
    """The command fails and says why."""
    with pytest.raises(llcctl.Failed, match=says):
        llcctl.main(list(args))


# ---- one process ----

@pytest.mark.parametrize("args, want", [
    (["--always"], "50 always"), (["--never"], "50 never"), (["--default"], "50 default"), (["--leave"], "50 leave"),
    (["--join", "51"], "50 join 51"), (["--tolerance", "0"], "50 tolerance 0")])
def test_pid(host, args, want, capsys):
    host.start(50, 51)
    assert llcctl.main(["pid", "50", *args]) == 0 and llcctl.main(["pid", *args, "50"]) == 0
    assert host.said() == [want, want] and capsys.readouterr() == ("", "")


@pytest.mark.parametrize("args, says", [
    (["52", "--always"], "no process 52"), (["0", "--never"], "no process 0"),
    (["50", "--join", "52"], "no process 52"), (["50", "--join", "50"], "cannot join itself"),
    (["4194304999", "--always"], "no process 4194304999")])
def test_processes_that_are_not_there(host, args, says):
    host.start(50)
    fails(says, "pid", *args)
    assert host.said() == []


@pytest.mark.parametrize("code, args, says", [
    (errno.EINVAL, ["--tolerance", "101"], "refuses '50 tolerance 101': Invalid argument: .*out of range"),
    (errno.EINVAL, ["--always"], "a kernel thread, or not the leader"), (errno.EPERM, ["--always"], "CAP_SYS_NICE"),
    (errno.EOPNOTSUPP, ["--join", "51"], "there are not several LLCs"), (errno.ENOMEM, ["--always"], "allocate memory"),
    (errno.ESRCH, ["--leave"], "50 has joined no group"), (errno.ESRCH, ["--tolerance", "5"], "50 has no group")])
def test_refusals(host, code, args, says):
    host.start(50, 51)
    host.refuses[50] = code
    fails(says, "pid", "50", *args)


def test_a_process_that_is_a_zombie(host):
    host.start(50, state="Z")
    fails("no process 50", "pid", "50", "--always")
    # Its first thread has ended, another one runs.
    host.start(50, state="Z", threads=2)
    assert llcctl.main(["pid", "50", "--always"]) == 0 and host.said() == ["50 always"]


@pytest.mark.parametrize("enabled, features, says", [
    ("never", "SCHED_CACHE", "enabled is never"), ("0", "SCHED_CACHE", "enabled is never"),
    ("1", "SCHED_CACHE", ""), ("always", "NO_SCHED_CACHE", "SCHED_CACHE is off")])
def test_what_has_no_effect(host, enabled, features, says, capsys):
    host.start(50)
    host.write("sched/llc_balancing/enabled", enabled + "\n")
    host.write("sched/features", features + "\n")
    assert llcctl.main(["pid", "50", "--always"]) == 0 and host.said() == ["50 always"]
    err = capsys.readouterr().err
    assert says in err and bool(says) == bool(err)


# ---- kernels without it ----

@pytest.mark.parametrize("missing, says", [
    ("sched", "is debugfs mounted"), ("sched/llc_balancing", "no cache-aware scheduling"),
    ("sched/llc_balancing/groups", "this kernel lacks .*groups: it cannot choose")])
@pytest.mark.parametrize("args", [["list"], ["pid", "50", "--always"], ["run", "--never", "true"],
                                  ["cgroup", "a", "--always"]])
def test_kernels_without_it(host, missing, says, args):
    host.cgroup("a", 50)
    host.start(os.getpid())
    path = host.top / missing
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    fails(says, *args)


@pytest.mark.parametrize("uid, says", [(1000, "run this as root"), (0, "locked down")])
def test_without_permission(host, monkeypatch, uid, says):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    host.start(50)
    monkeypatch.setattr(llcctl.os, "geteuid", lambda: uid)
    with monkeypatch.context() as patch:
        patch.setattr(llcctl.os, "open", refuse)
        fails(says, "pid", "50", "--always")


# ---- run ----

def run(top, *args, **options):
    """Run the program on a made-up debugfs: (status, stdout, stderr)."""
    done = call(sys.executable, TOOL, *args, env=os.environ | {"SCHED_DEBUGFS": str(top / "sched")}, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("args", [["--always"], ["--always", "--"]])
def test_run(host, args):
    """The command is the process that was asked for, and gets all of its options."""
    status, out, _ = run(host.top, "run", *args, "sh", "-c", "echo $$ $1; exit 3", "x", "--never")
    assert status == 3 and host.said() == [f"{out.split()[0]} always"] and out.split()[1] == "--never"


def test_run_does_not_ignore_signals(host):
    """Python ignores some, and an exec keeps that."""
    _, out, _ = run(host.top, "run", "--never", "grep", "^SigIgn", "/proc/self/status")
    ignored = int(out.split()[1], 16)
    assert not any(ignored >> number - 1 & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))


def test_run_of_no_program(host):
    status, out, err = run(host.top, "run", "--never", "/nowhere/x")
    assert (status, out) == (1, "") and "cannot run /nowhere/x: No such file" in err


def test_a_write_that_fails(host):
    host.groups.unlink()
    host.groups.symlink_to("/dev/full")
    status, _, err = run(host.top, "run", "--always", "true")
    assert status == 1 and "refuses" in err and "No space left" in err and "Traceback" not in err


@pytest.mark.parametrize("args, says", [
    ([], "required: COMMAND"), (["run"], "one of the arguments"), (["run", "true", "--always"], "one of the arguments"),
    (["run", "--always"], "a COMMAND is needed"), (["run", "--always", "--"], "a COMMAND is needed"),
    (["pid", "5"], "one of the arguments"), (["pid", "--always"], "required: PID"),
    (["pid", "x", "--always"], "'x' is not a whole number"), (["pid", "-1", "--always"], "'-1' is not a whole number"),
    (["pid", "5", "--always", "--never"], "not allowed with"), (["pid", "5", "--tolerance", "-1"], "'-1' is not a"),
    (["pid", "5", "--join"], "expected one argument"), (["cgroup", "x", "--join", "--leave"], "not allowed with"),
    (["cgroup", "x", "--always", "--watch", "0"], "not a number above 0"), (["unit", "--always"], "required: NAME"),
    (["suggest", "--seconds", "nan"], "not a number above 0"), (["suggest", "--wakeups", "--look", "x"], "not allowed"),
    (["list", "x"], "unrecognized")])
def test_bad_arguments(host, args, says):
    status, out, err = run(host.top, *args)
    assert (status, out) == (2, "") and says in err and host.said() == []


@pytest.mark.parametrize("name", ["", "run", "pid", "cgroup", "unit", "list", "suggest"])
def test_help(host, name):
    status, out, err = run(host.top, *filter(None, [name]), "--help")
    assert (status, err) == (0, "") and out.startswith("usage: llcctl")


# ---- control groups ----

@pytest.mark.parametrize("path", ["a.slice", "/a.slice/", "{cgroup}/a.slice", "b.slice/../a.slice"])
def test_cgroup(host, path, capsys):
    """With those below, each process once; kernel threads and processes of other namespaces are none of them."""
    host.cgroup("a.slice", 50, 0, 50)
    host.cgroup("a.slice/b/c", 53)
    host.cgroup("a.slice/d", 52)
    host.cgroup("b.slice", 60)
    host.start(52, flags=llcctl.PF_KTHREAD)
    assert llcctl.main(["cgroup", path.format(cgroup=host.top / "cgroup"), "--always"]) == 0
    assert host.said() == ["50 always", "53 always"]
    assert capsys.readouterr().out == "always: 2 processes\n"


def test_cgroup_with_tolerance(host, capsys):
    """A process of one thread has no group."""
    host.cgroup("a", 50, 51)
    host.refuses[50] = errno.ESRCH
    assert llcctl.main(["cgroup", "a", "--tolerance", "9"]) == 0
    assert host.said() == ["51 tolerance 9"]
    assert capsys.readouterr().out == "tolerance 9: 1 process, 1 without a group\n"
    host.refuses[51] = errno.ESRCH
    fails("there is no process in .*/a to ask for, 2 without a group", "cgroup", "a", "--tolerance", "9")


def test_own_process_is_left_out(host):
    host.cgroup("a", os.getpid(), 50)
    assert llcctl.main(["cgroup", "a", "--never"]) == 0 and host.said() == ["50 never"]


def test_processes_that_end_meanwhile(host, capsys):
    """Before it is looked at, or before the kernel is asked."""
    host.cgroup("a", 50, 51, 52, start=False)
    host.start(50, 52)
    host.refuses["52 always"] = errno.ESRCH
    assert llcctl.main(["cgroup", "a", "--always"]) == 0
    assert host.said() == ["50 always"] and "1 process, 2 ended" in capsys.readouterr().out
    host.end(50)
    fails("no process in .*, 3 ended", "cgroup", "a", "--always")


@pytest.mark.parametrize("path, says", [
    ("none", "there is no control group none"), ("../proc", "there is no control group"),
    ("x", "is not a control group"), ("empty", "there is no process in"),
    ("a/cgroup.procs", "there is no control group"), ("", "has an empty name")])
def test_bad_cgroups(host, path, says):
    host.cgroup("a", 50)
    host.cgroup("empty")
    (host.top / "cgroup/x").mkdir()
    fails(says, "cgroup", path, "--always")
    assert host.said() == []


def test_threaded_cgroups(host, monkeypatch):
    """One cannot be read. Below another one, it has no processes of its own."""
    host.cgroup("a", 50)
    host.cgroup("a/threaded", 51)
    host.cgroup("a/removed", 52)
    codes, real = {"threaded": errno.EOPNOTSUPP, "removed": errno.ENODEV, "broken": errno.EIO}, Path.read_text

    def read_text(path, *args, **options):
        if path.parent.name in codes:
            raise OSError(codes[path.parent.name], os.strerror(codes[path.parent.name]))
        return real(path, *args, **options)
    monkeypatch.setattr(Path, "read_text", read_text)
    assert llcctl.main(["cgroup", "a", "--always"]) == 0 and host.said() == ["50 always"]
    fails("is a threaded control group.*use the one above", "cgroup", "a/threaded", "--always")
    host.cgroup("a/broken", 53)
    fails("Input/output error", "cgroup", "a", "--always")


def test_a_refusal_ends_it(host):
    host.cgroup("a", 50, 51)
    host.refuses[50] = errno.EPERM
    fails("refuses '50 always'", "cgroup", "a", "--always")
    assert host.said() == []


# ---- joining, and watching ----

def watched(host, monkeypatch, args, *steps):
    """Watch while each step changes the host before another look; the rounds' commands."""
    steps, rounds, seen = list(steps), [], 0

    def sleep(seconds):
        nonlocal seen
        assert seconds == 2.0
        rounds.append(host.said()[seen:])
        seen += len(rounds[-1])
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()
    monkeypatch.setattr(llcctl.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        llcctl.main(args)
    print(rounds)
    return rounds


def test_join(host, capsys):
    host.cgroup("a", 52, 50)
    host.cgroup("a/b", 51)
    assert llcctl.main(["cgroup", "a", "--join"]) == 0
    assert host.said() == ["51 join 50", "52 join 50"] and capsys.readouterr().out == "join: 3 processes\n"


def test_join_of_one_process(host):
    host.cgroup("a", 50)
    fails("has one process: there is none to join it", "cgroup", "a", "--join")


def test_join_when_the_first_one_ends(host, monkeypatch):
    """Between the look and the command: the next one is the first."""
    host.cgroup("a", 50, 51, 52)
    real = llcctl.ask

    def ask(pid, *words):
        if (host.top / "proc/50").exists():
            host.end(50)
        return real(pid, *words)
    monkeypatch.setattr(llcctl, "ask", ask)
    assert llcctl.main(["cgroup", "a", "--join"]) == 0 and host.said() == ["52 join 51"]


def test_watch(host, monkeypatch, capsys):
    """New processes only; one with the pid of another one is new, and one that runs another program."""
    host.cgroup("a", 50, 51)
    rounds = watched(
        host, monkeypatch, ["cgroup", "a", "--always", "--watch"],
        lambda: None, lambda: host.cgroup("a", 50, 51, 60), lambda: host.start(51, began=8),
        lambda: host.start(60, comm="other"), lambda: host.cgroup("a"), lambda: host.cgroup("a", 50))
    assert rounds == [["50 always", "51 always"], [], ["60 always"], ["51 always"], ["60 always"], [], ["50 always"]]
    assert capsys.readouterr().out.startswith("always: 2 processes\n" + "always: 1 process\n" * 4)


def test_watch_goes_on_when_the_kernel_refuses(host, monkeypatch, capsys):
    """It asks again for the process that was refused. At first, a refusal ends it."""
    host.cgroup("a", 50)

    def refuse():
        host.cgroup("a", 50, 51, 52)
        host.refuses[51] = errno.ENOMEM
    rounds = watched(host, monkeypatch, ["cgroup", "a", "--always", "--watch"], refuse, lambda: None, host.refuses.clear)
    assert rounds == [["50 always"], ["52 always"], [], ["51 always"]]
    assert capsys.readouterr().err.count("the kernel refuses '51 always'") == 1
    host.refuses[50] = errno.ENOMEM
    fails("refuses '50 always'", "cgroup", "a", "--always", "--watch")


def test_watch_of_a_group(host, monkeypatch):
    """A new process joins one that still is in the group: neither one that has ended, nor one that has left with
    exec. One process can be the first. A group that is made again begins anew."""
    host.cgroup("a", 50)

    def leave():
        host.end(50)
        host.cgroup("a", 51, 52, 53)
        host.start(51, comm="other")

    def stop():
        shutil.rmtree(host.top / "cgroup/a")
    rounds = watched(host, monkeypatch, ["cgroup", "a", "--join", "--watch"], lambda: host.cgroup("a", 50, 51, 52),
                     leave, stop, lambda: host.cgroup("a", 70, 71))
    assert rounds == [[], ["51 join 50", "52 join 50"], ["51 join 52", "53 join 52"], [], ["71 join 70"]]


# ---- units ----

@pytest.fixture
def systemctl(host, monkeypatch):
    """A function that sets what systemctl prints, and with which status it ends."""
    def answer(text, status=0):
        script(host.top / "bin/systemctl", f"echo \"$@\" > {host.top}/asked\ncat << END\n{text}\nEND\n"
                                           f"echo trouble >&2; exit {status}")
    monkeypatch.setenv("PATH", f"{host.top}/bin:{os.environ['PATH']}")
    return answer


@pytest.mark.parametrize("name, unit", [("nginx", "nginx.service"), ("a@1.2", "a@1.2.service"),
                                        ("x.service", "x.service"), ("user.slice", "user.slice")])
def test_unit(host, systemctl, name, unit):
    systemctl("LoadState=loaded\nControlGroup=/system.slice/a=b")
    host.cgroup("system.slice/a=b/c", 50)
    host.cgroup("system.slice/a=b", 51)
    assert llcctl.main(["unit", name, "--join"]) == 0 and host.said() == ["51 join 50"]
    assert (host.top / "asked").read_text().split()[-1] == unit


@pytest.mark.parametrize("top", ["unified/", "systemd/"])
def test_unit_with_version_1_of_control_groups(host, systemctl, top):
    systemctl("LoadState=loaded\nControlGroup=/system.slice/a")
    host.cgroup(f"{top}system.slice/a", 50)
    assert llcctl.main(["unit", "a", "--always"]) == 0 and host.said() == ["50 always"]


@pytest.mark.parametrize("text, status, says", [
    ("LoadState=not-found\nControlGroup=", 0, "there is no unit x.service"),
    ("LoadState=loaded\nControlGroup=", 0, "x.service has no processes"), ("", 0, "x.service has no processes"),
    ("", 1, "systemctl: trouble"), ("LoadState=loaded\nControlGroup=/gone", 0, "there is no control group /gone"),
    ("LoadState=loaded\nControlGroup=/empty", 0, "there is no process in")])
def test_bad_units(host, systemctl, text, status, says):
    systemctl(text, status)
    host.cgroup("empty")
    fails(says, "unit", "x", "--always")


def test_no_systemctl(host, monkeypatch):
    monkeypatch.setenv("PATH", str(host.top))
    fails("there is no systemctl here", "unit", "x", "--always")


# ---- list ----

def test_list(host, capsys):
    host.start(125, comm="work\x1bload")
    host.write("sched/llc_balancing/groups", HEAD + "125 2 6 default 9 2.714 0,2 open\n9 1 0 never - 0.000 - never\n")
    assert llcctl.main(["list"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["enabled:", "advise"], [*HEAD.upper().split(), "COMMAND"],
        ["125", "2", "6", "default", "9", "2.714", "0,2", "open", "work?load"],
        ["9", "1", "0", "never", "-", "0.000", "-", "never", "?"]]


def test_list_of_none_and_of_a_later_kernel(host, capsys):
    host.write("sched/llc_balancing/groups", HEAD)
    assert llcctl.main(["list"]) == 0 and capsys.readouterr().out.split()[-1] == "COMMAND"
    host.write("sched/llc_balancing/groups", HEAD.replace("gate", "new gate") + "5 1 2 always - 0.0 - 17 busy\n")
    assert llcctl.main(["list"]) == 0 and "17   busy  ?" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "1\n", "a b\n1 2\n", HEAD + "1 2 3\n"])
def test_another_format(host, text):
    host.write("sched/llc_balancing/groups", text)
    fails("has another format", "list")


# ---- suggest ----

def seen_of(changes=None, **more):
    """What llcstat --json shows of the recording: {pid: changes of the process}; more: changes at the top."""
    done = subprocess.run([sys.executable, ROOT / "tools/llcstat", "--json", "--from", RECORDED], check=True,
                          capture_output=True, text=True)
    seen = {**json.loads(done.stdout), **more}
    for one in seen["processes"]:
        one.update((changes or {}).get(one["pid"], {}))
    return seen


def cache(changes):
    """What to change of a process, to have other lines cache.* for its group."""
    return {"list": [{"cache": {"cache.group.gate": "open"} | changes}]}


def judged(changes=None, pid=FITS, limit=6, **more):
    """What judge() says about a process of the recording."""
    seen = seen_of({pid: changes or {}}, **more)
    return llcctl.judge(next(one for one in seen["processes"] if one["pid"] == pid), seen.get("seconds"), limit)


def test_suggest(host, tmp_path, capsys):
    """On a recording of a guest: one process that fits, and one with the gate footprint."""
    path = tmp_path / "look.json"
    path.write_text("{}\n" + json.dumps(seen_of(seconds=2.0)))
    assert llcctl.main(["suggest", "--look", str(path)]) == 0
    out = capsys.readouterr().out
    print(out)
    assert ("\nworkload (125): 2.7 of 3 threads run, 0.5 moves between LLCs per second, gate open\n"
            "    llcctl pid 125 --always\n    sched-ab SCHED_CACHE -- COMMAND\n") in out
    assert f"    echo advise > {host.top}/sched/llc_balancing/enabled\n" in out
    assert out.endswith("\nNot worth a try: 1 with gate footprint\n") and "(124)" not in out


@pytest.mark.parametrize("changes, why", [
    ({"gates": {"busy": 3}}, "gate busy"), ({"gates": {"footprint": 2, "waker": 1}}, "gate footprint"),
    ({"gates": {"affinity": 3}}, "gate affinity"),
    ({"running": 6.1}, "more running threads than half of the LLCs hold"), ({"running": 1.4}, "fewer than 1.5"),
    ({"running": None, "ticks": 0}, "fewer than 1.5"), (cache({"cache.group.processes": 2}), "joined")])
def test_processes_that_are_not_worth_a_try(changes, why):
    assert why in judged(changes, seconds=1.0)[0] and judged()[0] == ""


@pytest.mark.parametrize("changes, says", [
    ({"running": 6.0}, "6.0 of 3 threads run"), ({"running": 1.0, "gates": {"open": 2, "waker": 1}}, "moved 1 threads"),
    ({"running": 1.0, "gates": {"single": 3}, **cache({"cache.group.communicates": 1})}, "its threads wake each other"),
    ({"last_ran": {"0": 2, "1": 1}}, "ran last in 2 LLCs"), ({"across": 8}, "2.0 moves between LLCs per second")])
def test_processes_that_are_worth_a_try(changes, says):
    why, reasons, _ = judged(changes, seconds=4.0)
    assert why == "" and says in ", ".join(reasons)


def test_without_a_group():
    """With `advise` it is known how much CPU time a process had."""
    ticks = 3 * os.sysconf("SC_CLK_TCK")
    why, reasons, _ = judged({"running": None, "gates": {}, "across": None, "ticks": ticks, "list": [{"cache": {}}]},
                             seconds=2.0)
    assert why == "" and reasons == ["1.5 of 3 threads run", "gate unknown, since it has no group"]


def test_order(host):
    """Those that communicate first, then by moves between LLCs, by where they ran, and by running threads."""
    base = next(one for one in seen_of()["processes"] if one["pid"] == FITS)
    kinds = [{"running": 2.0}, {"running": 3.0}, {"running": 2.0, "last_ran": {"0": 1, "1": 1}},
             {"running": 2.0, "across": 9}, {"running": 1.0, **cache({"cache.group.communicates": 1})}]
    seen = seen_of(processes=[{**base, "across": 0, **kind, "pid": pid} for pid, kind in enumerate(kinds, 1)])
    found, left = llcctl.suggestions(seen, Counter())
    assert [int(lines[1].split()[2]) for lines in found] == [5, 4, 3, 2, 1] and not left


@pytest.mark.parametrize("llcs, smt, want", [
    (["0-7", "8-15"], "0", 6), (["0-7,16-23", "8-15,24-31"], "1", 8), (["0-7", "8-15", "16-23"], "0", 12),
    (["0-7"], "0", 0), ([], "0", 0), (["0", "1", "2", "3"], "0", 1.5)])
def test_what_half_of_the_llcs_hold(host, llcs, smt, want):
    host.write("smt", smt + "\n")
    assert llcctl.limit_of([{"cpus": cpus} for cpus in llcs]) == want


@pytest.mark.parametrize("text, says", [
    ("", "not what llcstat"), ("{}", "not what llcstat"), ("[1]", "not what llcstat"), ("x", "not what llcstat"),
    ('{"llcs": [{"cpus": "0-3"}], "processes": []}', "there is one LLC")])
def test_bad_looks(host, text, says):
    host.write("look", text)
    fails(says, "suggest", "--look", str(host.top / "look"))


def test_nothing_to_suggest(host, capsys):
    host.write("look", json.dumps(seen_of(processes=[])))
    assert llcctl.main(["suggest", "--look", str(host.top / "look")]) == 0
    assert capsys.readouterr().out == "No process is worth a try.\n"


def test_suggest_on_this_host(host):
    """It runs the llcstat beside it, whatever kernel this is, and needs it."""
    status, out, err = run(host.top, "suggest", "--seconds", "0.1")
    assert (status == 0 and "worth a try" in out) or (status == 1 and "there is one LLC" in err)
    alone = host.top / "bin/llcctl"
    alone.parent.mkdir()
    shutil.copy(TOOL, alone)
    done = call(sys.executable, alone, "suggest", env=os.environ | {"PATH": str(host.top)})
    assert done.returncode == 1 and "suggest needs llcstat in" in done.stderr and "Traceback" not in done.stderr
    (host.top / "bin/llcstat").write_text("raise SystemExit(3)\n")
    done = call(sys.executable, alone, "suggest")
    assert done.returncode == 1 and "llcstat failed with status 3" in done.stderr


# ---- wakeups between processes ----

def waking(waker, wakee, context=".", comm="a"):
    """A line as tracefs has them."""
    return (f"{comm:>16}-{waker:<7d} [003] d.{context}4.   123.456789: sched_waking: comm=b pid=1 prio=9 pid={wakee} "
            "prio=120 target_cpu=001\n")


def test_wakeups_of_a_trace(host):
    """Between two processes, either way, by any of their threads."""
    host.start(50, 60)
    host.start(51, tgid=50)
    host.start(61, tgid=60)
    host.start(70, flags=llcctl.PF_KTHREAD)
    text = "# tracer: nop\n#\n" + waking(50, 60) + waking(61, 51, comm="x-12 [001] y") + waking(51, 60)
    # Within a process, in interrupts, of a kernel thread, of the idle task, and of a thread that has ended.
    text += waking(50, 51) + "".join(waking(50, 60, context) for context in "hHszZ")
    text += waking(50, 70) + waking(70, 50) + waking(0, 50, comm="<idle>") + waking(99, 50)
    assert llcctl.wakeups_of(text.splitlines()) == {(50, 60): 3}
    # With the option record-tgid.
    assert llcctl.wakeups_of([waking(50, 60).replace(" [", " (     50) [")]) == {(50, 60): 1}


def test_pairs(host):
    """Two processes that wake each other often, and run no more threads than fit."""
    host.start(FITS, comm="workload")
    host.start(LARGE, 60, 61)
    wakeups = Counter({(60, 61): 4000, (60, FITS): 300, (61, LARGE): 150, (1, 2): 9999})
    found, left = llcctl.suggestions(seen_of({FITS: {"running": 7.0}}, seconds=2.0), wakeups)
    assert [lines[0] for lines in found] == ["a b (60) and a b (61): 2000 wakeups between them per second"]
    assert found[0][1] == "    llcctl pid 61 --join 60"
    assert left == {"gate footprint": 1, "more running threads than half of the LLCs hold": 2}


@pytest.mark.parametrize("ticks, fits", [(100, True), (2000, False)])
def test_pairs_without_a_group(host, ticks, fits):
    """With `advise`, the CPU time of a process with several threads counts."""
    host.start(FITS, 60)
    seen = seen_of({FITS: {"running": None, "gates": {}, "list": [{"cache": {}}],
                           "ticks": ticks * os.sysconf("SC_CLK_TCK") // 100}}, seconds=2.0)
    found, _ = llcctl.suggestions(seen, Counter({(60, FITS): 4000}))
    assert any("--join" in lines[1] for lines in found) == fits


def test_pairs_that_are_joined_or_may_not(host, monkeypatch, capsys):
    """One of which has joined another group may join; one whose mode is `never` is left out, alone and in pairs."""
    host.start(FITS, 60, 61, 62, 63)
    for pid in (60, 61, 62):
        host.write(f"proc/{pid}/sched", "cache.group.processes : 3\n")
    monkeypatch.setattr(llcctl, "look", lambda _: seen_of(seconds=1.0))
    host.start(50)
    trace = waking(60, 61) * 300 + waking(61, 63) * 200 + waking(62, FITS) * 900 + waking(62, 50) * 100
    Trace(host, monkeypatch, trace)
    host.write("sched/llc_balancing/groups", HEAD + f"60 3 3 default - 1.0 0 open\n{FITS} 1 0 never - 0.0 - never\n")
    assert llcctl.main(["suggest", "--wakeups"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"llcctl (.*)", out) == ["pid 63 --join 61", "pid 50 --join 62"] and "1 with mode never" in out


class Trace:
    """A made-up tracefs: a new instance has the files that the kernel makes, and is removed with them."""

    def __init__(self, host, monkeypatch, text):
        self.top = host.top / "tracing/instances"
        self.top.mkdir(parents=True)
        self.during = None
        mkdir, rmdir = Path.mkdir, Path.rmdir

        def made(path, *args, **options):
            mkdir(path, *args, **options)
            if path.parent == self.top and not args and not options:
                host.write(f"{path}/events/sched/sched_waking/enable", "0")
                host.write(f"{path}/trace", text)

        def removed(path):
            (shutil.rmtree if path.parent == self.top else rmdir)(path)
        monkeypatch.setattr(Path, "mkdir", made)
        monkeypatch.setattr(Path, "rmdir", removed)

    def look(self, result):
        """Return a function in place of look(), that remembers whether tracing was on."""
        def looked(_):
            [instance] = self.top.iterdir()
            self.during = (instance / "events/sched/sched_waking/enable").read_text()
            if isinstance(result, Exception):
                raise result
            return result
        return looked


def test_traced(host, monkeypatch, capsys):
    host.start(60, 61)
    trace = Trace(host, monkeypatch, waking(60, 61) * 300)
    monkeypatch.setattr(llcctl, "look", trace.look(seen_of(processes=[], seconds=2.0)))
    assert llcctl.main(["suggest", "--wakeups"]) == 0
    assert "150 wakeups between them per second\n    llcctl pid 61 --join 60\n" in capsys.readouterr().out
    assert trace.during == "1" and list(trace.top.iterdir()) == []


def test_a_trace_that_ends_early(host, monkeypatch):
    """Nothing stays switched on."""
    trace = Trace(host, monkeypatch, "")
    monkeypatch.setattr(llcctl, "look", trace.look(llcctl.Failed("trouble")))
    fails("trouble", "suggest", "--wakeups")
    assert trace.during == "1" and list(trace.top.iterdir()) == []


def test_no_tracefs(host):
    fails("cannot trace wakeups in .*is tracefs mounted", "suggest", "--wakeups")


# ---- with the other tools ----

def test_sched_settings_sets_advise_at_boot(host):
    host.write("conf", "llc_balancing/enabled=advise\n")
    host.write("sched/llc_balancing/enabled", "always\n")
    done = call("/bin/sh", ROOT / "tools/sched-settings", host.top / "conf",
                env=os.environ | {"SCHED_DEBUGFS": str(host.top / "sched")})
    assert (done.returncode, done.stderr) == (0, "") and llcctl.mode_of_host() == "advise"


def test_sched_ab_takes_the_command_that_is_suggested(host):
    """Up to COMMAND."""
    found, _ = llcctl.suggestions(seen_of(), Counter())
    command = found[0][2].split()
    assert command[-1] == "COMMAND"
    done = call(sys.executable, ROOT / "tools" / command[0], "-n", "1", "-d", host.top / "out", *command[1:-1], "true",
                env=os.environ | {"SCHED_DEBUGFS": str(host.top / "sched")})
    assert done.returncode == 0 and (host.top / "out/on-2.txt").exists()


def test_documentation_has_commands_that_exist():
    """In docs/llcctl.md and docs/hosts.md, each command is one that the program takes."""
    text = "".join((ROOT / f"docs/{page}.md").read_text() for page in ("llcctl", "hosts"))
    found = [line.partition("#")[0].split()
             for line in re.findall(r"^ {4,8}(?:sudo )?(?:tools/|\./)?llcctl (.*)", text, re.M)]
    print(*found, sep="\n")
    values = {"PID": "5", "PID2": "6", "N": "7", "SECONDS": "2", "FILE": "x"}
    for words in found:
        llcctl.parser().parse_args([values.get(word, word) for word in words])
    assert {words[0] for words in found} == {"run", "pid", "cgroup", "unit", "list", "suggest"}
