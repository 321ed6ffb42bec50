// SPDX-License-Identifier: GPL-2.0-only
/*
 * The files that the patches add, or change: valid and invalid input, readers and writers.
 *
 * With $MAINLINE, these are mainline's own, of which there are fewer: its knobs take any number, also one that
 * they cannot do with, so that they get valid values only; and nothing lists the counters of preferences.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

#define NUMA "/proc/sys/kernel/numa_balancing"
#define SCHEDSTATS "/proc/sys/kernel/sched_schedstats"
#define EVENTS "/sys/kernel/tracing/events/sched/enable"
#define NOBODY 65534
#define GROUPS KNOBS "groups"

/* Knobs, with the smallest and the largest value that each accepts. */
static const struct knob {
	const char *path;
	unsigned int min, max;
} knobs[] = {
	{ KNOBS "enabled", 0, 1 },
	{ KNOBS "aggr_tolerance", 0, 100 },
	{ KNOBS "epoch_period", 1, 1000 },
	{ KNOBS "epoch_affinity_timeout", 1, 1000000 },
	{ KNOBS "overaggr_pct", 0, 100 },
	{ KNOBS "imb_pct", 0, 100 },
};

/* Files without anything to write. */
static const char *const shown[] = { KNOBS "llcs", SCHED "l2_groups", SCHED "wakeup_stats" };

/* To be read while all else goes on. */
static const char *const read_too[] = { "/proc/schedstat", FEATURES, SCHED "debug" };

/* No knob accepts any of these. A number above the largest value is in invalid_text(). */
static const char *const bad_knobs[] = {
	"-1", "-0", "+-1", "x", "1x", "1 1", "1,1", " ", "\n", "0x", "1e3", "1.5", "--", "%n%s",
	"99999999999999999999999", "-99999999999999999999999", "4294967296", "18446744073709551615",
	"18446744073709551616", "00000000000000000000001junk", "1\n\n2", "\xff\xfe",
};

static const char *const bad_features[] = {
	"x", "NO_", "NO_NO_SIS_FAST", "sis_fast", "SIS_FAST SCHED_CACHE", "SIS_FASTER", "SIS_FAS",
	"0", "-1", "\n", " ", "SCHED_CACHE,SIS_FAST", "\xff", "NO_SIS_FAST1", "%s%n",
};

/* $MAINLINE is set. */
static bool mainline;
/* The words of $FEATURES: the bits to switch. */
static char *features[64];
static int nr_features;
/* Of llcs: 64 LLCs have 4 kB. */
#define LLCS_SIZE 16384

static char knobs_before[ARRAY_SIZE(knobs)][32], features_before[4096], llcs_before[LLCS_SIZE];
static char numa_before[16];

/* `enabled` shows words for the numbers that are written. */
static int read_knob(const char *path, char *text, size_t size)
{
	int result = read_file(path, text, size);

	if (result > 0 && !strcmp(path, KNOBS "enabled") && !mainline) {
		if (!strcmp(text, "never\n"))
			strcpy(text, "0\n");
		else if (!strcmp(text, "always\n"))
			strcpy(text, "1\n");
	}
	return result;
}

/* The first six columns of llcs, up to "home". What follows is the load, which is never the same. */
static void read_llcs(char *text, size_t size)
{
	char *to = text;
	int blanks = 0;

	if (read_file(KNOBS "llcs", text, size) <= 0)
		errx(1, "no " KNOBS "llcs");
	for (char *from = text; *from; from++) {
		blanks = *from == '\n' ? 0 : blanks + (*from == ' ');
		if (blanks < 6)
			*to++ = *from;
	}
	*to = '\0';
}

void find_files(void)
{
	char *all = strdup(getenv("FEATURES") ?: ""), *word;

	mainline = getenv("MAINLINE") != NULL;
	while ((word = strsep(&all, " "))) {
		if (*word && nr_features < (int)ARRAY_SIZE(features))
			features[nr_features++] = word;
	}
	for (size_t i = 0; i < ARRAY_SIZE(knobs); i++) {
		if (read_knob(knobs[i].path, knobs_before[i], sizeof(knobs_before[i])) > 0)
			continue;
		knobs_before[i][0] = '\0';
		if (!mainline)
			errx(1, "no %s", knobs[i].path);
		printf("# left out: %s, which is not there\n", knobs[i].path);
	}
	read_file(FEATURES, features_before, sizeof(features_before));
	for (int i = 0; i < nr_features; i++) {
		if (!strstr(features_before, features[i]))
			errx(1, "no bit %s", features[i]);
	}
	if (read_file(NUMA, numa_before, sizeof(numa_before)) < 0)
		numa_before[0] = '\0';
	if (mainline)
		printf("# left out: " KNOBS "llcs, invalid values of knobs\n");
	else
		read_llcs(llcs_before, sizeof(llcs_before));
}

/*
 * What @knob refuses, of which the length is returned: a word of the list, a number that is too
 * large or too small, a valid number with rubbish behind it or a zero byte, random bytes, or much
 * of it.
 */
static size_t invalid_text(const struct knob *knob, char *text, size_t size)
{
	size_t length;

	switch (below(6)) {
	case 0:
		return snprintf(text, size, "%llu",
				(unsigned long long)knob->max + 1 + (random64() >> (1 + below(63))));
	case 1:
		if (knob->min)
			return snprintf(text, size, "%u", below(knob->min));
		/* fallthrough */
	case 2:
		snprintf(text, size, "%u", knob->max);
		return strlen(text) + 1 + below(2);
	case 3:
		/* No digit and no blank in front: no number, whatever follows. */
		length = 1 + below(below(2) ? 64 : size - 1);
		for (size_t i = 0; i < length; i++)
			text[i] = random64();
		text[0] = '!' + below('+' - '!');
		return length;
	case 4:
		/* Valid, but for what comes at the end. */
		length = 24 + below(size - 24);
		memset(text, '0', length);
		text[length - 2] = '1';
		text[length - 1] = 'x';
		return length;
	default:
		return snprintf(text, size, "%s", bad_knobs[below(ARRAY_SIZE(bad_knobs))]);
	}
}

/* A page and more of it, so that a copy that is too short shows. */
static char bytes[16384];

/* The beginning of it, for a message. */
static const char *printable(const char *text, size_t length)
{
	static char shown_[160];
	char *at = shown_;

	for (size_t i = 0; i < length && i < 30; i++)
		at += sprintf(at, text[i] > ' ' && text[i] <= '~' ? "%c" : "\\x%02x",
			      (unsigned char)text[i]);
	return shown_;
}

/* @value: what the knob has to show before and after. NULL: others write to it, too. */
static void write_invalid(const struct knob *knob, const char *value)
{
	size_t length = invalid_text(knob, bytes, sizeof(bytes));
	char after[64] = "";
	int result = write_bytes(knob->path, bytes, length);

	if (result != -EINVAL)
		wrong("%s: %zu bytes '%s': %s, not EINVAL", knob->path, length,
		      printable(bytes, length), strerror(-result));
	if (value) {
		read_knob(knob->path, after, sizeof(after));
		if (strcmp(value, after))
			wrong("%s: %zu bytes '%s' changed it from %s to %s", knob->path, length,
			      printable(bytes, length), value, after);
	}
	done(OP_invalid_knob);
}

static void write_knob(void)
{
	size_t chosen = below(ARRAY_SIZE(knobs));
	const struct knob *knob = &knobs[chosen];
	unsigned int value = knob->min + random64() % (knob->max - knob->min + 1);
	char text[16], found[64] = "";
	int result;

	if (!*knobs_before[chosen])
		return;
	/* Most values of it would keep all else from happening. */
	if (!strcmp(knob->path, KNOBS "epoch_affinity_timeout") && below(2))
		value = 1 + below(10);
	snprintf(text, sizeof(text), "%u\n", value);
	result = write_file(knob->path, text);
	read_knob(knob->path, found, sizeof(found));
	if (result || strcmp(text, found))
		wrong("%s: wrote %s: %s; it shows %s", knob->path, text, strerror(-result), found);
	done(OP_knob);
	for (int i = mainline ? 0 : below(3); i > 0; i--)
		write_invalid(knob, text);
}

static void write_feature(void)
{
	char word[64], found[4096], before[4096];
	const char *name = features[below(nr_features)];
	bool on = below(2);
	int result;

	if (below(4) == 0) {
		const char *bad = bad_features[below(ARRAY_SIZE(bad_features))];

		read_file(FEATURES, before, sizeof(before));
		result = write_file(FEATURES, bad);
		read_file(FEATURES, found, sizeof(found));
		if (result != -EINVAL || strcmp(before, found))
			wrong("features: '%s': %s, not EINVAL; before %s after %s", bad,
			      strerror(-result), before, found);
		done(OP_invalid_feature);
		return;
	}
	snprintf(word, sizeof(word), "%s%s ", on ? "" : "NO_", name);
	/* Neither a newline nor a blank has to end it. */
	result = write_bytes(FEATURES, word, strlen(word) - below(2));
	found[0] = ' ';
	read_file(FEATURES, found + 1, sizeof(found) - 1);
	memmove(word + 1, word, sizeof(word) - 1);
	word[0] = ' ';
	word[sizeof(word) - 1] = '\0';
	if (result || !strstr(found, word))
		wrong("features:%s: %s; it shows%s", word, strerror(-result), found);
	done(OP_feature);
}

/* Any process may end meanwhile, or be none of those that can be asked for. */
static void write_group(void)
{
	static const char *const asks[] = { "always", "never", "default", "leave", "tolerance 3", "join" };
	int pid = below(4) ? (int)below(800) + 1 : getpid(), ask = below(ARRAY_SIZE(asks)), result;
	const char *bad = bad_knobs[below(ARRAY_SIZE(bad_knobs))];
	char text[64];

	snprintf(text, sizeof(text), strcmp(asks[ask], "join") ? "%d %s\n" : "%d %s %d\n", pid,
		 asks[ask], 1 + below(800));
	result = write_file(GROUPS, text);
	if (result && result != -EINVAL && result != -ESRCH && result != -ENOMEM &&
	    result != -EOPNOTSUPP)
		wrong("groups: %s: %s", text, strerror(-result));
	if (write_file(GROUPS, bad) != -EINVAL)
		wrong("groups: '%s' was not refused", bad);
}

/* The only one that writes to all of these. */
void run_knobs(int number)
{
	(void)number;
	while (!shared->stop) {
		switch (below(16)) {
		case 0:
			if (numa_before[0])
				counted(OP_numa_balancing, -write_file(NUMA, below(2) ? "1" : "0"));
			break;
		case 1:
			counted(OP_schedstats, -write_file(SCHEDSTATS, below(2) ? "1" : "0"));
			break;
		case 2:
			if (!access(EVENTS, W_OK))
				counted(OP_trace_events, -write_file(EVENTS, below(4) ? "0" : "1"));
			break;
		case 3:
		case 4:
		case 5:
		case 6:
		case 7:
			write_knob();
			break;
		case 8:
			if (!access(GROUPS, W_OK))
				write_group();
			break;
		default:
			write_feature();
		}
		usleep(below(2000));
	}
}

/* Read in pieces, from any offset, back and forth. */
static void read_pieces(const char *path)
{
	char piece[512];
	int fd = open(path, O_RDONLY);

	if (fd < 0) {
		/* A thread that is gone. */
		counted(OP_partial_read, errno);
		return;
	}
	for (int i = 1 + below(8); i > 0; i--) {
		if (below(3) == 0)
			lseek(fd, below(8192), SEEK_SET);
		if (read(fd, piece, 1 + below(sizeof(piece) - 1)) < 0 && errno != ESRCH)
			wrong("%s: read: %s", path, strerror(errno));
	}
	close(fd);
	done(OP_partial_read);
}

void run_readers(int number)
{
	static char text[1 << 18];
	char path[64];

	(void)number;
	while (!shared->stop) {
		int load = below(NR_LOADS), tid = shared->tids[load][below(NR_LOAD_THREADS)];

		switch (below(8)) {
		case 0:
			counted(OP_read, read_file(read_too[below(ARRAY_SIZE(read_too))], text,
						   sizeof(text)) < 0);
			break;
		case 1:
			if (!mainline)
				counted(OP_read, read_file(shown[below(ARRAY_SIZE(shown))], text,
							   sizeof(text)) < 0);
			break;
		case 2:
			if (!mainline)
				read_pieces(shown[below(ARRAY_SIZE(shown))]);
			break;
		case 3:
			read_pieces(knobs[below(ARRAY_SIZE(knobs))].path);
			break;
		default:
			snprintf(path, sizeof(path), "/proc/%d/task/%d/sched", shared->pids[load], tid);
			if (tid && below(2))
				read_pieces(path);
			else if (tid)
				counted(OP_read, read_file(path, text, sizeof(text)) < 0);
		}
		usleep(below(2000));
	}
}

void restore_files(void)
{
	char text[4096], *at = text, after[4096];

	if (!access(EVENTS, W_OK))
		write_file(EVENTS, "0");
	write_file(SCHEDSTATS, "0");
	if (numa_before[0])
		write_file(NUMA, numa_before);
	for (size_t i = 0; i < ARRAY_SIZE(knobs); i++) {
		if (*knobs_before[i])
			write_file(knobs[i].path, knobs_before[i]);
	}
	snprintf(text, sizeof(text), "%s", features_before);
	for (char *next; (next = strsep(&at, " \n"));) {
		if (*next)
			write_file(FEATURES, next);
	}
	read_file(FEATURES, after, sizeof(after));
	if (strcmp(features_before, after))
		wrong("features are not as before: %s", after);
}

/* Whether no runnable task prefers an LLC, and the LLCs are those of the beginning. */
static bool llcs_as_before(void)
{
	char text[LLCS_SIZE];

	read_llcs(text, sizeof(text));
	return !strcmp(text, llcs_before);
}

/* How many runnable tasks prefer an LLC: the sum of the last but one number of each line. */
unsigned int nr_prefer(void)
{
	char text[LLCS_SIZE], *at = text, *line;
	unsigned int sum = 0;

	read_llcs(text, sizeof(text));
	/* A number is read up to the blank. "prefer" counts as 0. */
	while ((line = strsep(&at, "\n")) && *line) {
		*strrchr(line, ' ') = '\0';
		sum += atoi(strrchr(line, ' ') + 1);
	}
	return sum;
}

/* Called without any process of several threads: the counters of preferences have to be 0. */
void check_llcs(void)
{
	char text[LLCS_SIZE];

	if (mainline)
		return;
	if (wait_for(llcs_as_before, KNOBS "llcs as before: it")) {
		read_llcs(text, sizeof(text));
		wrong("llcs: before:\n# %s# after:\n# %s", llcs_before, text);
	}
}

/* Each file of llc_balancing is in one of the tables above. */
static void check_tables(void)
{
	DIR *dir = opendir(KNOBS);
	struct dirent *entry;
	char path[512];

	while (dir && (entry = readdir(dir))) {
		bool known = entry->d_name[0] == '.' || !strcmp(entry->d_name, "groups");

		snprintf(path, sizeof(path), KNOBS "%s", entry->d_name);
		for (size_t i = 0; i < ARRAY_SIZE(knobs); i++)
			known |= !strcmp(path, knobs[i].path);
		for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
			known |= !strcmp(path, shown[i]);
		if (!known)
			wrong("%s is not tested", path);
	}
	if (dir)
		closedir(dir);
}

/* Values at the limits are accepted, and what is beyond is not. */
static void check_limits(const struct knob *knob)
{
	const struct {
		long long value;
		int result;
	} tries[] = {
		{ knob->min, 0 }, { knob->max, 0 }, { knob->max + 1ll, -EINVAL },
		{ knob->min - 1ll, -EINVAL }, { 0x100000000ll + knob->max, -EINVAL },
		{ -0x100000000ll + knob->max, -EINVAL },
	};
	char text[32], after[64], before[64];
	int result;

	for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
		read_knob(knob->path, before, sizeof(before));
		snprintf(text, sizeof(text), "%lld\n", tries[i].value);
		result = write_file(knob->path, text);
		read_knob(knob->path, after, sizeof(after));
		if (result != tries[i].result || strcmp(after, result ? before : text))
			wrong("%s: wrote %s: %s; before %s after %s", knob->path, text,
			      strerror(-result), before, after);
		counted(OP_knob, -result);
	}
}

/* Nothing to read from, and no bytes at all. */
static void check_addresses(const struct knob *knob, const char *value)
{
	void *volatile nowhere = (void *)8;
	int fd = open(knob->path, O_RDWR);
	char after[64];

	if (fd < 0 || write(fd, nowhere, 2) >= 0 || errno != EFAULT)
		wrong("%s: a write from nowhere: %s, not EFAULT", knob->path, strerror(errno));
	if (write(fd, "", 0) >= 0 || errno != EINVAL)
		wrong("%s: an empty write: %s, not EINVAL", knob->path, strerror(errno));
	close(fd);
	read_knob(knob->path, after, sizeof(after));
	if (strcmp(value, after))
		wrong("%s: %s instead of %s", knob->path, after, value);
	done(OP_invalid_knob);
}

static int read_whole(const char *path, char *text, size_t size)
{
	int length = read_file(path, text, size);

	if (length < 0)
		wrong("%s: %s", path, strerror(-length));
	return length < 0 ? 0 : length;
}

/* A file in pieces is the same as the whole: of llcs, where loads get older each ms, one time of some. */
static void check_pieces(const char *path)
{
	static char whole[1 << 16], pieces[(1 << 16) + 8];
	int tries = strcmp(path, KNOBS "llcs") ? 1 : 100, fd = open(path, O_RDONLY), length, got, more = 0;
	bool same = false;

	for (int i = 0; i < tries && !same; i++) {
		length = read_whole(path, whole, sizeof(whole));
		lseek(fd, 0, SEEK_SET);
		for (got = 0; got < length && (more = read(fd, pieces + got, 1 + below(7))) > 0; got += more)
			;
		same = got == length && read(fd, pieces + got, 1) == 0 && !memcmp(whole, pieces, length);
	}
	if (!same)
		wrong("%s: %d bytes at once, in pieces %d or other ones", path, length, got);
	for (int j = 0; j < 10; j++) {
		int offset = below(length + 10), wanted = 1 + below(20), there;

		same = false;
		for (int i = 0; i < tries && !same; i++) {
			length = read_whole(path, whole, sizeof(whole));
			there = offset >= length ? 0 : length - offset < wanted ? length - offset : wanted;
			got = pread(fd, pieces, wanted, offset);
			same = got == there && !memcmp(whole + offset, pieces, there);
		}
		if (!same)
			wrong("%s: %d bytes at %d, not %d", path, got, offset, there);
	}
	close(fd);
	done(OP_partial_read);
}

/* Mode and owner; and what another user may do: the mode decides, as the directory is open already. */
static void check_access(const char *path, mode_t mode)
{
	char dir[64];
	const char *name = strrchr(path, '/') + 1;
	struct stat stat_;
	int status, fd;
	pid_t pid;

	if (stat(path, &stat_) || (stat_.st_mode & 07777) != mode || stat_.st_uid)
		wrong("%s: mode %o, user %u", path, stat_.st_mode, stat_.st_uid);
	snprintf(dir, sizeof(dir), "%.*s", (int)(name - path), path);
	pid = fork();
	if (!pid) {
		fd = open(dir, O_PATH | O_DIRECTORY);
		if (fd < 0 || setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY))
			errx(1, "cannot drop privileges");
		if (open(path, O_RDONLY) >= 0 || errno != EACCES)
			wrong("an unprivileged user gets to %s", path);
		if (openat(fd, name, O_WRONLY) >= 0 || errno != EACCES)
			wrong("an unprivileged user may write to %s", path);
		if (openat(fd, name, O_RDWR) >= 0 || errno != EACCES)
			wrong("an unprivileged user may write to %s", path);
		if (truncate(path, 0) == 0 || chmod(path, 0666) == 0 || unlink(path) == 0)
			wrong("an unprivileged user may change %s", path);
		if (openat(fd, name, O_RDONLY) < 0)
			wrong("an unprivileged user may not read %s", path);
		_exit(0);
	}
	if (waitpid(pid, &status, 0) != pid || status)
		wrong("%s as an unprivileged user: status %#x", path, status);
	done(OP_refused_open);
}

/* Writers of two values, writers of rubbish and readers, who have to see one of the two. */
static void check_races(const struct knob *knob, const char *value)
{
	char values[2][16], found[64];
	pid_t pids[6];
	int status;

	snprintf(values[0], sizeof(values[0]), "%u\n", knob->min);
	snprintf(values[1], sizeof(values[1]), "%u\n", knob->max);
	write_file(knob->path, values[0]);
	for (int i = 0; i < 6; i++) {
		pids[i] = fork();
		if (pids[i])
			continue;
		seed(100 + i);
		for (int j = 0; j < 20; j++) {
			if (i < 2) {
				if (write_file(knob->path, values[below(2)]))
					wrong("%s: a race refuses a valid value", knob->path);
				done(OP_knob);
			} else if (i < 4) {
				write_invalid(knob, NULL);
			} else {
				read_knob(knob->path, found, sizeof(found));
				if (strcmp(found, values[0]) && strcmp(found, values[1]))
					wrong("%s: a race shows %s", knob->path, found);
				done(OP_raced_read);
			}
		}
		_exit(0);
	}
	for (int i = 0; i < 6; i++) {
		if (waitpid(pids[i], &status, 0) != pids[i] || status)
			wrong("%s: status %#x in a race", knob->path, status);
	}
	write_file(knob->path, value);
}

static void check_shown(const char *path)
{
	int result = write_file(path, "1");

	/* Root may open it, and there is nothing that a write could do. */
	if (result != -EINVAL && result != -EACCES)
		wrong("%s: a write: %s", path, strerror(-result));
	check_pieces(path);
	check_access(path, 0444);
}

int torture_files(void)
{
	find_files();
	check_tables();
	for (size_t i = 0; i < ARRAY_SIZE(knobs); i++) {
		const struct knob *knob = &knobs[i];

		for (size_t j = 0; j < ARRAY_SIZE(bad_knobs); j++) {
			if (write_file(knob->path, bad_knobs[j]) != -EINVAL)
				wrong("%s takes '%s', or refuses it without EINVAL", knob->path,
				      bad_knobs[j]);
			done(OP_invalid_knob);
		}
		for (int j = 0; j < 50; j++)
			write_invalid(knob, knobs_before[i]);
		check_limits(knob);
		write_file(knob->path, knobs_before[i]);
		check_addresses(knob, knobs_before[i]);
		check_pieces(knob->path);
		check_access(knob->path, 0644);
		check_races(knob, knobs_before[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		check_shown(shown[i]);
	for (size_t j = 0; j < ARRAY_SIZE(bad_features); j++) {
		if (write_file(FEATURES, bad_features[j]) != -EINVAL)
			wrong("features takes '%s', or refuses it without EINVAL", bad_features[j]);
		done(OP_invalid_feature);
	}
	check_access(FEATURES, 0644);
	restore_files();
	check_llcs();
	return shared->wrong > 0;
}
