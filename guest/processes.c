// SPDX-License-Identifier: GPL-2.0-only
/*
 * processes COUNT THREADS: print the kernel memory of a process with THREADS threads, in bytes. It
 * is the growth while COUNT such processes sleep, divided by COUNT: of slabs (SUnreclaim of
 * /proc/meminfo), and of percpu memory for all possible CPUs.
 */
#define _GNU_SOURCE
#include <err.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pin.h"

/* Small, so that the page tables of COUNT processes fit into memory. */
#define STACK (64 * 1024)

static void *sleep_forever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* A line of /proc/meminfo, in bytes. */
static double memory(const char *name)
{
	char line[128], key[64];
	double value;
	FILE *file = fopen("/proc/meminfo", "r");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%63[^:]: %lf kB", key, &value) == 2 && !strcmp(key, name)) {
			fclose(file);
			return value * 1024;
		}
	errx(1, "/proc/meminfo has no %s", name);
}

/* The CPUs that are possible: they are numbered from 0. */
static int possible(void)
{
	FILE *file = fopen("/sys/devices/system/cpu/possible", "r");
	int last = 0;

	if (!file || fscanf(file, "0-%d", &last) < 0)
		err(1, "possible CPUs");
	fclose(file);
	return last + 1;
}

/* Percpu memory in use, in bytes, but for a constant: what is not free of each chunk. */
static double percpu_memory(void)
{
	double value, unit = 0, used = 0;
	char line[128], key[64];
	FILE *file = fopen("/sys/kernel/debug/percpu_stats", "r");

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, " %63s : %lf", key, &value) != 2)
			continue;
		if (!strcmp(key, "unit_size"))
			unit = value;
		else if (!strcmp(key, "free_bytes"))
			used += unit - value;
	}
	if (!file || !unit)
		errx(1, "no percpu_stats");
	fclose(file);
	return used * possible();
}

static void process(int threads, int ready)
{
	pthread_attr_t attr;
	pthread_t id;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	while (--threads > 0 && !pthread_create(&id, &attr, sleep_forever, NULL))
		;
	/* How many threads are missing. */
	if (write(ready, &threads, sizeof(threads)) != sizeof(threads))
		_exit(1);
	close(ready);
	sleep_forever(NULL);
}

static void start(int count, int threads)
{
	int ready[2], missing, i;
	pid_t pid;

	if (pipe(ready))
		err(1, "pipe");
	for (i = 0; i < count; i++) {
		pid = fork();
		if (pid < 0)
			err(1, "process %d of %d", i, count);
		if (!pid)
			process(threads, ready[1]);
		if (read(ready[0], &missing, sizeof(missing)) != sizeof(missing) || missing)
			errx(1, "process %d of %d lacks a thread", i, count);
	}
	/* What is freed with a delay is not to be seen as theirs. */
	sleep(2);
}

int main(int argc, char **argv)
{
	double slab, percpu;
	int count, threads;

	if (argc != 3)
		errx(2, "usage: processes COUNT THREADS");
	count = atoi(argv[1]);
	threads = atoi(argv[2]);
	if (count < 1 || threads < 1)
		errx(2, "COUNT and THREADS must be at least 1");
	/* Slabs are kept by CPU: with one, nearly all of each are in use. */
	pin(0);
	/* What is allocated once is not theirs either. */
	start(count / 100 + 1, threads);
	slab = memory("SUnreclaim");
	percpu = percpu_memory();
	start(count, threads);
	printf("slab=%.1f percpu=%.1f\n", (memory("SUnreclaim") - slab) / count, (percpu_memory() - percpu) / count);
	return 0;
}
