#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of tests/test_llcstat.py: run tools/llcstat, as /bin/llcstat, beside a process that fits into
# an LLC and one that does not, and print what it prints, each line behind "# NAME ". At last, run
# tools/sched-ab, as /bin/sched-ab, with a command that prints the bits.

export PYTHONHOME=/usr COLUMNS=110

# run NUMBER NAME ARGUMENT...: run llcstat and print its output behind NAME.
run() {
	number=$1 name=$2
	shift 2
	python3 /bin/llcstat "$@" > /tmp/out 2>&1
	status=$?
	sed "s/^/# $name /" /tmp/out
	[ $status = 0 ] && echo "ok $number $name" || echo "not ok $number $name # exit=$status"
}

echo "TAP version 13"
echo "1..4"
# An unpatched kernel runs this, too.
echo 1 > /proc/sys/kernel/sched_schedstats
workload 1 windows=1 window_ms=60000 sharing 1 3 512 100 60000 > /tmp/fits 2>&1 &
workload 1 windows=1 window_ms=60000 sharing 1 2 65536 100 60000 > /tmp/large 2>&1 &
sleep 1
run 1 text --record /tmp/record
# The one with three threads: they are in a child of the process that was started.
run 2 pid --pid "$(awk '$2 == "workload" && $3 == 3 { print $1 }' /tmp/out)"
run 3 watch --watch 1 --count 1
features=/sys/kernel/debug/sched/features
cat $features > /tmp/before
python3 /bin/sched-ab -n 1 -d /ab SIS_FAST,SCHED_CACHE -- cat $features > /tmp/out 2>&1 &&
	cmp /tmp/before $features && result=ok || result="not ok"
echo "$result 4 sched-ab"
sed 's/^/# ab /' /tmp/out
for run in off-1 on-1 on-2 off-2; do
	sed "s/^/# ab-$run /" /ab/$run.txt
done
sed 's/^/# record /' /tmp/record
sed 's/^/# workload /' /tmp/fits /tmp/large
