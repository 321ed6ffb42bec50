# SPDX-License-Identifier: GPL-2.0-only
"""The text of a file that the patches of a series add, read from the patches alone: no kernel
source is needed."""

from __future__ import annotations

import re

from kit.process import Error
from kit.stack import patches

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@")


def added(series, path):
    """Give the lines of the file at `path` (in the kernel's tree), which a patch of `series` (a
    kit.paths.Series) adds and later ones may change. Error if no patch adds it, or if a patch does
    not apply to what the ones before it left."""
    lines = None
    for name in patches.listed(series):
        text = (series.patches / name).read_text()
        # A file's part begins behind this line and ends before the next file or the signature.
        _, found, part = text.partition(f"\n+++ b/{path}\n")
        if found:
            part = re.split(r"^(?:diff --git |-- $)", part, maxsplit=1, flags=re.M)[0]
            lines = _apply(lines or [], part.splitlines(), f"{name}: {path}")
    if lines is None:
        raise Error(f"{series.patches}: no patch adds {path}")
    return lines


def _apply(old, part, where):
    """Apply the hunks of one file to its lines; give the new lines."""
    new, at = [], 0
    for line in part:
        hunk = _HUNK.match(line)
        if hunk:
            # A new file's hunk begins at 0; lines count from 1.
            begin = max(int(hunk[1]) - 1, 0)
            new += old[at:begin]
            at = begin
            continue
        kind, text = line[:1], line[1:]
        if kind in (" ", "-"):
            if old[at:at + 1] != [text]:
                raise Error(f"{where}: the patch does not apply at line {at + 1}: {text}")
            at += 1
        if kind in (" ", "+"):
            new.append(text)
    return new + old[at:]
