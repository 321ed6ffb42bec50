// SPDX-License-Identifier: GPL-2.0-only
/*
 * Caches and who has which line. Each core has an L1, which its threads share; one or several
 * cores share an L2, and the cores of an LLC an L3, which gets what leaves their L2s. A directory
 * knows for each line of RAM who has copies.
 *
 * A line is owned by the L2 that may write to it without asking; whoever wrote it last keeps it
 * dirty and gives it to those who read it (MOESI). What nobody has dirty or alone comes from
 * memory, also if another LLC has a copy. A line goes from one to another once at a time: who asks
 * for one that is on its way waits until it has arrived.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim.h"

/* Where PCI has its hole below 4 GiB on q35, and RAM goes on above. */
#define LOW_MOST (0xb0000000ULL)
#define LOW_ELSE (0x80000000ULL)
#define HIGH (1ULL << 32)
/* Several sockets in one node have memory interleaved by so many lines. */
#define INTERLEAVED 4

struct line {
	/* Until when it is on its way to who took it last. */
	uint64_t arrives;
	/* A bit for each L2 and LLC with a copy. */
	uint64_t l2s[MAX_L2S / 64];
	uint32_t llcs;
	/* One more than the L2 that owns it and the LLC that has to write it back; 0: none. */
	uint16_t owner;
	uint8_t dirty;
};

/* Sets of tags, each one more than a line, 0 if there is none; the one used last in front. */
struct cache {
	uint32_t *tags;
	uint64_t sets, ways;
};

static struct line *lines;
static uint64_t nlines, low;
static struct cache l1[MAX_CPUS], l2[MAX_L2S], l3[MAX_LLCS];
static int l2s_per_llc, nl2s, nllcs, nsockets;

static void *zeroed(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		fail("no memory for caches of %zu bytes", size);
	return memory;
}

static void make(struct cache *cache, uint64_t kib, uint64_t ways)
{
	cache->ways = ways;
	cache->sets = (kib << 10 >> LINE_BITS) / ways;
	cache->tags = zeroed(cache->sets * ways * sizeof(*cache->tags));
}

/*
 * Put a tag in front of its set, from `place` if it is there; else the last one has to go: give
 * it.
 */
static uint32_t to_front(uint32_t *tags, uint64_t place, uint32_t tag)
{
	uint32_t gone = tags[place];

	memmove(tags + 1, tags, place * sizeof(*tags));
	tags[0] = tag;
	return gone;
}

static uint32_t *set_of(const struct cache *cache, uint64_t line)
{
	return cache->tags + line % cache->sets * cache->ways;
}

static bool has(const struct cache *cache, uint64_t line)
{
	uint32_t *tags = set_of(cache, line);
	uint64_t i;

	for (i = 0; i < cache->ways; i++) {
		if (tags[i] == line + 1) {
			if (i)
				to_front(tags, i, line + 1);
			return true;
		}
	}
	return false;
}

/* Give one more than the line that had to go, 0 if none. */
static uint32_t put(const struct cache *cache, uint64_t line)
{
	return has(cache, line) ? 0 : to_front(set_of(cache, line), cache->ways - 1, line + 1);
}

static void drop(const struct cache *cache, uint64_t line)
{
	uint32_t *tags = set_of(cache, line);
	uint64_t i;

	for (i = 0; i < cache->ways; i++)
		if (tags[i] == line + 1)
			tags[i] = 0;
}

static bool in_l2(const struct line *line, int number)
{
	return line->l2s[number / 64] >> number % 64 & 1;
}

/* Whether an L2 of this LLC, other than `except`, has a copy. */
static bool in_l2_of(const struct line *line, int llc, int except)
{
	int i;

	for (i = llc * l2s_per_llc; i < (llc + 1) * l2s_per_llc; i++)
		if (i != except && in_l2(line, i))
			return true;
	return false;
}

static int socket_of(int llc)
{
	return llc / set.llcs_per_socket;
}

static bool in_other_l2(const struct line *line, int me)
{
	int i;

	for (i = 0; i < MAX_L2S / 64; i++)
		if (line->l2s[i] & ~(i == me / 64 ? 1ULL << me % 64 : 0))
			return true;
	return false;
}

static void leave_l2(int number, uint64_t gone)
{
	struct line *line = &lines[gone];
	int llc = number / l2s_per_llc;
	uint32_t victim;

	line->l2s[number / 64] &= ~(1ULL << number % 64);
	if (line->owner == number + 1)
		line->owner = 0;
	victim = put(&l3[llc], gone);
	if (!victim)
		return;
	line = &lines[victim - 1];
	if (!in_l2_of(line, llc, -1)) {
		line->llcs &= ~(1U << llc);
		if (line->dirty == llc + 1)
			line->dirty = 0;
	}
}

/* How far those are who have to give up their copies for this CPU to write. */
static enum found farthest(const struct line *line, const struct cpu *cpu)
{
	enum found found = in_l2_of(line, cpu->llc, cpu->l2) ? TAKEN_CORE : IN_L2;
	int llc;

	for (llc = 0; llc < nllcs; llc++) {
		if (llc == cpu->llc || !(line->llcs >> llc & 1))
			continue;
		if (socket_of(llc) != cpu->socket)
			return TAKEN_SOCKET;
		found = TAKEN_LLC;
	}
	return found;
}

static enum found from_llc(int llc, const struct cpu *cpu)
{
	if (llc == cpu->llc)
		return FROM_CORE;
	return socket_of(llc) == cpu->socket ? FROM_LLC : FROM_SOCKET;
}

static enum found from_memory(uint64_t number, const struct cpu *cpu)
{
	uint64_t node = number / (nlines / set.nodes);
	int home = set.nodes == 1 ? number / INTERLEAVED % nsockets : node * nsockets / set.nodes;

	return home == cpu->socket ? FROM_DRAM : FROM_FAR_DRAM;
}

/* Where a line comes from that this CPU's L2 does not have. */
static enum found source(const struct line *line, uint64_t number, const struct cpu *cpu)
{
	if (line->owner)
		return from_llc((line->owner - 1) / l2s_per_llc, cpu);
	if (line->llcs >> cpu->llc & 1)
		return has(&l3[cpu->llc], number) ? IN_L3 : FROM_CORE;
	if (line->dirty)
		return from_llc(line->dirty - 1, cpu);
	return from_memory(number, cpu);
}

/* Let a CPU have a line, by its number, and say where it was. */
static enum found take(const struct cpu *cpu, uint64_t number, bool write)
{
	struct line *line = &lines[number];
	bool near = has(&l1[cpu->core], number);
	enum found found;
	uint32_t gone;
	int i;

	if (!near)
		put(&l1[cpu->core], number);
	if (in_l2(line, cpu->l2)) {
		has(&l2[cpu->l2], number);
		found = near ? IN_L1 : IN_L2;
		if (write && line->owner != cpu->l2 + 1) {
			enum found far = farthest(line, cpu);

			if (far > found)
				found = far;
		}
	} else {
		found = source(line, number, cpu);
		gone = put(&l2[cpu->l2], number);
		if (gone)
			leave_l2(cpu->l2, gone - 1);
		line->owner = 0;
		line->l2s[cpu->l2 / 64] |= 1ULL << cpu->l2 % 64;
		line->llcs |= 1U << cpu->llc;
		if (!in_other_l2(line, cpu->l2) && line->llcs == 1U << cpu->llc)
			line->owner = cpu->l2 + 1;
	}
	if (!write)
		return found;
	if (line->owner != cpu->l2 + 1 || line->dirty != cpu->llc + 1) {
		memset(line->l2s, 0, sizeof(line->l2s));
		line->l2s[cpu->l2 / 64] = 1ULL << cpu->l2 % 64;
		line->llcs = 1U << cpu->llc;
		line->owner = cpu->l2 + 1;
		line->dirty = cpu->llc + 1;
	}
	for (i = 0; set.cores_per_l2 > 1 && i < (int)set.cores_per_l2; i++) {
		int core = cpu->l2 * set.cores_per_l2 + i;

		if (core != cpu->core)
			drop(&l1[core], number);
	}
	return found;
}

enum found caches_access(const struct cpu *cpu, uint64_t number, bool write, uint64_t *cost)
{
	struct line *line = &lines[number];
	/* Clocks differ by a round; whoever is ahead by more than that does not count. */
	uint64_t most = clock_round() + set.found_ps[FROM_SOCKET], time;
	enum found found = take(cpu, number, write);

	*cost = set.found_ps[found];
	if (found <= IN_L2)
		return found;
	time = clock_of(cpu);
	if (line->arrives > time && line->arrives - time < most)
		*cost += line->arrives - time;
	if (MOVED(found))
		line->arrives = time + *cost;
	return found;
}

/* Whether the CPU's L2 may write to the line, and has. */
bool caches_owns(const struct cpu *cpu, uint64_t number)
{
	return lines[number].owner == cpu->l2 + 1 && lines[number].dirty == cpu->llc + 1;
}

int64_t caches_line(uint64_t address)
{
	if (address >= HIGH)
		address -= HIGH - low;
	else if (address >= low)
		return -1;
	address >>= LINE_BITS;
	return address < nlines ? (int64_t)address : -1;
}

void caches_start(void)
{
	uint64_t ram = set.ram_mib << 20, whole;
	int ncores = ncpus / set.threads, i;

	nlines = ram >> LINE_BITS;
	low = ram < LOW_MOST ? ram : LOW_ELSE;
	lines = zeroed(nlines * sizeof(*lines));
	l2s_per_llc = set.cores_per_llc / set.cores_per_l2;
	nl2s = ncores / set.cores_per_l2;
	nllcs = ncores / set.cores_per_llc;
	nsockets = nllcs / set.llcs_per_socket;
	whole = nsockets * set.llcs_per_socket * set.cores_per_llc * set.threads;
	if (nl2s > MAX_L2S || nllcs > MAX_LLCS || whole != (uint64_t)ncpus ||
	    (set.nodes > 1 && set.nodes % nsockets))
		fail("%d CPUs with %d L2s and %d LLCs in %d nodes: too many, or not whole", ncpus,
		     nl2s, nllcs, (int)set.nodes);
	for (i = 0; i < ncores; i++)
		make(&l1[i], set.l1_kib, set.l1_ways);
	for (i = 0; i < nl2s; i++)
		make(&l2[i], set.l2_kib, set.l2_ways);
	for (i = 0; i < nllcs; i++)
		make(&l3[i], set.l3_kib, set.l3_ways);
	for (i = 0; i < ncpus; i++) {
		cpus[i].core = i / set.threads;
		cpus[i].l2 = cpus[i].core / set.cores_per_l2;
		cpus[i].llc = cpus[i].core / set.cores_per_llc;
		cpus[i].socket = cpus[i].llc / set.llcs_per_socket;
	}
}
