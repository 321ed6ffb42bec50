#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs in the root of `make deb-test`, before it becomes a disk: install the packages in /packages, with a
# module that DKMS has to build for them, and see what apt would do to them. Install sched-settings as
# docs/hosts.md tells to.
set -eu

dkms add hello/1.0
dpkg -i /packages/*.deb
for what in full-upgrade autoremove; do
	apt-get -s "$what" > /packages/said
	if grep cachetopo /packages/said; then
		echo "apt-get $what would change the packages"
		exit 1
	fi
done
cd /packages/tools
install sched-settings /usr/local/sbin/
install -m 644 sched-settings.service /etc/systemd/system/
printf '%s\n' features=SIS_FAST llc_balancing/imb_pct=30 -llc_balancing/none=1 > /etc/sched-settings.conf
systemctl enable sched-settings deb-test
cd /
rm -r /packages
