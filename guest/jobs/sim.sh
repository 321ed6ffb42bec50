#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# For kit/bench/sim.py, in a simulated machine: run programs that have the marks of sim/plugin.c.
# ROWS: what to run, each NAME:PROGRAM:ARGUMENT:...
# STATE: in what state of the scheduler, FILE=VALUE,...: written first, to files below
# /sys/kernel/debug/sched, and read back

. /lib.sh

echo "TAP version 13"
echo "1..1"
set_state "$STATE"
for row in $ROWS; do
	value=$(env -i PATH=/bin $(echo "${row#*:}" | tr : ' ')) || exit
	echo "# sim ${row%%:*} $value"
done
echo "ok 1 sim"
