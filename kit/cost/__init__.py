# SPDX-License-Identifier: GPL-2.0-only
"""What the patches cost, counted in instructions and bytes."""
