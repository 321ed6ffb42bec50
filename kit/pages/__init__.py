# SPDX-License-Identifier: GPL-2.0-only
"""What is generated from all results: the page, its plots, and the blocks of README.md, docs/ and cover letters."""
