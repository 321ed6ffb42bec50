# SPDX-License-Identifier: GPL-2.0-only
"""Tests that take too long for every change: make test-long."""

import pytest

from kit import demo
from kit.sim import validate
from kit.vm import guest, kernel, ktap, machine

pytestmark = pytest.mark.long


def test_soak():
    """`make soak`: no workload is slower with aggregation, and no process keeps moving."""
    kernel.build("stack")
    result = guest.soak(machine.load(demo.DEFAULT_MACHINE), "stack", follow=print)
    tests = ktap.parse(result.ktap)
    failures = result.failures() + tests.failures()
    assert not failures, "\n".join(failures)
    assert [test.name for test in tests.tests] == ["selftests: sched: sched_cache_ab"]
    judged = [test for _, test in tests.leaves() if test.status == ktap.OK]
    assert len(judged) > 20


def test_validation():
    """`make sim-validate`: each short row is reproduced, or is a known gap."""
    assert validate.command(None) == 0
