# SPDX-License-Identifier: GPL-2.0-only
"""The tiers of the tests: order, selection, and that a forgotten marker is noticed."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from here import call
from kit import settings, tests
from kit.paths import ROOT
from kit.process import Error

SAMPLE = """
import subprocess
from types import SimpleNamespace
import pytest
from kit.vm import guest as guests

@pytest.fixture
def built():
    print("built a kernel")

@pytest.fixture(scope="module")
def guest():
    subprocess.run(["qemu-system-none", "-accel", "tcg"])

@pytest.mark.long
def test_in_long():
    pass

@pytest.mark.boot
def test_in_boot():
    with pytest.raises(FileNotFoundError):
        subprocess.run(["qemu-system-none", "-accel", "tcg"])
    with pytest.raises(TypeError):
        guests.run(SimpleNamespace(name="toy"))

def test_of_a_kernel(built):
    pass

@pytest.mark.patches
def test_in_patches():
    pass

def test_without_marker():
    subprocess.run(["true"], check=True)

def test_that_forgot_its_marker(guest):
    pass
"""


def run(directory, sample, *arguments):
    """Run pytest on a file in a directory that has this directory's conftest.py; its output."""
    shutil.copy(ROOT / "tests/conftest.py", directory)
    (directory / "test_sample.py").write_text(sample)
    done = call(sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", f"--rootdir={directory}", *arguments,
                directory, cwd=ROOT)
    return done.stdout + done.stderr


def test_order_and_forgotten_marker(tmp_path):
    said = run(tmp_path, SAMPLE, "-m", "not long")
    places = [said.index(f"::test_{name}") for name in (
        "without_marker", "that_forgot_its_marker", "in_patches", "in_boot", "of_a_kernel")]
    assert places == sorted(places) and "in_long" not in said
    assert "a test of the tier fast runs QEMU: mark it patches or boot" in said
    assert "\nmachine toy: 0.0 min\ntier boot: 0.0 min\n" in said
    assert said.splitlines()[-1] == "4 passed, 1 failed"


@pytest.mark.parametrize("arguments, says", [
    (["-k", "("], "ERROR: Wrong expression passed to '-k': (:"),
    (["tests/none.py"], "ERROR: tests/none.py: there is no such file")])
def test_wrong_argument_is_one_line(tmp_path, arguments, says):
    said = run(tmp_path, SAMPLE, "-n1", *arguments).strip().splitlines()
    assert said[0] == "0 passed, 1 failed" and said[1].startswith(says) and len(said) == 2


SLOW = """
import time
import pytest
from kit.process import sh

@pytest.mark.parametrize("number", range(2))
def test_first(number):
    print("measured", number)

@pytest.mark.parametrize("number", range(2))
def test_slow(number):
    sh(["sleep", "4321.PID"])
""".replace("PID", str(os.getpid()))


def test_output_of_two_processes_is_shown_and_sigterm_ends_them(tmp_path):
    """As make test runs them. What the tests started ends, too."""
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_sample.py").write_text(SLOW)
    output, given_up = tmp_path / "said", time.monotonic() + 300
    with open(output, "w", encoding="utf-8") as file:
        proc = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n2", "--dist=loadgroup",
             "--capture=fd", f"--rootdir={tmp_path}", tmp_path],
            cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    try:
        # A test may sleep before the report of the one before it has arrived.
        while len(sleepers()) < 2 or output.read_text().count("\nmeasured ") < 2:
            assert proc.poll() is None and time.monotonic() < given_up
            time.sleep(0.1)
        proc.send_signal(signal.SIGTERM)
        proc.wait()
    finally:
        proc.kill()
    said = output.read_text()
    print(said)
    assert not sleepers()
    assert "\nmeasured 0\n" in said and "\nmeasured 1\n" in said
    assert said.splitlines()[-1] == "2 passed, 1 failed"


def sleepers():
    """The processes of SLOW."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [path] * (path.read_bytes() == f"sleep\0004321.{os.getpid()}\0".encode())
    return found


def test_directory_of_another_user(monkeypatch, tmp_path):
    """Of a run as root: a run of pytest ended with 30 lines of its own code."""
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("runs pytest"))
    (tmp_path / "pytest/fast").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, _: path.name != "fast")
    with pytest.raises(Error, match="pytest/fast is another user's: remove it"):
        tests.command(settings.read("test-fast", {"KIT_BUILD": str(tmp_path)}))
