#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of test_features_of_the_command_line in tests/test_boot.py: print the feature bits as they are after
# boot, without a write.

. /lib.sh

echo "TAP version 13"
echo "1..1"
read -r all < "$FEATURES_FILE"
echo "# features $all"
echo "ok 1 features"
