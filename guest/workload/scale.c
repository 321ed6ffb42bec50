// SPDX-License-Identifier: GPL-2.0-only
/* Pinned threads of one process that do the same system calls, in the shape of will-it-scale. */
#include "workload.h"

#include <fcntl.h>

static enum scale what;
/* The files are being removed. */
static _Atomic bool over;
static struct channel {
	int there[2], back[2];
} *channels;

/* Open and close a file of the thread's own: the threads share the table of open files. */
static void open_own(int number, const char *path)
{
	for (;;) {
		int file = open(path, O_RDWR);

		if (file < 0 && over)
			return;
		if (file < 0)
			err(1, "%s", path);
		close(file);
		progress(number);
	}
}

/* Lock and unlock a file of the thread's own: fcntl() takes the lock of the table of open files. */
static void lock_own(int number, const char *path)
{
	struct flock region = { .l_whence = SEEK_SET, .l_len = 1 };
	int file = open(path, O_RDWR);

	if (file < 0)
		err(1, "%s", path);
	for (;;) {
		region.l_type = F_WRLCK;
		if (fcntl(file, F_SETLK, &region))
			err(1, "%s: lock", path);
		region.l_type = F_UNLCK;
		if (fcntl(file, F_SETLK, &region))
			err(1, "%s: unlock", path);
		progress(number);
	}
}

/* Send a byte there and back: each of two threads sleeps while the other one runs. */
static void switch_with_other(int number)
{
	struct channel *channel = &channels[number / 2];
	int first = number % 2 == 0;
	int from = first ? channel->back[0] : channel->there[0];
	int to = first ? channel->there[1] : channel->back[1];
	char byte = 0;

	for (;;) {
		if ((first && write(to, &byte, 1) != 1) || read(from, &byte, 1) != 1 ||
		    (!first && write(to, &byte, 1) != 1))
			err(1, "pipe");
		progress(number);
	}
}

static void *scale_task(void *argument)
{
	int number = (uintptr_t)argument;
	char path[64];

	snprintf(path, sizeof(path), "/tmp/scale-%d-%d", (int)getpid(), number);
	join(number, 0, number);
	/* Here, because all tasks that make a file wait for each other at the directory. */
	if (what != SCALE_SWITCH)
		close(open(path, O_RDWR | O_CREAT, 0600));
	begin_work();
	if (what == SCALE_OPEN)
		open_own(number, path);
	else if (what == SCALE_LOCK)
		lock_own(number, path);
	else
		switch_with_other(number);
	return NULL;
}

void scale(enum scale given, int threads, int step, long warm_ms, long ms)
{
	int order[MOST_TASKS], i, tasks = given == SCALE_SWITCH ? 2 * threads : threads;

	what = given;
	expect_tasks(tasks);
	allow_files(4 * tasks + 64);
	if (given == SCALE_SWITCH)
		channels = map(threads * sizeof(*channels), MAP_PRIVATE);
	for (i = 0; given == SCALE_SWITCH && i < threads; i++)
		if (pipe(channels[i].there) || pipe(channels[i].back))
			err(1, "pipe");
	shuffle(order, tasks);
	for (i = 0; i < tasks; i++) {
		int number = order[i];
		int cpu = spread_cpu(given == SCALE_SWITCH ? number / 2 : number, step);

		/* The second thread of a pair is beside the first one. */
		if (given == SCALE_SWITCH)
			cpu += number % 2 * (step > 1);
		start_thread(cpu, scale_task, (void *)(uintptr_t)number);
	}
	measure(RATE, 1, "operations/ms", warm_ms, ms);
	need_all();
	over = true;
	for (i = 0; i < tasks; i++) {
		char path[64];

		snprintf(path, sizeof(path), "/tmp/scale-%d-%d", (int)getpid(), i);
		unlink(path);
	}
}
