// SPDX-License-Identifier: GPL-2.0-only
/* Programs that others have written to test schedulers, one after the other, beside all the rest. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

/*
 * kit/trials/programs.py writes it. A line is KIND DIRECTORY PROGRAM ARGUMENT... A selftest_alone starts with all
 * CPUs online, and none goes offline beside it.
 */
#define LIST "/programs/list"
#define SAID "/tmp/program.said"
#define NR_LINES 64
#define NR_WORDS 16
#define GROUP CGROUP "programs/"
#define NOT_EXECUTED 127

/* 3 and 4: it cannot be done here. */
static bool stressor_found(int status)
{
	return status == 1 || status == 2;
}

/* 4: it cannot be done here. */
static bool selftest_found(int status)
{
	return status && status != 4;
}

/* They also fail if a CPU goes offline that they have chosen. */
static bool nothing_found(int status)
{
	(void)status;
	return false;
}

static const struct kind {
	const char *name;
	enum operation operation;
	bool alone;
	/*
	 * No CPU goes offline before it has started its processes: stress-ng 0.15.06 reads of each CPU what its caches
	 * are. If a read fails, with ENODEV, it writes a 0 as far in front of its buffer as the number of the error says,
	 * which is into a pointer.
	 */
	bool careful;
	/* Whether an exit status is a fault. */
	bool (*found)(int status);
} kinds[] = {
	{ "stress_ng", OP_stress_ng, false, true, stressor_found },
	{ "rt_tests", OP_rt_tests, false, false, nothing_found },
	{ "selftest", OP_selftest, false, false, selftest_found },
	{ "selftest_alone", OP_selftest, true, false, selftest_found },
};

bool has_programs(void)
{
	return !access(LIST, R_OK);
}

static const struct kind *kind_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (!strcmp(name, kinds[i].name))
			return &kinds[i];
	}
	errx(1, LIST ": no such kind: %s", name);
}

/* Of the group: one has not started another one yet. */
static int processes(void)
{
	char pids[4096];
	int count = 0;

	if (read_file(GROUP "cgroup.procs", pids, sizeof(pids)) > 0)
		for (char *pid = pids; (pid = strchr(pid, '\n')); pid++)
			count++;
	return count;
}

static bool empty(void)
{
	char events[64];

	return read_file(GROUP "cgroup.events", events, sizeof(events)) <= 0 ||
	       strstr(events, "populated 0");
}

static void execute(const char *directory, char **words)
{
	int said = open(SAID, O_RDWR | O_CREAT | O_TRUNC, 0600);

	/* pi_stress kills its process group if it finds a deadlock. */
	setsid();
	if (said < 0 || write_file(GROUP "cgroup.procs", "0") || chdir(directory))
		_exit(NOT_EXECUTED);
	/* Those of rseq register with the kernel themselves. param_test of 7.3 fails if the C library has done so. */
	if (strstr(directory, "/rseq"))
		setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1);
	for (int fd = 0; fd < 3; fd++)
		dup2(said, fd);
	execv(words[0], words);
	_exit(NOT_EXECUTED);
}

/* The command, how it ended, and the end of what it said. */
static void explain(char **words, const char *how, int number)
{
	char said[8192] = "", line[256] = "", *last = said, *next;
	int length = read_file(SAID, said, sizeof(said));

	for (size_t used = 0; *words && used < sizeof(line); words++)
		used += snprintf(line + used, sizeof(line) - used, " %s", *words);
	dprintf(STDOUT_FILENO, "#%s: %s %d\n", line, how, number);
	if (length > 300)
		last = said + length - 300;
	while ((next = strsep(&last, "\n")))
		dprintf(STDOUT_FILENO, "#   %s\n", next);
}

/* Each ends by itself. One that does not is a fault, and is killed, with all that it has started. */
static void run_one(char *line)
{
	char *words[NR_WORDS + 1] = { NULL }, *directory, nothing;
	const struct kind *kind = kind_of(strsep(&line, " "));
	int nr = 0, status, executed[2];
	double end;
	pid_t pid;

	directory = strsep(&line, " ");
	while (line && nr < NR_WORDS)
		words[nr++] = strsep(&line, " ");
	if (!nr || line)
		errx(1, LIST ": a line without a program, or with too many words");
	if ((mkdir(GROUP, 0755) && errno != EEXIST) || pipe2(executed, O_CLOEXEC))
		err(1, GROUP);
	/* Until it comes to that: none goes offline any more when the run is to end. */
	while (kind->alone && !lock_all_online())
		lock(false);
	if (!kind->alone)
		lock(true);
	pid = fork();
	if (pid < 0)
		err(1, "fork");
	if (!pid)
		execute(directory, words);
	/* The end of the pipe closes when the program begins. */
	close(executed[1]);
	read(executed[0], &nothing, 1);
	close(executed[0]);
	end = now() + patience;
	while (kind->careful && processes() == 1 && now() < end)
		usleep(1000);
	if (!kind->alone)
		lock(false);

	for (; waitpid(pid, &status, WNOHANG) == 0;) {
		if (now() > end) {
			explain(words, "did not end, seconds:", patience);
			wrong("a program did not end");
			write_file(GROUP "cgroup.kill", "1");
			waitpid(pid, &status, 0);
			break;
		}
		usleep(10000);
	}
	if (kind->alone)
		lock(false);
	/* What it has left behind. */
	write_file(GROUP "cgroup.kill", "1");
	if (wait_for(empty, "the end of a program's processes"))
		return;
	rmdir(GROUP);

	if (WIFSIGNALED(status))
		explain(words, "ended by signal", WTERMSIG(status));
	else if (WEXITSTATUS(status))
		explain(words, "exit status", WEXITSTATUS(status));
	if (WIFSIGNALED(status) || WEXITSTATUS(status) == NOT_EXECUTED || kind->found(WEXITSTATUS(status)))
		wrong("a program failed");
	else
		counted(kind->operation, WEXITSTATUS(status));
}

/* In turn: by chance, most of a guest's programs would be some of them more than once. */
void run_programs(int number)
{
	char text[8192], copy[512], *lines[NR_LINES], *at = text, *line;
	int nr = 0, length = read_file(LIST, text, sizeof(text));

	(void)number;
	if (length <= 0 || length == sizeof(text) - 1)
		errx(1, LIST ": too long, or cannot be read");
	while ((line = strsep(&at, "\n"))) {
		if (*line && nr == NR_LINES)
			errx(1, LIST ": too many lines");
		if (*line)
			lines[nr++] = line;
	}
	for (int i = below(nr); !shared->stop; i++) {
		if (snprintf(copy, sizeof(copy), "%s", lines[i % nr]) >= (int)sizeof(copy))
			errx(1, LIST ": a line is too long");
		run_one(copy);
	}
}
