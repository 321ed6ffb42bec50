// SPDX-License-Identifier: GPL-2.0-only
/*
 * One process with two groups of threads: pairs that hand work to each other, and threads that go through memory of
 * their own. The pairs share data, the others share nothing. What does cache-aware scheduling do to each group?
 *
 *	gcc -O2 -Wall -pthread -o two_groups two_groups.c
 *	./two_groups				# 6 threads with 8 MiB each and one pair, 10 windows of 2 s
 *	sudo ./two_groups -x			# off, on, on, off and so on, by llc_balancing/enabled of debugfs
 *
 *	-t N	threads with memory of their own (6)	-s N	seconds of a window (2)
 *	-k N	KiB of each of them (8192)		-n N	windows, with -x a multiple of 4 (10; with -x 12)
 *	-p N	pairs (1)				-x	switch the feature between the windows
 *	-w N	microseconds of work for a handoff (5)	-q	print the summary only
 *
 * Choose -t and -k so that the threads of the process fit in an LLC and its memory does not: by the defaults of Linux
 * 7.3 the running threads are to be less than 80 % of the cores of an LLC, but the average that is compared stays up to
 * some threads too low. The default of aggr_tolerance also refuses a process whose footprint exceeds the LLC, but only
 * NUMA balancing counts the footprint: it must be on, with more than one node, and scan first, which takes a second.
 *
 * What is known, none of it from hardware: in a simulation of a cut of 2 EPYC 9654 sockets (32 CPUs, 4 LLCs of 8 cores
 * without SMT and 32 MiB; 5 seeds, 20 ms each, after 60 ms), with the defaults above, Linux 7.3.4 on against off:
 *
 *	memory that the threads went through	-46.6 % (-54.6 to -37.2), loss; off against itself +1.1 % (-3.9 to +6.3)
 *	wakeup of the other thread of the pair	median -6 % (-38 to +42), 99th percentile -4 % (-37 to +46): no verdict
 *
 * So the group that gains nothing pays, and for the other one no gain could be shown. The windows of the simulation
 * are shorter than the time in which NUMA balancing counts a footprint, so the limit of the footprint had no part in
 * it. Ten such threads and two pairs were not run. This program was run on one host with one LLC, to see that it
 * works; the figures are of the same two loops as a workload of the simulation.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LINE		64
#define CHUNK		4096
#define ENABLED		"/sys/kernel/debug/sched/llc_balancing/enabled"
#define MOST		512
#define SAMPLES		(1 << 16)
#define MAX_LLCS	256

/* What a thread tells the main thread. */
struct task {
	_Alignas(2 * LINE) _Atomic uint64_t done;
	_Atomic int cpu;
};

struct pair {
	/* Which of the two has the work, and since when. */
	_Alignas(2 * LINE) _Atomic uint32_t turn;
	double since;
};

static struct task *tasks;
static struct pair *pairs;
static int nr_hogs = 6, nr_pairs = 1, nr_tasks, seconds = 2, windows;
static double work_us = 5, loops_per_us;
static size_t bytes = 8 << 20;
/* Times from handing over to running, in ns. */
static _Atomic uint32_t samples[SAMPLES];
static _Atomic uint32_t nr_samples;

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static void spin(double loops)
{
	for (uint64_t i = 0; i < (uint64_t)loops; i++)
		asm volatile("");
}

static void *map(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		err(1, "mmap");
	return at;
}

/* Change a word of each line of memory of its own, again and again. */
static void *hog(void *argument)
{
	struct task *task = argument;
	uint64_t *own = map(bytes);

	memset(own, 0, bytes);
	for (;;)
		for (size_t i = 0; i < bytes; i += CHUNK) {
			for (size_t j = i; j < i + CHUNK; j += LINE)
				++*(volatile uint64_t *)&own[j / sizeof(*own)];
			atomic_fetch_add_explicit(&task->done, 1, memory_order_relaxed);
			atomic_store_explicit(&task->cpu, sched_getcpu(), memory_order_relaxed);
		}
	return NULL;
}

static void *partner(void *argument)
{
	struct task *task = argument;
	uint32_t number = task - tasks - nr_hogs, side = number % 2;
	struct pair *pair = &pairs[number / 2];

	for (;;) {
		while (atomic_load(&pair->turn) != side)
			syscall(SYS_futex, &pair->turn, FUTEX_WAIT_PRIVATE, !side, NULL, NULL, 0);
		samples[atomic_fetch_add(&nr_samples, 1) % SAMPLES] = now_ns() - pair->since;
		spin(work_us * loops_per_us);
		atomic_fetch_add_explicit(&task->done, 1, memory_order_relaxed);
		atomic_store_explicit(&task->cpu, sched_getcpu(), memory_order_relaxed);
		pair->since = now_ns();
		atomic_store(&pair->turn, !side);
		syscall(SYS_futex, &pair->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	}
	return NULL;
}

/* The first CPU of the last cache of @cpu, which names the LLC. */
static int llc_of(int cpu)
{
	char path[128];
	int first = -1;

	for (int index = 0; ; index++) {
		FILE *file;

		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, index);
		file = fopen(path, "r");
		if (!file)
			return first;
		if (fscanf(file, "%d", &first) != 1)
			first = -1;
		fclose(file);
	}
}

/* In which LLCs the tasks from @first on run, as LLC:TASKS. */
static void print_places(int first, int count)
{
	int llcs[MAX_LLCS], times[MAX_LLCS], found = 0, i, j;

	for (i = first; i < first + count; i++) {
		int llc = llc_of(tasks[i].cpu);

		for (j = 0; j < found && llcs[j] != llc; j++)
			;
		if (j == MAX_LLCS)
			continue;
		if (j == found) {
			llcs[found] = llc;
			times[found++] = 0;
		}
		times[j]++;
	}
	for (j = 0; j < found; j++)
		printf(" %d:%d", llcs[j], times[j]);
}

static int ascending(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static double quantile(double *values, int count, double share)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof(*values), ascending);
	return values[(int)((count - 1) * share)];
}

static uint64_t done(int first, int count)
{
	uint64_t sum = 0;

	for (int i = first; i < first + count; i++)
		sum += atomic_load_explicit(&tasks[i].done, memory_order_relaxed);
	return sum;
}

/* What ENABLED was before, to be written again at the end. */
static char before[16];

static bool write_enabled(const char *text)
{
	int file = open(ENABLED, O_WRONLY);
	bool good = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);

	if (file >= 0)
		close(file);
	return good;
}

static void restore(int signal)
{
	write_enabled(before);
	if (signal)
		_exit(1);
}

static void remember(void)
{
	FILE *file = fopen(ENABLED, "r");

	if (!file || !fgets(before, sizeof(before), file))
		err(1, "%s", ENABLED);
	fclose(file);
	signal(SIGINT, restore);
	signal(SIGTERM, restore);
}

/* The figures of one window: GB/s, handoffs per ms, and the median and 99th percentile from handing over to running. */
enum { GB, HANDOFFS, HALF, MOST_OF_THEM, FIGURES };

static const char * const names[] = { "GB/s", "handoffs/ms", "us 50 %", "us 99 %" };

static void window(double *figures)
{
	static double times[SAMPLES];
	uint64_t hogs, handoffs;
	double begin, ns;
	int count;

	atomic_store(&nr_samples, 0);
	hogs = done(0, nr_hogs);
	handoffs = done(nr_hogs, 2 * nr_pairs);
	begin = now_ns();
	sleep(seconds);
	ns = now_ns() - begin;
	figures[GB] = (done(0, nr_hogs) - hogs) * CHUNK / ns;
	figures[HANDOFFS] = (done(nr_hogs, 2 * nr_pairs) - handoffs) / ns * 1e6;
	count = nr_samples < SAMPLES ? nr_samples : SAMPLES;
	for (int i = 0; i < count; i++)
		times[i] = samples[i] / 1e3;
	figures[HALF] = quantile(times, count, .5);
	figures[MOST_OF_THEM] = quantile(times, count, .99);
}

static void start(void *(*function)(void *), struct task *task)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, function, task))
		errx(1, "cannot create a thread");
}

int main(int count, char **words)
{
	static double seen[2][FIGURES][MOST];
	int times[2] = { 0, 0 }, option, i, j;
	bool both = false, quiet = false, on = false;
	double begin;

	while ((option = getopt(count, words, "t:k:p:w:s:n:xq")) != -1) {
		switch (option) {
		case 't': nr_hogs = atoi(optarg); break;
		case 'k': bytes = atol(optarg) << 10; break;
		case 'p': nr_pairs = atoi(optarg); break;
		case 'w': work_us = atof(optarg); break;
		case 's': seconds = atoi(optarg); break;
		case 'n': windows = atoi(optarg); break;
		case 'x': both = true; break;
		case 'q': quiet = true; break;
		default: return 2;
		}
	}
	if (!windows)
		windows = both ? 12 : 10;
	nr_tasks = nr_hogs + 2 * nr_pairs;
	bytes -= bytes % CHUNK;
	if (optind < count || nr_hogs < 0 || nr_pairs < 0 || nr_tasks < 1 || nr_tasks > MOST || !bytes || seconds < 1 ||
	    windows < 1 || windows > MOST || (both && windows % 4))
		errx(2, "see the usage at the top of the source");

	tasks = map(nr_tasks * sizeof(*tasks));
	pairs = map((nr_pairs + 1) * sizeof(*pairs));
	if (both)
		remember();
	begin = now_ns();
	spin(1e8);
	loops_per_us = 1e8 / (now_ns() - begin) * 1e3;
	for (i = 0; i < nr_pairs; i++)
		pairs[i].since = now_ns();
	for (i = 0; i < nr_tasks; i++)
		start(i < nr_hogs ? hog : partner, &tasks[i]);

	for (i = 0; i < windows; i++) {
		double figures[FIGURES];

		if (both) {
			on = i % 4 == 1 || i % 4 == 2;
			if (!write_enabled(on ? "1" : "0"))
				err(1, "%s", ENABLED);
		}
		/* Threads need some time to follow. */
		sleep(1);
		window(figures);
		for (j = 0; j < FIGURES; j++)
			seen[on][j][times[on]] = figures[j];
		times[on]++;
		if (quiet)
			continue;
		printf("%s", both ? on ? "on  " : "off " : "");
		for (j = 0; j < FIGURES; j++)
			printf("%10.2f %s", figures[j], names[j]);
		printf("  own memory in LLC:threads");
		print_places(0, nr_hogs);
		printf("; pairs");
		print_places(nr_hogs, 2 * nr_pairs);
		printf("\n");
		fflush(stdout);
	}
	if (both)
		restore(0);
	for (j = 0; j < FIGURES; j++) {
		double off = quantile(seen[0][j], times[0], .5);

		printf("median %-12s%10.2f", names[j], off);
		if (both)
			printf(" off %10.2f on %+6.1f %%", quantile(seen[1][j], times[1], .5),
			       (quantile(seen[1][j], times[1], .5) / off - 1) * 100);
		printf("\n");
	}
	return 0;
}
