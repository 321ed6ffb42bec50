/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef ATTRIBUTES_H
#define ATTRIBUTES_H

#include <stdint.h>

/*
 * The kernel's struct sched_attr as far as its first version goes, by another name: newer C libraries
 * have one of their own.
 */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

#endif
