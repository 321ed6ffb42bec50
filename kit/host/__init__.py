# SPDX-License-Identifier: GPL-2.0-only
"""Benchmarks on a host itself. The modules run on python 3.9 without further packages."""
