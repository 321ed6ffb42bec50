# SPDX-License-Identifier: GPL-2.0-only
"""make abuse without guests: what is made of what they print, and when that is harm, or too little."""

import random
import re

import pytest

from kit import settings
from kit.features import FEATURES
from kit.paths import GUEST
from kit.process import Error
from kit.trials import abuse
from kit.vm import guest, machine


def output(p99=None, leave_out=(), control=20000.0, wakeups=4000):
    """The figures of a guest if each p99 is 100 us but for {(victim, attacker, place, state, repeat): us};
    leave_out: cells that are missing."""
    cells = [(row.victim, row.attacker, row.place, state, repeat)
             for row in abuse.rows() for state in abuse.STATES for repeat in abuse.REPEATS]
    names = ("victim", "attacker", "place", "state", "repeat")
    lateness = [dict(zip(names, cell), wakeups=wakeups, p99=(p99 or {}).get(cell, 100.0))
                for cell in cells if cell not in leave_out]
    lateness += [dict(zip(names, (victim, name, "same", "off", repeat)), wakeups=50, p99=control)
                 for name in abuse.CONTROLS for victim in abuse.VICTIMS for repeat in abuse.REPEATS]
    return {"lateness": lateness, "load": [dict(zip(names[1:], cell[1:]), cpus=8 + cell[4] / 10)
                                           for cell in cells if cell[0] == "pair"]}


def worse(first, second, state="on", victim="workers", attacker="fill"):
    """A p99 of one row in both runs of a state."""
    return {(victim, attacker, "same", state, 1): first, (victim, attacker, "same", state, 2): second}


def test_all_is_measured_and_nothing_is_harm():
    measured = abuse.parse(output())
    assert not abuse.missing(measured) and not abuse.harm(measured)
    assert abuse.harm_lines(measured) == ["harm: 0 of 78 comparisons; by chance, about 0.0"]
    assert abuse.overall(measured)[2] == (
        "all attackers, pair: default / off 1.00, above 1 in 0 of 12, on / off 1.00, above 1 in 0 of 12")
    lines = abuse.table(measured)
    assert len(lines) == 2 + 3 * (1 + 2 * 6) + 2 * 3
    assert "| pair | none |  | 100 100 | 100 100 | 100 100 |  | 1.00 | 1.00 | 8.1 to 8.2 |" in lines
    assert "control: fifo, pair: p99 20000 20000 us" in lines
    # Each line of the table has as many cells as its head.
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


@pytest.mark.parametrize("first, second, is_harm", [
    (300.0, 300.0, True),
    (300.0, 140.0, False),      # in one order only
    (140.0, 140.0, False),      # not by half
    (199.0, 199.0, False),      # by less than 100 us
    (201.0, 201.0, True),
])
def test_harm_is_what_both_orders_show(first, second, is_harm):
    measured = abuse.parse(output(worse(first, second)))
    assert abuse.harm(measured) == [(abuse.Row("workers", "fill", "same"), "on")] * is_harm
    # It is a result, not a failure.
    assert not abuse.missing(measured)


def test_harm_of_a_large_p99_is_by_half():
    assert not abuse.harm(abuse.parse(output(worse(1000.0, 1000.0, "off") | worse(1400.0, 1400.0))))


def test_harm_without_an_attacker_is_named():
    one = worse(400.0, 500.0, "default")
    assert abuse.harm_lines(abuse.parse(output(one)))[:-1] == [
        "harm: workers, fill in the same cgroup: p99 100 100 us off, 400 500 us default"]
    both = abuse.harm_lines(abuse.parse(output(one | worse(300.0, 300.0, "default", attacker="none"))))
    assert both[0] == "harm: workers, no attacker: p99 100 100 us off, 300 300 us default"
    assert both[1].endswith("400 500 us default, also without an attacker")


def test_harm_by_chance():
    """The number that the rule finds where all p99 are of one distribution is the number that is expected."""
    random.seed(1)
    found, expected, rounds = 0, 0, 40
    for _ in range(rounds):
        noise = {(row.victim, row.attacker, row.place, state, repeat): round(1000 * random.lognormvariate(0, 0.3), 1)
                 for row in abuse.rows() for state in abuse.STATES for repeat in abuse.REPEATS}
        measured = abuse.parse(output(noise))
        found += len(abuse.harm(measured))
        expected += abuse.by_chance(measured)
    print(found / rounds, expected / rounds)
    assert 0.5 * expected < found < 1.5 * expected


def test_harm_of_all_rows_is_found():
    """With the same noise, a state in which all p99 are three times as high."""
    random.seed(2)
    noise = {(row.victim, row.attacker, row.place, state, repeat):
             round((3000 if state == "on" else 1000) * random.lognormvariate(0, 0.3), 1)
             for row in abuse.rows() for state in abuse.STATES for repeat in abuse.REPEATS}
    found = abuse.harm(abuse.parse(output(noise)))
    print(len(found))
    assert sum(state == "on" for _, state in found) > len(abuse.rows()) * 0.8


def test_missing_cells_are_named():
    measured = abuse.parse(output(leave_out=[("pair", "wake", "other", "on", 2)]))
    assert abuse.missing(measured) == ["missing: pair, wake, other cgroup, on, run 2: 0 wakeups"]
    assert len(abuse.missing(abuse.parse(output(wakeups=100)))) == len(abuse.rows()) * 3 * 2
    assert abuse.missing(abuse.parse({"lateness": [], "load": []}))


def test_a_measurement_that_does_not_see_the_controls_fails():
    lines = abuse.missing(abuse.parse(output(control=900.0)))
    assert len(lines) == len(abuse.CONTROLS) * len(abuse.VICTIMS)
    assert lines[0] == "not seen: nice makes sleepers late by 900 900 us, alone 100 100"


def test_states():
    """Each bit is in each state, in the default one as at boot; and none that the kernel lacks."""
    states = {name: text.replace("features=", "").split(",") for name, text in abuse.writes("stack").items()}
    assert set(states) == set(abuse.STATES)
    assert states["on"] == [bit.name for bit in FEATURES]
    assert all(word.startswith("NO_") for word in states["off"]) and len(states["off"]) == len(FEATURES)
    assert [word for word in states["default"] if not word.startswith("NO_")] == [
        bit.name for bit in FEATURES if bit.default == "on"]
    assert not any("SAMPLE" in text for text in abuse.writes("rt").values())


def test_the_program_has_each_victim_and_attacker():
    source = (GUEST / "abuse.c").read_text()
    attackers = dict(re.findall(r'\{ "(\w+)", \w+, (true|false) \}', source))
    assert attackers == dict.fromkeys(abuse.ATTACKERS, "false") | dict.fromkeys(abuse.CONTROLS, "true")
    assert re.findall(r'\{ "(\w+)", INBOX', source) == list(abuse.VICTIMS)


def test_threads(monkeypatch):
    got = []
    monkeypatch.setattr(guest, "run", lambda m, build, job, env, **rest: got.append(env["THREADS"]))
    m = machine.load("two-ccx")
    abuse.run(m, "stack")
    abuse.run(m, "stack", 16)
    assert got == [m.cpus // 2, 16] and settings.get("THREADS", {}) == 0
    with pytest.raises(Error, match="THREADS=0: must be a whole number from 1 to 512"):
        settings.get("THREADS", {"THREADS": "0"})


def test_a_kernel_without_features_is_refused(monkeypatch):
    monkeypatch.setenv("BUILD", "base")
    with pytest.raises(Error, match="has no features to compare"):
        abuse.command(None)
