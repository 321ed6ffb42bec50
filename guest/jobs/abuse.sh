#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Measure for MS ms how late the victims' threads run, while an attacker of kit/trials/abuse.py loads the CPUs with
# THREADS threads that compute at a time. off, default and on are what set_state is to write for each state. CPUS: all
# that there are, for the control.

. /lib.sh
CGROUP=/sys/fs/cgroup
# The victims: two threads that wake three others each. A worker computes for 100 us, and sleeps for 500 us.
VICTIMS="latency 2 3 100 500 200 $MS"
FOREVER=100000

# attack NAME: load the CPUs until killed. None but the control needs a privilege.
attack() {
	case $1 in
	processes) exec workload 1 hog $(((THREADS + 1) / 2)) 2 4 5 $FOREVER ;;
	flood) exec workload 1 handoff "$THREADS" 20 0 4 5 $FOREVER ;;
	storm)
		for _ in $(seq "$THREADS"); do
			while :; do /bin/true; done &
		done
		wait
		;;
	fifo)
		# They take all CPUs for 2 ms, four times in each 20 if chance does not let two begin together. What is
		# about to run when they begin waits for them: with one of them, that is less than 1 % of the wakeups.
		for seed in 1 2 3 4; do
			workload $seed cyclic "$CPUS" 20000 $FOREVER lockstep &
		done
		wait
		;;
	esac
}

# cell ATTACKER STATE REPEAT: measure in one state. All threads are new: nothing is left of what another state has
# decided. The attacker is in a cgroup of its own, with the weight of that of the victims.
cell() {
	writes=
	eval "writes=\$$2"
	set_state "$writes"
	(echo 0 > $CGROUP/attacker/cgroup.procs && attack "$1") > /dev/null &
	pid=$!
	(echo 0 > $CGROUP/victims/cgroup.procs && exec workload "$3" $VICTIMS) > /tmp/lines || exit
	read -r p99 _ more < /tmp/lines
	figure lateness attacker="$1" state="$2" repeat="$3" p99="$p99" $more
	[ "$1" = none ] || kill -0 $pid || { echo "# the attacker $1 has ended"; exit 1; }
	echo 1 > $CGROUP/attacker/cgroup.kill
	wait $pid 2> /dev/null
}

echo "TAP version 13"
echo "1..1"
echo +cpu > $CGROUP/cgroup.subtree_control
mkdir $CGROUP/victims $CGROUP/attacker
for attacker in none $ATTACKERS; do
	for state in off default on; do
		cell $attacker $state 1
	done
	for state in on default off; do
		cell $attacker $state 2
	done
done
# Without it the rest says nothing.
cell fifo off 1
cell fifo off 2
echo "ok 1 abuse"
