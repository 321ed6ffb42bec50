# SPDX-License-Identifier: GPL-2.0-only

PYTHON ?= /usr/bin/python3
BUILD ?= stack
MACHINE ?= two-ccx
LINUX ?=
# For bench-cost: 7.3 to show mainline beside it; 1 for a short run; 1 to write to results/.
COMPARE ?=
SHORT ?=
SAVE ?=
# A row of its table, to show where the instructions go.
PROFILE ?=
# For bench-host, bench-host-dir and report: see docs/measuring.md.
export FULL ROUNDS WORKLOADS FEATURES STATES AS_IS NOISY SCHBENCH NAME DIR FROM BASE
# For sim: what to run, in which state of the scheduler, against which other one, how often; 1 to
# name the fields of the kernel's structures.
WORKLOAD ?=
STATE ?=
AGAINST ?=
SEEDS ?=
FIELDS ?=
ROUND_NS ?=
export BUILD MACHINE LINUX COMPARE SHORT SAVE PROFILE WORKLOAD STATE AGAINST SEEDS FIELDS ROUND_NS

# Outputs, python's and pytest's caches too, are all below one directory.
OUT := $(or $(KIT_BUILD),$(CURDIR)/build)
# Neither make nor the kernel's makefiles can do with such a path; rm would remove something else.
ifneq ($(words $(CURDIR) $(OUT)),2)
$(error there is a space in $(CURDIR) or $(OUT))
endif
export PYTHONPYCACHEPREFIX := $(OUT)/pycache

KIT := $(PYTHON) -m kit
# apt-get writes to the system: as root, or by way of sudo.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.DEFAULT_GOAL := help
.PHONY: help deps tree export refresh kernel boot shell selftest stress soak checks litmus bench-cost \
	bench-host bench-host-dir report sim sim-validate test clean distclean

help: ## this list
	@echo 'make TARGET [BUILD=stack|base|debug|kasan] [MACHINE=machines/NAME] [LINUX=directory|tarball]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

deps: ## install the packages of packages.txt that are missing
	@command -v dpkg-query >/dev/null || { \
		echo 'deps: not a Debian system; it needs what packages.txt names' >&2; exit 0; }; \
	missing=; \
	for package in $$(sed 's/#.*//' packages.txt); do \
		dpkg-query -W -f '$${db:Status-Status}\n' $$package 2>/dev/null | grep -qx installed || \
			missing="$$missing $$package"; \
	done; \
	[ -n "$$missing" ] || apt-cache show linux-source-6.12 >/dev/null 2>&1 && \
		[ -z "$$missing" ] && exit 0; \
	echo "deps: updating the package lists$${missing:+ and installing$$missing}"; \
	if [ -n "$(SUDO)" ] && ! command -v sudo >/dev/null; then \
		echo 'deps: neither root nor sudo here; as root: apt-get install' $$missing >&2; exit 1; \
	fi; \
	$(SUDO) apt-get -q update && { [ -z "$$missing" ] || \
	$(SUDO) env DEBIAN_FRONTEND=noninteractive \
		apt-get -q -y install --no-install-recommends $$missing; }

tree: deps ## the patches as a git tree, one commit a patch, in build/6.12/linux
	@$(KIT) tree

export: deps ## write that tree's commits back to patches/
	@$(KIT) export

refresh: deps ## move the stack to the newest 6.12.y, or to LINUX=, patch by patch
	@$(KIT) refresh

kernel: deps ## build a kernel: BUILD=stack, base (no patches), debug (lockdep) or kasan
	@$(KIT) kernel

boot: deps ## boot it on MACHINE=, toggle every feature, show what each one moves
	@$(KIT) boot

shell: deps ## a prompt in the guest
	@$(KIT) shell

selftest: deps ## the stack's kernel selftests in the guest
	@$(KIT) selftest

stress: deps ## toggle the features under load and CPU hotplug in the guest
	@$(KIT) stress

soak: deps ## workloads with and without gathering in the guest, and 5 minutes of steady state
	@$(KIT) soak

checks: deps ## compile, checkpatch and sparse for each patch; the other configurations
	@$(KIT) checks

litmus: deps ## the stack's litmus tests against the kernel's memory model (fetches herd7)
	@$(KIT) litmus

bench-cost: deps ## instructions and memory that the stack costs, against BUILD=base and COMPARE=7.3
	@$(KIT) bench-cost

bench-host: ## benchmarks on this host itself, as root: features off and on by turns
	@$(KIT) bench-host

bench-host-dir: deps ## what bench-host needs, in one directory to copy to a host: DIR=
	@$(KIT) bench-host-dir

report: deps ## all results in results/, or FROM=, on one page with plots
	@$(KIT) report

sim: deps ## WORKLOAD= on a simulated MACHINE=, in STATE= AGAINST= another, with SEEDS= seeds
	@$(KIT) sim

sim-validate: deps ## whether the simulation finds what was found on real machines (half an hour)
	@$(KIT) sim-validate

test: deps ## the tests: tools, each patch, configurations, kernel selftests on every machine
	@mkdir -p $(OUT)
	@$(PYTHON) -m pytest --basetemp=$(OUT)/pytest

clean: ## remove what was built; the git tree and the downloads stay
	rm -rf $(addprefix $(OUT)/6.12/,stack base debug kasan checks guest *-types *.log) $(OUT)/pycache $(OUT)/pytest

distclean: clean ## remove all that was made in build/, the git tree with it
	rm -rf $(addprefix $(OUT)/,6.12 7.3 base ccache qemu qemu.lock herd herd.lock results profile.so \
		bench-host schbench sim.so sim.lock) $(OUT)/profile-*
