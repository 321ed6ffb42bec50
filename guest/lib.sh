# SPDX-License-Identifier: GPL-2.0-only
# For the jobs: run kernel selftests as the kselftest runner does, which needs perl to do it.

SELFTESTS=/selftests
FEATURES_FILE=/sys/kernel/debug/sched/features

# selftest NUMBER NAME SECONDS: run one selftest of sched, for so long at most by the guest's
# clock, and print its result.
# What it prints is passed on at once, as the last lines before a hang are the ones to read. So it
# goes through a pipe, and the status through a file. The session is killed at the end: a child
# that is left behind would keep the pipe open, and us waiting.
selftest() {
	echo "# selftests: sched: $2"
	{
		cd "$SELFTESTS/sched" || exit
		# The shell leads the session: a test may want a process group of its own.
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

# feature NAME: print on or off, or missing.
feature() {
	read -r all < "$FEATURES_FILE"
	case " $all " in
	*" $1 "*) echo on ;;
	*" NO_$1 "*) echo off ;;
	*) echo missing ;;
	esac
}

# set_state FILE=VALUE,...: write to files below /sys/kernel/debug/sched and read back; end the job
# if one does not last.
set_state() {
	for write in $(echo "$1" | tr , ' '); do
		file=/sys/kernel/debug/sched/${write%%=*} value=${write#*=}
		echo "$value" > "$file" || exit
		grep -qw -- "$value" "$file" || { echo "# $write does not last"; exit 1; }
	done
}
