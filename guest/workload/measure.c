// SPDX-License-Identifier: GPL-2.0-only
/*
 * Prescribed starts, windows, and figures.
 *
 * A start restricts each task to the CPUs of one LLC. Task number SEAT of group GROUP goes to
 *   together     LLC GROUP: each group has an LLC of its own, as far as there are enough
 *   two-llcs     the first or the second LLC of a pair in one socket, by turns; pair GROUP
 *   two-sockets  an LLC of the first or the second socket, by turns; the LLC number GROUP of each
 *   scattered    LLC GROUP + SEAT, where LLCs of all sockets alternate
 * so that tasks in neighbouring seats are apart, unless all are together. Tasks are placed when they
 * join, and again before each window. Only CPUs on which the program may run count.
 */
#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>

#define MOST_LLCS 512
/* Waiting times are counted in buckets: 32 for each power of two ns, up to 2^36 ns, or 69 s. */
#define SUB_BITS 5
#define SUB (1 << SUB_BITS)
#define BUCKETS ((36 - SUB_BITS + 1) * SUB)
/* With fewer, the 99th percentile is the longest of all. */
#define FEWEST_WAITS 100
#define STATS_BYTES (8 << 20)
/* How often to look whether all tasks have begun. */
#define WAIT_US 200

struct options options = { .windows = 1 };

/* What is counted and known of each task, in memory that all processes share. */
static struct shared {
	/* Tasks that have begun to work. */
	_Atomic int begun;
	/* Tasks that join are to place themselves. */
	_Atomic bool placing;
	/* A window is being measured. */
	ALIGNED _Atomic bool measuring;
	struct {
		pid_t thread;
		int group, seat;
	} members[MOST_TASKS];
	struct {
		ALIGNED volatile uint64_t operations;
	} of[MOST_TASKS];
	uint32_t waits[MOST_TASKS][BUCKETS];
	/* The process of a group that the others of it join. */
	_Atomic pid_t leaders[MOST_TASKS];
} *shared;

static int expected;

/* ---- where a start puts a task ---- */

static struct llc {
	cpu_set_t cpus;
	int first_cpu, socket;
} llcs[MOST_LLCS];
static int llc_count, sockets[MOST_LLCS], socket_count;
static cpu_set_t allowed;
/* The LLCs that tasks are dealt out to: those of the even seats and those of the odd ones; for
 * START_TOGETHER and START_SCATTERED in places[0] only. */
static const struct llc *places[2][MOST_LLCS];
static int place_count;

static const char *const start_names[] = { "none", "together", "two-llcs", "two-sockets",
					   "scattered" };

int start_by_name(const char *name)
{
	int i;

	for (i = START_TOGETHER; i <= START_SCATTERED; i++)
		if (!strcmp(name, start_names[i]))
			return i;
	return -1;
}

/* Read the first number of a file of a CPU in sysfs; -1 if there is no such file. */
static int cpu_number(int cpu, const char *name)
{
	char path[96];
	int number;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/%s", cpu, name);
	file = fopen(path, "r");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &number) != 1)
		number = -1;
	fclose(file);
	return number;
}

static int llc_of_cpu(int cpu)
{
	char name[48];
	int index, found, first = -1;

	/* The caches are in the order of their levels. */
	for (index = 0; ; index++) {
		snprintf(name, sizeof(name), "cache/index%d/shared_cpu_list", index);
		found = cpu_number(cpu, name);
		if (found < 0)
			return first;
		first = found;
	}
}

static void find_llcs(void)
{
	int cpu, first, i;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		err(1, "sched_getaffinity");
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &allowed))
			continue;
		first = llc_of_cpu(cpu);
		if (first < 0)
			errx(1, "start: sysfs does not tell the caches of CPU %d", cpu);
		for (i = 0; i < llc_count && llcs[i].first_cpu != first; i++)
			;
		if (i == MOST_LLCS)
			errx(1, "start: more than %d LLCs", MOST_LLCS);
		if (i == llc_count) {
			llcs[llc_count].first_cpu = first;
			llcs[llc_count++].socket = cpu_number(cpu, "topology/physical_package_id");
		}
		CPU_SET(cpu, &llcs[i].cpus);
	}
	for (i = 0; i < llc_count; i++) {
		int j;

		for (j = 0; j < socket_count && sockets[j] != llcs[i].socket; j++)
			;
		if (j == socket_count)
			sockets[socket_count++] = llcs[i].socket;
	}
}

/* Give LLC number n of a socket, by their order; NULL if it has fewer. */
static const struct llc *llc_in(int socket, int n)
{
	int i;

	for (i = 0; i < llc_count; i++)
		if (llcs[i].socket == sockets[socket] && !n--)
			return &llcs[i];
	return NULL;
}

static void find_places(void)
{
	const struct llc *one, *two;
	int socket, n;

	switch (options.start) {
	case START_NONE:
		return;
	case START_TOGETHER:
		for (n = 0; n < llc_count; n++)
			places[0][place_count++] = &llcs[n];
		return;
	case START_TWO_LLCS:
		for (socket = 0; socket < socket_count; socket++)
			for (n = 0; (two = llc_in(socket, n + 1)); n += 2) {
				places[0][place_count] = llc_in(socket, n);
				places[1][place_count++] = two;
			}
		break;
	case START_TWO_SOCKETS:
		for (n = 0; socket_count > 1 && (one = llc_in(0, n)) && (two = llc_in(1, n)); n++) {
			places[0][place_count] = one;
			places[1][place_count++] = two;
		}
		break;
	case START_SCATTERED:
		for (n = 0; place_count < llc_count; n++)
			for (socket = 0; socket < socket_count; socket++) {
				one = llc_in(socket, n);
				if (one)
					places[0][place_count++] = one;
			}
		if (llc_count < 2)
			place_count = 0;
		break;
	}
	if (!place_count)
		errx(1, "start=%s: the CPUs that the program may use have %d LLCs in %d sockets",
		     start_names[options.start], llc_count, socket_count);
}

static const cpu_set_t *place_of(int group, int seat)
{
	int row = options.start == START_TWO_LLCS || options.start == START_TWO_SOCKETS ? seat % 2 : 0;

	if (options.start == START_SCATTERED)
		group += seat;
	return &places[row][group % place_count]->cpus;
}

static void restrict_thread(pid_t thread, const cpu_set_t *cpus)
{
	if (sched_setaffinity(thread, sizeof(*cpus), cpus))
		err(1, "sched_setaffinity of thread %d", thread);
}

/* ---- tasks ---- */

void expect_tasks(int count)
{
	if (count > MOST_TASKS)
		errx(2, "%d tasks, more than %d", count, MOST_TASKS);
	expected = count;
	shared = map(sizeof(*shared), MAP_SHARED);
	if (options.start == START_NONE)
		return;
	find_llcs();
	find_places();
	shared->placing = true;
}

void join(int number, int group, int seat)
{
	pid_t thread = gettid();

	shared->members[number].group = group;
	shared->members[number].seat = seat;
	shared->members[number].thread = thread;
	if (shared->placing)
		restrict_thread(thread, place_of(group, seat));
}

static void ask(const char *what)
{
	int fd = open("/sys/kernel/debug/sched/llc_balancing/groups", O_WRONLY);

	if (fd < 0 || write(fd, what, strlen(what)) < 0)
		err(1, "groups: %s", what);
	close(fd);
}

void join_processes(int group)
{
	pid_t leader = 0;
	char what[64];

	if (atomic_compare_exchange_strong(&shared->leaders[group], &leader, getpid()))
		return;
	snprintf(what, sizeof(what), "%d join %d", getpid(), leader);
	ask(what);
}

void leave_out(void)
{
	char what[64];

	snprintf(what, sizeof(what), "%d never", gettid());
	ask(what);
}

void begin_work(void)
{
	shared->begun++;
}

static void place(void)
{
	int i;

	if (options.start == START_NONE)
		return;
	shared->placing = true;
	for (i = 0; i < expected; i++)
		if (shared->members[i].thread)
			restrict_thread(shared->members[i].thread,
					place_of(shared->members[i].group, shared->members[i].seat));
}

void wait_for_tasks(void)
{
	/* If one never begins, the alarm that main() has set ends the program. */
	while (shared->begun < expected)
		sleep_us(WAIT_US);
}

void release(void)
{
	int i;

	if (options.start == START_NONE)
		return;
	shared->placing = false;
	for (i = 0; i < expected; i++)
		restrict_thread(shared->members[i].thread, &allowed);
}

void progress(int number)
{
	shared->of[number].operations++;
}

static uint64_t all_operations(void)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < expected; i++)
		sum += shared->of[i].operations;
	return sum;
}

/* Operations of each group; give the geometric mean of those that it has done since `before`, 0 if one has done none. */
static double mean_of_groups(const uint64_t *before, uint64_t *now)
{
	double logs = 0;
	int i, groups = 0;

	memset(now, 0, MOST_TASKS * sizeof(*now));
	for (i = 0; i < expected; i++) {
		int group = shared->members[i].group;

		now[group] += shared->of[i].operations;
		if (group >= groups)
			groups = group + 1;
	}
	for (i = 0; i < groups; i++)
		logs += log(now[i] - before[i]);
	return exp(logs / groups);
}

/* ---- waiting times ---- */

static int bucket_of(uint64_t ns)
{
	int power, bucket;

	if (ns < SUB)
		return ns;
	power = 63 - __builtin_clzll(ns);
	bucket = (power - SUB_BITS + 1) * SUB + (ns >> (power - SUB_BITS)) % SUB;
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* The middle of a bucket, in ns. */
static double middle_of(int bucket)
{
	int power = bucket / SUB + SUB_BITS - 1;

	if (bucket < SUB)
		return bucket;
	return (SUB + bucket % SUB + 0.5) * (1ULL << (power - SUB_BITS));
}

void waited(int number, double ns)
{
	if (shared->measuring)
		shared->waits[number][bucket_of(ns > 0 ? ns : 0)]++;
}

/* Add up the buckets of all tasks; give how many waits they are. */
static uint64_t all_waits(uint64_t *sums)
{
	uint64_t count = 0;
	int i, bucket;

	memset(sums, 0, BUCKETS * sizeof(*sums));
	for (i = 0; i < expected; i++)
		for (bucket = 0; bucket < BUCKETS; bucket++) {
			sums[bucket] += shared->waits[i][bucket];
			count += shared->waits[i][bucket];
		}
	return count;
}

static double percentile_us(const uint64_t *sums, uint64_t count, double percent)
{
	uint64_t below = 0;
	int bucket;

	for (bucket = 0; bucket < BUCKETS - 1; bucket++) {
		below += sums[bucket];
		if (below >= count * percent / 100)
			break;
	}
	return middle_of(bucket) / 1e3;
}

/* ---- windows ---- */

/* What settle_ms is for takes the simulated caches only now and then: placement, and what samples memory. A
 * third of the warm-up goes by without them, which is faster; they only have to be full when the window
 * begins. */
static void warm_up(long ms)
{
	if (options.settle_ms)
		SETTLE();
	sleep_us(options.settle_ms * 1000 + ms * 1000 / 3);
	WARM();
	sleep_us(ms * 1000 * 2 / 3);
}

/* Have the state for the next window set. system() uses vfork(): tasks of this process keep their
 * page tables. */
static void call_between(int window)
{
	char command[256];

	if (!options.between)
		return;
	snprintf(command, sizeof(command), "%s %d >&2", options.between, window);
	fflush(stdout);
	if (system(command))
		errx(1, "%s failed", command);
}

static size_t read_file(const char *name, char *buffer)
{
	size_t size = 0;
	ssize_t got = 1;
	int file = open(name, O_RDONLY);

	/* A kernel may lack it. */
	if (file < 0 && errno == ENOENT)
		return 0;
	while (file >= 0 && got > 0 && size < STATS_BYTES) {
		got = read(file, buffer + size, STATS_BYTES - size);
		if (got > 0)
			size += got;
	}
	if (file < 0 || got < 0)
		err(1, "%s", name);
	close(file);
	return size;
}

static void write_file(const char *what, const char *name, const char *buffer, size_t size)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s.%s", options.stats, name, what);
	file = fopen(path, "w");
	if (!file || fwrite(buffer, 1, size, file) != size || fclose(file))
		err(1, "%s", path);
}

/* Copy the kernel's statistics to options.stats, as NAME.before or NAME.after. What they count while
 * they are read is in the difference. */
static void copy_stats(const char *what)
{
	static char *schedstat, *wakeup_stats;
	size_t schedstat_size, wakeup_size;

	if (!options.stats)
		return;
	if (!schedstat) {
		schedstat = map(STATS_BYTES, MAP_PRIVATE);
		wakeup_stats = map(STATS_BYTES, MAP_PRIVATE);
	}
	schedstat_size = read_file("/proc/schedstat", schedstat);
	wakeup_size = read_file("/sys/kernel/debug/sched/wakeup_stats", wakeup_stats);
	write_file(what, "schedstat", schedstat, schedstat_size);
	write_file(what, "wakeup_stats", wakeup_stats, wakeup_size);
}

void begin_region(void)
{
	copy_stats("before");
	BEGIN();
}

void end_region(void)
{
	END();
	copy_stats("after");
}

static void print_figures(enum figure figure, double scale, const char *unit, double operations,
			  double ns)
{
	static uint64_t sums[BUCKETS];
	/* The last one is the figure itself, if that is P99. */
	static const unsigned int percents[] = { 50, 90, 99 };
	unsigned int shown = figure == P99 ? 2 : 3;
	uint64_t waits = all_waits(sums);
	unsigned int i;

	if (operations <= 0)
		errx(1, "no task has done anything");
	if (figure != P99) {
		printf("%.4f %s", operations * scale / ns * 1e6, unit);
	} else {
		if (waits < FEWEST_WAITS)
			errx(1, "%lu waits are too few for a 99th percentile", waits);
		printf("%.4f %s per_ms=%.4f", percentile_us(sums, waits, 99), unit,
		       operations / ns * 1e6);
	}
	for (i = 0; waits && i < shown; i++)
		printf(" p%u=%.3f", percents[i], percentile_us(sums, waits, percents[i]));
	printf("\n");
}

void measure(enum figure figure, double scale, const char *unit, long warm_ms, long ms)
{
	static uint64_t groups_before[MOST_TASKS], groups_now[MOST_TASKS];
	double begin, ns, mean;
	uint64_t before, operations;
	int window;

	if (options.window_ms)
		ms = options.window_ms;
	wait_for_tasks();
	for (window = 0; window < options.windows; window++) {
		place();
		memset(shared->waits, 0, expected * sizeof(*shared->waits));
		call_between(window);
		warm_up(warm_ms);
		release();
		begin_region();
		shared->measuring = true;
		before = all_operations();
		mean_of_groups(groups_before, groups_before);
		begin = now_ns();
		sleep_us(ms * 1000);
		ns = now_ns() - begin;
		operations = all_operations() - before;
		mean = mean_of_groups(groups_before, groups_now);
		shared->measuring = false;
		end_region();
		print_figures(figure, scale, unit, figure == MEAN ? mean : operations, ns);
	}
}

void need_all(void)
{
	int i;

	for (i = 0; i < expected; i++)
		if (!shared->of[i].operations)
			errx(1, "task %d of %d has done nothing", i, expected);
}
