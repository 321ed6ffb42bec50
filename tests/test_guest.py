# SPDX-License-Identifier: GPL-2.0-only
"""A guest that misbehaves is a failure, and no QEMU process is left in any case."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from here import SERIES, named, wait_for
from kit.paths import ROOT
from kit.vm import guest, kernel, ktap, machine

# They count the QEMU processes that are left, so no two of them run at a time.
pytestmark = pytest.mark.xdist_group("guest")

MACHINE = "one-llc"
RUNS = SERIES.work / "guest" / "runs"


@pytest.fixture(scope="module", autouse=True)
def built():
    kernel.build(named("stack"))


def qemus():
    """Return the command lines of the QEMU processes of these tests."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "qemu-system" in text and any(
                f"{RUNS}/{MACHINE}-{name}." in text for name in ("stack-misbehave", "shell")):
            found.append(text)
    return found


def run(how, timeout):
    result = guest.run(machine.load(MACHINE), named("stack"), "misbehave", {"HOW": how}, timeout=timeout)
    print(f"{how}: {result.seconds:.1f} s, END {result.ended}, status {result.status}")
    print(*result.failures(), sep="\n")
    assert qemus() == []
    return result


def test_panic():
    result = run("panic", 120)
    assert not result.ended and result.seconds < 100
    assert "Kernel panic - not syncing: dumptest" in result.splats[0]
    assert "Call Trace:" in result.splats[0]
    assert "stopped before END" in result.problems[0]
    assert any("no END line" in line for line in ktap.parse(result.ktap).failures())


def test_warning():
    result = run("warn", 120)
    assert result.ended and result.status == 0
    assert ktap.parse(result.ktap).failures() == []
    [splat] = result.splats
    assert "WARNING: CPU" in splat and "lkdtm" in splat and "---[ end trace" in splat
    assert len(result.failures()) == 1


def test_never_ends():
    result = run("hang", 30)
    assert not result.ended and 30 <= result.seconds < 30 + 15
    assert "exceeded its time limit" in result.problems[0]
    # the last lines of the console come with it
    assert "Run /init as init process" in result.problems[0]


def test_status_and_plan():
    result = run("fail", 120)
    failures = ktap.parse(result.ktap).failures()
    assert result.status == 3
    assert any("status 3" in line for line in failures)
    assert any("plan is 1" in line for line in failures)


@pytest.mark.parametrize("sig,status", [(signal.SIGINT, 130), (signal.SIGTERM, 143),
                                        (signal.SIGKILL, -9)])
def test_interrupted(sig, status):
    """Ctrl-C, SIGTERM, and SIGKILL, which cannot be caught."""
    code = ("from types import SimpleNamespace as N\n"
            "from kit import __main__\n"
            "from kit.vm import guest, kernel, machine\n"
            f"guest.command = lambda given: guest.run(machine.load('{MACHINE}'), kernel.named(given.series, 'stack'),\n"
            "    'misbehave', {'HOW': 'hang'}, timeout=120)\n"
            "raise SystemExit(__main__.main(['stress']))\n")
    proc = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    try:
        wait_for(lambda: qemus(), 20)
        begin = time.monotonic()
        proc.send_signal(sig)
        assert proc.wait(20) == status
        wait_for(lambda: not qemus(), 10)
        print(f"{sig.name}: status {status}, QEMU gone after {time.monotonic() - begin:.1f} s")
    finally:
        proc.kill()
        proc.wait()


def test_shell():
    """`make shell` on a terminal has a prompt and job control, and ends cleanly."""
    code = ("from kit import __main__\n"
            f"raise SystemExit(__main__.main(['shell', 'MACHINE={MACHINE}']))\n")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", code])
    seen = b""

    def expect(text):
        nonlocal seen
        deadline = time.monotonic() + 60
        try:
            while text not in seen and time.monotonic() < deadline:
                if select.select([terminal], [], [], 0.2)[0]:
                    seen += os.read(terminal, 4096)
        except OSError:
            pass  # the other side is closed
        assert text in seen, seen.decode(errors="replace")
        seen = seen[seen.index(text) + len(text):]

    try:
        expect(b"Leave with: poweroff -f")
        expect(b"/ # ")
        os.write(terminal, b"echo answer $((6 * 7))\n")
        expect(b"answer 42")
        expect(b"/ # ")
        os.write(terminal, b"sleep 1000\n")
        expect(b"sleep 1000")
        time.sleep(1)
        os.write(terminal, b"\x03")
        expect(b"/ # ")
        os.write(terminal, b"poweroff -f\n")
        expect(b"Power down")
        _, status = os.waitpid(pid, 0)
        pid = 0
        assert os.waitstatus_to_exitcode(status) == 0
    finally:
        if pid:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        os.close(terminal)
    wait_for(lambda: not qemus(), 10)
