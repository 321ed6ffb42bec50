# SPDX-License-Identifier: GPL-2.0-only
"""What all tests share: the last line with the counts, and toy kernels to try the stack on."""

import signal
from pathlib import Path

import pytest

from kit.base import IDENTITY
from kit.paths import Layout
from kit.run import git

MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = {sublevel}
"""


def pytest_configure(config):
    """Stop as for ctrl-C when told to end, so that nothing that a test started is left."""
    def stop(number, frame):
        # Both make and its caller may pass the signal on; what cleans up must not be interrupted.
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    # It is ignored in the background of a script, and by all that the tests interrupt then.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session, exitstatus):
    """Keep for the last line whether the run came to its end."""
    session.config.kit_ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def pytest_unconfigure(config):
    """Print the counts as the very last line, however the run ended."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or config.option.collectonly:
        return
    counts = {what: len(reporter.stats.get(what, [])) for what in
              ("passed", "failed", "error", "skipped")}
    failed = counts["failed"] + counts["error"]
    if not getattr(config, "kit_ended", False):
        failed = max(failed, 1)
    skipped = f", {counts['skipped']} skipped" if counts["skipped"] else ""
    print(f"{counts['passed']} passed, {failed} failed{skipped}", flush=True)


@pytest.fixture(autouse=True)
def own_line():
    """Start what a test prints on a line of its own, below the test's name."""
    print()


class Toy:
    """A kernel of three files, its tree and its patches, which takes seconds where the real one
    takes minutes."""

    def __init__(self, directory):
        self.directory = directory
        self.layout = Layout(build=directory / "build", patches=directory / "patches")
        self.layout.patches.mkdir()
        self.layout.pin.write_text('version = "6.12.1-1"\nsha256 = "00"\n')
        self.source = self.make_source(1)

    def make_source(self, sublevel, change=None):
        """A source directory of version 6.12.<sublevel>; `change` maps file names to a function
        from the usual text to another."""
        source = self.directory / f"source-{sublevel}"
        files = {"Makefile": MAKEFILE.format(sublevel=sublevel),
                 "kernel/one.c": "".join(f"int one_{n};\n" for n in range(60)),
                 "kernel/two.c": "".join(f"int two_{n};\n" for n in range(60))}
        for name, text in files.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((change or {}).get(name, str)(text))
        return source

    @property
    def linux(self) -> Path:
        """The git tree."""
        return self.layout.linux

    def edit(self, name, old, new):
        """Replace text in a file of the tree."""
        path = self.linux / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def commit(self, subject, name, old, new, date="2026-02-03T04:05:06+0100"):
        """Replace text in a file of the tree and commit that."""
        self.edit(name, old, new)
        body = "Why it is so.\n\nMeasured in Zürich."
        git(self.linux, "commit", "-q", "-a", "-m", subject, "-m", body,
            env={"GIT_AUTHOR_NAME": "A. Ünger", "GIT_AUTHOR_EMAIL": "a@example.org",
                 "GIT_AUTHOR_DATE": date})

    def files(self) -> dict:
        """The contents of the patches directory by name."""
        return {path.name: path.read_bytes() for path in sorted(self.layout.patches.iterdir())}

    def git(self, *args) -> str:
        """What git says in the tree."""
        return git(self.linux, *args, env=IDENTITY).out.strip()


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A toy kernel without a tree yet."""
    monkeypatch.delenv("LINUX", raising=False)
    return Toy(tmp_path)
