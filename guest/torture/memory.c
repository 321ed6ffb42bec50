// SPDX-License-Identifier: GPL-2.0-only
/* Is all memory given back: after processes with threads, and where allocations fail? */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

#define SLABS "/sys/kernel/slab/"
#define FAIL_NTH "/proc/thread-self/fail-nth"
#define DEBUGFS "/sys/kernel/debug/"
/* More than any of the operations below allocates. */
#define NTH_MAX 1000
/* No child of fail_each() exits with it by itself. */
#define NOT_REACHED 42

/*
 * The memory of processes, which goes with them. There may be some more after that: each idle CPU holds on to
 * the memory of the process before it. The groups have no slab cache of their own: kmemleak finds those.
 */
#define CACHE SLABS "mm_struct/"
/* -1 if this is not known. */
static long objects_before = -1;

/* The objects in use, after free ones in per-CPU lists and in KASAN's quarantine are gone. */
static long objects(void)
{
	char text[256];

	write_file(CACHE "shrink", "1");
	return read_file(CACHE "objects", text, sizeof(text)) > 0 ? atol(text) : -1;
}

static bool given_back(void)
{
	return objects() <= objects_before + cpus();
}

static void check_objects(const char *when)
{
	if (objects_before < 0)
		return;
	if (wait_for(given_back, "that all objects are given back"))
		wrong("%s", when);
	printf("# slab mm_struct %s: %ld objects, %ld before\n", when, objects(), objects_before);
}

static void *nothing(void *unused)
{
	return unused;
}

static void *stay(void *unused)
{
	pause();
	return unused;
}

/* What a process that is about to have one allocation fail does. */
enum victim { FORK, SPAWN, THREAD, FORK_BESIDE_THREADS, EXEC, EXEC_BESIDE_THREADS, NR_VICTIMS };

static int fail_fd;

static void arm(int nth)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", nth);
	if (write(fail_fd, text, strlen(text)) < 0)
		_exit(1);
}

/* Has the allocation been there that had to fail? */
static bool reached(void)
{
	char text[16] = "";
	int fd = open(FAIL_NTH, O_RDWR);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return true;
	(void)!write(fd, "0", 1);
	return atoi(text) == 0;
}

/* What an exec ends in that has had an allocation fail. */
int leaf_reached(void)
{
	return reached() ? 0 : NOT_REACHED;
}

static void be_victim(enum victim victim, int nth)
{
	static char *const args[] = { "torture", "reached", NULL };
	static char *const environment[] = { NULL };
	pthread_t threads[3];
	bool beside = victim == FORK_BESIDE_THREADS || victim == EXEC_BESIDE_THREADS;
	int nr = 0;
	pid_t pid = -1;

	for (; beside && nr < 2; nr++) {
		if (pthread_create(&threads[nr], NULL, stay, NULL))
			_exit(1);
	}
	fail_fd = open(FAIL_NTH, O_RDWR);
	arm(nth);
	switch (victim) {
	case FORK:
	case FORK_BESIDE_THREADS:
		pid = fork();
		if (!pid)
			_exit(0);
		break;
	case SPAWN:
		if (posix_spawn(&pid, PROGRAM, NULL, NULL, args, environment))
			pid = -1;
		break;
	case THREAD:
		/* The second thread brings the group into being; then there are more. */
		nr = !pthread_create(&threads[0], NULL, nothing, NULL);
		break;
	default:
		execve(PROGRAM, args, environment);
	}
	bool there = reached();

	if (victim == THREAD) {
		for (int i = 0; i < 2; i++)
			nr += !pthread_create(&threads[nr], NULL, nothing, NULL);
		for (int i = 0; i < nr; i++)
			pthread_join(threads[i], NULL);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
	_exit(there ? 0 : NOT_REACHED);
}

/* Let the first allocation fail, then the second one, and so on. */
static void fail_each(enum victim victim)
{
	int nth, status;
	pid_t pid;

	for (nth = 1; nth < NTH_MAX; nth++) {
		pid = fork();
		if (!pid)
			be_victim(victim, nth);
		if (waitpid(pid, &status, 0) != pid) {
			wrong("no process to wait for");
			return;
		}
		if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_REACHED)
			break;
		/* An exec that fails late kills the process. */
		done(OP_failed_allocation);
	}
	if (nth == 1 || nth == NTH_MAX)
		wrong("victim %d: %d allocations failed", victim, nth - 1);
}

static const char *const ways[] = { "failslab", "fail_page_alloc" };

static void set_way(const char *way, const char *file, const char *value)
{
	char path[96];

	snprintf(path, sizeof(path), DEBUGFS "%s/%s", way, file);
	if (write_file(path, value))
		wrong("%s does not take %s", path, value);
}

static long failures_left(const char *way)
{
	char path[96], text[32] = "";

	snprintf(path, sizeof(path), DEBUGFS "%s/times", way);
	read_file(path, text, sizeof(text));
	return atol(text);
}

/* A process whose allocations fail, by chance, does what it can for 2 s at most. */
static void fail_by_chance(const char *way, int percent)
{
	char text[16];
	pid_t pid;
	long left;

	snprintf(text, sizeof(text), "%d", percent);
	set_way(way, "times", "1000000");
	left = failures_left(way);
	set_way(way, "probability", text);
	pid = fork();
	if (!pid) {
		setsid();
		/* The C library complains of what it does not get. */
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		write_file("/proc/self/make-it-fail", "1");
		for (int i = 0; i < 30; i++) {
			pid = i % 2 ? process_with_threads(1 + i % 5) : fork();
			if (!pid) {
				execve(PROGRAM, (char *[]){ "torture", "leaf", NULL }, environ);
				_exit(1);
			}
			if (pid > 0)
				waitpid(pid, NULL, 0);
		}
		_exit(0);
	}
	for (int i = 0; i < 200 && waitpid(pid, NULL, WNOHANG) != pid; i++)
		usleep(10000);
	/* Where all allocations fail, a page fault is repeated for ever. */
	set_way(way, "probability", "0");
	kill(-pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	shared->done[OP_failed_allocation] += left - failures_left(way);
}

static void fail_allocations(void)
{
	static const int percents[] = { 1, 10, 50, 100 };

	if (access(FAIL_NTH, W_OK) || access(DEBUGFS "failslab", F_OK)) {
		printf("# this kernel cannot make allocations fail\n");
		return;
	}
	/* What is left behind by a process that is killed comes to us. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		/* Allocations that may sleep, too: most of them do. Each report takes long. */
		set_way(ways[i], "ignore-gfp-wait", "N");
		set_way(ways[i], "verbose", "0");
		set_way(ways[i], "task-filter", "Y");
	}
	set_way("fail_page_alloc", "min-order", "0");
	for (int victim = 0; victim < NR_VICTIMS; victim++)
		fail_each(victim);
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(percents); j++)
			fail_by_chance(ways[i], percents[j]);
		set_way(ways[i], "task-filter", "N");
	}
}

int torture_memory(int processes)
{
	int status;
	pid_t pid;

	find_cpus();
	find_files();
	objects_before = objects();
	if (objects_before < 0)
		printf("# this kernel does not tell how much of a slab cache is in use\n");
	for (int i = 0; i < processes; i++) {
		pid = process_with_threads(1 + below(4));
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			wrong("a process of several threads: %d, status %#x", pid, status);
		done(OP_process_with_threads);
	}
	check_objects("after processes");
	fail_allocations();
	check_objects("after failed allocations");
	check_llcs();
	return shared->wrong > 0;
}
