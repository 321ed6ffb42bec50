# SPDX-License-Identifier: GPL-2.0-only
"""The sources of the base, and those that are refused."""

import dataclasses
import shutil
import tarfile
from types import SimpleNamespace

import pytest

from kit import pinned
from kit.process import Error, git, sh
from kit.stack import base, patches


def listing(directory):
    """Return names, sizes and times of all files below a directory."""
    return sorted((str(path.relative_to(directory)), path.lstat().st_size,
                   path.lstat().st_mtime_ns) for path in directory.rglob("*"))


def test_deb_is_imported_once_and_names_itself(toy, capsys):
    deb = toy.make_deb()
    base.write_pin(deb, toy.series)
    patches.tree(toy.series)
    # Seconds, because git writes the zone of UTC as +00:00 or as Z, by version.
    subject = toy.git("log", "-1", "--format=%s (%an, %at)", "base")
    assert subject == "Linux 6.12.1 (Debian 6.12.1-1) (base, 1767225600)"
    assert toy.git("ls-files").split() == ["Makefile", "kernel/one.c", "kernel/two.c"]
    deb.path.unlink()
    capsys.readouterr()
    patches.tree(toy.series)
    again = capsys.readouterr().out
    assert again == ""
    print(f"the base commit: {subject}; the second make tree did nothing, without the .deb")


def test_other_series_takes_the_base_from_the_tree_that_has_it(toy, capsys):
    """Without the .deb; and not the patches of the tree that it is taken from."""
    deb = toy.make_deb()
    base.write_pin(deb, toy.series)
    patches.tree(toy.series)
    toy.commit("one: Change it", "kernel/one.c", "int one_7;", "int one_7 = 7;")
    deb.path.unlink()
    other = dataclasses.replace(toy.series, name="6.12/other")
    other.patches.mkdir()
    capsys.readouterr()
    patches.tree(other)
    print(capsys.readouterr().out)
    assert git(other.linux, "rev-parse", "HEAD").out.strip() == toy.git("rev-parse", "base")
    assert not git(other.linux, "status", "--porcelain").out
    assert git(other.linux, "branch", "--format=%(refname:short)").out.split() == ["stack"]
    shutil.rmtree(toy.linux)
    assert git(other.linux, "fsck", "--connectivity-only").status == 0


def test_wrong_sha256_is_refused_and_removed(toy):
    deb = toy.make_deb()
    base.write_pin(deb, toy.series)
    with open(deb.path, "ab") as file:
        file.write(b"x")
    with pytest.raises(Error, match="was removed: its SHA-256 is") as caught:
        patches.tree(toy.series)
    assert not deb.path.exists() and not toy.linux.exists()
    assert deb.sha256 in str(caught.value)
    print(caught.value)


def test_newer_base_in_the_archive_changes_nothing(toy, monkeypatch):
    """What the archive offers makes no difference to what is built, only to make refresh."""
    deb = toy.make_deb()
    base.write_pin(deb, toy.series)
    monkeypatch.setattr(base, "offered", lambda series: ["6.12.9-1"])
    assert base.wanted(toy.series) == base.pin(toy.series)
    patches.tree(toy.series)
    assert base.imported(toy.series).name == "Debian 6.12.1-1"
    assert base.newest(toy.series).name == "Debian 6.12.9-1"


def test_archive_that_dropped_the_pinned_version(toy):
    """The same file is taken from another URL; without one, the message says what can be done."""
    deb = toy.make_deb()
    elsewhere = toy.directory / "elsewhere"
    deb.path.rename(elsewhere)
    toy.series.pin.write_text(
        f'version = "6.12.1-1"\nsha256 = "{deb.sha256}"\nurls = ["{elsewhere.as_uri()}"]\n')
    patches.tree(toy.series)
    assert base.imported(toy.series).name == "Debian 6.12.1-1"
    assert pinned.sha256(deb.path) == deb.sha256 and elsewhere.exists()

    deb.path.unlink()
    elsewhere.unlink()
    toy.linux.rename(toy.directory / "old")
    with pytest.raises(Error) as caught:
        patches.tree(toy.series)
    print(caught.value)
    for words in ("linux-source-6.12 6.12.1-1 cannot be had from anywhere", elsewhere.as_uri(),
                  "LINUX=<directory or tarball>", "linux-6.12.1.tar.xz", str(deb.path)):
        assert words in str(caught.value)
    assert not toy.linux.exists()


def test_written_pin_is_read(toy):
    deb = toy.make_deb()
    base.write_pin(dataclasses.replace(deb, suite="some-security"), toy.series)
    read = base.pin(toy.series)
    assert (read.version, read.sha256, read.suite) == ("6.12.1-1", deb.sha256, "some-security")
    assert read.urls == (pinned.snapshot(deb.path),)


def test_linux_directory_is_left_untouched(toy):
    (toy.source / "kernel/.gitignore").write_text("*.c\n")
    before = listing(toy.source)
    patches.tree(toy.series, toy.source)
    assert listing(toy.source) == before
    assert "kernel/one.c" in toy.git("ls-files").split()
    name = base.imported(toy.series).name
    # Without LINUX= the tree stays on what LINUX= gave, rather than go back to the archive.
    assert base.wanted(toy.series).name == name
    print(f"imported, with the files that its .gitignore hides: {name}")


def test_linux_directory_with_git_gives_its_head(toy, capsys):
    git(toy.source, "init", "-q")
    git(toy.source, "add", "-A")
    git(toy.source, "commit", "-q", "-m", "x", env=base.IDENTITY)
    (toy.source / "kernel/one.c").write_text("not committed\n")
    patches.tree(toy.series, toy.source)
    assert "int one_1;" in (toy.linux / "kernel/one.c").read_text()
    said = capsys.readouterr().err
    assert "without its uncommitted changes" in said
    print(said.strip())


@pytest.mark.parametrize("kind", ["xz", "gz", "bz2", "zst"])
def test_linux_tarball(toy, kind):
    tarball = toy.directory / f"linux.tar.{kind}"
    sh(["tar", "-c", "-a", "-f", tarball, "-C", toy.directory, toy.source.name])
    patches.tree(toy.series, tarball)
    assert toy.git("ls-files").split() == ["Makefile", "kernel/one.c", "kernel/two.c"]
    print(toy.git("log", "-1", "--format=%s", "base"))


def test_bad_linux_is_refused(toy):
    (toy.directory / "empty").mkdir()
    newer = toy.make_source(2, {"Makefile": lambda text: text.replace("= 12", "= 13")})
    junk = toy.directory / "junk.tar.xz"
    junk.write_text("no archive")
    wrong = toy.directory / "wrong.tar.gz"
    with tarfile.open(wrong, "w:gz") as archive:
        archive.add(newer, "linux")
    for linux, words in ((toy.directory / "none", "no such directory or file"),
                         (toy.directory / "empty", "it has no Makefile with a VERSION"),
                         (newer, "is not a Linux 6.12 source: it is 6.13"),
                         (wrong, "is not a Linux 6.12 source: it is 6.13"),
                         (junk, "tar")):
        with pytest.raises(Error, match=words) as caught:
            patches.tree(toy.series, linux)
        assert not toy.linux.exists()
        print(str(caught.value).splitlines()[0])


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_import_that_fails_leaves_nothing(toy, monkeypatch, first, full):
    """Such as on a full disk, on which it would be what fills it."""
    if not first:
        patches.tree(toy.series, toy.source)
    before = sorted(toy.series.work.rglob("*")) if not first else []

    def fail(source, directory):
        (directory / "Makefile").write_text("half of it")
        if full:
            monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=0))
        raise Error("tar: Cannot write")
    monkeypatch.setattr(base, "unpack", fail)
    with pytest.raises(Error, match="the disk of .* was full while directory 9" if full else "tar: Cannot write"):
        base.ensure(toy.series, base.Source("directory 9", toy.source))
    assert sorted(toy.series.work.rglob("*")) == before


def test_space_is_asked_for_before_it_is_fetched(toy, monkeypatch):
    monkeypatch.setattr(base, "SPACE", 3.5)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3.4e9))
    with pytest.raises(Error, match="the tree of Debian 6.12.1-1 needs 3.5 GB of disk space in .*, and 3.4 GB are"):
        patches.tree(toy.series)
    assert list(toy.series.work.iterdir()) == [toy.series.work / "tree.lock"]


def test_interrupted_import_is_not_believed(toy, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(base, "version_of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            base.ensure(toy.series, base.Source("directory 0", toy.source))
    assert not toy.linux.exists() and base.imported(toy.series) is None
    patches.tree(toy.series, toy.source)
    left = sorted(path.name for path in toy.series.work.iterdir())
    assert left == ["linux", "tree.lock"]
    print(f"left in the build directory after the second run: {left}")
