// SPDX-License-Identifier: GPL-2.0-only
/*
 * What cache_choose() of cache_math.h picks, and how many LLCs it looks at: the header has to count them in `looks`.
 *
 * usage: choices STATES
 *
 * Prints a number that depends on all picks in so many random states, and the looks with 24 LLCs, of which none and 4
 * have room, for 2 threads and for 8.
 */
static unsigned long looks;
#include "shim.h"

enum { MOST = 24 };

static struct cache_option options[MOST];
static u64 state;

/* From 0 to @most, all alike. */
static u64 even(u64 most)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (state ^ state >> 29) % (most + 1);
}

static u64 pick_any(void)
{
	struct cache_demand demand = { even(40 * CACHE_ONE), even(40), even(1), even(1), even(3) };
	u64 room = even(2) * even(12) * CACHE_ONE, found;
	int nr = 1 + even(MOST - 1);
	struct cache_sum sum;

	for (int i = 0; i < nr; i++) {
		u16 cores = 1 + even(15);

		options[i] = (struct cache_option) {
			.cpus = cores * (1 + even(1)), .cores = cores, .distance = 10 * (1 + even(2)),
			.usable = even(7), .chosen = !even(3), .room = even(room), .bias = even(2048),
			.bytes = 1 << 20,
		};
	}
	found = cache_choose(options, nr, &demand, cache_set_most(nr), &sum);
	for (int i = 0; i < nr; i++)
		found = found << 1 ^ found >> 63 ^ options[i].picked;

	return found;
}

static unsigned long looks_at(int with_room, int threads)
{
	struct cache_demand demand = { .average = threads * CACHE_ONE, .threads = threads, .tolerance = 1 };
	struct cache_sum sum;

	for (int i = 0; i < MOST; i++)
		options[i] = (struct cache_option) {
			.cpus = 16, .cores = 8, .distance = i < MOST / 2 ? 10 : 32, .usable = true,
			.room = i < with_room ? CACHE_ONE : 0, .bytes = 1 << 20,
		};
	looks = 0;
	cache_choose(options, MOST, &demand, cache_set_most(MOST), &sum);

	return looks;
}

int main(int argc, char **argv)
{
	u64 all = 0;

	for (long i = argc > 1 ? atol(argv[1]) : 0; i; i--)
		all = all * 31 + pick_any();
	printf("%llu", (unsigned long long)all);
	printf(" %lu %lu\n", looks_at(0, 2), looks_at(4, 8));
}
