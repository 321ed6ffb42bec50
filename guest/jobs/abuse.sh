#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Measure for SECONDS how late the threads of victims wake up, while one of ATTACKERS loads THREADS CPUs:
# see guest/abuse.c. off, default and on are what set_state is to write for each state. Each attacker
# runs in the cgroup of the victims and in another one. CONTROLS are attackers as root that load all
# of CPUS, in the state off.

. /lib.sh
CGROUP=/sys/fs/cgroup

# used: CPU time of both groups in us, and the time in ms.
used() {
	cat $CGROUP/victim/cpu.stat $CGROUP/other/cpu.stat |
		awk -v up="$(cut -d " " -f 1 /proc/uptime)" '/^usage_usec/ { used += $2 } END { print used, up * 1000 }'
}

# empty GROUP: end all of a group, and wait for it.
empty() {
	echo 1 > "$CGROUP/$1/cgroup.kill"
	while grep -q "populated 1" "$CGROUP/$1/cgroup.events"; do
		usleep 10000
	done
}

# cell ATTACKER GROUP STATE REPEAT [THREADS]: measure the victims under one attacker in one state. All threads are
# new: nothing is left of what another state has decided.
cell() {
	writes=
	eval "writes=\$$3"
	set_state "$writes"
	where=victim
	[ "$2" = same ] || where=other
	pid=
	if [ "$1" != none ]; then
		(echo 0 > $CGROUP/$where/cgroup.procs && exec abuse attack "$1" "${5:-$THREADS}") &
		pid=$!
	fi
	before=$(used)
	(echo 0 > $CGROUP/victim/cgroup.procs && exec abuse victims "$SECONDS") > /tmp/lines || exit
	of="attacker=$1 place=$2 state=$3 repeat=$4"
	while read -r words; do
		figure lateness $of $words
	done < /tmp/lines
	figure load $of "cpus=$(echo "$before $(used)" | awk '{ printf "%.1f", ($3 - $1) / 1000 / ($4 - $2) }')"
	if [ "$pid" ]; then
		kill -0 $pid || { echo "# the attacker $1 has ended"; exit 1; }
		empty $where
		wait $pid 2> /dev/null
	fi
}

# states ATTACKER GROUP: all states in both orders.
states() {
	for state in off default on; do
		cell "$1" "$2" $state 1
	done
	for state in on default off; do
		cell "$1" "$2" $state 2
	done
}

echo "TAP version 13"
echo "1..1"
echo +cpu > $CGROUP/cgroup.subtree_control
for group in victim other; do
	mkdir $CGROUP/$group
	echo "# weight $group $(cat $CGROUP/$group/cpu.weight)"
done
states none same
# First, since without them the rest says nothing.
for attacker in $CONTROLS; do
	cell "$attacker" same off 1 "$CPUS"
	cell "$attacker" same off 2 "$CPUS"
done
for group in same other; do
	for attacker in $ATTACKERS; do
		states "$attacker" $group
	done
done
echo "ok 1 abuse"
