# SPDX-License-Identifier: GPL-2.0-only
# Functions for the jobs. selftest() replaces the kselftest runner, which needs perl.

SELFTESTS=/selftests
FEATURES_FILE=/sys/kernel/debug/sched/features
KMEMLEAK=/sys/kernel/debug/kmemleak
KCSAN=/sys/kernel/debug/kcsan

# selftest NUMBER NAME SECONDS: run one selftest of sched, for at most SECONDS of the guest's clock,
# and print its result.
# Its output passes through a pipe line by line, because the last lines before a hang matter, and
# its status through a file. The session is killed at the end: a child left behind would keep the
# pipe open.
selftest() {
	echo "# selftests: sched: $2"
	{
		cd "$SELFTESTS/sched" || exit
		# The shell leads the session: a test may create a process group.
		setsid sh -c 'timeout "$0" "./$1"; exit $?' "$3" "$2" < /dev/null 2>&1 &
		wait $!
		echo $? > /tmp/status
		kill -KILL -- -$! 2> /dev/null
	} | while IFS= read -r line; do
		echo "# $line"
	done
	read -r status < /tmp/status
	case $status in
	0) echo "ok $1 selftests: sched: $2" ;;
	4) echo "ok $1 selftests: sched: $2 # SKIP" ;;
	143) echo "not ok $1 selftests: sched: $2 # TIMEOUT $3 seconds" ;;
	*) echo "not ok $1 selftests: sched: $2 # exit=$status" ;;
	esac
}

# result NUMBER STATUS NAME: print the result of a test.
result() {
	[ "$2" = 0 ] && echo "ok $1 $3" || echo "not ok $1 $3 # exit=$2"
}

# feature NAME: print on or off, or missing.
feature() {
	read -r all < "$FEATURES_FILE"
	case " $all " in
	*" $1 "*) echo on ;;
	*" NO_$1 "*) echo off ;;
	*) echo missing ;;
	esac
}

# figure KIND NAME=VALUE...: print a figure for kit/vm/ktap.py: "# {JSON}". What looks like a number is one.
figure() {
	local json="\"figure\": \"$1\"" word value
	shift
	for word; do
		value=${word#*=}
		case $value in
		# No JSON, so that it is an error.
		nan | -nan | inf | -inf) ;;
		"" | *[!0-9.-]* | ?*-* | - | .* | -.* | *. | *.*.*) value="\"$value\"" ;;
		esac
		json="$json, \"${word%%=*}\": $value"
	done
	echo "# {$json}"
}

# set_state FILE=VALUE,...: write to files below /sys/kernel/debug/sched and read back; end the job
# if a file does not keep the value.
set_state() {
	for write in $(echo "$1" | tr , ' '); do
		file=/sys/kernel/debug/sched/${write%%=*} value=${write#*=}
		echo "$value" > "$file" || exit
		# Mainline's llc_balancing/enabled reads 0 and 1, ours never and always.
		case $write in
		llc_balancing/enabled=0) value="0\|never" ;;
		llc_balancing/enabled=1) value="1\|always" ;;
		esac
		grep -qw -- "$value" "$file" || { echo "# $write does not last"; exit 1; }
	done
}

# check_kmemleak NUMBER: have kmemleak scan the memory, and print the result. It is silent about what
# is younger than 5 seconds, and reports what two scans find.
check_kmemleak() {
	sleep 6
	echo scan > "$KMEMLEAK" && echo scan > "$KMEMLEAK" && leaks=$(cat "$KMEMLEAK") && [ -z "$leaks" ]
	status=$?
	echo "$leaks" | sed -n '/./s/^/# /p'
	result "$1" $status kmemleak
}
