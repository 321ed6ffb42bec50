# SPDX-License-Identifier: GPL-2.0-only
"""What all tests share: the tiers, the last line with the counts, and toy kernels.

A test's tier (kit.tests.TIERS) is its marker: pytest.mark.patches, boot or long. A test that uses
the fixture `built` boots a kernel, so its tier is boot. Every other test is fast, and fails if it
uses the kernel's tree, QEMU or apt-get: a forgotten marker is noticed.
"""

import os
import signal
import socket
import subprocess
import tarfile
import time
from collections import Counter
from pathlib import Path

import pytest

from kit import apt, pinned, settings
from kit.paths import Series
from kit.process import git, sh
from kit.stack import base
from kit.tests import TIERS
from kit.vm import guest

MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 12
SUBLEVEL = {sublevel}
"""


def handle_signals():
    """End as with Ctrl-C on SIGTERM and SIGHUP, so that no process that a test started is left."""
    def stop(number, frame):
        # The signal may come twice, from make and from its caller; cleanup must not be interrupted.
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    # In the background of a script it is ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Register the tiers as markers, and the one of pytest-xdist, which may be absent."""
    handle_signals()
    config.addinivalue_line("markers", "xdist_group(name): tests that run one after the other")
    for tier, needs in TIERS.items():
        config.addinivalue_line("markers", f"{tier}: {needs}")


@pytest.hookimpl(hookwrapper=True)
def pytest_sessionstart(session):
    """Be quiet while pytest-xdist starts its processes. If it is to be verbose, it first asks each of
    them for its version, and the tests come to run in a thread that may not handle signals if they
    arrive before that has ended. What is wrong with the arguments is said here: in those processes a
    wrong expression of -k, which the hook for no items finds, is an internal error, and a file that is
    not there is no error at all."""
    for argument in session.config.args:
        if not Path(argument.partition("::")[0]).exists():
            raise pytest.UsageError(f"{argument}: there is no such file")
    session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=[])
    verbose, session.config.option.verbose = session.config.option.verbose, 0
    yield
    session.config.option.verbose = verbose


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark each test with its tier, before -m selects, and sort by tiers."""
    for item in items:
        marked = {mark.name for mark in item.iter_markers()} & set(TIERS)
        if "built" in getattr(item, "fixturenames", ()):
            marked = marked or {"boot"}
        if len(marked) > 1:
            raise pytest.UsageError(f"{item.nodeid} is in more than one tier:"
                                    f" {', '.join(sorted(marked))}")
        item.tier = marked.pop() if marked else "fast"
        item.add_marker(item.tier)
        item.user_properties.append(("tier", item.tier))
        if "regions" in getattr(item, "fixturenames", ()):
            # Such tests look at the same boots: one process of pytest-xdist runs all of a module.
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))
    items.sort(key=lambda item: list(TIERS).index(item.tier))


def misplaced(command, cwd):
    """What a process does that a test of the tier fast must not do; "" if there is nothing."""
    words = [str(word) for word in command] if isinstance(command, (list, tuple)) else [command]
    program = Path(words[0]).name
    if program == "setpriv" or program.startswith("qemu-system") and "--version" not in words:
        return "runs QEMU"
    if program.startswith("apt-"):
        return "runs apt"
    if cwd and Path(cwd).is_relative_to(settings.read("test", os.environ).series.work):
        return "uses the kernel's tree"
    if program == "make" and any(word.startswith("O=") for word in words):
        return "builds a kernel"
    return ""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """Fail a test of the tier fast, with its fixtures, that does what belongs to another tier."""
    # A test before may have called kit.__main__.main(), which installs handlers of its own.
    handle_signals()
    with pytest.MonkeyPatch.context() as patch:
        if item.tier == "fast":
            start = subprocess.Popen.__init__

            def guarded(self, args, *rest, **options):
                what = misplaced(args, options.get("cwd"))
                if what:
                    pytest.fail(f"a test of the tier fast {what}: mark it patches or boot")
                start(self, args, *rest, **options)
            patch.setattr(subprocess.Popen, "__init__", guarded)
            connect = socket.socket.connect

            def near(self, address):
                if self.family != socket.AF_UNIX and not str(address[0]).startswith("127."):
                    pytest.fail("a test of the tier fast uses the network: mark it patches or boot")
                connect(self, address)
            patch.setattr(socket.socket, "connect", near)
        else:
            run = guest.run

            def timed(machine, *args, **options):
                begin = time.monotonic()
                try:
                    return run(machine, *args, **options)
                finally:
                    item.user_properties.append(("machine", (machine.name, time.monotonic() - begin)))
            patch.setattr(guest, "run", timed)
        yield


seconds = Counter()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    """Add the time of each phase of a test to that of its tier, and its guests' to their machines'. Show what a test printed that passed
    in a process of pytest-xdist, which shows the output of failed tests only."""
    seconds[f"tier {dict(report.user_properties).get('tier')}"] += report.duration
    if report.when == "teardown":
        for name, value in report.user_properties:
            if name == "machine":
                seconds[f"machine {value[0]}"] += value[1]
    if report.when == "call" and report.passed:
        print(report.capstdout, end="", flush=True)


def pytest_terminal_summary(terminalreporter):
    """Print how long the tests of each tier, and the guests on each machine, took, one after the other."""
    for what, took in sorted(seconds.items()):
        terminalreporter.write_line(f"{what}: {took / 60:.1f} min")


def pytest_sessionfinish(session, exitstatus):
    """Remember for the last line whether the run was complete."""
    session.config.kit_ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def pytest_unconfigure(config):
    """Print the counts as the last line, however the run ended."""
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
    """Print a newline, so that the output of a test starts below its name."""
    print()


def pack(root, path, name, version):
    """Make a Debian package of the files below a directory."""
    (root / "DEBIAN").mkdir()
    # dpkg-deb refuses what other umasks give.
    (root / "DEBIAN").chmod(0o755)
    (root / "DEBIAN/control").write_text(f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
                                         "Maintainer: toy <toy@example.org>\nDescription: a toy\n")
    sh(["/usr/bin/dpkg-deb", "-b", root, path], capture=True, env={"PATH": "/usr/bin:/bin"})
    return path


class Toy:
    """A kernel of three files, its tree and its patches, which takes seconds where the real one
    takes minutes."""

    def __init__(self, directory):
        self.directory = directory
        self.series = Series("6.12", directory / "patches", directory / "build")
        self.series.patches.mkdir(parents=True)
        self.series.pin.write_text('version = "6.12.1-1"\nsha256 = "00"\n')
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

    def make_deb(self):
        """A package like Debian's with the source in it, where the kit keeps it; a base.Source."""
        root, version = self.directory / "package", "6.12.1-1"
        inner = root / "usr/src/linux-source-6.12.tar.xz"
        inner.parent.mkdir(parents=True)
        with tarfile.open(inner, "w:xz") as archive:
            archive.add(self.source, "linux-source-6.12")
        source = base.Source(base.DEBIAN + version)
        path = base.deb_path(self.series, source)
        path.parent.mkdir(parents=True)
        pack(root, path, "linux-source-6.12", version)
        return base.Source(source.name, path, pinned.sha256(path))

    @property
    def linux(self) -> Path:
        """The git tree."""
        return self.series.linux

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
        return {path.name: path.read_bytes() for path in sorted(self.series.patches.iterdir())}

    def git(self, *args) -> str:
        """What git says in the tree."""
        return git(self.linux, *args, env=base.IDENTITY).out.strip()


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A toy kernel without a tree yet."""
    # No archive has a toy, so none is asked for it.
    monkeypatch.setattr(apt, "here", lambda: False)
    for name in ("SPACE", "SPACE_AGAIN"):
        monkeypatch.setattr(base, name, 0)
    return Toy(tmp_path)
