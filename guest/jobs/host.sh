#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of tests/test_host.py: run the directory of make bench-host-dir, in /bench, as on a host.
# Check that it refuses bad settings, measures, and restores what it toggled however it ends.

. /lib.sh

# A run that lasts until it is ended: more than a minute of the guest's clock for each state. It is
# noisy because this script polls.
LONG="NOISY=1 FULL=1 FEATURES=SIS_FAST WORKLOADS=hackbench/threads-pipe-2"

say() {
	sed 's/^/# /' /tmp/out
}

features() {
	cat "$FEATURES_FILE"
}

# wait_until SECONDS COMMAND...
wait_until() {
	left=$(($1 * 5))
	shift
	until "$@"; do
		left=$((left - 1))
		[ $left -gt 0 ] || return
		sleep 0.2
	done
}

is_as_before() {
	[ "$(features)" = "$before" ]
}

measures_or_ended() {
	! kill -0 $host 2> /dev/null || measures
}

measures() {
	! is_as_before && pidof hackbench > /tmp/hackbench
}

all_gone() {
	is_as_before && ! pidof hackbench > /tmp/hackbench
}

# Start a long run in the background ($host) and wait until it has toggled a feature.
begin() {
	# A shell makes its background processes ignore SIGINT.
	python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp("./run", ["./run"] + sys.argv[1:])' $LONG > /tmp/out 2>&1 &
	host=$!
	wait_until 120 measures_or_ended && measures || { say; return 1; }
}

# ended_by SIGNAL: whether a run that is ended by the signal restores the features.
ended_by() {
	begin || return
	kill -"$1" $host
	wait $host
	echo "# status $?"
	wait_until 120 all_gone
	status=$?
	say
	return $status
}

refuses() {
	./run "$@" > /tmp/out 2>&1 && return 1
	say
	is_as_before && ! grep -q Traceback /tmp/out
}

measures_and_ends() {
	both=both:features=TTWU_QUEUE_L2,features=TTWU_QUEUE_L2_ON_CPU
	./run SHORT=1 NOISY=1 FEATURES=TTWU_QUEUE_L2 \
		"STATES=$both;tolerant:llc_balancing/aggr_tolerance=100" \
		'WORKLOADS=hackbench/threads-pipe-2 hackbench/threads-sockets-2' > /tmp/out 2>&1
	status=$?
	say
	for file in results/*/host-*.json; do
		# One line for each file, so that no other output splits it.
		tr -d '\n' < "$file" | sed 's/^{/# {"figure": "result",/'
		echo
	done
	[ $status = 0 ] && is_as_before
}

# A child inherits the custom slice.
has_slice() {
	python3 -m kit.host.slice 100000 sh -c '(cat /proc/self/sched; :)' > /tmp/out
	grep -x 'se.slice *: *100000' /tmp/out
}

export PYTHONHOME=/usr
cd /bench || exit
echo "TAP version 13"
echo "1..6"
# Differ from the state at boot.
echo TTWU_QUEUE_L2 > "$FEATURES_FILE"
echo NO_SCHED_CACHE > "$FEATURES_FILE"
before=$(features)
refuses SHORT=1 FEATURES=NO_SUCH
result 1 $? refuses
measures_and_ends
result 2 $? measures
number=2
for name in INT TERM KILL; do
	number=$((number + 1))
	ended_by $name
	result $number $? "put back after SIG$name"
done
has_slice
result 6 $? "slice"
