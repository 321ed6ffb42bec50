#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# For kit/bench/cost.py, under icount: run programs that print two figures, and print these, BLOCKS
# times, each time once in each state.
# ROWS: what to run, each NAME:PROGRAM:ARGUMENT:... with @ for the number of the block
# STATES: what to run it in, each NAME,FILE=VALUE,...: the values are written first, to files below
# /sys/kernel/debug/sched

. /lib.sh

set_state() {
	for write in $(echo "$1" | tr , ' '); do
		case $write in
		*=*) echo "${write#*=}" > "/sys/kernel/debug/sched/${write%%=*}" || exit ;;
		esac
	done
}

echo "TAP version 13"
echo "1..1"
block=0
while [ $block -lt "$BLOCKS" ]; do
	for state in $STATES; do
		set_state "$state"
		for row in $ROWS; do
			# An exec copies the environment, which is not to tell one kernel from another.
			values=$(env -i PATH=/bin $(echo "${row#*:}" | sed "s/:/ /g; s/@/$block/g")) || exit
			echo "# cost ${state%%,*} ${row%%:*} $block $values"
		done
	done
	block=$((block + 1))
done
echo "ok 1 cost"
