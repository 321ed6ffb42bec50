#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Drive the known races CASES with the random numbers of SEED, each for SECONDS of the guest's clock, with their
# protections or, if OUT is 1, without: see guest/torture/races.c.

. /lib.sh

echo "TAP version 13"
echo "1..$(echo "$CASES" | wc -w)"
number=0
for case in $CASES; do
	number=$((number + 1))
	torture races "$SEED" "$SECONDS" "$case" "$OUT"
	result $number $? "$case"
done
