#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The features toggled TOGGLES times under load while CPUs come and go (HOTPLUG=1): the selftest
# `features` reads both variables.

. /lib.sh

echo "TAP version 13"
echo "1..1"
selftest 1 features 840
