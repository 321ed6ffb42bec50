# SPDX-License-Identifier: GPL-2.0-only
"""The table of published results: what counts as reproduced, and what is wrong with the list of gaps."""

import dataclasses
from pathlib import Path

import pytest

from here import BUILD, GIVEN, SERIES, named
from kit import settings
from kit.process import Error
from kit.sim import costs, simulate, validate, workloads
from kit.sim.published import ROWS, Check, Order, Row, Variant
from kit.vm import kernel, machine

ONE = Variant("epyc-2x2x2", "ping-pong:0:1:300")
MORE, LESS = Check("more", "a", "b", 1.5, 1.2, 1.9), Check("less", "a", "b", 0.7, 0.5, 0.9)
SAME, LEVEL = Check("same", "a", "b", 1, 0.9, 1.1), Check("level", "", "b", 100, 50, 200)
NEAR_0, NOISE = [100, 101, 99, 100, 102], [60, 150, 90, 190, 75]


def times(factor, values=NEAR_0):
    return [factor * value for value in values]


def row(*checks, orders=(), gap=""):
    return Row(1, "t", "s", {"a": ONE, "b": ONE}, checks, orders, gap=gap)


@pytest.mark.parametrize("check, base, other, wrong", [
    (MORE, NEAR_0, times(1.5), ""),
    (MORE, NEAR_0, times(1.1), "out of the range"),
    (MORE, NEAR_0, times(2.0), "out of the range"),
    (MORE, NEAR_0, times(1 / 1.5), "out of the range"),
    # The median is in the range, but the interval is not on one side of 1.
    (MORE, NEAR_0, times(1.5, NOISE), "no verdict: the interval has both signs"),
    (LESS, NEAR_0, times(0.7), ""),
    (LESS, NEAR_0, times(0.7, NOISE), "no verdict: the interval has both signs"),
    # A range that has both signs does not excuse the wrong one.
    (Check("c", "a", "b", 1.2, 0.8, 1.8), NEAR_0, times(0.9), "no verdict: the interval has both signs"),
    (MORE, NEAR_0[:2], times(1.5)[:2], "no verdict: 2 values are too few"),
    (MORE, NEAR_0[:1], times(1.5)[:1], "no verdict: 1 values are too few"),
    (MORE, NEAR_0, [0] * 5, "a value is zero or negative: there is no ratio"),
    (MORE, [], NEAR_0, "not run"), (MORE, NEAR_0, [], "not run"),
    (SAME, NEAR_0, times(1.02), ""),
    (SAME, NEAR_0, times(1.02, NOISE), "no verdict: the interval leaves the range"),
    (LEVEL, [], times(1.2), ""), (LEVEL, [], times(3), "out of the range"),
    (LEVEL, [], times(1, [55, 190, 100, 40, 230]), "no verdict: the interval leaves the range"),
    (LEVEL, [], [100], "no verdict: 1 values are too few"),
])
def test_check(check, base, other, wrong):
    found = validate.find(check, {"a": base, "b": other})
    print(found)
    assert found.wrong == wrong
    assert validate.word(row(check), {"a": base, "b": other}) == (
        validate.NOT_REPRODUCED if wrong else validate.REPRODUCED)


@pytest.mark.parametrize("small, large, factor, kept", [
    (1.2, 1.5, 1, True), (1.5, 1.2, 1, False), (1.1, 1.5, 1 / 3, True), (1.2, 1.5, 1 / 3, False)])
def test_order(small, large, factor, kept):
    one = Row(1, "t", "s", {}, (Check("s", "a", "b", 1.2, 1, 2), Check("l", "a", "c", 1.5, 1, 2)),
              (Order("s", "l", factor),))
    found = {"a": NEAR_0, "b": times(small), "c": times(large)}
    print(validate.judge(one, found))
    assert (validate.word(one, found) == validate.REPRODUCED) == kept


def test_order_of_what_was_not_run():
    [_, text] = validate.judge(row(MORE, orders=(Order("more", "more"),)), {})
    assert text == ["more and more: not run"]


@pytest.mark.parametrize("gap, other, says", [
    ("", times(1.5), []),
    ("the model is slow", times(1.0), []),
    ("", times(1.0), ["row 1 is not reproduced, and is not listed as a gap"]),
    ("the model is slow", times(1.5), ["row 1 is reproduced, but is listed as a gap: the model is slow"]),
    # No verdict is not a pass.
    ("", times(1.5, NOISE), ["row 1 is not reproduced, and is not listed as a gap"]),
    ("too noisy", times(1.5, NOISE), []),
])
def test_list_of_gaps(gap, other, says):
    assert validate.mistakes([row(MORE, gap=gap)], {1: {"a": NEAR_0, "b": other}}) == says


def test_row_that_cannot_be_run_is_not_reproduced():
    nothing = Row(1, "t", "s", {}, ())
    assert validate.word(nothing, {}) == validate.NOT_REPRODUCED
    assert validate.mistakes([nothing], {1: {}}) == ["row 1 is not reproduced, and is not listed as a gap"]


def test_table_of_rows():
    rows = [row(MORE, LESS, orders=(Order("more", "less"),)), dataclasses.replace(row(LEVEL), number=2)]
    shown = validate.table(rows, {1: {"a": NEAR_0, "b": times(1.5)}})
    print(*shown, sep="\n")
    assert [cells[0] for cells in shown[1:]] == ["1. t", "more", "less", "in order", "2. t", "level"]
    assert shown[1][4] == "not reproduced" and shown[5][4] == "not reproduced (not run)"
    assert shown[2][1:3] == ["x 1.50", "x 1.20 to 1.90"] and shown[2][3].startswith("x 1.50 (1.4")
    assert shown[3][4] == "out of the range" and shown[4][4] == "more: not less than less"


# ---- the published table ----

def test_table_asks_for_what_there_is():
    """Machines, workloads, states; checks and orders name what there is; the ranges have the expected value."""
    assert [one.number for one in ROWS] == list(range(1, 13))
    for one in ROWS:
        for variant in one.variants.values():
            m = machine.load(variant.machine)
            print(one.number, workloads.task(variant.workload, m).row(1), simulate.state(variant.state,
                                                                                         variant.build, SERIES))
            assert costs.of(m)
        used = {name for check in one.checks for name in (check.base, check.other)} - {""}
        assert used == set(one.variants)
        names = {check.name for check in one.checks}
        assert all({order.small, order.large} <= names for order in one.orders)
        assert all(check.low <= check.expected <= check.high for check in one.checks)
        # What cannot be run is a gap.
        assert one.source and (one.checks or one.gap)


# ---- the file ----

FOUND = {"values": {"a": NEAR_0, "b": times(1.5)}, "variants": validate._variants(row(MORE))}


def test_saved_rows(tmp_path):
    path, other = tmp_path / "new" / "file.json", dataclasses.replace(row(MORE), number=2)
    assert validate.load(path) == {}
    validate.save(path, row(MORE), FOUND)
    validate.save(path, other, FOUND)
    assert validate.load(path) == {1: FOUND, 2: FOUND}
    assert validate.saved([row(MORE)], path) == {1: FOUND["values"]}
    # What was found with another workload is not of this row.
    moved = dataclasses.replace(row(MORE), variants={"a": ONE, "b": dataclasses.replace(ONE, workload="chase")})
    assert validate.saved([moved], path) == {}


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"rows": {"x": 1}}'])
def test_damaged_file(tmp_path, text):
    path = Path(tmp_path / "file.json")
    path.write_text(text)
    with pytest.raises(Error, match="no result of sim-validate"):
        validate.load(path)


# ---- in the guest ----

@pytest.fixture(scope="module")
def built():
    """Build the kernel, which takes a moment if it is up to date."""
    kernel.build(named("stack"))


def test_short_row(built, capsys):
    """Row 1 is run, judged and kept; with the memory of the line at the own socket, it is not reproduced."""
    assert validate.command(settings.read("sim-validate", {**GIVEN.texts, "ROWS": "1"})) == 0
    print(capsys.readouterr().out)
    found = validate.load(BUILD / "results" / validate.FILE)[1]
    assert validate.word(ROWS[0], found["values"]) == validate.REPRODUCED
    with pytest.raises(Error, match="row 1 is not reproduced, and is not listed as a gap"):
        validate.command(settings.read("sim-validate", {**GIVEN.texts, "ROWS": "1", "WITHOUT": "home"}))


def test_control_groups_are_deep(built):
    """Each switch between two CPUs' tasks and idle goes through three more levels."""
    m = machine.load(ONE.machine)
    counts = [simulate.run(m, simulate.State(named("stack"), cgroups=cgroups), [workloads.task("ping-pong:0:4:100", m)],
                           1)[0].counted["instructions"] for cgroups in (0, 3)]
    print(counts)
    assert counts[1] > 1.1 * counts[0]


def test_line_has_the_memory_that_it_is_given(built):
    """bounce's HOME: CPU 8 is in the other socket."""
    m = machine.load(ONE.machine)
    near, far = (region.value for region in simulate.run(m, simulate.State(named("stack")), [
        workloads.task(f"bounce:0:4:1000:{home}", m) for home in (0, 8)], 1))
    print(near, far)
    assert far == pytest.approx(costs.of(m).ns("other_socket"), rel=0.05)
    assert near == pytest.approx(costs.of(m).ns("other_llc"), rel=0.05)


def test_threads_that_are_near_and_far(built):
    """near: the threads of a process are in one LLC, so no line comes from another; pinned: in two sockets."""
    m = machine.load(ONE.machine)
    moved = {how: simulate.figures(simulate.run(m, simulate.State(named("stack")), [
        workloads.task(f"sharing:1:4:64:2:2:{how}", m)], 1)[0], m) for how in ("near", "pinned")}
    print(moved)
    assert moved["near"]["core"] > 20 * (moved["near"]["llc"] + moved["near"]["socket"])
    assert moved["pinned"]["socket"] > 20 * moved["near"]["socket"]
