# SPDX-License-Identifier: GPL-2.0-only
"""make each-patch: which patches are run, and which again."""

import shutil

import pytest

from kit.paths import ROOT, Series
from kit.process import Error
from kit.stack import each


def test_chosen():
    assert each.chosen((), 3) == [1, 2, 3]
    assert each.chosen(("3", "1..2", "2"), 3) == [1, 2, 3]
    assert each.chosen(("2",), 3) == [2]


@pytest.mark.parametrize("word", ["0", "4", "2..4", "3..2", "x", "1..", "..2", "-1", "1..x"])
def test_bad_numbers(word):
    with pytest.raises(Error, match=f"^PATCHES={word}: "):
        each.chosen((word,), 3)


def test_only_what_has_not_passed_is_run(tmp_path, monkeypatch, capsys):
    """The second patch fails first. Then the third one changes."""
    patches = tmp_path / "patches"
    shutil.copytree(ROOT / "patches/6.12", patches / "6.12")
    series = Series("6.12", patches, tmp_path)
    monkeypatch.setattr(each, "SERIES", series)
    monkeypatch.setattr(each.patches, "listed", lambda: ["a", "b", "c"])
    for name in "abc":
        (series.patches / name).write_text(name)
    monkeypatch.setattr(each, "WORK", tmp_path / "each")
    monkeypatch.setenv("PATCHES", "1..3")
    ran, bad = [], {2}
    monkeypatch.setattr(each, "run", lambda number: ran.append(number) or [number not in bad, "said"])

    assert each.command() == 1 and ran == [1, 2, 3]
    assert "  2 FAILED b: said" in capsys.readouterr().out
    bad.clear()
    assert each.command() == 0 and ran == [1, 2, 3, 2]
    assert "  1 ok     a: said" in capsys.readouterr().out
    (series.patches / "c").write_text("changed")
    assert each.command() == 0 and ran == [1, 2, 3, 2, 3]
    # A change of the first one is a change of what all are built on.
    (series.patches / "a").write_text("changed")
    assert each.command() == 0 and ran[5:] == [1, 2, 3]
    monkeypatch.setenv("MACHINE", "nosmt")
    monkeypatch.setenv("PATCHES", "2")
    assert each.command() == 0 and ran[8:] == [2]
