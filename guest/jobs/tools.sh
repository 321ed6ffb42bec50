#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The job of tests/test_llcplot.py: what docs/llcstat.md and docs/hosts.md tell to do with sched-settings, tracefs, trace-cmd,
# perf and llcctl, beside a process of three threads. Prints what they print, each line behind "# NAME ". TRACERS: 1 for
# trace-cmd and perf, too, or empty.

export PYTHONHOME=/usr
SCHED=/sys/kernel/debug/sched TRACING=/sys/kernel/tracing
number=0

# result NAME STATUS: print the result of a step, and /tmp/NAME.
result() {
	number=$((number + 1))
	sed "s/^/# $1 /" "/tmp/$1"
	[ "$2" = 0 ] && echo "ok $number $1" || echo "not ok $number $1 # exit=$2"
}

# What is traced: cache-aware scheduling is off for so long that preferences end, and on again; a thread is moved.
echo 20 > $SCHED/llc_balancing/epoch_affinity_timeout
cat > /tmp/again <<END
echo 0 > $SCHED/llc_balancing/enabled
sleep 0.3
echo 1 > $SCHED/llc_balancing/enabled
sleep 0.3
END
cat > /tmp/move <<'END'
taskset -p 8000 "$1"
sleep 0.2
taskset -p 1 "$1"
sleep 0.2
taskset -p ffff "$1"
END

echo "TAP version 13"
echo "1..$((TRACERS ? 8 : 4))"

# Settings: two that apply, one that may fail, and then one that the kernel refuses.
printf '%s\n' features=SIS_FAST llc_balancing/imb_pct=30 -llc_balancing/none=1 > /tmp/conf
sched-settings /tmp/conf > /tmp/settings 2>&1
result settings $?
grep -qw SIS_FAST $SCHED/features && read -r value < $SCHED/llc_balancing/imb_pct && [ "$value" = 30 ] ||
	echo "not ok 1 settings: they do not last"
printf '%s\n' llc_balancing/imb_pct=101 features=NO_SIS_FAST llc_balancing/imb_pct=20 > /tmp/conf
sched-settings /tmp/conf > /tmp/refused 2>&1
[ $? = 1 ] && ! grep -qw SIS_FAST $SCHED/features || echo "not ok 2 refused: they were not"
grep -q "2 applied, 1 failed" /tmp/refused
result refused $?

echo 0 > $SCHED/llc_balancing/enabled
workload 1 windows=1 window_ms=1200000 sharing 1 3 512 100 1200000 > /tmp/workload 2>&1 &
sleep 0.5
# The process with the threads is a child of the one that was started.
for dir in /proc/[0-9]*/task; do
	set -- "$dir"/*
	[ $# != 3 ] || { pid=${dir#/proc/} pid=${pid%/task} tids=$(cd "$dir" && echo *); break; }
done
echo "# threads $tids of $pid"
filter=
for tid in $tids; do
	filter="$filter${filter:+ || }prev_pid == $tid || next_pid == $tid"
done

# By hand.
echo "$filter" > $TRACING/events/sched/sched_switch/filter
echo 1 > $TRACING/events/sched/sched_switch/enable
for name in prefer gate task move; do
	echo 1 > $TRACING/events/sched/sched_cache_$name/enable
done
sh /tmp/again
echo 0 > $TRACING/events/enable
cat $TRACING/trace > /tmp/tracefs
echo 0 > $TRACING/events/sched/sched_switch/filter
echo > $TRACING/trace
python3 /bin/llcstat --json --pid "$pid" > /tmp/look
sed 's/^/# look /' /tmp/look
grep -q sched_cache_prefer /tmp/tracefs
result tracefs $?

if [ -n "$TRACERS" ]; then
# With trace-cmd: switches, preferences and gates; then, with stacks, what migrates a thread.
cd /tmp || exit
trace-cmd record -q -e sched:sched_switch -f "$filter" -e 'sched:sched_cache_*' -f "tgid == $pid" \
	sh /tmp/again > /tmp/trace-cmd-said 2>&1
trace-cmd report > /tmp/trace-cmd 2>> /tmp/trace-cmd-said
sed 's/^/# trace-cmd-said /' /tmp/trace-cmd-said
grep -q sched_cache_prefer /tmp/trace-cmd
result trace-cmd $?

trace-cmd record -q -T -e sched:sched_migrate_task -f "pid == $tid" -e sched:sched_cache_move \
	-f "pid == $tid" sh /tmp/move "$tid" > /tmp/trace-cmd-said 2>&1
trace-cmd report > /tmp/moved 2>> /tmp/trace-cmd-said
sed 's/^/# trace-cmd-said /' /tmp/trace-cmd-said
grep -q "sched_migrate_task:.* pid=$tid " /tmp/moved
result moved $?

perf record -q -a -e 'sched:sched_switch' --filter "$filter" -e 'sched:sched_cache_*' \
	--filter "tgid == $pid" -o /tmp/perf.data -- sh /tmp/again > /tmp/perf-said 2>&1
perf script -i /tmp/perf.data > /tmp/perf 2>> /tmp/perf-said
sed 's/^/# perf-said /' /tmp/perf-said
grep -q sched_cache_prefer /tmp/perf
result perf $?

perf record -q -a -g -e sched:sched_migrate_task --filter "pid == $tid" -o /tmp/perf.data \
	-- sh /tmp/move "$tid" > /tmp/perf-said 2>&1
perf script -i /tmp/perf.data > /tmp/perf-moved 2>> /tmp/perf-said
sed 's/^/# perf-said /' /tmp/perf-said
grep -q "sched_migrate_task:.* pid=$tid " /tmp/perf-moved
result perf-moved $?
fi

# With advise, the process is aggregated when it is asked for, alone or with another one, and else it is not.
printf '%s\n' llc_balancing/enabled=advise > /tmp/conf
{
	sched-settings /tmp/conf
	sleep 0.3
	python3 /bin/llcctl list
	python3 /bin/llcctl run --always sleep 60 &
	python3 /bin/llcctl pid "$pid" --always
	sleep 0.3
	python3 /bin/llcctl list
	python3 /bin/llcctl suggest --wakeups
	python3 /bin/llcctl pid $! --join "$pid"
	python3 /bin/llcctl pid "$pid" --tolerance 0
	sleep 0.3
	python3 /bin/llcctl list
	python3 /bin/llcctl pid "$pid" --tolerance 101
	python3 /bin/llcctl pid $! --leave
	python3 /bin/llcctl pid "$pid" --never
	sleep 0.3
	python3 /bin/llcctl list
	python3 /bin/llcctl cgroup no/such/group --always
} > /tmp/llcctl 2>&1
grep -q "there is no control group" /tmp/llcctl
result llcctl $?
echo 1 > $SCHED/llc_balancing/enabled
