#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of `make boot`: print the topology as the kernel sees it, switch each feature (FEATURES)
# both ways, and run the selftests (TESTS) that print a figure for each. A CPU's L2 and LLC are named
# after the first CPU of each.

. /lib.sh

topology() {
	for dir in /sys/devices/system/cpu/cpu[0-9]*; do
		cpu=${dir##*/cpu}
		node=-1 l2=-1 llc=-1
		for link in "$dir"/node[0-9]*; do
			[ -e "$link" ] && node=${link##*/node}
		done
		for index in "$dir"/cache/index[0-9]*; do
			[ -r "$index/shared_cpu_list" ] || continue
			read -r level < "$index/level"
			read -r cpus < "$index/shared_cpu_list"
			case $level in
			2) l2=${cpus%%[-,]*} ;;
			3) llc=${cpus%%[-,]*} ;;
			esac
		done
		figure cpu cpu="$cpu" l2="$l2" llc="$llc" node="$node"
	done
	[ -r /sys/kernel/debug/sched/l2_groups ] || return
	while read -r cpu group; do
		[ "$cpu" = cpu ] || figure group cpu="$cpu" group="$group"
	done < /sys/kernel/debug/sched/l2_groups
}

# set_to NAME_OR_NO_NAME WANT: write it and see that the feature reads WANT then.
set_to() {
	echo "$1" > "$FEATURES_FILE" && [ "$(feature "${1#NO_}")" = "$2" ]
}

# Both ways, and the default again at the end.
toggle() {
	case $(feature "$1") in
	off) set_to "$1" on && set_to "NO_$1" off ;;
	on) set_to "NO_$1" off && set_to "$1" on ;;
	*) false ;;
	esac
}

# The name of no feature is refused with EINVAL and changes nothing.
rubbish() {
	read -r before < "$FEATURES_FILE"
	for word in NO_SUCH_FEATURE_AS_THIS rubbish; do
		answer=$( (echo $word > "$FEATURES_FILE") 2>&1) && return 1
		case $answer in
		*"Invalid argument"*) ;;
		*) return 1 ;;
		esac
	done
	read -r after < "$FEATURES_FILE"
	[ "$before" = "$after" ]
}

set -- $FEATURES
features=$#
set -- $TESTS
echo "TAP version 13"
echo "1..$((1 + features + $#))"
figure kernel release="$(uname -r)"
topology
rubbish
result 1 $? rubbish
number=1
for name in $FEATURES; do
	number=$((number + 1))
	figure state feature="$name" state="$(feature "$name")"
	toggle "$name"
	result $number $? "toggle $name"
done
for name in $TESTS; do
	number=$((number + 1))
	selftest $number "$name" 120
done
