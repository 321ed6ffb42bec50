# SPDX-License-Identifier: GPL-2.0-only
"""make litmus, with a made-up herd7."""

import pytest

from kit import apt, settings
from kit.process import Error
from kit.stack import litmus, patches

TEST = "C {name}\n\n(*\n * Result: {result}\n *)\nexists (0:r0=1)\n"
OUTPUT = "Test {name} Allowed\nObservation {name} {result} {yes} {no}\n"


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A tree with two litmus tests, and a herd7 that prints what OUTPUT-NAME holds."""
    tests = tmp_path / litmus.TESTS
    tests.mkdir(parents=True)
    (tmp_path / "tools/memory-model").mkdir(parents=True)
    herd = tmp_path / "herd7"
    herd.write_text('#!/bin/sh\n[ "$1 $2" = "-conf linux-kernel.cfg" ] || exit 1\n'
                    '[ "${PWD##*/}" = memory-model ] && cat "$3.output"\n')
    herd.chmod(0o755)
    monkeypatch.setattr(patches, "ensure", lambda series: tmp_path)
    monkeypatch.setattr(litmus, "_fetched", lambda build: [herd])
    for name, result, yes, no in (("never", "Never", 0, 3), ("sometimes", "Sometimes", 1, 3)):
        (tests / f"{name}.litmus").write_text(TEST.format(name=name, result=result))
        (tests / f"{name}.litmus.output").write_text(OUTPUT.format(**locals()))
    return tests


def test_all_as_declared(source, capsys):
    assert litmus.command(settings.read("litmus", {})) == 0
    shown = capsys.readouterr().out
    print(shown)
    assert "ok: never: Never, declared Never; in 0 of 3 outcomes" in shown
    assert "ok: sometimes: Sometimes, declared Sometimes; in 1 of 4 outcomes" in shown
    assert shown.endswith("2 passed, 0 failed\n")


def test_other_result_fails(source, capsys):
    (source / "never.litmus.output").write_text(
        OUTPUT.format(name="never", result="Sometimes", yes=1, no=2))
    assert litmus.command(settings.read("litmus", {})) == 1
    shown = capsys.readouterr().out
    print(shown)
    assert "NOT OK: never: Sometimes, declared Never; in 1 of 3 outcomes" in shown
    assert shown.endswith("1 passed, 1 failed\n")


def test_what_herd_cannot_judge_is_an_error(source):
    (source / "never.litmus.output").write_text("Unknown: x\n")
    with pytest.raises(Error, match="no observation"):
        litmus.command(settings.read("litmus", {}))
    (source / "never.litmus.output").unlink()
    with pytest.raises(Error, match="failed with status 1"):
        litmus.command(settings.read("litmus", {}))
    (source / "never.litmus").write_text("C never\n")
    with pytest.raises(Error, match="does not declare a Result"):
        litmus.command(settings.read("litmus", {}))
    for path in source.glob("*.litmus"):
        path.unlink()
    with pytest.raises(Error, match="there are no litmus tests in"):
        litmus.command(settings.read("litmus", {}))


class Archive:
    """Stands in for apt.Apt: only suite `sid` has herd7."""

    asked = []

    def __init__(self, work, uri, suites):
        self.suites = suites

    def versions(self, package):
        Archive.asked.append((self.suites, package))
        return ["7.58-1"] if self.suites == ("sid",) else []

    def unpack(self, package, suite, directory):
        assert (package, suite) == ([litmus.PACKAGE], "sid")
        (directory / "usr/bin").mkdir(parents=True)
        (directory / "usr/bin/herd7").write_text("")


def test_herd_is_fetched_once_from_the_first_suite_that_has_it(tmp_path, monkeypatch):
    (tmp_path / "herd").mkdir()
    monkeypatch.setattr(apt, "archive", lambda: ("uri", "bookworm"))
    monkeypatch.setattr(apt, "Apt", Archive)
    command = litmus._fetched(tmp_path)
    print(command, Archive.asked)
    assert tmp_path / "herd/root/usr/bin/herd7" in command and "--library-path" in command
    assert [suites for suites, _ in Archive.asked] == [("forky",), ("sid",)]
    assert litmus._fetched(tmp_path) == command and len(Archive.asked) == 2
    monkeypatch.setattr(litmus, "SUITES", ("forky",))
    with pytest.raises(Error, match="none of forky has herdtools7"):
        litmus._fetched(tmp_path / "other")
