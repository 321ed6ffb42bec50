# SPDX-License-Identifier: GPL-2.0-only
"""tools/sched-selftests on a made-up source, whose makefile prints what the runner of selftests prints."""

import os

import pytest

from here import call
from kit.paths import ROOT

TOOL = ROOT / "tools/sched-selftests"
# One passes, one says "not ok" with status 0, one fails, one is skipped.
PRINTED = """TAP version 13
1..4
# timeout set to 300
# selftests: sched: good
# ok 1 a
# ok 2 b # SKIP no SMT
# # Totals: pass:1 fail:0 xfail:0 xpass:0 skip:1 error:0
ok 1 selftests: sched: good
# selftests: sched: lies
# not ok 1 a
# # Totals: pass:0 fail:1 xfail:0 xpass:0 skip:0 error:0
ok 2 selftests: sched: lies
# selftests: sched: hangs
# ok 1 a
not ok 3 selftests: sched: hangs # TIMEOUT 300 seconds
# selftests: sched: not_here
# 1..0 # SKIP the kernel lacks it
ok 4 selftests: sched: not_here # SKIP
"""


@pytest.fixture
def selftests(tmp_path):
    """A function that runs the tool with what make prints: (status, last line, stderr)."""
    tests, temporary = tmp_path / "linux/tools/testing/selftests", tmp_path / "tmp"
    for path in (tests, temporary, tmp_path / "sched/llc_balancing"):
        path.mkdir(parents=True)
    (tmp_path / "sched/llc_balancing/llcs").write_text("llc cpus\n")

    def run(printed, status=0, source=tmp_path / "linux"):
        (tests / "printed").write_text(printed)
        (tests / "Makefile").write_text(
            f"run_tests:\n\t@test -d $(O) && test $(TARGETS) = sched && cat printed && exit {status}\n")
        done = call(TOOL, source, cwd=tmp_path,
                    env=os.environ | {"SCHED_DEBUGFS": str(tmp_path / "sched"), "TMPDIR": str(temporary)})
        assert not list(temporary.iterdir())
        return done.returncode, done.stdout.rstrip("\n"), done.stderr
    run.path = tmp_path
    return run


def test_one_line(selftests):
    status, out, err = selftests(PRINTED)
    assert (status, err) == (1, "") and "\n" not in out
    head, _, tail = out.partition(" s; Linux ")
    assert tail == os.uname().release
    assert head.rpartition("; ")[0] == (
        "sched-selftests: Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0; programs passed: 1; failed: lies hangs;"
        " skipped: not_here")
    assert (selftests.path / "sched-selftests.log").read_text() == PRINTED


def test_status_0_if_none_failed(selftests):
    status, out, _ = selftests(PRINTED.partition("# selftests: sched: lies")[0])
    assert status == 0 and "; programs passed: 1; failed: 0; skipped: 0; " in out


def test_what_cannot_run_says_so(selftests):
    assert selftests("", 2)[::2] == (1, "sched-selftests: cannot build or run them, see sched-selftests.log\n")
    assert selftests("1..0\n")[:2] == (1, "sched-selftests: no test ran, see sched-selftests.log")
    assert "there is no kernel source in /nowhere: make tree" in selftests("", source="/nowhere")[2]
    (selftests.path / "sched/llc_balancing/llcs").unlink()
    assert "are you root, is debugfs mounted" in selftests(PRINTED)[2]
