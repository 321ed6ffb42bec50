# SPDX-License-Identifier: GPL-2.0-only
"""make races without guests: what counts as silent, found and not shown; and that the three lists of cases agree."""

import dataclasses
import re

import pytest

from here import named
from kit import settings
from kit.paths import GUEST, TEST_ONLY
from kit.process import Error
from kit.trials import races
from kit.vm import guest, kernel, machine, splats

KASAN = """\
[    5.100000] ==================================================================
[    5.100001] BUG: KASAN: slab-use-after-free in sched_cache_show_task+0x7c/0x150
[    5.100002] Read of size 8 at addr ffff88802f02c0a8 by task torture/93
[    5.100003] ==================================================================
"""
WARNING = """\
[    5.100000] ------------[ cut here ]------------
[    5.100001] WARNING: CPU: 3 PID: 77 at kernel/sched/cache.h:254 dequeue_entity+0x1/0x2
[    5.100002] ---[ end trace 0000000000000000 ]---
"""


def result(case="reader", wrong="", splat="", passed=7, others=("exec", "on")):
    """A guest.Result of a case and of others that are silent: what its program says is wrong, what the console has
    meanwhile, how often the window was passed."""
    console, ktap = "[    3.000000] Run /init\n", ["TAP version 13", "1..3"]
    for number, each in enumerate(sorted({case, *others}), 1):
        mine = each == case
        console += f"[    4.000000] races: {each}\n" + (splat if mine else "")
        ktap += [f"# wrong: {wrong}", "0 0-7 not a comment"] * (mine and bool(wrong)) + [
            f'# {{"figure": "windows", "passed": {passed if mine else 1}}}']
        ktap += [f"{'not ' * (mine and bool(wrong))}ok {number} {each}"]
    return guest.Result(console, "\n".join([*ktap, "END 0", ""]), 1.0, True, 0, splats.find(console))


def died(console=""):
    return guest.Result("[    4.000000] races: reader\n" + console, "TAP version 13\n1..1\n", 1.0, False, -1,
                        splats.find(console), ["no END: the guest exceeded its time limit"])


def drive(case, without, inside=()):
    """What drive() returns for a case if guests give these results, else silent ones; and which ran, as (out, seed)."""
    ran, left = [], {True: list(without), False: list(inside)}

    def run(m, which, cases, out, seed):
        assert cases == [case]
        ran.append((out, seed))
        return left[out].pop(0) if left[out] else result(case)
    return races.drive(None, None, [case], 5, run)[case], ran


def test_found_and_silent():
    (silent, shown, good), ran = drive("reader", [result(splat=KASAN)])
    assert good and silent == "silent, 7 windows"
    assert shown == "found: BUG: KASAN: slab-use-after-free in sched_cache_show_task+0x7c/0x150"
    assert ran == [(True, 5), (False, 5)]


def test_more_seeds_until_it_is_found_and_the_same_with_the_protection():
    (silent, shown, good), ran = drive("exec", [result("exec"), result("exec", "llcs: before:")])
    assert good and silent == "silent, 14 windows" and shown == "found: llcs: before:"
    assert ran == [(True, 5), (True, 6), (False, 5), (False, 6)]


def test_not_shown_fails_unless_it_is_known(monkeypatch):
    (_, shown, good), ran = drive("lock", [])
    assert not good and shown == "not shown, 7 windows" and len(ran) == 2 * races.GUESTS
    monkeypatch.setitem(races.CASES, "lock", dataclasses.replace(races.CASES["lock"], why_not="no effect"))
    (_, shown, good), _ = drive("lock", [])
    assert good and shown == "not shown, 7 windows: no effect"
    # That it is known is no excuse for something else.
    assert not drive("lock", [died()])[0][2]


def test_something_else_is_not_what_the_race_does():
    for other in (died(), result(splat=WARNING), result(wrong="actor 3 ended with status 0x1")):
        (_, shown, good), ran = drive("reader", [other])
        assert not good and shown.startswith("FAILED: other than expected: ") and len(ran) == 2


def test_a_guest_that_dies_of_the_race_has_found_it():
    (_, shown, good), _ = drive("reader", [died(KASAN)])
    assert good and "KASAN" in shown


@pytest.mark.parametrize("inside", [result("exec", "llcs: before:"), result("exec", splat=WARNING), died(),
                                    result("exec", passed=0), result("on", others=())])
def test_with_the_protection_a_case_has_to_be_silent_and_get_there(inside):
    (silent, _, good), _ = drive("exec", [result("exec", splat=WARNING)], [inside])
    assert not good and silent.startswith("FAILED")


def test_a_case_is_not_blamed_for_another_one_but_for_what_comes_before_all():
    other = result("on", "a turn of each pair of threads does not happen", WARNING)
    assert races.outcome("exec", other) == races.Outcome(1) and races.outcome("on", other).wrong
    other.console = WARNING + other.console
    assert "WARNING" in races.outcome("exec", other).wrong


def test_what_each_case_finds():
    lines = {races.COUNTERS: [WARNING.splitlines()[1], "# wrong: llcs: before:",
                              "# wrong: off, but 3 tasks prefer LLC 1"],
             races.KASAN: KASAN.splitlines()[1:2]}
    for pattern, some in lines.items():
        assert all(re.search(pattern, line) for line in some)
        assert not any(re.search(pattern, line) for other in lines if other != pattern for line in lines[other])


def test_table():
    rows = {"exec": ("silent, 7 windows", "found: x", True), "lock": ("silent, 7 windows", "not shown", False)}
    assert races.table(rows) == ["| case | protection in | taken out |", "| --- | --- | --- |",
                                 "| exec | silent, 7 windows | found: x |", "| lock | silent, 7 windows | not shown |"]


def test_the_lists_of_cases_agree():
    """Kernel and program number them in the same order, and the kernel widens and takes out something for each."""
    patch = (TEST_ONLY / "races.patch").read_text()
    names = re.findall(r"^\+\tRACE_(\w+),$", patch, re.MULTILINE)
    assert [name.lower() for name in names] == ["none", *races.CASES]
    program = (GUEST / "torture/races.c").read_text()
    assert re.findall(r'\t\{ "(\w+)", "\d+", "', program) == list(races.CASES)
    for name in names[1:]:
        assert f"race_window(RACE_{name})" in patch and f"race_out(RACE_{name})" in patch


def test_what_a_guest_gets(monkeypatch):
    got = []
    monkeypatch.setattr(guest, "run", lambda m, build, job, env, **rest: got.append((str(build), job, env, rest["name"])))
    m = machine.load("two-ccx")
    races.one(m, named("races"), ["home"], True, 9)
    races.one(m, named("races"), ["home", "on"], False, 9)
    assert got == [("races", "races", {"CASES": cases, "OUT": out, "SEED": 9, "SECONDS": races.SECONDS}, name)
                   for cases, out, name in [("home", 1, "two-ccx-races-home"), ("home on", 0, "two-ccx-races-in")]]
    assert kernel.BUILDS["races"].extra == TEST_ONLY / "races.patch"


def test_an_unknown_case_is_refused():
    with pytest.raises(Error, match="CASES: no such case: excuse"):
        races.command(settings.read("races", {"CASES": "exec excuse"}))
