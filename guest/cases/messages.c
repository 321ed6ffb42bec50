// SPDX-License-Identifier: GPL-2.0-only
/* Messages: hackbench, pipes, requests over sockets, and a periodic thread beside them. */
#include "cases.h"
#include "../attributes.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define MOST_SOCKETS 128
#define MESSAGE 100

static int sockets[MOST_SOCKETS][2];
static int pairs;
static double work_ms, slice_ms;

static void open_sockets(int count, int type)
{
	if (count > MOST_SOCKETS)
		errx(2, "more than %d sockets", MOST_SOCKETS);
	for (int i = 0; i < count; i++)
		if (socketpair(AF_UNIX, type, 0, sockets[i]))
			err(1, "a socket");
}

/* Have the calling thread use slices of its own, if they are not 0. */
static void set_slice(double ms)
{
	struct attributes attributes = { .size = sizeof(attributes), .runtime = ms * 1e6 };

	if (ms > 0 && syscall(SYS_sched_setattr, 0, &attributes, 0))
		err(1, "a slice");
}

/* ---- hackbench: in each group, senders have the first seats, receivers those after them ---- */

static void *sender(void *argument)
{
	struct seat *me = argument;
	int first = (me - board->seat) / (2 * pairs) * pairs;
	char message[MESSAGE] = {};

	set_slice(slice_ms);
	for (;;)
		for (int i = first; i < first + pairs; i++) {
			if (write(sockets[i][0], message, sizeof(message)) != sizeof(message))
				err(1, "send");
			here(me);
		}
	return NULL;
}

static void *receiver(void *argument)
{
	struct seat *me = argument;
	int nr = me - board->seat, mine = nr / (2 * pairs) * pairs + nr % pairs;
	char message[MESSAGE];

	set_slice(slice_ms);
	for (;;) {
		if (read(sockets[mine][1], message, sizeof(message)) != sizeof(message))
			err(1, "receive");
		here(me);
	}
	return NULL;
}

static void start_group(int group)
{
	for (int i = group * 2 * pairs; i < group * 2 * pairs + pairs; i++) {
		thread(sender, &board->seat[i]);
		thread(receiver, &board->seat[i + pairs]);
	}
}

static void groups_process(int groups)
{
	for (int i = 0; i < groups; i++)
		start_group(i);
	for (;;)
		pause();
}

/* The groups are what is to be in one LLC, whatever processes they are of. */
static void start_groups(int groups, bool in_threads)
{
	open_sockets(groups * pairs, SOCK_SEQPACKET);
	for (int group = 0; group < groups; group++)
		seats(group, group * 2 * pairs, 2 * pairs);
	if (in_threads)
		process(groups_process, groups);
	for (int i = 0; i < groups * 2 * pairs && !in_threads; i++)
		crew(i / pairs / 2, i / pairs % 2 ? receiver : sender, i, 1);
}

void hackbench(void)
{
	int groups = number(0), all;
	struct looks looks;

	pairs = number(1);
	all = groups * 2 * pairs;
	start_groups(groups, word(2, "threads"));
	looks = measure(0, all);
	figure("messages", done(0, all) / 2);
	figure("together", looks.together);
	figure("llcs", looks.llcs);
}

/* ---- pipes ---- */

static void *filler(void *argument)
{
	struct seat *me = argument;
	char block[4096] = {};

	while (write(sockets[(me - board->seat) / 2][1], block, sizeof(block)) > 0)
		here(me);
	err(1, "fill");
}

static void *drainer(void *argument)
{
	struct seat *me = argument;
	char block[4096];

	while (read(sockets[(me - board->seat) / 2][0], block, sizeof(block)) > 0)
		here(me);
	err(1, "drain");
}

static void pair_process(int pair)
{
	thread(filler, &board->seat[2 * pair]);
	drainer(&board->seat[2 * pair + 1]);
}

void pipes(void)
{
	int count = number(0), others = number(1);
	double all, least = 0;
	struct looks looks;

	if (count > MOST_SOCKETS)
		errx(2, "more than %d pipes", MOST_SOCKETS);
	for (int i = 0; i < others; i++)
		crew(count, hog, 2 * count + i, 1);
	for (int i = 0; i < count; i++) {
		seats(i, 2 * i, 2);
		if (pipe(sockets[i]))
			err(1, "a pipe");
		if (word(2, "threads")) {
			process(pair_process, i);
		} else {
			crew(i, filler, 2 * i, 1);
			crew(i, drainer, 2 * i + 1, 1);
		}
	}
	looks = measure(0, 2 * count);
	all = done(0, 2 * count);
	for (int i = 0; i < count; i++) {
		double mine = done(2 * i, 2);

		least = !i || mine < least ? mine : least;
	}
	figure("messages", all / 2);
	figure("least", all ? least * count / all : 0);
	figure("together", looks.together);
}

/* ---- requests: clients have the first seats, workers those after them ---- */

static int clients, workers;

static void *worker(void *argument)
{
	struct seat *me = argument;
	int nr = me - board->seat - clients, count = 0;
	struct pollfd polled[MOST_SOCKETS];
	char byte;

	for (int i = nr; i < clients; i += workers)
		polled[count++] = (struct pollfd){ .fd = sockets[i][1], .events = POLLIN };
	for (;;) {
		if (poll(polled, count, -1) < 0)
			err(1, "poll");
		for (int i = 0; i < count; i++) {
			if (!(polled[i].revents & POLLIN))
				continue;
			if (read(polled[i].fd, &byte, 1) != 1)
				err(1, "a request");
			work(work_ms);
			here(me);
			if (write(polled[i].fd, &byte, 1) != 1)
				err(1, "an answer");
		}
	}
	return NULL;
}

static void *client(void *argument)
{
	struct seat *me = argument;
	int socket = sockets[me - board->seat][0];
	char byte = 1;

	for (;;) {
		double begin = now();

		if (write(socket, &byte, 1) != 1 || read(socket, &byte, 1) != 1)
			err(1, "request");
		waited(me, now() - begin - work_ms);
		here(me);
		work(work_ms / 4);
	}
	return NULL;
}

void requests(void)
{
	clients = number(0);
	workers = number(1);
	work_ms = number(2);
	open_sockets(clients, SOCK_STREAM);
	if (word(3, "threads"))
		crew(1, worker, clients, workers);
	for (int i = 0; i < workers && !word(3, "threads"); i++)
		crew(1, worker, clients + i, 1);
	crew(0, client, 0, clients);
	measure(0, clients + workers);
	figure("requests", done(0, clients));
	figure("delay", wait_mean(0, clients));
	figure("p99", wait_at(0, clients, 0.99));
	figure("changes", llc_changes(clients, workers));
}

/* ---- periodic: a thread that wakes every 2.777 ms, as cyclictest is run for audio, beside hackbench ---- */

#define PERIOD_MS 2.777

static void periodic_process(int seat)
{
	struct seat *me = &board->seat[seat];
	double next = now();

	set_slice(work_ms);
	prctl(PR_SET_TIMERSLACK, 1);
	for (;;) {
		next += PERIOD_MS;
		nap(next - now());
		waited(me, now() - next);
		here(me);
		if (now() > next + PERIOD_MS)
			next = now();
	}
}

void periodic(void)
{
	int groups = number(0), all;

	pairs = number(1);
	work_ms = number(2);
	slice_ms = number(3);
	all = groups * 2 * pairs;
	start_groups(groups, true);
	seats(groups, all, 1);
	process(periodic_process, all);
	measure(0, all);
	figure("late", wait_mean(all, 1));
	figure("p99", wait_at(all, 1, 0.99));
	figure("messages", done(0, all) / 2);
}
