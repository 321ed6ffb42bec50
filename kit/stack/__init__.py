# SPDX-License-Identifier: GPL-2.0-only
"""The patches: their base, the git tree they are edited in, and the checks of each patch."""
