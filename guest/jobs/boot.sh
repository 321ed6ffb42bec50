#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of `make boot`: print the topology as the kernel sees it, switch each feature (FEATURES)
# both ways, and run the selftests (TESTS) that print a figure for each. kit/vm/demo.py reads the lines
# that begin with "# release", "# cpu", "# group" and "# state".

. /lib.sh

# The list of CPUs in a file of sysfs, or "-" if the file is not there.
list_in() {
	value=-
	[ -r "$1" ] && read -r value < "$1"
}

topology() {
	for dir in /sys/devices/system/cpu/cpu[0-9]*; do
		cpu=${dir##*/cpu}
		node=-
		for link in "$dir"/node[0-9]*; do
			[ -e "$link" ] && node=${link##*/node}
		done
		l2=- llc=-
		for index in "$dir"/cache/index[0-9]*; do
			list_in "$index/level"
			case $value in
			2) list_in "$index/shared_cpu_list" && l2=$value ;;
			3) list_in "$index/shared_cpu_list" && llc=$value ;;
			esac
		done
		echo "# cpu $cpu l2=$l2 llc=$llc node=$node"
	done
	[ -r /sys/kernel/debug/sched/l2_groups ] || return
	while read -r cpu group; do
		[ "$cpu" = cpu ] || echo "# group $cpu $group"
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

# result NUMBER STATUS NAME
result() {
	[ "$2" = 0 ] && echo "ok $1 $3" || echo "not ok $1 $3"
}

set -- $FEATURES
features=$#
set -- $TESTS
echo "TAP version 13"
echo "1..$((1 + features + $#))"
echo "# release $(uname -r)"
topology
rubbish
result 1 $? rubbish
number=1
for name in $FEATURES; do
	number=$((number + 1))
	echo "# state $name $(feature "$name")"
	toggle "$name"
	result $number $? "toggle $name"
done
for name in $TESTS; do
	number=$((number + 1))
	selftest $number "$name" 120
done
