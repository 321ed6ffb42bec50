// SPDX-License-Identifier: GPL-2.0-only
/*
 * balance CPU MS: measure how long a pass of the load balancer takes, in ns.
 *
 * It runs in an idle guest under icount, booted with nohz=off and skew_tick=1. The CPU then balances
 * from its tick while no other CPU runs, and a ns is an instruction. A pass is a softirq of the
 * scheduler, from tracepoint to tracepoint. Only the CPU's topmost domain is balanced: the intervals
 * of the other domains are raised so far that they are rarely due.
 *
 * It prints the mean of the middle half of the passes, and the mean of all passes.
 */
#include <err.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "middle.h"

#define TRACING "/sys/kernel/tracing/"
#define SCHED "/sys/kernel/debug/sched/"
#define DOMAINS SCHED "domains/"
#define MOST 100000

/* The number of the scheduler's softirq, and the trace clock that counts guest ns. */
#define SCHED_SOFTIRQ "7"
#define CLOCK "x86-tsc"

static FILE *open_file(const char *mode, const char *format, ...)
{
	va_list args;
	char path[160];
	FILE *file;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	file = fopen(path, mode);
	if (!file)
		err(1, "%s", path);
	return file;
}

static void set(const char *path, const char *value)
{
	FILE *file = open_file("w", "%s", path);

	if (fputs(value, file) < 0 || fclose(file))
		err(1, "%s to %s", value, path);
}

/* The number of domains that the CPU has. */
static int domains(int cpu)
{
	char path[160];
	int count = 0;

	do {
		snprintf(path, sizeof(path), DOMAINS "cpu%d/domain%d", cpu, count);
	} while (!access(path, F_OK) && ++count);
	if (!count)
		errx(1, "CPU %d is in no domain", cpu);
	return count;
}

static void set_intervals(int cpu)
{
	int count = domains(cpu), i;

	for (i = 0; i < count; i++) {
		FILE *file = open_file("w", DOMAINS "cpu%d/domain%d/max_interval", cpu, i);

		fprintf(file, "%d", i == count - 1 ? 1 : 60000);
		if (fclose(file))
			err(1, "max_interval");
	}
}

static void wait_ms(double ms)
{
	struct timespec time = { .tv_sec = ms / 1e3, .tv_nsec = (long long)(ms * 1e6) % 1000000000 };

	nanosleep(&time, NULL);
}

static void trace(int on)
{
	const char *value = on ? "1" : "0";

	set(TRACING "events/irq/softirq_entry/enable", value);
	set(TRACING "events/irq/softirq_exit/enable", value);
}

int main(int argc, char **argv)
{
	unsigned long long begin = 0, at;
	char line[256], *event;
	double *each, ms;
	int cpu, count = 0;
	FILE *file;

	if (argc != 3)
		errx(2, "usage: balance CPU MS");
	cpu = atoi(argv[1]);
	ms = atof(argv[2]);
	each = calloc(MOST, sizeof(*each));
	if (!each)
		err(1, "calloc");
	/* Without it debugfs has no domains. */
	set(SCHED "verbose", "Y");
	set_intervals(cpu);
	set(TRACING "trace_clock", CLOCK);
	set(TRACING "events/irq/softirq_entry/filter", "vec == " SCHED_SOFTIRQ);
	set(TRACING "events/irq/softirq_exit/filter", "vec == " SCHED_SOFTIRQ);
	/* Until the intervals have grown. */
	wait_ms(ms);
	set(TRACING "trace", "");
	trace(1);
	wait_ms(ms);
	trace(0);
	file = open_file("r", TRACING "per_cpu/cpu%d/trace", cpu);
	while (fgets(line, sizeof(line), file) && count < MOST) {
		event = strstr(line, ": softirq_");
		if (line[0] == '#' || !event)
			continue;
		while (event > line && event[-1] != ' ')
			event--;
		at = strtoull(event, &event, 10);
		if (!strncmp(event, ": softirq_entry", 15))
			begin = at;
		else if (begin)
			each[count++] = at - begin;
	}
	if (!count)
		errx(1, "CPU %d did not balance", cpu);
	print_middle(each, count);
	printf("\n");
	return 0;
}
