# SPDX-License-Identifier: GPL-2.0-only
"""Tests that take too long for every change: make test-long."""

import random
import re

import pytest

from here import SERIES, named
from kit import settings
from kit.sim import simulate, validate, workloads
from kit.stack import patches
from kit.trials import programs, torture
from kit.vm import demo, guest, kernel, ktap, machine
from test_boot import LOCKS, SELFTESTS, check, not_here, selftests_on, selftests_with_checkers

pytestmark = pytest.mark.long


def test_soak():
    """`make soak`: no workload is slower with aggregation, and no process keeps moving."""
    kernel.build(named("stack"))
    result = guest.soak(machine.load(demo.DEFAULT_MACHINE), named("stack"), follow=print)
    tests = ktap.parse(result.ktap)
    failures = result.failures() + tests.failures()
    assert not failures, "\n".join(failures)
    judged = [test for test in tests.tests if test.status == ktap.OK]
    assert len(judged) > 20


@pytest.mark.parametrize("name", sorted(set(machine.names()) - {demo.DEFAULT_MACHINE}))
def test_all_selftests(name):
    """Those that `make test` runs on one machine only, too."""
    selftests_on(name, ())


def test_other_selftests_with_checkers():
    """Those that CI does not run on the kernel with lockdep."""
    selftests_with_checkers(SELFTESTS - LOCKS)


def test_stress():
    """`make stress`: features are toggled under load and CPUs unplugged, in a kernel with lockdep."""
    kernel.build(named("debug"))
    result = guest.stress(machine.load(demo.DEFAULT_MACHINE), named("debug"))
    tests = ktap.parse(result.ktap)
    failures = result.failures() + tests.failures()
    assert not failures, "\n".join(failures)
    written = [path for path, _ in tests.leaves() if f"written {guest.STRESS_TOGGLES} times" in path]
    assert len(written) == len(demo.FEATURES)


@pytest.mark.parametrize("build", ["stack", "debug", "kasan", "kcsan", "race", "rt", "scx", "host"])
def test_torture(build):
    """`make torture`: no kernel shows a report or a wrong result in an hour."""
    kernel.build(named(build))
    seed = random.randrange(2**32)
    print(f"SEED={seed}")
    totals = torture.run(machine.load(demo.DEFAULT_MACHINE), named(build), seed, processes=500, minutes=60)
    print(*totals.lines(), sep="\n")
    assert not totals.failures, "\n".join(totals.failures)
    assert totals.programs() >= totals.guests
    assert totals.skipped == (set() if build == "kasan" else {"kmemleak (the kernel lacks it)"})
    assert bool(totals.counts.get("scx_full")) == bool(totals.counts.get("scx_partial")) == (build in ("scx", "host"))


def test_memory_of_many_processes():
    """kmemleak finds nothing after 100,000 processes with threads."""
    kernel.build(named("leak"))
    totals = torture.Totals()
    result = torture.one(machine.load(demo.DEFAULT_MACHINE), named("leak"), 1, processes=100_000,
                         files=programs.files(named("leak")))
    totals.add(result)
    looked = {path: test.status for path, test in ktap.parse(result.ktap).leaves()}
    assert looked["kmemleak"] == ktap.OK, result.ktap
    assert not totals.failures, "\n".join(totals.failures)
    assert totals.counts["process_with_threads"][0] >= 100_000


def test_selftests_with_the_options_of_a_host():
    """The selftests in a kernel with BUILD=host."""
    kernel.build(named("host"))
    m = machine.load(demo.DEFAULT_MACHINE)
    check(guest.selftest(m, named("host")), not_here(m))


def test_validation():
    """`make sim-validate`: each short row is reproduced, or is a known gap."""
    assert validate.command(settings.read("sim-validate", {})) == 0


def test_processes_that_start_together_find_an_llc_each():
    """Four processes on four LLCs, from the beginning. Without what others have just chosen, or without the time
    that threads get to follow a choice, five seeds find 13 to 15 LLCs of 20."""
    kernel.build(named("stack"))
    m = machine.load("epyc-2x2x8")
    wanted, state = workloads.task("sharing:4:6:512:150:30", m), simulate.State(named("stack"), "features=SCHED_CACHE")
    found = simulate.collect(m, wanted, [state], 5, simulate.default_round(m)).values[str(state)]
    print(found)
    assert sum(found["llcs"]) >= 18


# The machine and the kernel's arguments with which the selftests of a series show what it mends. In LLCs
# smaller than 8 cores with SMT, the policy leaves little to see.
MAINLINE = {"7.3/gather": ("two-ccx", ()), "7.3/keep-preference": ("two-ccx", ()),
            "7.3/rfc-lazy-runtime": ("two-ccx", ()), "7.3/rfc-sis-fast": ("two-ccx", ()),
            "7.3/rfc-ttwu-queue-l2": ("two-ccx", ()),
            "7.3/topology-isolated": ("numa-distances", ("isolcpus=2,3,12",)),
            "7.3/visible": ("two-ccx", ())}
MAINLINE_DEFAULT = ("spr-32", ())
# Its selftest skips in a kernel without the feature, or passes, as the series mends nothing. Those of all others fail
# without what the series mends.
SKIPS_IN_BASE, PASSES_IN_BASE = {"7.3/rfc-sis-fast"}, {"7.3/selftests-slice"}


@pytest.mark.parametrize("name", patches.others())
def test_selftests_of_other_series(name):
    """They pass in the kernel of the series. Without its patches, some of those that it adds fail, skip for
    SKIPS_IN_BASE, or pass for PASSES_IN_BASE."""
    series = SERIES.other(name)
    added = {found for patch in patches.listed(series)
             for found in re.findall(r"^ create mode \d+ tools/testing/selftests/sched/(\w+)\.c$",
                                     (series.patches / patch).read_text(), re.MULTILINE)}
    if not added:
        pytest.skip(f"{name} adds no selftest")
    machine_name, arguments = MAINLINE.get(name, MAINLINE_DEFAULT)
    m, stack, base = machine.load(machine_name), named(f"{name}/stack"), named(f"{series.base}/base")
    failed, skipped = {}, {}
    for build in (stack, base):
        kernel.build(build)
        result = guest.run(m, build, "selftest", timeout=guest.SELFTEST_SECONDS, userland=stack,
                           kernel_args=arguments)
        assert not result.failures()
        tests = ktap.parse(result.ktap)
        print(build, result.ktap, f"{result.seconds:.0f} s")
        for found, status in ((failed, ktap.FAIL), (skipped, ktap.SKIP)):
            found[build] = {test.name.removeprefix("selftests: sched: ") for test in tests.tests
                            if test.status == status}
    assert not failed[stack]
    assert failed[base] <= added
    assert failed[base] or name in PASSES_IN_BASE or name in SKIPS_IN_BASE and skipped[base] - skipped[stack]
