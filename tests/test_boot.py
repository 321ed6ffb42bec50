# SPDX-License-Identifier: GPL-2.0-only
"""The kernel in guests: its selftests on each machine, make boot, and make torture."""

import re

import pytest

from here import named
from kit import settings
from kit.features import FEATURES
from kit.trials import cases, torture
from kit.vm import demo, guest, kernel, ktap, machine

pytestmark = pytest.mark.boot

SELFTESTS = {"l2_groups", "cs_prctl_test", "features", "sched_cache", "sched_cache_control", "sched_cache_lb",
             "sched_cache_sample", "sched_cache_stress", "runnable_est", "sis_fast", "slice", "ttwu_queue", "wake_place",
             "wake_predict"}
# Those that look at CPUs and LLCs. The others take half of the time, and depend less on the topology.
TOPOLOGY = {"l2_groups", "sis_fast", "ttwu_queue", "wake_place", "wake_predict"}
# Takes minutes in a guest: beside the machine of `make boot`, on one with two nodes. On all: make test-long.
GATHERS = {"epyc-32": {"sched_cache_lb"}}
# Those for a kernel with lockdep, which takes several times as long. Of cache-aware scheduling, torture starts, moves and
# ends tasks with lockdep, too; how soon threads move, on a busy host, is for kernels without.
LOCKS = {"features", "sched_cache_control", "ttwu_queue"}
# Those that look at the isolation of CPUs.
ISOLATION = {"l2_groups", "sched_cache", "sis_fast", "ttwu_queue"}
# Those that test_page runs, on the same machine and kernel as test_selftests.
PAGE = {feature.test for feature in FEATURES}
KUNIT = {"sched_cache", "sched_wakeup"}


def not_here(m):
    """Return the reasons for which a selftest may skip on a Machine. Any other skip counts as a
    failure: otherwise a kernel that lost a feature or an option would pass."""
    active = [cpu for cpu in m.expected() if cpu.active]
    groups = {(cpu.llc, cpu.l2) for cpu in active}
    llcs = {cpu.llc for cpu in active}
    reasons = ["HOTPLUG is not 1", "isolated CPU of this LLC: there is none", "isolated CPU of another LLC: there is none"]
    if len(groups) == len(active):
        reasons.append("group: there is no such CPU")
    if len(groups) == len(llcs):
        reasons += ["no LLC has two groups", "L2_ON_CPU, group: there is no such CPU"]
    if m.cores_per_llc == 1:
        reasons += ["each LLC has one core", "an LLC of 1 CPUs has little to search",
                    "needs an LLC of 4 CPUs, this one has 1", "needs LLCs of three CPUs"]
    if len(llcs) == 1:
        reasons += ["remote: there is no such CPU", "the machine has one LLC"]
    if m.numa_nodes == 1:
        reasons += ["no NUMA balancing between two LLCs", "with NUMA balancing: one node"]
    if len(llcs) < 3 * m.numa_nodes:
        reasons.append("no three LLCs in a node")
    if len(llcs) > 4:
        reasons.append("more than 4 LLCs")
    reasons.append("fewer than three LLCs" if len(llcs) < 3 else "it prefers two of")
    reasons.append("it has a node of its own" if m.numa_nodes == len(llcs) else "it has more LLCs")
    # Without SMT, an LLC is full with three quarters of its cores.
    one_thread = m.threads_per_core == 1 or m.nosmt
    room = m.cores_per_llc * (3 if one_thread else 4) // 4
    if room < 4:
        reasons.append(f"an LLC has {m.cores_per_llc} cores only")
    if m.cores_per_llc < 6:
        reasons.append("an LLC has few cores")
    if m.cores_per_llc < room + 2:
        reasons.append(f"room for all but {m.cores_per_llc - room} cores")
    if m.cores_per_llc < 3:
        # 80 % of the cores are less than two threads.
        reasons.append(f"LLC 0 has {m.cores_per_llc} cores")
    if len(groups) == 1:
        reasons.append("a CPU of each cannot go offline")
    if m.name != demo.DEFAULT_MACHINE:
        # It depends on how often CPUs of another LLC become idle while a thread waits.
        reasons.append("hardly a CPU has tried to take a thread")
    if one_thread:
        reasons += ["core scheduling needs CPUs with SMT", f"an LLC is full with {room} of {m.cores_per_llc} cores"]
    return reasons


def check(result, reasons=()):
    """Print the results of a run, and fail if one of them failed or was skipped for another reason;
    return the parsed KTAP."""
    tests = ktap.parse(result.ktap)
    for path, test in tests.leaves():
        print(f"  {test.status}: {path.removesuffix(' / ')}"
              + (f" ({test.reason})" if test.reason else ""))
    print(f"{tests.summary()}, {result.seconds:.1f} s")
    failures = result.failures() + tests.failures()
    failures += [f"skipped: {path} ({test.reason})" for path, test in tests.leaves()
                 if test.status == ktap.SKIP
                 and not any(reason in f"{path} {test.reason}" for reason in reasons)]
    if failures:
        print(result.ktap)  # with the figures that the tests that failed have looked at
    assert not failures, "\n".join(failures)
    return tests


def selftests_on(name, names):
    """Run selftests on a machine and check that these ran; names: as guest.selftest() takes them."""
    kernel.build(named("stack"))
    m = machine.load(name)
    tests = check(guest.selftest(m, named("stack"), names=names), not_here(m))
    assert {test.name.removeprefix("selftests: sched: ") for test in tests.tests} == (set(names) or SELFTESTS)
    # The ids are compared with the machine file on every machine, so that one may not skip.
    groups = [test for path, test in tests.leaves() if "sched: l2_groups" in path]
    assert groups and any(test.status == ktap.OK for test in groups)


@pytest.mark.parametrize("name", machine.names())
def test_selftests(name):
    """Those that look at CPUs and LLCs; on the machine of `make boot`, those that it does not run. All of them on all
    machines: make test-long."""
    if name == demo.DEFAULT_MACHINE:
        names = SELFTESTS - PAGE
    else:
        names = TOPOLOGY | GATHERS.get(name, set())
    selftests_on(name, sorted(names))


def test_selftests_with_isolated_cpus():
    """An isolated CPU keeps its L2 group, and shares the LLC of the hardware. It cannot be in a cpuset partition."""
    kernel.build(named("stack"))
    m = machine.load(demo.DEFAULT_MACHINE)
    tests = check(guest.selftest(m, named("stack"), ["isolcpus=domain,2,3,10,11"], names=sorted(ISOLATION)), [
        *not_here(m), "refused", "an LLC has 3 cores only", "LLCs of different sizes"])
    assert sum("isolated_cpu_of" in path and test.status == ktap.OK for path, test in tests.leaves()) == 2


def test_features_of_the_command_line():
    """sched_features= switches features as a write does, whatever blanks there are, reports the names of none, and
    leaves the rest at the defaults. sched_cache= says which processes are aggregated, if it is a word for that."""
    kernel.build(named("stack"))
    m = machine.load("one-llc")
    before, after = (
        guest.run(m, named("stack"), "features", kernel_args=more)
        for more in ([], ['sched_features="NO_SCHED_CACHE, RUBBISH,,TTWU_QUEUE_L2 "', "sched_cache=advise",
                          "sched_cache=rubbish"]))
    check(before)
    check(after)
    was, now = (re.search("# features (.*)", result.ktap)[1].split() for result in (before, after))
    print(*sorted(set(now) - set(was)))
    assert set(was) - set(now) == {"SCHED_CACHE", "NO_TTWU_QUEUE_L2"}
    assert set(now) - set(was) == {"NO_SCHED_CACHE", "TTWU_QUEUE_L2"}
    assert re.findall(r"sched_features: (.*?)\r?\n", before.console) == []
    assert re.findall(r"sched_features: (.*?)\r?\n", after.console) == [
        'there is no feature "RUBBISH"']
    assert [re.search("# enabled (.*)", result.ktap)[1].strip() for result in (before, after)] == ["always", "advise"]
    assert "sched_cache=rubbish is unknown" in after.console and "sched_cache=" not in before.console


def selftests_with_checkers(names):
    """Run selftests, and the KUnit tests, on the kernel with lockdep and the series' own checks."""
    kernel.build(named("debug"))
    m = machine.load(demo.DEFAULT_MACHINE)
    # With lockdep, a hop of a pipe takes hundreds of microseconds.
    slow = ["a turn takes too long to communicate", "they are too slow"]
    tests = check(guest.selftest(m, named("debug"), names=sorted(names)), not_here(m) + slow)
    suites = [test for test in tests.tests if test.name.startswith("kunit: ")]
    assert {test.name.removeprefix("kunit: ") for test in suites} == KUNIT
    assert {test.name.removeprefix("selftests: sched: ") for test in tests.tests if test not in suites} == names
    assert all(test.subtests for test in suites)


def test_selftests_with_checkers():
    """Those that take locks in turns of their own. The others: make test-long."""
    selftests_with_checkers(LOCKS)


def test_page():
    """`make boot` succeeds, with the selftest of each feature."""
    assert demo.command(settings.read("boot", {})) == 0


def test_what_does_not_depend_on_chance_holds_in_public_cases():
    """Those of make cases that compare a figure with a number, once each. Those that compare two states need rounds."""
    m = machine.load(demo.DEFAULT_MACHINE)
    names = ("frame-busy", "moved-40", "model-4", "partition-root", "partition-isolated", "quota", "stages")
    kernel.build(named("stack"))
    _, table, wrong = cases.run(m, named("stack"), cases.chosen(cases.load(), m, names), 1, cases.SHORT_MS)
    print(*cases.page(table), sep="\n")
    assert not wrong, "\n".join(wrong)
    assert not [str(row[1]) for row in table if row[1].factor is None and row[2] != cases.HOLDS]


def test_processes_that_start_together_find_an_llc_each():
    """On CPUs that run at the same time: the simulation's. Without promises, several choose the same LLC. By chance: in
    3 of 46 runs two chose the same, or one chose two, for 250 ms. Three of four runs that fail are a fault."""
    m = machine.load("epyc-1x8x8")
    kernel.build(named("stack"))
    result, table, wrong = cases.run(m, named("stack"), cases.chosen(cases.load(), m, ("starts-full",)), 2, 60)
    print(*cases.page(table), sep="\n")
    assert not wrong, "\n".join(wrong)
    found = cases.parse(ktap.parse(result.ktap).figures)["starts-full"]
    together, settled = ({state: [value for runs in rounds.values() for value in runs] for state, rounds in found[name].items()}
                         for name in ("together", "settled"))
    print(together, settled)
    full = [ms for share, ms in zip(together["state"], settled["state"], strict=True) if share == 100]
    assert len(together["state"]) == len(together["against"]) == 4
    assert len(full) >= 2 and max(full) <= 40 and 100 not in together["against"]
    assert [row[2] for row in table if row[1].figure == "age"] == [cases.HOLDS]


def test_torture_with_lockdep():
    """All that servers do to the scheduler at once, in one guest, in a kernel with lockdep. In CI it
    replaces `make stress`, whose bits are switched here, too."""
    kernel.build(named("debug"))
    # With the default of 500 processes, the part `memory` takes most of the time.
    totals = torture.run(machine.load(demo.DEFAULT_MACHINE), named("debug"), seed=1, processes=100, minutes=1)
    print(f"{totals.guests} guests", *totals.lines(), sep="\n")
    assert not totals.failures, "\n".join(totals.failures)
    # Each part has come to something.
    assert all(totals.counts.get(name, (0, 0))[0] for name in (
        "refused_open", "exec", "clone_vm", "slice", "cpu_online", "feature", "knob", "invalid_knob",
        "process_with_threads", "failed_allocation"))
    assert totals.programs() >= totals.guests
    assert totals.skipped == {"kmemleak (the kernel lacks it)"}
