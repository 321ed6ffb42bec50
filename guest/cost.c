// SPDX-License-Identifier: GPL-2.0-only
/*
 * cost OPERATION CPU CPU BATCHES: how long an operation takes, in ns each.
 *
 * For a guest under icount, whose clock counts instructions at 1 ns each: what it prints is then
 * the number of instructions that all CPUs together ran for one operation. It is the median of
 * many short batches, most of which no timer tick falls into.
 *
 * pipe: a byte to a process on the other CPU and back. fork: fork, exit and wait, on the first CPU.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Operations in a batch: few against a tick, many against what reading the clock takes. */
#define BATCH 20
/* Batches until the tasks' utilisation and lazily built page tables are as they stay. */
#define WARM_UP 20

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		err(1, "CPU %d", cpu);
}

static void pass(int from, int to, int from_first)
{
	char byte = 0;

	if (from_first && read(from, &byte, 1) != 1)
		err(1, "read");
	if (write(to, &byte, 1) != 1)
		err(1, "write");
	if (!from_first && read(from, &byte, 1) != 1)
		err(1, "read");
}

static void echo(int from, int to, int cpu)
{
	/* Until it is killed. */
	pin(cpu);
	for (;;)
		pass(from, to, 1);
}

static void fork_exit(void)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid)
		_exit(0);
	if (waitpid(pid, NULL, 0) != pid)
		err(1, "wait");
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int there[2], back[2], batches, is_pipe, i, k;
	double *each, begin;
	pid_t pid = 0;

	if (argc != 5)
		errx(2, "usage: cost pipe|fork CPU CPU BATCHES");
	is_pipe = !strcmp(argv[1], "pipe");
	batches = atoi(argv[4]);
	if (batches < 1)
		errx(2, "BATCHES is to be at least 1");
	each = calloc(batches, sizeof(*each));
	if (!each || pipe(there) || pipe(back))
		err(1, "cannot begin");
	if (is_pipe) {
		pid = fork();
		if (pid < 0)
			err(1, "fork");
		if (!pid)
			echo(there[0], back[1], atoi(argv[3]));
	}
	pin(atoi(argv[2]));
	for (i = -WARM_UP; i < batches; i++) {
		begin = now();
		for (k = 0; k < BATCH; k++) {
			if (is_pipe)
				pass(back[0], there[1], 0);
			else
				fork_exit();
		}
		if (i >= 0)
			each[i] = (now() - begin) / BATCH;
	}
	if (pid)
		kill(pid, SIGKILL);
	qsort(each, batches, sizeof(*each), compare);
	printf("%.1f\n", each[batches / 2]);
	return 0;
}
