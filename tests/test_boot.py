# SPDX-License-Identifier: GPL-2.0-only
"""The stack's kernel in guests: its selftests on every machine, the page, and the stress."""

from types import SimpleNamespace

import pytest

from kit import guest, kernel, ktap, machine, page, qemu


def check(result):
    """Show what a run did, and fail if anything in it was not well; give the parsed KTAP."""
    tests = ktap.parse(result.ktap)
    for path, test in tests.leaves():
        print(f"  {test.status}: {path}" + (f" ({test.reason})" if test.reason else ""))
    print(f"{tests.summary()}, {result.seconds:.1f} s")
    failures = result.failures() + tests.failures()
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
