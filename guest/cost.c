// SPDX-License-Identifier: GPL-2.0-only
/*
 * cost OPERATION CPU OTHER LAYOUT MS [CPUS]: how long an operation takes, in ns each.
 *
 * For a guest under icount, whose clock counts instructions at 1 ns each: the figures are then the
 * number of instructions that all CPUs together execute for one operation. It prints two figures, from
 * many short batches: the mean of their middle half, which no timer tick falls into where an operation
 * is short, and the mean of all of them, with the ticks and what these cause. Then the number of
 * operations, of attempts, of migrations of the two tasks, the spread of the middle half in percent, and
 * whether the measurement is disturbed.
 *
 * The tasks are pinned to CPU and OTHER. With CPUS, a list such as 0-7,16, they start there and may
 * then use all CPUs of the list, so that wakeups select a CPU.
 *
 * A round trip between CPUs takes another number of instructions if a task migrates. Now and then it
 * also takes 5 to 8 % more from one tick to another, although no task migrates. A measurement with a
 * migration, or with a larger spread than MOST_SPREAD, is disturbed and repeated, ATTEMPTS times at
 * most. It has two halves, because the higher level may last as long as one of them. Before each the
 * program sleeps until the background work of earlier programs is done.
 *
 * The figure of an operation, above all of a fork, depends on the layout of memory. LAYOUT, a number
 * from 0 on, selects one of many layouts.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "middle.h"
#include "pin.h"

/* The threads of the process that execs, itself included: enough to make the kernel wait. */
#define EXEC_THREADS 4
/* Batches at most. */
#define MOST 100000
#define ATTEMPTS 4
/*
 * Of 108 measurements of round trips between CPUs, the third quartile of the batches was at most 0.13 %
 * above the first in 103, and at least 0.8 % in the other five, whose means were up to 5 % higher.
 */
#define MOST_SPREAD 0.003
/* Several grace periods of RCU. Time in which all CPUs are idle is skipped. */
#ifndef SETTLE_NS
#define SETTLE_NS 300000000
#endif
/*
 * plugins/profile.c counts what is executed between a mark that begins and one that ends, from the last
 * mark that forgets.
 */
#define FORGET "0x5ca1ab00"
#define BEGIN "0x5ca1ab01"
#define END "0x5ca1ab02"
#define MARK(number) asm volatile("nopl " number "(%%rax)" ::: "memory")
/* A layout maps at most so many regions, and leaves at most so many sleeping processes. */
#define REGIONS 16
#define SLEEPERS 8
#define PAGE 4096

static char *nothing[] = {"/bin/cost", "nothing", NULL};

static int first_cpu, other_cpu;
/* The list of CPUs that both tasks may use, or NULL; and the other task, 0 for none. */
static const char *cpus;
static volatile pid_t other_task;
static int there[2], back[2];
static uint32_t turn;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void sleep_forever(void)
{
	for (;;)
		pause();
}

/* Run on one CPU, from then on on all of the list if there is one. */
static void start_on(int cpu)
{
	pin(cpu);
	if (cpus)
		allow(cpus);
}

/* A process on the other CPU that ends when this one does; its id. */
static pid_t process(void (*function)(void))
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* The parent may have ended before. */
	if (getppid() != parent)
		_exit(1);
	start_on(other_cpu);
	function();
	_exit(1);
}

static void *in_thread(void *function)
{
	other_task = gettid();
	start_on(other_cpu);
	((void (*)(void))function)();
	return NULL;
}

/* How often a task has migrated, so far. Fails where the kernel has no CONFIG_SCHED_DEBUG. */
static long migrations_of(pid_t task)
{
	char path[64], line[256];
	long count = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/sched", task);
	file = fopen(path, "r");
	if (!file)
		err(1, "%s", path);
	while (count < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, "se.nr_migrations", 16))
			count = atol(strchr(line, ':') + 1);
	fclose(file);
	if (count < 0)
		errx(1, "%s: no se.nr_migrations", path);
	return count;
}

static long migrations(void)
{
	return migrations_of(gettid()) + (other_task ? migrations_of(other_task) : 0);
}

static void thread(void (*function)(void))
{
	pthread_t id;

	if (pthread_create(&id, NULL, in_thread, function))
		errx(1, "pthread_create");
}

/* A byte to the other task and back. */

static void receive(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		err(1, "read");
}

static void send(int fd)
{
	if (write(fd, "", 1) != 1)
		err(1, "write");
}

static void echo(void)
{
	for (;;) {
		receive(there[0]);
		send(back[1]);
	}
}

static void pipes(void)
{
	if (pipe(there) || pipe(back))
		err(1, "pipe");
}

static void begin_pipe(void)
{
	pipes();
	other_task = process(echo);
}

static void begin_thread_pipe(void)
{
	pipes();
	thread(echo);
}

/* The thread inherits the policy. */
static void begin_fifo_pipe(void)
{
	struct sched_param parameters = { .sched_priority = 50 };

	if (sched_setscheduler(0, SCHED_FIFO, &parameters))
		err(1, "SCHED_FIFO");
	begin_thread_pipe();
}

static void round_trip(void)
{
	send(there[1]);
	receive(back[0]);
}

/* A futex holds the number of the task whose turn it is. */

static void pass_turn(uint32_t from, uint32_t to)
{
	__atomic_store_n(&turn, to, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
	while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) != from)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, to, NULL, NULL, 0);
}

static void other_turn(void)
{
	while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) != 1)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
	for (;;)
		pass_turn(1, 0);
}

static void begin_futex(void)
{
	thread(other_turn);
}

static void futex(void)
{
	pass_turn(0, 1);
}

/* Two processes that yield to each other. */

static void yield(void)
{
	sched_yield();
}

static void yield_forever(void)
{
	for (;;)
		yield();
}

static void begin_yield(void)
{
	other_task = process(yield_forever);
}

/* Processes and threads that come and go. */

static void reap(pid_t pid)
{
	int status;

	if (pid < 0)
		err(1, "no process");
	if (waitpid(pid, &status, 0) != pid || status)
		errx(1, "the process that was started failed");
}

static void fork_exit(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	reap(pid);
}

static void vfork_exec(void)
{
	pid_t pid = vfork();

	if (!pid) {
		execv(nothing[0], nothing);
		_exit(1);
	}
	reap(pid);
}

static void posix_spawn_(void)
{
	pid_t pid;

	if (posix_spawn(&pid, nothing[0], NULL, NULL, nothing, environ))
		errx(1, "posix_spawn");
	reap(pid);
}

static void *return_at_once(void *unused)
{
	return unused;
}

static void create_join(void)
{
	pthread_t id;

	if (pthread_create(&id, NULL, return_at_once, NULL) || pthread_join(id, NULL))
		errx(1, "a thread failed");
}

static void *sleep_in_thread(void *unused)
{
	sleep_forever();
	return unused;
}

static void exec_threads(void)
{
	pid_t pid = fork();
	pthread_t id;
	int i;

	if (!pid) {
		for (i = 1; i < EXEC_THREADS; i++)
			if (pthread_create(&id, NULL, sleep_in_thread, NULL))
				_exit(1);
		execv(nothing[0], nothing);
		_exit(1);
	}
	reap(pid);
}

/* A CPU goes offline; it comes back outside of what is counted. */

static void set_online(const char *value)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/online", other_cpu);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, value, 1) != 1)
		err(1, "%s", path);
	close(fd);
}

static void begin_offline(void)
{
	int fd = open("/sys/kernel/rcu_expedited", O_WRONLY);

	/* Expedited, because waiting for a grace period is no work. */
	if (fd < 0 || write(fd, "1", 1) != 1)
		err(1, "rcu_expedited");
	close(fd);
}

static void offline(void)
{
	set_online("0");
}

static void online(void)
{
	set_online("1");
}

/*
 * batch: operations in one batch: short against a tick, long against reading the clock. begin: called
 * before all batches. undo: called after each, not counted; such a batch has one operation. steady: the
 * batches take the same, if the tasks are on different CPUs.
 */
static const struct operation {
	const char *name;
	int batch;
	void (*begin)(void);
	void (*once)(void);
	void (*undo)(void);
	bool steady;
} operations[] = {
	{ "pipe", 20, begin_pipe, round_trip, NULL, true },
	{ "thread-pipe", 20, begin_thread_pipe, round_trip, NULL, true },
	{ "futex", 20, begin_futex, futex, NULL, true },
	{ "fifo-pipe", 20, begin_fifo_pipe, round_trip, NULL, true },
	{ "yield", 20, begin_yield, yield, NULL, false },
	{ "fork-exit", 1, NULL, fork_exit, NULL, false },
	{ "vfork-exec", 1, NULL, vfork_exec, NULL, false },
	{ "posix-spawn", 1, NULL, posix_spawn_, NULL, false },
	{ "thread-join", 5, NULL, create_join, NULL, false },
	{ "exec-threads", 1, NULL, exec_threads, NULL, false },
	{ "hot-unplug", 1, begin_offline, offline, online, false },
};

/* Map regions and start sleeping processes, in numbers that depend on the layout's only. */
static void lay_out(unsigned int layout)
{
	unsigned int random = layout * 2654435761u + 1, i;

	for (i = 0; i < REGIONS; i++) {
		size_t pages;
		char *region;

		random = random * 1103515245 + 12345;
		pages = 1 + (random >> 16) % 64;
		region = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (region == MAP_FAILED)
			err(1, "mmap");
		/* A hole, so that it stays a region of its own. */
		munmap(region + (pages - 1) * PAGE, PAGE);
		if (pages > 1)
			region[0] = 1;
	}
	for (i = 0; i < random / 65536 % SLEEPERS; i++)
		process(sleep_forever);
}

/*
 * Run batches for a time in ns, MOST at most; store what an operation of each took, in ns. The number of
 * batches.
 */
static int run(const struct operation *operation, double ns, double *each)
{
	double end = now() + ns, begin;
	int batches = 0, i;

	do {
		begin = now();
		for (i = 0; i < operation->batch; i++)
			operation->once();
		each[batches++] = (now() - begin) / operation->batch;
		if (operation->undo)
			operation->undo();
	} while (batches < MOST && now() < end);
	return batches;
}

/* Sleep until the background work of what ran before is done. */
static void settle(void)
{
	const struct timespec time = { .tv_nsec = SETTLE_NS };

	nanosleep(&time, NULL);
}

int main(int argc, char **argv)
{
	const struct operation *operation = operations;
	int batches, half, attempts = 0;
	bool steady, disturbed;
	double *each, ns, wide;
	long moved;

	if (argc == 2 && !strcmp(argv[1], nothing[1]))
		return 0;
	if (argc != 6 && argc != 7)
		errx(2, "usage: cost OPERATION CPU OTHER LAYOUT MS [CPUS]");
	while (operation < operations + sizeof(operations) / sizeof(*operations) &&
	       strcmp(operation->name, argv[1]))
		operation++;
	if (operation == operations + sizeof(operations) / sizeof(*operations))
		errx(2, "no operation %s", argv[1]);
	first_cpu = atoi(argv[2]);
	other_cpu = atoi(argv[3]);
	ns = atof(argv[5]) * 1e6;
	each = calloc(2 * MOST, sizeof(*each));
	if (!each)
		err(1, "calloc");
	lay_out(atoi(argv[4]));
	cpus = argv[6];
	if (operation->begin)
		operation->begin();
	start_on(first_cpu);
	steady = operation->steady && first_cpu != other_cpu;
	do {
		MARK(FORGET);
		batches = moved = 0;
		for (half = 0; half < 2; half++) {
			settle();
			/* Until utilisation and lazily built page tables are as they stay. */
			run(operation, ns / 4, each + batches);
			moved -= migrations();
			MARK(BEGIN);
			batches += run(operation, ns / 2, each + batches);
			MARK(END);
			moved += migrations();
		}
		wide = spread(each, batches);
		disturbed = moved || (steady && wide > MOST_SPREAD);
	} while (++attempts < ATTEMPTS && disturbed);
	print_middle(each, batches);
	printf(" operations=%d attempts=%d moved=%ld spread=%.2f disturbed=%d\n", batches * operation->batch,
	       attempts, moved, 100 * wide, disturbed);
	return 0;
}
