// SPDX-License-Identifier: GPL-2.0-only
/*
 * A closed loop: all orders in which processes decide, tasks move themselves and the load balancer
 * moves tasks that always run, from each placement, in LLCs without SMT. A promise may decay.
 *
 * usage: loop VERSION[RULES] CORES,... PROCESS:TASKS:LLCS...
 *
 * LLCS is a mask of the LLCs that the tasks may use; PROCESS 9 never decides. VERSION 2 asks
 * cache_math.h, and chooses the LLC with most tasks. VERSION 3 models sets of LLCs, with RULES:
 *  a  a task may leave its set unless a member has an idle core that it may use itself;
 *     without: that it need not be able to use
 *  c  a process changes its set only for LLCs that have the capacity; without: or less load
 *  e  it does so at any time; without: when all tasks have moved
 *  f  how many LLCs it needs depends on what others leave; without: on the LLCs alone
 *
 * Prints a cycle, or the state in which a task waits for ever while a CPU that it may use is idle;
 * else how many states there are, in how many of the last ones a process has another number of LLCs
 * than in the first of these, and for how many steps a task waits at most while a CPU is idle.
 */
#include "shim.h"

enum { LLCS = 4, KINDS = 4, OTHERS = 9, SIZE = 1 << 22 };

struct state {
	u8 tasks[KINDS][LLCS];
	/* By process, which is numbered as the first of its kinds of tasks. */
	u8 set[KINDS], promised[KINDS][LLCS];
};

static struct node {
	struct state s;
	const char *step;
	int waits;
	enum { NEW, OPEN, DONE } color;
} nodes[SIZE / 2];

static int table[SIZE], path[SIZE], nr, depth, ends, differ, most;
static int llcs, kinds, cores[LLCS], process[KINDS], count[KINDS], mask[KINDS];
static bool third, allowed, fits, eager, left;

static int find(const struct state *s)
{
	u64 i = 14695981039346656037u;

	for (size_t b = 0; b < sizeof(*s); b++)
		i = (i ^ ((const u8 *)s)[b]) * 1099511628211u;
	for (i ^= i >> 32; table[i %= SIZE]; i++) {
		if (!memcmp(&nodes[table[i]].s, s, sizeof(*s)))
			return table[i];
	}
	table[i] = ++nr;
	if (nr == SIZE / 2)
		exit(3);
	nodes[nr].s = *s;
	return nr;
}

static int set_of(const struct state *s, int k)
{
	return process[k] == OTHERS ? 0 : s->set[process[k]];
}

/* The tasks in an LLC, without those of a process. */
static int in(const struct state *s, int llc, int without)
{
	int n = 0;

	for (int k = 0; k < kinds; k++)
		n += process[k] == without ? 0 : s->tasks[k][llc];
	return n;
}

static bool idle(const struct state *s, int members)
{
	for (int l = 0; l < llcs; l++) {
		if (members >> l & 1 && in(s, l, -1) < cores[l])
			return true;
	}
	return false;
}

static struct cache_load load_of(const struct state *s, int llc)
{
	return (struct cache_load){ in(s, llc, -1) * CACHE_ONE,
				    cache_capacity(cores[llc] * CACHE_ONE, cores[llc], cores[llc]) };
}

static bool comes(const struct state *s, int dst)
{
	struct cache_load to = load_of(s, dst);

	return cache_has_room(&to, CACHE_ONE, 50);
}

static bool stays(const struct state *s, int src, int dst)
{
	struct cache_load from = load_of(s, src), to = load_of(s, dst);

	return cache_keeps(&from, &to, CACHE_ONE, 50, 17);
}

/* Where does a task outside of its set go by itself, -1 if nowhere? */
static int gathers(const struct state *s, int k, int src)
{
	int best = -1, members = set_of(s, k);

	for (int l = 0; l < llcs && !(members >> src & 1); l++) {
		if ((members & mask[k]) >> l & 1 &&
		    (best < 0 || cores[l] - in(s, l, -1) > cores[best] - in(s, best, -1)))
			best = l;
	}
	return best >= 0 && in(s, best, -1) < cores[best] &&
	       (third || comes(s, best)) ? best : -1;
}

/* By find_busiest_group(), with SD_PREFER_SIBLING, unless the task has to stay in its set. */
static bool balances(const struct state *s, int k, int src, int dst)
{
	int a = in(s, src, -1), b = in(s, dst, -1), members = set_of(s, k);
	bool waits = a > cores[src];

	if (members >> src & 1 && !(members >> dst & 1) &&
	    (third ? !waits || idle(s, allowed ? members & mask[k] : members) :
	     !waits && stays(s, src, dst)))
		return false;
	if (!(mask[k] >> dst & 1))
		return false;
	if (b >= cores[dst])
		return waits && 100 * a * cores[dst] > 117 * b * cores[src] &&
		       (a - 1) * cores[dst] >= (b + 1) * cores[src];
	return waits || a * cores[dst] > (b + 1) * cores[src];
}

static int decide_second(const struct state *s, int p)
{
	int best = 0, cur = s->set[p] ? __builtin_ctz(s->set[p]) : -1, n[LLCS] = { }, all = 0;

	for (int l = 0; l < llcs; l++) {
		all += n[l] = in(s, l, -1) - in(s, l, p);
		best = n[l] > n[best] ? l : best;
	}
	if (cur >= 0 && n[best] <= 2 * n[cur])
		best = cur;
	return all * CACHE_ONE > cache_running_limit(cores[best], cores[best], false, 1) ? 0 : 1 << best;
}

/*
 * As few LLCs as hold the demand, at most half: the present ones if others leave capacity for it,
 * else those with least of others' load.
 */
static int decide_third(const struct state *s, int p)
{
	int usable = 0, demand = 0, number, best = 0, best_value = 0, others[LLCS] = { };

	for (int k = 0; k < kinds; k++) {
		usable |= process[k] == p ? mask[k] : 0;
		demand += process[k] == p ? count[k] : 0;
		for (int l = 0; l < llcs && process[k] != p; l++)
			others[l] += s->tasks[k][l] + s->promised[k][l];
	}
	number = __builtin_popcount(usable);
	for (int n = 1; n <= min((number + 1) / 2, number - 1) && !best; n++) {
		for (int i = 0; i < 1 << llcs; i++) {
			/* The present set comes first. What counts most is the capacity. */
			int set = i ^ s->set[p], holds = 0, free = 0, value = 100;

			for (int l = 0; l < llcs; l++) {
				holds += set >> l & 1 ? cores[l] : 0;
				free += set >> l & 1 ? max(cores[l] - others[l], 0) : 0;
				value -= set >> l & 1 ? others[l] : 0;
			}
			value += free >= demand ? i ? 100 : 200 : fits && !i ? 50 : 0;
			if (!(set & ~usable) && __builtin_popcount(set) == n &&
			    (left ? free : holds) >= demand && value > best_value) {
				best = set;
				best_value = value;
			}
		}
	}
	return best;
}

/* Of each kind of tasks, how many are in each LLC, and promised to it; and the set as a mask. */
static void show(int i)
{
	printf("%-8s", nodes[i].step ?: "start");
	for (int k = 0; k < kinds; k++) {
		printf("  %d:", process[k]);
		for (int l = 0; l < llcs; l++)
			printf(" %d+%d", nodes[i].s.tasks[k][l], nodes[i].s.promised[k][l]);
		printf(" in %x", set_of(&nodes[i].s, k));
	}
	puts("");
}

static int visit(int i);

static void step(const char *what, const struct state *s, int *waits)
{
	int to = find(s), last = depth;

	if (nodes[to].color == OPEN) {
		puts("cycle");
		while (path[depth] != to)
			depth--;
		while (++depth <= last)
			show(path[depth]);
	}
	if (nodes[to].color != DONE)
		nodes[to].step = what;
	if (nodes[to].color == OPEN) {
		show(to);
		exit(0);
	}
	*waits = max(*waits, visit(to));
}

static void move(const char *what, struct state s, int k, int src, int dst, int *waits)
{
	s.tasks[k][src]--;
	s.tasks[k][dst]++;
	if (process[k] != OTHERS && s.promised[process[k]][dst])
		s.promised[process[k]][dst]--;
	step(what, &s, waits);
}

/* Take all steps from a state. Returns for how many of them a task waits. */
static int visit(int i)
{
	static struct state end;
	struct state s = nodes[i].s, then;
	bool waiting = false, quiet;
	int waits = -1;

	if (nodes[i].color == DONE)
		return nodes[i].waits;
	nodes[i].color = OPEN;
	path[++depth] = i;
	for (int k = 0; k < kinds; k++) {
		for (int src = 0; src < llcs; src++) {
			int to = gathers(&s, k, src);

			if (!s.tasks[k][src])
				continue;
			waiting |= in(&s, src, -1) > cores[src] && idle(&s, mask[k]);
			if (to >= 0)
				move("gather", s, k, src, to, &waits);
			for (int dst = 0; dst < llcs; dst++) {
				if (dst != src && balances(&s, k, src, dst))
					move("balance", s, k, src, dst, &waits);
			}
		}
	}
	quiet = waits < 0;
	for (int p = 0; p < kinds; p++) {
		int set = process[p] != p ? 0 : third ? decide_third(&s, p) : decide_second(&s, p);

		then = s;
		memset(then.promised[p], 0, sizeof(then.promised[p]));
		if ((quiet || !eager) && memcmp(&then, &s, sizeof(s)))
			step("decay", &then, &waits);
		if (set == s.set[p] || (s.set[p] && !quiet && !eager))
			continue;
		then.set[p] = set;
		for (int l = 0; l < llcs && third; l++) {
			int brings = in(&s, l, p) - in(&s, l, -1);

			for (int k = 0; k < kinds && set; k++)
				brings += process[k] == p ? count[k] / __builtin_popcount(set) : 0;
			then.promised[p][l] = set >> l & 1 ? max(brings, 0) : 0;
		}
		step("decide", &then, &waits);
	}
	if (waits < 0 && waiting) {
		puts("waits for ever");
		show(i);
		exit(0);
	}
	for (int p = 0; p < kinds && waits < 0 && ends; p++)
		differ += __builtin_popcount(s.set[p]) != __builtin_popcount(end.set[p]);
	if (waits < 0 && !ends++)
		end = s;
	depth--;
	nodes[i].color = DONE;
	nodes[i].waits = waiting ? max(waits, 0) + 1 : 0;
	most = max(most, nodes[i].waits);
	return nodes[i].waits;
}

static void place(struct state *s, int k, int llc, int n)
{
	if (llc < llcs) {
		for (int here = mask[k] >> llc & 1 ? n : 0; here >= 0; here--) {
			s->tasks[k][llc] = here;
			place(s, k, llc + 1, n - here);
		}
	} else if (!n && k + 1 < kinds) {
		place(s, k + 1, 0, count[k + 1]);
	} else if (!n) {
		visit(find(s));
	}
}

int main(int argc, char **argv)
{
	struct state s = { };

	third = argv[1][0] == '3';
	allowed = strchr(argv[1], 'a');
	eager = strchr(argv[1], 'e');
	left = strchr(argv[1], 'f');
	fits = strchr(argv[1], 'c');
	for (char *c = argv[2]; *c; c += *c == ',')
		cores[llcs++] = strtol(c, &c, 10);
	for (kinds = 0; kinds + 3 < argc; kinds++)
		sscanf(argv[kinds + 3], "%d:%d:%d", &process[kinds], &count[kinds], &mask[kinds]);
	place(&s, 0, 0, count[0]);
	printf("%d states, %d differ, wait %d\n", nr, differ, most);
	return 0;
}
