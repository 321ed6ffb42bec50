#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# For kit/cost.py, under icount: the instructions that operations take (ROWS, each
# NAME:OPERATION:CPU:CPU), with all features off and with each of FEATURES on, REPEATS times in
# turns. A feature that the kernel does not have is left out.

. /lib.sh

measure() {
	for row in $ROWS; do
		set -- $(echo "$row" | tr : ' ')
		value=$(cost "$2" "$3" "$4" "$BATCHES") || exit
		echo "# cost $state $1 $value"
	done
}

echo "TAP version 13"
echo "1..1"
i=0
while [ $i -lt "$REPEATS" ]; do
	i=$((i + 1))
	state=off
	measure
	for state in $FEATURES; do
		[ "$(feature "$state")" = off ] || continue
		echo "$state" > "$FEATURES_FILE" || exit
		measure
		echo "NO_$state" > "$FEATURES_FILE" || exit
	done
done
echo "ok 1 cost"
