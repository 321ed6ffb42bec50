/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the program `workload` share. main.c has the usage text.
 *
 * A task is a thread that does the workload's work. Tasks that work on the same data are a group: the
 * threads of a process, a lane, or one of hackbench's groups. Times are in ns unless the name says
 * otherwise.
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <err.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

/* The plugin of the simulation knows these instructions, which do nothing: see plugins/sim/plugin.c. */
#define MARK(number) asm volatile("nopl " number "(%%rax)" ::: "memory")
#define WARM() MARK("0x5ca1ab11")
#define BEGIN() MARK("0x5ca1ab12")
#define END() MARK("0x5ca1ab13")
#define SETTLE() MARK("0x5ca1ab14")

#define LINE 64
#define PAGE 4096
#define MOST_TASKS 4096
/* An upper end of the range of the seed's random delays, in us. */
#define DELAY_US 200
#define ANY -1
#define ALIGNED __attribute__((aligned(LINE)))

/* ---- tools.c ---- */

/* The seed's random numbers: below 2^31. */
void set_seed(uint64_t seed);
uint64_t random_number(void);
/* Write the numbers 0 to count - 1 into `order`, in a random order. */
void shuffle(int *order, int count);
/* Map random regions with holes between them and sleep for a random time, so that addresses and
 * times differ between seeds. */
void scatter(void);

double now_ns(void);
void sleep_us(long us);
/* Map `size` bytes of zeros; shared: MAP_SHARED or MAP_PRIVATE. Ends the program if there is no
 * memory, as all functions here do if something fails. */
void *map(size_t size, int shared);
/* Use the CPUs of a list, "0,96,1,97", only. From then on a CPU's number is its place in the list, from 0
 * on. False if the text is no such list. */
bool list_cpus(const char *list);
/* How many CPUs have numbers. */
int count_cpus(void);
/* Give the CPU that is `step` CPUs from that of the number before, each CPU once before any twice. */
int spread_cpu(int number, int step);
/* Start a thread on a CPU, or wherever the caller may run if cpu is ANY. */
void start_thread(int cpu, void *(*function)(void *), void *argument);
/* Fork; the child ends with its parent. Give 0 in the child. */
pid_t start_process(void);
/* Kill the children and wait for them. */
void end_processes(void);
/* Allow this many open files. */
void allow_files(int count);
/* Let the calling thread, and what it starts, run on CPUs first to last only. */
void restrict_cpus(int first, int last);
/* Give the calling thread a slice of its own with sched_setattr(); 0 leaves it as it is. */
void set_slice(uint64_t slice_ns);
/* Compute for about this long, as long as the CPU is the thread's alone; see calibrate(). */
void compute_us(double us);
/*
 * The same, but change a random line of a thread's own memory about every 20 ns. Misses come on top.
 * number: where the random lines begin; give where the next call is to go on.
 */
uint64_t work_us(double us, uint64_t number, uint64_t *memory, uint64_t lines);
/* Measure how fast the CPU computes; before compute_us() and work_us(). */
void calibrate(void);
void futex_wait(_Atomic uint32_t *word, uint32_t value);
void futex_wake(_Atomic uint32_t *word);

/* ---- measure.c ---- */

enum start { START_NONE, START_TOGETHER, START_TWO_LLCS, START_TWO_SOCKETS, START_SCATTERED };

/* The options of the command line, see main.c. */
extern struct options {
	enum start start;
	int windows;
	long window_ms, settle_ms;
	const char *between, *stats;
} options;

/* Give the start of that name; -1 if there is none. */
int start_by_name(const char *name);

/* Before the first task starts and after restrict_cpus(): how many tasks there will be. */
void expect_tasks(int count);
/*
 * Called by each task first: its number, below the count that is expected; its group; and its seat in
 * the group. Tasks that talk to each other most have seats next to each other. Places the task where
 * the prescribed start wants it.
 */
void join(int number, int group, int seat);

/*
 * Have the process of a task decide with those of other tasks of the group in which LLCs they
 * are: it joins that which was first to call this.
 */
void join_processes(int group);

/* Have the scheduler leave the thread that calls this out of the group of its process. */
void leave_out(void);
/* Called by each task once its memory is set up. */
void begin_work(void);
/* Wait until all tasks have called begin_work(); measure() does that. */
void wait_for_tasks(void);
/* Lift the restrictions of the prescribed start. */
void release(void);
/* Begin and end what the plugin counts, and what options.stats asks for. */
void begin_region(void);
void end_region(void);
/* A task has done one operation. */
void progress(int number);
/* A task waited so long in a measured region; else this does nothing. */
void waited(int number, double ns);

enum figure {
	/* operations of all tasks per ms, times `scale` */
	RATE,
	/* geometric mean of the operations of each group per ms */
	MEAN,
	/* 99th percentile of what waited() was called with, in us */
	P99,
};

/*
 * Measure the windows: before each, place the tasks, call the command `between`, and let them run for
 * options.settle_ms and warm_ms; then release them and measure for ms, or options.window_ms. Print a line for each.
 */
void measure(enum figure figure, double scale, const char *unit, long warm_ms, long ms);
/* Ends the program if a task has done nothing: the others would look faster than they are. */
void need_all(void);

/* ---- the kinds; arguments are described in main.c ---- */

/* caches.c */
void chase(int cpu, int home, size_t kib, long loads);
void bounce(int a, int b, long all, int home);
void count_both(int a, int b, long count);

/* messages.c */
enum how { THREADS, PROCESSES, GROUPS, CLIENT_SERVER };
struct messages {
	int groups, pairs, loops;
	enum how how;
	bool sockets;
	int first, last;
	long slice_us;
};
void ping_pong(int a, int b, long times);
void messages(const struct messages *given);
void rate(const struct messages *given, long warm_ms, long ms);
void pipeline(int lanes, int stages, long count, long warm_ms, bool joined);
void request_response(int pairs, double work, long warm_ms, long ms, enum how how, int first, int last,
		      long slice_us);

/* memory.c */
enum sharers { ANYWHERE, PINNED, NEAR, APART, STRIDE, READ, SEGMENT, JOINED };
void sharing(int processes, int threads, size_t kib, long warm_ms, long ms, enum sharers how);
void tenants(int processes, int percent, long warm_ms, long ms, enum sharers how);
void phase(int processes, int threads, size_t kib, size_t own_kib, long phase_ms, long warm_ms, long ms);
void hog(int processes, int threads, size_t kib, long warm_ms, long ms);
void handoff(int lanes, double work, size_t shared_kib, size_t private_kib, long warm_ms, long ms);
void mixed(int hogs, size_t kib, int pairs, double work, long warm_ms, long ms, bool never);
void barrier(int threads, double work, size_t private_kib, long warm_ms, long ms);
void stop_the_world(int mutating, double mutator_us, int workers, double work, size_t kib, long warm_ms, long ms);

/* latency.c */
void cyclic(int threads, long period_us, long times, bool lockstep);
void priority_inversions(int groups, int step, long warm_ms, long ms);
void wakeups(int messengers, int workers, double work, long pause_us, long warm_ms, long ms);

/* scale.c */
enum scale { SCALE_OPEN, SCALE_LOCK, SCALE_SWITCH };
void scale(enum scale given, int threads, int step, long warm_ms, long ms);

#endif
