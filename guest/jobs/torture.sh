#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Torture the scheduler with the random numbers of SEED, for SECONDS of the guest's clock: see
# guest/torture/main.c. PROCESSES: how many processes with threads come and go after that. FEATURES: the
# bits to switch. MAINLINE: the series is one for mainline.

. /lib.sh

# part NUMBER NAME ARGUMENT...: run one part, print its lines and its result.
part() {
	number=$1
	shift
	torture "$@"
	result "$number" $? "$1"
}

echo "TAP version 13"
echo "1..4"
if [ "$MAINLINE" ]; then
	echo "ok 1 files # SKIP the files are those of mainline, whose knobs take any number"
else
	part 1 files "$SEED"
fi
part 2 run "$SEED" "$SECONDS"
part 3 memory "$SEED" "$PROCESSES"
[ ! -e "$KCSAN" ] || sed -En 's/^(setup_watchpoints|data_races): /name=\1 done=/p' "$KCSAN" | while read -r words; do
	figure count $words refused=0
done
if [ -e "$KMEMLEAK" ]; then
	check_kmemleak 4
else
	echo "ok 4 kmemleak # SKIP the kernel lacks it"
fi
