# SPDX-License-Identifier: GPL-2.0-only
"""What the tests work on: the series and the build directory that make test was given, and its kernels."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

from kit import settings
from kit.paths import ROOT
from kit.vm import kernel

GIVEN = settings.read("test", os.environ)
SERIES, BUILD = GIVEN.series, GIVEN.build


def named(name="stack"):
    """The kernel.Kernel of a BUILD."""
    return kernel.named(SERIES, name)


def tool(name):
    """The program tools/NAME, which has no suffix, imported as a module."""
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "tools" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    # Dataclasses look for it there.
    sys.modules[name] = module
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def call(*words, check=False, **options):
    """Run a program and print what it says; the finished process. options: as of subprocess.run()."""
    done = subprocess.run(words, capture_output=True, text=True, **{"timeout": 300, **options})
    print(done.stdout, done.stderr)
    if check:
        done.check_returncode()
    return done


def script(path, text):
    """Make a shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def wait_for(condition, seconds=300):
    """Wait until a condition holds. By default it may take long: a process on a busy host may have no turn for long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(pid):
    """Whether a process has ended, also if it was not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
