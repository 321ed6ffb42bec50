// SPDX-License-Identifier: GPL-2.0-only
/* Tasks for which it counts how late they run, and real-time threads. */
#include "workload.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

/* Until work that the kernel has put off is done. */
#define SETTLE_NS 20e6

/* ---- real-time threads ---- */

static double period_ns, first_ns;
static long periods;
static int cyclic_threads;
static bool lockstep;
static pthread_barrier_t all_there;
/* Summed over all threads and the periods that count; and how many threads are done. */
static _Atomic uint64_t late_ns;
static _Atomic int threads_done;

static void sleep_until(double ns)
{
	struct timespec t = { ns / 1e9, (uint64_t)ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void set_fifo(int priority)
{
	struct sched_param parameters = { .sched_priority = priority };

	if (sched_setscheduler(0, SCHED_FIFO, &parameters))
		err(1, "SCHED_FIFO");
}

static void *cyclic_task(void *argument)
{
	int number = (uintptr_t)argument;
	/* Where in the period the thread is due. */
	double phase = lockstep ? 0 : number * period_ns / cyclic_threads;
	uint64_t late = 0;
	long i;

	join(number, 0, number);
	begin_work();
	set_fifo(50);
	pthread_barrier_wait(&all_there);
	/* The first tenth of the periods is the warm-up. */
	for (i = -periods / 10; i < periods; i++) {
		double due = first_ns + phase + i * period_ns;

		sleep_until(due);
		if (i >= 0)
			late += now_ns() - due;
		while (now_ns() < due + period_ns / 10)
			;
	}
	late_ns += late;
	threads_done++;
	/* The exit of a thread interrupts all CPUs that have run the process, to flush their TLBs. */
	for (;;)
		pause();
	return NULL;
}

void cyclic(int threads, long period_us, long times, bool all_at_once)
{
	int i;

	expect_tasks(threads);
	period_ns = period_us * 1e3;
	periods = times;
	cyclic_threads = threads;
	lockstep = all_at_once;
	pthread_barrier_init(&all_there, NULL, threads + 1);
	for (i = 0; i < threads; i++) {
		start_thread(ANY, cyclic_task, (void *)(uintptr_t)i);
		sleep_us(random_number() % DELAY_US);
	}
	first_ns = now_ns() + SETTLE_NS + times / 10 * period_ns;
	WARM();
	pthread_barrier_wait(&all_there);
	sleep_until(first_ns - period_ns / 2);
	release();
	begin_region();
	while (threads_done < threads)
		sleep_us(period_us);
	end_region();
	printf("%.4f us\n", late_ns / 1e3 / threads / times);
}

/* ---- priority inversions as pi_stress has them ---- */

/* The priorities of a group's threads, and of the thread that has to run when a window ends. */
enum { LOW = 1, MEDIUM, HIGH, MEASURING };
#define EACH 3

/* owner: a PI futex: the id of the thread that has the lock, and a bit if others wait for it. */
struct inversion {
	ALIGNED _Atomic uint32_t owner;
	_Atomic bool resolved;
	pthread_barrier_t begun, locked;
};

static struct inversion *inversions;

static void lock_pi(_Atomic uint32_t *owner, uint32_t self)
{
	uint32_t unlocked = 0;

	if (!atomic_compare_exchange_strong(owner, &unlocked, self) &&
	    syscall(SYS_futex, owner, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0))
		err(1, "FUTEX_LOCK_PI");
}

static void unlock_pi(_Atomic uint32_t *owner, uint32_t self)
{
	if (!atomic_compare_exchange_strong(owner, &self, 0) &&
	    syscall(SYS_futex, owner, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0))
		err(1, "FUTEX_UNLOCK_PI");
}

static void *pi_task(void *argument)
{
	int number = (uintptr_t)argument, priority = LOW + number % EACH;
	struct inversion *self = &inversions[number / EACH];
	uint32_t id = syscall(SYS_gettid);

	join(number, number / EACH, number % EACH);
	begin_work();
	set_fifo(priority);
	for (;;) {
		pthread_barrier_wait(&self->begun);
		if (priority == LOW) {
			self->resolved = false;
			lock_pi(&self->owner, id);
		}
		pthread_barrier_wait(&self->locked);
		if (priority == MEDIUM) {
			/* LOW cannot run meanwhile. It does because it inherits the priority of HIGH. */
			while (!self->resolved)
				;
		} else if (priority == HIGH) {
			lock_pi(&self->owner, id);
			self->resolved = true;
			unlock_pi(&self->owner, id);
		} else {
			/* HIGH has run before, and waits. */
			if (!(self->owner & FUTEX_WAITERS))
				errx(1, "group %d: no inversion", number / EACH);
			unlock_pi(&self->owner, id);
		}
		progress(number);
	}
}

void priority_inversions(int groups, int step, long warm_ms, long ms)
{
	int order[MOST_TASKS], i, count = EACH * groups;

	expect_tasks(count);
	inversions = map(groups * sizeof(*inversions), MAP_PRIVATE);
	for (i = 0; i < groups; i++) {
		pthread_barrier_init(&inversions[i].begun, NULL, EACH);
		pthread_barrier_init(&inversions[i].locked, NULL, EACH);
	}
	shuffle(order, count);
	for (i = 0; i < count; i++)
		start_thread(spread_cpu(order[i] / EACH, step), pi_task, (void *)(uintptr_t)order[i]);
	set_fifo(MEASURING);
	measure(RATE, 1.0 / EACH, "inversions/ms", warm_ms, ms);
	need_all();
}

/* ---- wakeups as schbench has them ---- */

/* A worker waits for `woken` to become 1. */
struct worker {
	ALIGNED _Atomic uint32_t woken;
	double since;
	struct worker *next;
};

/* A messenger wakes the workers that have put themselves on its list; `asked` is 1 if some have. */
struct messenger {
	ALIGNED _Atomic uint32_t asked;
	_Atomic(struct worker *) list;
};

static struct messenger *all_messengers;
static struct worker *all_workers;
static int workers_each;
static double request_us;
static long pause_us_;

static void *messenger_task(void *argument)
{
	int number = (uintptr_t)argument;
	struct messenger *self = &all_messengers[number];
	struct worker *worker, *next;

	join(number * (workers_each + 1), 0, number * (workers_each + 1));
	begin_work();
	for (;;) {
		while (!atomic_exchange(&self->asked, 0))
			futex_wait(&self->asked, 0);
		for (worker = atomic_exchange(&self->list, NULL); worker; worker = next) {
			/* Once it is woken it puts itself on the list again. */
			next = worker->next;
			worker->since = now_ns();
			atomic_store(&worker->woken, 1);
			futex_wake(&worker->woken);
		}
	}
	return NULL;
}

static void ask(struct messenger *messenger, struct worker *worker)
{
	atomic_store(&worker->woken, 0);
	worker->next = atomic_load(&messenger->list);
	while (!atomic_compare_exchange_weak(&messenger->list, &worker->next, worker))
		;
	if (!atomic_exchange(&messenger->asked, 1))
		futex_wake(&messenger->asked);
}

static void *worker_task(void *argument)
{
	int number = (uintptr_t)argument, messenger = number / workers_each;
	int task = messenger * (workers_each + 1) + 1 + number % workers_each;
	struct worker *self = &all_workers[number];

	join(task, 0, task);
	begin_work();
	for (;;) {
		ask(&all_messengers[messenger], self);
		while (!atomic_load(&self->woken))
			futex_wait(&self->woken, 0);
		waited(task, now_ns() - self->since);
		compute_us(request_us);
		progress(task);
		if (pause_us_)
			sleep_us(pause_us_);
	}
	return NULL;
}

void wakeups(int messengers, int workers, double work, long pause_us, long warm_ms, long ms)
{
	int order[MOST_TASKS], i, count = messengers * workers;

	expect_tasks(messengers + count);
	calibrate();
	workers_each = workers;
	request_us = work;
	pause_us_ = pause_us;
	all_messengers = map(messengers * sizeof(*all_messengers), MAP_PRIVATE);
	all_workers = map(count * sizeof(*all_workers), MAP_PRIVATE);
	for (i = 0; i < messengers; i++)
		start_thread(ANY, messenger_task, (void *)(uintptr_t)i);
	shuffle(order, count);
	for (i = 0; i < count; i++)
		start_thread(ANY, worker_task, (void *)(uintptr_t)order[i]);
	measure(P99, 1, "us", warm_ms, ms);
}
