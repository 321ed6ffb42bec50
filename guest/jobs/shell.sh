#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A prompt on the console, with job control.

# Only warnings and worse may interrupt the terminal from here on.
dmesg -n 5
stty rows "$LINES" cols "$COLUMNS"
unset LINES COLUMNS
echo
echo "Linux $(uname -r), $(nproc) CPUs. Scheduler features: /sys/kernel/debug/sched/features"
echo "Leave with: poweroff -f   (or end QEMU with Ctrl-A x)"
export PS1='\w # '
cd /
setsid cttyhack sh
