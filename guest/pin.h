/* SPDX-License-Identifier: GPL-2.0-only */
/* For the measuring programs. Define _GNU_SOURCE before including it. */
#include <err.h>
#include <sched.h>
#include <stdlib.h>

/* Let the calling thread run on all CPUs of a list such as 0-3,8 only. */
static inline void allow(const char *list)
{
	const char *at = list;
	cpu_set_t set;
	char *end;

	CPU_ZERO(&set);
	do {
		long cpu = strtol(at, &end, 10), last = cpu;

		if (end != at && *end == '-') {
			at = end + 1;
			last = strtol(at, &end, 10);
		}
		if (end == at || (*end && *end != ',') || cpu < 0 || last < cpu)
			errx(2, "%s: not a list of CPUs", list);
		for (; cpu <= last; cpu++)
			CPU_SET(cpu, &set);
		at = end + 1;
	} while (*end);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "CPUs %s", list);
}

/* Pin the calling thread to one CPU. */
static inline void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "CPU %d", cpu);
}
