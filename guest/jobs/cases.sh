#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Run the cases of CASES, a line each: its name, and the arguments of guest/cases after MS. Each runs ROUNDS
# times in the states against, state, state, against, which are what set_state is to write, with processes of its own.

. /lib.sh

# one NAME STATE ROUND ARGUMENT...: run a case once and print its figures.
one() {
	name=$1 state=$2 round=$3
	shift 3
	[ "$state" = state ] && set_state "$STATE" || set_state "$AGAINST"
	timeout 120 cases "$MS" "$@" > /tmp/case 2>&1
	status=$?
	sed "s/\"figure\": \"case\"/&, \"case\": \"$name\", \"state\": \"$state\", \"round\": $round/; /^# /!s/^/# /" /tmp/case
	return $status
}

echo "TAP version 13"
printf %s "$CASES" > /tmp/cases
echo "1..$(wc -l < /tmp/cases)"
number=0
while read -r name arguments; do
	number=$((number + 1)) failed=0
	for round in $(seq "$ROUNDS"); do
		for state in against state state against; do
			one "$name" $state "$round" $arguments < /dev/null || failed=$?
		done
	done
	result $number $failed "$name"
done < /tmp/cases
