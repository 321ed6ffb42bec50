/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Clocks of the CPUs, and when QEMU runs which of them. Times are in ps.
 *
 * The clock owns what is known of a CPU's time, sleep and interrupts. The translated code adds what
 * it costs to a counter for each CPU, which clock_new_cpu() is told of.
 */
#ifndef SIM_CLOCK_H
#define SIM_CLOCK_H

#include "qemu.h"

#define CLOCK_MAX_CPUS 512
/* clock_turn() has to be called at the begin of a block of code if the counter has reached this. */
#define CLOCK_SLICE_END (1ULL << 40)

struct clock_config {
	int cpus, threads, cpus_per_llc, cpus_per_socket;
	/* Of the guest's TSC. */
	uint64_t mhz;
	/*
	 * How long something takes on a core whose other thread runs too, in percent of what it
	 * takes on a core alone.
	 */
	uint64_t smt_percent;
	uint64_t c1_exit_ps, ipi_ps;
	/*
	 * How far a CPU may get ahead of one of its LLC, of its socket, of another socket while
	 * something is measured. It has to be less than a line takes on that way: else a CPU goes
	 * on with a line for a while before the other one can ask for it.
	 */
	uint64_t ahead_ps[3], seed;
};

/* What the guest is at; CPUs are less apart where more depends on it. */
enum clock_phase {
	/* It boots: accesses to memory are not looked at. */
	CLOCK_FAST,
	CLOCK_WARM,
	CLOCK_MEASURED
};

#define CLOCK_NEVER (~0ULL)

/* What has been counted since the start. */
struct clock_counts {
	uint64_t ended_sleeps;
	/* How far a CPU that runs has been ahead of the one farthest behind, at most, since
	 * clock_reset_ahead(). */
	uint64_t ahead_ps;
};

void clock_start(const struct clock_config *config);
/* Take over a CPU of QEMU's, as soon as it exists. Exits if QEMU is not what it is known to be. */
void clock_new_cpu(int index);
/* Say where the translated code counts the time of a CPU; QEMU may move it. */
void clock_count_in(int index, uint64_t *spent);
void clock_set_phase(enum clock_phase phase);
/*
 * Have `call` called once, with the time that all CPUs have come to, soon after that is `when`; not at all if that is
 * CLOCK_NEVER. There is one alarm.
 */
void clock_alarm(uint64_t when, void (*call)(uint64_t now));

/* The clock of a CPU. */
uint64_t clock_of(unsigned int index);
/*
 * Let time pass on a CPU in which it waits: that takes no longer if the core's other thread runs.
 */
void clock_spend(unsigned int index, uint64_t ps);
/* Say that a CPU executes code. */
void clock_runs(unsigned int index);
/* How long a CPU has been awake, since the start. */
uint64_t clock_busy(unsigned int index);
const struct clock_counts *clock_counts(void);
void clock_reset_ahead(void);

/*
 * To be called when a CPU executes HLT, PAUSE, MWAIT; clock_monitor() with the line of RAM that
 * MONITOR names, -1 if it names none.
 */
void clock_turn(unsigned int index, void *unused);
void clock_hlt(unsigned int index, void *unused);
void clock_pause(unsigned int index, void *unused);
void clock_mwait(unsigned int index, void *unused);
void clock_monitor(unsigned int index, int64_t line);

/*
 * Whether writes to a line have to be told to clock_written(), which ends the MWAITs on it. It may
 * be true without need.
 */
bool clock_watched(uint64_t line);
void clock_written(unsigned int by, uint64_t line);

#endif
