// SPDX-License-Identifier: GPL-2.0-only
/*
 * cost OPERATION CPU CPU ROUNDS: how long an operation takes, in ns each.
 *
 * For a guest under icount, whose clock counts instructions at 1 ns each: what it prints is then the
 * number of instructions that all CPUs together ran for one operation.
 *
 * pipe: a byte to a process on the other CPU and back. fork: fork, exit and wait, on the first CPU.
 */
#define _GNU_SOURCE
#include <err.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Rounds until caches, the tasks' utilisation and lazily built page tables are as they stay. */
#define WARM_UP 200

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

static void echo(int from, int to, int cpu, int rounds)
{
	pin(cpu);
	while (rounds--)
		pass(from, to, 1);
	_exit(0);
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

int main(int argc, char **argv)
{
	int there[2], back[2], rounds, is_pipe, i;
	double begin = 0;

	if (argc != 5)
		errx(2, "usage: cost pipe|fork CPU CPU ROUNDS");
	is_pipe = !strcmp(argv[1], "pipe");
	rounds = atoi(argv[4]);
	if (rounds < 1)
		errx(2, "ROUNDS is to be at least 1");
	if (pipe(there) || pipe(back))
		err(1, "pipe");
	if (is_pipe && !fork())
		echo(there[0], back[1], atoi(argv[3]), WARM_UP + rounds);
	pin(atoi(argv[2]));
	for (i = 0; i < WARM_UP + rounds; i++) {
		if (i == WARM_UP)
			begin = now();
		if (is_pipe)
			pass(back[0], there[1], 0);
		else
			fork_exit();
	}
	printf("%.1f\n", (now() - begin) / rounds);
	return 0;
}
