// SPDX-License-Identifier: GPL-2.0-only
/* Threads of a process that divide work: games, collectors, pools, services, numerical code, inference. */
#include "cases.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

static int first_count, second_count;
static double work_ms, other_ms;

/* ---- frame: a leader, seat 0, and workers ---- */

static volatile int frames, left;

static void *frame_worker(void *argument)
{
	struct seat *me = argument;
	unsigned int seed = me - board->seat;
	int seen = 0;

	for (;;) {
		seen = await(&frames, seen);
		me->time = varied(work_ms, &seed);
		work(me->time);
		here(me);
		count_down(&left);
	}
	return NULL;
}

static void frame_process(int workers)
{
	struct seat *me = board->seat;
	double next = now();

	for (int i = 1; i <= workers; i++)
		thread(frame_worker, &board->seat[i]);
	for (;;) {
		double begin = now(), longest = work_ms;

		left = workers;
		release(&frames);
		work(work_ms);
		here(me);
		wait_zero(&left);
		for (int i = 1; i <= workers; i++)
			if (board->seat[i].time > longest)
				longest = board->seat[i].time;
		waited(me, now() - begin - longest);
		next += other_ms;
		if (next > now())
			nap(next - now());
		else
			next = now();
	}
}

void frame(void)
{
	int workers = number(0);
	struct looks looks;

	work_ms = number(1);
	other_ms = number(2);
	seats(0, 0, workers + 1);
	process(frame_process, workers);
	looks = measure(0, workers + 1);
	figure("frames", done(0, 1));
	figure("beyond", wait_mean(0, 1));
	figure("p99", wait_at(0, 1, 0.99));
	figure("together", looks.together);
}

/* ---- collector: mutators in pairs hand on a token; seats after them are workers ---- */

/* Odd: the mutators stop. */
static volatile int collecting;
static volatile int parked, chunks, phase;

static void *mutator(void *argument)
{
	struct seat *me = argument, *partner = &board->seat[(me - board->seat) ^ 1];
	int seen;

	for (;;) {
		await(&me->word, 0);
		me->word = 0;
		while ((seen = collecting) & 1) {
			__sync_fetch_and_add(&parked, 1);
			await(&collecting, seen);
			__sync_fetch_and_sub(&parked, 1);
		}
		work(0.5);
		here(me);
		release(&partner->word);
	}
	return NULL;
}

static void *collector_worker(void *argument)
{
	struct seat *me = argument;
	int seen = 0;

	for (;;) {
		seen = await(&phase, seen);
		me->word = 0;
		while (__sync_sub_and_fetch(&chunks, 1) >= 0) {
			work(1);
			me->word = 1;
			here(me);
		}
		count_down(&left);
	}
	return NULL;
}

static void collector_process(int all)
{
	struct seat *me = &board->seat[first_count + second_count];

	for (int i = 0; i < first_count; i++)
		thread(mutator, &board->seat[i]);
	for (int i = first_count; i < first_count + second_count; i++)
		thread(collector_worker, &board->seat[i]);
	for (int i = 0; i < first_count; i += 2)
		release(&board->seat[i].word);
	for (;;) {
		bool seen[CPU_SETSIZE] = {};
		double begin;
		int cpus = 0;

		nap(other_ms);
		__sync_fetch_and_add(&collecting, 1);
		while (parked < first_count / 2)
			nap(0.1);
		begin = now();
		chunks = all;
		left = second_count;
		release(&phase);
		wait_zero(&left);
		waited(me, now() - begin);
		for (int i = first_count; i < first_count + second_count; i++)
			if (board->seat[i].word && !seen[board->seat[i].cpu]) {
				seen[board->seat[i].cpu] = true;
				cpus++;
			}
		if (board->measuring)
			me->time += cpus;
		here(me);
		release(&collecting);
	}
}

void collector(void)
{
	int main_seat;

	first_count = number(0);
	second_count = number(1);
	other_ms = number(2);
	main_seat = first_count + second_count;
	seats(0, 0, main_seat + 1);
	process(collector_process, number(3));
	measure(0, first_count);
	figure("pause", wait_mean(main_seat, 1));
	figure("longest", wait_at(main_seat, 1, 1));
	figure("cpus", board->seat[main_seat].time / board->seat[main_seat].waits);
	figure("operations", done(0, first_count));
}

/* ---- pool: workers ask one of some messengers, which wakes all that have asked ---- */

static void *pool_worker(void *argument)
{
	struct seat *me = argument;
	int messenger = (me - board->seat) / second_count;
	volatile int *asked = &board->words[messenger];
	unsigned int seed = me - board->seat + 1;

	for (;;) {
		me->word = 0;
		release(asked);
		await(&me->word, 0);
		waited(me, now() - me->time);
		work(varied(work_ms, &seed));
		here(me);
		nap(varied(other_ms, &seed));
	}
	return NULL;
}

static void *messenger(void *argument)
{
	long which = (long)argument;
	int seen = 0;

	for (;;) {
		seen = await(&board->words[which], seen);
		for (int i = which * second_count; i < (which + 1) * second_count; i++)
			if (!board->seat[i].word) {
				board->seat[i].time = now();
				release(&board->seat[i].word);
			}
	}
	return NULL;
}

static void pool_process(int workers)
{
	/* Those that have not asked yet are not woken. */
	for (int i = 0; i < workers; i++)
		board->seat[i].word = 1;
	for (long i = 0; i < first_count; i++)
		thread(messenger, (void *)i);
	threads(pool_worker, 0, workers);
}

void pool(void)
{
	int workers;

	first_count = number(0);
	second_count = number(1);
	work_ms = number(2);
	other_ms = number(3);
	workers = first_count * second_count;
	if (first_count > 16)
		errx(2, "more than 16 messengers");
	seats(0, 0, workers);
	process(pool_process, workers);
	figure("together", measure(0, workers).together);
	figure("requests", done(0, workers));
	figure("wait", wait_mean(0, workers));
	figure("p99", wait_at(0, workers, 0.99));
}

/* ---- instances: a main thread and helpers in each process; the main threads have the first seats ---- */

static void *helper(void *argument)
{
	struct seat *me = argument;
	int seen = 0;

	for (;;) {
		seen = await(&frames, seen);
		work(work_ms);
		here(me);
		count_down(&left);
	}
	return NULL;
}

static void instance(int which)
{
	struct seat *me = &board->seat[which], *helpers = &board->seat[first_count + which * second_count];
	unsigned int seed = which + 9;

	for (int i = 0; i < second_count; i++)
		thread(helper, helpers + i);
	for (;;) {
		double begin = now();

		left = second_count;
		release(&frames);
		work(work_ms);
		wait_zero(&left);
		here(me);
		waited(me, now() - begin - work_ms);
		nap(varied(other_ms, &seed));
	}
}

void instances(void)
{
	int all;
	long least = 0, most = 0;
	struct looks looks;

	first_count = number(0);
	second_count = number(1);
	work_ms = number(2);
	other_ms = number(3);
	all = first_count * (second_count + 1);
	for (int i = 0; i < first_count; i++) {
		seats(i, i, 1);
		seats(i, first_count + i * second_count, second_count);
		process(instance, i);
	}
	looks = measure(0, all);
	for (int i = 0; i < first_count; i++) {
		long batches = done(i, 1);

		least = !i || batches < least ? batches : least;
		most = batches > most ? batches : most;
	}
	figure("batches", done(0, first_count));
	figure("least", most ? 1.0 * least / most : 0);
	figure("delay", wait_mean(0, first_count));
	figure("p99", wait_at(0, first_count, 0.99));
	figure("together", looks.together);
}

/* ---- barriers: threads that yield until all have arrived ---- */

static volatile int arrived, generation;

static bool arrive(int all, bool yield)
{
	int before = generation;

	if (__sync_add_and_fetch(&arrived, 1) == all) {
		arrived = 0;
		__sync_fetch_and_add(&generation, 1);
		return true;
	}
	while (generation == before) {
		for (volatile int i = 0; i < (yield ? 100 : 20); i++)
			;
		if (yield)
			sched_yield();
	}
	return false;
}

static void *barrier_thread(void *argument)
{
	struct seat *me = argument;
	double last = now();

	for (;;) {
		work(work_ms);
		here(me);
		arrive(first_count, true);
		if (me == board->seat) {
			waited(me, now() - last);
			last = now();
		}
	}
	return NULL;
}

void barriers(void)
{
	int others = number(2);
	struct looks looks;

	first_count = number(0);
	work_ms = number(1);
	crew(0, barrier_thread, 0, first_count);
	for (int i = 0; i < others; i++)
		crew(i + 1, hog, first_count + i, 1);
	looks = measure(0, first_count);
	figure("phases", done(0, 1));
	figure("p99", wait_at(0, 1, 0.99));
	figure("longest", wait_at(0, 1, 1));
	figure("together", looks.together);
}

/* ---- model: all read the same memory, write a little, and meet ---- */

#define PAGE 4096

static volatile char *model_memory, hot[1 << 16];
static size_t model_bytes;

static void *model_thread(void *argument)
{
	struct seat *me = argument;
	unsigned int seed = me - board->seat + 1;

	for (;;) {
		for (int i = 0; i < 300; i++) {
			seed = seed * 1103515245 + 12345;
			hot[seed >> 16] += model_memory[(seed >> 4) * (size_t)PAGE % model_bytes];
		}
		here(me);
		arrive(first_count, false);
	}
	return NULL;
}

static void model_process(int count)
{
	bool file = word(2, "file");
	int fd = -1;

	if (file) {
		/* Pages of ramfs belong to a file for all that counts them. Those of tmpfs do not. */
		mkdir("/model", 0755);
		if (mount("model", "/model", "ramfs", 0, NULL))
			err(1, "ramfs");
		fd = open("/model/model", O_RDWR | O_CREAT, 0600);
		if (fd < 0 || ftruncate(fd, model_bytes))
			err(1, "model");
	}
	model_memory = mmap(NULL, model_bytes, PROT_READ | PROT_WRITE,
			    (file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE, fd, 0);
	if (model_memory == MAP_FAILED)
		err(1, "memory");
	for (size_t i = 0; i < model_bytes; i += PAGE)
		model_memory[i] = 1;
	if (file) {
		unlink("/model/model");
		umount2("/model", MNT_DETACH);
	}
	threads(model_thread, 0, count);
}

void model(void)
{
	struct looks looks;

	first_count = number(0);
	model_bytes = (size_t)number(1) << 20;
	seats(0, 0, first_count);
	process(model_process, first_count);
	looks = measure(0, first_count);
	figure("rounds", done(0, 1));
	figure("together", looks.together);
	figure("stacked", looks.stacked);
}

/* Take one of what release() has given. */
static void wait_more(volatile int *word)
{
	await(word, 0);
	__sync_fetch_and_sub(word, 1);
}

/* Only the thread before it does. */
static void hand_to(struct seat *seat)
{
	seat->handed[seat->nr_handed++ % 16] = now();
	release(&seat->word);
}

/* ---- stages: threads that hand on a token in turn, half as many tokens as threads ---- */

static void *stage(void *argument)
{
	struct seat *me = argument, *next = &board->seat[(me - board->seat + 1) % first_count];
	unsigned int taken = 0;

	for (;;) {
		wait_more(&me->word);
		waited(me, now() - me->handed[taken++ % 16]);
		work(work_ms);
		here(me);
		hand_to(next);
	}
	return NULL;
}

static void stages_process(int count)
{
	for (int i = 0; i < count; i += 2)
		hand_to(&board->seat[i]);
	threads(stage, 0, count);
}

void stages(void)
{
	struct looks looks;

	first_count = number(0);
	work_ms = number(1);
	seats(0, 0, first_count);
	process(stages_process, first_count);
	looks = measure(0, first_count);
	figure("hops", done(0, first_count));
	figure("migrations", llc_changes(0, first_count) * 1e3 / looks.ms);
	figure("p99", wait_at(0, first_count, 0.99));
	figure("together", looks.together);
}

/* ---- lock: threads that take one mutex again and again ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *locker(void *argument)
{
	struct seat *me = argument;
	unsigned int seed = me - board->seat + 3;

	for (;;) {
		double begin = now();

		pthread_mutex_lock(&mutex);
		waited(me, now() - begin);
		work(work_ms);
		pthread_mutex_unlock(&mutex);
		here(me);
		work(varied(other_ms, &seed));
	}
	return NULL;
}

void contended(void)
{
	first_count = number(0);
	work_ms = number(1);
	other_ms = number(2);
	crew(0, locker, 0, first_count);
	measure(0, first_count);
	figure("turns", done(0, first_count));
	figure("p99", wait_at(0, first_count, 0.99));
}

/* ---- spinning: threads that compute ---- */

void spinning(void)
{
	double before, least = 0;
	struct looks looks;

	first_count = number(0);
	crew(0, hog, 0, first_count);
	nap(WARM_MS);
	before = used(0, first_count);
	for (int i = 0; i < first_count; i++)
		board->seat[i].time = board->seat[i].used;
	looks = look(0, first_count, measure_ms);
	for (int i = 0; i < first_count; i++) {
		double mine = board->seat[i].used - board->seat[i].time;

		least = !i || mine < least ? mine : least;
	}
	figure("cpus", (used(0, first_count) - before) / looks.ms);
	figure("least", least * first_count / (used(0, first_count) - before));
	figure("llcs", looks.llcs);
}
