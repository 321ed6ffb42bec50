#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Compare workloads with and without aggregation, for minutes, and watch the steady state for
# WATCH_SECONDS after that. ONLY: those that have this in their name.

. /lib.sh

exec timeout 1800 /bin/soak ${ONLY:+"$ONLY"}
