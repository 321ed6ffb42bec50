#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of kit/cost/measure.py, under icount: run programs that print figures, BLOCKS times.
# ROWS: the programs, each NAME:PROGRAM:ARGUMENT:... with @ for the number of the block
# STATE: the state of the scheduler, FILE=VALUE,...: written to files below /sys/kernel/debug/sched
# first, and read back

. /lib.sh

echo "TAP version 13"
echo "1..1"
set_state "$STATE"
block=0
while [ $block -lt "$BLOCKS" ]; do
	for row in $ROWS; do
		# An exec copies the environment, which must be the same for all kernels.
		values=$(env -i PATH=/bin $(echo "${row#*:}" | sed "s/:/ /g; s/@/$block/g")) || exit
		figure cost row="${row%%:*}" block=$block $values
	done
	block=$((block + 1))
done
echo "ok 1 cost"
