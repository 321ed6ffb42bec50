// SPDX-License-Identifier: GPL-2.0-only
/*
 * workload SEED KIND ARGUMENT...: what make sim runs in the guest. Prints the result, and unit, of what
 * happens between the marks that sim/plugin.c knows.
 *
 * SEED varies what a measurement must not depend on: where things lie in memory, who starts first and
 * when.
 *
 *   chase CPU HOME KIB LOADS      ns of a load that depends on the one before, at random, in so much
 *                                 memory of the node of CPU HOME
 *   bounce A B TIMES              ns until a line that CPU A has changed is changed by CPU B
 *   counters A B TIMES            ns of an increment, of two counters in one line
 *   ping-pong A B TIMES           ns of a byte through a pipe and back, between processes
 *   messages GROUPS PAIRS LOOPS threads|processes pipe|socket FIRST LAST [SLICE_US]
 *                                 ms until all groups of PAIRS senders and PAIRS receivers have sent
 *                                 LOOPS messages of 100 bytes from each to each, on CPUs FIRST to LAST,
 *                                 with a slice of their own of so many us
 *   rate GROUPS PAIRS WARM MS threads|processes pipe|socket FIRST LAST [SLICE_US]
 *                                 messages per ms of such groups that go on sending, after WARM ms
 *   sharing PROCESSES THREADS KIB WARM MS [pinned|apart]
 *                                 steps per ms, of threads that share KIB with those of their process
 *                                 and sleep now and then, after WARM ms; pinned: each to a CPU, those
 *                                 of a process far apart; apart: each uses a part of its own
 *   pipeline LANES STAGES LOOPS WARM
 *                                 ms until LOOPS messages have gone through each lane, of STAGES
 *                                 processes that hand them on and have two threads each, after WARM ms
 *   cyclic THREADS PERIOD_US TIMES
 *                                 us that threads with SCHED_FIFO come late, on an average; all want to
 *                                 run once in each period, for a tenth of it, on any CPU
 */
#define _GNU_SOURCE
#include <err.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pin.h"

#define MARK(number) asm volatile("nopl " number "(%%rax)" ::: "memory")
#define WARM() MARK("0x5ca1ab11")
#define BEGIN() MARK("0x5ca1ab12")
#define END() MARK("0x5ca1ab13")

#define LINE 64
#define PAGE 4096
#define MESSAGE 100
#define MOST_TASKS 4096
#define MOST_PAIRS 64
#define SHARERS 1024
/* The seed's random delays and regions. */
#define DELAY_US 200
/* Until the kernel has done what it does later. */
#define SETTLE_US 20000
/* By when all is over, in the guest's time; else somebody waits for one who has failed. */
#define SECONDS 20
#define REGIONS 16
#define REGION_PAGES 64
#define ANY -1

#define ALIGNED __attribute__((aligned(LINE)))

/* The line that bounces; and two counters that two CPUs write, in a line. */
static ALIGNED uint64_t ball;
static ALIGNED struct counters {
	uint64_t first, second;
} counters;

static int cpu_a, cpu_b;
static long times;
static uint64_t random_state;

static uint64_t random_number(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return random_state >> 33;
}

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void sleep_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

static void *map(size_t size, int shared)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, shared | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap of %zu bytes", size);
	return memory;
}

/* Regions of the seed's own, used and with holes between, and pauses. */
static void scatter(void)
{
	int i;

	for (i = 0; i < REGIONS; i++) {
		size_t pages = 1 + random_number() % REGION_PAGES, page;
		char *region = map((pages + 1) * PAGE, MAP_PRIVATE);

		for (page = 0; page < pages; page++)
			region[page * PAGE] = 1;
		if (random_number() % 2)
			munmap(region, pages * PAGE);
	}
	sleep_us(random_number() % DELAY_US);
}

/* The numbers from 0 on in an order of the seed's own. */
static void shuffle(int *order, int count)
{
	int i, j, other;

	for (i = 0; i < count; i++)
		order[i] = i;
	for (i = count - 1; i > 0; i--) {
		j = random_number() % (i + 1);
		other = order[i];
		order[i] = order[j];
		order[j] = other;
	}
}

/* On a CPU, or where the caller may run if that is ANY. */
static void start_thread(int cpu, void *(*function)(void *), void *argument)
{
	pthread_attr_t attributes;
	cpu_set_t set;
	pthread_t id;

	pthread_attr_init(&attributes);
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (cpu != ANY && pthread_attr_setaffinity_np(&attributes, sizeof(set), &set))
		errx(1, "CPU %d", cpu);
	/* Thousands of them may be started. */
	pthread_attr_setstacksize(&attributes, 64 << 10);
	if (pthread_create(&id, &attributes, function, argument))
		errx(1, "pthread_create");
}

static pid_t start_process(void)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

/* ---- caches ---- */

struct element {
	struct element *next;
	char rest[LINE - sizeof(struct element *)];
};

/* A thousand loads in a row, so that nothing else counts. */
#define LOADS_10(p) p = p->next; p = p->next; p = p->next; p = p->next; p = p->next; \
	p = p->next; p = p->next; p = p->next; p = p->next; p = p->next
#define LOADS_100(p) LOADS_10(p); LOADS_10(p); LOADS_10(p); LOADS_10(p); LOADS_10(p); \
	LOADS_10(p); LOADS_10(p); LOADS_10(p); LOADS_10(p); LOADS_10(p)

static void chase(int cpu, int home, size_t kib, long loads)
{
	int count = (kib << 10) / LINE, i;
	volatile struct element *place;
	struct element *all;
	double begin;
	int *order = map(count * sizeof(*order), MAP_PRIVATE);

	pin(home);
	all = map(kib << 10, MAP_PRIVATE);
	shuffle(order, count);
	for (i = 0; i < count; i++)
		all[order[i]].next = &all[order[(i + 1) % count]];
	pin(cpu);
	place = &all[order[0]];
	WARM();
	/* Twice through what fits into caches. */
	for (i = 0; i < 2 * count && kib <= 32 << 10; i++)
		place = place->next;
	BEGIN();
	begin = now_ns();
	for (i = 0; i < loads / 100; i++) {
		LOADS_100(place);
	}
	begin = now_ns() - begin;
	END();
	printf("%.4f ns\n", begin / (loads / 100 * 100));
}

/* Change the line each time it is at `from`. */
static void bounce_from(uint64_t from)
{
	uint64_t seen;
	long i;

	for (i = 0; i < times; i++) {
		do {
			seen = from + 2 * i;
		} while (!__atomic_compare_exchange_n(&ball, &seen, seen + 1, false,
						      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	}
}

static void *bounce_other(void *unused)
{
	bounce_from(1);
	return unused;
}

static void bounce(void)
{
	double begin;
	long all = times;

	pin(cpu_a);
	WARM();
	times = all / 10;
	start_thread(cpu_b, bounce_other, NULL);
	bounce_from(0);
	while (__atomic_load_n(&ball, __ATOMIC_SEQ_CST) != (uint64_t)(2 * times))
		;
	ball = 0;
	times = all;
	start_thread(cpu_b, bounce_other, NULL);
	/* Until the other one is there. */
	sleep_us(1000);
	BEGIN();
	begin = now_ns();
	bounce_from(0);
	while (__atomic_load_n(&ball, __ATOMIC_SEQ_CST) != (uint64_t)(2 * times))
		;
	begin = now_ns() - begin;
	END();
	printf("%.4f ns\n", begin / (2 * times));
}

static void __attribute__((noinline)) increment_second(void)
{
	__atomic_fetch_add(&counters.second, 1, __ATOMIC_SEQ_CST);
}

static void __attribute__((noinline)) increment_first(void)
{
	__atomic_fetch_add(&counters.first, 1, __ATOMIC_SEQ_CST);
}

static void *count_second(void *unused)
{
	for (;;)
		increment_second();
	return unused;
}

static void count_both(void)
{
	double begin;
	long i;

	pin(cpu_a);
	WARM();
	start_thread(cpu_b, count_second, NULL);
	sleep_us(1000);
	BEGIN();
	begin = now_ns();
	for (i = 0; i < times; i++)
		increment_first();
	begin = now_ns() - begin;
	END();
	printf("%.4f ns\n", begin / times);
}

/* ---- messages ---- */

static void receive(int fd, size_t bytes)
{
	char message[MESSAGE];
	ssize_t got;

	while (bytes) {
		got = read(fd, message, bytes < MESSAGE ? bytes : MESSAGE);
		if (got <= 0)
			err(1, "read");
		bytes -= got;
	}
}

static void deliver(int fd, size_t bytes)
{
	static const char message[MESSAGE];
	ssize_t sent;

	while (bytes) {
		sent = write(fd, message, bytes);
		if (sent <= 0)
			err(1, "write");
		bytes -= sent;
	}
}

static void ping_pong(void)
{
	int there[2], back[2], i;
	double begin = 0;

	if (pipe(there) || pipe(back))
		err(1, "pipe");
	if (!start_process()) {
		pin(cpu_b);
		for (;;) {
			receive(there[0], 1);
			deliver(back[1], 1);
		}
	}
	pin(cpu_a);
	WARM();
	for (i = 0; i < times + times / 10; i++) {
		if (i == times / 10) {
			BEGIN();
			begin = now_ns();
		}
		deliver(there[1], 1);
		receive(back[0], 1);
	}
	begin = now_ns() - begin;
	END();
	printf("%.4f ns\n", begin / times);
}

struct group {
	int in[MOST_PAIRS], out[MOST_PAIRS];
};

static struct task {
	struct group *group;
	int number;
	bool sends;
} all_tasks[MOST_TASKS];
static int pairs, loops, ready[2], go[2], done[2];
/* If there are these, receivers count in them, and nobody stops after so many loops. */
static struct {
	ALIGNED volatile uint64_t messages;
} *received;
static uint64_t slice_ns;

/* struct sched_attr as far as its first version goes; no header of glibc's has it. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static void set_slice(void)
{
	struct attributes attributes = { .size = sizeof(attributes), .runtime = slice_ns };

	if (slice_ns && syscall(SYS_sched_setattr, 0, &attributes, 0))
		err(1, "slice of %lu ns", slice_ns);
}

static void *message_task(void *argument)
{
	const struct task *task = argument;
	struct pollfd wait = { go[0], POLLIN, 0 };
	int i, j;

	set_slice();
	deliver(ready[1], 1);
	if (poll(&wait, 1, -1) != 1)
		err(1, "poll");
	for (i = 0; received || i < loops; i++)
		for (j = 0; j < pairs; j++) {
			if (task->sends) {
				deliver(task->group->out[j], MESSAGE);
				continue;
			}
			receive(task->group->in[task->number], MESSAGE);
			if (received)
				received[task - all_tasks].messages++;
		}
	deliver(done[1], 1);
	return NULL;
}

static void connect_all(struct group *group, bool use_socket)
{
	int ends[2], i;

	for (i = 0; i < pairs; i++) {
		if (use_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends))
			err(1, "no channel");
		group->in[i] = ends[0];
		group->out[i] = ends[1];
	}
}

/* All tasks of a number of groups, about to wait for go; give how many. */
static int start_tasks(int groups, bool threads, bool use_socket, int first, int last)
{
	int count = groups * pairs * 2, i, order[MOST_TASKS];
	struct rlimit files = { 2 * MOST_TASKS, 2 * MOST_TASKS };
	struct group *all_groups = calloc(groups, sizeof(*all_groups));
	cpu_set_t allowed;

	if (!all_groups || count > MOST_TASKS || pairs > MOST_PAIRS)
		errx(2, "too many tasks");
	CPU_ZERO(&allowed);
	for (i = first; i <= last; i++)
		CPU_SET(i, &allowed);
	if (sched_setaffinity(0, sizeof(allowed), &allowed))
		err(1, "CPUs %d to %d", first, last);
	if (setrlimit(RLIMIT_NOFILE, &files))
		err(1, "setrlimit");
	if (pipe(ready) || pipe(go) || pipe(done))
		err(1, "pipe");
	for (i = 0; i < groups; i++)
		connect_all(&all_groups[i], use_socket);
	shuffle(order, count);
	for (i = 0; i < count; i++) {
		struct task *task = &all_tasks[i];

		*task = (struct task){ &all_groups[order[i] / (2 * pairs)], order[i] / 2 % pairs,
				       order[i] % 2 };
		if (threads) {
			start_thread(ANY, message_task, task);
		} else if (!start_process()) {
			message_task(task);
			_exit(0);
		}
	}
	receive(ready[0], count);
	/* They are about to sleep in poll(). */
	sleep_us(1000 + random_number() % DELAY_US);
	return count;
}

static void messages(int groups, bool threads, bool use_socket, int first, int last)
{
	int count = start_tasks(groups, threads, use_socket, first, last);
	double begin;

	WARM();
	sleep_us(200);
	BEGIN();
	begin = now_ns();
	deliver(go[1], 1);
	receive(done[0], count);
	begin = now_ns() - begin;
	END();
	printf("%.6f ms\n", begin / 1e6);
}

/* A third of the time goes fast, so that the threads are where they would be. */
static void warm_up(long ms)
{
	sleep_us(ms * 1000 / 3);
	WARM();
	sleep_us(ms * 1000 * 2 / 3);
}

static uint64_t all_received(int count)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < count; i++)
		sum += received[i].messages;
	return sum;
}

static void rate(int groups, long warm_ms, long ms, bool threads, bool use_socket, int first,
		 int last)
{
	uint64_t before, messages;
	double begin;
	int count;

	received = map(MOST_TASKS * sizeof(*received), MAP_SHARED);
	count = start_tasks(groups, threads, use_socket, first, last);
	deliver(go[1], 1);
	warm_up(warm_ms);
	BEGIN();
	begin = now_ns();
	before = all_received(count);
	sleep_us(ms * 1000);
	messages = all_received(count) - before;
	begin = now_ns() - begin;
	END();
	if (!messages)
		errx(1, "no message came");
	printf("%.4f messages/ms\n", messages / begin * 1e6);
}

/* ---- sharing ---- */

static struct shared {
	ALIGNED volatile bool stop;
	struct {
		ALIGNED volatile uint64_t steps;
	} of[SHARERS];
} *shared;
static uint64_t *memory;
/* Each thread uses so many lines of it. */
static uint64_t memory_lines;
static bool apart;
static int threads_each, first_sharer, *start_order;

static void *sharer(void *argument)
{
	uint64_t number = (uintptr_t)argument, mine = number % threads_each, turn = number * 7919, i;
	uint64_t first = apart ? mine * memory_lines : 0, place = first + number % memory_lines;

	sleep_us(start_order[mine] * 20 + number % 7);
	while (!shared->stop) {
		for (i = 0; i < 64; i++) {
			/* The next place depends on what is read here. */
			turn = turn * 6364136223846793005u + 1442695040888963407u;
			place = first + ((turn >> 33) + memory[place * (LINE / 8)]) % memory_lines;
			if (!(turn >> 60 & 7))
				memory[place * (LINE / 8)]++;
		}
		if (!(++shared->of[number].steps & 63))
			sleep_us(20);
	}
	return NULL;
}

static uint64_t steps(int count)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < count; i++)
		sum += shared->of[i].steps;
	return sum;
}

static void sharing(int processes, int threads, size_t kib, long warm_ms, long ms, bool pinned)
{
	int order[SHARERS], i, thread, cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t before, count;
	double begin;

	if (processes * threads > SHARERS)
		errx(2, "too many threads");
	shared = map(sizeof(*shared), MAP_SHARED);
	threads_each = threads;
	memory_lines = (kib << 10) / LINE / (apart ? threads : 1);
	if (!memory_lines)
		errx(2, "less than a line for each thread");
	shuffle(order, processes);
	for (i = 0; i < processes; i++) {
		/* A seed of its own for each. */
		random_number();
		if (start_process())
			continue;
		random_state += order[i];
		scatter();
		sleep_us(order[i] * 50);
		memory = map(kib << 10, MAP_PRIVATE);
		memset(memory, 0, kib << 10);
		start_order = malloc(threads * sizeof(*start_order));
		if (!start_order)
			err(1, "malloc");
		shuffle(start_order, threads);
		first_sharer = i * threads;
		for (thread = 1; thread < threads; thread++)
			start_thread(pinned ? (thread * processes + i) * cpus / (processes * threads) : ANY,
				     sharer, (void *)(uintptr_t)(first_sharer + thread));
		if (pinned)
			pin(i * cpus / (processes * threads));
		sharer((void *)(uintptr_t)first_sharer);
		pthread_exit(NULL);
	}
	warm_up(warm_ms);
	BEGIN();
	begin = now_ns();
	before = steps(processes * threads);
	sleep_us(ms * 1000);
	count = steps(processes * threads) - before;
	begin = now_ns() - begin;
	END();
	if (!count)
		errx(1, "no thread did anything");
	/* One that did not start makes it look faster for the others. */
	for (i = 0; i < processes * threads; i++) {
		if (!shared->of[i].steps)
			errx(1, "thread %d did nothing", i);
	}
	printf("%.4f steps/ms\n", count / begin * 1e6);
	shared->stop = true;
	while (wait(NULL) > 0)
		;
}

/* ---- a pipeline ---- */

static int stage_in, stage_out;

/* Takes a message, does some work on it, and hands it on. */
static void *stage(void *unused)
{
	volatile uint64_t work = 1;
	int i;

	for (;;) {
		receive(stage_in, 1);
		for (i = 0; i < 1000; i++)
			work = work * 6364136223846793005u + 1;
		deliver(stage_out, 1);
	}
	return unused;
}

static void pipeline(int lanes, int stages, long count, long warm_ms)
{
	int first[MOST_PAIRS], last[MOST_PAIRS], order[MOST_PAIRS], ends[2], i, j, lane;
	double begin;

	if (lanes > MOST_PAIRS)
		errx(2, "too many lanes");
	shuffle(order, lanes);
	for (i = 0; i < lanes; i++) {
		lane = order[i];
		if (pipe(ends))
			err(1, "pipe");
		first[lane] = ends[1];
		for (j = 0; j < stages; j++) {
			stage_in = ends[0];
			if (pipe(ends))
				err(1, "pipe");
			stage_out = ends[1];
			if (!start_process()) {
				scatter();
				start_thread(ANY, stage, NULL);
				stage(NULL);
			}
		}
		last[lane] = ends[0];
		/* Two on their way, for the two threads of each. */
		deliver(first[lane], 2);
	}
	begin = now_ns();
	WARM();
	while (now_ns() - begin < warm_ms * 1e6)
		for (lane = 0; lane < lanes; lane++) {
			receive(last[lane], 1);
			deliver(first[lane], 1);
		}
	BEGIN();
	begin = now_ns();
	for (i = 0; i < count; i++)
		for (lane = 0; lane < lanes; lane++) {
			receive(last[lane], 1);
			deliver(first[lane], 1);
		}
	begin = now_ns() - begin;
	END();
	printf("%.6f ms\n", begin / 1e6);
}

/* ---- real-time threads ---- */

static double period_ns, first_ns;
static pthread_barrier_t all_there;
/* Of all threads, in the periods that count; and how many of them are done. */
static _Atomic uint64_t late_ns;
static _Atomic int threads_done;

static void sleep_until(double ns)
{
	struct timespec t = { ns / 1e9, (uint64_t)ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void *cyclic_task(void *unused)
{
	struct sched_param parameters = { .sched_priority = 50 };
	uint64_t late = 0;
	long i;

	if (sched_setscheduler(0, SCHED_FIFO, &parameters))
		err(1, "SCHED_FIFO");
	pthread_barrier_wait(&all_there);
	/* The first periods are there so that all are where they would be. */
	for (i = -times / 10; i < times; i++) {
		double due = first_ns + i * period_ns;

		sleep_until(due);
		if (i >= 0)
			late += now_ns() - due;
		while (now_ns() < due + period_ns / 10)
			;
	}
	late_ns += late;
	threads_done++;
	return unused;
}

static void cyclic(int threads)
{
	int i;

	pthread_barrier_init(&all_there, NULL, threads + 1);
	for (i = 0; i < threads; i++) {
		start_thread(ANY, cyclic_task, NULL);
		sleep_us(random_number() % DELAY_US);
	}
	first_ns = now_ns() + SETTLE_US * 1e3 + times / 10 * period_ns;
	WARM();
	pthread_barrier_wait(&all_there);
	sleep_until(first_ns - period_ns / 2);
	BEGIN();
	while (threads_done < threads)
		sleep_us(period_ns / 1e3);
	END();
	printf("%.4f us\n", late_ns / 1e3 / threads / times);
}

/* ---- */

static long number(char **argv, int i)
{
	char *end;
	long result = strtol(argv[i], &end, 0);

	if (end == argv[i] || *end || result < 0)
		errx(2, "%s is no number", argv[i]);
	return result;
}

static bool word(const char *given, const char *yes, const char *no)
{
	if (strcmp(given, yes) && strcmp(given, no))
		errx(2, "%s is neither %s nor %s", given, yes, no);
	return !strcmp(given, yes);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 2 ? argv[2] : "";

	if (argc < 3)
		errx(2, "usage: workload SEED KIND ARGUMENT...");
	alarm(SECONDS);
	random_state = number(argv, 1) * 0x9e3779b97f4a7c15u + 1;
	random_number();
	scatter();
	sleep_us(SETTLE_US);
	if (argc == 6 && (!strcmp(kind, "bounce") || !strcmp(kind, "counters") ||
			  !strcmp(kind, "ping-pong"))) {
		cpu_a = number(argv, 3);
		cpu_b = number(argv, 4);
		times = number(argv, 5);
		if (kind[0] == 'b')
			bounce();
		else if (kind[0] == 'c')
			count_both();
		else
			ping_pong();
	} else if (argc == 7 && !strcmp(kind, "chase")) {
		chase(number(argv, 3), number(argv, 4), number(argv, 5), number(argv, 6));
	} else if ((argc == 10 || argc == 11) && !strcmp(kind, "messages")) {
		pairs = number(argv, 4);
		loops = number(argv, 5);
		slice_ns = argc == 11 ? number(argv, 10) * 1000 : 0;
		messages(number(argv, 3), word(argv[6], "threads", "processes"),
			 word(argv[7], "socket", "pipe"), number(argv, 8), number(argv, 9));
	} else if ((argc == 11 || argc == 12) && !strcmp(kind, "rate")) {
		pairs = number(argv, 4);
		slice_ns = argc == 12 ? number(argv, 11) * 1000 : 0;
		rate(number(argv, 3), number(argv, 5), number(argv, 6),
		     word(argv[7], "threads", "processes"), word(argv[8], "socket", "pipe"),
		     number(argv, 9), number(argv, 10));
	} else if ((argc == 8 || argc == 9) && !strcmp(kind, "sharing")) {
		bool pinned = argc == 9 && word(argv[8], "pinned", "apart");

		apart = argc == 9 && !pinned;
		sharing(number(argv, 3), number(argv, 4), number(argv, 5), number(argv, 6),
			number(argv, 7), pinned);
	} else if (argc == 7 && !strcmp(kind, "pipeline")) {
		pipeline(number(argv, 3), number(argv, 4), number(argv, 5), number(argv, 6));
	} else if (argc == 6 && !strcmp(kind, "cyclic")) {
		period_ns = number(argv, 4) * 1e3;
		times = number(argv, 5);
		cyclic(number(argv, 3));
	} else {
		errx(2, "no such workload, or not its arguments: %s", kind);
	}
	fflush(stdout);
	return 0;
}
