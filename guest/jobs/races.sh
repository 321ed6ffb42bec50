#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Drive the known races CASES with the random numbers of SEED, each for SECONDS of the guest's clock, with their
# protections or, if OUT is 1, without: see guest/torture/races.c.

echo "TAP version 13"
echo "1..$(echo "$CASES" | wc -w)"
number=0
for case in $CASES; do
	number=$((number + 1))
	if torture races "$SEED" "$SECONDS" "$case" "$OUT"; then
		echo "ok $number $case"
	else
		echo "not ok $number $case # exit=$?"
	fi
done
