// SPDX-License-Identifier: GPL-2.0-only
/*
 * Mixes of processes on small machines: they decide by the code of cache.c, their tasks move themselves,
 * and a load balancer moves those that it may.
 *
 * usage: mixes RUNS [KEY=VALUE]...
 *
 *  low, high  how many percent of the cores all processes need together; each has a size of its own
 *  duty       how many percent of the time a thread runs, 0 for some each
 *  apart      up to so many ms pass between the starts of the processes
 *  phases     so many times, other numbers of threads run
 *  others     1: some threads are pinned, and some tasks are of no process
 *  beat       so many ms all threads run, then two of each process for a fifth of that, and so on
 *  off        1: without cache-aware scheduling
 *  pairs      1: tasks are swapped only if both come where they want to be
 *  length     of a phase, in ms
 *
 * A run is a random machine and mix. Prints, over all runs and phases:
 *  few      at how many percent of looks in the last half of a second a process is in as few LLCs as it
 *           would be in alone
 *  soon     in how many percent of phases all processes that a set holds are in theirs for good within 100 ms,
 *           and these are as small
 *  never    in how many percent they never are
 *  moves    between LLCs, in a run; late: those in the second half of a phase, per second
 *  changes  of gate or set of a process, in the second half of a phase, per second
 *  open     at how many percent of looks a process prefers LLCs that no set holds
 *  waits    for how many ms tasks wait, in a run
 */
#include "shim.h"
#include "kernel.h"
#include "code.h"

enum { PROCESSES = 8, TASKS = 256, TICK = 4, LOOK = 10 };

struct task {
	struct task_struct t;
	int process, cpu, duty, left;
	bool awake, parked, pinned;
	u32 load;
	/* In ms, and in units of 1024 ns. */
	u64 ran, uncharged;
};

static struct { struct sched_domain_shared shared; struct sched_domain llc, parent;
		struct sched_group group; struct sched_group_capacity sgc; } domains[LLCS];
static struct task tasks[TASKS];
static struct process {
	struct sched_cache_group *group;
	int threads, duty, few, start, looks, seen_few, seen_open, versions;
} processes[PROCESSES];
static int nr_tasks, nr_processes, nodes, per_node, cores, smt, nr_llcs, nr_cpus, per_llc, ms;
static int awake_on[CPUS];
static bool was_idle[CPUS];
static u64 state, moves, waits;
static struct { int low, high, duty, apart, phases, others, beat, off, pairs, length; } opt = {
	.low = 40, .high = 100, .duty = 100, .phases = 1, .length = 3000,
};

static u64 even(u64 most)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return ((state ^ state >> 29) >> 8) % (most + 1);
}

#define for_each_task(p) for (struct task *p = tasks; p < tasks + nr_tasks; p++)
#define for_each_awake(p, on) for_each_task(p) if (p->awake && p->cpu == (on))
#define for_each_cpu_of(cpu, llc) for (int cpu = (llc) * per_llc; cpu < ((llc) + 1) * per_llc; cpu++)

static struct task *running(int cpu)
{
	struct task *least = NULL;

	for_each_awake(p, cpu)
		least = least && least->ran <= p->ran ? least : p;
	return least;
}

static bool core_idle(int cpu)
{
	for (int i = cpu / smt * smt; i < cpu / smt * smt + smt; i++) {
		if (awake_on[i])
			return false;
	}
	return true;
}

/* An idle CPU that a task may use, of an idle core if possible or necessary, or -1. */
static int idle_cpu(int llc, const struct cpumask *allowed, bool core)
{
	int idle = -1;

	for_each_cpu_of(cpu, llc) {
		if (awake_on[cpu] || !cpumask_test_cpu(cpu, allowed))
			continue;
		if (core_idle(cpu))
			return cpu;
		idle = core || idle >= 0 ? idle : cpu;
	}
	return idle;
}

static void charge(struct task *p)
{
	if (p->process >= 0)
		processes[p->process].group->slot[llc_of[p->cpu]].runtime.counter += p->uncharged;
	p->uncharged = 0;
}

static void refresh(struct task *p)
{
	enum sched_cache_gate gate;

	if (p->process >= 0 && !opt.off)
		p->t.preferred_llc = cache_task_choice(&p->t, p->t.cache_group, llc_of[p->cpu], &gate);
}

/* It waits behind those that are there, as with EEVDF. */
static void move(struct task *p, int cpu)
{
	struct task *first = running(cpu);

	if (llc_of[cpu] != llc_of[p->cpu]) {
		charge(p);
		moves++;
	}
	awake_on[p->cpu] -= p->awake;
	awake_on[cpu] += p->awake;
	p->ran = first && first != p ? max(p->ran, first->ran) : p->ran;
	p->cpu = cpu;
	refresh(p);
}

/* As find_llc_partner() does. */
static struct task *partner(struct task *p, int llc)
{
	struct task *found = NULL;

	for_each_cpu_of(cpu, llc) {
		struct task *other = running(cpu);
		bool exact = other && other->t.preferred_llc == llc_of[p->cpu];
		int more = other ? (int)p->load - (int)other->load : 0;
		u64 seen;

		if (!other || other->t.preferred_llc < 0 || other->t.preferred_llc == llc ||
		    !cpumask_test_cpu(p->cpu, other->t.cpus_ptr) ||
		    (abs(more) > (int)CACHE_ONE / 4 &&
		     !sched_cache_has_room(more > 0 ? cpu : p->cpu, abs(more), &seen)) ||
		    (!exact && (found || opt.pairs || awake_on[p->cpu] > 1 ||
				(llc_of[p->cpu] / per_node != other->t.preferred_llc / per_node &&
				 llc_of[p->cpu] / per_node != llc / per_node))))
			continue;
		found = other;
		if (exact)
			break;
	}
	return found;
}

/* As sched_cache_stray() and sched_cache_move() do. */
static void gather(struct task *p)
{
	int src = p->cpu, llc = p->t.preferred_llc, there = llc * per_llc, cpu;
	struct task *other;
	u64 seen;

	sched_cache_mark_stray(src);
	cpu = sched_cache_has_room(there, p->load, &seen) ? idle_cpu(llc, p->t.cpus_ptr, true) : -1;
	if (cpu >= 0 && sched_cache_reserve(src, cpu, seen, p->load)) {
		move(p, cpu);
		return;
	}
	other = sched_cache_has_stray(there) ? partner(p, llc) : NULL;
	if (other) {
		cpu = other->cpu;
		sched_cache_moved(src, cpu, (long)p->load - (long)other->load);
		move(other, src);
		move(p, cpu);
	}
}

/* As llc_keeps_task(). */
static bool keeps(struct task *p, int dst)
{
	if (p->t.preferred_llc < 0 || p->t.preferred_llc != llc_of[p->cpu] ||
	    sched_cache_may_go(&p->t, dst))
		return false;
	return (awake_on[p->cpu] < 2 || idle_cpu(llc_of[p->cpu], p->t.cpus_ptr, false) >= 0) &&
	       sched_cache_keeps(p->cpu, dst, p->load);
}

/* Pull a task that waits, or a running one, from a CPU; first one that prefers to come. */
static bool pull_from(int src, int dst, bool waiting)
{
	struct task *first = running(src);

	if (!first || (waiting && awake_on[src] < 2))
		return false;
	for (int prefers = 1; prefers >= 0; prefers--) {
		for_each_awake(p, src) {
			if ((waiting && p == first) || !cpumask_test_cpu(dst, p->t.cpus_ptr) ||
			    (prefers && p->t.preferred_llc != llc_of[dst]) || keeps(p, dst))
				continue;
			if (llc_of[src] != llc_of[dst] && !opt.off)
				sched_cache_moved(src, dst, p->load);
			move(p, dst);
			return true;
		}
	}
	return false;
}

/*
 * An idle CPU: within the LLC it takes what waits, or shares a core. Beyond, where tasks wait, or from an
 * LLC of the node with two tasks more, or another node with many fewer idle CPUs.
 */
static void balance(int dst, bool newly)
{
	int here = llc_of[dst], nr[LLCS] = { }, idle[LLCS] = { }, wait[LLCS] = { };

	for_each_cpu_of(cpu, here) {
		if (pull_from(cpu, dst, true) ||
		    (!newly && smt > 1 && cpu % smt && core_idle(dst) && awake_on[cpu] &&
		     awake_on[cpu - 1] && pull_from(cpu, dst, false)))
			return;
	}
	/* One CPU of an LLC does it, once in about as many ms as there are CPUs. */
	if (!newly && (dst != idle_cpu(here, &active, false) || even(nr_cpus / TICK)))
		return;
	for (int cpu = 0; cpu < nr_cpus; cpu++) {
		nr[llc_of[cpu]] += awake_on[cpu];
		idle[llc_of[cpu]] += !awake_on[cpu];
		wait[llc_of[cpu]] += awake_on[cpu] > 1;
	}
	for (int far = 0; far < 2; far++) {
		int best = -1;

		for (int l = 0; l < nr_llcs; l++) {
			bool more = far ? idle[here] - idle[l] > 2 + per_llc / 4 : nr[l] > nr[here] + 1;

			if (l != here && (l / per_node != here / per_node) == far && (wait[l] || more) &&
			    (best < 0 || (wait[l] && !idle[l]) > (wait[best] && !idle[best]) ||
			     nr[l] > nr[best]))
				best = l;
		}
		/* Running tasks are not moved at each attempt. */
		for (int waiting = 1; best >= 0 && waiting >= (newly || even(3) || nr[best] <= nr[here] + 1);
		     waiting--) {
			for_each_cpu_of(src, best) {
				if (pull_from(src, dst, waiting))
					return;
			}
		}
	}
}

static void sleep_or_wake(struct task *p)
{
	bool awake = !p->parked && (p->duty == 100 || p->awake);
	int cpu = p->cpu;

	if (!p->parked && p->duty < 100 && --p->left <= 0) {
		awake = !p->awake;
		p->left = awake ? 1 + even(8) : 1 + even(8) * (100 - p->duty) / p->duty;
	}
	if (p->awake && !awake) {
		charge(p);
		awake_on[cpu]--;
	}
	if (awake && !p->awake) {
		awake_on[cpu]++;
		if (awake_on[cpu] > 1 && !p->pinned)
			cpu = idle_cpu(llc_of[cpu], &active, false);
		p->awake = true;
		move(p, cpu < 0 ? p->cpu : cpu);
	}
	p->awake = awake;
	/* Half of it is forgotten in 32 ms, as by PELT. */
	p->load = p->load - p->load / 46 + (awake ? min(CACHE_ONE / 46 + 1, CACHE_ONE - p->load + p->load / 46) : 0);
}

static void tick(int cpu, struct task *p)
{
	struct sched_domain_shared *sds = sd_llc_shared[cpu];
	struct sched_cache_group *group = p->t.cache_group;

	if (sched_cache_publish_due(sds)) {
		sds->llc_load.counter = 0;
		for_each_task(other)
			sds->llc_load.counter += llc_of[other->cpu] == llc_of[cpu] ? other->load : 0;
	}
	if (!group)
		return;
	charge(p);
	if (group->gate == SCHED_CACHE_OPEN && cache_expired(group, clock_ns))
		cache_end(group);
	refresh(p);
	if (p->t.preferred_llc >= 0 && p->t.preferred_llc != llc_of[cpu])
		gather(p);
	if (clock_ns >= group->decided + cache_epoch()) {
		current = &p->t;
		cache_decide(group);
	}
}

static void step(void)
{
	clock_ns += NSEC_PER_MSEC;
	jiffies = clock_ns / TICK_NSEC;
	for_each_task(p)
		sleep_or_wake(p);
	for (int cpu = 0; cpu < nr_cpus; cpu++) {
		bool ticks = (ms + cpu) % TICK == 0;
		struct task *p = running(cpu);

		if (!p && (ticks || !was_idle[cpu]))
			balance(cpu, !ticks);
		p = running(cpu);
		was_idle[cpu] = !p;
		if (!p)
			continue;
		p->ran++;
		p->uncharged += NSEC_PER_MSEC >> CACHE_TIME_SHIFT;
		waits += awake_on[cpu] - 1;
		if (ticks && !opt.off)
			tick(cpu, p);
	}
	for (int cpu = 0; cpu < nr_cpus; cpu++)
		sd_llc_shared[cpu]->nr_busy_cpus.counter = 0;
	for (int cpu = 0; cpu < nr_cpus; cpu++)
		sd_llc_shared[cpu]->nr_busy_cpus.counter += !!awake_on[cpu];
}

static void new_machine(void)
{
	do {
		nodes = 1 + !even(2);
		per_node = 2 + even(2);
		cores = 2 + even(6);
		smt = 1 + even(1);
		per_llc = cores * smt;
		nr_llcs = nodes * per_node;
		nr_cpus = nr_llcs * per_llc;
	} while (nr_cpus > CPUS);

	active.bits = BITMASK(0, nr_cpus);
	memset(domains, 0, sizeof(domains));
	memset(awake_on, 0, sizeof(awake_on));
	for (int l = 0; l < nr_llcs; l++) {
		free(sched_cache_llcs[l]);
		sched_cache_llcs[l] = calloc(1, sizeof(struct sched_cache_llc) + sizeof(u64));
		sched_cache_llcs[l]->span[0] = BITMASK(l * per_llc, per_llc);
		sched_cache_llcs[l]->size = BIT(25);
		sched_cache_llcs[l]->node = l / per_node;
		domains[l].sgc.capacity = per_llc * CACHE_ONE;
		domains[l].group = (struct sched_group) { &domains[l].sgc, cores, per_llc };
		domains[l].parent.groups = &domains[l].group;
		domains[l].llc.parent = &domains[l].parent;
		for_each_cpu_of(cpu, l) {
			llc_of[cpu] = l;
			sd_llc_shared[cpu] = &domains[l].shared;
			sd_llc[cpu] = &domains[l].llc;
			siblings[cpu].bits = BITMASK(cpu / smt * smt, smt);
		}
	}
}

/* As few LLCs as hold so many threads, 0 if none do. */
static int few_llcs(int threads, int duty)
{
	struct cache_demand demand = { threads * duty * CACHE_ONE / 100, threads, .tolerance = 1 };
	struct cache_option option = { per_llc, cores, .room = S32_MAX / 2 };
	struct cache_sum sum = { };

	for (unsigned int n = 1; n <= cache_set_most(nr_llcs); n++) {
		cache_sum_add(&sum, &demand, &option);
		if (demand.average <= cache_sum_limit(&demand, &sum))
			return n;
	}
	return 0;
}

static struct task *new_task(int process, int duty, int llc)
{
	struct task *p = &tasks[nr_tasks++];
	int cpu = idle_cpu(llc, &active, false);

	*p = (struct task) { { active, &p->t.cpus_mask, .preferred_llc = -1, .start_time = clock_ns }, process,
			     cpu < 0 ? even(nr_cpus - 1) : cpu, duty, 1 + even(8), true, .load = CACHE_ONE / 2 };
	awake_on[p->cpu]++;
	return p;
}

static void pin(struct task *p)
{
	p->pinned = true;
	p->t.cpus_mask.bits = BIT(p->cpu);
}

static void new_mix(void)
{
	int budget = nr_llcs * cores * (opt.low + (int)even(opt.high - opt.low));

	nr_tasks = nr_processes = 0;
	for (int wanted = 1 + even(PROCESSES - 1); nr_processes < wanted; nr_processes++) {
		struct process *p = &processes[nr_processes];

		p->duty = opt.duty ?: even(1) ? 100 : 30 + even(60);
		p->threads = min(2 + (int)even(even(1) ? cores - 1 : 2 * cores - 1), budget / p->duty);
		if (p->threads < 2)
			return;
		budget -= p->threads * p->duty;
		p->few = few_llcs(p->threads, p->duty);
		p->start = even(1) * even(opt.apart);
		p->group = calloc(1, sizeof(*p->group) + nr_llcs * sizeof(*p->group->slot));
		p->group->options = calloc(nr_llcs, sizeof(*p->group->options));
		p->group->set = calloc(1, sizeof(*p->group->set));
		p->group->nr_slots = nr_llcs;
		p->group->llc = p->group->tolerance = -1;
		p->group->refs.counter = p->threads;
		p->group->processes.counter = 1;
	}
}

/* fork() spreads threads over the LLCs. */
static void start(int process)
{
	struct process *p = &processes[process];
	bool pins = opt.others && p->threads > 2 && even(1);

	p->group->decided = clock_ns;
	for (int i = 0; i < p->threads; i++) {
		int nr[LLCS] = { }, least = 0;
		struct task *t;

		for (int cpu = 0; cpu < nr_cpus; cpu++)
			nr[llc_of[cpu]] += awake_on[cpu];
		for (int l = 0; l < nr_llcs; l++)
			least = nr[l] < nr[least] ? l : least;
		t = new_task(process, p->duty, least);
		t->t.cache_group = p->group;
		if (pins && !i)
			pin(t);
	}
}

/* Other numbers of threads run from now on. */
static void change(void)
{
	for (int i = 0; i < nr_processes; i++) {
		int run = 2 + even(processes[i].threads - 2), n = 0;

		processes[i].few = few_llcs(run, processes[i].duty);
		for_each_task(p)
			p->parked = p->process == i ? n++ >= run : p->parked;
	}
}

/* Of six fifths of a beat, only two threads of each process run in the last one. */
static void beat(void)
{
	int at = ms % (opt.beat * 6 / 5);

	for (int i = 0; i < nr_processes && (!at || at == opt.beat); i++) {
		int n = 0;

		for_each_task(p)
			p->parked = p->process == i ? at && n++ >= 2 : p->parked;
	}
}

/* Are all in their sets, and these as small as they could be? */
static bool look(bool count)
{
	bool all = true;

	for (int i = 0; i < nr_processes; i++) {
		struct process *p = &processes[i];
		bool in = p->group->gate == SCHED_CACHE_OPEN && (int)p->group->nr_set <= p->few;
		u64 used = 0;

		p->looks += count;
		p->seen_open += count && !p->few && p->group->gate == SCHED_CACHE_OPEN;
		if (!p->few)
			continue;
		for_each_task(t) {
			if (t->process != i || !t->awake || t->pinned)
				continue;
			used |= BIT(llc_of[t->cpu]);
			in &= cache_in_set(p->group, llc_of[t->cpu]);
		}
		all &= in && used;
		p->seen_few += count && __builtin_popcountl(used) <= p->few;
	}
	return all;
}

int main(int argc, char **argv)
{
	static const struct { const char *name; int *value; } keys[] = {
		{ "low", &opt.low }, { "high", &opt.high }, { "duty", &opt.duty }, { "apart", &opt.apart },
		{ "phases", &opt.phases }, { "others", &opt.others }, { "beat", &opt.beat }, { "off", &opt.off },
		{ "pairs", &opt.pairs }, { "length", &opt.length },
	};
	int runs = atoi(argv[1]), nr_parts = 0, judged = 0, soon = 0, never = 0, small = 0, large = 0;
	double few = 0, open = 0, changes = 0;
	s64 late = 0;

	for (int i = 2; i < argc; i++) {
		char *value = strchr(argv[i], '=');
		size_t key = 0;

		for (*value++ = 0; strcmp(keys[key].name, argv[i]); key++)
			;
		*keys[key].value = atoi(value);
	}
	for (int run = 1; run <= runs; run++) {
		state = run * 7919ULL;
		clock_ns = 1000 * NSEC_PER_MSEC;
		even(1);
		new_machine();
		new_mix();
		for (int i = opt.others ? even(3) : 0; i; i--) {
			struct task *p = new_task(-1, even(1) ? 100 : 5 + even(30), even(nr_llcs - 1));

			if (even(1))
				pin(p);
		}
		for (int part = 0; part < opt.phases; part++) {
			int settled = -1, last = 0, before = small;

			for (int i = 0; i < nr_processes; i++) {
				processes[i].looks = processes[i].seen_few = processes[i].seen_open = 0;
				last = part ? 0 : max(last, processes[i].start);
			}
			if (part)
				change();
			for (ms = 0; ms < opt.length; ms++) {
				for (int i = 0; i < nr_processes && !part; i++) {
					if (processes[i].start == ms)
						start(i);
				}
				if (opt.beat)
					beat();
				step();
				for (int i = 0; i < nr_processes && ms == opt.length / 2; i++)
					processes[i].versions = processes[i].group->version.counter;
				late -= ms == opt.length / 2 ? moves : 0;
				if (ms % LOOK || ms < last)
					continue;
				if (!look(ms >= opt.length - 500))
					settled = -1;
				else if (settled < 0)
					settled = ms - last;
			}
			nr_parts++;
			for (int i = 0; i < nr_processes; i++) {
				struct process *p = &processes[i];

				small += p->few > 0;
				large += !p->few;
				few += (double)p->seen_few / max(p->looks, 1);
				open += (double)p->seen_open / max(p->looks, 1);
				changes += p->group->version.counter - p->versions;
			}
			late += moves;
			if (small > before) {
				judged++;
				soon += settled >= 0 && settled <= 100;
				never += settled < 0;
			}
		}
		for (int i = 0; i < nr_processes; i++) {
			free(processes[i].group->options);
			free(processes[i].group->set);
			free(processes[i].group);
		}
	}
	printf("few %.1f soon %.1f never %.1f moves %.1f late %.3f changes %.3f open %.1f waits %.1f\n",
	       100 * few / small, 100.0 * soon / judged, 100.0 * never / judged, (double)moves / runs,
	       late * 2000.0 / opt.length / nr_parts, changes * 2000.0 / opt.length / (small + large),
	       large ? 100 * open / large : 0, (double)waits / runs);
	return 0;
}
