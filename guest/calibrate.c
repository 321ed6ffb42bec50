// SPDX-License-Identifier: GPL-2.0-only
/*
 * calibrate WHAT ARGUMENTS...: measure one figure of a host, for kit/host/calibrate.py. It needs no
 * privileges, no library but libc, and works as a static binary. NODE is where the memory is, -1 for the
 * local node; MS how long to measure; CPUS single arguments.
 *
 *	chase NODE MS KIB CPU		ns of a load that depends on the one before, in KIB of memory
 *	bounce NODE MS CPU CPU		ns for a line from one CPU to the other, half a round trip
 *	store NODE MS CPU CPU		ns of a store to a line that the other CPU has written, of many
 *					that do not depend on each other
 *	add NODE MS CPU...		ns between two increments of one counter by all CPUs together, and
 *					the share of the slowest CPU, 1 being an equal share
 *	read NODE MS KIB CPU...		GB/s that all CPUs together read, each from KIB of its own
 *	mhz MS CPU...			clock of the CPUs while all of them compute, the median
 *	smt MS CPU CPU			percent that two CPUs of a core do of what one does alone
 *	cpi MS CPU			cycles per instruction of the kernel in pipe round trips on a CPU
 *	pipe MS CPU CPU			ns of a round trip of a byte between two processes
 *	futex MS CPU CPU		ns of a round trip between two threads
 *	ipi MS CPU CPU			ns of an interrupt to another CPU, half of what membarrier() takes
 *
 * It prints the figures in one line. Status 3: the host cannot measure this.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pin.h"

#define CANNOT 3
#define LINE 64
#define MPOL_BIND 2
#define MOST_NODES 1024
#define MOST_CPUS 8192
#define HUGE_PAGE (2ul << 20)
/* Lines of the test of stores: fewer than the L1 has. */
#define STORES 256
#define ATTEMPTS 100
/* A clock is read once in so many operations. */
#define BATCH 256

static int node, ms, count;
static int cpu_of[MOST_CPUS];
static size_t bytes;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Memory on the node, in huge pages if the host has any. It is not touched yet. */
static void *memory(size_t size)
{
	unsigned long mask[MOST_NODES / 64] = { 0 };
	char *at;

	size = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	at = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		err(1, "%zu bytes", size);
	at = (char *)(((uintptr_t)at + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
	madvise(at, size, MADV_HUGEPAGE);
	if (node >= 0) {
		mask[node / 64] = 1ul << node % 64;
		if (syscall(SYS_mbind, at, size, MPOL_BIND, mask, MOST_NODES, 0))
			err(CANNOT, "node %d", node);
	}
	return at;
}

/* ---- threads that do something at the same time ---- */

static volatile bool start, stop;
static volatile int ready;
static double amount[MOST_CPUS], took[MOST_CPUS];
static uint64_t (*work)(int number);
static void (*prepare)(int number);

static void *in_thread(void *argument)
{
	int number = (intptr_t)argument;
	double begin, done = 0;

	pin(cpu_of[number]);
	if (prepare)
		prepare(number);
	__atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
	while (!start)
		sched_yield();
	begin = now();
	do
		done += work(number);
	while (!stop);
	took[number] = now() - begin;
	amount[number] = done;
	return NULL;
}

static void wait_ms(int time)
{
	struct timespec t = { time / 1000, time % 1000 * 1000000l };

	nanosleep(&t, NULL);
}

/* Let the first `threads` CPUs work for MS; amount[] and took[], in ns, have what each did. */
static void together(int threads)
{
	pthread_t id[threads];
	int i;

	start = stop = false;
	ready = 0;
	for (i = 0; i < threads; i++)
		if (pthread_create(&id[i], NULL, in_thread, (void *)(intptr_t)i))
			errx(1, "pthread_create");
	while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) < threads)
		wait_ms(1);
	start = true;
	wait_ms(ms);
	stop = true;
	for (i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
}

/*
 * As together(), until the first CPU has done something: on a busy host, or in an emulator, the two may
 * not run at the same time within MS.
 */
static void until_done(int threads)
{
	int attempts = 0;

	do
		together(threads);
	while (!amount[0] && ++attempts < ATTEMPTS);
	if (!amount[0])
		errx(1, "the CPUs did nothing in %d times %d ms", ATTEMPTS, ms);
}

/* What all of them did in a ns. */
static double rate(int threads)
{
	double sum = 0;
	int i;

	for (i = 0; i < threads; i++)
		sum += amount[i] / took[i];
	return sum;
}

/* ---- caches and memory ---- */

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_number(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Make a cycle through all lines, in random order (Sattolo), so that no prefetcher helps. */
static void *chain(size_t lines)
{
	uint32_t *order = malloc(lines * sizeof(*order));
	char *at = memory(lines * LINE);
	size_t i, j;

	if (!order)
		err(1, "malloc");
	for (i = 0; i < lines; i++)
		order[i] = i;
	for (i = lines - 1; i > 0; i--) {
		uint32_t other;

		j = random_number() % i;
		other = order[i];
		order[i] = order[j];
		order[j] = other;
	}
	for (i = 0; i < lines; i++)
		*(void **)(at + (size_t)order[i] * LINE) = at + (size_t)order[(i + 1) % lines] * LINE;
	free(order);
	return at;
}

static void chase(void)
{
	size_t lines = bytes / LINE, loads = 0, i;
	void **at;
	double begin, end;

	pin(cpu_of[0]);
	at = chain(lines);
	/* Once through all of it, or for MS, to fill the caches. */
	for (i = 0, end = now() + ms * 1e6; i < lines && now() < end; i += BATCH)
		for (loads = 0; loads < BATCH; loads++)
			at = *at;
	begin = now();
	end = begin + ms * 1e6;
	for (loads = 0; now() < end; loads += BATCH)
		for (i = 0; i < BATCH; i++) {
			at = *at;
			asm volatile("" : "+r"(at));
		}
	printf("%.2f\n", (now() - begin) / loads);
}

/* Lines that no other data is on, each with a counter. */
static uint64_t *lines_at;

static void make_lines(int lines)
{
	lines_at = memory(lines * LINE);
	memset(lines_at, 0, lines * LINE);
}

/* The first takes even values to odd ones, the second odd ones to even ones. */
static uint64_t take_turns(int number)
{
	uint64_t done, value;

	for (done = 0; done < BATCH && !stop;) {
		value = __atomic_load_n(lines_at, __ATOMIC_RELAXED);
		if ((value & 1) == (uint64_t)number &&
		    __atomic_compare_exchange_n(lines_at, &value, value + 1, false, __ATOMIC_SEQ_CST,
						__ATOMIC_SEQ_CST))
			done++;
	}
	return done;
}

static void bounce(void)
{
	make_lines(1);
	work = take_turns;
	until_done(2);
	printf("%.2f\n", 1 / rate(2));
}

static uint64_t increment(int number)
{
	int i;

	(void)number;
	for (i = 0; i < BATCH; i++)
		__atomic_fetch_add(lines_at, 1, __ATOMIC_SEQ_CST);
	return BATCH;
}

static void add(void)
{
	double least = 1e300, all;
	int i;

	make_lines(1);
	work = increment;
	together(count);
	all = rate(count);
	for (i = 0; i < count; i++)
		if (amount[i] / took[i] < least)
			least = amount[i] / took[i];
	printf("%.2f %.3f\n", 1 / all, least / all * count);
}

/* Number 0 stores to the lines and is timed; number 1 writes them before. */
static double stored_ns;
static uint64_t stores_done;

static uint64_t write_lines(int number)
{
	volatile uint64_t *turn = lines_at + STORES * LINE / sizeof(*lines_at);
	double begin;
	int i;

	while (*turn % 2 == (uint64_t)number)
		if (stop)
			return 0;
	begin = now();
	for (i = 0; i < STORES; i++)
		/* 97 is coprime to STORES: an order that no prefetcher follows. */
		((volatile uint64_t *)lines_at)[i * 97 % STORES * LINE / sizeof(*lines_at)] = number;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!number) {
		stored_ns += now() - begin;
		stores_done += STORES;
	}
	__atomic_add_fetch(turn, 1, __ATOMIC_SEQ_CST);
	return STORES;
}

static void store(void)
{
	make_lines(STORES + 1);
	work = write_lines;
	until_done(2);
	printf("%.2f\n", stored_ns / stores_done);
}

static void *own[MOST_CPUS];

static void fill_own(int number)
{
	own[number] = memory(bytes);
	memset(own[number], 1, bytes);
}

static uint64_t read_own(int number)
{
	const uint64_t *at = own[number], *end = at + bytes / sizeof(*at);
	uint64_t a = 0, b = 0, c = 0, d = 0;
	uint64_t done = 0;

	/* Returns now and then, to see whether to stop. */
	static __thread size_t place;
	const uint64_t *to;

	at += place;
	to = end - at > (1 << 17) ? at + (1 << 17) : end;
	for (; at < to; at += 8, done += LINE) {
		a += at[0];
		b += at[2];
		c += at[4];
		d += at[6];
	}
	asm volatile("" : : "r"(a), "r"(b), "r"(c), "r"(d));
	place = at == end ? 0 : place + (1 << 17);
	return done;
}

static void read_memory(void)
{
	prepare = fill_own;
	work = read_own;
	together(count);
	printf("%.3f\n", rate(count));
}

/* ---- cores ---- */

/* Additions that depend on each other: one a cycle. */
static uint64_t compute(int number)
{
	uint64_t i = 100000, x = number;

	do
		asm volatile("add $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\t"
			     "add $1, %0\n\tadd $1, %0\n\tadd $1, %0\n\tadd $1, %0" : "+r"(x));
	while (--i);
	return 800000;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void mhz(void)
{
	double each[count];
	int i;

	work = compute;
	together(count);
	for (i = 0; i < count; i++)
		each[i] = amount[i] / took[i] * 1000;
	qsort(each, count, sizeof(*each), by_value);
	printf("%.0f\n", each[count / 2]);
}

/* Code with branches and loads, as the kernel's: system calls. */
static uint64_t call(int number)
{
	int i;

	(void)number;
	for (i = 0; i < BATCH; i++)
		syscall(SYS_getppid);
	return BATCH;
}

static void smt(void)
{
	double alone;

	work = call;
	together(1);
	alone = rate(1);
	together(2);
	printf("%.1f\n", 100 * rate(2) / alone);
}

/* ---- round trips ---- */

static int there[2], back[2];

static void pass(int from, int to)
{
	char byte = 0;

	if (from >= 0 && read(from, &byte, 1) != 1)
		_exit(0);
	if (to >= 0 && write(to, &byte, 1) != 1)
		_exit(0);
}

static void start_echo(int cpu)
{
	pid_t parent = getpid(), pid;

	if (pipe(there) || pipe(back))
		err(1, "pipe");
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	pin(cpu);
	for (;;)
		pass(there[0], back[1]);
}

static void pipe_round_trip(void)
{
	pass(-1, there[1]);
	pass(back[0], -1);
}

/* ns of an operation, after a tenth of MS without counting. */
static double time_of(void (*operation)(void))
{
	double begin = now(), end = begin + ms * 1e5;
	long done = 0;

	while (now() < end)
		operation();
	begin = now();
	end = begin + ms * 1e6;
	for (; now() < end; done++)
		operation();
	return (now() - begin) / done;
}

static void measure_pipe(void)
{
	start_echo(cpu_of[1]);
	pin(cpu_of[0]);
	printf("%.1f\n", time_of(pipe_round_trip));
}

static uint32_t turn;

static void await(uint32_t wanted)
{
	uint32_t value;

	while ((value = __atomic_load_n(&turn, __ATOMIC_SEQ_CST)) != wanted)
		syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void give(uint32_t to)
{
	__atomic_store_n(&turn, to, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *other_side(void *unused)
{
	pin(cpu_of[1]);
	for (;;) {
		await(1);
		give(0);
	}
	return unused;
}

static void futex_round_trip(void)
{
	give(1);
	await(0);
}

static void measure_futex(void)
{
	pthread_t id;

	if (pthread_create(&id, NULL, other_side, NULL))
		errx(1, "pthread_create");
	pin(cpu_of[0]);
	printf("%.1f\n", time_of(futex_round_trip));
}

static void barrier(void)
{
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

static void *spin(void *unused)
{
	pin(cpu_of[1]);
	ready = 1;
	while (!stop)
		asm volatile("pause");
	return unused;
}

/* The kernel interrupts each CPU that runs a thread of this process, and waits for its answer. */
static void ipi(void)
{
	double with, without;
	pthread_t id;

	if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0))
		err(CANNOT, "membarrier");
	pin(cpu_of[0]);
	if (pthread_create(&id, NULL, spin, NULL))
		errx(1, "pthread_create");
	while (!ready)
		wait_ms(1);
	with = time_of(barrier);
	stop = true;
	pthread_join(id, NULL);
	without = time_of(barrier);
	printf("%.1f\n", (with - without) / 2);
}

static int counter(uint64_t what, int group)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE, .size = sizeof(attr), .config = what, .exclude_user = 1,
		.exclude_hv = 1, .disabled = group < 0,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, group, 0);

	if (fd < 0)
		err(CANNOT, "perf_event_open");
	return fd;
}

static void cpi(void)
{
	uint64_t cycles, instructions;
	int first, second;

	start_echo(cpu_of[0]);
	pin(cpu_of[0]);
	time_of(pipe_round_trip);
	first = counter(PERF_COUNT_HW_CPU_CYCLES, -1);
	second = counter(PERF_COUNT_HW_INSTRUCTIONS, first);
	ioctl(first, PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP);
	time_of(pipe_round_trip);
	ioctl(first, PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP);
	if (read(first, &cycles, 8) != 8 || read(second, &instructions, 8) != 8 || !instructions)
		errx(CANNOT, "the performance counters count nothing");
	printf("%.3f\n", (double)cycles / instructions);
}

/* node, kib: whether they are among the arguments; cpus: how many there must be, 0 for any number. */
static const struct what {
	const char *name;
	bool node, kib;
	int cpus;
	void (*measure)(void);
} whats[] = {
	{ "chase", true, true, 1, chase },
	{ "bounce", true, false, 2, bounce },
	{ "store", true, false, 2, store },
	{ "add", true, false, 0, add },
	{ "read", true, true, 0, read_memory },
	{ "mhz", false, false, 0, mhz },
	{ "smt", false, false, 2, smt },
	{ "cpi", false, false, 1, cpi },
	{ "pipe", false, false, 2, measure_pipe },
	{ "futex", false, false, 2, measure_futex },
	{ "ipi", false, false, 2, ipi },
};

/* The next argument, a number. */
static long number(char ***argv, long least)
{
	char *end, *text = **argv;
	long value;

	if (!text)
		errx(2, "an argument is missing; see the top of calibrate.c");
	value = strtol(text, &end, 10);
	if (end == text || *end || value < least)
		errx(2, "%s: not a number from %ld", text, least);
	++*argv;
	return value;
}

int main(int argc, char **argv)
{
	const struct what *what = whats;

	(void)argc;
	argv += !!*argv;
	while (*argv && what < whats + sizeof(whats) / sizeof(*whats) && strcmp(what->name, *argv))
		what++;
	if (!*argv || what == whats + sizeof(whats) / sizeof(*whats))
		errx(2, "usage: calibrate WHAT ARGUMENTS...; see the top of calibrate.c");
	argv++;
	node = what->node ? number(&argv, -1) : -1;
	ms = number(&argv, 1);
	bytes = what->kib ? number(&argv, 1) * 1024ul : 0;
	while (*argv && count < MOST_CPUS)
		cpu_of[count++] = number(&argv, 0);
	if (!count || (what->cpus && count != what->cpus))
		errx(2, "%s: not for %d CPUs", what->name, count);
	what->measure();
	return 0;
}
