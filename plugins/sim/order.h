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

#include <stdint.h>

/* The clock of a CPU that does not want to run. */
#define ORDER_NEVER (~0ULL)

struct order {
	/* CPUs are numbered from 0 on, those of an LLC and of a socket next to each other. */
	int cpus, cpus_per_llc, cpus_per_socket;
	/* How many ps a CPU may be ahead of one of its LLC, of its socket, of another socket; each
	 * not less than the one before. */
	uint64_t ahead[3];
};

/*
 * Choose the CPU that runs next, by their clocks in ps; -1 if none wants to. first: a random number
 * below that of CPUs.
 */
static inline int order_choose(const struct order *order, const uint64_t *clocks, int first)
{
	uint64_t lowest = ORDER_NEVER;
	int chosen = -1, i;

	for (i = first; i < order->cpus; i++) {
		if (clocks[i] < lowest) {
			lowest = clocks[i];
			chosen = i;
		}
	}
	for (i = 0; i < first; i++) {
		if (clocks[i] < lowest) {
			lowest = clocks[i];
			chosen = i;
		}
	}
	return chosen;
}

static inline uint64_t order_lowest(const uint64_t *clocks, int begin, int end)
{
	uint64_t lowest = ORDER_NEVER;
	int i;

	for (i = begin; i < end; i++)
		lowest = clocks[i] < lowest ? clocks[i] : lowest;
	return lowest;
}

/*
 * Give the time until which a CPU may run, its own clock apart; ORDER_NEVER if no other CPU wants
 * to. The clock of the CPU itself has to be ORDER_NEVER meanwhile.
 */
static inline uint64_t order_limit(const struct order *order, const uint64_t *clocks, int cpu)
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
