#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A job that fails in the way that HOW names, for the tests of kit.vm.guest.

PROVOKE=/sys/kernel/debug/provoke-crash/DIRECT

echo "TAP version 13"
echo "1..1"
case $HOW in
panic) echo PANIC > $PROVOKE ;;
warn) echo WARNING > $PROVOKE ;;
hang) while :; do sleep 1; done ;;
fail) exit 3 ;;
esac
echo "ok 1 came to its end"
