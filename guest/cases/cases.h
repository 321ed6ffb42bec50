/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the program `cases` share: programs in the shape of public reports of users, of which
 * kit/trials/cases.toml says where each is from, and what must hold.
 *
 * The threads of a case are in processes of their own. Each has a seat on a board in shared memory, where it
 * says what happens to it; the process that prints the figures looks at the board, and sleeps otherwise.
 * Times are in ms. Work is measured in CPU time of the thread, as the CPUs of a guest share the instructions of
 * its clock: waits and placement mean something then, and how long a piece of work takes does not.
 */
#ifndef CASES_H
#define CASES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <err.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define MOST_SEATS 256
#define MOST_PROCESSES 64
#define MOST_WAITS 8192
/* Until threads are where they will be, and what has been measured is of a steady state. */
#define WARM_MS 1500

/* What a thread says of itself. */
struct seat {
	/* where it ran last: -1 before it has */
	volatile int cpu;
	/* its CPU time, and when it last made progress */
	volatile double used, beat;
	/* what it has done while board->measuring */
	volatile long done;
	/* how often its LLC was another one than before, likewise */
	volatile long llc_changes;
	volatile int waits;
	float wait[MOST_WAITS];
	/* set by seats(): which process it belongs to */
	int process;
	/* for the case's own use */
	volatile int word;
	volatile double time;
	/* when what it is to do was handed to it, one after the other */
	double handed[16];
	volatile unsigned int nr_handed;
};

struct board {
	volatile int measuring;
	/* how many seats are taken */
	int seats;
	/* for the case's own use */
	volatile int words[16];
	volatile double time;
	struct seat seat[MOST_SEATS];
};

extern struct board *board;
/* How long to measure. */
extern double measure_ms;

double now(void);
double cpu_time(void);
/* Compute for so much CPU time; `varied` by half more or less, with the seed's next number. */
void work(double ms);
double varied(double ms, unsigned int *seed);
void nap(double ms);
/* Note that the calling thread made progress, and where; that it had waited. */
void here(struct seat *seat);
void waited(struct seat *seat, double ms);

/* Wait until a word is no longer `value`; give what it is. Change a word by 1 and wake all that wait for it. */
int await(volatile int *word, int value);
void wait_zero(volatile int *word);
void release(volatile int *word);
/* Subtract 1, and wake those that wait for 0; true if it is. */
bool count_down(volatile int *word);

/* Say that these seats belong to a process. */
void seats(int process, int first, int count);
/* Start a process, which ends with this one, and call a function in it, which never returns. */
pid_t process(void (*function)(int), int argument);
/* Start a thread that never ends and has no inherited policy; and one for each seat but the first, which the caller is. */
void thread(void *(*function)(void *), void *argument);
void threads(void *(*function)(void *), int first, int count);
/* Take these seats, and start a process whose threads call a function, one for each seat. */
pid_t crew(int process, void *(*function)(void *), int first, int count);
/* A thread that runs all the time. */
void *hog(void *seat);

/* What looking at the board has shown. */
struct looks {
	int count;
	/* means: the share of processes that are in no more LLCs than `fewest`, the LLCs of a process, the CPUs of all seats */
	double together, llcs, cpus;
	/* threads that share a CPU with another one of the board */
	double stacked;
	/* how long it took, in ms */
	double ms;
};

int llc_of(int cpu);
/* How many LLCs a process needs, 1 unless it is set; with PINNED= in the environment it has only so many. */
extern int fewest[MOST_PROCESSES];
/* The LLCs that have so many CPUs. */
int llcs_for(double cpus);
/* Look at the seats for so long. */
struct looks look(int first, int count, double ms);
/* Settle, and look at the seats while measuring. */
struct looks measure(int first, int count);
/* CPU time that some seats have, in ms; what they have done; how often they changed the LLC. */
double used(int first, int count);
long done(int first, int count);
long llc_changes(int first, int count);
/*
 * A share, such as 0.99, of the waits of some seats is at most what this gives, in ms; the mean of them. End the program
 * if one of them has not waited once: it waits still.
 */
double wait_at(int first, int count, double share);
double wait_mean(int first, int count);

/* Print "# {JSON}" with the figures since the last time: names, values. */
void figure(const char *name, double value);
void print_figures(void);

/*
 * Write to a file below the cgroup file system, where directory() makes a group, which ends with the program; does a file
 * have this text?
 */
void directory(const char *name);
bool put(const char *file, const char *text);
bool has(const char *file, const char *text);

/* The arguments of a case, after its name. */
extern char **arguments;
double number(int index);
bool word(int index, const char *text);

/* apps.c */
void frame(void);
void collector(void);
void pool(void);
void instances(void);
void barriers(void);
void model(void);
void stages(void);
void contended(void);
void spinning(void);
/* messages.c */
void hackbench(void);
void pipes(void);
void requests(void);
void periodic(void);
/* policies.c */
void batch(void);
void quota(void);
void moved(void);
void partition(void);
void real_time(void);
void cookies(void);
void build(void);
void mixed(void);
void starts(void);

#endif
