# SPDX-License-Identifier: GPL-2.0-only
"""The ways to apply the patches without the kit, in docs/working.md: each gives the source of the tree."""

import os
import subprocess

import pytest

from here import SERIES
from kit.process import git, sh
from kit.stack import base, patches

WAYS = ("patch -p1 -s --fuzz=0", "quilt", "git am -q")


@pytest.mark.patches
@pytest.mark.parametrize("how", WAYS)
def test_ways(tmp_path, how):
    """On those files of the pinned base that the patches change: the rest is a gigabyte."""
    linux = patches.tree(SERIES)
    changed = git(linux, "diff", "--name-only", "--no-renames", "base", "stack").out.split()
    old = git(linux, "ls-tree", "-r", "--name-only", "base", "--", *changed).out.split()
    git(linux, "archive", "-o", tmp_path / "base.tar", "base", "--", *old)
    where = tmp_path / "source"
    where.mkdir()
    sh(["tar", "-xf", tmp_path / "base.tar"], cwd=where)
    if how == "quilt":
        sh(["quilt", "--quiltrc", "/dev/null", "push", "-a", "-q"], cwd=where,
           env={"QUILT_PATCHES": SERIES.patches}, capture=True)
    else:
        git(where, "init", "-q")
        git(where, "add", "-A", "-f", ".")
        git(where, "commit", "-q", "-m", "base", env=base.IDENTITY)
        mails = subprocess.run("cat $(sed 's/#.*//' series)", shell=True, cwd=SERIES.patches, check=True,
                               stdout=subprocess.PIPE).stdout
        # git am asks for a name, which a new user has not set.
        subprocess.run(how.split(), cwd=where, input=mails, check=True, env={**os.environ, **base.IDENTITY})
    want = [git(linux, "rev-parse", f"stack:{name}").out.strip() for name in changed]
    assert git(where, "hash-object", "--", *changed).out.split() == want
