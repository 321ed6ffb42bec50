/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A simulation of time and caches for the CPUs of a guest, as a plugin for QEMU.
 *
 * clock.c runs the CPUs in lock step, each on a clock of its own; caches.c says what an access to
 * memory costs; report.c counts and writes it down; plugin.c ties them to QEMU. All of it runs on
 * the one thread on which QEMU's CPUs take turns (-accel tcg,thread=single), so nothing is locked.
 *
 * Times are in ps.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "qemu.h"

#define MAX_CPUS 512
#define MAX_L2S 256
#define MAX_LLCS 32
#define MAX_NODES 32
#define LINE_BITS 6

/* What an access to a line finds. */
enum found {
	IN_L1,
	IN_L2,
	IN_L3,
	/*
	 * Comes from another L2 of the LLC; from another LLC, that may have written it; from
	 * memory.
	 */
	FROM_CORE,
	FROM_LLC,
	FROM_SOCKET,
	FROM_DRAM,
	FROM_FAR_DRAM,
	/* A write to a line that others have read: how far away the farthest of them is. */
	TAKEN_CORE,
	TAKEN_LLC,
	TAKEN_SOCKET,
	FOUND
};
/* Whether a line went from one L2 to another, or was taken from it. */
#define MOVED(found) ((found) >= FROM_CORE && (found) != FROM_DRAM && (found) != FROM_FAR_DRAM)

/* What the machine file says, and where to write. Every option has to be given: see options[]. */
struct settings {
	uint64_t threads, cores_per_l2, cores_per_llc, llcs_per_socket, nodes, ram_mib;
	uint64_t l1_kib, l1_ways, l2_kib, l2_ways, l3_kib, l3_ways;
	uint64_t mhz, insn_ps, smt_percent, store_percent;
	uint64_t found_ps[FOUND];
	uint64_t c1_exit_ps, ipi_ps;
	uint64_t quantum_ps, seed;
	/* Addresses in the kernel: what is executed at each wakeup and at each switch of tasks; an
	 * array of what is added to the address of a percpu variable; the one of the runqueues. */
	uint64_t at_wakeup, at_switch, per_cpu_offset, runqueues;
	const char *out;
};

/* What the translated code itself counts. */
struct counted {
	/* ps in this slice; the slice is over at SLICE_END, as clock.c sets it up. */
	uint64_t spent;
	uint64_t insns;
};

struct cpu {
	CPUState *qemu;
	struct counted *counted;
	int core, l2, llc, socket;
	/* Of this slice: the clock and counted->spent at its begin, the rate in percent at which
	 * time goes by, and a number that changes when what was touched is not known any more. */
	uint64_t clock, begin, rate;
	uint32_t touching;
	bool running, halted, in_mwait, monitoring;
	uint64_t monitored;
	/* Asleep, but only until then; and the interrupts, as QEMU has them, that it gets then. */
	bool waking;
	uint64_t wakes_at;
	int interrupts;
	/* Halted for QEMU, until there is a round that ends after its clock. */
	bool waiting;
};

extern struct settings set;
extern struct cpu cpus[MAX_CPUS];
extern int ncpus;
/* The caches are looked at, from the mark before the warm-up to the one at the end. */
extern bool detailed;
/* Between the mark at the begin and the one at the end. */
extern bool measuring;
extern uint64_t now;

/* plugin.c */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* clock.c */
#define SLICE_END (1ULL << 40)
void clock_start(void);
void clock_new_cpu(int index);
void clock_turn(unsigned int index, void *unused);
void clock_end_slice(struct cpu *cpu);
void clock_is_turn_of(struct cpu *cpu);
void clock_hlt(unsigned int index, void *unused);
void clock_pause(unsigned int index, void *unused);
void clock_monitor(unsigned int index, void *unused);
void clock_mwait(unsigned int index, void *unused);
void clock_forget(unsigned int index, void *unused);
void clock_written(struct cpu *by, uint64_t line);
bool clock_watched(uint64_t line);
void clock_poll_soon(void);
/* How far the clocks of CPUs may be apart. */
uint64_t clock_round(void);
uint64_t clock_of(const struct cpu *cpu);
uint64_t read_register(const char *name);

/* caches.c */
void caches_start(void);
/* Let a CPU access a line, by its number; give where it was, and how long that takes. */
enum found caches_access(const struct cpu *cpu, uint64_t line, bool write, uint64_t *cost);
bool caches_owns(const struct cpu *cpu, uint64_t line);
/* The number of a line of RAM, or -1. */
int64_t caches_line(uint64_t address);

/* report.c */
void report_start(void);
void report_begin(uint64_t time);
void report_end(uint64_t time);
void report_access(enum found found, bool kernel, uint64_t cost);
void report_transfer(enum found found, uint64_t address, uint64_t line, uint64_t pc);
void report_wakeup(unsigned int index, void *unused);
void report_switch(unsigned int index, void *unused);
void report_woken(void);
void report_busy(const struct cpu *cpu, uint64_t ps);
void report_ahead(uint64_t ps);

#endif
