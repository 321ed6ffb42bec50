# SPDX-License-Identifier: GPL-2.0-only
"""What is generated from all results: the page, and the blocks of README.md, docs/ and cover letters."""
