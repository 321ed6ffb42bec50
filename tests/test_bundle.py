# SPDX-License-Identifier: GPL-2.0-only
"""make bundle: the source after each way that its README offers is the one of the tree; with toy kernels,
and with the real patches."""

import hashlib
import subprocess
import tarfile

import pytest

from here import SERIES
from kit.process import Error, git, sh
from kit.stack import base, bundle, patches


@pytest.fixture
def made(toy):
    """A toy series of two patches, its bundle unpacked: (toy, directory)."""
    # As Debian's source: its packaging ignores all files, and the kernel some that belong to it.
    (toy.source / ".gitignore").write_text("/*\n!/debian/\n*.shipped\n")
    (toy.source / "kernel/three.shipped").write_text("three\n")
    source = toy.make_deb()
    text = toy.series.pin.read_text().replace('"00"', f'"{source.sha256}"')
    toy.series.pin.write_text(text)
    patches.tree(toy.series)
    toy.commit("sched: Rename one", "kernel/one.c", "one_3;", "three;")
    toy.commit("sched: Rename two", "kernel/two.c", "two_40;", "forty;")
    patches.export(toy.series)
    tarball = bundle.write(toy.series)
    return toy, unpacked(tarball, toy.directory / "got")


def unpacked(tarball, where):
    """Check the tarball's checksum, unpack it, check those of its files; the directory in it."""
    where.mkdir()
    digest, name = tarball.with_name(tarball.name + ".sha256").read_text().split()
    assert (hashlib.sha256(tarball.read_bytes()).hexdigest(), tarball.name) == (digest, name)
    with tarfile.open(tarball) as archive:
        archive.extractall(where)
    [top] = where.iterdir()
    sh(["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"], cwd=top)
    summed = {line.split("  ", 1)[1] for line in (top / "SHA256SUMS").read_text().splitlines()}
    assert summed == {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()} - {"SHA256SUMS"}
    return top


def applied(top, how, where):
    """Apply the patches in the directory `where` in one of the ways of README."""
    if how == "patch":
        with open(top / "all.diff", "rb") as file:
            subprocess.run(["patch", "-p1", "-s", "--fuzz=0"], cwd=where, stdin=file, check=True)
    elif how == "quilt":
        sh(["quilt", "--quiltrc", "/dev/null", "push", "-a", "-q"], cwd=where,
           env={"QUILT_PATCHES": top / "patches"}, capture=True)
    else:
        git(where, "am", "-q", top / "all.mbox")


def files(where):
    """The files below a directory and what is in them, without those of git and quilt."""
    return {str(path.relative_to(where)): path.read_bytes() for path in where.rglob("*")
            if path.is_file() and path.relative_to(where).parts[0] not in (".git", ".pc", ".gitignore")}


def committed(where):
    """Make a git tree of a directory."""
    git(where, "init", "-q")
    git(where, "add", "-A", "-f", ".")
    git(where, "commit", "-q", "-m", "base", env=base.IDENTITY)


def test_title(made):
    """README begins with the subject of the cover letter, or with the name of the series."""
    toy, top = made
    assert (top / "README").read_text().startswith("Series 6.12: 2 patches for Linux 6.12\n\n")
    (toy.series.patches / "cover-letter.txt").write_text("Subject: sched: Toy with it\n\nText.\n")
    bundle.write(toy.series)
    made_anew = toy.series.work / "bundle" / top.name
    assert (made_anew / "README").read_text().startswith("sched: Toy with it: 2 patches for Linux 6.12\n\n")


@pytest.mark.parametrize("how", ["patch", "quilt", "am"])
def test_ways(made, how, tmp_path):
    toy, top = made
    where = toy.make_source(1)
    committed(where)
    assert files(where) != files(toy.linux)
    applied(top, how, where)
    assert files(where) == files(toy.linux)


def test_quilt_takes_them_off_again(made):
    toy, top = made
    before = files(toy.source)
    applied(top, "quilt", toy.source)
    sh(["quilt", "--quiltrc", "/dev/null", "pop", "-a", "-q"], cwd=toy.source,
       env={"QUILT_PATCHES": top / "patches"}, capture=True)
    assert files(toy.source) == before


def test_same_bytes_again(made):
    toy, _ = made
    tarball = toy.series.work / "bundle"
    [first] = tarball.glob("*.tar.xz")
    before = first.read_bytes()
    assert bundle.write(toy.series).read_bytes() == before


def test_other_bases_are_refused(made):
    """The patches need not apply to the base that LINUX= named."""
    toy, _ = made
    patches.tree(toy.series, toy.make_source(2))
    with pytest.raises(Error, match="LINUX=debian"):
        bundle.write(toy.series)


def test_a_patch_that_is_not_exported_is_refused(made):
    toy, _ = made
    toy.commit("sched: Rename another", "kernel/two.c", "two_50;", "fifty;")
    with pytest.raises(Error, match="make export"):
        bundle.write(toy.series)


@pytest.mark.patches
def test_real_patches(tmp_path):
    """On those files of the pinned base that the patches change: the rest is a gigabyte."""
    top = unpacked(bundle.write(SERIES), tmp_path / "got")
    changed = git(SERIES.linux, "diff", "--name-only", "--no-renames", "base", "stack").out.split()
    old = git(SERIES.linux, "ls-tree", "-r", "--name-only", "base", "--", *changed).out.split()
    want = {name: git(SERIES.linux, "rev-parse", f"stack:{name}").out.strip() for name in changed}
    for how in ("patch", "quilt", "am"):
        where = tmp_path / how
        where.mkdir()
        git(SERIES.linux, "archive", "-o", tmp_path / "base.tar", "base", "--", *old)
        sh(["tar", "-xf", tmp_path / "base.tar"], cwd=where)
        committed(where)
        applied(top, how, where)
        got = git(where, "hash-object", "--", *changed).out.split()
        assert dict(zip(changed, got)) == want, how
