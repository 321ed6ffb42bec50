// SPDX-License-Identifier: GPL-2.0-only
/*
 * Properties of cache_math.h and, as gate.h, of the gates in cache.c, over random arguments.
 *
 * usage: properties SEED STATES IMB_PCT
 *
 * Prints of each property its name, how often it was checked, and failed, and the first failure.
 */
#include "shim.h"

static u64 state, tried, failed;
static char first[600];

/* From 0 to @most, all alike. */
static u64 even(u64 most)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state ^ state >> 29) % (most + 1);
}

/* From 0 to @most, as often of each order of magnitude. */
static u64 any(u64 most)
{
	return even(most >> even(63 - __builtin_clzll(most | 1)));
}

#define CHECK(ok, ...) do {							\
	tried++;								\
	if (!(ok) && !failed++)							\
		snprintf(first, sizeof(first), __VA_ARGS__);			\
} while (0)

/* What the header computes from numbers is monotone in each of them. */
static void arithmetic(void)
{
	/* Nine years of runtime in three hours: far below where it saturates. */
	u64 runtime = any(BIT(48)), elapsed = (1 + any(BIT(43))) << 11, k = 1 + even(9);
	u32 old = any(U32_MAX), now = any(U32_MAX), high = max(old, now), nr = 1 + even(63);
	u32 cpus = any(U32_MAX / 2), more = any(cpus), online = 1 + any(512);
	u32 tolerance = even(101), bursts = even(1), cores = even(cpus);
	u64 size = any(BIT(40)), memory = cache_footprint_limit(size, cpus, online, tolerance);
	u64 limit = cache_running_limit(cpus, cores, bursts, tolerance);
	u32 is = cache_running(runtime, elapsed);

	CHECK(cache_running(runtime + any(runtime), elapsed) >= is &&
	      cache_running(runtime, elapsed + any(elapsed)) <= is &&
	      cache_running(k * runtime, k * elapsed) == is, "%lu in %lu", runtime, elapsed);
	is = cache_average(old, now, nr);
	/* It comes closer with each value. */
	CHECK(is >= min(old, now) && is <= high && (is != old || old == now) &&
	      cache_average(old, high, nr) >= is && cache_average(high, now, nr) >= is,
	      "%u, %u", old, now);
	CHECK(cache_running_limit(cpus + more, cores, bursts, tolerance) >= limit &&
	      cache_running_limit(cpus, min(cores + 1, cpus), bursts, tolerance) >= limit &&
	      cache_running_limit(cpus, cores, bursts, tolerance + 1) >= limit &&
	      cache_running_limit(cpus, cores, true, tolerance) <= limit &&
	      cache_footprint_limit(size + more, cpus, online, tolerance) >= memory &&
	      cache_footprint_limit(size, cpus + more, online, tolerance) >= memory &&
	      cache_footprint_limit(size, cpus, online, tolerance + 1) >= memory &&
	      cache_footprint_limit(size, min(cpus, online), online + 1, tolerance) <= memory,
	      "%u CPUs, or %u more, of %u, %u cores, bursts %u, tolerance %u, size %lu", cpus, more,
	      online, cores, bursts, tolerance, size);
	CHECK(cache_communicates(old, cpus) <= cache_communicates(high, cpus) &&
	      cache_communicates(old, more) >= cache_communicates(old, cpus),
	      "%u or %u of %u, or %u more", old, now, cpus, more);
}

static void sample(void)
{
	static const u8 rank[] = { [SAMPLE_CLOSED] = 0, [SAMPLE_UNDECIDED] = 1, [SAMPLE_OPEN] = 2 };
	u32 pages = 1 + any(511), faults = any(4096), alone = even(faults), was = even(2);
	struct cache_sample_counts a = { pages, even(pages), alone, faults - alone }, b = a;
	u64 rss = any(BIT(50)), llc = 1 + any(BIT(32)), run = any(CACHE_ONE << 9);
	u8 is = rank[cache_sample_judge(was, &a, rss, llc, run)];

	b.hot += even(pages - b.hot);
	b.same += even(b.other);
	b.other = faults - b.same;
	CHECK(rank[cache_sample_judge(was, &a, rss + any(rss), llc, run)] <= is &&
	      rank[cache_sample_judge(was, &a, rss, llc + any(llc), run)] >= is &&
	      rank[cache_sample_judge(was, &b, rss, llc, run)] <= is &&
	      rank[cache_sample_judge(SAMPLE_OPEN, &a, rss, llc, run)] >= is,
	      "%u: %u or %u hot of %u, %u or %u same of %u, %lu of %lu bytes, running %lu", was,
	      a.hot, b.hot, pages, alone, b.same, faults, rss, llc, run);
}

struct move {
	struct cache_load src, dst;
	u64 task;
	unsigned int full, imb;
};

#define MOVE "src %lu of %lu, dst %lu of %lu, task %lu, full %u %%, imb %u; "
#define OF(m) (m).src.load, (m).src.capacity, (m).dst.load, (m).dst.capacity, (m).task, \
	       (m).full, (m).imb

static bool comes(const struct move *m)
{
	return cache_has_room(&m->dst, m->task, m->full);
}

static bool stays(const struct move *m)
{
	return cache_keeps(&m->src, &m->dst, m->task, m->full, m->imb);
}

static struct cache_load draw_llc(u64 task, unsigned int full)
{
	unsigned int cores = 1 + any(63), cpus = cores << even(1);
	u64 capacity = cache_capacity((u64)cpus * CACHE_ONE, cores, cpus);
	/* Every second one is about to be full. */
	u64 load = even(1) ? even(capacity * 3 / 2) : capacity * full / 100 + even(4 * task);

	return (struct cache_load){ load - min(load, task), capacity };
}

static struct move draw_move(void)
{
	struct move m = { .task = 1 + even(CACHE_ONE - 1), .full = 50, .imb = any(120) };

	if (even(1))
		m.full = even(150);
	m.src = draw_llc(m.task, m.full);
	m.dst = draw_llc(m.task, m.full);
	m.src.load = max(m.src.load, m.task);
	if (even(1))
		m.dst.capacity = m.src.capacity;
	return m;
}

/* What makes a move worse never permits it. */
static void policy(void)
{
	struct move m = draw_move(), worse = m;
	u64 by = 1 + any(4 * CACHE_ONE), which = even(4);

	worse.dst.load += which == 0 ? by : 0;
	worse.dst.capacity -= which == 1 ? min(by, m.dst.capacity - 1) : 0;
	worse.src.load -= which == 2 ? min(by, m.src.load - m.task) : 0;
	worse.src.capacity += which == 3 ? by : 0;
	worse.task += which == 4 ? min(by, m.src.load - m.task) : 0;
	CHECK((comes(&m) || !comes(&worse)) && (!stays(&m) || stays(&worse)), MOVE MOVE, OF(m), OF(worse));
}

static void scaling(void)
{
	struct move m = draw_move(), by;
	u64 k = 1 + even(99);

	/* A quarter of the load of the task is a whole number. */
	m.task = (m.task + 3) & ~3;
	by = (struct move){ { k * m.src.load, k * m.src.capacity }, { k * m.dst.load, k * m.dst.capacity },
			    k * m.task, m.full, m.imb };
	CHECK(comes(&by) == comes(&m) && stays(&by) == stays(&m), MOVE MOVE, OF(m), OF(by));
}

static unsigned int imb_pct;

/* Does the load balancer move a task out of its LLC, with the imbalance_pct of most domains? */
static bool balances(const struct move *m)
{
	return !stays(m) &&
	       m->src.load * m->dst.capacity * 100 > m->dst.load * m->src.capacity * 117;
}

/* It does not move back what is gathered, nor is gathered what it has moved. */
static void undoing(void)
{
	struct move m = draw_move(), back;

	m.imb = imb_pct;
	m.full = min(m.full, 100U);
	/* Without the capacity for a second task, as in an LLC of one core, nothing is gathered. */
	if (min(m.src.capacity, m.dst.capacity) * m.full < 150 * CACHE_ONE)
		return;
	back = m;
	back.src = (struct cache_load){ m.dst.load + m.task, m.dst.capacity };
	back.dst = (struct cache_load){ m.src.load - m.task, m.src.capacity };
	CHECK(!(comes(&m) && balances(&back)) && !(balances(&m) && comes(&back)), MOVE, OF(m));
}

/* What the functions in gate.h take from the kernel and the rest of cache.c. */
#define EPOCH			10000000ULL
#define LLCS			8
static struct sched_cache_llc { u32 size, cores, smt, node; s32 free; } llcs[LLCS], *sched_cache_llcs[LLCS];
static u64 resident;
static u32 llc_size = BIT(25), ms;
static const long jiffies, current;
static bool allowed;
#define cache_group_tolerance(group) 1
#define cache_epoch()		EPOCH
#define cache_follows(p, i)	((p) == 0 && allowed)
#define cache_promise(llc, load) (void)(load)
#define cache_published(group, i, age) ((group)->slot[i].running + 0 * (age))
#define cache_age()		0
#define cache_see_promises(group)
#define cache_footprint(group, llc_bytes) resident
static unsigned int cache_see_cpus(struct sched_cache_group *group, int i);
static unsigned int cache_see_llcs(struct sched_cache_group *group, int home, bool current_only);
#include "gate.h"

static unsigned int cache_see_cpus(struct sched_cache_group *group, int i)
{
	struct cache_option *option = &group->options[i];

	option->cpus = llcs[i].cores * llcs[i].smt;
	option->cores = llcs[i].cores;
	option->bytes = llcs[i].size;
	option->usable = option->cores > 1;
	return option->cpus;
}

/* Half of the LLCs are in another node. */
static unsigned int cache_see_llcs(struct sched_cache_group *group, int home, bool current_only)
{
	unsigned int nr = 0;

	for (int i = 0; i < LLCS; i++) {
		struct cache_option *option = &group->options[i];

		cache_see_cpus(group, i);
		option->chosen = cache_in_set(group, i);
		option->distance = i / (LLCS / 2) == home / (LLCS / 2) ? 10 : 20;
		option->room = llcs[i].free;
		option->bias = i == home ? 0 : option->cpus * CACHE_ONE / 16 * (option->distance / 10);
		nr += option->usable;
	}
	return nr;
}

struct load {
	unsigned int threads, cores, smt, llc;
	u64 running, comm, footprint;
	/* How many cores others take of each LLC. */
	unsigned int others[LLCS];
	/* In one of so many epochs, a thread decides that may not use the LLCs, 0 for never. */
	unsigned int pinned;
};

#define LOAD "%u threads, %.2f running, %.2f communicate, %lu MiB, %u cores, others %u %u %u; "
#define IS(l) (l).threads, (l).running / 1024.0, (l).comm / 1024.0, (l).footprint >> 20, \
	      (l).cores, (l).others[0], (l).others[1], (l).others[2]

static struct load draw_load(void)
{
	struct load load = { 2 + any(60), 1 + any(15), 1 + even(1), even(LLCS - 1) };
	bool busy = even(1);

	/* One that hardly runs is not measured. */
	load.running = load.threads * (even(1) ? CACHE_ONE : 64 + even(CACHE_ONE - 64));
	load.comm = even(2) ? 0 : even(load.running);
	load.footprint = even(2) ? any(BIT(27)) : 0;
	load.pinned = even(2) ? 0 : 3 + even(29);
	/* The same in both nodes: a process may stay in the one where it is. */
	for (int i = 0; busy && i < LLCS; i++)
		load.others[i] = i < LLCS / 2 ? even(load.cores) : load.others[i - LLCS / 2];
	return load;
}

/*
 * So many epochs of @pct percent of a load. Threads run in the LLCs of the set, as many as there
 * is room for, and elsewhere. The gate, and how many LLCs are preferred.
 */
static int run(struct sched_cache_group *group, const struct load *load, int epochs, int pct)
{
	group->refs.counter = load->threads;
	resident = load->footprint * pct / 100;
	while (epochs--) {
		struct cache_decision d = { .home = -1, };
		u64 running = load->running * pct / 100, inside = 0, here[LLCS];
		bool open = group->gate == SCHED_CACHE_OPEN;
		unsigned int all = load->cores * load->smt;
		struct cache_demand demand = { .average = running, .threads = load->threads };
		u32 grain = cache_grain(&demand);

		for (unsigned int i = 0; i < LLCS; i++) {
			u32 full = min(load->cores, all * 3 / 4 + !(all * 3 / 4));

			sched_cache_llcs[i] = &llcs[i];
			llcs[i] = (struct sched_cache_llc) {
				llc_size, load->cores, load->smt, i / (LLCS / 2),
				((s32)full - (s32)min(load->others[i], full)) * (s32)CACHE_ONE
			};
			here[i] = open && cache_in_set(group, i) ?
				  min(running / group->nr_set,
				      (u64)(llcs[i].free + grain / 4) / grain * grain) : 0;
			inside += here[i];
		}
		for (unsigned int i = 0; i < LLCS; i++) {
			u64 left = running - inside;

			here[i] += open ? left * !cache_in_set(group, i) / (LLCS - group->nr_set) :
				   left * (i == load->llc ? 3 : 1) / (LLCS + 2);
			group->slot[i].runtime.counter += here[i] * EPOCH >> 20;
			group->slot[i].communicating.counter +=
				here[i] * EPOCH / (load->running | 1) * load->comm >> 20;
		}
		ms += EPOCH >> CACHE_MS_SHIFT;
		allowed = !load->pinned || even(load->pinned - 1);
		if (cache_measure(group, EPOCH, ms)) {
			group->decisions++;
			cache_judge(group, &d);
			if (!cache_has_to_wait(group, &d, ms))
				cache_apply(group, &d);
		}
	}
	return group->gate * 100 + (group->gate == SCHED_CACHE_OPEN ? group->nr_set : 0);
}

static struct sched_cache_group *fresh(void)
{
	struct sched_cache_group *group = calloc(1, sizeof(*group) + LLCS * sizeof(*group->slot));

	group->nr_slots = LLCS;
	group->options = calloc(LLCS, sizeof(*group->options));
	group->set = calloc(1, sizeof(*group->set));
	group->llc = -1;
	return group;
}

/* A second of a steady load later, gate and number of LLCs are as if nothing had been before. */
static void memory(void)
{
	struct load load = draw_load(), less = load, more = load, was;
	struct sched_cache_group *group = fresh();
	int gate = run(group, &load, 100, 100), after;
	bool steady = run(fresh(), &load, 100, 97) == gate && run(fresh(), &load, 100, 103) == gate;

	less.comm = load.comm * 97 / 100;
	more.comm = min(load.comm * 103 / 100, load.running);
	steady = steady && run(fresh(), &less, 100, 100) == gate && run(fresh(), &more, 100, 100) == gate;
	group = fresh();
	for (u64 i = even(3) + 1; i; i--) {
		was = draw_load();
		was.cores = load.cores;
		was.smt = load.smt;
		run(group, &was, 1 + any(200), 100);
	}
	after = run(group, &load, 100, 100);
	/* Not within 3 % of where it changes, by how much the threads run or how much they communicate. */
	if (steady)
		CHECK(after == gate, LOAD "gate %d; after " LOAD "gate %d", IS(load), gate, IS(was),
		      after);
}

/*
 * What busy or footprint has closed, or is open, stays so for 200 ms, whatever the load is then. One
 * thread that runs may be followed by several at once.
 */
static void patience(void)
{
	struct load load = draw_load(), then = draw_load();
	struct sched_cache_group *group = fresh();
	int gate = run(group, &load, 100, 100) / 100;

	then.cores = load.cores;
	then.smt = load.smt;
	/* Another change may have been wanted for a while. */
	if (group->since)
		return;
	for (int i = 0; i < 20 && (gate == SCHED_CACHE_OPEN || cache_gate_flaps(gate)); i++) {
		int now = run(group, &then, 1, 100) / 100;

		if (now == SCHED_CACHE_SINGLE)
			break;
		CHECK((now == SCHED_CACHE_OPEN) == (gate == SCHED_CACHE_OPEN),
		      LOAD "gate %d; then " LOAD "gate %d after %d epochs", IS(load), gate,
		      IS(then), now, i);
	}
}

/* So it is when fewer LLCs have been wanted for a while: that is another change. */
static void patience_anew(void)
{
	struct load load = draw_load(), less = load;
	struct sched_cache_group *group = fresh();

	less.running /= 2;
	less.footprint = load.footprint = 0;
	if (run(group, &load, 100, 100) < SCHED_CACHE_OPEN * 100 + 2 || less.running < 2 * CACHE_ONE ||
	    run(group, &less, 5 + even(20), 100) / 100 != SCHED_CACHE_OPEN)
		return;
	less.footprint = BIT(40);
	for (int i = 0; i < 20; i++)
		CHECK(run(group, &less, 1, 100) / 100 == SCHED_CACHE_OPEN, LOAD "after %d epochs",
		      IS(less), i);
}

/* The gate depends on what an LLC has, not on its number. */
static void symmetry(void)
{
	struct load load = draw_load(), other;
	int gate;

	memset(load.others, 0, sizeof(load.others));
	gate = run(fresh(), &load, 20, 100);
	other = load;
	other.llc = even(LLCS - 1);
	CHECK(run(fresh(), &other, 20, 100) == gate, LOAD "LLC %u", IS(load), other.llc);
}

/* In an LLC of unknown size no memory fits, whether or not threads communicate. */
static void unknown_size(void)
{
	struct load load = draw_load();
	int gate;

	load.footprint++;
	llc_size = 0;
	gate = run(fresh(), &load, 20, 100);
	llc_size = BIT(25);
	CHECK(gate / 100 != SCHED_CACHE_OPEN, LOAD "gate %d", IS(load), gate);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*check)(void); int cost; } properties[] = {
		{ "arithmetic", arithmetic, 1 }, { "sample", sample, 1 }, { "policy", policy, 1 },
		{ "scaling", scaling, 1 }, { "undoing", undoing, 1 }, { "memory", memory, 100 },
		{ "patience", patience, 100 }, { "patience_anew", patience_anew, 20 },
		{ "symmetry", symmetry, 100 }, { "unknown_size", unknown_size, 100 },
	};

	if (argc != 4)
		return 2;
	state = atol(argv[1]);
	imb_pct = atoi(argv[3]);
	for (size_t i = 0; i < sizeof(properties) / sizeof(*properties); i++) {
		tried = failed = 0;
		for (long n = atol(argv[2]) / properties[i].cost; n; n--)
			properties[i].check();
		printf("%s %lu %lu %s\n", properties[i].name, tried, failed, failed ? first : "-");
	}
	return 0;
}
