// SPDX-License-Identifier: GPL-2.0-only
/* Tasks that send each other messages through pipes and sockets. */
#include "workload.h"

#include <poll.h>
#include <sys/socket.h>

/* Bytes of hackbench's messages. */
#define MESSAGE 100
/* About as long as the processes of a pipeline had in the first results: 1 us at 3.5 GHz. */
#define STAGE_STEPS 1000

static void receive(int fd, size_t bytes)
{
	char message[MESSAGE];
	ssize_t got;

	while (bytes) {
		got = read(fd, message, bytes < MESSAGE ? bytes : MESSAGE);
		if (got <= 0)
			err(1, "read");
		bytes -= got;
	}
}

static void deliver(int fd, size_t bytes)
{
	static const char message[MESSAGE];
	ssize_t sent;

	while (bytes) {
		sent = write(fd, message, bytes < MESSAGE ? bytes : MESSAGE);
		if (sent <= 0)
			err(1, "write");
		bytes -= sent;
	}
}

static void make_pipe(int ends[2])
{
	if (pipe(ends))
		err(1, "pipe");
}

void ping_pong(int a, int b, long times)
{
	int there[2], back[2], i;
	double begin = 0;

	make_pipe(there);
	make_pipe(back);
	if (!start_process()) {
		restrict_cpus(b, b);
		for (;;) {
			receive(there[0], 1);
			deliver(back[1], 1);
		}
	}
	restrict_cpus(a, a);
	WARM();
	for (i = 0; i < times + times / 10; i++) {
		if (i == times / 10) {
			begin_region();
			begin = now_ns();
		}
		deliver(there[1], 1);
		receive(back[0], 1);
	}
	begin = now_ns() - begin;
	end_region();
	printf("%.4f ns\n", begin / times);
}

/* ---- hackbench ---- */

/* The channel of each receiver of a group: where it reads, and where the senders write. */
struct group {
	int *in, *out;
};

static const struct messages *plan;
static struct group *all_groups;
/* Tasks write into `ready` and `done`; `go` becomes readable when they are to begin. */
static int ready[2], go[2], done[2];
/* Tasks go on sending after plan->loops, and receivers count. */
static bool endless;

/* Task `number`: the senders of a group come first, then its receivers. */
static void *message_task(void *argument)
{
	int number = (uintptr_t)argument, each = 2 * plan->pairs, pair = number % plan->pairs, i, j;
	bool sends = number % each < plan->pairs;
	const struct group *group = &all_groups[number / each];
	struct pollfd wait = { go[0], POLLIN, 0 };

	join(number, number / each, number % each);
	set_slice(plan->slice_us * 1000);
	begin_work();
	deliver(ready[1], 1);
	if (poll(&wait, 1, -1) != 1)
		err(1, "poll");
	for (i = 0; endless || i < plan->loops; i++)
		for (j = 0; j < plan->pairs; j++) {
			if (sends) {
				deliver(group->out[j], MESSAGE);
				continue;
			}
			receive(group->in[pair], MESSAGE);
			if (endless)
				progress(number);
		}
	deliver(done[1], 1);
	return NULL;
}

static void connect_all(struct group *group)
{
	int ends[2], i;

	group->in = calloc(plan->pairs, sizeof(int));
	group->out = calloc(plan->pairs, sizeof(int));
	if (!group->in || !group->out)
		err(1, "calloc");
	for (i = 0; i < plan->pairs; i++) {
		if (plan->sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends))
			err(1, "no channel");
		group->in[i] = ends[0];
		group->out[i] = ends[1];
	}
}

/* Start a process with a thread for each task of a group. */
static void start_group(int group, const int *order)
{
	int each = 2 * plan->pairs, i;

	if (start_process())
		return;
	for (i = 1; i < each; i++)
		start_thread(ANY, message_task, (void *)(uintptr_t)(group * each + order[i]));
	message_task((void *)(uintptr_t)(group * each + order[0]));
	pthread_exit(NULL);
}

/* Start all tasks, which then wait for `go`; give how many they are. */
static int start_tasks(const struct messages *given)
{
	int count = given->groups * given->pairs * 2, i, order[MOST_TASKS];

	plan = given;
	if (count > MOST_TASKS)
		errx(2, "%d tasks, more than %d", count, MOST_TASKS);
	restrict_cpus(given->first, given->last);
	expect_tasks(count);
	allow_files(2 * MOST_TASKS);
	make_pipe(ready);
	make_pipe(go);
	make_pipe(done);
	all_groups = calloc(given->groups, sizeof(*all_groups));
	if (!all_groups)
		err(1, "calloc");
	for (i = 0; i < given->groups; i++)
		connect_all(&all_groups[i]);
	if (given->how == GROUPS) {
		for (i = 0; i < given->groups; i++) {
			shuffle(order, 2 * given->pairs);
			start_group(i, order);
		}
	} else {
		shuffle(order, count);
		for (i = 0; i < count; i++) {
			void *number = (void *)(uintptr_t)order[i];

			if (given->how == THREADS) {
				start_thread(ANY, message_task, number);
			} else if (!start_process()) {
				message_task(number);
				_exit(0);
			}
		}
	}
	receive(ready[0], count);
	/* Let the last of them go to sleep in poll(). */
	sleep_us(1000 + random_number() % DELAY_US);
	return count;
}

void messages(const struct messages *given)
{
	int count = start_tasks(given);
	double begin;

	release();
	WARM();
	sleep_us(200);
	begin_region();
	begin = now_ns();
	deliver(go[1], 1);
	receive(done[0], count);
	begin = now_ns() - begin;
	end_region();
	printf("%.6f ms\n", begin / 1e6);
}

void rate(const struct messages *given, long warm_ms, long ms)
{
	endless = true;
	start_tasks(given);
	deliver(go[1], 1);
	measure(RATE, 1, "messages/ms", warm_ms, ms);
}

/* ---- a pipeline ---- */

static int stage_in, stage_out, stage_lane, stage_number, stage_count;

/* Take a message, do some work on it, and hand it on. */
static void *stage(void *second)
{
	volatile uint64_t work = 1;
	int i;

	join((stage_lane * stage_count + stage_number) * 2 + !!second, stage_lane, stage_number);
	begin_work();
	for (;;) {
		receive(stage_in, 1);
		for (i = 0; i < STAGE_STEPS; i++)
			work = work * 6364136223846793005u + 1;
		deliver(stage_out, 1);
	}
	return NULL;
}

/* Take a message from the end of each lane and put it into the begin. */
static void turn_lanes(const int *first, const int *last, int lanes)
{
	int lane;

	for (lane = 0; lane < lanes; lane++) {
		receive(last[lane], 1);
		deliver(first[lane], 1);
	}
}

void pipeline(int lanes, int stages, long count, long warm_ms, bool joined)
{
	int first[MOST_TASKS], last[MOST_TASKS], order[MOST_TASKS], ends[2], i, j, lane;
	double begin;

	expect_tasks(lanes * stages * 2);
	allow_files(lanes * (stages + 1) * 2 + 16);
	stage_count = stages;
	shuffle(order, lanes);
	for (i = 0; i < lanes; i++) {
		lane = order[i];
		make_pipe(ends);
		first[lane] = ends[1];
		for (j = 0; j < stages; j++) {
			stage_in = ends[0];
			make_pipe(ends);
			stage_out = ends[1];
			stage_lane = lane;
			stage_number = j;
			if (!start_process()) {
				scatter();
				if (joined)
					join_processes(lane);
				start_thread(ANY, stage, &stage_number);
				stage(NULL);
			}
		}
		last[lane] = ends[0];
		/* A message for each of the two threads of a stage. */
		deliver(first[lane], 2);
	}
	wait_for_tasks();
	begin = now_ns();
	WARM();
	while (now_ns() - begin < warm_ms * 1e6)
		turn_lanes(first, last, lanes);
	release();
	begin_region();
	begin = now_ns();
	for (i = 0; i < count; i++)
		turn_lanes(first, last, lanes);
	begin = now_ns() - begin;
	end_region();
	printf("%.6f ms\n", begin / 1e6);
}

/* ---- requests and responses ---- */

static int (*pair_ends)[2], pair_count;
static double request_work_us;
static uint64_t request_slice_ns;
static bool group_of_two;

/* The client of pair n is task 2 n, its server task 2 n + 1. */
static void join_pair(int pair, int server)
{
	join(2 * pair + server, group_of_two ? pair : 0, group_of_two ? server : 2 * pair + server);
	set_slice(request_slice_ns);
	begin_work();
}

static void *client(void *argument)
{
	int pair = (uintptr_t)argument, number = 2 * pair;
	double begin;

	join_pair(pair, 0);
	for (;;) {
		begin = now_ns();
		deliver(pair_ends[pair][0], 1);
		receive(pair_ends[pair][0], 1);
		waited(number, now_ns() - begin);
		progress(number);
	}
	return NULL;
}

static void *server(void *argument)
{
	int pair = (uintptr_t)argument;

	join_pair(pair, 1);
	for (;;) {
		receive(pair_ends[pair][1], 1);
		compute_us(request_work_us);
		deliver(pair_ends[pair][1], 1);
	}
	return NULL;
}

/* Run a function for each pair in threads of a process of its own. */
static void start_side(void *(*function)(void *), const int *order)
{
	int i;

	if (start_process())
		return;
	for (i = 1; i < pair_count; i++)
		start_thread(ANY, function, (void *)(uintptr_t)order[i]);
	function((void *)(uintptr_t)order[0]);
}

void request_response(int pairs, double work, long warm_ms, long ms, enum how how, int first, int last,
		      long slice_us)
{
	void *(*side[])(void *) = { client, server };
	int order[MOST_TASKS], i;

	restrict_cpus(first, last);
	expect_tasks(2 * pairs);
	allow_files(2 * pairs + 16);
	calibrate();
	pair_count = pairs;
	request_work_us = work;
	request_slice_ns = slice_us * 1000;
	group_of_two = how == PROCESSES;
	pair_ends = calloc(pairs, sizeof(*pair_ends));
	if (!pair_ends)
		err(1, "calloc");
	for (i = 0; i < pairs; i++)
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair_ends[i]))
			err(1, "socketpair");
	if (how == CLIENT_SERVER) {
		shuffle(order, pairs);
		start_side(server, order);
		start_side(client, order);
	} else {
		/* Even numbers are clients. */
		shuffle(order, 2 * pairs);
		for (i = 0; i < 2 * pairs; i++) {
			void *pair = (void *)(uintptr_t)(order[i] / 2);

			if (how == THREADS)
				start_thread(ANY, side[order[i] % 2], pair);
			else if (!start_process())
				side[order[i] % 2](pair);
		}
	}
	measure(RATE, 1, "requests/ms", warm_ms, ms);
}
