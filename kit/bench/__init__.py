# SPDX-License-Identifier: GPL-2.0-only
"""What the patches cost and bring. An instrument (cost, host) measures and knows nothing of
statistics; results keeps what any of them measured; stats, report, plots and summary make verdicts,
tables and a page of that."""
