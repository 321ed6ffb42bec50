// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two threads of one node write to the same pages of that node. Does NUMA balancing see that they share them? With the
 * default policy it does not; see numa-local.txt.
 *
 *	gcc -O2 -Wall -pthread -o numa_local numa_local.c
 *	sudo sysctl kernel.numa_balancing=1
 *	./numa_local			# with the default policy
 *	./numa_local -b			# for comparison: with MPOL_BIND to all nodes and MPOL_F_NUMA_BALANCING
 *
 *	-p N	pages (1024)			-s N	most seconds to wait (120)
 *	-f N	hinting faults per page (4)	-b	that policy
 *
 * The threads touch the pages in random order, each in its own, so half of the hinting faults of a page should be of
 * the thread that did not have the last one: shared. Between two touches they spin, so that no thread touches all pages
 * before the other one runs, as in an emulated guest. It waits until the system has had as many faults as asked for
 * (/proc/vmstat), and prints what /proc/PID/sched says of the two threads: their private and shared faults, which are
 * decaying averages, and whether they are in one numa_group.
 * Run it on a quiet machine with two nodes or more.
 */
#define _GNU_SOURCE
#include <err.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NODE_DIR	"/sys/devices/system/node"
#define THREADS		2
#define MAX_NODES	1024
#define SPIN		2000

static struct toucher {
	pthread_t thread;
	atomic_int tid;
	unsigned int random;
} touchers[THREADS];

static long nr_pages = 1024, page_size;
static char *memory;
static atomic_bool stop;

/* Let this thread, and those that it creates, run on the CPUs of a node; whether it has enough of them. */
static bool run_on(int node, const cpu_set_t *usable)
{
	cpu_set_t cpus;
	char path[64];

	CPU_ZERO(&cpus);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		snprintf(path, sizeof(path), NODE_DIR "/node%d/cpu%d", node, cpu);
		if (CPU_ISSET(cpu, usable) && !access(path, F_OK))
			CPU_SET(cpu, &cpus);
	}
	return CPU_COUNT(&cpus) >= THREADS && !sched_setaffinity(0, sizeof(cpus), &cpus);
}

static void *touch(void *argument)
{
	struct toucher *self = argument;

	self->tid = syscall(SYS_gettid);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		self->random = self->random * 1664525 + 1013904223;
		__atomic_fetch_add(&memory[(self->random >> 8) % nr_pages * page_size], 1, __ATOMIC_RELAXED);
		for (int i = 0; i < SPIN; i++)
			asm volatile("");
	}
	return NULL;
}

static long vmstat(const char *name)
{
	FILE *file = fopen("/proc/vmstat", "r");
	char word[64];
	long value;

	while (file && fscanf(file, "%63s %ld", word, &value) == 2)
		if (!strcmp(word, name)) {
			fclose(file);
			return value;
		}
	errx(1, "no %s in /proc/vmstat: a kernel without NUMA balancing", name);
}

/* Add the averages of the faults of a thread, and return its numa_group. */
static long read_sched(int tid, long *private, long *shared)
{
	long group = 0, mine, others;
	char path[64], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/sched", tid);
	file = fopen(path, "r");
	if (!file)
		err(1, "%s", path);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "numa_faults node=%*d task_private=%ld task_shared=%ld", &mine, &others) == 2) {
			*private += mine;
			*shared += others;
		}
		sscanf(line, "current_node=%*d, numa_group_id=%ld", &group);
	}
	fclose(file);
	return group;
}

/* Allow all nodes, with a policy under which NUMA balancing goes on. */
static void bind_to_all(void)
{
	unsigned long nodes[MAX_NODES / 8 / sizeof(long)] = { 0 };

	if (syscall(SYS_get_mempolicy, NULL, nodes, MAX_NODES, NULL, MPOL_F_MEMS_ALLOWED) ||
	    syscall(SYS_set_mempolicy, MPOL_BIND | MPOL_F_NUMA_BALANCING, nodes, MAX_NODES))
		err(1, "memory policy");
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int count, char **words)
{
	long per_page = 4, limit = 120, faults, local, moved, private = 0, shared = 0, groups[THREADS];
	int option, i, node = -1, mode = 0;
	bool bind = false;
	cpu_set_t usable;
	double begin;
	FILE *file;

	while ((option = getopt(count, words, "p:f:s:b")) != -1) {
		switch (option) {
		case 'p': nr_pages = atol(optarg); break;
		case 'f': per_page = atol(optarg); break;
		case 's': limit = atol(optarg); break;
		case 'b': bind = true; break;
		default: return 2;
		}
	}
	if (optind < count || nr_pages < 1 || nr_pages > 1 << 24 || per_page < 1 || limit < 1)
		errx(2, "see the usage at the top of the source");
	file = fopen("/proc/sys/kernel/numa_balancing", "r");
	if (!file || fscanf(file, "%d", &mode) != 1 || !(mode & 1))
		errx(1, "NUMA balancing is off: sysctl kernel.numa_balancing=1");
	fclose(file);

	if (bind)
		bind_to_all();
	if (sched_getaffinity(0, sizeof(usable), &usable))
		err(1, "sched_getaffinity");
	while (++node < MAX_NODES && !run_on(node, &usable))
		;
	if (node == MAX_NODES)
		errx(1, "no node with %d CPUs", THREADS);
	page_size = sysconf(_SC_PAGESIZE);
	memory = mmap(NULL, nr_pages * page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	madvise(memory, nr_pages * page_size, MADV_NOHUGEPAGE);
	memset(memory, 1, nr_pages * page_size);

	faults = vmstat("numa_hint_faults");
	local = vmstat("numa_hint_faults_local");
	moved = vmstat("numa_pages_migrated");
	begin = now();
	for (i = 0; i < THREADS; i++) {
		touchers[i].random = i;
		if (pthread_create(&touchers[i].thread, NULL, touch, &touchers[i]))
			errx(1, "cannot create a thread");
	}
	do {
		usleep(250000);
	} while (vmstat("numa_hint_faults") - faults < per_page * nr_pages && now() - begin < limit);
	for (i = 0; i < THREADS; i++)
		groups[i] = read_sched(touchers[i].tid, &private, &shared);
	printf("on node %d, %s policy\n", node, bind ? "MPOL_BIND | MPOL_F_NUMA_BALANCING as" : "default");
	printf("%ld hinting faults in %.1f s, %ld of them local; %ld pages migrated\n",
	       vmstat("numa_hint_faults") - faults, now() - begin, vmstat("numa_hint_faults_local") - local,
	       vmstat("numa_pages_migrated") - moved);
	printf("of the two threads, averages: %ld private, %ld shared; in one numa_group: %s\n", private, shared,
	       groups[0] && groups[0] == groups[1] ? "yes" : "no");
	stop = true;
	for (i = 0; i < THREADS; i++)
		pthread_join(touchers[i].thread, NULL);
	return 0;
}
