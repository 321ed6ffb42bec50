# SPDX-License-Identifier: GPL-2.0-only
"""Where the base comes from, and what is refused as one."""

import tarfile

import pytest

from kit import base, stack
from kit.run import Error, git, sh


def listing(directory):
    """Names, sizes and times of what is below a directory."""
    return sorted((str(path.relative_to(directory)), path.lstat().st_size,
                   path.lstat().st_mtime_ns) for path in directory.rglob("*"))


def make_deb(toy, version="6.12.1-1"):
    """A package like Debian's, with a toy kernel in it; a Source that points to it."""
    root = toy.directory / "package"
    inner = root / "usr/src/linux-source-6.12.tar.xz"
    inner.parent.mkdir(parents=True)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        f"Package: linux-source-6.12\nVersion: {version}\nArchitecture: all\n"
        "Maintainer: nobody <nobody@example.org>\nDescription: a toy\n")
    with tarfile.open(inner, "w:xz") as archive:
        archive.add(toy.source, "linux-source-6.12")
    source = base.Source(base.DEBIAN + version)
    path = base.deb_path(toy.layout, source)
    path.parent.mkdir(parents=True)
    sh(["dpkg-deb", "-b", root, path], capture=True)
    return base.Source(source.name, path, base.sha256(path))


def test_deb_is_imported_once_and_names_itself(toy, capsys):
    deb = make_deb(toy)
    base.write_pin(deb, toy.layout)
    stack.tree(toy.layout)
    subject = toy.git("log", "-1", "--format=%s (%an, %aI)", "base")
    assert subject == "Linux 6.12.1 (Debian 6.12.1-1) (base, 2026-01-01T00:00:00+00:00)"
    assert toy.git("ls-files").split() == ["Makefile", "kernel/one.c", "kernel/two.c"]
    deb.path.unlink()
    capsys.readouterr()
    stack.tree(toy.layout)
    again = capsys.readouterr().out
    assert again == ""
    print(f"the base commit: {subject}; the second make tree did nothing, without the .deb")


def test_wrong_sha256_is_refused_and_removed(toy):
    deb = make_deb(toy)
    base.write_pin(deb, toy.layout)
    with open(deb.path, "ab") as file:
        file.write(b"x")
    with pytest.raises(Error, match="is not the pinned file, and was removed") as caught:
        stack.tree(toy.layout)
    assert not deb.path.exists() and not toy.linux.exists()
    assert deb.sha256 in str(caught.value)
    print(caught.value)


def test_archive_without_the_pinned_version(toy, monkeypatch, capsys):
    monkeypatch.setattr(base, "offered", lambda: ["6.12.9-1", "6.12.8-1"])
    assert base.wanted(toy.layout).name == "Debian 6.12.9-1"
    said = capsys.readouterr().err
    assert "the archive no longer has linux-source-6.12 6.12.1-1: taking its newest, 6.12.9-1" \
        in said
    monkeypatch.setattr(base, "offered", lambda: ["6.12.9-1", "6.12.1-1"])
    assert base.wanted(toy.layout).name == "Debian 6.12.1-1"
    monkeypatch.setattr(base, "offered", list)
    with pytest.raises(Error, match="the archive offers no linux-source-6.12"):
        base.wanted(toy.layout)
    print(said.strip())


def test_linux_directory_is_left_untouched(toy):
    (toy.source / "kernel/.gitignore").write_text("*.c\n")
    before = listing(toy.source)
    stack.tree(toy.layout, toy.source)
    assert listing(toy.source) == before
    assert "kernel/one.c" in toy.git("ls-files").split()
    name = base.imported(toy.layout).name
    # Without LINUX= the tree stays on what LINUX= gave, rather than go back to the archive.
    assert base.wanted(toy.layout).name == name
    print(f"imported, with the files that its .gitignore hides: {name}")


def test_linux_directory_with_git_gives_its_head(toy, capsys):
    git(toy.source, "init", "-q")
    git(toy.source, "add", "-A")
    git(toy.source, "commit", "-q", "-m", "x", env=base.IDENTITY)
    (toy.source / "kernel/one.c").write_text("not committed\n")
    stack.tree(toy.layout, toy.source)
    assert "int one_1;" in (toy.linux / "kernel/one.c").read_text()
    said = capsys.readouterr().err
    assert "without its uncommitted changes" in said
    print(said.strip())


@pytest.mark.parametrize("kind", ["xz", "gz", "bz2", "zst"])
def test_linux_tarball(toy, kind):
    tarball = toy.directory / f"linux.tar.{kind}"
    sh(["tar", "-c", "-a", "-f", tarball, "-C", toy.directory, toy.source.name])
    stack.tree(toy.layout, tarball)
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
            stack.tree(toy.layout, linux)
        assert not toy.linux.exists()
        print(str(caught.value).splitlines()[0])


def test_interrupted_import_is_not_believed(toy, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(base, "version_of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            base.ensure(toy.layout, base.Source("directory 0", toy.source))
    assert not toy.linux.exists() and base.imported(toy.layout) is None
    stack.tree(toy.layout, toy.source)
    left = sorted(path.name for path in toy.layout.work.iterdir())
    assert left == ["linux", "tree.lock"]
    print(f"left in the build directory after the second run: {left}")
