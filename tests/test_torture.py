# SPDX-License-Identifier: GPL-2.0-only
"""make torture without guests: which guests run with which seeds, and what is made of what they print."""

import re
import shutil
from types import SimpleNamespace

import pytest

from here import named
from kit.paths import GUEST, ROOT
from kit.process import Error, sh
from kit.trials import programs, torture
from kit.vm import guest, kernel, machine, qemu

GOOD = """TAP version 13
1..2
# {"figure": "count", "name": "fork", "done": 10, "refused": 2}
# {"figure": "count", "name": "knob", "done": 3, "refused": 0}
# {"figure": "clock", "seconds": 1.5}
ok 1 files
# {"figure": "count", "name": "fork", "done": 5, "refused": 0}
# {"figure": "clock", "seconds": 2.0}
ok 2 run
END 0
"""
BAD = GOOD.replace("ok 2 run", "# wrong: knob: 5, not EINVAL\nnot ok 2 run # exit=1")


def result(ktap, splats=()):
    return guest.Result("", ktap, 100.0, True, 0, list(splats))


@pytest.fixture
def guests(monkeypatch):
    """Replace guests: each takes a minute and gives the next of the results in the list. The list of
    seeds that they got is in its attribute `seeds`."""
    class Guests(list):
        seeds = []
    made, clock = Guests(), [0.0]
    made.seeds = []

    def one(m, build, seed, processes, follow=None, files=None):
        assert files == {"programs/list": "list"}
        made.seeds.append(seed)
        clock[0] += 60
        return made.pop(0)
    monkeypatch.setattr(torture, "one", one)
    monkeypatch.setattr(programs, "files", lambda build: {"programs/list": "list"})
    monkeypatch.setattr(torture.time, "monotonic", lambda: clock[0])
    return made


def test_guests_until_the_time_is_over(guests):
    guests += [result(GOOD)] * 5
    totals = torture.run(None, named(), 7, 500, 3)
    assert guests.seeds == [7, 8, 9] and totals.guests == 3 and not totals.failures
    assert totals.counts == {"fork": (45, 6), "knob": (9, 0)} and totals.guest_seconds == 10.5
    assert any(line.split() == ["fork", "45", "6", "refused"] for line in totals.lines())


def test_it_stops_at_what_is_found(guests):
    guests += [result(GOOD), result(BAD), result(GOOD)]
    totals = torture.run(None, named(), 0, 500, 10)
    assert guests.seeds == [0, 1]
    assert any("run" in line for line in totals.failures) and totals.splats == 0
    assert "# wrong: knob: 5, not EINVAL" in totals.failures


def test_a_splat_or_an_end_too_soon_fails(guests):
    guests += [result(GOOD, ["WARNING: CPU: 3"]), result("TAP version 13\n1..2\nok 1 files\n")]
    totals = torture.run(None, named(), 0, 500, 10)
    assert totals.splats == 1 and "WARNING: CPU: 3" in totals.failures[0]
    assert torture.run(None, named(), 0, 500, 1).failures


def test_cpus_run_in_parallel_only_where_no_code_is_patched(monkeypatch, tmp_path):
    image = tmp_path / "bzImage"
    image.touch()
    monkeypatch.setattr(kernel.Kernel, "image", image)
    monkeypatch.setattr(qemu, "find", lambda build: SimpleNamespace(command=["qemu"], env={}))
    for build in kernel.BUILDS:
        args, _ = guest._qemu_command(machine.load("two-ccx"), named(build), "torture", "initrd", guest.CLOCK)
        assert ("tcg,thread=multi" in args) == ("-icount" not in args) == (build == "race")


def test_many_processes_may_take_long(monkeypatch):
    """PROCESSES= reaches the guest, which is given the time for them."""
    took = {}
    monkeypatch.setattr(guest, "run", lambda m, build, job, env, timeout, **rest: took.update(
        {env["PROCESSES"]: timeout}))
    for processes in (500, 100_000):
        torture.one(None, named("leak"), 1, processes)
    assert took == {500: torture.TIMEOUT, 100_000: 25_000}


def test_half_of_the_cpus_can_do_without_a_tick(monkeypatch):
    """In every second guest, where the kernel can."""
    args = []
    monkeypatch.setattr(guest, "run", lambda *_, kernel_args, **rest: args.append(kernel_args))
    for build, seed in (("host", 1), ("host", 2), ("debug", 1)):
        torture.one(machine.load("two-ccx"), named(build), seed, 500)
    assert args == [[*guest.COST_KERNEL_ARGS, "nohz_full=2,3,6,7,10,11,14,15"],
                    guest.COST_KERNEL_ARGS, guest.COST_KERNEL_ARGS]


def test_what_a_guest_skips_and_how_many_programs_ran(guests):
    guests += [result(GOOD.replace("END 0", "ok 3 kmemleak # SKIP the kernel lacks it\n"
                                   '# {"figure": "count", "name": "stress_ng", "done": 2, "refused": 1}\n'
                                   '# {"figure": "count", "name": "selftest", "done": 1, "refused": 0}\n'
                                   "END 0").replace("1..2", "1..3"))]
    totals = torture.run(None, named(), 0, 500, 1)
    assert totals.skipped == {"kmemleak (the kernel lacks it)"} and totals.programs() == 4 and not totals.failures


def test_bits_that_a_build_lacks_are_not_switched(monkeypatch, tmp_path):
    """A series for mainline: its bits only, and the guest is told not to ask for the stack's files."""
    envs = {}
    monkeypatch.setattr(guest, "run", lambda m, build, job, env, **rest: envs.update({str(build): env}))
    header = tmp_path / "kernel/sched/features.h"
    header.parent.mkdir(parents=True)
    header.write_text("SCHED_FEAT(SIS_FAST, false)\nSCHED_FEAT(TTWU_QUEUE_L2_ON_CPU, false)\n")
    monkeypatch.setattr(kernel, "source_dir", lambda which: tmp_path)
    for build in ("debug", "rt", "7.3/leave-llc/debug"):
        torture.one(None, named(build), 1, 500)
    debug, rt = (set(envs[build]["FEATURES"].split()) for build in ("debug", "rt"))
    assert debug - rt == {"SCHED_CACHE_SAMPLE"}
    assert envs["7.3/leave-llc/debug"]["FEATURES"].split() == ["TTWU_QUEUE_L2_ON_CPU", "SIS_FAST",
                                                               *torture.BASE_FEATURES]
    assert "MAINLINE" in envs["7.3/leave-llc/debug"] and "MAINLINE" not in envs["debug"]


def test_all_knobs_are_written():
    """The program has each knob of the documentation, with its range."""
    source = (GUEST / "torture/files.c").read_text()
    table = (ROOT / "docs/which-switch.md").read_text().partition("## Knobs\n")[2]
    rows = re.findall(r"^\| `(\w+)` \| (\d+)(?: to |, )(\d+)", table, re.M)
    # Of `enabled`, the numbers are written that stand for never and always.
    rows.append(("enabled", "0", "1"))
    assert len(rows) == len(re.findall(r"^\t{ KNOBS", source, re.M))
    for knob, low, high in rows:
        assert f'KNOBS "{knob}", {low}, {high} }}' in source


@pytest.fixture
def selftests(monkeypatch, tmp_path):
    """Selftests that are not built: each is a copy of true. Returns their directory."""
    for _, directory, line in [*programs.SELFTESTS, ("", "rseq", "librseq.so")]:
        there = tmp_path / "installed" / directory / line.split()[0]
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", there)
    monkeypatch.setattr(programs, "_selftests", lambda build, out: tmp_path / "installed")
    monkeypatch.setattr(programs.initramfs, "work_of", lambda build: tmp_path)
    (tmp_path / "programs").mkdir()
    return tmp_path / "installed"


@pytest.mark.boot
def test_the_guest_can_read_the_list_of_programs(selftests):
    source = (GUEST / "torture/programs.c").read_text()
    words, lines = (int(re.search(rf"#define {name} (\d+)", source)[1]) for name in ("NR_WORDS", "NR_LINES"))
    text, copy = (int(re.search(rf"\b{name}\[(\d+)\]", source)[1]) for name in ("text", "copy"))
    kinds = set(re.findall(r'\{ "(\w+)", OP_', source))
    files = programs.files(named("debug"))
    listed = files["programs/list"].read_text().splitlines()
    assert len(listed) <= lines and {line.split(" ")[0] for line in listed} == kinds
    assert files["programs/list"].stat().st_size < text - 1 and max(map(len, listed)) < copy
    for line in listed:
        _, directory, *command = line.split(" ")
        assert len(command) <= words and "" not in command
        path = command[0] if directory == "/tmp" else f"{directory}/{command[0].removeprefix('./')}"
        assert path.lstrip("/") in files


@pytest.mark.boot
def test_each_stressor_does_something():
    """stress-ng exits with 0 if it knows a stressor and does not run it, as some as root."""
    for command in programs.stressors():
        done = sh([*command.split(), "--dry-run"], capture=True)
        assert "skipping" not in done.out and "No stress workers" not in done.out, command


@pytest.mark.boot
def test_programs_come_with_their_libraries(selftests):
    files = programs.files(named("debug"))
    assert {"usr/bin/stress-ng", "usr/bin/cyclictest", "lib64/ld-linux-x86-64.so.2"} <= set(files)
    assert any(name.endswith("/libnuma.so.1") for name in files)


def test_a_missing_program_is_named(selftests, monkeypatch):
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)
    with pytest.raises(Error, match="stress-ng is not installed: .*make deps TIERS=torture"):
        programs.files(named("debug"))


@pytest.mark.boot
def test_a_missing_selftest_is_named(selftests):
    (selftests / "cgroup/test_cpuset").unlink()
    with pytest.raises(Error, match="BUILD=debug has no selftest cgroup/test_cpuset"):
        programs.files(named("debug"))
