#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# All kernel selftests of sched that are installed.

. /lib.sh

set -- $(sed -n 's/^sched://p' "$SELFTESTS/kselftest-list.txt")
echo "TAP version 13"
echo "1..$#"
number=0
for name in "$@"; do
	number=$((number + 1))
	selftest "$number" "$name" 120
done
