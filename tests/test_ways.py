# SPDX-License-Identifier: GPL-2.0-only
"""The ways to apply the patches without the kit, in docs/working.md: each gives the source of the tree; with toy
kernels, and with the real patches."""

import os
import subprocess

import pytest

from here import SERIES
from kit.process import git, sh
from kit.stack import base, patches

WAYS = ("patch -p1 -s --fuzz=0", "quilt", "git am -q")


def applied(series, how, where):
    """Apply the patches of a series to the source in `where` in one of WAYS."""
    if how == "quilt":
        sh(["quilt", "--quiltrc", "/dev/null", "push", "-a", "-q"], cwd=where,
           env={"QUILT_PATCHES": series.patches}, capture=True)
        return
    mails = subprocess.run("cat $(sed 's/#.*//' series)", shell=True, cwd=series.patches, check=True,
                           stdout=subprocess.PIPE).stdout
    # git am asks for a name, which a new user has not set.
    subprocess.run(how.split(), cwd=where, input=mails, check=True, env={**os.environ, **base.IDENTITY})


def files(where):
    """The files below a directory and what is in them, without those of git and quilt."""
    return {str(path.relative_to(where)): path.read_bytes() for path in where.rglob("*")
            if path.is_file() and path.relative_to(where).parts[0] not in (".git", ".pc", ".gitignore")}


def committed(where):
    """Make a git tree of a directory."""
    git(where, "init", "-q")
    git(where, "add", "-A", "-f", ".")
    git(where, "commit", "-q", "-m", "base", env=base.IDENTITY)


@pytest.mark.parametrize("how", WAYS)
def test_ways(toy, how):
    patches.tree(toy.series, toy.source)
    toy.commit("sched: Rename one", "kernel/one.c", "one_3;", "three;")
    toy.commit("sched: Rename two", "kernel/two.c", "two_40;", "forty;")
    patches.export(toy.series)
    where = toy.make_source(1)
    committed(where)
    assert files(where) != files(toy.linux)
    applied(toy.series, how, where)
    assert files(where) == files(toy.linux)


@pytest.mark.patches
@pytest.mark.parametrize("how", WAYS)
def test_real_patches(tmp_path, how):
    """On those files of the pinned base that the patches change: the rest is a gigabyte."""
    linux = patches.tree(SERIES)
    changed = git(linux, "diff", "--name-only", "--no-renames", "base", "stack").out.split()
    old = git(linux, "ls-tree", "-r", "--name-only", "base", "--", *changed).out.split()
    git(linux, "archive", "-o", tmp_path / "base.tar", "base", "--", *old)
    where = tmp_path / "source"
    where.mkdir()
    sh(["tar", "-xf", tmp_path / "base.tar"], cwd=where)
    committed(where)
    applied(SERIES, how, where)
    want = [git(linux, "rev-parse", f"stack:{name}").out.strip() for name in changed]
    assert git(where, "hash-object", "--", *changed).out.split() == want
