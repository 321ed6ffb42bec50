#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Load the scheduler's paths, for kit/trials/irqsoff.py to measure how long they have interrupts off: programs with
# random numbers from SEED on CPUS CPUs, LLC of these to an LLC, while the machine changes below them. STATE: what
# set_state is to write. The same for all kernels: what a kernel lacks is left out.

. /lib.sh
CGROUP=/sys/fs/cgroup
LAST=$((CPUS - 1))
EVENT=/sys/kernel/tracing/events/sched/sched_runnable_est/enable

# load ARGUMENT...: run a workload again and again, until all is killed.
load() {
	while :; do
		workload $SEED "$@"
	done > /dev/null 2>&1 &
}

echo "TAP version 13"
echo "1..1"
set_state "$STATE"
toggle=SIS_UTIL
[ "$(feature SCHED_CACHE)" != on ] || toggle=SCHED_CACHE
# Processes that follow a preferred LLC, one that is too large for it, one with many threads on one CPU, threads and
# processes that come and go, and real-time tasks.
load rate 1 $((LLC / 8)) 5 100 threads pipe 0 $LAST
load rate 1 $((LLC / 2)) 5 100 threads pipe 0 $LAST
load cpus=$((LLC - 1)) hog 1 $((LLC / 2)) 4 5 100
load messages 1 $((LLC / 8)) 5 threads pipe 0 $LAST
load messages 2 4 5 processes pipe 0 $LAST
load cyclic $((LLC / 8)) 1000 100
while :; do /bin/true; done &
# Do not wait for the load.
renice -n -20 $$
usleep 50000

echo +cpuset > $CGROUP/cgroup.subtree_control
mkdir $CGROUP/part
echo NO_$toggle > $FEATURES_FILE
usleep 5000
echo $toggle > $FEATURES_FILE
echo $((LLC / 2))-$((LLC / 2 + 3)) > $CGROUP/part/cpuset.cpus
echo root > $CGROUP/part/cpuset.cpus.partition
usleep 5000
echo member > $CGROUP/part/cpuset.cpus.partition
# The patches add this event.
if [ -w $EVENT ]; then
	echo 1 > $EVENT
	usleep 5000
	echo 0 > $EVENT
fi
cat /sys/kernel/debug/sched/debug /sys/kernel/debug/sched/llc_balancing/* > /dev/null 2>&1
# All kernels for as long, or the longest section of one would be the longest of more.
until [ "$(cut -d . -f 1 /proc/uptime)" -ge 4 ]; do
	usleep 20000
done
echo "# $(cut -d ' ' -f 1 /proc/uptime) s, $(cut -d ' ' -f 4 /proc/loadavg) tasks run, $toggle $(feature $toggle)"
echo "ok 1 irqsoff"
