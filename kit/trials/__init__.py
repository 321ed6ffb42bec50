# SPDX-License-Identifier: GPL-2.0-only
"""Attempts to break the patched scheduler in guests: by load, races and hostile users."""
