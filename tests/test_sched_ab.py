# SPDX-License-Identifier: GPL-2.0-only
"""tools/sched-ab on a made-up directory in place of debugfs. tests/test_llcstat.py runs it in a guest."""

import os
import signal
import subprocess
import sys
import time

import pytest

from here import call, gone, wait_for
from kit.paths import ROOT

TOOL = ROOT / "tools/sched-ab"
BEFORE = "SCHED_CACHE NO_SIS_FAST SIS_UTIL\n"
# Its figure is 2 with the bit on, 4 with it off.
BENCHMARK = ["sh", "-c", 'echo "state $SCHED_AB_STATE"; [ $SCHED_AB_STATE = on ] && echo Time: 2.0 || echo Time: 4.0']


@pytest.fixture
def ab(tmp_path):
    """A function that runs the tool: (status, stdout, stderr). The file has all that was written, at its end."""
    (tmp_path / "features").write_text(BEFORE)

    def run(*args):
        done = call(sys.executable, TOOL, "-d", tmp_path / "out", *args,
                    env=os.environ | {"SCHED_DEBUGFS": str(tmp_path)})
        return done.returncode, done.stdout, done.stderr
    run.path, run.out = tmp_path / "features", tmp_path / "out"
    run.written = lambda: run.path.read_text().removeprefix(BEFORE).split()
    return run


def test_off_on_on_off(ab):
    status, out, err = ab("-n", "2", "-f", "Time: ([0-9.]+)", "SCHED_CACHE", "--", *BENCHMARK)
    assert (status, err) == (0, "")
    off, on = "NO_SCHED_CACHE", "SCHED_CACHE"
    assert ab.written() == [off, on, on, off] * 2 + [on]
    assert {path.stem for path in ab.out.iterdir()} == {
        "table", *(f"{state}-{number}" for state in ("off", "on") for number in range(1, 5))}
    assert (ab.out / "off-4.txt").read_text() == "state off\nTime: 4.0\n"
    text = (ab.out / "table.txt").read_text()
    assert out.endswith("\n" + text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[:5] == ["run figure", "off-1 4.0000", "on-1 2.0000", "on-2 2.0000", "off-2 4.0000"]
    assert lines[-3:] == ["off 4.0000 median of 4, 4.0000 to 4.0000",
                          "on 2.0000 median of 4, 2.0000 to 2.0000", "on / off 0.5000"]


def test_line(ab):
    """The last line has the result."""
    status, out, _ = ab("-n", "1", "--line", "-f", "Time: ([0-9.]+)", "SCHED_CACHE", "--", *BENCHMARK)
    assert status == 0 and out.splitlines()[-1] == (
        "sched-ab: SCHED_CACHE, figure; off 4.0000 median of 2, 4.0000 to 4.0000; on 2.0000 median of 2, 2.0000 to"
        f" 2.0000; on / off 0.5000; Linux {os.uname().release}")
    assert "sched-ab" not in (ab.out / "table.txt").read_text()


def test_seconds_and_several_bits(ab):
    """Without a pattern, the figure is the time. Each bit gets its own value again."""
    status, out, _ = ab("-n", "1", "SIS_FAST,SCHED_CACHE", "--", "true")
    assert status == 0 and "seconds" in out
    assert ab.written()[-2:] == ["NO_SIS_FAST", "SCHED_CACHE"] and len(ab.written()) == 10


@pytest.mark.parametrize("args, says", [
    (["SIS_FAST", "--", "sh", "-c", "exit 3"], "off-1: the command failed with status 3"),
    (["SIS_FAST", "--", "/nowhere"], "cannot run /nowhere"),
    (["-f", "x([0-9])", "SIS_FAST", "--", "true"], "off-1: --figure found no number"),
    (["-f", "(.*)", "SIS_FAST", "--", "echo", "word"], "off-1: --figure found no number"),
])
def test_failures_restore_the_bits(ab, args, says):
    status, _, err = ab(*args)
    assert status == 1 and says in err and "Traceback" not in err
    assert ab.written() == ["NO_SIS_FAST", "NO_SIS_FAST"] and not (ab.out / "table.txt").exists()


@pytest.mark.parametrize("args, status, says", [
    (["NO_SUCH", "--", "true"], 1, "no feature NO_SUCH"), (["", "--", "true"], 1, "no feature"),
    (["SIS_FAST"], 2, "command"), (["-n", "0", "SIS_FAST", "--", "true"], 2, "--rounds"),
    (["-f", "x", "SIS_FAST", "--", "true"], 2, "needs one group"),
    (["-f", "(", "SIS_FAST", "--", "true"], 2, "--figure"),
])
def test_bad_arguments_change_nothing(ab, args, status, says):
    got, _, err = ab(*args)
    assert got == status and says in err and ab.written() == [] and not ab.out.exists()


def test_old_results_and_refusals(ab):
    ab.out.mkdir()
    status, _, err = ab("SIS_FAST", "--", "true")
    assert status == 1 and "File exists" in err and ab.written() == []
    ab.out.rmdir()
    ab.path.unlink()
    status, _, err = ab("SIS_FAST", "--", "true")
    assert status == 1 and "cannot read" in err and "locked down" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_the_bits(ab, number, tmp_path):
    """And end the command with all that it started."""
    proc = subprocess.Popen(
        [sys.executable, TOOL, "-d", ab.out, "SIS_FAST,SCHED_CACHE", "--", "sh", "-c", "sleep 600 & echo $!; wait"],
        env=os.environ | {"SCHED_DEBUGFS": str(tmp_path)})
    try:
        while not ((ab.out / "off-1.txt").exists() and (ab.out / "off-1.txt").read_text().endswith("\n")):
            assert proc.poll() is None
            time.sleep(0.05)
        proc.send_signal(number)
        assert proc.wait(60) == 128 + number
    finally:
        proc.kill()
    assert ab.written() == ["NO_SIS_FAST", "NO_SCHED_CACHE", "NO_SIS_FAST", "SCHED_CACHE"]
    wait_for(lambda: gone((ab.out / "off-1.txt").read_text().strip()))


def test_a_signal_at_the_start_of_the_command_ends_it(tmp_path):
    """It comes from the command itself, often before the tool knows that it has begun: in 24 of 40 cases."""
    (tmp_path / "features").write_text(BEFORE)
    for number in range(10):
        out = tmp_path / str(number)
        done = call(sys.executable, TOOL, "-d", out, "SIS_FAST", "--", "sh", "-c",
                    "echo $$; kill -TERM $PPID; exec sleep 600", env=os.environ | {"SCHED_DEBUGFS": str(tmp_path)})
        assert done.returncode == 128 + signal.SIGTERM and gone((out / "off-1.txt").read_text().strip())
