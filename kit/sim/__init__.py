# SPDX-License-Identifier: GPL-2.0-only
"""The simulation: workloads on a QEMU guest whose memory accesses cost what those of a server do."""
