# SPDX-License-Identifier: GPL-2.0-only
"""Kernels and guests: building a kernel, describing a machine, running it in QEMU, judging the run; what
needs a built kernel."""
