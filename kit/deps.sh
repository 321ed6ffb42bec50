#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# deps.sh COMMAND...: install the Debian packages that these commands of commands.txt need and that are
# missing. TIERS: tiers of packages.txt to install instead. SUDO: what to become root with.
# Without dpkg nothing can be checked: list the packages and fail. Python may be missing here.
set -eu
top=$(dirname "$0")/..
list=$top/packages.txt

for command; do
	LC_ALL=C awk -v name="$command:" '$1 == name { found = 1 } END { exit !found }' "$top/commands.txt" || {
		echo "deps: there is no command $command in commands.txt" >&2
		exit 1
	}
done

tiers=${TIERS-}
[ -n "$tiers" ] || tiers=$(LC_ALL=C awk -v commands=" $* " '
	/^[a-z]/ { sub(":.*", ""); here = index(commands, " " $0 " ") }
	here && $1 == "tiers" { $1 = ""; print }' "$top/commands.txt" | tr ' ' '\n' | sort -u)

packages() { # of one tier
	awk -v tier="[$1]" '
		/^(#|$)/ { next }
		/^\[/ { here = $1 == tier; next }
		here { sub(":.*", ""); print }' "$list"
}

all=
for tier in $tiers; do
	found=$(packages "$tier")
	if [ -z "$found" ]; then
		echo "deps: no tier $tier; there are: $(sed -n 's/^\[\(.*\)\]$/\1/p' "$list" | tr '\n' ' ')" >&2
		exit 1
	fi
	all="$all $found"
done
all=$(printf '%s\n' $all | sort -u)
[ -n "$all" ] || exit 0

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	{
		echo 'deps: there is no apt here to check for and install what this needs. Its Debian packages:'
		for tier in $tiers; do
			echo "  $tier:" $(packages "$tier")
		done
		echo 'Way out: install what your distribution has for them and add DEPS=0 to the command,'
		echo 'or use the container: "Other distributions" in docs/hosts.md'
	} >&2
	exit 1
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $all 2>/dev/null |
	sed -n 's/^installed //p')
missing=
for package in $all; do
	printf '%s\n' "$installed" | grep -qxF "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ -n "${SUDO-}" ] && ! command -v "$SUDO" >/dev/null; then
	echo "deps: neither root nor $SUDO here; as root: apt-get install$missing" >&2
	exit 1
fi
echo "deps: installing$missing"
# Scripts are not asked.
if [ -t 0 ]; then
	printf 'deps: go on? [Y/n] '
	read -r answer || answer=n
	case $answer in
	'' | [Yy]*) ;;
	*)
		echo 'deps: nothing is installed; DEPS=0 runs the command without' >&2
		exit 1
		;;
	esac
fi
# A source that is not Debian's may fail. What is missing is asked for all the same.
${SUDO-} apt-get -q update ||
	echo 'deps: the package lists are not updated; trying with those that are there' >&2
${SUDO-} env DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing || {
	echo "deps: not installed; as root: apt-get update, apt-get install$missing" >&2
	exit 1
}
