#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The selftest that compares workloads with and without gathering, which takes minutes. How long it
# watches steady state after that is in SCHED_CACHE_AB_SECONDS, which it reads itself.

. /lib.sh

echo "TAP version 13"
echo "1..1"
selftest 1 sched_cache_ab 1800
