// SPDX-License-Identifier: GPL-2.0-only
/*
 * Caches and the directory that says which of them have a line.
 *
 * Each core has an L1, which its threads share. One or several cores share an L2, which has
 * everything that their L1s have. The cores of an LLC share an L3. It is a victim cache, as that of
 * Zen and that of Intel's servers since Skylake: it gets what leaves the L2s, and a line that an L2
 * takes from it leaves it, unless another L2 of the LLC has a copy.
 *
 * An L2 owns a line if it is the only one with a copy. An owner writes without asking. The LLC
 * whose core wrote a line last has to write it back, and gives it to caches that read it (MOESI). A
 * line that is neither owned nor dirty comes from memory, even if another LLC has a copy.
 *
 * A line goes from one cache to another once at a time: requests for a line that is on its way form
 * a queue. Requests take effect in the order of the calls. But a core keeps a line for a while after an
 * atomic operation: until then its accesses hit, also if another core has asked for the line meanwhile.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "caches.h"

#define MAX_SOCKETS CACHES_MAX_LLCS
#define WORDS (CACHES_MAX_L2S / 64)
/* Memory of a node that several sockets share is interleaved between them by so many lines. */
#define INTERLEAVED 4
/* Lines of a page of 4 KiB. */
#define PAGE_LINES 64
/*
 * Pages whose sequences the prefetcher of a core follows: 32, one for each page, in Intel's
 * streamer (Intel 64 and IA-32 Architectures Optimization Reference Manual). AMD gives no number.
 */
#define STREAMS 32
/* So many steps to the next line make a sequence: with one, any two fields of a structure would. */
#define TRAINED 2
/*
 * Bandwidth is accounted in intervals of 2^20 ps, about 1 us, which is longer than the queue of the
 * largest configuration: 96 cores with 69 outstanding lines each wait for 1.1 us at 375 GB/s. The
 * record reaches 64 of them back.
 */
#define BIN_BITS 20
#define BINS 64


/* An entry of the directory. */
struct line {
	/* A bit for each L2 with a copy. */
	uint64_t l2s[WORDS];
	/* When the last transfer ends, and that of the busy period before; and how long the periods
	 * are. See queue(). */
	uint64_t end[2];
	uint32_t length[2];
	/* A bit for each LLC with a copy, in its L2s or its L3. */
	uint32_t llcs;
	/* One more than the L2 that owns it and the LLC that has to write it back; 0: none. */
	uint16_t owner;
	uint8_t dirty;
} __attribute__((aligned(64)));

/*
 * Sets of tags, each one more than a line; the one used last in front, 0 for what is free at the
 * end.
 */
struct tags {
	uint32_t *tags;
	uint64_t sets, ways;
};

/* A bandwidth: what it has carried in each interval. */
struct link {
	/* Lines in an interval, and ps for each; 0: no limit. */
	uint64_t lines, ps;
	struct bin {
		uint64_t number, used;
	} bins[BINS];
};

struct core {
	/* When each of the outstanding misses is done, in turn. */
	uint64_t *done;
	unsigned int next;
	/* The tag of the line that it did its last atomic operation on, and until when it keeps it. */
	uint32_t held;
	uint64_t held_until;
	/* By page: the last line of a sequence, and how many there were in a row. */
	struct stream {
		uint64_t last;
		unsigned int length;
	} streams[STREAMS];
};

struct place {
	unsigned int core, l2, llc, socket;
};

struct caches {
	struct caches_config config;
	struct place places[CACHES_MAX_CPUS];
	struct line *lines;
	/* The L1s of all cores, one after the other. */
	struct caches_way *ways;
	uint64_t l1_sets;
	struct tags l2[CACHES_MAX_L2S], l3[CACHES_MAX_LLCS];
	struct core cores[CACHES_MAX_CPUS];
	struct link links[CACHES_MAX_LLCS], memories[CACHES_MAX_LLCS], sockets[MAX_SOCKETS];
	unsigned int ncores, nl2s, nllcs, nsockets, nmemories;
	unsigned int l2s_per_llc, cores_per_l2;
	uint32_t tick;
};

/* ---- tags of L2 and L3 ---- */

static uint32_t *set_of(const struct tags *cache, uint64_t line)
{
	return cache->tags + line % cache->sets * cache->ways;
}

/* Give the way of a line in its set, or the number of ways. */
static uint64_t find(const struct tags *cache, const uint32_t *set, uint64_t line)
{
	uint64_t way;

	for (way = 0; way < cache->ways && set[way] != line + 1; way++)
		;
	return way;
}

/* Put a tag in front of its set, in place of what is at `way`. */
static void to_front(uint32_t *set, uint64_t way, uint32_t tag)
{
	memmove(set + 1, set, way * sizeof(*set));
	set[0] = tag;
}

static bool touch(const struct tags *cache, uint64_t line)
{
	uint32_t *set = set_of(cache, line);
	uint64_t way = find(cache, set, line);

	if (way == cache->ways)
		return false;
	to_front(set, way, line + 1);
	return true;
}

/* Give one more than the line that had to go, 0 if none had to. */
static uint32_t put(const struct tags *cache, uint64_t line)
{
	uint32_t *set = set_of(cache, line), victim;

	if (touch(cache, line))
		return 0;
	/* Free ways are at the end. */
	victim = set[cache->ways - 1];
	to_front(set, cache->ways - 1, line + 1);
	return victim;
}

static void drop(const struct tags *cache, uint64_t line)
{
	uint32_t *set = set_of(cache, line);
	uint64_t way = find(cache, set, line);

	if (way == cache->ways)
		return;
	memmove(set + way, set + way + 1, (cache->ways - way - 1) * sizeof(*set));
	set[cache->ways - 1] = 0;
}

/* ---- L1 ---- */

static struct caches_way *l1_set(const struct caches *caches, unsigned int core, uint64_t line)
{
	return caches->ways + (core * caches->l1_sets + line % caches->l1_sets) *
			      caches->config.l1_ways;
}

/* Give the way of an L1 with a line, or NULL. */
static struct caches_way *l1_find(const struct caches *caches, unsigned int core, uint64_t line)
{
	struct caches_way *set = l1_set(caches, core, line);
	uint64_t i;

	for (i = 0; i < caches->config.l1_ways; i++)
		if ((set[i].tag & ~CACHES_WRITABLE) == CACHES_TAG(line))
			return &set[i];
	return NULL;
}

/* Fill a way of an L1: a free one, or that of the line used least recently. */
static struct caches_way *l1_put(struct caches *caches, unsigned int core, uint64_t line)
{
	struct caches_way *set = l1_set(caches, core, line), *victim = set;
	uint64_t i;

	for (i = 0; i < caches->config.l1_ways; i++) {
		if (!set[i].tag) {
			victim = &set[i];
			break;
		}
		/* The difference is right also when the tick wraps around. */
		if ((int32_t)(set[i].used - victim->used) < 0)
			victim = &set[i];
	}
	victim->tag = CACHES_TAG(line);
	return victim;
}

static void l1_drop(struct caches *caches, unsigned int l2, unsigned int except, uint64_t line)
{
	unsigned int core = l2 * caches->cores_per_l2, end = core + caches->cores_per_l2;

	for (; core < end; core++) {
		struct caches_way *way = core == except ? NULL : l1_find(caches, core, line);

		if (way)
			way->tag = 0;
	}
}

/* Let the L1s above an L2, other than that of core `except`, ask before they write to a line. */
static void l1_protect(struct caches *caches, unsigned int l2, unsigned int except, uint64_t line)
{
	unsigned int core = l2 * caches->cores_per_l2, end = core + caches->cores_per_l2;

	for (; core < end; core++) {
		struct caches_way *way = core == except ? NULL : l1_find(caches, core, line);

		if (way)
			way->tag &= ~CACHES_WRITABLE;
	}
}

/* ---- the directory ---- */

static bool in_l2(const struct line *line, unsigned int number)
{
	return line->l2s[number / 64] >> number % 64 & 1;
}

/* Whether an L2 of an LLC, other than `except`, has a copy. */
static bool in_l2_of(const struct caches *caches, const struct line *line, unsigned int llc,
		     unsigned int except)
{
	unsigned int i = llc * caches->l2s_per_llc, end = i + caches->l2s_per_llc;

	for (; i < end; i++)
		if (i != except && in_l2(line, i))
			return true;
	return false;
}

static unsigned int socket_of(const struct caches *caches, unsigned int llc)
{
	return llc / caches->config.llcs_per_socket;
}

/* The memory, a node's or a socket's, in which a line is, and that memory's socket. */
static unsigned int memory_of(const struct caches *caches, uint64_t number)
{
	if (caches->config.nodes == 1)
		return number / INTERLEAVED % caches->nsockets;
	return number / (caches->config.lines / caches->config.nodes);
}

static unsigned int home_of(const struct caches *caches, uint64_t number)
{
	return memory_of(caches, number) * caches->nsockets / caches->nmemories;
}

/* ---- bandwidth ---- */

static void set_up_link(struct link *link, uint64_t mbs)
{
	if (!mbs)
		return;
	link->lines = (mbs << BIN_BITS) / 64000000;
	link->ps = 64000000 / mbs;
}

/*
 * Let a link carry a line; give how long that has to wait. Each interval carries what it can, in
 * any order in which the accesses of it come; one that finds its interval full is carried in a
 * later one.
 */
static uint64_t book(struct link *link, uint64_t time)
{
	uint64_t number = time >> BIN_BITS, begin;
	struct bin *bin;

	if (!link->lines)
		return 0;
	for (;; number++) {
		bin = &link->bins[number % BINS];
		/* An access that is further ahead than the record is long took the place. */
		if (bin->number > number)
			return 0;
		if (bin->number < number)
			*bin = (struct bin){ number, 0 };
		if (bin->used < link->lines)
			break;
	}
	begin = (number << BIN_BITS) + bin->used++ * link->ps;
	return begin > time ? begin - time : 0;
}

/* A line goes to its memory, without a CPU that waits for it. */
static void write_back(struct caches *caches, uint64_t number, unsigned int llc, uint64_t time)
{
	unsigned int home = home_of(caches, number);

	book(&caches->memories[memory_of(caches, number)], time);
	if (home != socket_of(caches, llc))
		book(&caches->sockets[home], time);
}

/* Let the links carry a line to a CPU; give the longest of the waits. from: the socket it is in. */
static uint64_t carry(struct caches *caches, enum caches_found found, uint64_t number,
		      const struct place *to, unsigned int from, uint64_t time)
{
	uint64_t wait, longest = 0;

	if (found <= FROM_CORE || found >= TAKEN_CORE)
		return 0;
	longest = book(&caches->links[to->llc], time);
	if (found == FROM_DRAM || found == FROM_FAR_DRAM) {
		wait = book(&caches->memories[memory_of(caches, number)], time);
		longest = wait > longest ? wait : longest;
	}
	if (from != to->socket) {
		wait = book(&caches->sockets[to->socket], time);
		longest = wait > longest ? wait : longest;
	}
	return longest;
}

/* ---- which cache has a line, and gets it ---- */

static void leave_l2(struct caches *caches, unsigned int number, uint64_t gone, uint64_t time)
{
	struct line *line = &caches->lines[gone];
	unsigned int llc = number / caches->l2s_per_llc;
	uint32_t victim;

	l1_drop(caches, number, -1, gone);
	line->l2s[number / 64] &= ~(1ULL << number % 64);
	if (line->owner == number + 1)
		line->owner = 0;
	victim = put(&caches->l3[llc], gone);
	if (!victim)
		return;
	line = &caches->lines[victim - 1];
	if (in_l2_of(caches, line, llc, -1))
		return;
	line->llcs &= ~(1U << llc);
	if (line->dirty == llc + 1) {
		line->dirty = 0;
		write_back(caches, victim - 1, llc, time);
	}
}

/* How far the way to another LLC is, by way of the line's home where that is how it goes. */
static enum caches_found from_llc(const struct caches *caches, unsigned int llc, uint64_t number,
				  const struct place *place)
{
	if (llc == place->llc)
		return FROM_CORE;
	if (socket_of(caches, llc) != place->socket)
		return FROM_SOCKET;
	if (caches->config.through_home && home_of(caches, number) != place->socket)
		return FROM_SOCKET;
	return FROM_LLC;
}

/*
 * How far the farthest cache is that has to give up its copy for a CPU to write; IN_L1 if none has.
 */
static enum caches_found farthest(const struct caches *caches, const struct line *line,
				  uint64_t number, const struct place *place)
{
	uint32_t others = line->llcs & ~(1U << place->llc);
	enum caches_found found = IN_L1;

	if (in_l2_of(caches, line, place->llc, place->l2))
		found = TAKEN_CORE;

	for (; others; others &= others - 1) {
		enum caches_found far = from_llc(caches, __builtin_ctz(others), number, place) -
					FROM_CORE + TAKEN_CORE;

		if (far > found)
			found = far;
	}
	return found;
}

/* Where a line comes from that the L2 of a CPU does not have; *from: the socket. */
static enum caches_found source(const struct caches *caches, const struct line *line,
				uint64_t number, const struct place *place, unsigned int *from)
{
	unsigned int llc;

	*from = place->socket;
	if (line->owner) {
		llc = (line->owner - 1) / caches->l2s_per_llc;
	} else if (line->llcs >> place->llc & 1) {
		return touch(&caches->l3[place->llc], number) ? IN_L3 : FROM_CORE;
	} else if (line->dirty) {
		llc = line->dirty - 1;
	} else {
		*from = home_of(caches, number);
		return *from == place->socket ? FROM_DRAM : FROM_FAR_DRAM;
	}
	*from = socket_of(caches, llc);
	return from_llc(caches, llc, number, place);
}

/* Fill the L2 of a CPU with a line. */
static void fill(struct caches *caches, struct line *line, uint64_t number,
		 const struct place *place, uint64_t time)
{
	unsigned int i;
	uint32_t gone;
	bool shared;

	if (!in_l2_of(caches, line, place->llc, place->l2))
		drop(&caches->l3[place->llc], number);
	gone = put(&caches->l2[place->l2], number);
	if (gone)
		leave_l2(caches, place->l2, gone - 1, time);
	if (line->owner)
		l1_protect(caches, line->owner - 1, -1, number);
	line->owner = 0;
	shared = line->llcs & ~(1U << place->llc);
	for (i = 0; i < WORDS && !shared; i++)
		shared = line->l2s[i];
	line->l2s[place->l2 / 64] |= 1ULL << place->l2 % 64;
	line->llcs |= 1U << place->llc;
	if (!shared)
		line->owner = place->l2 + 1;
}

/* All caches but those of a core give up their copies of a line, and the core's L2 owns it. */
static void own(struct caches *caches, struct line *line, uint64_t number,
		const struct place *place)
{
	uint32_t llcs = line->llcs;
	unsigned int i;

	for (i = 0; i < WORDS; i++) {
		uint64_t others = line->l2s[i];

		for (; others; others &= others - 1) {
			unsigned int l2 = i * 64 + __builtin_ctzll(others);

			if (l2 == place->l2)
				continue;
			drop(&caches->l2[l2], number);
			l1_drop(caches, l2, -1, number);
		}
		line->l2s[i] = 0;
	}
	for (; llcs; llcs &= llcs - 1)
		drop(&caches->l3[__builtin_ctz(llcs)], number);
	line->l2s[place->l2 / 64] = 1ULL << place->l2 % 64;
	line->llcs = 1U << place->llc;
	line->owner = place->l2 + 1;
	line->dirty = place->llc + 1;
}

/* ---- time ---- */

static uint64_t length_of(uint64_t begin, uint64_t end)
{
	return end - begin < UINT32_MAX ? end - begin : UINT32_MAX;
}

/*
 * Queue up for a line: give when the transfer of a request that comes at `time` begins. It takes
 * `duration`.
 *
 * In a busy period one transfer follows the other, so a request in it waits for the end of the
 * period and makes it longer. With N CPUs that write to one line all the time, the period does not
 * end, and there is one write for each `duration`, however many CPUs there are.
 *
 * Clocks of CPUs are apart by what one block of code waits for, so a request may come for a time
 * before the last period. It waits for the period before that, if it is in it, but not for requests
 * that are later than itself. There is no limit to the wait, so nothing depends on how far the
 * clocks are apart.
 */
static uint64_t queue(struct line *line, uint64_t time, uint64_t duration)
{
	uint64_t begin[2] = { line->end[0] - line->length[0], line->end[1] - line->length[1] };
	int which = time < begin[0];
	uint64_t from;

	if (time >= line->end[0]) {
		line->end[1] = line->end[0];
		line->length[1] = line->length[0];
		begin[0] = from = time;
	} else if (which && time >= line->end[1]) {
		begin[1] = from = time;
	} else if (which && time < begin[1]) {
		return time;
	} else {
		from = line->end[which];
	}
	line->end[which] = from + duration;
	line->length[which] = length_of(begin[which], line->end[which]);
	if (which && line->end[1] > begin[0]) {
		line->end[0] += line->end[1] - begin[0];
		line->length[0] = length_of(begin[1], line->end[0]);
		line->end[1] = line->length[1] = 0;
	}
	return from;
}

/* Whether a line continues a sequence, of the same page or from the page before. */
static bool streams(struct core *core, uint64_t line)
{
	struct stream *stream = &core->streams[line / PAGE_LINES % STREAMS];
	struct stream *before = &core->streams[(line / PAGE_LINES - 1) % STREAMS];

	if (line % PAGE_LINES == 0 && before->last + 1 == line)
		*stream = *before;
	if (stream->last + 1 == line)
		stream->length++;
	else if (stream->last != line)
		stream->length = 0;
	stream->last = line;
	return stream->length >= TRAINED;
}

/* What a CPU waits for what it found, if it is not in its L1. */
static uint64_t wait_for(struct caches *caches, const struct caches_access *access,
			 const struct place *place, struct line *line, enum caches_found found,
			 unsigned int from)
{
	const struct caches_config *config = &caches->config;
	struct core *core = &caches->cores[place->core];
	uint64_t duration = config->found_ps[found], begin = access->time, issued, done;
	bool independent = access->independent;

	if (config->prefetch && streams(core, access->virtual_line))
		independent = true;
	if (access->kind == CACHES_ATOMIC || config->outstanding == 1)
		independent = false;
	if (independent && core->done[core->next] > begin)
		begin = core->done[core->next];
	issued = begin;
	if (found > IN_L2) {
		begin += carry(caches, found, access->line, place, from, begin);
		begin = queue(line, begin, duration);
	}
	done = begin + duration;
	if (independent) {
		core->done[core->next] = done;
		core->next = (core->next + 1) % config->outstanding;
		return issued - access->time;
	}
	done -= access->time;
	return access->kind == CACHES_WRITE ? done * config->store_percent / 100 : done;
}

void caches_hold(struct caches *caches, unsigned int cpu, uint32_t tag, uint64_t time)
{
	struct core *core = &caches->cores[caches->places[cpu].core];

	core->held = tag;
	core->held_until = time + caches->config.hold_ps;
}

/* Whether a core has a line because of an atomic operation, though another one has asked for it. */
static bool holds(const struct caches *caches, const struct place *place, uint64_t number, uint64_t time)
{
	const struct core *core = &caches->cores[place->core];

	return core->held == CACHES_TAG(number) && time < core->held_until;
}

struct caches_result caches_access(struct caches *caches, const struct caches_access *access)
{
	const struct place *place = &caches->places[access->cpu];
	uint64_t number = access->line;
	struct line *line = &caches->lines[number];
	struct caches_way *way = l1_find(caches, place->core, number);
	struct caches_result result = { IN_L1, 0, way };
	bool write = access->kind != CACHES_READ, mine;
	unsigned int from = place->socket;

	if (way)
		way->used = ++caches->tick;
	if (way && (!write || way->tag & CACHES_WRITABLE)) {
		if (access->kind == CACHES_ATOMIC)
			caches_hold(caches, access->cpu, CACHES_TAG(number), access->time);
		return result;
	}
	if (holds(caches, place, number, access->time)) {
		/* A way without the line: the next access asks again. */
		if (!way)
			result.way = l1_set(caches, place->core, number);
		return result;
	}
	if (in_l2(line, place->l2)) {
		if (!way) {
			touch(&caches->l2[place->l2], number);
			result.found = IN_L2;
		}
	} else {
		result.found = source(caches, line, number, place, &from);
	}
	if (write && line->owner != place->l2 + 1) {
		enum caches_found far = farthest(caches, line, number, place);

		if (caches->config.found_ps[far] > caches->config.found_ps[result.found])
			result.found = far;
	}
	if (result.found != IN_L1)
		result.cost = wait_for(caches, access, place, line, result.found, from);
	if (!in_l2(line, place->l2))
		fill(caches, line, number, place, access->time);
	if (!way)
		result.way = way = l1_put(caches, place->core, number);
	way->used = ++caches->tick;
	mine = line->owner == place->l2 + 1 && line->dirty == place->llc + 1;
	if (write && !mine)
		own(caches, line, number, place);
	if (caches->cores_per_l2 > 1) {
		if (write)
			l1_drop(caches, place->l2, place->core, number);
		else
			l1_protect(caches, place->l2, place->core, number);
	}
	if (write || (mine && caches->cores_per_l2 == 1))
		way->tag |= CACHES_WRITABLE;
	if (access->kind == CACHES_ATOMIC)
		caches_hold(caches, access->cpu, CACHES_TAG(number), access->time + result.cost);
	return result;
}

struct caches_l1s caches_l1s(struct caches *caches)
{
	return (struct caches_l1s){ caches->ways, &caches->tick };
}

/* ---- set-up ---- */

/* What is touched costs memory, and what is not does not. */
static void *zeroed(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t sets_of(uint64_t kib, uint64_t ways)
{
	return (kib << 10 >> CACHES_LINE_BITS) / ways;
}

static bool make(struct tags *cache, uint64_t kib, uint64_t ways)
{
	cache->ways = ways;
	cache->sets = sets_of(kib, ways);
	cache->tags = zeroed(cache->sets * ways * sizeof(*cache->tags));
	return cache->tags;
}

static void unmake(struct tags *cache)
{
	if (cache->tags)
		munmap(cache->tags, cache->sets * cache->ways * sizeof(*cache->tags));
}

const char *caches_check(const struct caches_config *c)
{
	unsigned int cores, l2s, llcs, sockets;

	if (!c->threads || !c->cores_per_l2 || !c->cores_per_llc || !c->llcs_per_socket ||
	    !c->nodes)
		return "of each level there has to be one";
	cores = c->cpus / c->threads;
	l2s = cores / c->cores_per_l2;
	llcs = cores / c->cores_per_llc;
	sockets = llcs / c->llcs_per_socket;
	if (!sockets || c->cpus > CACHES_MAX_CPUS || l2s > CACHES_MAX_L2S ||
	    llcs > CACHES_MAX_LLCS ||
	    sockets * c->llcs_per_socket * c->cores_per_llc * c->threads != c->cpus ||
	    c->cores_per_llc % c->cores_per_l2)
		return "CPUs, L2s and LLCs are too many, or not whole";
	if (c->nodes > CACHES_MAX_LLCS || (c->nodes > 1 && c->nodes % sockets))
		return "nodes are too many, or not a whole number for each socket";
	if (!c->lines || c->lines >= 1ULL << 31 || c->lines % c->nodes)
		return "memory is too large, or not the same in each node";
	if (!c->l1_ways || !c->l2_ways || !c->l3_ways || !sets_of(c->l1_kib, c->l1_ways) ||
	    !sets_of(c->l2_kib, c->l2_ways) || !sets_of(c->l3_kib, c->l3_ways))
		return "a cache is smaller than a set of its ways";
	if (c->hold_ps > c->found_ps[FROM_CORE] / 2)
		return "a core keeps a line for longer than a request is under way";
	if (!c->outstanding)
		return "a core has to have one outstanding miss at least";
	return NULL;
}

void caches_free(struct caches *caches)
{
	unsigned int i;

	if (caches->lines)
		munmap(caches->lines, caches->config.lines * sizeof(*caches->lines));
	free(caches->ways);
	for (i = 0; i < caches->ncores; i++)
		free(caches->cores[i].done);
	for (i = 0; i < caches->nl2s; i++)
		unmake(&caches->l2[i]);
	for (i = 0; i < caches->nllcs; i++)
		unmake(&caches->l3[i]);
	free(caches);
}

static bool allocate(struct caches *caches)
{
	const struct caches_config *config = &caches->config;
	bool good;
	unsigned int i;

	caches->lines = zeroed(config->lines * sizeof(*caches->lines));
	caches->ways = calloc(caches->ncores * caches->l1_sets * config->l1_ways,
			      sizeof(*caches->ways));
	good = caches->lines && caches->ways;
	for (i = 0; i < caches->ncores; i++) {
		caches->cores[i].done = calloc(config->outstanding, sizeof(*caches->cores[i].done));
		good &= !!caches->cores[i].done;
	}
	for (i = 0; i < caches->nl2s; i++)
		good &= make(&caches->l2[i], config->l2_kib, config->l2_ways);
	for (i = 0; i < caches->nllcs; i++)
		good &= make(&caches->l3[i], config->l3_kib, config->l3_ways);
	return good;
}

struct caches *caches_new(const struct caches_config *config)
{
	struct caches *caches = calloc(1, sizeof(*caches));
	uint64_t *ps;
	unsigned int i;

	if (!caches)
		return NULL;
	caches->config = *config;
	ps = caches->config.found_ps;
	ps[IN_L1] = 0;
	ps[TAKEN_CORE] = ps[FROM_CORE];
	ps[TAKEN_LLC] = ps[FROM_LLC];
	ps[TAKEN_SOCKET] = ps[FROM_SOCKET];
	caches->cores_per_l2 = config->cores_per_l2;
	caches->l2s_per_llc = config->cores_per_llc / config->cores_per_l2;
	caches->ncores = config->cpus / config->threads;
	caches->nl2s = caches->ncores / config->cores_per_l2;
	caches->nllcs = caches->ncores / config->cores_per_llc;
	caches->nsockets = caches->nllcs / config->llcs_per_socket;
	caches->nmemories = config->nodes > caches->nsockets ? config->nodes : caches->nsockets;
	caches->l1_sets = sets_of(config->l1_kib, config->l1_ways);
	if (!allocate(caches)) {
		caches_free(caches);
		return NULL;
	}
	for (i = 0; i < caches->nllcs; i++)
		set_up_link(&caches->links[i], config->link_mbs);
	for (i = 0; i < caches->nsockets; i++)
		set_up_link(&caches->sockets[i], config->socket_mbs);
	for (i = 0; i < caches->nmemories; i++)
		set_up_link(&caches->memories[i],
			    config->memory_mbs * caches->nsockets / caches->nmemories);
	for (i = 0; i < config->cpus; i++) {
		struct place *place = &caches->places[i];

		place->core = i / config->threads;
		place->l2 = place->core / config->cores_per_l2;
		place->llc = place->core / config->cores_per_llc;
		place->socket = place->llc / config->llcs_per_socket;
	}
	return caches;
}
