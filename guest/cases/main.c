// SPDX-License-Identifier: GPL-2.0-only
/* Which cases there are, the board, and how it is looked at. */
#include "cases.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define CGROUPS "/sys/fs/cgroup/"
#define LOOK_MS 10

struct board *board;
double measure_ms;
char **arguments;
static pid_t children[MOST_PROCESSES];
static int child_count;
static pid_t main_process;
static char printed[2048];
static char made[8][64];
static int made_count;
static int llc_of_cpu[CPU_SETSIZE], cpu_count;
int fewest[MOST_PROCESSES];

static const struct {
	const char *name;
	int arguments;
	void (*run)(void);
	/* its last argument is one of the words that the usage ends with, if these have a "|" */
	const char *usage;
} kinds[] = {
	{ "frame", 3, frame, "WORKERS WORK FRAME: a frame wakes workers, which it waits for" },
	{ "collector", 4, collector, "MUTATORS WORKERS PERIOD CHUNKS: all mutators stop while workers run" },
	{ "pool", 4, pool, "MESSENGERS WORKERS WORK THINK: workers that ask for requests" },
	{ "instances", 4, instances, "PROCESSES HELPERS WORK THINK: services that split their batches" },
	{ "barriers", 3, barriers, "THREADS WORK OTHERS: sched_yield() until all have arrived" },
	{ "model", 3, model, "all read the same memory and meet at barriers: THREADS MIB anon|file" },
	{ "hackbench", 3, hackbench, "each sender writes to each receiver: GROUPS PAIRS threads|processes" },
	{ "pipes", 3, pipes, "one fills a pipe, one drains it: PAIRS OTHERS threads|processes" },
	{ "requests", 4, requests, "requests over sockets: CLIENTS WORKERS WORK threads|processes" },
	{ "periodic", 4, periodic, "GROUPS PAIRS SLICE SLICE_OF_GROUPS: a periodic thread beside messages" },
	{ "stages", 2, stages, "THREADS WORK: each hands on what the next one waits for" },
	{ "lock", 3, contended, "THREADS HOLD BETWEEN: one mutex for all" },
	{ "spin", 1, spinning, "THREADS: they compute" },
	{ "batch", 4, batch, "a service beside a batch process: THREADS SERVICE DUTY idle|batch|nice" },
	{ "quota", 4, quota, "THREADS QUOTA PERIOD FREE: a process with cpu.max beside one without" },
	{ "moved", 2, moved, "THREADS MS: a process moves into a throttled cgroup and out of it" },
	{ "partition", 4, partition, "a cpuset that cuts LLCs: THREADS FIRST LAST member|root|isolated" },
	{ "real-time", 3, real_time, "LOW HIGH NORMAL: SCHED_FIFO of two priorities, and normal threads" },
	{ "build", 3, build, "MAKES WORK SERVICE: a service beside processes that live for WORK" },
	{ "cookies", 2, cookies, "PROCESSES THREADS: core scheduling" },
	{ "mixed", 4, mixed, "PROCESSES LEAST MOST DUTY: each of another number of threads" },
	{ "starts", 3, starts, "PROCESSES LEAST MOST: the same, from the start, which run without end" },
};

static double clock_ms(clockid_t id)
{
	struct timespec time;

	clock_gettime(id, &time);
	return time.tv_sec * 1e3 + time.tv_nsec * 1e-6;
}

double now(void)
{
	return clock_ms(CLOCK_MONOTONIC);
}

double cpu_time(void)
{
	return clock_ms(CLOCK_THREAD_CPUTIME_ID);
}

static void spin(int turns)
{
	for (volatile int i = 0; i < turns; i++)
		;
}

void work(double ms)
{
	double end = cpu_time() + ms;

	while (cpu_time() < end)
		spin(300);
}

double varied(double ms, unsigned int *seed)
{
	*seed = *seed * 1103515245 + 12345;
	return ms * (500 + (*seed >> 8) % 1000) / 1000;
}

void nap(double ms)
{
	struct timespec time = { ms / 1e3, (long)(ms * 1e6) % 1000000000 };

	if (ms > 0)
		nanosleep(&time, NULL);
}

void here(struct seat *seat)
{
	int cpu = sched_getcpu();

	if (board->measuring) {
		seat->done++;
		seat->llc_changes += seat->cpu >= 0 && llc_of(seat->cpu) != llc_of(cpu);
	}
	seat->cpu = cpu;
	seat->used = cpu_time();
	seat->beat = now();
}

void waited(struct seat *seat, double ms)
{
	if (board->measuring && seat->waits < MOST_WAITS)
		seat->wait[seat->waits++] = ms;
}

int await(volatile int *word, int value)
{
	while (*word == value)
		syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
	return *word;
}

void wait_zero(volatile int *word)
{
	int value;

	while ((value = *word) != 0)
		await(word, value);
}

void release(volatile int *word)
{
	__sync_fetch_and_add(word, 1);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool count_down(volatile int *word)
{
	bool last = !__sync_sub_and_fetch(word, 1);

	if (last)
		syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return last;
}

void seats(int process, int first, int count)
{
	if (first + count > MOST_SEATS)
		errx(2, "more than %d threads", MOST_SEATS);
	for (int i = first; i < first + count; i++)
		board->seat[i].process = process;
	if (board->seats < first + count)
		board->seats = first + count;
}

/*
 * Allow the calling process, the p-th, only as few LLCs as it needs: those in which the processes before it have left
 * most room, as a person would do with taskset.
 */
static void pin(int p)
{
	double load[CPU_SETSIZE] = {};

	for (int i = 0; i <= p; i++) {
		int threads = 0;
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		for (int j = 0; j < board->seats; j++)
			threads += board->seat[j].process == i;
		for (int n = 0; n < fewest[i]; n++) {
			int least = -1;

			for (int cpu = 0; cpu < cpu_count; cpu++)
				if (llc_of(cpu) == cpu && !CPU_ISSET(cpu, &cpus) && (least < 0 || load[cpu] < load[least]))
					least = cpu;
			for (int cpu = 0; cpu < cpu_count; cpu++)
				if (llc_of(cpu) == least)
					CPU_SET(cpu, &cpus);
			load[least] += 1.0 * threads / fewest[i];
		}
		if (i == p && sched_setaffinity(0, sizeof(cpus), &cpus))
			err(1, "sched_setaffinity");
	}
}

pid_t process(void (*function)(int), int argument)
{
	pid_t pid = fork();

	if (pid < 0 || child_count == MOST_PROCESSES)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getenv("PINNED"))
			pin(child_count);
		function(argument);
		_exit(0);
	}
	children[child_count++] = pid;
	return pid;
}

void thread(void *(*function)(void *), void *argument)
{
	pthread_attr_t attributes;
	pthread_t id;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	error = pthread_create(&id, &attributes, function, argument);
	if (error)
		errx(1, "a thread: %s", strerror(error));
}

void threads(void *(*function)(void *), int first, int count)
{
	for (int i = first + 1; i < first + count; i++)
		thread(function, &board->seat[i]);
	if (count)
		function(&board->seat[first]);
}

/* What a process of crew() does. */
static void *(*crew_function)(void *);
static int crew_count;

static void crew_process(int first)
{
	threads(crew_function, first, crew_count);
}

pid_t crew(int p, void *(*function)(void *), int first, int count)
{
	seats(p, first, count);
	crew_function = function;
	crew_count = count;
	return process(crew_process, first);
}

void *hog(void *seat)
{
	for (;;) {
		spin(2000);
		here(seat);
	}
	return NULL;
}

int llc_of(int cpu)
{
	return llc_of_cpu[cpu];
}

/* The LLC of each CPU, whose number is that of its first CPU. */
static void read_llcs(void)
{
	char path[96];
	FILE *file;

	cpu_count = sysconf(_SC_NPROCESSORS_CONF);
	for (int i = 0; i < cpu_count; i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index3/shared_cpu_list", i);
		file = fopen(path, "r");
		if (!file)
			err(1, "%s", path);
		if (fscanf(file, "%d", &llc_of_cpu[i]) != 1)
			errx(1, "%s: no number", path);
		fclose(file);
	}
}

struct looks look(int first, int count, double ms)
{
	double begin = now(), end = begin + ms;
	struct looks looks = {};
	int processes = 0;

	for (int i = first; i < first + count; i++)
		if (board->seat[i].process >= processes)
			processes = board->seat[i].process + 1;
	do {
		static bool llc[MOST_PROCESSES][CPU_SETSIZE], cpus[CPU_SETSIZE];
		int used = 0, all = 0, seen = 0, in_few = 0, in_llcs = 0;

		nap(LOOK_MS);
		memset(llc, 0, sizeof(llc));
		memset(cpus, 0, sizeof(cpus));
		for (int i = first; i < first + count; i++) {
			int cpu = board->seat[i].cpu;

			if (cpu < 0)
				continue;
			all++;
			used += !cpus[cpu];
			cpus[cpu] = true;
			llc[board->seat[i].process][llc_of(cpu)] = true;
		}
		for (int p = 0; p < processes; p++) {
			int llcs = 0;

			for (int i = 0; i < cpu_count; i++)
				llcs += llc[p][i];
			seen += llcs > 0;
			in_few += llcs > 0 && llcs <= fewest[p];
			in_llcs += llcs;
		}
		looks.together += seen ? 100.0 * in_few / seen : 0;
		looks.llcs += seen ? 1.0 * in_llcs / seen : 0;
		looks.cpus += used;
		looks.stacked += all - used;
		looks.count++;
	} while (now() < end);
	looks.ms = now() - begin;
	looks.together /= looks.count;
	looks.llcs /= looks.count;
	looks.cpus /= looks.count;
	looks.stacked /= looks.count;
	return looks;
}

struct looks measure(int first, int count)
{
	struct looks looks;

	nap(WARM_MS);
	board->measuring = 1;
	looks = look(first, count, measure_ms);
	board->measuring = 0;
	return looks;
}

double used(int first, int count)
{
	double sum = 0;

	for (int i = first; i < first + count; i++)
		sum += board->seat[i].used;
	return sum;
}

long done(int first, int count)
{
	long sum = 0;

	for (int i = first; i < first + count; i++)
		sum += board->seat[i].done;
	return sum;
}

long llc_changes(int first, int count)
{
	long sum = 0;

	for (int i = first; i < first + count; i++)
		sum += board->seat[i].llc_changes;
	return sum;
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* All waits of some seats in an array that the caller frees, and how many there are. */
static float *all_waits(int first, int count, int *total)
{
	float *waits = malloc(sizeof(*waits) * MOST_WAITS * count);

	*total = 0;
	for (int i = first; i < first + count; i++) {
		int count = board->seat[i].waits;

		if (!count || count == MOST_WAITS)
			errx(1, "thread %d has waited %d times", i, count);
		memcpy(waits + *total, board->seat[i].wait, count * sizeof(*waits));
		*total += count;
	}
	return waits;
}

double wait_at(int first, int count, double share)
{
	int total;
	float *waits = all_waits(first, count, &total);
	double value;

	qsort(waits, total, sizeof(*waits), compare);
	value = waits[(int)(share * (total - 1))];
	free(waits);
	return value;
}

double wait_mean(int first, int count)
{
	int total;
	float *waits = all_waits(first, count, &total);
	double sum = 0;

	for (int i = 0; i < total; i++)
		sum += waits[i];
	free(waits);
	return sum / total;
}

void figure(const char *name, double value)
{
	int length = strlen(printed);

	snprintf(printed + length, sizeof(printed) - length, ", \"%s\": %.4f", name, value);
}

void print_figures(void)
{
	printf("# {\"figure\": \"case\"%s}\n", printed);
	fflush(stdout);
}

bool put(const char *file, const char *text)
{
	char path[160];
	bool done;
	int fd;

	snprintf(path, sizeof(path), CGROUPS "%s", file);
	fd = open(path, O_WRONLY);
	done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return done;
}

bool has(const char *file, const char *text)
{
	char path[160], line[160] = "";
	FILE *stream;

	snprintf(path, sizeof(path), CGROUPS "%s", file);
	stream = fopen(path, "r");
	if (!stream || !fgets(line, sizeof(line), stream))
		err(1, "%s", path);
	fclose(stream);
	line[strcspn(line, "\n")] = 0;
	return !strcmp(line, text);
}

void directory(const char *name)
{
	snprintf(made[made_count], sizeof(made[0]), CGROUPS "%s", name);
	if (mkdir(made[made_count], 0755))
		err(1, "%s", made[made_count]);
	made_count++;
}

/* However the program ends: the children, then what they were in. */
static void clean_up(void)
{
	/* A child that fails comes here, too. */
	if (main_process != getpid())
		return;
	for (int i = 0; i < child_count; i++)
		kill(children[i], SIGKILL);
	for (int i = 0; i < child_count; i++)
		waitpid(children[i], NULL, 0);
	while (made_count--)
		if (rmdir(made[made_count]))
			warn("%s", made[made_count]);
}

/* A process that has ended has failed. Some threads may not have started. */
static void check(void)
{
	for (int i = 0; i < child_count; i++)
		if (waitpid(children[i], NULL, WNOHANG))
			errx(1, "a process has ended");
	for (int i = 0; i < board->seats; i++)
		if (board->seat[i].cpu < 0)
			errx(1, "thread %d did not run", i);
}

double number(int index)
{
	char *end;
	double value = strtod(arguments[index], &end);

	if (*end || end == arguments[index])
		errx(2, "%s: no number", arguments[index]);
	return value;
}

/* Is the last word one of those that the usage ends with? */
static bool known(const char *usage, const char *word)
{
	const char *list = strrchr(usage, ' ') + 1;
	size_t length = strlen(word);

	if (!strchr(list, '|'))
		return true;
	for (; list; list = strchr(list, '|') ? strchr(list, '|') + 1 : NULL)
		if (!strncmp(list, word, length) && (list[length] == '|' || !list[length]))
			return true;
	return false;
}

int llcs_for(double cpus)
{
	int llcs = 0, fit;

	for (int i = 0; i < cpu_count; i++)
		llcs += llc_of(i) == i;
	fit = cpu_count / llcs;
	return cpus > fit ? (int)((cpus - 0.01) / fit) + 1 : 1;
}

bool word(int index, const char *text)
{
	return !strcmp(arguments[index], text);
}

int main(int count, char **words)
{
	size_t which;

	for (which = 0; which < sizeof(kinds) / sizeof(kinds[0]); which++)
		if (count > 2 && !strcmp(words[2], kinds[which].name) && count == 3 + kinds[which].arguments &&
		    known(kinds[which].usage, words[count - 1]))
			break;
	measure_ms = count > 1 ? atof(words[1]) : 0;
	if (which == sizeof(kinds) / sizeof(kinds[0]) || measure_ms <= 0) {
		fprintf(stderr, "cases MS KIND ...: measure for MS; all times in ms\n");
		for (which = 0; which < sizeof(kinds) / sizeof(kinds[0]); which++)
			fprintf(stderr, "  %s %s\n", kinds[which].name, kinds[which].usage);
		return 2;
	}
	arguments = words + 3;
	read_llcs();
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		err(1, "memory");
	for (int i = 0; i < MOST_SEATS; i++)
		board->seat[i].cpu = -1;
	for (int i = 0; i < MOST_PROCESSES; i++)
		fewest[i] = 1;
	main_process = getpid();
	atexit(clean_up);
	kinds[which].run();
	check();
	print_figures();
	return 0;
}
