// SPDX-License-Identifier: GPL-2.0-only
/* Policies, cgroups, partitions and core scheduling beside threads of the fair class. */
#include "cases.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif
#ifndef PR_SCHED_CORE_CREATE
#define PR_SCHED_CORE_CREATE 1
#endif
/* The whole process. */
#define THREAD_GROUP 1

#define STEP_MS 0.5

static double duty, quota_ms;

/* Run `duty` percent of some 10 ms, again and again, and note how late it was done with that. */
static void *bursts(void *argument)
{
	struct seat *me = argument;
	unsigned int seed = me - board->seat + 77;

	for (;;) {
		double period = varied(10, &seed), busy = period * duty / 100, due = now() + period - busy, left;

		nap(due - now());
		for (double end = cpu_time() + busy; (left = end - cpu_time()) > 0;) {
			work(left < STEP_MS ? left : STEP_MS);
			here(me);
		}
		waited(me, now() - due - busy);
	}
	return NULL;
}

static int first_count, second_count;

/* ---- batch: seats of the batch process first ---- */

static void *batch_thread(void *argument)
{
	struct sched_param none = {};

	if (word(3, "nice") ? setpriority(PRIO_PROCESS, gettid(), 19)
			    : sched_setscheduler(0, word(3, "idle") ? SCHED_IDLE : SCHED_BATCH, &none))
		err(1, "%s", arguments[3]);
	return hog(argument);
}

void batch(void)
{
	struct looks looks;
	double before;

	first_count = number(0);
	second_count = number(1);
	duty = number(2);
	crew(0, batch_thread, 0, first_count);
	crew(1, bursts, first_count, second_count);
	nap(WARM_MS);
	before = used(0, first_count);
	board->measuring = 1;
	looks = look(0, first_count, measure_ms);
	board->measuring = 0;
	figure("cpus", looks.cpus);
	figure("batch", (used(0, first_count) - before) / looks.ms);
	figure("wait", wait_mean(first_count, second_count));
	figure("p99", wait_at(first_count, second_count, 0.99));
}

/* ---- quota: seats of the process with a quota first ---- */

static void quota_process(int count)
{
	if (!put("quota/cgroup.procs", "0"))
		err(1, "quota");
	threads(hog, 0, count);
}

/* A group whose processes have so much CPU time in each period. */
static void limited(const char *name, double ms, double period)
{
	char file[64], text[64];

	if (!put("cgroup.subtree_control", "+cpu"))
		err(1, "the cpu controller");
	directory(name);
	snprintf(file, sizeof(file), "%s/cpu.max", name);
	snprintf(text, sizeof(text), "%.0f %.0f", ms * 1e3, period * 1e3);
	if (ms && !put(file, text))
		err(1, "cpu.max");
}

void quota(void)
{
	double before, begin;

	first_count = number(0);
	quota_ms = number(1);
	second_count = number(3);
	duty = 60;
	limited("quota", quota_ms, number(2));
	seats(0, 0, first_count);
	process(quota_process, first_count);
	crew(1, bursts, first_count, second_count);
	nap(WARM_MS);
	before = used(0, first_count);
	begin = now();
	measure(0, first_count);
	figure("quota", (used(0, first_count) - before) / (now() - begin) / (quota_ms / number(2)));
	figure("wait", wait_mean(first_count, second_count));
	figure("p99", wait_at(first_count, second_count, 0.99));
}

/* ---- moved ---- */

/* How long it makes no progress in the cgroup without a limit, where it is since board->time, or not if that is 0. */
static void *sleeper(void *argument)
{
	struct seat *me = argument;

	for (;;) {
		double free_since, since;

		work(0.5);
		free_since = board->time;
		since = free_since > me->beat ? free_since : me->beat;
		if (free_since && now() - since > me->time)
			me->time = now() - since;
		here(me);
		if ((me - board->seat) % 2)
			nap(0.5);
	}
	return NULL;
}

void moved(void)
{
	double end, gap = 0;
	int moves = 0, never = 0;
	char pid[16];

	first_count = number(0);
	limited("small", 5, 50);
	limited("free", 0, 0);
	snprintf(pid, sizeof(pid), "%d", crew(0, sleeper, 0, first_count));
	nap(300);
	end = now() + measure_ms;
	while (now() < end) {
		double begin;

		if (!put("small/cgroup.procs", pid))
			err(1, "small");
		nap(number(1));
		if (!put("free/cgroup.procs", pid))
			err(1, "free");
		moves++;
		board->time = begin = now();
		nap(number(1));
		board->time = 0;
		/* Those that have not run again. */
		for (int i = 0; i < first_count; i++) {
			double last = board->seat[i].beat > begin ? board->seat[i].beat : begin;

			gap = now() - last > gap ? now() - last : gap;
			never += board->seat[i].beat < begin;
		}
	}
	for (int i = 0; i < first_count; i++)
		gap = board->seat[i].time > gap ? board->seat[i].time : gap;
	figure("moves", moves);
	figure("gap", gap);
	figure("never", never);
}

/* ---- partition: the process that is in it first, as large a one outside after it ---- */

static void partition_process(int first)
{
	if (!first && !put("cut/cgroup.procs", "0"))
		err(1, "cut");
	threads(hog, first, first_count);
}

void partition(void)
{
	int first = number(1), last = number(2), strays = 0;
	double inside, outside, begin, end;
	bool alone = !word(3, "member");
	char list[32];

	first_count = number(0);
	if (!put("cgroup.subtree_control", "+cpuset"))
		err(1, "the cpuset controller");
	directory("cut");
	snprintf(list, sizeof(list), "%d-%d", first, last);
	if (!put("cut/cpuset.cpus", list))
		err(1, "cpuset.cpus");
	seats(0, 0, first_count);
	seats(1, first_count, first_count);
	process(partition_process, 0);
	process(partition_process, first_count);
	nap(WARM_MS / 3);
	if (!put("cut/cpuset.cpus.partition", arguments[3]))
		err(1, "cpuset.cpus.partition");
	/* An invalid one is said to be so. */
	if (!has("cut/cpuset.cpus.partition", arguments[3]))
		errx(1, "there is no such partition");
	nap(WARM_MS);
	inside = used(0, first_count);
	outside = used(first_count, first_count);
	begin = now();
	end = begin + measure_ms;
	while (now() < end) {
		nap(10);
		for (int i = 0; i < 2 * first_count; i++) {
			bool in = board->seat[i].cpu >= first && board->seat[i].cpu <= last;

			strays += i < first_count ? !in : alone && in;
		}
	}
	end = now() - begin;
	figure("inside", (used(0, first_count) - inside) / end / first_count);
	figure("outside", (used(first_count, first_count) - outside) / end / first_count);
	figure("strays", strays);
}

/* ---- real-time: low priority first, high after it, normal threads last ---- */

static void *real_time_thread(void *argument)
{
	struct seat *me = argument;
	bool high = me - board->seat >= first_count;
	struct sched_param priority = { .sched_priority = high ? 50 : 10 };
	unsigned int seed = me - board->seat + 11;

	if (sched_setscheduler(0, SCHED_FIFO, &priority))
		err(1, "SCHED_FIFO");
	for (;;) {
		double period = varied(8, &seed), busy = period * (high ? 20 : 40) / 100, due = now() + period - busy;

		nap(due - now());
		work(busy);
		waited(me, now() - due - busy);
		here(me);
	}
	return NULL;
}

static void real_time_process(int normal)
{
	int real_time = first_count + second_count;

	for (int i = 0; i < real_time; i++)
		thread(real_time_thread, &board->seat[i]);
	threads(hog, real_time, normal);
	pause();
}

void real_time(void)
{
	struct sched_param above = { .sched_priority = 60 };
	int normal = number(2), all;
	double before, begin;

	first_count = number(0);
	second_count = number(1);
	all = first_count + second_count;
	seats(0, 0, all + normal);
	process(real_time_process, normal);
	/* What looks must not wait either. */
	if (sched_setscheduler(0, SCHED_FIFO, &above))
		err(1, "SCHED_FIFO");
	nap(WARM_MS);
	before = used(all, normal);
	begin = now();
	board->measuring = 1;
	nap(measure_ms);
	board->measuring = 0;
	figure("high", wait_mean(first_count, second_count));
	figure("longest", wait_at(first_count, second_count, 1));
	figure("low", wait_at(0, first_count, 0.99));
	figure("normal", (used(all, normal) - before) / (now() - begin));
}

/* ---- cookies: processes that must not share a core ---- */

static void cookie_process(int which)
{
	if (prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0, THREAD_GROUP, 0))
		err(1, "core scheduling");
	threads(hog, which * second_count, second_count);
}

void cookies(void)
{
	double before, least = 0, all, was[MOST_SEATS];
	struct looks looks;

	first_count = number(0);
	second_count = number(1);
	for (int i = 0; i < first_count; i++) {
		seats(i, i * second_count, second_count);
		process(cookie_process, i);
	}
	nap(WARM_MS);
	before = used(0, first_count * second_count);
	for (int i = 0; i < first_count; i++)
		was[i] = used(i * second_count, second_count);
	looks = look(0, first_count * second_count, measure_ms);
	all = used(0, first_count * second_count) - before;
	for (int i = 0; i < first_count; i++) {
		double mine = used(i * second_count, second_count) - was[i];

		least = !i || mine < least ? mine : least;
	}
	figure("cpus", all / looks.ms);
	figure("least", least * first_count / all);
	figure("together", looks.together);
}

/* ---- build: makes, which have the first seats, run one compiler after the other beside a service ---- */

static void make_process(int seat)
{
	struct seat *me = &board->seat[seat];
	unsigned int seed = seat + 5;

	for (;;) {
		pid_t compiler = fork();
		double ms = varied(quota_ms, &seed);

		if (compiler < 0)
			err(1, "fork");
		if (!compiler) {
			work(ms);
			_exit(0);
		}
		waitpid(compiler, NULL, 0);
		here(me);
	}
}

void build(void)
{
	first_count = number(0);
	quota_ms = number(1);
	second_count = number(2);
	duty = 30;
	for (int i = 0; i < first_count; i++) {
		seats(1 + i, i, 1);
		process(make_process, i);
	}
	crew(0, bursts, first_count, second_count);
	measure(first_count, second_count);
	figure("compiled", done(0, first_count));
	figure("wait", wait_mean(first_count, second_count));
	figure("p99", wait_at(first_count, second_count, 0.99));
}

/* ---- mixed: processes of LEAST, LEAST + 1, ... MOST, LEAST, ... threads ---- */

static int threads_of(int process)
{
	return first_count + process % (second_count - first_count + 1);
}

/* Start as many processes as the first argument says; give the number of their threads. */
static int start_mixed(void *(*function)(void *))
{
	int processes = number(0), all = 0;

	first_count = number(1);
	second_count = number(2);
	if (processes > MOST_PROCESSES || first_count < 1 || second_count < first_count)
		errx(2, "no such processes");
	for (int i = 0; i < processes; i++) {
		fewest[i] = llcs_for(threads_of(i) * duty / 100);
		crew(i, function, all, threads_of(i));
		all += threads_of(i);
	}
	return all;
}

void mixed(void)
{
	struct looks looks;
	int all;

	duty = number(3);
	all = start_mixed(bursts);
	looks = measure(0, all);
	figure("together", looks.together);
	figure("migrations", llc_changes(0, all) * 1e3 / looks.ms);
	figure("p99", wait_at(0, all, 0.99));
}

/* ---- starts: processes as those of mixed, which start at the same time and run without end ---- */

/* How long ago the load of the LLC was published that is the stalest of those with a seat, in ms. */
static double stalest(int all)
{
	unsigned int age, most = 0;
	char line[4096];
	FILE *file = fopen("/sys/kernel/debug/sched/llc_balancing/llcs", "r");
	bool any = false;
	int cpu;

	if (!file)
		err(1, "llcs");
	while (fgets(line, sizeof(line), file)) {
		/* Its second number is the first CPU, and the last one the age. */
		if (sscanf(line, "%*d %d", &cpu) != 1 || sscanf(strrchr(line, ' '), "%u", &age) != 1)
			continue;
		for (int i = 0; i < all; i++) {
			if (board->seat[i].cpu >= 0 && llc_of(board->seat[i].cpu) == llc_of(cpu)) {
				any = true;
				most = age > most ? age : most;
			}
		}
	}
	fclose(file);
	if (!any)
		errx(1, "llcs: no age");
	return most;
}

void starts(void)
{
	double begin = now(), settled = 0;
	struct looks looks;
	int all;

	duty = 100;
	board->measuring = 1;
	all = start_mixed(hog);
	do {
		looks = look(0, all, 0);
		if (looks.together < 100)
			settled = now() - begin;
	} while (now() - begin < measure_ms);
	figure("settled", settled);
	figure("together", looks.together);
	figure("moves", llc_changes(0, all));
	figure("age", stalest(all));
}
