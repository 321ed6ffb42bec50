#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of test_features_of_the_command_line in tests/test_boot.py: print the feature bits, and which processes
# are aggregated, as they are after boot, without a write.

. /lib.sh

echo "TAP version 13"
echo "1..1"
read -r all < "$FEATURES_FILE"
echo "# features $all"
read -r enabled < "${FEATURES_FILE%/*}/llc_balancing/enabled"
echo "# enabled $enabled"
echo "ok 1 features"
