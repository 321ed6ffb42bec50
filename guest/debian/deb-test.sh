#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# systemd runs this in the guest of `make deb-test`, in each of its boots. With lockdown: see what docs/hosts.md
# says of locked-down hosts. Without: see that the boot was complete, try GRUB's commands, run the selftests,
# and remove the kernel that runs. Prints KTAP and "END <status>".

release=$(uname -r)
sched=/sys/kernel/debug/sched
cfg=/boot/grub/grub.cfg
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

fails() { # COMMAND...
	! "$@"
}

settings_failed() {
	systemctl is-failed sched-settings && journalctl -u sched-settings -o cat | tee /tmp/said &&
		grep -F "/etc/sched-settings.conf:1: features=SIS_FAST: refused" /tmp/said
}
settings_applied() { # and the defaults back, for the selftests
	grep -w SIS_FAST $sched/features && grep -x 30 $sched/llc_balancing/imb_pct &&
		echo NO_SIS_FAST > $sched/features && echo 20 > $sched/llc_balancing/imb_pct
}

grub() { # the commands of docs/hosts.md, and the titles that they take
	printf 'GRUB_DEFAULT=saved\nGRUB_DISTRIBUTOR=Debian\n' > /etc/default/grub
	mkdir -p /boot/grub
	update-grub || return
	title="Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux"
	grub-set-default "$title $(basename /lib/modules/*-cloud-amd64)"
	grub-reboot "$title $(basename /lib/modules/*-cachetopo-*)"
	grub-editenv list
	grep -E "^submenu|menuentry '" $cfg | cut -d "'" -f 2
	grep -q "^submenu '${title%>*}'" $cfg &&
		grep -q "menuentry '${title#*>} $release'" $cfg &&
		grep -q "menuentry '${title#*>} $(basename /lib/modules/*-cloud-amd64)'" $cfg
}

selftests() { # the results; on the console, what the tests print, if one fails
	/selftests/run_kselftest.sh -c sched > /tmp/selftests
	grep -E '^(TAP version|1\.\.|(not )?ok [0-9]+ selftests:)' /tmp/selftests
	grep -q '^ok ' /tmp/selftests && ! grep -q '^not ok' /tmp/selftests && return
	cat /tmp/selftests > /dev/ttyS0
	return 1
}

left() { # files of the kernel that runs, and whether GRUB's menu has it
	find /boot /lib/modules /usr/src /var/lib/dkms /var/lib/initramfs-tools -name "*$release*"
	grep -F "$release" $cfg
}
nothing_left() {
	left
	[ -z "$(left)" ]
}

echo "TAP version 13"
if grep -q '\[none\]' /sys/kernel/security/lockdown; then
	echo "1..11"
	check "all units of systemd started" systemctl is-system-running --wait
	check "multi-user.target is reached" systemctl is-active multi-user.target
	check "it is the patched kernel" expr "$release" : '.*-cachetopo-.*'
	check "features has SCHED_CACHE" grep -w SCHED_CACHE $sched/features
	check "sched-settings applied its file" settings_applied
	check "the initramfs loaded modules" grep virtio_blk /proc/modules
	check "DKMS's module loads" modprobe hello
	check "GRUB has the titles" grub
	check "the selftests pass" selftests
	check "apt removes the packages" apt-get -y purge "linux-image-$release" "linux-headers-$release"
	check "nothing is left of them" nothing_left
else
	echo "1..7"
	check "a unit of systemd has failed" expr "$(systemctl is-system-running --wait)" : degraded
	check "features is refused" fails cat $sched/features
	check "the list of LLCs can be read" cat $sched/llc_balancing/llcs
	check "sched-settings says that it is refused" settings_failed
	check "sched_features= names what it does not know" sh -c 'dmesg | grep "there is no feature \"NONSENSE\""'
	check "the initramfs loaded modules" grep virtio_blk /proc/modules
	check "DKMS's module, with a key of its own, is refused" fails modprobe hello
fi
echo "END 0"
poweroff -f
