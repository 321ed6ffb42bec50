/* SPDX-License-Identifier: GPL-2.0-only */
/* For the programs that measure: include it after defining _GNU_SOURCE. */
#include <err.h>
#include <sched.h>

/* Have the calling thread run on one CPU. */
static inline void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "CPU %d", cpu);
}
