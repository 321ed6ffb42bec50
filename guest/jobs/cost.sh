#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# For kit/bench/cost.py, under icount: run programs that print two figures, and print these, BLOCKS
# times.
# ROWS: what to run, each NAME:PROGRAM:ARGUMENT:... with @ for the number of the block
# STATE: in what state of the scheduler, FILE=VALUE,...: written first, to files below
# /sys/kernel/debug/sched, and read back

. /lib.sh

echo "TAP version 13"
echo "1..1"
set_state "$STATE"
block=0
while [ $block -lt "$BLOCKS" ]; do
	for row in $ROWS; do
		# An exec copies the environment, which is not to tell one kernel from another.
		values=$(env -i PATH=/bin $(echo "${row#*:}" | sed "s/:/ /g; s/@/$block/g")) || exit
		echo "# cost ${row%%:*} $block $values"
	done
	block=$((block + 1))
done
echo "ok 1 cost"
