#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run each program of PROGRAMS, a line each as `cases` takes it after MS, in ROUNDS rounds of all STATES: off and on,
# which are what set_state is to write, pinned (off, and each process pinned to LLCs), and rusty (off, with scx_rusty
# loaded). Every second round goes through the states backwards.

. /lib.sh
SCX=/sys/kernel/sched_ext
RUSTY=

# loaded: does scx_rusty schedule, and has nothing else been loaded since? Its own end is its watchdog's, or an error.
loaded() {
	[ -n "$RUSTY" ] && kill -0 "$RUSTY" && [ "$(cat $SCX/state)" = enabled ] &&
		[ "$(cat $SCX/root/ops)" = rusty ] && [ "$(cat $SCX/enable_seq)" = "$SEQ" ]
} 2> /dev/null

# wait_for STATE: wait for a state of sched_ext, for 60 s at most; not for one that scx_rusty will not reach.
wait_for() {
	for _ in $(seq 120); do
		[ "$(cat $SCX/state)" = "$1" ] && return
		[ "$1" = disabled ] || kill -0 "$RUSTY" 2> /dev/null || break
		sleep 0.5
	done
	return 1
}

# load, unload: scx_rusty. The kernel counts enable_seq after it has set the state. At unload it may have been ended.
load() {
	mkdir -p /var/run/scx/root
	scx_rusty --interval 0.5 --tune-interval 0.1 > /tmp/rusty 2>&1 &
	RUSTY=$!
	wait_for enabled && sleep 0.5 && SEQ=$(cat $SCX/enable_seq) && loaded
}

unload() {
	[ -n "$RUSTY" ] || return
	kill "$RUSTY" 2> /dev/null
	wait_for disabled || kill -KILL "$RUSTY"
	wait "$RUSTY" 2> /dev/null
	RUSTY=
}

# said: what the kernel and scx_rusty said of its end.
said() {
	dmesg | grep sched_ext: | tail -n 4 | sed 's/^/# /'
	grep . /tmp/rusty | tail -n 12 | sed 's/^/# /'
}

# one STATE ROUND ARGUMENT...: run a program once in a state that is set, and print its figures.
one() {
	state=$1 round=$2
	shift 2
	if [ "$state" = rusty ] && ! loaded && { unload; ! load; }; then
		figure lost program="$*" round="$round" when=loading
		said
		return
	fi
	timeout 120 cases "$MS" "$@" > /tmp/case 2>&1
	status=$?
	if [ "$state" = rusty ] && ! loaded; then
		figure lost program="$*" round="$round" when=running
		said
		return
	fi
	[ $status = 0 ] || echo "# $state, $*: status $status"
	sed "s/\"figure\": \"case\"/&, \"program\": \"$*\", \"state\": \"$state\", \"round\": $round/; /^# /!s/^/# /" /tmp/case
}

echo "TAP version 13"
echo "1..1"
printf %s "$PROGRAMS" > /tmp/programs
backwards=
for state in $STATES; do
	backwards="$state $backwards"
done
for round in $(seq "$ROUNDS"); do
	[ $((round % 2)) = 1 ] && order=$STATES || order=$backwards
	for state in $order; do
		[ "$state" = on ] && set_state "$ON" || set_state "$OFF"
		[ "$state" = pinned ] && export PINNED=1 || unset PINNED
		while read -r arguments; do
			one "$state" "$round" $arguments < /dev/null
		done < /tmp/programs
		if [ "$state" = rusty ]; then
			figure seq round="$round" enable_seq="$(cat $SCX/enable_seq)" nr_rejected="$(cat $SCX/nr_rejected)"
			unload
		fi
	done
done
echo "ok 1 peers"
