# SPDX-License-Identifier: GPL-2.0-only
"""The stack's kernel in guests: its selftests on every machine, the page, and the stress."""

from types import SimpleNamespace

import pytest

from kit import guest, kernel, ktap, machine, page, qemu


# What a machine may be without; anything else that is skipped counts as a failure, as a kernel that
# lacks a feature, or an option that was lost, would otherwise pass.
NOT_HERE = (
    "no LLC has two groups",
    "there is no such CPU",
    "core scheduling needs CPUs with SMT",
    "has little to search",
    "a CPU of each cannot go offline",
    "HOTPLUG is not 1",
)


def check(result):
    """Show what a run did, and fail if anything in it was not well; give the parsed KTAP."""
    tests = ktap.parse(result.ktap)
    for path, test in tests.leaves():
        print(f"  {test.status}: {path.removesuffix(' / ')}"
              + (f" ({test.reason})" if test.reason else ""))
    print(f"{tests.summary()}, {result.seconds:.1f} s")
    failures = result.failures() + tests.failures()
    failures += [f"skipped: {path} ({test.reason})" for path, test in tests.leaves()
                 if test.status == ktap.SKIP
                 and not any(reason in f"{path} {test.reason}" for reason in NOT_HERE)]
    assert not failures, "\n".join(failures)
    return tests


@pytest.mark.parametrize("name", machine.names())
def test_selftests(name):
    m = machine.load(name)
    try:
        qemu.find(m.needs_smp_cache)
    except qemu.Unavailable as error:
        pytest.skip(str(error))
    kernel.build("stack")
    tests = check(guest.selftest(m, "stack"))
    # The ids are compared with the machine file on every machine, so that one may not skip.
    groups = [test for path, test in tests.leaves() if "sched: cache_groups" in path]
    assert groups and any(test.status == ktap.OK for test in groups)


def test_page(capfd):
    """`make boot`, as a user sees it."""
    with capfd.disabled():
        assert page.command(SimpleNamespace(machine=page.DEFAULT_MACHINE, build="stack")) == 0


def test_stress_with_lockdep():
    """Features toggled under load, CPUs unplugged, in a kernel that checks its locking."""
    kernel.build("debug")
    tests = check(guest.stress(machine.load(page.DEFAULT_MACHINE), "debug"))
    assert tests.count(ktap.OK) > 0
