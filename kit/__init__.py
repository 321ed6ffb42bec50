# SPDX-License-Identifier: GPL-2.0-only
"""What the Makefile calls: base, stack, kernel, machines, guest, checks and cost."""
