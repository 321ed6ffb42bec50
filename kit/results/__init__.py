# SPDX-License-Identifier: GPL-2.0-only
"""Saved measurements: their file format, the verdicts on them, and their tables."""
