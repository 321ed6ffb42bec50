# SPDX-License-Identifier: GPL-2.0-only
"""The stack's kernel in guests: its selftests on every machine, the page, and the stress."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from kit import guest, kernel, ktap, machine, page, qemu


SELFTESTS = {"cache_groups", "cs_prctl_test", "features", "sched_cache", "sched_cache_lb",
             "sched_cache_stress", "sis_fast", "slice", "ttwu_queue"}
KUNIT = {"sched_cache"}


def not_here(m):
    """The reasons that a selftest has to skip something on a Machine. Whatever else is skipped
    counts as a failure: a kernel that lacks a feature, or an option that was lost, would pass."""
    active = [cpu for cpu in m.expected() if cpu.active]
    groups = {(cpu.llc, cpu.group) for cpu in active}
    llcs = {cpu.llc for cpu in active}
    reasons = ["HOTPLUG is not 1"]
    if len(groups) == len(llcs):
        reasons += ["no LLC has two groups", "L2_ON_CPU, group: there is no such CPU"]
    if len(llcs) == 1:
        reasons += ["remote: there is no such CPU", "the machine has one LLC"]
    if m.numa_nodes == 1:
        reasons.append("no NUMA balancing between two LLCs")
    if len(llcs) > 4:
        reasons.append("more than 4 LLCs")
    if m.cores_per_llc < 4:
        reasons.append(f"an LLC has {m.cores_per_llc} cores only")
    if len(groups) == 1:
        reasons.append("a CPU of each cannot go offline")
    if m.threads_per_core == 1 or m.nosmt:
        reasons.append("core scheduling needs CPUs with SMT")
    return reasons


def check(result, reasons=()):
    """Show what a run did, and fail if anything in it was not well, or was skipped for none of the
    reasons; give the parsed KTAP."""
    tests = ktap.parse(result.ktap)
    for path, test in tests.leaves():
        print(f"  {test.status}: {path.removesuffix(' / ')}"
              + (f" ({test.reason})" if test.reason else ""))
    print(f"{tests.summary()}, {result.seconds:.1f} s")
    failures = result.failures() + tests.failures()
    failures += [f"skipped: {path} ({test.reason})" for path, test in tests.leaves()
                 if test.status == ktap.SKIP
                 and not any(reason in f"{path} {test.reason}" for reason in reasons)]
    assert not failures, "\n".join(failures)
    return tests


@pytest.fixture(scope="module")
def selftests(request):
    """The selftests on each machine that is tested and that there is a QEMU for, {name: Future or
    qemu.Unavailable}. Where a guest takes one CPU there are as many at a time as there are CPUs."""
    print()
    machines = [machine.load(item.callspec.params["name"]) for item in request.session.items
                if item.function is test_selftests]
    programs, found = {}, {}
    for m in machines:
        try:
            programs[m.name] = qemu.find(m.needs_smp_cache)
        except qemu.Unavailable as error:
            found[m.name] = error
    if programs:
        kernel.build("stack")
        # Once, and not by each of them.
        guest.initramfs("stack")
    stop = threading.Event()
    fair = all(program.fair for program in programs.values())
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if fair else 1) as pool:
        try:
            yield found | {m.name: pool.submit(guest.selftest, m, "stack", stop=stop)
                           for m in machines if m.name in programs}
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", machine.names())
def test_selftests(name, selftests):
    m = machine.load(name)
    if isinstance(selftests[name], qemu.Unavailable):
        # For somebody offline; what judges a change has to see it all.
        assert not os.environ.get("CI"), selftests[name]
        pytest.skip(str(selftests[name]))
    tests = check(selftests[name].result(), not_here(m))
    assert {test.name.removeprefix("selftests: sched: ") for test in tests.tests} == SELFTESTS
    # The ids are compared with the machine file on every machine, so that one may not skip.
    groups = [test for path, test in tests.leaves() if "sched: cache_groups" in path]
    assert groups and any(test.status == ktap.OK for test in groups)


def test_selftests_with_isolated_cpus():
    """An isolated CPU shares its caches as before. It cannot be in a cpuset partition."""
    kernel.build("stack")
    m = machine.load(page.DEFAULT_MACHINE)
    check(guest.selftest(m, "stack", ["isolcpus=domain,2,3"]), [
        *not_here(m), "refused", "an LLC has 3 cores only", "LLCs of different sizes"])


def test_selftests_with_checkers():
    """The kernel with lockdep and the checks of the stack's own; and its KUnit tests."""
    kernel.build("debug")
    m = machine.load(page.DEFAULT_MACHINE)
    tests = check(guest.selftest(m, "debug"), not_here(m))
    suites = [test for test in tests.tests if test.name.startswith("kunit: ")]
    assert {test.name.removeprefix("kunit: ") for test in suites} == KUNIT
    assert all(test.subtests for test in suites)


def test_page(capfd):
    """`make boot`, as a user sees it."""
    with capfd.disabled():
        assert page.command(SimpleNamespace(machine=page.DEFAULT_MACHINE, build="stack")) == 0


def test_soak():
    """`make soak` reaches its selftest, which has nothing to compare on a machine with one LLC."""
    kernel.build("stack")
    m = machine.load("one-llc")
    tests = check(guest.soak(m, "stack"), not_here(m))
    assert [test.name for test in tests.tests] == ["selftests: sched: sched_cache_ab"]
    assert len([path for path, _ in tests.leaves()]) > 20


def test_stress_with_lockdep():
    """Features toggled under load, CPUs unplugged, in a kernel that checks its locking."""
    kernel.build("debug")
    tests = check(guest.stress(machine.load(page.DEFAULT_MACHINE), "debug"))
    written = [path for path, _ in tests.leaves()
               if f"written {guest.STRESS_TOGGLES} times" in path]
    assert len(written) == len(page.FEATURES)
