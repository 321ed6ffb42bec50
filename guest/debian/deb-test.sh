#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# systemd runs this in the guest of `make deb-test`: see that the boot was complete, and remove the kernel
# that runs. Prints KTAP and "END <status>".

release=$(uname -r)
number=0

# check NAME COMMAND...: print what the command prints, and whether it succeeded.
check() {
	number=$((number + 1))
	name=$1
	shift
	said=$("$@" 2>&1) && result=ok || result="not ok"
	printf '%s\n' "$said" | sed 's/^/# /'
	echo "$result $number $name"
}

left() { # files of the kernel that runs
	find /boot /lib/modules /usr/src /var/lib/dkms /var/lib/initramfs-tools -name "*$release*"
}
nothing_left() {
	left
	[ -z "$(left)" ]
}

echo "TAP version 13"
echo "1..8"
check "all units of systemd started" systemctl is-system-running --wait
check "multi-user.target is reached" systemctl is-active multi-user.target
check "it is the patched kernel" expr "$release" : '.*-cachetopo-.*'
check "features has SCHED_CACHE" grep -w SCHED_CACHE /sys/kernel/debug/sched/features
check "the initramfs loaded modules" grep virtio_blk /proc/modules
check "DKMS's module loads" modprobe hello
check "apt removes the packages" apt-get -y purge "linux-image-$release" "linux-headers-$release"
check "nothing is left of them" nothing_left
echo "END 0"
poweroff -f
