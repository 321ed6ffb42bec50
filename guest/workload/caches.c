// SPDX-License-Identifier: GPL-2.0-only
/* Loads that depend on each other, and lines that two CPUs write. */
#include "workload.h"

/* A line that two CPUs change by turns. */
static uint64_t *ball;

/*
 * Two counters in one line, each written by one CPU. The page belongs to the node of the CPU that touches it first,
 * and the program may have begun in another one: nothing else is to be there.
 */
static struct counters {
	uint64_t first, second;
	char rest[PAGE - 2 * sizeof(uint64_t)];
} counters __attribute__((aligned(PAGE)));

/* How often each of the two CPUs changes `ball`. */
static long times;

struct element {
	struct element *next;
	char rest[LINE - sizeof(struct element *)];
};

/* A hundred loads in a row, so that the loop around them does not count. */
#define LOADS_10(p) p = p->next; p = p->next; p = p->next; p = p->next; p = p->next; \
	p = p->next; p = p->next; p = p->next; p = p->next; p = p->next
#define LOADS_100(p) LOADS_10(p); LOADS_10(p); LOADS_10(p); LOADS_10(p); LOADS_10(p); \
	LOADS_10(p); LOADS_10(p); LOADS_10(p); LOADS_10(p); LOADS_10(p)

void chase(int cpu, int home, size_t kib, long loads)
{
	int count = (kib << 10) / LINE, i;
	volatile struct element *place;
	struct element *all;
	double begin;
	int *order = map(count * sizeof(*order), MAP_PRIVATE);

	restrict_cpus(home, home);
	all = map(kib << 10, MAP_PRIVATE);
	shuffle(order, count);
	for (i = 0; i < count; i++)
		all[order[i]].next = &all[order[(i + 1) % count]];
	restrict_cpus(cpu, cpu);
	place = &all[order[0]];
	WARM();
	/* Fill the caches, if the memory fits into one. */
	for (i = 0; i < 2 * count && kib <= 32 << 10; i++)
		place = place->next;
	begin_region();
	begin = now_ns();
	for (i = 0; i < loads / 100; i++) {
		LOADS_100(place);
	}
	begin = now_ns() - begin;
	end_region();
	printf("%.4f ns\n", begin / (loads / 100 * 100));
}

/* Change the line each time it is at `from`. */
static void bounce_from(uint64_t from)
{
	uint64_t seen;
	long i;

	for (i = 0; i < times; i++) {
		do {
			seen = from + 2 * i;
		} while (!__atomic_compare_exchange_n(ball, &seen, seen + 1, false,
						      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	}
}

static void *bounce_other(void *unused)
{
	bounce_from(1);
	return unused;
}

void bounce(int a, int b, long all, int home)
{
	double begin;

	/* The page belongs to the node of the CPU that touches it first. */
	restrict_cpus(home, home);
	ball = map(PAGE, MAP_PRIVATE);
	*ball = 0;
	restrict_cpus(a, a);
	WARM();
	times = all / 10;
	start_thread(b, bounce_other, NULL);
	bounce_from(0);
	while (__atomic_load_n(ball, __ATOMIC_SEQ_CST) != (uint64_t)(2 * times))
		;
	*ball = 0;
	times = all;
	start_thread(b, bounce_other, NULL);
	/* Let the other thread begin. */
	sleep_us(1000);
	begin_region();
	begin = now_ns();
	bounce_from(0);
	while (__atomic_load_n(ball, __ATOMIC_SEQ_CST) != (uint64_t)(2 * times))
		;
	begin = now_ns() - begin;
	end_region();
	printf("%.4f ns\n", begin / (2 * times));
}

static void __attribute__((noinline)) increment_second(void)
{
	__atomic_fetch_add(&counters.second, 1, __ATOMIC_SEQ_CST);
}

static void __attribute__((noinline)) increment_first(void)
{
	__atomic_fetch_add(&counters.first, 1, __ATOMIC_SEQ_CST);
}

static void *count_second(void *unused)
{
	for (;;)
		increment_second();
	return unused;
}

void count_both(int a, int b, long count)
{
	double begin;
	long i;

	restrict_cpus(a, a);
	WARM();
	start_thread(b, count_second, NULL);
	sleep_us(1000);
	begin_region();
	begin = now_ns();
	for (i = 0; i < count; i++)
		increment_first();
	begin = now_ns() - begin;
	end_region();
	printf("%.4f ns\n", begin / count);
}
