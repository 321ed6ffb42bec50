// SPDX-License-Identifier: GPL-2.0-only
/*
 * A line of JSON in the file of the report for each pair of marks. See report.h.
 *
 * Times in it are in ps, addresses in hex. "sites" are the places where lines went from one L2 to
 * another: physical and virtual address, the instruction, and how often from how far. "runqueue" is
 * the first CPU's runqueue in bytes, in which the kernel's types say what is where.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fail.h"
#include "qemu.h"
#include "report.h"

#define SITES (1 << 18)
#define TASKS (1 << 16)
/* Tries to find a free place in the tables. */
#define TRIES 32
#define SHOWN 4000
#define FAR (FOUND - FROM_CORE)
/* As much as a runqueue has on x86, about. */
#define RUNQUEUE 4096

static const char *const names[FOUND] = {
	"l1", "l2", "l3", "core", "llc", "socket", "dram", "far_dram",
	"taken_core", "taken_llc", "taken_socket",
};

struct site {
	uint64_t where, address, pc, total;
	uint32_t count[FAR];
};

/* A task, by the address of its task_struct, and the CPU it ran on last. */
struct task {
	uint64_t task;
	uint32_t cpu;
};

static struct {
	uint64_t found[2][FOUND], cost[2];
	uint64_t wakeups, switches, migrations, llc_crossings, socket_crossings;
	uint64_t lost_sites, lost_tasks;
} totals;

static struct site sites[SITES];
static struct task tasks[TASKS];
static struct report_config config;
static struct report_totals before;
static struct timespec cpu_before;
static bool measuring;
static FILE *out;

static uint64_t hash(uint64_t a, uint64_t b)
{
	return (a * 0x9e3779b97f4a7c15ULL ^ b * 0xc2b2ae3d27d4eb4fULL) >> 32;
}

void report_access(enum caches_found found, bool kernel, uint64_t cost)
{
	totals.found[kernel][found]++;
	totals.cost[kernel] += cost;
}

void report_transfer(enum caches_found found, uint64_t address, uint64_t line, uint64_t pc)
{
	uint64_t where = (line << CACHES_LINE_BITS | (address & ((1 << CACHES_LINE_BITS) - 1))) + 1;
	uint64_t place = hash(where, pc);
	int i;

	if (!measuring)
		return;
	for (i = 0; i < TRIES; i++, place++) {
		struct site *site = &sites[place % SITES];

		if (!site->total) {
			site->where = where;
			site->pc = pc;
		}
		if (site->where != where || site->pc != pc)
			continue;
		site->address = address;
		site->count[found - FROM_CORE]++;
		site->total++;
		return;
	}
	totals.lost_sites++;
}

void report_wakeup(unsigned int cpu)
{
	(void)cpu;
	totals.wakeups++;
}

/* Which CPU a task ran on last is known of tasks that have run since the begin of the warm-up. */
void report_switch(unsigned int cpu, uint64_t task)
{
	uint64_t place = hash(task, 0);
	int i;

	totals.switches++;
	for (i = 0; i < TRIES; i++, place++) {
		struct task *found = &tasks[place % TASKS];
		unsigned int last;

		if (found->task && found->task != task)
			continue;
		last = found->task ? found->cpu : cpu;
		found->task = task;
		found->cpu = cpu;
		totals.migrations += last != cpu;
		totals.llc_crossings += last / config.cpus_per_llc != cpu / config.cpus_per_llc;
		totals.socket_crossings += last / config.cpus_per_socket !=
					   cpu / config.cpus_per_socket;
		return;
	}
	totals.lost_tasks++;
}

void report_begin(const struct report_totals *now)
{
	memset(&totals, 0, sizeof(totals));
	memset(sites, 0, sizeof(sites));
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_before);
	before = *now;
	measuring = true;
}

static int by_total(const void *a, const void *b)
{
	const struct site *x = a, *y = b;

	if (x->total != y->total)
		return x->total < y->total ? 1 : -1;
	if (x->where != y->where)
		return x->where > y->where ? 1 : -1;
	return (x->pc > y->pc) - (x->pc < y->pc);
}

/* What the guest has at a virtual address, until this is called again. */
static const uint8_t *memory(uint64_t address, size_t size)
{
	static GByteArray *bytes;

	if (!bytes)
		bytes = g_byte_array_new();
	if (!qemu_plugin_read_memory_vaddr(address, bytes, size))
		fail("the guest has no memory at %" PRIx64, address);
	return bytes->data;
}

static uint64_t per_cpu_offset(int index)
{
	uint64_t offset;

	memcpy(&offset, memory(config.per_cpu_offset + index * sizeof(offset), sizeof(offset)),
	       sizeof(offset));
	return offset;
}

static void write_per_cpu(void)
{
	int i;

	fprintf(out, ", \"per_cpu\": [");
	for (i = 0; i < config.cpus; i++)
		fprintf(out, "%s\"%" PRIx64 "\"", i ? ", " : "", per_cpu_offset(i));
	fprintf(out, "]");
}

/* The bytes of the first CPU's: it points to what has no symbol, the root_domain. */
static void write_runqueue(void)
{
	const uint8_t *bytes = memory(config.runqueues + per_cpu_offset(0), RUNQUEUE);
	int i;

	fprintf(out, ", \"runqueue\": \"");
	for (i = 0; i < RUNQUEUE; i++)
		fprintf(out, "%02x", bytes[i]);
	fprintf(out, "\"");
}

static void write_tasks(void)
{
	bool first = true;
	int i;

	fprintf(out, ", \"tasks\": [");
	for (i = 0; i < TASKS; i++) {
		if (!tasks[i].task)
			continue;
		fprintf(out, "%s\"%" PRIx64 "\"", first ? "" : ", ", tasks[i].task);
		first = false;
	}
	fprintf(out, "]");
}

static void write_sites(void)
{
	int i, j;

	qsort(sites, SITES, sizeof(*sites), by_total);
	fprintf(out, ", \"sites\": [");
	for (i = 0; i < SHOWN && i < SITES && sites[i].total; i++) {
		fprintf(out, "%s[\"%" PRIx64 "\", \"%" PRIx64 "\", \"%" PRIx64 "\"", i ? ", " : "",
			sites[i].where - 1, sites[i].address, sites[i].pc);
		for (j = 0; j < FAR; j++)
			fprintf(out, ", %u", sites[i].count[j]);
		fprintf(out, "]");
	}
	fprintf(out, "]");
}

static void write_number(const char *name, uint64_t number)
{
	fprintf(out, ", \"%s\": %" PRIu64, name, number);
}

void report_end(const struct report_totals *now)
{
	struct timespec cpu_now;
	int i, kernel;

	if (!measuring)
		return;
	measuring = false;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_now);
	fprintf(out, "{\"time_ps\": %" PRIu64 ", \"instructions\": %" PRIu64 ", \"host_s\": %.1f",
		now->time - before.time, now->insns - before.insns,
		cpu_now.tv_sec - cpu_before.tv_sec + (cpu_now.tv_nsec - cpu_before.tv_nsec) / 1e9);
	write_number("wakeups", totals.wakeups);
	write_number("switches", totals.switches);
	write_number("migrations", totals.migrations);
	write_number("llc_crossings", totals.llc_crossings);
	write_number("socket_crossings", totals.socket_crossings);
	write_number("ended_sleeps", now->ended_sleeps - before.ended_sleeps);
	write_number("ahead_ps", now->ahead_ps);
	write_number("settle_percent", now->settle_percent);
	write_number("lost_sites", totals.lost_sites);
	write_number("lost_tasks", totals.lost_tasks);
	for (kernel = 0; kernel < 2; kernel++) {
		fprintf(out, ", \"%s\": {\"stalled_ps\": %" PRIu64, kernel ? "kernel" : "user",
			totals.cost[kernel]);
		for (i = 0; i < FOUND; i++)
			fprintf(out, ", \"%s\": %" PRIu64, names[i], totals.found[kernel][i]);
		fprintf(out, "}");
	}
	fprintf(out, ", \"busy_ps\": [");
	for (i = 0; i < config.cpus / config.cpus_per_llc; i++)
		fprintf(out, "%s%" PRIu64, i ? ", " : "", now->busy_ps[i] - before.busy_ps[i]);
	fprintf(out, "], \"far\": [");
	for (i = FROM_CORE; i < FOUND; i++)
		fprintf(out, "%s\"%s\"", i > FROM_CORE ? ", " : "", names[i]);
	fprintf(out, "]");
	fprintf(out, ", \"moved_ps\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
		config.moved_ps[0], config.moved_ps[1], config.moved_ps[2]);
	write_per_cpu();
	write_runqueue();
	write_tasks();
	write_sites();
	fprintf(out, "}\n");
	if (fflush(out) || ferror(out))
		fail("cannot write %s", config.out);
}

void report_start(const struct report_config *given)
{
	config = *given;
	out = fopen(config.out, "w");
	if (!out)
		fail("cannot open %s", config.out);
}
