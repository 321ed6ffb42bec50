#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of kit/sim/simulate.py: run programs that have the marks of plugins/sim/plugin.c.
# ROWS: the programs, each NAME:PROGRAM:ARGUMENT:...
# STATE: the state of the scheduler, FILE=VALUE,...: written to files below /sys/kernel/debug/sched
# first, and read back
# STATES: a state for each window of a program that has several, separated by spaces, or default.
# The program calls this script with the number of the window before each window
# CGROUPS: how many control groups deep the programs run, default 0
# STATS: 1 to switch schedstats on and print the statistics that the program has copied

. /lib.sh

SAVED=/tmp/saved
STATS_DIR=/tmp/stats

# current STATES: print the writes that bring back what the files of all STATES have now.
current() {
	for write in $(echo "$1" | tr ', ' '\n\n' | grep = | sort -u); do
		file=${write%%=*} value=${write#*=}
		if [ "$file" = features ]; then
			case $(feature "${value#NO_}") in
			on) echo "features=${value#NO_}" ;;
			*) echo "features=NO_${value#NO_}" ;;
			esac
		else
			read -r value < "/sys/kernel/debug/sched/$file"
			echo "$file=$value"
		fi
	done | tr '\n' ','
}

if [ $# = 1 ]; then
	. /env
	read -r saved < "$SAVED"
	state=$(echo "$STATES" | cut -d' ' -f$(($1 + 1)))
	set_state "$saved${state#default}"
	exit
fi

echo "TAP version 13"
echo "1..1"
set_state "$STATE"
# Each group has its parent's CPUs and the default weight: what counts is how deep they are.
if [ "${CGROUPS:-0}" != 0 ]; then
	mkdir -p /tmp/cgroup
	mount -t cgroup2 cgroup /tmp/cgroup || exit
	group=/tmp/cgroup
	for level in $(seq "$CGROUPS"); do
		echo +cpu > "$group/cgroup.subtree_control" || exit
		group=$group/$level
		mkdir "$group" || exit
	done
	echo $$ > "$group/cgroup.procs" || exit
fi
current "$STATES" > "$SAVED"
echo >> "$SAVED"
if [ "$STATS" = 1 ]; then
	mkdir "$STATS_DIR"
	echo 1 > /proc/sys/kernel/sched_schedstats || exit
fi
for row in $ROWS; do
	name=${row%%:*}
	env -i PATH=/bin $(echo "${row#*:}" | tr : ' ') > /tmp/figures || exit
	while read -r value unit more; do
		figure sim row="$name" value="$value" unit="$unit" $more
	done < /tmp/figures
	for file in "$STATS_DIR"/*; do
		[ ! -f "$file" ] || figure stats file="${file##*/}" text="$(tr '\n' ';' < "$file")"
	done
done
echo "ok 1 sim"
