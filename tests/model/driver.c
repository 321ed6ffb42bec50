// SPDX-License-Identifier: GPL-2.0-only
/*
 * Drives plugins/sim/caches.c without QEMU. Reads commands from standard input, one a line, and answers each
 * with a line.
 *
 *   new NAME=NUMBER...
 *     a new model, in place of the last one: "ok", or what is wrong with it
 *   CPU r|w|a|i|I LINE NS
 *     an access at a time: read, write, atomic, independent read or write: the name of what was
 *     found, and the cost in ps
 *   hit CPU r|w LINE
 *     whether the way that the CPU's last access gave still has the line: 1 or 0
 *   count STEP NUMBER NS WORK QUANTUM
 *     NUMBER CPUs, each STEP-th, increment one counter for NS, with WORK ns between two increments;
 *     a CPU may get ahead of one of its LLC by QUANTUM ns: how often each of them did
 *   race STEP NUMBER TIMES
 *     NUMBER CPUs ask for a line at the same time, so many times: how often each got it first
 *   order QUANTUM CLOCK...
 *     which CPU runs, and until when, if CPUs have these clocks, in ns; the others do not run
 *   stream FIRST NUMBER STEP MIB WORK HOME r|i|I
 *     NUMBER CPUs, each STEP-th from FIRST on, read or write so many MiB of their own each, with
 *     WORK ps between two lines. HOME is the node of that memory, or the number of nodes for that
 *     of the CPU: MB/s of all CPUs
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caches.h"
#include "order.h"

#define CPUS CACHES_MAX_CPUS
/* The virtual addresses of each CPU. */
#define SPACE (1ULL << 30)

static const char *const names[FOUND] = {
	"l1", "l2", "l3", "core", "llc", "socket", "dram", "far_dram",
	"taken_core", "taken_llc", "taken_socket",
};

static struct caches_config config;
static struct caches *caches;
static struct caches_way *ways[CPUS];

static void set(const char *name, uint64_t value)
{
#define FIELD(field) if (!strcmp(name, #field)) { config.field = value; return; }
	unsigned int i;

	FIELD(cpus) FIELD(threads) FIELD(cores_per_l2) FIELD(cores_per_llc) FIELD(llcs_per_socket)
	FIELD(nodes) FIELD(lines) FIELD(l1_kib) FIELD(l1_ways) FIELD(l2_kib) FIELD(l2_ways)
	FIELD(l3_kib) FIELD(l3_ways) FIELD(store_percent) FIELD(through_home) FIELD(outstanding)
	FIELD(prefetch) FIELD(hold_ps) FIELD(link_mbs) FIELD(memory_mbs) FIELD(socket_mbs)
	for (i = 0; i < FOUND; i++) {
		if (!strcmp(name, names[i])) {
			config.found_ps[i] = value;
			return;
		}
	}
	fprintf(stderr, "no field %s\n", name);
	exit(2);
}

static void renew(char *words)
{
	const char *wrong;
	char *word;

	memset(&config, 0, sizeof(config));
	for (word = strtok(words, " \n"); word; word = strtok(NULL, " \n")) {
		char *equals = strchr(word, '=');

		*equals = 0;
		set(word, strtoull(equals + 1, NULL, 10));
	}
	if (caches)
		caches_free(caches);
	caches = NULL;
	wrong = caches_check(&config);
	if (!wrong)
		caches = caches_new(&config);
	puts(wrong ? wrong : caches ? "ok" : "no memory");
}

static struct caches_result run(unsigned int cpu, char kind, uint64_t line, uint64_t virtual_line,
				uint64_t time)
{
	struct caches_access access = {
		cpu, CACHES_READ, kind == 'i' || kind == 'I', line, virtual_line, time
	};

	if (kind == 'a')
		access.kind = CACHES_ATOMIC;
	else if (kind == 'w' || kind == 'I')
		access.kind = CACHES_WRITE;

	return caches_access(caches, &access);
}

/* Of CPUs of which each `step`-th takes part, where the quantum is for those of an LLC. */
static struct order order_of(int number, int step, uint64_t quantum)
{
	int per_llc = config.cores_per_llc * config.threads / step;
	int per_socket = config.llcs_per_socket * config.cores_per_llc * config.threads / step, i;
	struct order order = { number, per_llc ? per_llc : 1, per_socket ? per_socket : 1, { 0 } };

	for (i = 0; i < 3; i++)
		order.ahead[i] = quantum * config.found_ps[FROM_CORE + i] /
				 config.found_ps[FROM_CORE];
	return order;
}

/* Start some CPUs; the others do not want to run. */
static void start_clocks(struct order_clocks *clocks, int number)
{
	int i;

	order_clear(clocks);
	for (i = 0; i < number; i++)
		order_set(clocks, i, 0);
}

/* Let CPUs go on from their clocks, as clock.c does it, until all clocks are at `end`. */
static void run_all(const struct order *order, struct order_clocks *clocks, uint64_t end,
		    void (*step)(int i, uint64_t *clock))
{
	static uint64_t seed = 1;

	for (;;) {
		uint64_t clock, limit;
		int cpu;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		cpu = order_choose(order, clocks, (seed >> 33) % order->cpus);
		if (cpu < 0 || clocks->of[cpu] >= end)
			return;
		clock = clocks->of[cpu];
		order_set(clocks, cpu, ORDER_NEVER);
		limit = order_limit(order, clocks, cpu);
		if (limit > clock + order->ahead[2])
			limit = clock + order->ahead[2];
		while (clock < limit)
			step(cpu, &clock);
		order_set(clocks, cpu, clock);
	}
}

static int each;
static uint64_t work, done[CPUS], left[CPUS];

static void increment(int i, uint64_t *clock)
{
	*clock += run(i * each, 'a', 1, 1, *clock).cost + work;
	done[i]++;
}

static void count(int step, int number, uint64_t ns, uint64_t work_ns, uint64_t quantum)
{
	struct order order = order_of(number, step, quantum * 1000);
	struct order_clocks clocks;
	int i;

	start_clocks(&clocks, number);
	each = step;
	work = work_ns * 1000;
	memset(done, 0, sizeof(done));
	run_all(&order, &clocks, ns * 1000, increment);
	for (i = 0; i < number; i++)
		printf("%s%lu", i ? " " : "", done[i]);
	puts("");
}

static uint64_t prize, cheapest;
static int winner;

static void compete(int i, uint64_t *clock)
{
	uint64_t cost = run(i * each, 'a', prize, prize, *clock).cost;

	if (cost < cheapest) {
		cheapest = cost;
		winner = i;
	}
	*clock = ~0ULL;
}

static void race(int step, int number, int times)
{
	struct order order = order_of(number, step, 20000);
	uint64_t wins[CPUS] = { 0 };
	struct order_clocks clocks;
	int i;

	each = step;
	for (prize = 1; prize <= (uint64_t)times; prize++) {
		start_clocks(&clocks, number);
		cheapest = ~0ULL;
		run_all(&order, &clocks, ~0ULL, compete);
		wins[winner]++;
	}
	for (i = 0; i < number; i++)
		printf("%s%lu", i ? " " : "", wins[i]);
	puts("");
}

static void choose(char *words)
{
	uint64_t quantum = strtoull(words, &words, 10) * 1000;
	struct order_clocks clocks;
	struct order order = order_of(config.cpus, 1, quantum);
	unsigned int i;
	char *end;
	int cpu;

	order_clear(&clocks);
	for (i = 0; i < config.cpus; i++) {
		uint64_t clock = strtoull(words, &end, 10) * 1000;

		if (end != words)
			order_set(&clocks, i, clock);
		words = end;
	}
	cpu = order_choose(&order, &clocks, 0);
	order_set(&clocks, cpu, ORDER_NEVER);
	printf("%d %lu\n", cpu, order_limit(&order, &clocks, cpu) / 1000);
}

static char stream_kind;
static int stream_first;
static uint64_t stream_home, stream_lines;

static void load(int i, uint64_t *clock)
{
	uint64_t line = i * stream_lines + stream_lines - left[i], home = stream_home;
	int cpu = stream_first + i * each;

	if (!left[i]) {
		*clock = ~0ULL;
		return;
	}
	left[i]--;
	if (home == config.nodes)
		home = cpu * config.nodes / config.cpus;
	*clock += work + run(cpu, stream_kind, home * (config.lines / config.nodes) + line,
			     i * SPACE + line, *clock).cost;
	done[i] = *clock;
}

static void stream(int first, int number, int step, uint64_t mib, uint64_t work_ps, uint64_t home,
		   char kind)
{
	struct order order = order_of(number, step, 20000);
	struct order_clocks clocks;
	uint64_t last = 0;
	int i;

	start_clocks(&clocks, number);
	each = step;
	work = work_ps;
	stream_kind = kind;
	stream_first = first;
	stream_lines = mib << 14;
	stream_home = home;
	for (i = 0; i < number; i++)
		left[i] = stream_lines;
	run_all(&order, &clocks, ~0ULL, load);
	for (i = 0; i < number; i++)
		last = done[i] > last ? done[i] : last;
	/* Bytes in a ps, times 10^6, are MB/s. */
	printf("%.0f\n", (double)(number * stream_lines * 64) / last * 1e6);
}

int main(void)
{
	unsigned long a, b, c, d, e, f;
	char line[1024], kind;

	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "new ", 4)) {
			renew(line + 4);
		} else if (!strncmp(line, "order ", 6)) {
			choose(line + 6);
		} else if (sscanf(line, "hit %lu %c %lu", &a, &kind, &b) == 3) {
			printf("%d\n", caches_hit(ways[a], CACHES_TAG(b), kind == 'w',
						  caches_l1s(caches).tick));
		} else if (sscanf(line, "count %lu %lu %lu %lu %lu", &a, &b, &c, &d, &e) == 5) {
			count(a, b, c, d, e);
		} else if (sscanf(line, "race %lu %lu %lu", &a, &b, &c) == 3) {
			race(a, b, c);
		} else if (sscanf(line, "stream %lu %lu %lu %lu %lu %lu %c", &a, &b, &c, &d, &e, &f,
				  &kind) == 7) {
			stream(a, b, c, d, e, f, kind);
		} else if (sscanf(line, "%lu %c %lu %lu", &a, &kind, &b, &c) == 4) {
			struct caches_result result = run(a, kind, b, b, c * 1000);

			ways[a] = result.way;
			printf("%s %lu\n", names[result.found], result.cost);
		} else {
			fprintf(stderr, "what is %s", line);
			return 2;
		}
	}
	if (caches)
		caches_free(caches);
	return 0;
}
