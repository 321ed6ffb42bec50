// SPDX-License-Identifier: GPL-2.0-only
/*
 * torture run SEED SECONDS     do to the scheduler, all at once, what servers do to it, and worse
 * torture files SEED           write rubbish to the files that the patches add
 * torture races SEED SECONDS CASE OUT  drive a known race; OUT is 1: with its protection taken out
 * torture memory SEED COUNT    start COUNT processes, fail allocations: is all memory given back?
 *
 * Each prints what it did as figures for kit/vm/ktap.py, what is wrong as "# wrong: ...", and
 * returns 1 if something is. All random numbers come from SEED.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "torture.h"

struct shared *shared;

static uint64_t state, start_seed;

#define X(name) #name,
static const char *const names[] = { OPERATIONS(X) };
#undef X

/* What runs at the same time, each in a process of its own. */
static const struct actor {
	const char *name;
	void (*run)(int number);
	int processes;
} actors[] = {
	{ "load", run_load, NR_LOADS },	   { "churn", run_churn, 2 },
	{ "attributes", run_attributes, 1 }, { "hotplug", run_hotplug, 1 },
	{ "cgroups", run_cgroups, 1 },	   { "knobs", run_knobs, 1 },
	{ "readers", run_readers, 1 },	   { "scx", run_scx, 1 },
	{ "programs", run_programs, 1 },
};

/* Sebastiano Vigna's splitmix64: each state gives one number, so any seed is as good as another. */
uint64_t random64(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

void seed(uint64_t number)
{
	state = start_seed + (number << 32);
	random64();
}

unsigned int below(unsigned int limit)
{
	return random64() % limit;
}

void done(enum operation operation)
{
	shared->done[operation]++;
}

void counted(enum operation operation, int error)
{
	if (error)
		shared->refused[operation]++;
	else
		shared->done[operation]++;
}

void wrong(const char *format, ...)
{
	char line[512];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	/* One write: others print as well. */
	dprintf(STDOUT_FILENO, "# wrong: %s\n", line);
	shared->wrong++;
}

/* The length of what was read, or -errno. */
int read_file(const char *path, char *text, size_t size)
{
	ssize_t got = 0;
	size_t length = 0;
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		return -errno;
	while (length < size - 1 && (got = read(fd, text + length, size - 1 - length)) > 0)
		length += got;
	if (got < 0)
		got = -errno;
	close(fd);
	text[length] = '\0';
	return got < 0 ? got : (int)length;
}

/* 0 or -errno, that of open() included. */
int write_bytes(const char *path, const void *bytes, size_t length)
{
	int fd = open(path, O_WRONLY), result = 0;

	if (fd < 0)
		return -errno;
	if (write(fd, bytes, length) < 0)
		result = -errno;
	close(fd);
	return result;
}

int write_file(const char *path, const char *text)
{
	return write_bytes(path, text, strlen(text));
}

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

int patience = 60;

/* Wait until the condition holds, for so many seconds of the guest's clock. */
int wait_for(bool (*condition)(void), const char *what)
{
	for (int i = 0; i < 100 * patience; i++) {
		if (condition())
			return 0;
		usleep(10000);
	}
	wrong("%s does not happen", what);
	return -1;
}

pid_t start(const char *name, void (*run)(int number), int number, int of_all)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, name);
	seed(of_all);
	run(number);
	_exit(0);
}

static int run(double seconds)
{
	pid_t pids[32], loads = 0;
	int nr = 0, status;

	find_cpus();
	find_files();
	for (size_t i = 0; i < ARRAY_SIZE(actors); i++) {
		for (int j = 0; j < actors[i].processes; j++) {
			if ((actors[i].run == run_scx && !has_scx()) ||
			    (actors[i].run == run_programs && !has_programs()))
				continue;
			pids[nr] = start(actors[i].name, actors[i].run, j, nr + 1);
			nr++;
		}
	}
	loads = NR_LOADS;

	/* Each BPF scheduler is loaded beside all the rest, however short the time. */
	for (double end = now() + seconds; now() < end || (has_scx() && !each_scx_loaded() && !shared->wrong);) {
		usleep(100000);
		/* An actor ends when it is told, and not before. */
		for (int i = 0; i < nr; i++) {
			if (pids[i] && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
				wrong("actor %d ended with status %#x", i, status);
				pids[i] = 0;
			}
		}
	}

	shared->stop = true;
	for (int i = loads; i < nr; i++) {
		if (pids[i] && (waitpid(pids[i], &status, 0) != pids[i] || status))
			wrong("actor %d ended with status %#x", i, status);
	}
	all_online();
	remove_cgroups();
	restore_files();
	if (!turns_go_on())
		wrong("a pair of threads no longer wakes each other");
	for (int i = 0; i < loads; i++) {
		if (!pids[i])
			continue;
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	check_llcs();
	return shared->wrong > 0;
}

static void print_counts(void)
{
	for (int i = 0; i < NR_OPERATIONS; i++) {
		unsigned long done = shared->done[i], refused = shared->refused[i];

		if (done || refused)
			printf("# {\"figure\": \"count\", \"name\": \"%s\", \"done\": %lu, \"refused\": %lu}\n",
			       names[i], done, refused);
	}
}

int main(int argc, char **argv)
{
	double begin = now();
	int result;

	if (argc == 2 && !strcmp(argv[1], "leaf"))
		return leaf();
	if (argc == 2 && !strcmp(argv[1], "reached"))
		return leaf_reached();
	if (argc < 3)
		errx(2, "usage: torture run|files|memory|races SEED [SECONDS|COUNT]...");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		err(1, "mmap");
	setvbuf(stdout, NULL, _IOLBF, 0);
	start_seed = strtoull(argv[2], NULL, 10);
	seed(0);

	if (!strcmp(argv[1], "run") && argc == 4)
		result = run(atof(argv[3]));
	else if (!strcmp(argv[1], "files"))
		result = torture_files();
	else if (!strcmp(argv[1], "memory") && argc == 4)
		result = torture_memory(atoi(argv[3]));
	else if (!strcmp(argv[1], "races") && argc == 6)
		result = torture_races(atof(argv[3]), argv[4], argv[5]);
	else
		errx(2, "torture: no such part: %s", argv[1]);
	print_counts();
	printf("# {\"figure\": \"clock\", \"seconds\": %.1f}\n", now() - begin);
	return result;
}
