/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Counts what happens between two marks and writes it down. The caller says what happens; the
 * report knows neither the clock nor the caches. Times are in ps.
 */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "caches.h"

struct report_config {
	int cpus, cpus_per_llc, cpus_per_socket;
	/* What a line costs that comes from another core, LLC, socket. */
	uint64_t moved_ps[3];
	/*
	 * Addresses in the kernel: an array of what is added to the address of a percpu variable,
	 * and the percpu runqueues.
	 */
	uint64_t per_cpu_offset, runqueues;
	/* The file that the report goes to. */
	const char *out;
};

/* What others have counted so far; the report has the differences between its begin and its end. */
struct report_totals {
	/* The clock of the CPU that executes the mark. */
	uint64_t time;
	uint64_t insns, ended_sleeps, ahead_ps, settle_percent;
	uint64_t busy_ps[CACHES_MAX_LLCS];
};

/* Open the file; exits if that fails. */
void report_start(const struct report_config *config);
void report_begin(const struct report_totals *totals);
/* Write a line of JSON; nothing without a begin before. */
void report_end(const struct report_totals *totals);
/* An access and what it cost its CPU. */
void report_access(enum caches_found found, bool kernel, uint64_t cost);
/*
 * An instruction at pc has had a line moved: its virtual address, and the number of the line in
 * RAM.
 */
void report_transfer(enum caches_found found, uint64_t address, uint64_t line, uint64_t pc);
void report_wakeup(unsigned int cpu);
/* A CPU switches to a task, by the address of its task_struct. */
void report_switch(unsigned int cpu, uint64_t task);

#endif
