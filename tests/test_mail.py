# SPDX-License-Identifier: GPL-2.0-only
"""make mail: the mails of a series, which a person sends."""

import email
import email.policy
import shutil
from email.utils import parseaddr

import pytest

from kit.paths import PATCHES, Series
from kit.process import Error, git
from kit.stack import mail, patches
from kit.stack.base import IDENTITY

SENDER = "A. Person <person@example.org>"


@pytest.mark.parametrize("sender", ["", "A. Person", "person@example.org", "<person@example.org>",
                                    "A. Person <person>", "A. Person <person@example.org"])
def test_sender_needs_name_and_address(sender, monkeypatch):
    monkeypatch.setenv("SENDER", sender)
    with pytest.raises(Error, match="SENDER=.*Name <address>"):
        mail.command(None)


def test_series_without_cover_letter_is_refused(toy):
    toy.series.order.write_text("")
    with pytest.raises(Error, match="6.12 is not to be sent: it has no patches, or no cover-letter"):
        mail.write(SENDER, toy.directory / "mails", toy.series)


@pytest.mark.patches
@pytest.mark.xdist_group("compiles")
@pytest.mark.parametrize("name", patches.others(PATCHES))
def test_mails_apply_and_are_threaded(name, tmp_path):
    """git am makes the tree of the series from them; To and Cc name the scheduler's people."""
    series = Series(name)
    mails = mail.write(SENDER, tmp_path / "mails", series, version=2)
    parsed = [email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
              for path in mails]
    print(*(message["Subject"] for message in parsed), parsed[0]["To"], parsed[0]["Cc"], sep="\n")
    number = len(patches.listed(series))
    assert len(mails) == number + 1
    prefix = "RFC PATCH" if patches.is_rfc(name) else "PATCH"
    assert all(message["Subject"].startswith(f"[{prefix} v2 {count}/{number}] ")
               for count, message in enumerate(parsed))
    assert all(parseaddr(message["From"]) == parseaddr(SENDER) for message in parsed)
    assert {message["In-Reply-To"] for message in parsed[1:]} == {parsed[0]["Message-Id"]}
    assert all(message["To"] and "peterz@infradead.org" in message["To"] + message["Cc"]
               and "linux-kernel@vger" in message["Cc"] for message in parsed)
    assert "emulated guest" in parsed[0].get_content()
    # The sender's certificate is not given in its name.
    assert not any("Signed-off-by:" in path.read_text() for path in mails)

    tree = tmp_path / "tree"
    git(series.linux, "worktree", "add", "-q", "--no-checkout", "--detach", tree, "base")
    try:
        git(tree, "sparse-checkout", "set", "kernel/sched", "mm", "tools/testing/selftests/sched")
        git(tree, "checkout", "-q")
        git(tree, "am", "-q", *mails[1:], env=IDENTITY)
        assert git(tree, "rev-parse", "HEAD^{tree}").out == git(
            series.linux, "rev-parse", "stack^{tree}").out
    finally:
        shutil.rmtree(tree)
        git(series.linux, "worktree", "prune")
