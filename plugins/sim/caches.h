/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A model of caches: what an access to memory costs, and where the line was.
 *
 * The model knows no clock and no QEMU. The caller says when an access begins, and gets its cost.
 * Times are in ps. A model shares nothing with another one; one model is for one thread.
 *
 * The caller may pass the times of different CPUs out of order, as far as its own clocks are apart
 * (see queue() and book() in caches.c). The times of one CPU do not go backwards.
 */
#ifndef SIM_CACHES_H
#define SIM_CACHES_H

#include <stdbool.h>
#include <stdint.h>

#define CACHES_MAX_CPUS 512
#define CACHES_MAX_L2S 256
#define CACHES_MAX_LLCS 32
#define CACHES_LINE_BITS 6

/* Where an access finds its line. */
enum caches_found {
	IN_L1,
	IN_L2,
	IN_L3,
	/* Another L2 of the LLC, another LLC of the socket, another socket. */
	FROM_CORE,
	FROM_LLC,
	FROM_SOCKET,
	/* Memory of the own socket, or of another one. */
	FROM_DRAM,
	FROM_FAR_DRAM,
	/*
	 * A write whose longest way is that to the caches that have to give up their copies: how
	 * far the farthest of them is.
	 */
	TAKEN_CORE,
	TAKEN_LLC,
	TAKEN_SOCKET,
	FOUND
};

/* True if the line went from one L2 or LLC to another, or a copy had to be given up. */
#define CACHES_MOVED(found) \
	((found) >= FROM_CORE && (found) != FROM_DRAM && (found) != FROM_FAR_DRAM)

enum caches_kind {
	CACHES_READ,
	/* A store: the CPU does not wait for all of it, see store_percent. */
	CACHES_WRITE,
	/* An atomic read-modify-write: the CPU waits until it is done. */
	CACHES_ATOMIC
};

struct caches_config {
	/* CPUs are numbered with the threads of a core next to each other, then cores, L2s, LLCs,
	 * sockets. */
	unsigned int cpus, threads, cores_per_l2, cores_per_llc, llcs_per_socket, nodes;
	/* Lines of RAM, divided evenly between the nodes in order of address. */
	uint64_t lines;
	uint64_t l1_kib, l1_ways, l2_kib, l2_ways, l3_kib, l3_ways;
	/*
	 * Latency from load to use, of IN_L2 to FROM_FAR_DRAM. What is TAKEN_ costs what the way
	 * from there costs.
	 */
	uint64_t found_ps[FOUND];
	/* The part of its latency for which a store holds up the CPU; the rest is in the store
	 * buffer. */
	uint64_t store_percent;
	/*
	 * A line passes the home socket, the one with its memory, unless it stays within an LLC. So
	 * a transfer between LLCs of one socket costs that of another socket if the home is there.
	 */
	bool through_home;
	/*
	 * L1 misses that a core may have outstanding where they do not depend on each other; 1:
	 * each access waits for the one before.
	 */
	unsigned int outstanding;
	/* Accesses that continue a sequence of lines are fetched ahead: they are independent. */
	bool prefetch;
	/*
	 * How long a core keeps a line after an atomic operation on it, whoever asks for it; 0: not at
	 * all. At most half of the way from another core: a request is under way for that long, so
	 * that the core that asks does not wait longer.
	 */
	uint64_t hold_ps;
	/*
	 * Bandwidth, in 10^6 bytes per s, into an LLC from outside, of a socket's memory, and into
	 * a socket from the others; 0: no limit.
	 */
	uint64_t link_mbs, memory_mbs, socket_mbs;
};

struct caches_access {
	unsigned int cpu;
	enum caches_kind kind;
	/* True if the caller knows that the address does not depend on an earlier load. */
	bool independent;
	/* Number of the line in RAM, and, for the prefetcher, of its virtual address. */
	uint64_t line, virtual_line;
	uint64_t time;
};

/*
 * A place in an L1: CACHES_TAG(line) in the upper bits of tag, and whether the core may write to
 * the line without asking.
 */
struct caches_way {
	uint32_t tag, used;
};

struct caches_result {
	enum caches_found found;
	/* What the CPU waits, from the time of the access on. */
	uint64_t cost;
	/* Where the L1 has the line now. */
	struct caches_way *way;
};

#define CACHES_WRITABLE 1u
#define CACHES_TAG(line) ((uint32_t)((line) + 1) << 1)

struct caches;

/* Give what is wrong with a configuration, in words, or NULL if it can be simulated. */
const char *caches_check(const struct caches_config *config);
/* Make a model with empty caches; NULL if there is no memory. caches_check() accepts the config. */
struct caches *caches_new(const struct caches_config *config);
void caches_free(struct caches *caches);
/* Let a CPU access a line. */
struct caches_result caches_access(struct caches *caches, const struct caches_access *access);

/*
 * Say that an atomic operation of a CPU, which caches_hit() was true for, is done with the line of a tag
 * at `time`. caches_access() knows by itself.
 */
void caches_hold(struct caches *caches, unsigned int cpu, uint32_t tag, uint64_t time);

/*
 * The ways of all L1s, in an array, and the clock by which it is known which was used least
 * recently.
 */
struct caches_l1s {
	struct caches_way *ways;
	uint32_t *tick;
};

/* Give the L1s of a model, which stay where they are. */
struct caches_l1s caches_l1s(struct caches *caches);

/*
 * Repeat an access without caches_access(): true if the way that it gave still has the line, with
 * the right to write to it if needed. The access then costs nothing. tag: CACHES_TAG() of the line.
 */
static inline bool caches_hit(struct caches_way *way, uint32_t tag, bool write, uint32_t *tick)
{
	if (way->tag != (tag | CACHES_WRITABLE) && (write || way->tag != tag))
		return false;
	way->used = ++*tick;
	return true;
}

#endif
