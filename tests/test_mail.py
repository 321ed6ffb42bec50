# SPDX-License-Identifier: GPL-2.0-only
"""make mail: what it refuses. What it writes: test_mainline.py."""

import pytest

from kit import settings
from kit.process import Error
from kit.stack import mail


@pytest.mark.parametrize("sender", ["", "A. Person", "person@example.org", "<person@example.org>",
                                    "A. Person <person>", "A. Person <person@example.org"])
def test_sender_needs_name_and_address(sender):
    with pytest.raises(Error, match="SENDER=.*Name <address>"):
        mail.command(settings.read("mail", {"SENDER": sender}))


def test_series_without_cover_letter_is_refused(toy):
    toy.series.order.write_text("")
    with pytest.raises(Error, match="6.12 is not to be sent: it has no patches, or no cover-letter"):
        mail.write(toy.series, "A. Person <person@example.org>", toy.directory / "mails")
