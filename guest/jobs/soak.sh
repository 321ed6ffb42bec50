#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run the selftest that compares workloads with and without aggregation, for minutes. It reads
# SCHED_CACHE_AB_SECONDS: how long it watches the steady state after that.

. /lib.sh

echo "TAP version 13"
echo "1..1"
selftest 1 sched_cache_ab 1800
