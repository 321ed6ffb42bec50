# SPDX-License-Identifier: GPL-2.0-only

PYTHON ?= /usr/bin/python3
# Every other variable is a setting of the kit: `make settings` lists them.

# Outputs, python's and pytest's caches too, are all below one directory.
OUT := $(or $(KIT_BUILD),$(CURDIR)/build)
# Neither make nor the kernel's makefiles can do with such a path; rm would remove something else.
ifneq ($(words $(CURDIR) $(OUT)),2)
$(error there is a space in $(CURDIR) or $(OUT))
endif
# distclean would remove results/ and machines/ of the repository.
ifneq ($(filter $(abspath $(OUT))/%,$(abspath $(CURDIR))/.),)
$(error KIT_BUILD=$(OUT) is the repository or a directory above it)
endif
export PYTHONPYCACHEPREFIX := $(OUT)/pycache

KIT := $(PYTHON) -m kit
# apt-get writes to the system: as root, or by way of sudo.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# 0: what the target needs is there, in packages that make cannot see. For systems without apt.
DEPS ?=

# The tiers of packages.txt that each target needs. The tests are collected together, so all of them
# need all python modules.
tiers_tree := tree
tiers_export := tree
tiers_refresh := tree
tiers_bundle := tree
tiers_kernel := tree kernel
tiers_deb := tree kernel deb
tiers_deb-test := $(tiers_deb) boot deb-test
tiers_boot := tree kernel boot
tiers_shell := $(tiers_boot)
tiers_selftest := $(tiers_boot)
tiers_stress := $(tiers_boot)
tiers_torture := $(tiers_boot) torture
tiers_races := $(tiers_boot)
tiers_abuse := $(tiers_boot)
tiers_irqsoff := $(tiers_boot)
tiers_soak := $(tiers_boot)
tiers_checks := tree kernel check cross
tiers_each-patch := $(tiers_boot)
tiers_mail := tree
tiers_litmus := tree
tiers_bench-cost := $(tiers_boot)
tiers_bench-host-dir := tree
tiers_report := report
tiers_sim := $(tiers_boot) report sim
tiers_sim-all := $(tiers_sim)
tiers_sim-validate := $(tiers_sim)
tiers_test-fast := tree kernel report sim torture test
tiers_test-patches := $(tiers_test-fast) check cross
tiers_test-boot := $(tiers_test-fast) boot
tiers_test-long := $(tiers_test-boot)
tiers_test := $(tiers_test-patches) boot
tiers_deps := $(tiers_test)
TIERS := $(sort $(foreach goal,$(MAKECMDGOALS),$(tiers_$(goal))))

.DEFAULT_GOAL := help
.PHONY: help settings deps tree export refresh bundle kernel deb deb-test boot shell selftest stress torture races abuse irqsoff soak checks each-patch mail litmus \
	bench-cost bench-host bench-host-dir calibrate report sim sim-all sim-validate test test-fast test-patches test-boot test-long \
	clean distclean

help: ## this list
	@echo 'make TARGET [SETTING=VALUE]...      make settings: all settings and their targets'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

settings: ## the settings, and the targets that take each
	@$(KIT) settings

deps: ## install what the target needs of packages.txt and is missing: TIERS= names tiers
ifneq ($(DEPS),0)
	@SUDO=$(SUDO) sh kit/deps.sh $(TIERS)
endif

tree: deps ## the patches as a git tree, one commit a patch, in build/6.12/linux
	@$(KIT) tree

export: deps ## write that tree's commits back to patches/
	@$(KIT) export

refresh: deps ## move the series to the newest base, or to LINUX=, patch by patch
	@$(KIT) refresh

bundle: deps ## the patches as one tarball in build/6.12/bundle, for patch, quilt, git am and git fetch
	@$(KIT) bundle

kernel: deps ## build a kernel: BUILD=stack, base (no patches), nocache, offstack, debug (lockdep), kasan, kcsan, leak, race, races, rt, scx or host
	@$(KIT) kernel

deb: deps ## Debian packages of the patched kernel for hosts: CONFIG=cloud, generic or a .config (hours)
	@$(KIT) deb

deb-test: deps ## build those packages, install them in a Debian 12, boot it in QEMU, remove them (hours)
	@$(KIT) deb-test

boot: deps ## boot it on MACHINE=, switch every feature, show what each one changes
	@$(KIT) boot

shell: deps ## a prompt in the guest
	@$(KIT) shell

selftest: deps ## the stack's kernel selftests in the guest
	@$(KIT) selftest

stress: deps ## toggle the features under load and CPU hotplug in the guest
	@$(KIT) stress

torture: deps ## all at once that could break the scheduler, in guests for MINUTES=, with SEED=
	@$(KIT) torture

races: deps ## each known race, with its protection and without: SEED=, CASES= names some
	@$(KIT) races

abuse: deps ## what an unprivileged user with THREADS= can do to the wakeups of others, features off and on
	@$(KIT) abuse

irqsoff: deps ## the longest sections with interrupts off, without the patches and with them, features off and on
	@$(KIT) irqsoff

soak: deps ## workloads with and without aggregation in the guest, and 5 minutes of steady state
	@$(KIT) soak

checks: deps ## compile, checkpatch and sparse for each patch; the other configurations
	@$(KIT) checks

each-patch: deps ## build and boot each patch with the selftests that exist by then: PATCHES='5 40..45'
	@$(KIT) each-patch

mail: deps ## the series as mails in a directory, for SENDER='Name <address>' to send: docs/submitting.md
	@$(KIT) mail

litmus: deps ## the stack's litmus tests against the kernel's memory model (fetches herd7)
	@$(KIT) litmus

bench-cost: deps ## instructions and memory that the stack costs, against BUILD=base and COMPARE=7.3
	@$(KIT) bench-cost

bench-host: ## benchmarks on this host itself, as root: features off and on in turn
	@$(KIT) bench-host

bench-host-dir: deps ## what bench-host needs, in one directory to copy to a host: DIR=
	@$(KIT) bench-host-dir

calibrate: ## latencies and bandwidths of this host, as a file of machines/caches/ for the simulation
	@$(KIT) calibrate

report: deps ## all results in results/, or FROM=, on one page with plots
	@$(KIT) report

sim: deps ## WORKLOAD= on a simulated MACHINE=, in STATE= AGAINST= another, with SEEDS= seeds
	@$(KIT) sim

sim-all: deps ## the experiments of results/experiments.toml that are not up to date (hours)
	@$(KIT) sim-all
	@MAKEFLAGS= $(KIT) report

sim-validate: deps ## whether the simulation finds published results (half an hour; FULL=1: all, hours)
	@$(KIT) sim-validate

test-fast: deps ## the tests that need this host only; TESTS='-k WORD' or a path selects
	@$(KIT) test-fast

test-patches: deps ## the tests of each patch and of other configurations
	@$(KIT) test-patches

test-boot: deps ## the tests that boot guests
	@$(KIT) test-boot

test: deps ## all of these tests, in this order
	@$(KIT) test

test-long: deps ## soak and validation of the simulation (hours)
	@$(KIT) test-long

clean: ## remove what was built; the git tree and the downloads stay
	rm -rf $(addprefix $(OUT)/[0-9]*/,stack base nocache offstack base-offstack debug kasan kcsan leak race races rt scx host validate checks guest bundle deb *-types *.log) \
		$(OUT)/pycache $(OUT)/pytest

distclean: clean ## remove all that was made in build/, the git tree with it
	rm -rf $(addprefix $(OUT)/,[0-9]* each base b4 b4.lock ccache qemu qemu.lock herd herd.lock results profile.so irqsoff.so \
		bench-host calibrate machines schbench workload sim.so sim.lock sim-all sim-all.lock) $(OUT)/profile-* $(OUT)/irqsoff-*
