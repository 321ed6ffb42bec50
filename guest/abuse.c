// SPDX-License-Identifier: GPL-2.0-only
/*
 * abuse victims SECONDS        measure how late the threads of three processes wake up, and print of each
 *                              NAME=VALUE...: times in us, and the gate of its preferred LLC
 * abuse attack KIND THREADS    until killed, load that many CPUs in a way that may delay the victims
 *
 * All attackers but the controls run as the user nobody.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attributes.h"

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define NOBODY 65534
/* The process id of the victim whose LLC is filled. */
#define VICTIM "/tmp/victim.pid"
/* Pipes that anybody may write to: a thread of each victim reads one. */
#define INBOX "/tmp/inbox."
/* Until the victims have preferred LLCs, and their threads have been moved there. */
#define WARM_NS 200000000ull
/* How long to wait for threads that are to wake up before the end and are late. */
#define LATE_NS 100000000ull
#define PERIOD_NS 1000000ull
#define MOST_WAKEUPS 200000
/* Small, so that threads are created fast. */
#define STACK (64 * 1024)
/* Of two-ccx, a process with so many running threads is just below the limit of the gate `busy`. */
#define EACH 3

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Compute for that much time of a CPU: it takes longer where the thread has to wait. */
static void compute(unsigned int us)
{
	uint64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + us * 1000ull;

	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void start_thread(void *(*function)(void *), void *argument)
{
	pthread_attr_t attr;
	pthread_t id;
	int error;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	error = pthread_create(&id, &attr, function, argument);
	if (error)
		errx(1, "thread: %s", strerror(error));
}

/* ---- victims ---- */

static uint64_t measure_from, measure_to;
static _Atomic unsigned int nr_wakeups;
static float lateness_us[MOST_WAKEUPS];

/* Count a wakeup that was due at `due`. */
static void woken(uint64_t due)
{
	uint64_t at = now();
	unsigned int i;

	if (due < measure_from || due >= measure_to)
		return;
	i = nr_wakeups++;
	if (i < MOST_WAKEUPS)
		lateness_us[i] = (at - due) / 1e3;
}

static void *read_inbox(void *path)
{
	int fd = open(path, O_RDWR);
	char bytes[64];

	if (fd < 0)
		err(1, "%s", (char *)path);
	while (read(fd, bytes, sizeof(bytes)) > 0)
		;
	return NULL;
}

/* Sleep until each ms, and compute for some us of it. A period that has passed is left out. */
static void *periodic(void *us)
{
	uint64_t due = now();

	while (due < measure_to) {
		struct timespec t;

		do
			due += PERIOD_NS;
		while (due < now());
		t = (struct timespec){ due / 1000000000, due % 1000000000 };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
		woken(due);
		compute((uintptr_t)us);
	}
	return NULL;
}

struct end { int in, out; };

/* Wait for a byte, compute, and wake the other thread by a byte: with its time. */
static void *turns(void *argument)
{
	struct end *end = argument;
	uint64_t sent;

	while (now() < measure_to && read(end->in, &sent, sizeof(sent)) == sizeof(sent)) {
		woken(sent);
		compute(20);
		sent = now();
		if (write(end->out, &sent, sizeof(sent)) != sizeof(sent))
			break;
	}
	return NULL;
}

static void start_pair(void)
{
	struct end *ends = calloc(2, sizeof(*ends));
	uint64_t sent = now();
	int there[2], back[2];

	if (!ends || pipe(there) || pipe(back) || write(there[1], &sent, sizeof(sent)) < 0)
		err(1, "pair");
	ends[0] = (struct end){ there[0], back[1] };
	ends[1] = (struct end){ back[0], there[1] };
	start_thread(turns, &ends[0]);
	start_thread(turns, &ends[1]);
}

static int compare(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* What the kernel says of the preferred LLC; "none" of a kernel that has no such line. */
static void find_gate(char *gate)
{
	char line[256];
	FILE *file = fopen("/proc/self/sched", "r");

	strcpy(gate, "none");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "cache.group.gate : %31s", gate);
}

static const struct kind {
	const char *name;
	char *inbox;
	/* What each of four threads computes per ms; 0 of two that wake each other. */
	unsigned int us;
} victims[] = {
	{ "sleepers", INBOX "0", 20 },
	{ "workers", INBOX "1", 500 },
	{ "pair", INBOX "2", 0 },
};

static void victim(const struct kind *kind)
{
	unsigned int count, i;
	char gate[32];
	FILE *file;

	if (kind->us == 500) {
		file = fopen(VICTIM, "w");
		if (!file || fprintf(file, "%d\n", getpid()) < 0 || fclose(file))
			err(1, VICTIM);
	}
	start_thread(read_inbox, kind->inbox);
	for (i = 0; i < (kind->us ? 4 : 0); i++)
		start_thread(periodic, (void *)(uintptr_t)kind->us);
	if (!kind->us)
		start_pair();
	while (now() < measure_to + LATE_NS)
		usleep(10000);
	count = nr_wakeups < MOST_WAKEUPS ? nr_wakeups : MOST_WAKEUPS;
	if (!count)
		errx(1, "no wakeups");
	qsort(lateness_us, count, sizeof(*lateness_us), compare);
	find_gate(gate);
	/* One write: others print as well. */
	dprintf(STDOUT_FILENO, "victim=%s wakeups=%u median=%.1f p99=%.1f max=%.1f gate=%s\n", kind->name,
		count, lateness_us[count / 2], lateness_us[count * 99ull / 100], lateness_us[count - 1], gate);
	_exit(0);
}

static int measure(double seconds)
{
	int result = 0, status;

	/* Sleep until the time and no longer. */
	prctl(PR_SET_TIMERSLACK, 1);
	umask(0);
	measure_from = now() + WARM_NS;
	measure_to = measure_from + seconds * 1e9;
	for (size_t i = 0; i < ARRAY_SIZE(victims); i++) {
		pid_t pid;

		if (mkfifo(victims[i].inbox, 0666) && errno != EEXIST)
			err(1, "%s", victims[i].inbox);
		pid = fork();
		if (pid < 0)
			err(1, "fork");
		if (!pid)
			victim(&victims[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(victims); i++)
		result |= wait(&status) < 0 || status;
	return result;
}

/* ---- attackers ---- */

static int nr_threads;

/* How many of the threads the process with this number has, if each has at most `each`. */
static int part(int number, int each)
{
	int rest = nr_threads - number * each;

	return rest < each ? rest : each;
}

static void *spin(void *unused)
{
	for (;;)
		atomic_signal_fence(memory_order_seq_cst);
	return unused;
}

/* Start the threads, but for one that is the caller. */
static void run_threads(int count, void *(*function)(void *))
{
	while (--count > 0)
		start_thread(function, NULL);
	function(NULL);
}

/* With the shortest slice there is: half of them compute, half wake up all the time to preempt. */
static void *short_slice(void *unused)
{
	struct attributes attributes = { .size = sizeof(attributes), .runtime = 100000 };
	static atomic_int started;
	int number = started++;

	if (syscall(SYS_sched_setattr, 0, &attributes, 0))
		err(1, "slice");
	prctl(PR_SET_TIMERSLACK, 1);
	while (number % 2) {
		struct timespec t = { 0, 10000 };

		compute(90);
		nanosleep(&t, NULL);
	}
	return spin(unused);
}

static void attack_slices(void)
{
	run_threads(nr_threads, short_slice);
}

static void *short_lived(void *unused)
{
	compute(50);
	return unused;
}

static void *create_threads(void *unused)
{
	pthread_attr_t attr;
	pthread_t id;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	for (;;)
		if (!pthread_create(&id, &attr, short_lived, NULL))
			pthread_join(id, NULL);
	return unused;
}

static void attack_storm(void)
{
	run_threads(nr_threads, create_threads);
}

/* Processes of two threads, each of which chooses a preferred LLC and ends soon. */
static void attack_processes(void)
{
	for (int running = 0;; running--) {
		for (; running < (nr_threads + 1) / 2; running++) {
			pid_t pid = fork();

			if (pid < 0)
				err(1, "fork");
			if (!pid) {
				start_thread(spin, NULL);
				compute(100000);
				_exit(0);
			}
		}
		if (wait(NULL) < 0)
			err(1, "wait");
	}
}

/* Start processes of at most `each` threads that run a function. */
static void start_processes(int each, void (*function)(int count))
{
	for (int i = 0; part(i, each) > 0; i++) {
		pid_t pid = fork();

		if (pid < 0)
			err(1, "fork");
		if (!pid)
			function(part(i, each));
	}
}

/* As many pairs as threads: one of two runs at a time. Each wakeup is evidence of communication. */
static void ping_pong(int pairs)
{
	measure_to = UINT64_MAX;
	while (pairs-- > 0)
		start_pair();
	for (;;)
		pause();
}

static void attack_flood(void)
{
	start_processes(EACH, ping_pong);
	pause();
}

/* The CPUs to fill, and a number that changes with them. */
static struct { cpu_set_t cpus; atomic_uint version; } *target;

static void *spin_there(void *unused)
{
	unsigned int seen = 0;

	for (;;) {
		unsigned int version = target->version;

		if (version != seen && !sched_setaffinity(0, sizeof(target->cpus), &target->cpus))
			seen = version;
	}
	return unused;
}

static void fill(int count)
{
	run_threads(count, spin_there);
}

/* The CPUs that share the LLC of a CPU. */
static void llc_of(int cpu, cpu_set_t *cpus)
{
	char path[80], list[256] = "", *at = list;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/cache/index3/shared_cpu_list",
		 cpu);
	file = fopen(path, "r");
	if (!file || !fgets(list, sizeof(list), file))
		err(1, "%s", path);
	fclose(file);
	CPU_ZERO(cpus);
	while (*at >= '0' && *at <= '9') {
		long first = strtol(at, &at, 10);
		long last = *at == '-' ? strtol(at + 1, &at, 10) : first;

		for (; first <= last; first++)
			CPU_SET(first, cpus);
		at += *at == ',';
	}
}

/* The CPU where a thread ran last, from the 39th field of its stat; -1 if it is gone. */
static int cpu_of(int pid, const char *thread)
{
	char path[64], text[1024] = "", *at;
	FILE *file;
	int i;

	snprintf(path, sizeof(path), "/proc/%d/task/%.16s/stat", pid, thread);
	file = fopen(path, "r");
	if (!file)
		return -1;
	at = fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;
	fclose(file);
	for (i = 2; at && i < 39; i++)
		at = strchr(at + 1, ' ');
	return at ? atoi(at) : -1;
}

/* The LLC in which the victim has most threads, as anybody can see; false if there is no victim. */
static bool find_victim(cpu_set_t *cpus)
{
	int pid = 0, most = 0, cpu, votes[CPU_SETSIZE] = { 0 };
	FILE *file = fopen(VICTIM, "r");
	struct dirent *entry;
	char path[32];
	DIR *tasks;

	if (file && fscanf(file, "%d", &pid) != 1)
		pid = 0;
	if (file)
		fclose(file);
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	tasks = opendir(path);
	while (tasks && (entry = readdir(tasks))) {
		cpu = entry->d_name[0] == '.' ? -1 : cpu_of(pid, entry->d_name);
		if (cpu < 0)
			continue;
		llc_of(cpu, cpus);
		for (cpu = 0; !CPU_ISSET(cpu, cpus);)
			cpu++;
		votes[cpu]++;
	}
	if (tasks)
		closedir(tasks);
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (votes[cpu] > votes[most])
			most = cpu;
	if (!votes[most])
		return false;
	llc_of(most, cpus);
	return true;
}

/* Processes on the CPUs of the victim's LLC only, where it can be seen to run. */
static void attack_fill(void)
{
	cpu_set_t cpus;

	target = mmap(NULL, sizeof(*target), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (target == MAP_FAILED)
		err(1, "mmap");
	start_processes(EACH, fill);
	for (;; usleep(50000)) {
		if (!find_victim(&cpus) || (target->version && CPU_EQUAL(&cpus, &target->cpus)))
			continue;
		target->cpus = cpus;
		target->version++;
	}
}

static void *wake_victim(void *unused)
{
	static atomic_int started;
	const char *inbox = victims[started++ % ARRAY_SIZE(victims)].inbox;
	int fd = -1;

	for (;;) {
		if (fd < 0)
			fd = open(inbox, O_WRONLY | O_NONBLOCK);
		/* With no reader it fails: the victim is not there yet. */
		if (fd >= 0 && write(fd, "", 1) < 0 && errno != EAGAIN) {
			close(fd);
			fd = -1;
		}
		compute(20);
	}
	return unused;
}

static void attack_wake(void)
{
	signal(SIGPIPE, SIG_IGN);
	run_threads(nr_threads, wake_victim);
}

/* The controls, which need privileges: the victim must be seen to be late. */
static void control_nice(void)
{
	if (setpriority(PRIO_PROCESS, 0, -20))
		err(1, "nice");
	run_threads(nr_threads, spin);
}

static void *fifo(void *unused)
{
	struct sched_param parameters = { .sched_priority = 1 };

	if (sched_setscheduler(0, SCHED_FIFO, &parameters))
		err(1, "SCHED_FIFO");
	/* The CPU time is for others as well: kernel threads, and what ends this. */
	for (;;) {
		compute(5000);
		usleep(5000);
	}
	return unused;
}

static void control_fifo(void)
{
	run_threads(nr_threads, fifo);
}

static const struct attacker {
	const char *name;
	void (*run)(void);
	bool privileged;
} attackers[] = {
	{ "slices", attack_slices, false },   { "storm", attack_storm, false },
	{ "processes", attack_processes, false }, { "flood", attack_flood, false },
	{ "fill", attack_fill, false },	      { "wake", attack_wake, false },
	{ "nice", control_nice, true },	      { "fifo", control_fifo, true },
};

static int attack(const char *kind, int threads)
{
	nr_threads = threads;
	for (size_t i = 0; i < ARRAY_SIZE(attackers); i++) {
		if (strcmp(kind, attackers[i].name))
			continue;
		if (!attackers[i].privileged &&
		    (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) ||
		     setresuid(NOBODY, NOBODY, NOBODY)))
			err(1, "nobody");
		attackers[i].run();
	}
	errx(2, "no such attacker: %s", kind);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "victims") && atof(argv[2]) > 0)
		return measure(atof(argv[2]));
	if (argc == 4 && !strcmp(argv[1], "attack") && atoi(argv[3]) > 0)
		return attack(argv[2], atoi(argv[3]));
	errx(2, "usage: abuse victims SECONDS | abuse attack KIND THREADS");
}
