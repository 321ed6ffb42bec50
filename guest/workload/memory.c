// SPDX-License-Identifier: GPL-2.0-only
/* Tasks that share memory, or have memory of their own. */
#include "workload.h"

#include <stdatomic.h>

/* ---- threads that share a hot set ---- */

static uint64_t *memory;
/* So many lines of it are used by a thread; and after those of all threads come so many for each one,
 * which it uses in every second phase. */
static uint64_t memory_lines, own_lines;
static double phase_ns;
static enum sharers sharers;
static int processes_, process_, threads_each, first_sharer, *start_order;

static void *sharer(void *argument)
{
	uint64_t number = (uintptr_t)argument, mine = number - first_sharer, turn = number * 7919, i;
	uint64_t first = sharers == APART ? mine * memory_lines : sharers == STRIDE ? mine : 0;
	uint64_t step = sharers == STRIDE ? threads_each : 1, lines = memory_lines, done = 0;
	uint64_t place = first + number % lines * step;

	if (mine)
		join(number, process_, mine);
	begin_work();
	sleep_us(start_order[mine] * 20 + number % 7);
	for (;;) {
		for (i = 0; i < 64; i++) {
			/* The next place depends on what is read here. */
			turn = turn * 6364136223846793005u + 1442695040888963407u;
			place = first + ((turn >> 33) + memory[place * (LINE / 8)]) % lines * step;
			if (sharers != READ && !(turn >> 60 & 7))
				memory[place * (LINE / 8)]++;
		}
		progress(number);
		if (++done & 63)
			continue;
		sleep_us(20);
		if (phase_ns) {
			bool own = (uint64_t)(now_ns() / phase_ns) & 1;

			lines = own ? own_lines : memory_lines;
			first = own ? memory_lines + mine * own_lines : 0;
			place = first;
		}
	}
	return NULL;
}

/* The CPU of a thread of a process that is pinned. */
static int sharer_cpu(int thread)
{
	int cpus = count_cpus();

	if (sharers == NEAR)
		return first_sharer + thread;
	return (thread * cpus * processes_ + process_ * cpus) / (processes_ * threads_each);
}

/* What a process is: its threads, and what they share. */
struct tenant {
	int threads;
	size_t kib;
};

static void share(const struct tenant *tenants, int processes, enum sharers how)
{
	int order[MOST_TASKS], total = 0, i, thread;
	bool pinned = how == PINNED || how == NEAR, segment = how == SEGMENT || how == JOINED;

	for (i = 0; i < processes; i++)
		total += tenants[i].threads;
	if (how == NEAR && total > count_cpus())
		errx(2, "near: %d threads need as many CPUs", total);
	expect_tasks(total);
	processes_ = processes;
	sharers = how;
	if (segment)
		memory = map(tenants[0].kib << 10, MAP_SHARED);
	shuffle(order, processes);
	for (i = 0; i < processes; first_sharer += tenants[i++].threads) {
		size_t bytes = tenants[i].kib << 10;

		threads_each = tenants[i].threads;
		memory_lines = bytes / LINE / (how == APART || how == STRIDE ? threads_each : 1);
		if (!memory_lines)
			errx(2, "%zu KiB are less than a line for each thread", tenants[i].kib);
		/* Each process gets a seed of its own. */
		random_number();
		if (start_process())
			continue;
		set_seed(random_number() + order[i]);
		process_ = i;
		join(first_sharer, segment ? 0 : i, segment ? i : 0);
		if (how == JOINED)
			join_processes(0);
		scatter();
		sleep_us(order[i] * 50);
		if (!segment)
			memory = map(bytes + threads_each * own_lines * LINE, MAP_PRIVATE);
		memset(memory, 0, bytes + threads_each * own_lines * LINE);
		/* Resident, and not touched again. */
		start_order = malloc(threads_each * sizeof(*start_order));
		if (!start_order)
			err(1, "malloc");
		shuffle(start_order, threads_each);
		for (thread = 1; thread < threads_each; thread++)
			start_thread(pinned ? sharer_cpu(thread) : ANY, sharer,
				     (void *)(uintptr_t)(first_sharer + thread));
		if (pinned)
			restrict_cpus(sharer_cpu(0), sharer_cpu(0));
		sharer((void *)(uintptr_t)first_sharer);
	}
}

void sharing(int processes, int threads, size_t kib, long warm_ms, long ms, enum sharers how)
{
	struct tenant tenants[MOST_TASKS];
	int i;

	for (i = 0; i < processes; i++)
		tenants[i] = (struct tenant){ threads, kib };
	share(tenants, processes, how);
	measure(RATE, 1, "steps/ms", warm_ms, ms);
	need_all();
}

/* The most threads of a tenant, for the least. */
#define LARGEST 14

void tenants(int processes, int percent, long warm_ms, long ms, enum sharers how)
{
	struct tenant all[MOST_TASKS];
	int i, wanted = count_cpus() * percent / 100;

	for (i = 0; i < processes; i++) {
		/* LARGEST to 1, and as many in all as are wanted, about. */
		double part = LARGEST - (LARGEST - 1.0) * i / (processes - 1);

		all[i].threads = part * 2 * wanted / ((LARGEST + 1) * processes) + 0.5;
		if (all[i].threads < 1)
			all[i].threads = 1;
		/* 256 KiB to 8 MiB, not in the order of the threads. */
		all[i].kib = 256 << i * 5 % 6;
	}
	share(all, processes, how);
	measure(MEAN, 1, "steps/ms", warm_ms, ms);
	need_all();
}

void phase(int processes, int threads, size_t kib, size_t own_kib, long phase_ms, long warm_ms, long ms)
{
	own_lines = (own_kib << 10) / LINE;
	phase_ns = phase_ms * 1e6;
	sharing(processes, threads, kib, warm_ms, ms, ANYWHERE);
}

/* ---- threads that stream ---- */

#define CHUNK 4096

static size_t stream_bytes;
static int stream_threads;

/* Change a word of each line of memory of the thread's own, again and again. */
static void *streamer(void *argument)
{
	int number = (uintptr_t)argument;
	uint64_t *own;
	size_t i, j;

	join(number, number / stream_threads, number % stream_threads);
	own = map(stream_bytes, MAP_PRIVATE);
	memset(own, 0, stream_bytes);
	begin_work();
	for (;;)
		for (i = 0; i < stream_bytes; i += CHUNK) {
			for (j = i; j < i + CHUNK; j += LINE)
				++*(volatile uint64_t *)&own[j / sizeof(*own)];
			progress(number);
		}
	return NULL;
}

void hog(int processes, int threads, size_t kib, long warm_ms, long ms)
{
	int order[MOST_TASKS], i, thread;

	expect_tasks(processes * threads);
	stream_bytes = kib << 10;
	stream_threads = threads;
	for (i = 0; i < processes; i++) {
		shuffle(order, threads);
		if (start_process())
			continue;
		scatter();
		for (thread = 1; thread < threads; thread++)
			start_thread(ANY, streamer, (void *)(uintptr_t)(i * threads + order[thread]));
		streamer((void *)(uintptr_t)(i * threads + order[0]));
	}
	/* Operations per ns times bytes are GB/s. */
	measure(RATE, CHUNK / 1e6, "GB/s", warm_ms, ms);
	need_all();
}

/* ---- threads that hand work to each other ---- */

struct lane {
	/* Which of the two threads has the work, and when it got it. */
	ALIGNED _Atomic uint32_t turn;
	double since;
	/* What goes to and fro. */
	ALIGNED uint64_t *shared;
};

static struct lane *all_lanes;
/* The number of the first task of a lane. */
static uint32_t first_of_lanes;
static double handoff_work_us;
static size_t shared_bytes, private_bytes;

static void *lane_task(void *argument)
{
	uint32_t number = (uintptr_t)argument, side = (number - first_of_lanes) % 2;
	struct lane *lane = &all_lanes[(number - first_of_lanes) / 2];
	uint64_t *own = NULL, place = number;
	size_t i;

	join(number, 0, number);
	if (private_bytes) {
		own = map(private_bytes, MAP_PRIVATE);
		memset(own, 0, private_bytes);
	}
	begin_work();
	for (;;) {
		while (atomic_load(&lane->turn) != side)
			futex_wait(&lane->turn, !side);
		waited(number, now_ns() - lane->since);
		for (i = 0; i < shared_bytes; i += LINE)
			++*(volatile uint64_t *)&lane->shared[i / sizeof(*lane->shared)];
		place = work_us(handoff_work_us, place, own, private_bytes / LINE);
		/* With hogs beside them, only the hogs' work counts. */
		if (!first_of_lanes)
			progress(number);
		lane->since = now_ns();
		atomic_store(&lane->turn, !side);
		futex_wake(&lane->turn);
	}
	return NULL;
}

static void make_lanes(int lanes)
{
	int i;

	all_lanes = map(lanes * sizeof(*all_lanes), MAP_PRIVATE);
	for (i = 0; i < lanes; i++) {
		all_lanes[i].since = now_ns();
		all_lanes[i].shared = shared_bytes ? map(shared_bytes, MAP_PRIVATE) : NULL;
	}
}

void handoff(int lanes, double work, size_t shared_kib, size_t private_kib, long warm_ms, long ms)
{
	int order[MOST_TASKS], i;

	expect_tasks(2 * lanes);
	calibrate();
	handoff_work_us = work;
	shared_bytes = shared_kib << 10;
	private_bytes = private_kib << 10;
	make_lanes(lanes);
	shuffle(order, 2 * lanes);
	for (i = 0; i < 2 * lanes; i++)
		start_thread(ANY, lane_task, (void *)(uintptr_t)order[i]);
	measure(RATE, 1, "handoffs/ms", warm_ms, ms);
	need_all();
}

/* ---- hogs and pairs in one process ---- */

static bool hogs_never;

static void *hog_or_pair(void *argument)
{
	if ((uintptr_t)argument < first_of_lanes && hogs_never)
		leave_out();
	return (uintptr_t)argument < first_of_lanes ? streamer(argument) : lane_task(argument);
}

void mixed(int hogs, size_t kib, int pairs, double work, long warm_ms, long ms, bool never)
{
	int order[MOST_TASKS], i, count = hogs + 2 * pairs;

	expect_tasks(count);
	calibrate();
	stream_bytes = kib << 10;
	stream_threads = count;
	first_of_lanes = hogs;
	hogs_never = never;
	handoff_work_us = work;
	make_lanes(pairs);
	shuffle(order, count);
	for (i = 0; i < count; i++)
		start_thread(ANY, hog_or_pair, (void *)(uintptr_t)order[i]);
	measure(RATE, CHUNK / 1e6, "GB/s", warm_ms, ms);
}

/* ---- threads that wait for each other ---- */

/* All are in a round until its end. With mutators, which are the first ones, the others begin when these are done. */
static pthread_barrier_t round_begin, round_end;
static uint64_t *heap;
static int mutators;
static double mutators_us, mutators_done;

static void *barrier_task(void *argument)
{
	uint64_t number = (uintptr_t)argument, place = number * 7919, *own = heap;
	bool mutator = number < (uint64_t)mutators;

	join(number, 0, number);
	if (!own) {
		own = map(private_bytes, MAP_PRIVATE);
		memset(own, 0, private_bytes);
	}
	begin_work();
	for (;;) {
		if (mutator) {
			place = work_us(mutators_us, place, own, private_bytes / LINE);
			mutators_done = now_ns();
		}
		if (mutators)
			pthread_barrier_wait(&round_begin);
		if (!mutator) {
			if (mutators)
				waited(number, now_ns() - mutators_done);
			place = work_us(handoff_work_us, place, own, private_bytes / LINE);
		}
		progress(number);
		pthread_barrier_wait(&round_end);
	}
	return NULL;
}

static void start_rounds(int threads, double work, size_t kib)
{
	int order[MOST_TASKS], i;

	expect_tasks(threads);
	calibrate();
	handoff_work_us = work;
	private_bytes = kib << 10;
	pthread_barrier_init(&round_begin, NULL, threads);
	pthread_barrier_init(&round_end, NULL, threads);
	shuffle(order, threads);
	for (i = 0; i < threads; i++)
		start_thread(ANY, barrier_task, (void *)(uintptr_t)order[i]);
}

void barrier(int threads, double work, size_t private_kib, long warm_ms, long ms)
{
	start_rounds(threads, work, private_kib);
	measure(RATE, 1.0 / threads, "rounds/ms", warm_ms, ms);
	need_all();
}

void stop_the_world(int mutating, double mutator_us, int workers, double work, size_t kib, long warm_ms, long ms)
{
	mutators = mutating;
	mutators_us = mutator_us;
	heap = map(kib << 10, MAP_PRIVATE);
	memset(heap, 0, kib << 10);
	start_rounds(mutating + workers, work, kib);
	measure(RATE, 1.0 / (mutating + workers), "rounds/ms", warm_ms, ms);
	need_all();
}
