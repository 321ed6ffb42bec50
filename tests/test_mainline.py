# SPDX-License-Identifier: GPL-2.0-only
"""The series for mainline: their patches, and the mails of them, which a person sends."""

import email
import email.policy
import re
import runpy
import shutil
import sys
from contextlib import contextmanager
from email.utils import parseaddr

import pytest

from here import SERIES
from kit.paths import ROOT
from kit.process import git, sh
from kit.stack import mail, patches
from kit.stack.base import IDENTITY

SENDER = "A. Person <person@example.org>"
NAMES = patches.others()
# One process of pytest-xdist runs them all, those of one series one after the other: they share its tree.
pytestmark = pytest.mark.xdist_group("compiles")


@pytest.mark.parametrize("name", [pytest.param(
    name, marks=pytest.mark.long if patches.is_rfc(name) else pytest.mark.patches) for name in NAMES])
def test_each_series(name):
    """Its patches apply cleanly, compile without new warnings, and have no findings of checkpatch; the
    selftests build. By way of the command, because this process is about the default series."""
    env = {setting: None for setting in ("TESTS", "BUILD", "LINUX", "SERIES", "SHORT")}
    done = sh([sys.executable, "-m", "kit", "checks", f"SERIES={name}", "SHORT=1"], env=env, cwd=ROOT, capture=True,
              check=False)
    print(done.out, done.err)
    assert done.status == 0
    assert done.out.count("  applies") == done.out.count("  checkpatch") > 0
    # Of all series together they would take 16 GB.
    shutil.rmtree(SERIES.other(name).work / "checks/src", ignore_errors=True)


@pytest.mark.patches
@pytest.mark.parametrize("name", NAMES)
def test_mails_apply_and_are_threaded(name, tmp_path):
    """git am makes the tree of the series from them; To and Cc name the scheduler's people."""
    series = patches.in_base(SERIES.other(name))
    mails = mail.write(series, SENDER, tmp_path / "mails", version=2)
    parsed = [email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
              for path in mails]
    print(*(message["Subject"] for message in parsed), parsed[0]["To"], parsed[0]["Cc"], sep="\n")
    number = len(patches.own(series))
    alone = number == 1
    assert len(mails) == number + (not alone)
    prefix = "RFC PATCH" if patches.is_rfc(series.name) else "PATCH"
    assert all(message["Subject"].startswith(f"[{prefix} v2{'' if alone else f' {count}/{number}'}] ")
               for count, message in enumerate(parsed))
    assert all(parseaddr(message["From"]) == parseaddr(SENDER) for message in parsed)
    assert all(message["In-Reply-To"] == parsed[0]["Message-Id"] for message in parsed[1:])
    assert all(message["To"] and "peterz@infradead.org" in message["To"] + message["Cc"]
               and "linux-kernel@vger" in message["Cc"] for message in parsed)
    assert "emulated guest" in parsed[0].get_content()
    # The sender's certificate is not given in its name.
    assert not any("Signed-off-by:" in path.read_text() for path in mails)

    commits = patches.applied(series)[0]
    first, last = commits[-1 - number], commits[-1]
    with files_of(series, first, tmp_path / "tree") as tree:
        git(tree, "am", "-q", *mails[not alone:], env=IDENTITY)
        assert git(tree, "rev-parse", "HEAD^{tree}").out == git(tree, "rev-parse", f"{last}^{{tree}}").out


def test_what_a_series_needs_is_sent_before():
    """docs/submitting.md has the series in the order in which they are sent."""
    order = re.findall(r"^\| `(7\.3/[\w-]+)`", (ROOT / "docs/submitting.md").read_text(), re.MULTILINE)
    needed = {name: {line.split("/")[1] for line in patches.listed(SERIES.other(name)) if patches.is_of_another(line)}
              for name in NAMES}
    print(*(f"{name} needs {', '.join(of)}" for name, of in needed.items() if of), sep="\n")
    assert any(needed.values())
    for name, of in needed.items():
        assert {f"7.3/{other}" for other in of} <= set(order[:order.index(name)] if name in order else order)


def test_moves_of_gathering_passes_are_not_undone():
    """The program that docs/submitting.md names says so, and finds the others."""
    policy = runpy.run_path(str(ROOT / "docs/upstream/llc_policy.py"))
    assert policy["search"](50, 20, True) == (233540, [])
    assert len(policy["search"](50, 20, False)[1]) == 70 and not policy["search"](50, 0, False)[1]
    text = policy["__doc__"]
    for percent in (50, 75):
        count, bad = policy["search"](percent, 20, False)
        assert f"{len(bad)} of {count} " in text


@contextmanager
def files_of(series, base, tree):
    """Check out, in the directory `tree`, the files of the commit `base` that a series may change."""
    git(series.linux, "worktree", "add", "-q", "--no-checkout", "--detach", tree, base)
    try:
        git(tree, "sparse-checkout", "set", "kernel/sched", "mm", "tools/testing/selftests/sched")
        git(tree, "checkout", "-q")
        yield tree
    finally:
        shutil.rmtree(tree)
        git(series.linux, "worktree", "prune")
