# SPDX-License-Identifier: GPL-2.0-only
"""What the tests work on: the series and the build directory that make test was given, and its kernels."""

import os

from kit import settings
from kit.vm import kernel

GIVEN = settings.read("test", os.environ)
SERIES, BUILD = GIVEN.series, GIVEN.build


def named(name="stack"):
    """The kernel.Kernel of a BUILD."""
    return kernel.named(SERIES, name)
