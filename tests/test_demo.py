# SPDX-License-Identifier: GPL-2.0-only
"""The page of `make boot`: what does not hold is found, on made-up output of a guest."""

import json
import re

import pytest

from here import SERIES
from kit import settings
from kit.features import FEATURES
from kit.vm import demo, machine
from kit.vm.guest import Result

RELEASE = "6.12.1-name"
FIGURES = {"TTWU_QUEUE_L2": (1.5, 99, "% queued"), "TTWU_QUEUE_L2_ON_CPU": (0, 87.25, "% queued"),
           "SIS_FAST": (7, 2.5, "CPUs a scan"),
           "UTIL_FITS_CAPACITY": (0, 100, "% of wakeups"),
           "SELECT_BIAS_PREV": (0, 100, "% of wakeups"),
           "WAKE_RECENT_IDLE": (0, 100, "% of wakeups"),
           "WAKE_RATE_LIMIT": (100, 5, "% of wakeups"), "WAKE_PREDICT": (0, 100, "% of wakeups"),
           "SCHED_CACHE": (0, 100, "% of looks"),
           "SCHED_CACHE_LB": (0, 100, "% of looks"), "SCHED_CACHE_WAKE": (20, 97, "% of looks"),
           "SCHED_CACHE_SAMPLE": (0, 100, "% of looks")}
TESTS = list(dict.fromkeys(feature.test for feature in FEATURES))


def figure(kind, **fields):
    """Return the line of a figure."""
    return "# " + json.dumps({"figure": kind, **fields})


def stream(m, figures=FIGURES, skip=None, **changes):
    """Return what boot.sh prints on a machine without faults; changes: lines by their beginning."""
    lines = ["TAP version 13", f"1..{1 + len(TESTS) + len(FEATURES)}", figure("kernel", release=RELEASE)]
    for cpu in m.expected():
        lines.append(figure("cpu", cpu=cpu.cpu, l2=cpu.l2, llc=cpu.llc, node=cpu.node))
        lines.append(figure("group", cpu=cpu.cpu, group=cpu.l2))
    lines.append("ok 1 rubbish")
    for number, feature in enumerate(FEATURES, 2):
        lines += [figure("state", feature=feature.name, state=feature.default), f"ok {number} toggle {feature.name}"]
    number = 1 + len(FEATURES)
    for test in TESTS:
        number += 1
        if skip:
            lines += [f"# 1..1\n# ok 1 {test} # SKIP {skip}"]
        else:
            lines += ["# TAP version 13", "# 1..1"]
            lines += [f'# # figure: {feature.name} off={off} on={on} unit="{unit}"'
                      for feature in FEATURES if feature.test == test
                      for off, on, unit in [figures[feature.name]] if off is not None]
            lines.append("# ok 1 it")
        lines.append(f"ok {number} selftests: sched: {test}")
    lines.append("END 0")
    for old, new in changes.items():
        assert any(line.startswith(old) for line in lines), old
        lines = [new if line.startswith(old) else line for line in lines]
    return "\n".join(line for line in lines if line) + "\n"


def make(name, *args, **options):
    m = machine.load(name)
    result = Result("", stream(m, *args, **options), 7.0, True, 0)
    text, problems = demo.page(m, RELEASE, result)
    print(text)
    assert max(len(line) for line in text.splitlines()) <= 100
    return text, problems


@pytest.mark.parametrize("name", machine.names())
def test_all_held(name):
    text, problems = make(name)
    assert not problems
    assert text.endswith("All checks passed.")


# The beginnings of lines.
CPU_9, GROUP_3 = (figure(kind, cpu=cpu)[:-1] + "," for kind, cpu in (("cpu", 9), ("group", 3)))
KERNEL, SIS_FAST = figure("kernel")[:-1], figure("state", feature="SIS_FAST")[:-1]


@pytest.mark.parametrize("changes,part", [
    ({GROUP_3: figure("group", cpu=3, group=3)}, "CPU 3: L2 group 3, by the machine file 2"),
    ({GROUP_3: ""}, "CPU 3: L2 group None"),
    ({CPU_9: figure("cpu", cpu=9, l2=8, llc=0, node=0)}, "CPU 9: LLC 0, by the machine file 8"),
    ({CPU_9: figure("cpu", cpu=9, l2=8, llc=8, node=1)}, "CPU 9: node 1, by the machine file 0"),
    ({CPU_9: figure("cpu", cpu=9, l2=9, llc=8, node=0)}, "CPU 9: L2 9, by the machine file 8"),
    ({CPU_9: figure("cpu", cpu=9, l2=-1, llc=-1, node=0)}, "CPU 9: LLC -1, by the machine file 8"),
    ({CPU_9: ""}, "the kernel has 15 CPUs, the machine file 16"),
    ({SIS_FAST: figure("state", feature="SIS_FAST", state="on")}, "SIS_FAST is on at boot, not off"),
    ({SIS_FAST: ""}, "SIS_FAST is missing at boot"),
    ({"ok 2 toggle": "not ok 2 toggle TTWU_QUEUE_L2"}, "not ok: toggle TTWU_QUEUE_L2"),
    ({"ok 1 rubbish": "not ok 1 rubbish"}, "not ok: rubbish"),
    ({KERNEL: figure("kernel", release="6.12.1-other")}, "kernel 6.12.1-other, not 6.12.1-name"),
    ({KERNEL: ""}, "the guest runs kernel of no known name"),
    ({"ok 6 ": "not ok 6 selftests: sched: sis_fast"}, "not ok: selftests: sched: sis_fast"),
    ({"END": ""}, "no END line"),
])
def test_what_does_not_hold(changes, part):
    text, problems = make("two-ccx", **changes)
    assert any(part in problem for problem in problems)
    assert "All checks passed" not in text


@pytest.mark.parametrize("state,part", [("off", None), ("on", "SCHED_CACHE is on at boot, not off")])
def test_a_feature_that_is_off_on_a_real_time_kernel(state, part):
    m, release = machine.load("two-ccx"), "6.12.1-cachetopo-rt-1"
    text = stream(m).replace(RELEASE, release).replace(
        figure("state", feature="SCHED_CACHE", state="on"), figure("state", feature="SCHED_CACHE", state=state))
    _, problems = demo.page(m, release, Result("", text, 7.0, True, 0))
    assert problems == ([part] if part else [])


@pytest.mark.parametrize("figure,part", [
    ((7, 7, "CPUs a scan"), "CPUs a scan should be less with it on: 7 -> 7"),
    ((7, 8, "CPUs a scan"), "CPUs a scan should be less with it on: 7 -> 8"),
    ((None, None, ""), "selftest sis_fast gave no figure"),
])
def test_figure_that_did_not_move(figure, part):
    _, problems = make("two-ccx", FIGURES | {"SIS_FAST": figure})
    assert [part in problem for problem in problems] == [True]


def test_splat_and_timeout_are_on_the_page():
    m = machine.load("two-ccx")
    result = Result("", stream(m), 7.0, True, 0, ["WARNING: here\nand there"], ["too late"])
    text, problems = demo.page(m, RELEASE, result)
    print(text)
    assert len(problems) == 2 and "and there" in text and "too late" in text


@pytest.mark.parametrize("bad", [False, True])
def test_failure_shows_what_the_selftests_printed(bad, monkeypatch, capsys):
    text = stream(machine.load("two-ccx"), **({"ok 1 rubbish": "not ok 1 rubbish"} if bad else {}))
    monkeypatch.setattr(demo.kernel, "build", lambda build: None)
    monkeypatch.setattr(demo.kernel, "release", lambda build: RELEASE)
    monkeypatch.setattr(demo.guest, "run", lambda *args, **options: Result("", text, 7.0, True, 0))
    assert demo.command(settings.read("boot", {})) == bad
    assert (text in capsys.readouterr().err) == bad


def test_skip_is_shown_but_not_on_the_default_machine():
    text, problems = make("one-llc", skip="one group is all of the LLC")
    assert not problems and text.count("one group is all of the LLC") == len(FEATURES)
    _, problems = make("two-ccx", skip="one group is all of the LLC")
    assert len(problems) == len(FEATURES)


def test_features_are_those_of_the_patches():
    added = {}
    names = [line for line in (SERIES.patches / "series").read_text().splitlines() if line.endswith(".patch")]
    for patch in (SERIES.patches / name for name in names):
        for name, default in re.findall(r"(?m)^\+SCHED_FEAT\((\w+), (true|false)\)",
                                        patch.read_text()):
            added[name] = "on" if default == "true" else "off"
    print(added)
    assert added == {feature.name: feature.default for feature in FEATURES}
