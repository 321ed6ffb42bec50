# SPDX-License-Identifier: GPL-2.0-only
"""The Python behind the Makefile: one package for each activity (stack, vm, cost, host, sim, results)
and, beside them, what all of them use (settings, features, paths, process, apt)."""
