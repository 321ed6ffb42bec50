// SPDX-License-Identifier: GPL-2.0-only
/* Tasks that come and go, tasks that stay, and what is done to those. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../attributes.h"
#include "torture.h"

#define STACK (64 * 1024)

/* include/uapi/linux/prctl.h; the C library may be older. */
#define CORE_SCHED 62
#define CORE_SCHED_CREATE 1
#define CORE_SCHED_GROUP 1

static char *const leaf_args[] = { "torture", "leaf", NULL };
static char *const no_environment[] = { NULL };

static void spin(unsigned int times)
{
	for (volatile unsigned int i = 0; i < times; i++)
		;
}

/* What an exec ends in. */
int leaf(void)
{
	spin(1000);
	return 0;
}

static void exec_leaf(void)
{
	execve(PROGRAM, leaf_args, no_environment);
	/* There may be no memory for it. */
	_exit(1);
}

/* A process ends by itself, or was killed on purpose. */
static void wait_child(pid_t pid, enum operation operation, bool killed)
{
	int status;

	if (pid < 0) {
		counted(operation, errno);
		return;
	}
	if (waitpid(pid, &status, 0) != pid)
		wrong("no process %d to wait for: %s", pid, strerror(errno));
	else if (status && !(killed && WIFSIGNALED(status)))
		wrong("operation %d: its process ended with status %#x", operation, status);
	done(operation);
}

static int in_shared_memory(void *unused)
{
	spin(500);
	_exit(0);
	return unused != NULL;
}

/* CLONE_VM without CLONE_THREAD: a process of its own in the memory of another one. */
static void clone_vm(void)
{
	char *stack = malloc(STACK);
	pid_t pid = clone(in_shared_memory, stack + STACK, CLONE_VM | SIGCHLD, NULL);

	wait_child(pid, OP_clone_vm, false);
	free(stack);
}

/* Threads of a process that lives for a short time. */
static struct short_lived {
	bool exec;
	int event;
} short_lived;

static void *short_thread(void *argument)
{
	long number = (long)argument;
	uint64_t one = 1, token;
	cpu_set_t set;

	if (number % 3 == 2) {
		CPU_ZERO(&set);
		CPU_SET(number % cpus(), &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	spin(1000 * (number + 1));
	/* Each wakes another one. */
	if (write(short_lived.event, &one, 8) == 8 && read(short_lived.event, &token, 8) == 8)
		spin(1000);
	if (short_lived.exec && number == 0)
		exec_leaf();
	return NULL;
}

static void start_threads(pthread_t *threads, int nr)
{
	pthread_attr_t attr;

	short_lived.event = eventfd(0, EFD_SEMAPHORE);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	for (int i = 0; i < nr; i++) {
		/* There may be no memory for it. */
		if (pthread_create(&threads[i], &attr, short_thread, (void *)(long)i))
			_exit(0);
	}
}

/* Fork a process of several threads, which all end. */
pid_t process_with_threads(int nr)
{
	pthread_t threads[8];
	pid_t pid = fork();

	if (pid)
		return pid;
	start_threads(threads, nr);
	for (int i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	_exit(0);
}

static void churn_threads(void)
{
	static const enum operation hows[] = { OP_exec_in_thread, OP_leader_exits_first, OP_exit_beside_threads,
					       OP_kill, OP_threads };
	int nr = 1 + below(6);
	enum operation how = hows[below(ARRAY_SIZE(hows))];
	unsigned int clones = below(3), delay = below(2000);
	bool cookie = !below(4);
	pthread_t threads[8];
	pid_t pid;

	/*
	 * With a cookie, only its own threads may run beside it on a core. In the base, pick_next_task()
	 * then takes a CPU that comes online for one of the core before sched_core_cpu_starting() has made
	 * it one, and updates its clock without its lock. So no CPU goes offline or online meanwhile.
	 *
	 * A CPU is kept idle if the task that is picked has a cookie, and the core is to run tasks without
	 * one. In the base, put_prev_task_scx() then warns if the task that ran there can still run and has
	 * none: it knows only the case that this task has a cookie. So none has one beside BPF schedulers.
	 */
	if (has_scx())
		cookie = false;
	if (cookie)
		lock(true);
	pid = fork();
	if (!pid) {
		if (cookie)
			counted(OP_core_cookie, prctl(CORE_SCHED, CORE_SCHED_CREATE, 0,
						      CORE_SCHED_GROUP, 0) ? errno : 0);
		short_lived.exec = how == OP_exec_in_thread;
		start_threads(threads, nr);
		if (!clones)
			clone_vm();
		if (how == OP_leader_exits_first)
			pthread_exit(NULL);
		if (how == OP_exit_beside_threads)
			_exit(0);
		for (int i = 0; i < nr; i++)
			pthread_join(threads[i], NULL);
		if (how == OP_kill)
			pause();
		_exit(0);
	}
	if (pid > 0 && how == OP_kill) {
		usleep(delay);
		kill(pid, SIGKILL);
	}
	wait_child(pid, how, how == OP_kill);
	if (cookie) {
		/* Core scheduling ends in a work item. */
		usleep(20000);
		lock(false);
	}
}

void run_churn(int number)
{
	bool scx = has_scx();
	pid_t pid;
	int error;

	while (!shared->stop) {
		if (scx && !below(4))
			scx_or_fair();
		switch (below(number ? 6 : 5)) {
		case 0:
			pid = fork();
			if (!pid)
				_exit(0);
			wait_child(pid, OP_fork, false);
			break;
		case 1:
			pid = fork();
			if (!pid)
				exec_leaf();
			wait_child(pid, OP_exec, false);
			break;
		case 2:
			error = posix_spawn(&pid, PROGRAM, NULL, NULL, leaf_args, no_environment);
			if (error)
				counted(OP_posix_spawn, error);
			else
				wait_child(pid, OP_posix_spawn, false);
			break;
		case 3:
			pid = vfork();
			if (!pid)
				exec_leaf();
			wait_child(pid, OP_vfork, false);
			break;
		case 4:
			clone_vm();
			break;
		default:
			churn_threads();
		}
	}
}

/*
 * A process that stays: pairs of threads that wake each other, compute in between for some
 * microseconds, and sleep.
 */
static struct end {
	int in, out;
	unsigned int work, sleeps;
	atomic_int *tid;
	atomic_ulong *turns;
} ends[NR_LOAD_THREADS];

static void *load_thread(void *argument)
{
	struct end *end = argument;
	unsigned int turn = 0;
	uint64_t token = 1;

	*end->tid = syscall(SYS_gettid);
	if (end->turns && write(end->out, &token, 8) != 8)
		_exit(1);
	for (;;) {
		if (read(end->in, &token, 8) != 8)
			_exit(1);
		spin(end->work);
		/* Now and then the CPUs are idle: all that is emulated at a time shares one speed. */
		if (turn++ % end->sleeps == 0)
			usleep(3000);
		if (write(end->out, &token, 8) != 8)
			_exit(1);
		if (end->turns)
			(*end->turns)++;
	}
}

void run_load(int number)
{
	static const unsigned int work[] = { 50, 500, 2000, 10000 };
	pthread_t thread;

	shared->pids[number] = getpid();
	for (int i = 0; i < NR_PAIRS; i++) {
		int there = eventfd(0, 0), back = eventfd(0, 0);

		for (int j = 0; j < 2; j++)
			ends[2 * i + j] = (struct end){
				.in = j ? back : there,
				.out = j ? there : back,
				.work = work[below(ARRAY_SIZE(work))],
				.sleeps = 1 + below(3),
				.tid = &shared->tids[number][2 * i + j],
				.turns = j ? &shared->turns[number][i] : NULL,
			};
	}
	for (int i = 0; i < NR_LOAD_THREADS; i++) {
		if (pthread_create(&thread, NULL, load_thread, &ends[i]))
			errx(1, "pthread_create");
	}
	for (;;)
		pause();
}

static unsigned long turns_before[NR_LOADS][NR_PAIRS];

static bool all_turned(void)
{
	for (int i = 0; i < NR_LOADS; i++) {
		for (int j = 0; j < NR_PAIRS; j++) {
			/* Twice: one may have been on its way. */
			if (shared->turns[i][j] < turns_before[i][j] + 2)
				return false;
		}
	}
	return true;
}

/* Does each pair of threads still wake each other, with all CPUs to run on? */
bool turns_go_on(void)
{
	struct attributes fair = { .size = sizeof(fair), .policy = SCHED_OTHER };
	cpu_set_t all;

	memset(&all, 0xff, sizeof(all));
	for (int i = 0; i < NR_LOADS; i++) {
		for (int j = 0; j < NR_LOAD_THREADS; j++) {
			pid_t tid = shared->tids[i][j];

			if (syscall(SYS_sched_setattr, tid, &fair, 0) ||
			    sched_setaffinity(tid, sizeof(all), &all))
				wrong("thread %d does not become an ordinary one: %s", tid,
				      strerror(errno));
		}
		for (int j = 0; j < NR_PAIRS; j++)
			turns_before[i][j] = shared->turns[i][j];
	}
	return !wait_for(all_turned, "a turn of each pair of threads");
}

static void set_class(pid_t tid)
{
	/*
	 * Not SCHED_DEADLINE: when the CPUs of such a task go offline and its cpuset changes, the base
	 * divides by the number of CPUs of a root domain that has none left, in set_cpus_allowed_dl().
	 */
	static const uint32_t policies[] = { SCHED_OTHER, SCHED_OTHER, SCHED_BATCH, SCHED_IDLE,
					     SCHED_FIFO, SCHED_RR };
	struct attributes attr = { .size = sizeof(attr) };

	attr.policy = policies[below(ARRAY_SIZE(policies))];
	if (has_scx() && below(2))
		attr.policy = SCHED_EXT;
	if (attr.policy == SCHED_FIFO || attr.policy == SCHED_RR)
		attr.priority = 1 + below(99);
	counted(OP_class, syscall(SYS_sched_setattr, tid, &attr, 0) ? errno : 0);
	if (attr.priority && below(4)) {
		/* While many of them stay in this class, little else runs. */
		usleep(below(1000));
		attr.policy = SCHED_OTHER;
		attr.priority = 0;
		counted(OP_class, syscall(SYS_sched_setattr, tid, &attr, 0) ? errno : 0);
	}
}

static void set_slice(pid_t tid)
{
	struct attributes attr = { .size = sizeof(attr) };

	attr.policy = below(2) ? SCHED_OTHER : SCHED_BATCH;
	attr.nice = (int)below(40) - 20;
	/* From nothing to far beyond the limits: the kernel clamps it. */
	attr.runtime = below(4) ? 1ull << below(40) : 0;
	counted(OP_slice, syscall(SYS_sched_setattr, tid, &attr, 0) ? errno : 0);
}

static void set_invalid(pid_t tid)
{
	struct attributes attr = { .size = sizeof(attr) }, before, after;

	if (syscall(SYS_sched_getattr, 0, &before, sizeof(before), 0))
		return;
	switch (below(4)) {
	case 0:
		attr.policy = SCHED_EXT + 1 + below(999);
		break;
	case 1:
		attr.flags = 1ull << (8 + below(56));
		break;
	case 2:
		attr.policy = SCHED_FIFO;
		attr.priority = below(2) ? 0 : 100 + below(1000);
		break;
	default:
		/* A deadline task with less time than it runs. */
		attr.policy = 6; /* SCHED_DEADLINE */
		attr.runtime = 2000000;
		attr.deadline = attr.period = 1000000;
	}
	/* The victims' attributes change all the time, so that only our own can be compared. */
	if (!syscall(SYS_sched_setattr, below(2) ? tid : 0, &attr, 0) ||
	    (errno != EINVAL && errno != ESRCH))
		wrong("policy %u flags %llx priority %u: %s, not EINVAL", attr.policy,
		      (unsigned long long)attr.flags, attr.priority, strerror(errno));
	if (syscall(SYS_sched_getattr, 0, &after, sizeof(after), 0) ||
	    memcmp(&before, &after, sizeof(before)))
		wrong("refused attributes have changed something");
	done(OP_invalid_slice);
}

static void set_affinity(pid_t tid)
{
	unsigned int first = below(cpus()), length = 1 + below(below(4) ? cpus() : 1);
	cpu_set_t set;

	CPU_ZERO(&set);
	for (unsigned int i = first; i < first + length; i++)
		CPU_SET(i % cpus(), &set);
	/* EINVAL: none of them is online, or in the cpuset. */
	counted(OP_affinity, sched_setaffinity(tid, sizeof(set), &set) ? errno : 0);
}

void run_attributes(int number)
{
	(void)number;
	while (!shared->stop) {
		pid_t tid = shared->tids[below(NR_LOADS)][below(NR_LOAD_THREADS)];

		if (!tid) {
			usleep(1000);
			continue;
		}
		switch (below(6)) {
		case 0:
			set_class(tid);
			break;
		case 1:
			counted(OP_nice,
				setpriority(PRIO_PROCESS, tid, (int)below(40) - 20) ? errno : 0);
			break;
		case 2:
			set_slice(tid);
			break;
		case 3:
			set_invalid(tid);
			break;
		default:
			set_affinity(tid);
		}
		usleep(below(10000));
	}
}
