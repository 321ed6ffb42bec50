# SPDX-License-Identifier: GPL-2.0-only
"""make cost: which operations it measures, what it makes of the figures, and that the guest gives
them. The figures themselves are no test's business."""

from kit import cost, kernel, machine


def test_rows_are_what_the_machine_has():
    """A distance that a machine does not have has no row."""
    assert cost.rows(machine.load("two-ccx")) == {
        "pipe-cpu": "pipe:0:0", "pipe-group": "pipe:0:1", "pipe-llc": "pipe:0:2",
        "pipe-remote": "pipe:0:8", "fork-exit": "fork:0:0"}
    assert set(cost.rows(machine.load("one-llc"))) == {"pipe-cpu", "pipe-group", "fork-exit"}


def test_table():
    """Ratios are those of medians, and the spread is the largest of any column."""
    base = {("off", "pipe-cpu"): [100.0, 100.0, 900.0]}
    stack = {("off", "pipe-cpu"): [101.0, 101.0, 101.0], ("A", "pipe-cpu"): [98.0, 100.0, 110.0]}
    lines = cost.table(base, stack)
    print("\n".join(lines))
    assert lines[0].split() == ["base", "spread", "off", "A"]
    assert lines[1].split() == ["pipe-cpu", "100", "2.00%", "+1.00%", "+0.00%"]


def test_guest_measures(monkeypatch):
    """A short run gives a figure for each row, off and with each feature on."""
    monkeypatch.setattr(cost, "BATCHES", 1)
    monkeypatch.setattr(cost, "REPEATS", 1)
    m = machine.load("one-llc")
    kernel.build("stack")
    found = cost.measure(m, "stack")
    for key, values in found.items():
        print(*key, *values)
    states = {"off", *(feature.name for feature in cost.FEATURES)}
    assert set(found) == {(state, row) for state in states for row in cost.rows(m)}
    assert all(value > 1000 for values in found.values() for value in values)
