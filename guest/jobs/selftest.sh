#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run all installed kernel selftests of sched, or those that NAMES has. Then print the results of KUnit's
# tests, which ran at boot, and of kmemleak, if the kernel has them.

. /lib.sh

set -- ${NAMES:-$(sed -n 's/^sched://p' "$SELFTESTS/kselftest-list.txt")}
kunit=$(find /sys/kernel/debug/kunit -name results 2>/dev/null)
echo "TAP version 13"
kmemleak=$(find "$KMEMLEAK" 2>/dev/null)
echo "1..$(($# + $(printf '%s\n' $kunit $kmemleak | grep -c .)))"
number=0
for name in "$@"; do
	number=$((number + 1))
	selftest "$number" "$name" 300
done
for results in $kunit; do
	number=$((number + 1))
	# Without the file's own plan, and with our number.
	sed "1,2d; s/^\(not ok\|ok\) 1 /\1 $number kunit: /" "$results"
done
if [ "$kmemleak" ]; then
	check_kmemleak $((number + 1))
fi
