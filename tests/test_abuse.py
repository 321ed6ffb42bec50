# SPDX-License-Identifier: GPL-2.0-only
"""make abuse without guests: what is made of what they print, and when that is harm, or too little."""

import re

import pytest

from here import named
from kit import settings
from kit.features import FEATURES
from kit.paths import GUEST
from kit.process import Error
from kit.trials import abuse


def measured(change=None, control=20000.0):
    """The figures of a guest if each p99 is 100 us but for {(attacker, state, repeat): us, None if missing}."""
    cells = {(attacker, state, repeat): 100.0 for attacker in (abuse.NONE, *abuse.ATTACKERS)
             for state in abuse.STATES for repeat in abuse.REPEATS}
    cells |= {(abuse.CONTROL, "off", repeat): control for repeat in abuse.REPEATS} | (change or {})
    return abuse.parse({"lateness": [dict(zip(("attacker", "state", "repeat"), cell), p99=us)
                                     for cell, us in cells.items() if us is not None]})


def test_all_is_measured_and_nothing_is_harm():
    assert not abuse.missing(measured()) and not abuse.harm(measured())
    assert "| none | 100 100 | 100 100 | 100 100 | - |" in abuse.table(measured())


@pytest.mark.parametrize("off, on, is_harm", [
    ((100, 100), (300, 300), True), ((100, 100), (201, 201), True),
    ((100, 100), (300, 140), False),      # in one order only
    ((100, 100), (199, 199), False),      # by less than 100 us
    ((1000, 1000), (1400, 1400), False),  # not by half
])
def test_harm_is_what_both_orders_show(off, on, is_harm):
    p99 = measured({("flood", state, repeat): us for state, pair in (("off", off), ("on", on))
                    for repeat, us in zip(abuse.REPEATS, pair)})
    assert abuse.harm(p99) == [("flood", "on")] * is_harm
    # It is a result, not a failure.
    assert not abuse.missing(p99)
    [row] = [line for line in abuse.table(p99) if line.startswith("| flood |")]
    assert row.endswith(" | on |" if is_harm else " | - |")


def test_missing_cells_are_named():
    assert abuse.missing(measured({("storm", "on", 2): None})) == ["missing: storm, on, run 2"]
    assert len(abuse.missing(abuse.parse({"lateness": []}))) == 2 * (3 * (1 + len(abuse.ATTACKERS)) + 1)


def test_a_measurement_that_does_not_see_the_control_fails():
    assert abuse.missing(measured(control=900.0)) == [
        "not seen: fifo makes the victims late by 900 900 us, alone 100 100"]


def test_states():
    """Each bit is in each state, in the default one as at boot; and none that the kernel lacks."""
    states = {name: text.replace("features=", "").split(",") for name, text in abuse.writes(named("stack")).items()}
    assert set(states) == set(abuse.STATES)
    assert states["on"] == [bit.name for bit in FEATURES]
    assert states["off"] == [f"NO_{bit.name}" for bit in FEATURES]
    assert [word for word in states["default"] if not word.startswith("NO_")] == [
        bit.name for bit in FEATURES if bit.default == "on"]
    assert not any("SAMPLE" in text for text in abuse.writes(named("rt")).values())


def test_the_job_has_each_attacker():
    job = (GUEST / "jobs/abuse.sh").read_text()
    assert re.findall(r"^\t(\w+)\)", job, re.M) == [*abuse.ATTACKERS, abuse.CONTROL]


def test_a_kernel_without_features_is_refused():
    with pytest.raises(Error, match="has no features to compare"):
        abuse.command(settings.read("abuse", {"BUILD": "base"}))
