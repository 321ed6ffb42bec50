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
ifneq ($(filter $(patsubst %//,%/,$(abspath $(OUT))/)%,$(abspath $(CURDIR))/.),)
$(error KIT_BUILD=$(OUT) is the repository or a directory above it)
endif
export PYTHONPYCACHEPREFIX := $(OUT)/pycache

KIT := $(PYTHON) -m kit
# apt-get writes to the system: as root, or by way of sudo.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# 0: what the target needs is there, in packages that make cannot see. For systems without apt.
DEPS ?=

TABLE := commands.txt
COMMANDS := $(shell LC_ALL=C sed -n 's/^\([a-z-]*\):.*/\1/p' $(TABLE))
OWN := help deps sim-all clean distclean
UNKNOWN := $(filter-out $(COMMANDS) .%,$(MAKECMDGOALS))
ifneq ($(UNKNOWN),)
$(error $(firstword $(UNKNOWN)): there is no such command; `make help` lists them)
endif

.DEFAULT_GOAL := help
.PHONY: $(COMMANDS)
# Two commands use the same tree.
.NOTPARALLEL:

help:
	@echo 'make COMMAND [SETTING=VALUE]...      make settings: all settings and the commands that take them'
	@LC_ALL=C sed -n 's/^\[\(.*\)\]/\n\1:/p; s/^\([a-z-]*\): \(.*\)/  \1\t\2/p' $(TABLE) | expand -t 18

deps:
ifneq ($(DEPS),0)
	@SUDO=$(SUDO) sh kit/deps.sh $(MAKECMDGOALS)
endif

$(filter-out $(OWN),$(COMMANDS)): deps
	@$(KIT) $@

sim-all: deps
	@$(KIT) sim-all
	@MAKEFLAGS= $(KIT) report

clean:
	rm -rf $(addprefix $(OUT)/[0-9]*/,stack base nocache offstack base-offstack debug kasan kcsan leak race races rt scx host validate checks guest deb *.log) \
		$(OUT)/pycache $(OUT)/pytest

distclean: clean
	rm -rf $(addprefix $(OUT)/,[0-9]* base ccache qemu qemu.lock results profile.so irqsoff.so \
		bench-host sim.so sim.lock sim-all sim-all.lock scx_rusty*) $(OUT)/profile-* $(OUT)/irqsoff-*
