/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order in which CPUs with clocks of their own run on one thread.
 *
 * The CPU that is the farthest behind runs, until it is too far ahead of another one. How far is
 * too far depends on how long a line takes from one to the other: what a CPU does, another one
 * cannot notice earlier. So no number of a CPU is favoured; which of several CPUs with the same
 * clock is first is up to the caller's random number.
 *
 * It is used by clock.c and by the test of the model.
 */
#ifndef SIM_ORDER_H
#define SIM_ORDER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* The clock of a CPU that does not want to run. */
#define ORDER_NEVER (~0ULL)

/* As many CPUs as there may be; and so many have a lowest clock that is kept. */
#define ORDER_CPUS 512
#define ORDER_BLOCK 16

/* The clocks of CPUs, in ps, which order_set() sets; and the lowest of each block of them. */
struct order_clocks {
	uint64_t of[ORDER_CPUS], lowest[ORDER_CPUS / ORDER_BLOCK];
};

struct order {
	/* CPUs are numbered from 0 on, those of an LLC and of a socket next to each other. */
	int cpus, cpus_per_llc, cpus_per_socket;
	/* How many ps a CPU may be ahead of one of its LLC, of its socket, of another socket; each
	 * not less than the one before. */
	uint64_t ahead[3];
};

/* Give the lowest clock of CPUs from `begin` on, before `end`. */
static inline uint64_t order_lowest(const struct order_clocks *clocks, int begin, int end)
{
	uint64_t lowest = ORDER_NEVER, one;
	int i = begin;

	while (i < end) {
		bool whole = !(i % ORDER_BLOCK) && i + ORDER_BLOCK <= end;

		one = whole ? clocks->lowest[i / ORDER_BLOCK] : clocks->of[i];
		lowest = one < lowest ? one : lowest;
		i += whole ? ORDER_BLOCK : 1;
	}
	return lowest;
}

static inline void order_set(struct order_clocks *clocks, int cpu, uint64_t clock)
{
	uint64_t *lowest = &clocks->lowest[cpu / ORDER_BLOCK], old = clocks->of[cpu];
	int first = cpu - cpu % ORDER_BLOCK, i;

	clocks->of[cpu] = clock;
	if (clock <= *lowest) {
		*lowest = clock;
	} else if (old == *lowest) {
		*lowest = ORDER_NEVER;
		for (i = first; i < first + ORDER_BLOCK; i++)
			*lowest = clocks->of[i] < *lowest ? clocks->of[i] : *lowest;
	}
}

/* Have no CPU want to run. */
static inline void order_clear(struct order_clocks *clocks)
{
	memset(clocks, 0xff, sizeof(*clocks));
}

/* Give the first CPU with this clock, from `begin` on and before `end`, or -1. */
static inline int order_find(const struct order_clocks *clocks, uint64_t clock, int begin, int end)
{
	int i = begin;

	while (i < end) {
		if (!(i % ORDER_BLOCK) && clocks->lowest[i / ORDER_BLOCK] != clock) {
			i += ORDER_BLOCK;
			continue;
		}
		if (clocks->of[i] == clock)
			return i;
		i++;
	}
	return -1;
}

/*
 * Choose the CPU that runs next; -1 if none wants to. first: a random number below that of CPUs. It is
 * asked all the time, hence the blocks.
 */
static inline int order_choose(const struct order *order, const struct order_clocks *clocks, int first)
{
	uint64_t lowest = order_lowest(clocks, 0, order->cpus);
	int chosen;

	if (lowest == ORDER_NEVER)
		return -1;
	chosen = order_find(clocks, lowest, first, order->cpus);
	return chosen < 0 ? order_find(clocks, lowest, 0, first) : chosen;
}

/*
 * Give the time until which a CPU may run, its own clock apart; ORDER_NEVER if no other CPU wants
 * to. The clock of the CPU itself has to be ORDER_NEVER meanwhile.
 */
static inline uint64_t order_limit(const struct order *order, const struct order_clocks *clocks, int cpu)
{
	int llc = cpu - cpu % order->cpus_per_llc, llc_end = llc + order->cpus_per_llc;
	int socket = cpu - cpu % order->cpus_per_socket;
	int socket_end = socket + order->cpus_per_socket;
	uint64_t lowest[3], limit = ORDER_NEVER, other;
	int i;

	lowest[0] = order_lowest(clocks, llc, llc_end);
	lowest[1] = order_lowest(clocks, socket, llc);
	other = order_lowest(clocks, llc_end, socket_end);
	lowest[1] = other < lowest[1] ? other : lowest[1];
	lowest[2] = order_lowest(clocks, 0, socket);
	other = order_lowest(clocks, socket_end, order->cpus);
	lowest[2] = other < lowest[2] ? other : lowest[2];
	for (i = 0; i < 3; i++)
		if (lowest[i] != ORDER_NEVER && lowest[i] + order->ahead[i] < limit)
			limit = lowest[i] + order->ahead[i];
	return limit;
}

#endif
