// SPDX-License-Identifier: GPL-2.0-only
/* Known races, one at a time: patches/6.12/test-only/races.patch has the windows and takes out the protections. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../attributes.h"
#include "torture.h"

#define PARTITION CGROUP "races/"

/* The actors; the first of them are loads, which do not end by themselves. */
static pid_t pids[32];
static int nr, loads;

static void write_or_die(const char *path, const char *text)
{
	int result = write_file(path, text);

	if (result)
		errx(1, "'%s' to %s: %s", text, path, strerror(-result));
}

static void compute_until(double end)
{
	while (now() < end && !shared->stop)
		for (volatile int i = 0; i < 1000; i++)
			;
}

static void *short_thread(void *argument)
{
	compute_until(now() + below(4) / 1000.0);
	return argument;
}

/* Others meddle with the threads of groups, if there are no loads. */
static void *group_thread(void *argument)
{
	atomic_int *tid = argument;

	if (!loads)
		*tid = syscall(SYS_gettid);
	compute_until(now() + 1);
	return NULL;
}

/* A process that decides some times, and creates threads meanwhile. Its threads end in an exec, or an exit. */
static void group(int number)
{
	pthread_t thread;
	double end = now() + 0.03 + below(30) / 1000.0;

	for (int i = 0; i < 2; i++)
		if (pthread_create(&thread, NULL, group_thread, &shared->tids[number][i]))
			_exit(0);
	if (!loads)
		shared->tids[number][2] = getpid();
	while (now() < end && !shared->stop) {
		compute_until(now() + 0.003);
		if (!pthread_create(&thread, NULL, short_thread, NULL))
			pthread_join(thread, NULL);
	}
	if (below(2))
		execl(PROGRAM, "torture", "leaf", NULL);
	_exit(0);
}

static void run_groups(int number)
{
	while (!shared->stop) {
		uint64_t child_seed = random64();
		pid_t pid = fork();

		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			seed(child_seed & 0xffff);
			group(number);
		}
		if (pid < 0 || waitpid(pid, NULL, 0) != pid)
			err(1, "a group");
		done(OP_process_with_threads);
	}
}

/* Three CPUs, on different cores if they have two threads. */
static void few_cpus(pid_t tid, unsigned int which)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; i < 3; i++)
		if (which >> i & 1)
			CPU_SET(2 * i % cpus(), &set);
	counted(OP_affinity, sched_setaffinity(tid, sizeof(set), &set) ? errno : 0);
}

/* What others do to a task with the lock of its runqueue. */
static void run_meddle(int number)
{
	(void)number;
	while (!shared->stop) {
		pid_t tid = shared->tids[below(NR_LOADS)][below(NR_LOAD_THREADS)];
		struct attributes attr = { .size = sizeof(attr), .policy = SCHED_FIFO, .priority = 1 };

		usleep(below(300));
		if (!tid)
			continue;
		switch (below(3)) {
		case 0:
			counted(OP_nice, setpriority(PRIO_PROCESS, tid, below(4)) ? errno : 0);
			break;
		case 1:
			few_cpus(tid, 1 + below(7));
			break;
		default:
			counted(OP_class, syscall(SYS_sched_setattr, tid, &attr, 0) ? errno : 0);
			attr = (struct attributes){ .size = sizeof(attr), .policy = SCHED_OTHER };
			counted(OP_class, syscall(SYS_sched_setattr, tid, &attr, 0) ? errno : 0);
		}
	}
}

/* /proc/PID/sched reads the group of another task, which may have gone. */
static void run_proc(int number)
{
	char path[64], text[8192];

	(void)number;
	while (!shared->stop) {
		snprintf(path, sizeof(path), "/proc/%d/sched", shared->tids[below(NR_LOADS)][below(3)]);
		counted(OP_read, read_file(path, text, sizeof(text)) <= 0);
	}
}

/* While the feature is off, no task is counted. */
static void run_flips(int number)
{
	char text[4096];
	int id, prefer;

	(void)number;
	while (!shared->stop) {
		usleep(5000 + below(60000));
		write_or_die(KNOBS "enabled", "0");
		done(OP_feature);
		read_file(KNOBS "llcs", text, sizeof(text));
		for (char *at = strchr(text, '\n'); at && at[1]; at = strchr(at + 1, '\n')) {
			if (sscanf(at, "%d %*s %*s %*s %d", &id, &prefer) == 2 && prefer)
				wrong("off, but %d tasks prefer LLC %d", prefer, id);
		}
		if (shared->wrong)
			return;
		usleep(below(10000));
		write_or_die(KNOBS "enabled", "1");
	}
}

static void run_partitions(int number)
{
	(void)number;
	write_or_die(CGROUP "cgroup.subtree_control", "+cpuset");
	if (mkdir(PARTITION, 0755) && errno != EEXIST)
		err(1, PARTITION);
	write_or_die(PARTITION "cpuset.cpus", "1-3");
	while (!shared->stop) {
		write_or_die(PARTITION "cpuset.cpus.partition", "root");
		usleep(below(20000));
		write_or_die(PARTITION "cpuset.cpus.partition", "member");
		usleep(below(20000));
		done(OP_cpuset_cpus);
	}
}

/* The loads first. */
static const struct actor {
	const char *name;
	void (*run)(int number);
	int processes;
} actors[] = {
	{ "load", run_load, NR_LOADS },	 { "groups", run_groups, NR_LOADS },
	{ "meddle", run_meddle, 1 },
	{ "proc", run_proc, 2 },	 { "flips", run_flips, 1 },
	{ "partitions", run_partitions, 1 },
};

/* In the order of enum sched_race, which begins with RACE_NONE. us: the length of the window in us. */
static const struct race {
	const char *name, *us, *actors;
} races[] = {
	{ "exec", "2000", "groups meddle" },
	{ "reader", "1000", "groups proc" },
	{ "last", "1000", "groups meddle" },
	{ "deciders", "2000", "groups" },
	{ "home", "5000", "load groups partitions" },
	{ "domains", "200", "groups partitions" },
	{ "off", "2000", "groups flips" },
	{ "lock", "1000", "load groups flips" },
	{ "on", "5000", "groups flips" },
	{ "choices", "2000", "groups" },
};

static bool actors_end(void)
{
	int status;

	for (int i = loads; i < nr; i++) {
		pid_t pid = pids[i] ? waitpid(pids[i], &status, WNOHANG) : 0;

		if (pid && status)
			wrong("actor %d ended with status %#x", i, status);
		if (pid)
			pids[i] = 0;
	}
	for (int i = loads; i < nr; i++)
		if (pids[i])
			return false;
	return true;
}

int torture_races(double seconds, const char *name, const char *out)
{
	const struct race *race = races;
	char text[32] = "";
	int passed;

	while (race < races + ARRAY_SIZE(races) && strcmp(race->name, name))
		race++;
	if (race == races + ARRAY_SIZE(races))
		errx(2, "no such race: %s", name);
	find_cpus();
	find_files();
	/* There is little else to run then, and without its protection a case often fails. */
	patience = 10;
	/* A gate that opens soon, and preferences that stay while the feature is off. */
	write_or_die(KNOBS "aggr_tolerance", "100");
	write_or_die(KNOBS "epoch_period", "1");
	write_or_die(KNOBS "epoch_affinity_timeout", "1000000");
	/* What the console has from here on is of this case. */
	snprintf(text, sizeof(text), "races: %s\n", name);
	write_or_die("/dev/kmsg", text);
	write_or_die(SCHED "race_us", race->us);
	write_or_die(SCHED "race_out", out);
	read_file(SCHED "race_passed", text, sizeof(text));
	passed = atoi(text);
	snprintf(text, sizeof(text), "%d", (int)(race - races) + 1);
	write_or_die(SCHED "race", text);

	for (size_t i = 0; i < ARRAY_SIZE(actors); i++) {
		if (!strstr(race->actors, actors[i].name))
			continue;
		for (int j = 0; j < actors[i].processes; j++, nr++)
			pids[nr] = start(actors[i].name, actors[i].run, j, nr + 1);
		if (actors[i].run == run_load)
			loads = nr;
	}
	usleep(seconds * 1e6);
	shared->stop = true;
	/* A thread that is never woken cannot be waited for. */
	if (!wait_for(actors_end, "the end of all actors") && (!loads || turns_go_on())) {
		for (int i = 0; i < loads; i++) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
		}
		check_llcs();
	}
	read_file(SCHED "race_passed", text, sizeof(text));
	printf("# {\"figure\": \"windows\", \"passed\": %d}\n", atoi(text) - passed);
	return shared->wrong > 0;
}
