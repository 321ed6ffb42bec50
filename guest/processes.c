// SPDX-License-Identifier: GPL-2.0-only
/*
 * processes COUNT THREADS: the kernel's memory for a process with so many threads, in bytes: what
 * /proc/meminfo has more of, in its lines SUnreclaim and Percpu, when COUNT of them sleep, per process.
 */
#include <err.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Little enough that the page tables of COUNT processes fit. */
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
		errx(2, "COUNT and THREADS are to be at least 1");
	/* What is allocated once is not theirs either. */
	start(count / 100 + 1, threads);
	slab = memory("SUnreclaim");
	percpu = memory("Percpu");
	start(count, threads);
	printf("%.1f %.1f\n", (memory("SUnreclaim") - slab) / count, (memory("Percpu") - percpu) / count);
	return 0;
}
