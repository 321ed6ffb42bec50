// SPDX-License-Identifier: GPL-2.0-only
/*
 * Is anything worse with SCHED_CACHE_LB than without?
 *
 * Each workload runs four times, off, on, on, off, with processes of its own.
 * That a drift hits both alike is what this order is for; how far the two runs
 * without differ is what chance does. What is on has to do as well as what is
 * off, but for that and for a few percent.
 *
 * How long a given piece of work takes would tell nothing in an emulator, whose
 * CPUs have no caches and whose clock may count instructions. So what is looked
 * at are the things that gathering could do harm to:
 *
 *	CPUs	that the threads had, of all the time that went by. This falls if
 *		threads wait for a CPU of their LLC while another LLC has idle ones
 *	waited	threads that waited for a CPU at a time
 *	cores	that they were on, for each thread that did not sleep. This falls if
 *		they share cores while others are idle. Not judged where threads
 *		sleep: what wakes up goes where it was if that CPU is idle, whatever
 *		its core does
 *	fair	the least that a thread got, of what they got on average; where they
 *		have weights, how near to these they came
 *	fullest	the share of the threads that were in the LLC with most of them.
 *		Only judged where nothing is to be gathered
 *	moves	from one LLC to another that a thread noticed, per second
 *	late	milliseconds from the end of a sleep until the thread runs, which 1 %
 *		of the sleeps exceed. This grows if threads wait for each other while
 *		another LLC has idle CPUs. Only of threads that run in bursts
 *
 * Last it watches two processes, each in its LLC, for WATCH_SECONDS:
 * nothing should change.
 *
 * soak TEXT runs only those that have TEXT in their name, of which
 * "steady state" is one. What starts the threads, and asks where they are, is that of the
 * selftests.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "sched_cache.h"

/* Until the threads are where they will be. Footprints take 32 epochs to be seen. */
#define SETTLE_US	500000
/*
 * The same where all CPUs have more than one: they balance 16 times as rarely. And where another process wakes threads
 * out of their LLC: they go back after 0.13 s at first, and after 2.1 s in the end.
 */
#define SETTLE_LONG_US	3000000
/* How long to measure, and how often to look where the threads are. */
#define LOOK_US		10000
#define LOOKS		60
/* Of bursts there are 70 or more in a second and thread: the last percent needs many. */
#define BURST_LOOKS	400

#define UNUSED __attribute__((unused))

#define WATCH_ENV	"WATCH_SECONDS"
#define WATCH_DEFAULT	5
/* Changes that are no back and forth, of all threads in all that time. */
#define HANDFUL		3

#define PARTITION	"cpuset.cpus.partition"
#define TRACE_INSTANCE	"/sys/kernel/tracing/instances/soak"
#define TRACE_EVENTS	TRACE_INSTANCE "/events/sched/"

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE		62
#define PR_SCHED_CORE_CREATE	1
#endif
#ifndef PR_SCHED_CORE_SCOPE_THREAD_GROUP
#define PR_SCHED_CORE_SCOPE_THREAD_GROUP	1
#endif

#define MAX_LOADS	1000

enum figure { CPUS, WAITED, CORES, FAIR, FULLEST, MOVES, LATE, NR_FIGURES };

/*
 * What is better, more (1) or less (-1), and which difference is none: for each
 * thread where @per_thread is set. Runtimes are known by the tick, of which there
 * are 60 or more in what is measured, and a thread that is in the way, as is the
 * one that looks, takes a few of them: 2 percent. Where three threads share two
 * CPUs it is chance how often the balancer lets them take turns, which is worth a
 * tenth of what they get; one more on a CPU costs a quarter or more: 20 percent. A
 * thread that moves more than once a second does not sit still. The end of a sleep
 * is late by half a millisecond and more in an emulated CPU that has nothing else
 * to do: 0.3 ms, or half of what it is without.
 */
static const struct {
	const char *name;
	int digits, better;
	double slack;
	bool per_thread;
} figures[NR_FIGURES] = {
	[CPUS]		= { "CPUs", 2, 1, 0.02, true },
	[WAITED]	= { "waited", 2, -1, 0.02, true },
	[CORES]		= { "cores", 2, 1, 0.02, false },
	[FAIR]		= { "fair", 2, 1, 0.2, false },
	[FULLEST]	= { "fullest", 2, -1, 0.1, false },
	[MOVES]		= { "moves", 0, -1, 1, true },
	[LATE]		= { "late", 2, -1, 0.3, false },
};

/* How often a sleep ended so late, in units of LATE_US. Shared with the processes. */
#define LATE_US		10
#define LATE_MAX	10000

static atomic_uint *late;

/* The home of each CPU, and the first CPU of its core. */
static int home_at[CPU_SETSIZE], core_at[CPU_SETSIZE];

/* The processes of a run. All but the last few of them are measured. */
static struct load *loads[MAX_LOADS];
static int nr_loads, nr_measured;
/* The runtime of the first process that is right for one of the second; 0 if all are alike. */
static double weight;

/* What the workloads need of cgroups, NULL if that is there. */
static const char *no_cpu_cgroup, *no_cpuset;
static const char * const cgroups[] = { CGROUP "soak_0", CGROUP "soak_1" };

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

/*
 * What the threads do. They say where they are in thread->said, in thread->nap
 * that they are about to sleep, and count in thread->busy how often they were in
 * another LLC than before.
 */
static void begin_work(struct load_thread *thread)
{
	thread->tid = syscall(SYS_gettid);
	thread->said = sched_getcpu();
	thread->busy = 0;
}

static void note_place(struct load_thread *thread)
{
	int cpu = sched_getcpu();

	if (cpu != thread->said) {
		thread->busy += home_at[cpu] != home_at[thread->said];
		thread->said = cpu;
	}
}

static void work(struct load_thread *thread)
{
	int i;

	begin_work(thread);
	for (;;) {
		for (i = 0; i < 1000; i++)
			asm volatile("");
		note_place(thread);
		thread->turns++;
	}
}

static void work_nice(struct load_thread *thread)
{
	setpriority(PRIO_PROCESS, 0, 5);
	work(thread);
}

static void work_idle(struct load_thread *thread)
{
	struct sched_param param = { };

	if (sched_setscheduler(0, SCHED_IDLE, &param))
		_exit(KSFT_FAIL);
	work(thread);
}

/* Half of the time, and with that before all others. */
static void work_rt(struct load_thread *thread)
{
	struct sched_param param = { .sched_priority = 1 };

	if (sched_setscheduler(0, SCHED_FIFO, &param))
		_exit(KSFT_FAIL);
	begin_work(thread);
	for (;;) {
		run_for(5000);
		usleep(5000);
		note_place(thread);
		thread->turns++;
	}
}

/* What the threads of a process have in common. A turn is once through it. */
static char *memory;
static size_t memory_size;

static void work_on_memory(struct load_thread *thread)
{
	size_t at, left;

	begin_work(thread);
	/* Each begins elsewhere. */
	at = thread->tid * 4096UL * 1021 % memory_size;
	for (;;) {
		for (left = memory_size; left; left -= 64) {
			__atomic_store_n(&memory[at], 1, __ATOMIC_RELAXED);
			at += 64;
			if (at == memory_size)
				at = 0;
			if (left % 65536 == 0)
				note_place(thread);
		}
		thread->turns++;
	}
}

/* Two threads wake each other in turn. */
#define MAX_AB_PAIRS	64

static int pipes[MAX_AB_PAIRS][2][2];
static atomic_int words[MAX_AB_PAIRS];

static void work_with_pipe(struct load_thread *thread)
{
	int end = thread->said & 1, pair = thread->said >> 1;
	char byte = 0;

	begin_work(thread);
	if (end && write(pipes[pair][1][1], &byte, 1) != 1)
		_exit(KSFT_FAIL);
	for (;;) {
		thread->nap = true;
		if (read(pipes[pair][!end][0], &byte, 1) != 1)
			_exit(KSFT_FAIL);
		thread->nap = false;
		run_for(100);
		note_place(thread);
		thread->turns++;
		if (write(pipes[pair][end][1], &byte, 1) != 1)
			_exit(KSFT_FAIL);
	}
}

static void work_with_futex(struct load_thread *thread)
{
	int end = thread->said & 1, pair = thread->said >> 1;

	begin_work(thread);
	for (;;) {
		thread->nap = true;
		while (words[pair] != end)
			syscall(SYS_futex, &words[pair], FUTEX_WAIT_PRIVATE, !end, NULL);
		thread->nap = false;
		run_for(100);
		note_place(thread);
		thread->turns++;
		words[pair] = !end;
		syscall(SYS_futex, &words[pair], FUTEX_WAKE_PRIVATE, 1);
	}
}

/*
 * Run in bursts of about 7 ms with sleeps between them, thread->said percent of the
 * time. No two are alike, or threads that never meet would go on so.
 */
#define BURST_US	7000

static void work_in_bursts(struct load_thread *thread)
{
	unsigned int percent = thread->said, us, after, seed;
	unsigned long long until;
	struct timespec time;

	begin_work(thread);
	seed = thread->tid;
	/* The sleeps end when they should. */
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		us = BURST_US / 2 + rand_r(&seed) % BURST_US;
		run_for(us);
		note_place(thread);
		thread->turns++;

		until = clock_ns(CLOCK_MONOTONIC) +
			(BURST_US / 2 + rand_r(&seed) % BURST_US) * NSEC_PER_USEC *
			(100 - percent) / percent;
		time.tv_sec = until / (1000 * NSEC_PER_MSEC);
		time.tv_nsec = until % (1000 * NSEC_PER_MSEC);
		thread->nap = true;
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
			_exit(KSFT_FAIL);
		thread->nap = false;
		after = (clock_ns(CLOCK_MONOTONIC) - until) / (LATE_US * NSEC_PER_USEC);
		late[min_int(after, LATE_MAX - 1)]++;
	}
}

/*
 * Building blocks of workloads
 */
static struct load *begin(const cpu_set_t *cpus, bool measured)
{
	struct load *load = start_load(cpus);

	loads[nr_loads++] = load;
	nr_measured += measured;
	return load;
}

static void add(struct load *load, int nr, const cpu_set_t *cpus,
		void (*run)(struct load_thread *thread))
{
	int i;

	for (i = 0; i < nr && load->nr < MAX_THREADS; i++)
		tell_load(load, cpus, run, 0, 0);
}

static void wait_begun(void)
{
	int i, j;

	for (i = 0; i < nr_loads; i++) {
		for (j = 0; j < loads[i]->nr; j++) {
			if (!wait_for(loads[i]->threads[j].turns))
				ksft_exit_fail_msg("thread %d of process %d did not begin\n", j, i);
		}
	}
}

static void let_go(struct load *load)
{
	int i;

	for (i = 0; i < load->nr; i++)
		move_thread(&load->threads[i], &usable);
}

static double min_of(double a, double b)
{
	return a < b ? a : b;
}

/* As many as there are CPUs, or as a process may have. */
static int nr_cpus(void)
{
	return min_int(CPU_COUNT(&usable), MAX_THREADS);
}

static void make_cgroups(void)
{
	unsigned int i;

	if (!enable_controller("cpu"))
		no_cpu_cgroup = "no cpu controller in " CGROUP;
	if (!enable_controller("cpuset"))
		no_cpuset = "no cpuset controller in " CGROUP;
	for (i = 0; i < ARRAY_SIZE(cgroups); i++) {
		if (mkdir(cgroups[i], 0755) && errno != EEXIST) {
			no_cpuset = "cannot make a cgroup";
			no_cpu_cgroup = no_cpuset;
			return;
		}
		restore_at_exit(cgroups[i], "");
	}
}

static int set_cgroup(int nr, const char *name, const char *text)
{
	char path[96];

	snprintf(path, sizeof(path), "%s/%s", cgroups[nr], name);
	return write_file(path, text);
}

static void join_cgroup(int nr, struct load *load)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", load->pid);
	if (set_cgroup(nr, "cgroup.procs", pid))
		ksft_exit_fail_msg("cannot move a process to %s\n", cgroups[nr]);
}

/*
 * The workloads. Each starts its processes and threads, or gives the reason that
 * it cannot.
 */
static const char *one_too_many(UNUSED int arg)
{
	add(begin(&usable, true), cores + 1, NULL, work);
	return NULL;
}

static const char *far_too_many(UNUSED int arg)
{
	add(begin(&usable, true), 2 * CPU_COUNT(&homes[0]), NULL, work);
	return NULL;
}

/* On @halves half LLCs. */
static const char *footprint(int halves)
{
	unsigned long long left = 0;
	struct load *load;
	char line[128];
	FILE *file;

	memory_size = (size_t)llcs.of[llc_a].bytes / 8192 * 4096 * halves;
	if (!memory_size)
		return "the size of the LLC is not known";
	file = fopen("/proc/meminfo", "r");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemAvailable: %llu kB", &left) == 1)
			break;
	}
	if (file)
		fclose(file);
	if (memory_size / 1024 > left / 4 * 3)
		return "not enough memory";

	/* The process inherits it, and is the first to touch it. */
	memory = mmap(NULL, memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	if (memory == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	load = begin(&usable, true);
	munmap(memory, memory_size);
	add(load, min_int(cores, 3), NULL, work_on_memory);
	return NULL;
}

/* One half pinned, one thread to a core of the last LLC, and one half not. */
static const char *pinned(UNUSED int arg)
{
	struct load *load = begin(&usable, true);
	int i, cpu = -1;
	cpu_set_t one;

	for (i = 0; i < cores; i++) {
		do {
			cpu = next_cpu(cpu, &homes[nr_homes - 1]);
		} while (core_at[cpu] != cpu);
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		add(load, 1, &one, work);
	}
	add(load, cores, NULL, work);
	return NULL;
}

static const char *two_llcs(UNUSED int arg)
{
	cpu_set_t cpus;

	CPU_OR(&cpus, &homes[0], &homes[1]);
	add(begin(&cpus, true), CPU_COUNT(&homes[0]) + 1, NULL, work);
	return NULL;
}

/* 60 percent of what the threads would like to run. */
static const char *bandwidth(UNUSED int arg)
{
	struct load *load;
	char text[32];

	if (no_cpu_cgroup)
		return no_cpu_cgroup;
	snprintf(text, sizeof(text), "%d 20000", cores * 12000);
	if (set_cgroup(0, "cpu.max", text))
		return "no cpu.max";
	load = begin(&usable, true);
	join_cgroup(0, load);
	add(load, cores, NULL, work);
	return NULL;
}

static const char *nice_and_not(UNUSED int arg)
{
	add(begin(&usable, true), nr_cpus(), NULL, work);
	add(begin(&usable, true), nr_cpus(), NULL, work_nice);
	/* sched_prio_to_weight[] of 0 and 5. */
	weight = 1024. / 335;
	return NULL;
}

static const char *weights(UNUSED int arg)
{
	static const char * const text[] = { "300", "100" };
	int i;

	if (no_cpu_cgroup)
		return no_cpu_cgroup;
	for (i = 0; i < 2; i++) {
		struct load *load;

		if (set_cgroup(i, "cpu.weight", text[i]))
			return "no cpu.weight";
		load = begin(&usable, true);
		join_cgroup(i, load);
		add(load, nr_cpus(), NULL, work);
	}
	weight = 3;
	return NULL;
}

static const char *idle_hogs(UNUSED int arg)
{
	add(begin(&usable, true), cores, NULL, work);
	add(begin(&usable, false), nr_cpus(), NULL, work_idle);
	return NULL;
}

/* Real-time tasks in the LLC that a process has come to prefer. */
static const char *rt_tasks(UNUSED int arg)
{
	struct load *load = begin(&usable, true), *rt = begin(&usable, false);
	cpu_set_t one;
	int cpu;

	add(load, cores, &homes[0], work);
	wait_begun();
	usleep(SETTLE_US / 2);
	for (cpu = first_cpu(&homes[0]); cpu >= 0; cpu = next_cpu(cpu, &homes[0])) {
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		add(rt, 1, &one, work_rt);
	}
	wait_begun();
	let_go(load);
	return NULL;
}

/* The last LLC is a partition, with a thread too many in it. */
static const char *cpuset_of_one_llc(UNUSED int arg)
{
	char list[4096] = "", path[96], now[64];
	int cpu, len = 0;
	struct load *load;

	if (no_cpuset)
		return no_cpuset;
	for (cpu = first_cpu(&homes[nr_homes - 1]); cpu >= 0;
	     cpu = next_cpu(cpu, &homes[nr_homes - 1]))
		len += snprintf(list + len, sizeof(list) - len, "%s%d", len ? "," : "", cpu);
	snprintf(path, sizeof(path), "%s/" PARTITION, cgroups[0]);
	if (set_cgroup(0, "cpuset.cpus", list) || set_cgroup(0, PARTITION, "root") ||
	    read_file(path, now, sizeof(now)) < 0 || strcmp(now, "root"))
		return "the partition is refused";

	load = begin(&usable, true);
	join_cgroup(0, load);
	add(load, cores + 1, NULL, work);
	add(begin(&usable, true), cores + 1, NULL, work);
	return NULL;
}

static const char *core_scheduling(UNUSED int arg)
{
	struct load *load = begin(&usable, true);

	if (prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, load->pid,
		  PR_SCHED_CORE_SCOPE_THREAD_GROUP, 0))
		return "no core scheduling, or no SMT";
	add(load, cores, NULL, work);
	add(begin(&usable, true), cores, NULL, work);
	return NULL;
}

static void add_singles(int nr)
{
	while (nr-- && nr_loads < MAX_LOADS)
		in_leader(begin(&usable, true), work);
}

static const char *singles(UNUSED int arg)
{
	add_singles(CPU_COUNT(&usable) * 3 / 2);
	return NULL;
}

/* On all CPUs that a process leaves, with a thread on half of an LLC's cores. */
static const char *singles_and_threads(UNUSED int arg)
{
	int nr = cores < 4 ? 2 : cores / 2;

	add(begin(&usable, true), nr, NULL, work);
	wait_begun();
	add_singles(CPU_COUNT(&usable) - nr);
	return NULL;
}

/* As many threads each as an LLC has cores, which begin all over the LLCs. */
static const char *processes(int nr)
{
	int i, j;

	for (i = 0; i < nr; i++) {
		begin(&usable, true);
		for (j = 0; j < cores; j++)
			add(loads[i], 1, &homes[(i + j) % nr_homes], work);
	}
	wait_begun();
	for (i = 0; i < nr; i++)
		let_go(loads[i]);
	return NULL;
}

/* A thread for each CPU, in as many processes as there are LLCs, or more. */
static const char *all_busy(int more)
{
	int nr = min_int(nr_homes + more, MAX_LOADS), left = CPU_COUNT(&usable), i;

	for (i = 0; i < nr; i++) {
		add(begin(&usable, true), left / (nr - i), NULL, work);
		left -= left / (nr - i);
	}
	return NULL;
}

/* More than an LLC has CPUs, which run @percent of the time, together on 79 % of these. */
static const char *bursts(int percent)
{
	struct load *load = begin(&usable, true);
	int i, nr = CPU_COUNT(&homes[0]) * 79 / percent;

	if (nr <= CPU_COUNT(&homes[0]))
		nr = CPU_COUNT(&homes[0]) + 1;
	for (i = 0; i < min_int(nr, MAX_THREADS); i++)
		tell_load(load, NULL, work_in_bursts, 0, percent);
	return NULL;
}

/* One more than an LLC has CPUs, so that about half of these are busy. */
static const char *few_bursts(int percent)
{
	struct load *load = begin(&usable, true);
	int i;

	for (i = 0; i < min_int(CPU_COUNT(&homes[0]) + 1, MAX_THREADS); i++)
		tell_load(load, NULL, work_in_bursts, 0, percent);
	return NULL;
}

static void start_pair_threads(void (*run)(struct load_thread *thread))
{
	struct load *load = begin(&usable, true);
	int i, nr = cores < 4 ? 1 : min_int(cores / 2, MAX_AB_PAIRS);

	for (i = 0; i < 2 * nr; i++)
		tell_load(load, NULL, run, 0, i);
}

static void make_pipes(void)
{
	int i;

	for (i = 0; i < 2 * MAX_AB_PAIRS; i++) {
		if (pipe(pipes[i / 2][i % 2]))
			ksft_exit_fail_perror("pipe");
	}
}

/* The processes of the threads have inherited them. */
static void close_pipes(void)
{
	int i;

	for (i = 0; i < 2 * MAX_AB_PAIRS; i++) {
		close(pipes[i / 2][i % 2][0]);
		close(pipes[i / 2][i % 2][1]);
	}
}

static const char *pipe_pairs(UNUSED int arg)
{
	make_pipes();
	start_pair_threads(work_with_pipe);
	close_pipes();
	return NULL;
}

/*
 * Each thread of a pair is in another process. The other threads of these compute, and begin
 * in an LLC each, which the process comes to prefer.
 */
static const char *rpc_pairs(UNUSED int arg)
{
	int i, end, nr = cores < 4 ? 1 : min_int(cores / 2, MAX_AB_PAIRS);

	make_pipes();
	for (end = 0; end < 2; end++) {
		begin(&usable, true);
		add(loads[end], nr, &homes[end ? nr_homes - 1 : 0], work);
		for (i = 0; i < nr; i++)
			tell_load(loads[end], NULL, work_with_pipe, 0, 2 * i + end);
	}
	close_pipes();
	wait_begun();
	for (end = 0; end < 2; end++)
		let_go(loads[end]);
	return NULL;
}

static const char *futex_pairs(UNUSED int arg)
{
	start_pair_threads(work_with_futex);
	return NULL;
}

static const struct workload {
	const char *name;
	const char *(*start)(int arg);
	int arg;
	/* aggr_tolerance: as much as possible is gathered, or what is by default. */
	const char *tolerance;
	/* Nothing is to be gathered. */
	bool spread;
	/* All CPUs have more threads than one. */
	bool busy;
	/* Another process wakes threads out of their LLC. */
	bool taken;
	/* Threads sleep. */
	bool sleeps;
	/* They run in bursts: what counts is when they begin. */
	bool bursts;
} workloads[] = {
	{ "a thread more than the LLC has cores", one_too_many, 0, "100", .spread = false },
	{ "a thread more than the LLC has cores, by default", one_too_many, 0, "1",
	  .spread = true },
	{ "twice the threads that the LLC has CPUs", far_too_many, 0, "100", .spread = false },
	{ "twice the threads that the LLC has CPUs, by default", far_too_many, 0, "1",
	  .spread = true },
	{ "a footprint of half an LLC", footprint, 1, "1", .spread = false },
	{ "a footprint of an LLC", footprint, 2, "1", .spread = true },
	{ "a footprint of 2 LLCs", footprint, 4, "1", .spread = true },
	{ "a footprint of 8 LLCs", footprint, 16, "1", .spread = true },
	{ "pinned threads", pinned, 0, "100", .spread = false },
	{ "taskset to two LLCs", two_llcs, 0, "100", .spread = false },
	{ "cpu.max", bandwidth, 0, "100", .spread = false },
	{ "nice", nice_and_not, 0, "100", .busy = true },
	{ "cpu.weight", weights, 0, "100", .busy = true },
	{ "SCHED_IDLE hogs beside it", idle_hogs, 0, "100", .spread = false },
	{ "SCHED_FIFO tasks in the way", rt_tasks, 0, "100", .spread = false },
	{ "a cpuset partition", cpuset_of_one_llc, 0, "100", .spread = false },
	{ "core scheduling", core_scheduling, 0, "100", .spread = false },
	{ "processes of one thread", singles, 0, "100", .spread = true, .busy = true },
	{ "processes of one thread beside one with more", singles_and_threads, 0, "100", .spread = false },
	{ "2 processes", processes, 2, "100", .spread = false },
	{ "4 processes", processes, 4, "100", .spread = false },
	{ "all CPUs busy, a process for each LLC", all_busy, 0, "100", .spread = true },
	{ "all CPUs busy, one process more than LLCs", all_busy, 1, "100", .spread = true },
	{ "pairs that wake each other by pipes", pipe_pairs, 0, "100", .sleeps = true },
	{ "pairs that wake each other by futex", futex_pairs, 0, "100", .sleeps = true },
	{ "pairs of threads of two processes", rpc_pairs, 0, "100", .taken = true, .sleeps = true },
	{ "threads that run in bursts, 70 percent", bursts, 70, "1", .sleeps = true,
	  .bursts = true },
	{ "threads that run in bursts, 50 percent", bursts, 50, "1", .sleeps = true,
	  .bursts = true },
	{ "one thread more than CPUs, in bursts", few_bursts, 50, "1", .sleeps = true,
	  .bursts = true },
};

/*
 * Runs
 */
struct sample {
	unsigned long long ran, waited, at;
	unsigned int moves;
};

static struct sample samples[MAX_LOADS][MAX_THREADS];

static void read_sample(struct load *load, struct load_thread *thread, struct sample *sample)
{
	char path[64], text[128];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", load->pid, thread->tid);
	if (read_file(path, text, sizeof(text)) <= 0 ||
	    sscanf(text, "%llu %llu", &sample->ran, &sample->waited) != 2)
		ksft_exit_fail_msg("cannot read %s\n", path);
	sample->at = clock_ns(CLOCK_MONOTONIC);
	sample->moves = thread->busy;
}

/* What looks at the threads came to. */
struct looks {
	int threads, most, running, cores;
};

static void look(struct looks *looks)
{
	static int in[MAX_LLCS];
	int i, j, cpu, most = 0;
	cpu_set_t used;

	memset(in, 0, sizeof(in));
	CPU_ZERO(&used);
	for (i = 0; i < nr_measured; i++) {
		for (j = 0; j < loads[i]->nr; j++) {
			cpu = loads[i]->threads[j].said;
			if (home_at[cpu] >= 0 && ++in[home_at[cpu]] > most)
				most = in[home_at[cpu]];
			looks->threads++;
			if (loads[i]->threads[j].nap)
				continue;
			CPU_SET(core_at[cpu], &used);
			looks->running++;
		}
	}
	looks->most += most;
	looks->cores += CPU_COUNT(&used);
}

/* What one sleep in a hundred was late by, in milliseconds. */
static double late_99(void)
{
	unsigned int i, nr = 0, left = 0;

	for (i = 0; i < LATE_MAX; i++)
		nr += late[i];
	if (nr < 100)
		return INFINITY;
	for (i = LATE_MAX; i && left <= nr / 100; i--)
		left += late[i - 1];
	return (double)i * LATE_US / 1000;
}

static void measure(double *values, int nr_looks)
{
	double shares[2] = { }, least = INFINITY, sum = 0, ratio;
	struct looks looks = { };
	int i, j, nr = 0;

	memset(values, 0, NR_FIGURES * sizeof(*values));
	for (i = 0; i < nr_measured; i++) {
		for (j = 0; j < loads[i]->nr; j++)
			read_sample(loads[i], &loads[i]->threads[j], &samples[i][j]);
	}
	memset(late, 0, LATE_MAX * sizeof(*late));
	for (i = 0; i < nr_looks; i++) {
		usleep(LOOK_US);
		look(&looks);
	}
	for (i = 0; i < nr_measured; i++) {
		for (j = 0; j < loads[i]->nr; j++) {
			struct sample *before = &samples[i][j], now;
			double wall, share;

			read_sample(loads[i], &loads[i]->threads[j], &now);
			wall = now.at - before->at;
			share = (now.ran - before->ran) / wall;
			values[WAITED] += (now.waited - before->waited) / wall;
			values[MOVES] += (now.moves - before->moves) / wall * 1e9;
			sum += share;
			shares[i % 2] += share;
			least = min_of(least, share);
			nr++;
		}
	}
	values[LATE] = late_99();
	values[CPUS] = sum;
	values[FULLEST] = (double)looks.most / looks.threads;
	values[CORES] = looks.running ? (double)looks.cores / looks.running : 1;
	ratio = shares[0] / shares[1] / weight;
	values[FAIR] = weight ? min_of(ratio, 1 / ratio) : least * nr / sum;
}

static void stop_loads(void)
{
	while (nr_loads)
		stop_load(loads[--nr_loads]);
	nr_measured = 0;
	weight = 0;
	if (!no_cpu_cgroup) {
		set_cgroup(0, "cpu.max", "max");
		set_cgroup(0, "cpu.weight", "100");
	}
	if (!no_cpuset) {
		set_cgroup(0, PARTITION, "member");
		set_cgroup(0, "cpuset.cpus", "\n");
	}
}

/* The reason that it cannot be, if it cannot. */
static const char *run(const struct workload *workload, bool on, double *values, int *threads)
{
	const char *reason;
	int i;

	set_feature("SCHED_CACHE_LB", on);
	reason = workload->start(workload->arg);
	if (!reason) {
		wait_begun();
		usleep(workload->busy || workload->taken ? SETTLE_LONG_US : SETTLE_US);
		measure(values, workload->bursts ? BURST_LOOKS : LOOKS);
		*threads = 0;
		for (i = 0; i < nr_measured; i++)
			*threads += loads[i]->nr;
	}
	stop_loads();
	return reason;
}

/* Say that @what cannot be done, if it cannot. */
static bool cannot(const char *what)
{
	if (no_llcs)
		ksft_test_result_skip("%s: %s\n", what, no_llcs);
	return no_llcs;
}

static void compare(const struct workload *workload)
{
	double values[4][NR_FIGURES], slack, chance, off, on;
	char text[1024] = "", worse[128] = "";
	const char *reason;
	int i, len = 0, threads;

	if (cannot(workload->name))
		return;

	set_knob("aggr_tolerance", workload->tolerance);
	for (i = 0; i < 4; i++) {
		reason = run(workload, i == 1 || i == 2, values[i], &threads);
		if (reason) {
			ksft_test_result_skip("%s: %s\n", workload->name, reason);
			return;
		}
	}

	for (i = 0; i < NR_FIGURES; i++) {
		len += snprintf(text + len, sizeof(text) - len,
				"%s%s %.*f %.*f | %.*f %.*f", len ? ", " : "", figures[i].name,
				figures[i].digits, values[0][i], figures[i].digits, values[3][i],
				figures[i].digits, values[1][i], figures[i].digits, values[2][i]);
		if ((i == FULLEST && !workload->spread) || (i == CORES && workload->sleeps) ||
		    (i == LATE && !workload->bursts))
			continue;
		slack = figures[i].slack * (figures[i].per_thread ? threads : 1);
		chance = fabs(values[0][i] - values[3][i]);
		if (chance > slack)
			slack = chance;
		off = (values[0][i] + values[3][i]) / 2;
		if (i == LATE && off / 2 > slack)
			slack = off / 2;
		on = (values[1][i] + values[2][i]) / 2;
		/* That is so for what is no number, too. */
		if (!((off - on) * figures[i].better <= slack))
			snprintf(worse + strlen(worse), sizeof(worse) - strlen(worse), " %s",
				 figures[i].name);
	}
	ksft_print_msg("%s, %d threads: %s: %s%s\n", workload->name, threads, text,
		       worse[0] ? "worse:" : "as before", worse);
	ksft_test_result(!worse[0], "%s\n", workload->name);
}

/*
 * Watching
 */

/* Another choice for a process, and the begin and the end of what speaks against one. */
static const char * const events[] = { "sched_cache_prefer", "sched_cache_gate" };

static bool write_event(const char *event, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), TRACE_EVENTS "%s/%s", event, name);
	return !write_file(path, text);
}

static bool start_trace(void)
{
	char filter[64];
	unsigned int i;

	if (mkdir(TRACE_INSTANCE, 0755) && errno != EEXIST)
		return false;
	restore_at_exit(TRACE_INSTANCE, "");
	snprintf(filter, sizeof(filter), "tgid == %d || tgid == %d", loads[0]->pid, loads[1]->pid);
	for (i = 0; i < ARRAY_SIZE(events); i++) {
		if (!write_event(events[i], "filter", filter) ||
		    !write_event(events[i], "enable", "1"))
			return false;
	}
	return true;
}

static int traced_changes(void)
{
	char *line = NULL;
	size_t size = 0;
	unsigned int i;
	FILE *file;
	int nr = 0;

	for (i = 0; i < ARRAY_SIZE(events); i++)
		write_event(events[i], "enable", "0");
	file = fopen(TRACE_INSTANCE "/trace", "r");
	if (!file)
		ksft_exit_fail_perror(TRACE_INSTANCE);
	while (getline(&line, &size, file) > 0)
		nr += strstr(line, "sched_cache_prefer: ") || strstr(line, "sched_cache_gate: ");
	free(line);
	fclose(file);
	return nr;
}

/* Note what both processes prefer. Is each one with all its threads in an LLC of its own? */
static bool each_at_home(int *preferred)
{
	struct state state;
	bool home;
	int i, j;

	for (i = 0; i < 2; i++)
		preferred[i] = group_prefers(loads[i], &state);
	home = preferred[0] >= 0 && preferred[1] >= 0 && preferred[0] != preferred[1];
	for (i = 0; i < 2; i++) {
		for (j = 1; j < loads[i]->nr; j++)
			home = home && home_at[loads[i]->threads[j].said] ==
			       home_at[loads[i]->threads[0].said];
	}
	return home;
}

static void test_steady(int seconds)
{
	int i, j, moved = 0, changes = 0, looks = 0, away = 0;
	int preferred[2] = { -1, -1 }, now[2];
	unsigned long long end;
	bool home, traced;

	if (cannot("steady state"))
		return;
	if (cores < 3) {
		ksft_test_result_skip("steady state: an LLC has %d cores only\n", cores);
		return;
	}

	set_feature("SCHED_CACHE_LB", true);
	set_knob("aggr_tolerance", "100");
	for (i = 0; i < 2; i++) {
		begin(&usable, true);
		for (j = 0; j < cores / 2 + 1; j++)
			add(loads[i], 1, &homes[(i + j) % nr_homes], work);
	}
	wait_begun();
	for (i = 0; i < 2; i++)
		let_go(loads[i]);
	home = wait_for(each_at_home(preferred));
	usleep(SETTLE_US);

	traced = start_trace();
	each_at_home(preferred);
	for (i = 0; i < 2; i++)
		moved -= moves(loads[i]);
	end = clock_ns(CLOCK_MONOTONIC) + seconds * 1000 * NSEC_PER_MSEC;
	while (clock_ns(CLOCK_MONOTONIC) < end) {
		usleep(100000);
		looks++;
		away += !each_at_home(now);
		for (i = 0; i < 2; i++)
			changes += now[i] != preferred[i];
		memcpy(preferred, now, sizeof(now));
	}
	for (i = 0; i < 2; i++)
		moved += moves(loads[i]);
	if (traced) {
		changes = traced_changes();
		rmdir(TRACE_INSTANCE);
	} else {
		ksft_print_msg("not traced: preferences are looked at every 100 ms\n");
	}
	stop_loads();
	ksft_print_msg("2 processes of %d threads, each in an LLC of its own in %d of %d looks\n",
		       cores / 2 + 1, looks - away, looks);
	ksft_print_msg("in %d s %d preferences changed, %.2f per second\n", seconds, changes,
		       (double)changes / seconds);
	ksft_print_msg("in %d s %d moves between LLCs, %.2f per second\n", seconds, moved,
		       (double)moved / seconds);
	ksft_test_result(home && changes <= HANDFUL && moved <= HANDFUL && away <= looks / 20,
			 "nothing changes in steady state\n");
}

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : "", *env = getenv(WATCH_ENV);
	int cpu, seconds = env ? atoi(env) : WATCH_DEFAULT;
	unsigned int i, nr = 0;
	cpu_set_t smt;
	bool steady;

	ksft_print_header();
	if (seconds <= 0)
		ksft_exit_fail_msg(WATCH_ENV "=%s is no number of seconds\n", env);
	begin_sched_cache();
	if (feature("SCHED_CACHE_LB") < 0)
		ksft_exit_skip("no SCHED_CACHE_LB\n");
	if (access("/proc/self/schedstat", R_OK))
		ksft_exit_skip("no schedstat of tasks\n");
	restore_feature_at_exit("SCHED_CACHE_LB");
	/* It gathers too, with and without. */
	if (feature("SCHED_CACHE_WAKE") >= 0) {
		restore_feature_at_exit("SCHED_CACHE_WAKE");
		set_feature("SCHED_CACHE_WAKE", false);
	}
	late = mmap(NULL, LATE_MAX * sizeof(*late), PROT_READ | PROT_WRITE,
		    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (late == MAP_FAILED)
		ksft_exit_fail_perror("mmap");
	if (!no_llcs) {
		for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
			home_at[cpu] = home_of(cpu);
			core_at[cpu] = cpu;
			if (home_at[cpu] >= 0 &&
			    read_cpu_list(cpu, "topology/thread_siblings_list", &smt)) {
				CPU_AND(&smt, &smt, &usable);
				core_at[cpu] = first_cpu(&smt);
			}
		}
		make_cgroups();
	}
	steady = strstr("steady state", only);
	for (i = 0; i < ARRAY_SIZE(workloads); i++)
		nr += !!strstr(workloads[i].name, only);
	if (!nr && !steady)
		ksft_exit_fail_msg("no workload is called %s\n", only);
	ksft_set_plan(nr + steady);

	for (i = 0; i < ARRAY_SIZE(workloads); i++) {
		if (strstr(workloads[i].name, only))
			compare(&workloads[i]);
	}
	if (steady)
		test_steady(seconds);

	ksft_finished();
}
