#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# For tests/test_calibrate.py: ./run calibrate in the directory of make bench-host-dir, in /bench.
# Prints the file that it writes, each line behind "# toml ".

export PYTHONHOME=/usr
mkdir -p /run
cd /bench || exit
echo "TAP version 13"
echo "1..1"
./run calibrate SHORT=1 NOISY=1 NAME=guest > /tmp/out 2>&1
status=$?
sed 's/^/# /' /tmp/out
sed 's/^/# toml /' machines/caches/guest.toml
[ $status = 0 ] && echo "ok 1 calibrate" || echo "not ok 1 calibrate"
