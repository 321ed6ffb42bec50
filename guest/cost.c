// SPDX-License-Identifier: GPL-2.0-only
/*
 * cost OPERATION CPU OTHER LAYOUT MS: how long an operation takes, in ns each.
 *
 * For a guest under icount, whose clock counts instructions at 1 ns each: what it prints is then
 * the number of instructions that all CPUs together ran for one operation. Two figures, from many
 * short batches: the mean of their middle half, into which no timer tick fell where an operation is
 * short, and the mean of all of them, with the ticks and what they set off. And how many they were.
 *
 * What an operation takes, above all a fork, depends on what happens to lie where in memory. LAYOUT,
 * a number from 0 on, picks one of many ways for it to lie.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
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
/* What is between two marks is what kit/bench/profile.c counts. */
#define MARK(number) asm volatile("nopl " number "(%%rax)" ::: "memory")
/* A layout maps at most so many regions, and leaves at most so many sleeping processes. */
#define REGIONS 16
#define SLEEPERS 8
#define PAGE 4096

static char *nothing[] = {"/bin/cost", "nothing", NULL};

static int first_cpu, other_cpu;
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

/* A process on the other CPU that ends when this one does. */
static void process(void (*function)(void))
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(other_cpu);
	function();
	_exit(1);
}

static void *in_thread(void *function)
{
	pin(other_cpu);
	((void (*)(void))function)();
	return NULL;
}

static void thread(void (*function)(void))
{
	pthread_t id;

	if (pthread_create(&id, NULL, in_thread, function))
		errx(1, "pthread_create");
}

/* A byte there and back. */

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
	process(echo);
}

static void begin_thread_pipe(void)
{
	pipes();
	thread(echo);
}

static void round_trip(void)
{
	send(there[1]);
	receive(back[0]);
}

/* A futex: it is the turn of the one whose number is in it. */

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

/* Two that yield to each other. */

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
	process(yield_forever);
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

/* A CPU that goes offline, and comes back where nobody counts. */

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

	/* Not to wait for grace periods: what is counted is work. */
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
 * batch: operations in one, few against a tick, many against what reading the clock takes.
 * begin: before all of them. undo: after each, not counted; its operations are batches of one.
 */
static const struct operation {
	const char *name;
	int batch;
	void (*begin)(void);
	void (*once)(void);
	void (*undo)(void);
} operations[] = {
	{ "pipe", 20, begin_pipe, round_trip, NULL },
	{ "thread-pipe", 20, begin_thread_pipe, round_trip, NULL },
	{ "futex", 20, begin_futex, futex, NULL },
	{ "yield", 20, begin_yield, yield, NULL },
	{ "fork-exit", 1, NULL, fork_exit, NULL },
	{ "vfork-exec", 1, NULL, vfork_exec, NULL },
	{ "posix-spawn", 1, NULL, posix_spawn_, NULL },
	{ "thread-join", 5, NULL, create_join, NULL },
	{ "exec-threads", 1, NULL, exec_threads, NULL },
	{ "hot-unplug", 1, begin_offline, offline, online },
};

/* Lay things out in a way of its own for each number; the same way for the same number. */
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

/* Batches for so many ns, or MOST; keep what an operation took in each, and give how many. */
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

int main(int argc, char **argv)
{
	const struct operation *operation = operations;
	double *each, ns;
	int batches;

	if (argc == 2 && !strcmp(argv[1], nothing[1]))
		return 0;
	if (argc != 6)
		errx(2, "usage: cost OPERATION CPU OTHER LAYOUT MS");
	while (operation < operations + sizeof(operations) / sizeof(*operations) &&
	       strcmp(operation->name, argv[1]))
		operation++;
	if (operation == operations + sizeof(operations) / sizeof(*operations))
		errx(2, "no operation %s", argv[1]);
	first_cpu = atoi(argv[2]);
	other_cpu = atoi(argv[3]);
	ns = atof(argv[5]) * 1e6;
	each = calloc(MOST, sizeof(*each));
	if (!each)
		err(1, "calloc");
	lay_out(atoi(argv[4]));
	if (operation->begin)
		operation->begin();
	pin(first_cpu);
	/* First until utilisation and lazily built page tables are as they stay. */
	run(operation, ns / 4, each);
	MARK("0x5ca1ab01");
	batches = run(operation, ns, each);
	MARK("0x5ca1ab02");
	print_middle(each, batches);
	printf(" %d\n", batches * operation->batch);
	return 0;
}
