#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Toggle the features TOGGLES times under load, with CPU hotplug (HOTPLUG=1): the selftest `features`
# reads both variables.

. /lib.sh

echo "TAP version 13"
echo "1..1"
selftest 1 features 840
