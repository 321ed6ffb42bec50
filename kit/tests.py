# SPDX-License-Identifier: GPL-2.0-only
"""The tests in tiers: make test-fast, test-patches, test-boot, test-long, and test for all but the
last one.

tests/conftest.py sorts the tests into the tiers and runs them in this order.
"""

import os
import shlex
import sys

from kit.paths import ROOT
from kit.process import Error

# Tier: what its tests need.
TIERS = {
    "fast": "this host only: no git tree of the kernel, no guest, no network",
    "patches": "the kernel's git tree and a compiler: each patch, other configurations",
    "boot": "guests: builds kernels and boots them in QEMU",
    "long": "guests for hours: soak, bench-cost, validation of the simulation; run by hand",
}


def pytest_command(command, arguments, build):
    """The command line of pytest for make's target `command`; arguments: the setting TESTS."""
    tier = command.removeprefix("test").removeprefix("-")
    marked = tier or "not long"
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise Error(f"TESTS={arguments}: {error}") from None
    # One test on each CPU. A test's output is captured and shown when the test has ended.
    return [sys.executable, "-m", "pytest", f"--basetemp={build / 'pytest' / (tier or 'all')}",
            f"-n{len(os.sched_getaffinity(0))}", "--dist=loadgroup",
            "--capture=fd", "-m", marked, *words]


def command(settings):
    """make test and the tiers: replace this process by pytest."""
    directory = settings.build / "pytest"
    directory.mkdir(parents=True, exist_ok=True)
    for path in (directory, *directory.iterdir()):
        if not os.access(path, os.W_OK):
            raise Error(f"{path} is another user's: remove it, or name another directory with KIT_BUILD=")
    # The settings of this command are not those of the commands that the tests run.
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "TESTS")}
    os.chdir(ROOT)
    os.execve(sys.executable, pytest_command(settings.command, settings["TESTS"], settings.build), env)
