# SPDX-License-Identifier: GPL-2.0-only
"""The series for mainline: their patches, and the mails of them, which a person sends."""

import email
import email.policy
import mailbox
import re
import shutil
import sys
from contextlib import contextmanager
from email.utils import parseaddr

import pytest

from here import BUILD, SERIES
from kit.paths import ROOT
from kit.process import Error, git, lock, sh
from kit.stack import mail, patches
from kit.stack.base import IDENTITY

SENDER = "A. Person <person@example.org>"
B4 = "b4==0.16.0"
NAMES = patches.others()
# One process of pytest-xdist runs them all, those of one series one after the other: they share its tree.
pytestmark = pytest.mark.xdist_group("compiles")


@pytest.fixture(scope="module")
def series(request):
    """The Series of a name. Its trees are removed at the end, unless they are there before: those of one series take
    3.6 GB, and those of all fill the disk of a runner."""
    found = SERIES.other(request.param)
    made = [path for path in (found.linux, found.work / "checks/src") if not path.exists()]
    yield found
    for path in made:
        # A tree with changes that are not exported is kept.
        if path != found.linux or not path.exists() or not patches.unsaved(found):
            shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize("series", [pytest.param(
    name, marks=pytest.mark.long if patches.is_rfc(name) else pytest.mark.patches) for name in NAMES], indirect=True)
def test_each_series(series):
    """Its patches apply cleanly, compile without new warnings, and have no findings of checkpatch; the
    selftests build. By way of the command, because this process is about the default series."""
    env = {setting: None for setting in ("TESTS", "BUILD", "LINUX", "SERIES", "SHORT")}

    def kit(*args, **options):
        return sh([sys.executable, "-m", "kit", *args], env=env, cwd=ROOT, capture=True, **options)

    # The tree of the series is made from that of the base, which other tests use too.
    kit("tree", f"SERIES={series.base}")
    done = kit("checks", f"SERIES={series.name}", "SHORT=1", check=False)
    print(done.out, done.err)
    assert done.status == 0
    assert done.out.count("  applies") == done.out.count("  checkpatch") > 0


@pytest.mark.patches
@pytest.mark.parametrize("series", NAMES, indirect=True)
def test_mails_apply_and_are_threaded(series, tmp_path):
    """git am makes the tree of the series from them; To and Cc name the scheduler's people."""
    mails = mail.write(series, SENDER, tmp_path / "mails", version=2)
    parsed = [email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
              for path in mails]
    print(*(message["Subject"] for message in parsed), parsed[0]["To"], parsed[0]["Cc"], sep="\n")
    number = len(patches.listed(series))
    assert len(mails) == number + 1
    prefix = "RFC PATCH" if patches.is_rfc(series.name) else "PATCH"
    assert all(message["Subject"].startswith(f"[{prefix} v2 {count}/{number}] ")
               for count, message in enumerate(parsed))
    assert all(parseaddr(message["From"]) == parseaddr(SENDER) for message in parsed)
    assert {message["In-Reply-To"] for message in parsed[1:]} == {parsed[0]["Message-Id"]}
    assert all(message["To"] and "peterz@infradead.org" in message["To"] + message["Cc"]
               and "linux-kernel@vger" in message["Cc"] for message in parsed)
    assert "emulated guest" in parsed[0].get_content()
    # The sender's certificate is not given in its name.
    assert not any("Signed-off-by:" in path.read_text() for path in mails)

    with base_of(series, tmp_path / "tree") as tree:
        git(tree, "am", "-q", *mails[1:], env=IDENTITY)
        assert git(tree, "rev-parse", "HEAD^{tree}").out == git(
            series.linux, "rev-parse", "stack^{tree}").out


@contextmanager
def base_of(series, tree):
    """Check out, in the directory `tree`, the files of the base that a series may change."""
    git(series.linux, "worktree", "add", "-q", "--no-checkout", "--detach", tree, "base")
    try:
        git(tree, "sparse-checkout", "set", "kernel/sched", "mm", "tools/testing/selftests/sched")
        git(tree, "checkout", "-q")
        yield tree
    finally:
        shutil.rmtree(tree)
        git(series.linux, "worktree", "prune")


@pytest.fixture
def b4():
    """The program b4 of PyPI, in an environment of its own below build/. Skip if it is not to be had."""
    home = BUILD / "b4"
    done = home / B4
    with lock(BUILD / "b4.lock"):
        if not done.exists():
            shutil.rmtree(home, ignore_errors=True)
            try:
                sh([sys.executable, "-m", "venv", home], capture=True)
                sh([home / "bin/pip", "install", "-q", "--retries=1", "--timeout=20", B4], capture=True,
                   timeout=300)
            except Error as error:
                pytest.skip(f"{B4} cannot be had from PyPI: {str(error).strip().splitlines()[-1]}")
            done.touch()
    return home / "bin/b4"


def shazam(b4, tree, messages, directory):
    """Apply a thread to the base with `b4 shazam`, from a mailbox; what is wrong, as lines.

    messages: the mails; the first one is the cover letter, by whose Message-Id b4 finds the others.
    b4 applies what it has of an incomplete thread, and its status is 0 then.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    box = mailbox.mbox(directory / "mbox")
    for message in messages:
        box.add(message)
    box.close()
    git(tree, "checkout", "-q", "--detach", "base")
    # b4 asks lore.kernel.org for newer versions and for trailers, and goes on without an answer. The proxy,
    # a port on which nothing listens, keeps it from asking.
    nowhere = dict.fromkeys(("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy",
                             "ALL_PROXY"), "http://127.0.0.1:9") | {"no_proxy": None, "NO_PROXY": None}
    own = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), directory)
    done = sh([b4, "--no-interactive", "shazam", "-m", directory / "mbox",
               messages[0]["Message-Id"].strip("<>")], cwd=tree, capture=True, check=False, timeout=60,
              env=IDENTITY | nowhere | own | {"GIT_CONFIG_GLOBAL": "/dev/null"})
    said = done.out + done.err
    faults = [line.strip() for line in said.splitlines()
              if re.search("ERROR|WARNING|CRITICAL|Patch failed", line)]
    if done.status:
        faults.append(f"b4 ended with {done.status}: {said[-500:]}")
    if f"Analyzing {len(messages)} messages in the thread" not in said:
        faults.append(f"not all of the {len(messages)} mails are in one thread")
    return faults


@pytest.mark.patches
@pytest.mark.parametrize("series", NAMES[:1], indirect=True)
def test_mails_apply_with_b4(series, b4, tmp_path):
    """b4 shazam finds all mails by the cover letter, and makes the tree of the series from them. It finds
    a mail that is missing, and one that is no answer to the cover letter."""
    messages = [email.message_from_bytes(path.read_bytes().partition(b"\n")[2])
                for path in mail.write(series, SENDER, tmp_path / "mails")]
    stray = email.message_from_bytes(messages[2].as_bytes())
    del stray["In-Reply-To"], stray["References"]
    wanted = git(series.linux, "rev-parse", "stack^{tree}").out
    subjects = git(series.linux, "log", "--reverse", "--format=%s", "base..stack").out

    with base_of(series, tmp_path / "tree") as tree:
        def made():
            return git(tree, "rev-parse", "HEAD^{tree}").out

        assert shazam(b4, tree, messages, tmp_path / "b4") == []
        assert made() == wanted
        assert git(tree, "log", "--reverse", "--format=%s", "base..HEAD").out == subjects

        missing = f"ERROR: missing [2/{len(messages) - 1}]!"
        faults = shazam(b4, tree, messages[:2] + messages[3:], tmp_path / "b4")
        print("a mail is missing:", *faults, sep="\n  ")
        assert missing in faults and made() != wanted

        faults = shazam(b4, tree, [*messages[:2], stray, *messages[3:]], tmp_path / "b4")
        print("a mail is outside of the thread:", *faults, sep="\n  ")
        assert missing in faults and made() != wanted
        assert f"not all of the {len(messages)} mails are in one thread" in faults
