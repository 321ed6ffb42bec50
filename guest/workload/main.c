// SPDX-License-Identifier: GPL-2.0-only
/* workload: the program that make sim runs in the guest. It runs on hosts, too. usage[] says how. */
#include "workload.h"

#include <errno.h>
#include <stdarg.h>

/* Until the kernel has done what it puts off after the programs before. */
#define SETTLE_US 20000
/* The program is killed after so many seconds, plus the windows: a task that has failed may keep
 * others waiting for ever. */
#define SECONDS 20

static const char usage[] =
"usage: workload SEED [OPTION=VALUE]... KIND ARGUMENT...\n"
"       workload help\n"
"\n"
"Runs one workload and prints a line for each measured window: its figure, the unit, and for some\n"
"kinds NAME=VALUE of further figures. pN are percentiles in us; per_ms counts operations per ms.\n"
"SEED varies what a measurement must not depend on: where memory lies, and which task starts first.\n"
"\n"
"Options:\n"
"  cpus=CPU,CPU,...  use these CPUs only. A CPU's number in the arguments is its place in the list,\n"
"                    from 0 on\n"
"  start=HOW         during the warm-up, restrict each task to one LLC; HOW is:\n"
"                    together: all tasks of a group in one LLC, and each group in another one, as far\n"
"                    as there are enough; two-llcs: each group in two LLCs of a socket; two-sockets:\n"
"                    each group in an LLC of each of two sockets; scattered: each group over all LLCs.\n"
"                    Tasks that talk to each other are in different LLCs, unless HOW is together.\n"
"                    A group is what works on the same data: the threads of a process, a lane, or a\n"
"                    group of hackbench's\n"
"  windows=N         measure N windows, each after a warm-up of its own; tasks are placed again\n"
"  window_ms=MS      length of a window in ms, in place of the argument MS\n"
"  settle_ms=MS      before each window's warm-up, let the tasks run for MS ms more\n"
"  between=COMMAND   before each window, run COMMAND with its number, from 0 on\n"
"  stats=DIRECTORY   copy schedstat and wakeup_stats to DIRECTORY, as NAME.before and NAME.after\n"
"\n"
"Kinds that measure a number of operations. Only those marked with * can be placed, none has windows:\n"
"  chase CPU HOME KIB LOADS\n"
"      ns per load that depends on the load before, at random in KIB of memory of HOME's node\n"
"  bounce CPU CPU TIMES [HOME]\n"
"      ns until a line that one CPU has changed is changed by the other. The line is in memory of HOME's\n"
"      node, by default that of the first CPU\n"
"  counters CPU CPU TIMES\n"
"      ns per increment of one of two counters in a line, while the other CPU increments the other\n"
"  ping-pong CPU CPU TIMES\n"
"      ns per round trip of a byte through two pipes, between two processes\n"
"* messages GROUPS PAIRS LOOPS threads|processes|groups pipe|socket FIRST LAST [SLICE_US]\n"
"      hackbench. ms until, in each group, PAIRS senders have sent LOOPS messages of 100 bytes to each\n"
"      of PAIRS receivers, on CPUs FIRST to LAST. threads: all tasks are threads of one process;\n"
"      processes: each task is a process; groups: each group is a process. SLICE_US: the slice that\n"
"      each task asks for, in us, 100 to 100000\n"
"* pipeline LANES STAGES LOOPS WARM [joined]\n"
"      ms until LOOPS messages have gone through each lane of STAGES processes with two threads each,\n"
"      after WARM ms. joined: the processes of a lane are one group of cache-aware scheduling\n"
"* cyclic THREADS PERIOD_US TIMES [lockstep]\n"
"      us that SCHED_FIFO threads run late, on average. Each runs for a tenth of each of TIMES periods.\n"
"      Their periods begin one after the other, evenly; lockstep: all at once\n"
"\n"
"Kinds that measure windows of MS ms, after WARM ms:\n"
"* rate GROUPS PAIRS WARM MS threads|processes|groups pipe|socket FIRST LAST [SLICE_US]\n"
"      messages/ms of a hackbench that does not end\n"
"* rr PAIRS WORK_US WARM MS threads|processes|client-server FIRST LAST [SLICE_US]\n"
"      requests/ms of PAIRS clients, each with a server of its own: a byte there and back through an\n"
"      AF_UNIX socket, with WORK_US us of computing for each request. threads: all tasks are threads\n"
"      of one process; processes: each task is a process; client-server: the clients are the threads\n"
"      of one process, the servers those of another. pN: round trip\n"
"* sharing PROCESSES THREADS KIB WARM MS \\\n"
"          [pinned|near|apart|stride|read|segment|joined]\n"
"      steps/ms of threads that share KIB with the threads of their process: 64 random accesses, one\n"
"      of eight a write; 64 steps are followed by a sleep of 20 us. pinned: each thread has a CPU, far\n"
"      from those of its process, and cannot be placed; near: each has the next CPU; apart: each thread\n"
"      uses a part of its own; stride: each thread uses its own lines of every page; read:\n"
"      nothing is written; segment: all processes share KIB; joined: and are one group\n"
"* tenants PROCESSES PERCENT WARM MS [near]\n"
"      steps/ms of a process, the geometric mean: such threads in processes of 14 to 1 threads, as many in\n"
"      all as PERCENT of the CPUs, if that is no more; each process shares 256 KiB to 8 MiB. near: each\n"
"      thread has the next CPU\n"
"* phase PROCESSES THREADS KIB OWN_KIB PHASE_MS WARM MS\n"
"      steps/ms of the same threads, which share KIB for PHASE_MS ms, then use OWN_KIB each of their own\n"
"      for PHASE_MS ms, and so on. Phases follow the clock\n"
"* hog PROCESSES THREADS KIB WARM MS\n"
"      GB/s of threads that never sleep and go through KIB of their own: a word of each line is changed\n"
"* handoff LANES WORK_US SHARED_KIB PRIVATE_KIB WARM MS\n"
"      handoffs/ms of lanes of two threads, all in one process. One thread of a lane works at a time:\n"
"      it changes SHARED_KIB of the lane's, computes for WORK_US us, touching a random line of its own\n"
"      PRIVATE_KIB every 20 ns or so, and wakes the other one by a futex. So a CPU second has\n"
"      1000000 / WORK_US wakeups at most. pN: from the wakeup to running\n"
"* mixed HOGS KIB PAIRS WORK_US WARM MS [never]\n"
"      GB/s of HOGS threads of hog with KIB each, in one process with PAIRS lanes of handoff that share\n"
"      no data. pN: wakeups of the lanes. never: the hogs are left out of the group of the process\n"
"* barrier THREADS WORK_US PRIVATE_KIB WARM MS\n"
"      rounds/ms of threads of one process. In each round, each thread computes for WORK_US us, touching\n"
"      random lines of its own PRIVATE_KIB as handoff does, and sleeps until all threads are done\n"
"* stw MUTATORS MUTATE_US WORKERS WORK_US KIB WARM MS\n"
"      rounds/ms of threads of one process that share KIB, and touch random lines of it: MUTATORS compute\n"
"      for MUTATE_US us and sleep until all WORKERS, which begin at once then, have computed for WORK_US\n"
"      us each. pN: from the end of the mutators to a worker that runs\n"
"* latency MESSENGERS WORKERS WORK_US PAUSE_US WARM MS\n"
"      us from wakeup to running, 99th percentile, in the shape of schbench: each of MESSENGERS threads\n"
"      wakes WORKERS threads of its own. A worker computes for WORK_US us, sleeps for PAUSE_US us and\n"
"      asks to be woken\n"
"  pi GROUPS STEP WARM MS\n"
"      inversions/ms of groups of three SCHED_FIFO threads, in the shape of pi_stress. A group has a CPU\n"
"      of its own, STEP CPUs from that of the one before. In each round, the thread of the lowest\n"
"      priority locks a PI futex, that of the highest waits for it, and the one between them spins until\n"
"      the highest has had it. So the lowest has to inherit the priority of the highest\n"
"  scale open|lock|switch THREADS STEP WARM MS\n"
"      operations/ms of THREADS pinned threads of one process, in the shape of will-it-scale. open: each\n"
"      opens and closes a file of its own; lock: each locks and unlocks one; switch: THREADS pairs of\n"
"      threads on neighbouring CPUs send a byte there and back. A thread, or pair, is STEP CPUs from the\n"
"      one before: with STEP threads to a core, each core gets one before any gets a second one\n"
"\n"
"WORK_US is the time on a CPU without interference; misses and a busy SMT sibling come on top.\n"
"Numbers are whole, but WORK_US may have a fraction.\n";

/* The arguments that are left, and what the usage calls them. */
static char **arguments;
static int argument_count, argument_next;

static void __attribute__((format(printf, 1, 2), noreturn)) bad(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vwarnx(format, list);
	va_end(list);
	fprintf(stderr, "try: workload help\n");
	exit(2);
}

static double parse(const char *name, const char *text, double low, double high, bool whole)
{
	char *end;
	double value;

	errno = 0;
	value = whole ? strtol(text, &end, 10) : strtod(text, &end);
	/* The comparison is false for NaN. */
	if (errno || end == text || *end || !(value >= low && value <= high))
		bad("%s: '%s' is no%s number from %.0f to %.0f", name, text, whole ? " whole" : "", low,
		    high);
	return value;
}

static const char *next(const char *name)
{
	if (argument_next == argument_count)
		bad("%s is missing", name);
	return arguments[argument_next++];
}

/* The next argument, a whole number. */
static long number(const char *name, long low, long high)
{
	return parse(name, next(name), low, high, true);
}

static double work_argument(void)
{
	return parse("WORK_US", next("WORK_US"), 0, 1e6, false);
}

/* Which of some words, separated by '|', the next argument is. */
static int word(const char *words)
{
	const char *given = next(words), *place = words;
	size_t length = strlen(given);
	int i = 0;

	for (;; i++) {
		size_t here = strcspn(place, "|");

		if (here == length && !strncmp(place, given, here))
			return i;
		if (!place[here])
			bad("'%s' is none of %s", given, words);
		place += here + 1;
	}
}

static bool more(void)
{
	return argument_next < argument_count;
}

static void no_more(void)
{
	if (more())
		bad("'%s' is one argument too many", arguments[argument_next]);
}

#define MOST_CPU (CPU_SETSIZE - 1)
/* A day, as nothing takes longer; and a TiB, as nothing is larger. */
#define MOST_MS (24 * 3600 * 1000L)
#define MOST_KIB (1L << 30)

static int cpu_argument(const char *name)
{
	return number(name, 0, MOST_CPU);
}

static long warm_argument(void)
{
	return number("WARM", 0, MOST_MS);
}

static long ms_argument(void)
{
	return number("MS", 1, MOST_MS);
}

static long slice_argument(void)
{
	long slice = more() ? number("SLICE_US", 100, 100000) : 0;

	no_more();
	return slice;
}

static void run_chase(void)
{
	int cpu = cpu_argument("CPU"), home = cpu_argument("HOME");
	long kib = number("KIB", 1, MOST_KIB), loads = number("LOADS", 100, 1L << 40);

	no_more();
	chase(cpu, home, kib, loads);
}

static void run_pair(void (*run)(int, int, long))
{
	int a = cpu_argument("CPU"), b = cpu_argument("CPU");
	long times = number("TIMES", 10, 1 << 30);

	no_more();
	run(a, b, times);
}

static void run_bounce(void)
{
	int a = cpu_argument("CPU"), b = cpu_argument("CPU");
	long times = number("TIMES", 10, 1 << 30);
	int home = more() ? cpu_argument("HOME") : a;

	no_more();
	bounce(a, b, times, home);
}

static void run_counters(void)
{
	run_pair(count_both);
}

static void run_ping_pong(void)
{
	run_pair(ping_pong);
}

static void channel_arguments(struct messages *given)
{
	given->how = (enum how[]){ THREADS, PROCESSES, GROUPS }[word("threads|processes|groups")];
	given->sockets = word("pipe|socket");
	given->first = cpu_argument("FIRST");
	given->last = number("LAST", given->first, MOST_CPU);
	given->slice_us = slice_argument();
}

static void run_messages(void)
{
	struct messages given = { .groups = number("GROUPS", 1, MOST_TASKS / 2) };

	given.pairs = number("PAIRS", 1, MOST_TASKS / 2);
	given.loops = number("LOOPS", 1, 1 << 30);
	channel_arguments(&given);
	messages(&given);
}

static void run_rate(void)
{
	struct messages given = { .groups = number("GROUPS", 1, MOST_TASKS / 2) };
	long warm, ms;

	given.pairs = number("PAIRS", 1, MOST_TASKS / 2);
	warm = warm_argument();
	ms = ms_argument();
	channel_arguments(&given);
	rate(&given, warm, ms);
}

static void run_pipeline(void)
{
	int lanes = number("LANES", 1, MOST_TASKS / 2), stages = number("STAGES", 1, MOST_TASKS / 2);
	long loops = number("LOOPS", 1, 1 << 30), warm = warm_argument();
	bool joined = more() && !word("joined");

	no_more();
	pipeline(lanes, stages, loops, warm, joined);
}

static void run_cyclic(void)
{
	int threads = number("THREADS", 1, MOST_TASKS);
	long period = number("PERIOD_US", 1, 1 << 20), times = number("TIMES", 1, 1 << 20);
	bool lockstep = more() && !word("lockstep");

	no_more();
	cyclic(threads, period, times, lockstep);
}

static void run_rr(void)
{
	int pairs = number("PAIRS", 1, MOST_TASKS / 2), first, last;
	double work = work_argument();
	long warm = warm_argument(), ms = ms_argument();
	enum how how = (enum how[]){ THREADS, PROCESSES, CLIENT_SERVER }[
		word("threads|processes|client-server")];

	first = cpu_argument("FIRST");
	last = number("LAST", first, MOST_CPU);
	request_response(pairs, work, warm, ms, how, first, last, slice_argument());
}

static void run_sharing(void)
{
	int processes = number("PROCESSES", 1, MOST_TASKS), threads = number("THREADS", 1, MOST_TASKS);
	long kib = number("KIB", 1, MOST_KIB), warm = warm_argument(), ms = ms_argument();
	enum sharers how = ANYWHERE;

	if (more())
		how = (enum sharers[]){ PINNED, NEAR, APART, STRIDE, READ, SEGMENT, JOINED }[
			word("pinned|near|apart|stride|read|segment|joined")];
	no_more();
	if ((how == PINNED || how == NEAR) && options.start != START_NONE)
		bad("start: pinned threads cannot be placed");
	sharing(processes, threads, kib, warm, ms, how);
}

static void run_tenants(void)
{
	int processes = number("PROCESSES", 2, MOST_TASKS / 14), percent = number("PERCENT", 1, 1000);
	long warm = warm_argument(), ms = ms_argument();
	enum sharers how = more() && !word("near") ? NEAR : ANYWHERE;

	no_more();
	if (how == NEAR && options.start != START_NONE)
		bad("start: pinned threads cannot be placed");
	tenants(processes, percent, warm, ms, how);
}

static void run_stw(void)
{
	int mutating = number("MUTATORS", 1, MOST_TASKS / 2);
	double mutator_us = parse("MUTATE_US", next("MUTATE_US"), 0, 1e6, false);
	int workers = number("WORKERS", 1, MOST_TASKS / 2);
	double work = work_argument();
	long kib = number("KIB", 1, MOST_KIB), warm = warm_argument(), ms = ms_argument();

	no_more();
	stop_the_world(mutating, mutator_us, workers, work, kib, warm, ms);
}

static void run_phase(void)
{
	int processes = number("PROCESSES", 1, MOST_TASKS), threads = number("THREADS", 1, MOST_TASKS);
	long kib = number("KIB", 1, MOST_KIB), own = number("OWN_KIB", 1, MOST_KIB);
	long phase_ms = number("PHASE_MS", 1, MOST_MS), warm = warm_argument(), ms = ms_argument();

	no_more();
	phase(processes, threads, kib, own, phase_ms, warm, ms);
}

static void run_hog(void)
{
	int processes = number("PROCESSES", 1, MOST_TASKS), threads = number("THREADS", 1, MOST_TASKS);
	/* It is used in pieces of a page. */
	long kib = number("KIB", 4, MOST_KIB) & ~3L, warm = warm_argument(), ms = ms_argument();

	no_more();
	hog(processes, threads, kib, warm, ms);
}

static void run_handoff(void)
{
	int lanes = number("LANES", 1, MOST_TASKS / 2);
	double work = work_argument();
	long shared = number("SHARED_KIB", 0, MOST_KIB), own = number("PRIVATE_KIB", 0, MOST_KIB);
	long warm = warm_argument(), ms = ms_argument();

	no_more();
	handoff(lanes, work, shared, own, warm, ms);
}

static void run_mixed(void)
{
	int hogs = number("HOGS", 1, MOST_TASKS / 2), pairs;
	long kib = number("KIB", 4, MOST_KIB) & ~3L, warm, ms;
	double work;
	bool never;

	pairs = number("PAIRS", 1, MOST_TASKS / 4);
	work = work_argument();
	warm = warm_argument();
	ms = ms_argument();
	never = more() && !word("never");
	no_more();
	mixed(hogs, kib, pairs, work, warm, ms, never);
}

static void run_barrier(void)
{
	int threads = number("THREADS", 1, MOST_TASKS);
	double work = work_argument();
	long own = number("PRIVATE_KIB", 1, MOST_KIB), warm = warm_argument(), ms = ms_argument();

	no_more();
	barrier(threads, work, own, warm, ms);
}

static void run_wakeups(void)
{
	int messengers = number("MESSENGERS", 1, MOST_TASKS), workers = number("WORKERS", 1, MOST_TASKS);
	double work = work_argument();
	long pause = number("PAUSE_US", 0, 1000000), warm = warm_argument(), ms = ms_argument();

	no_more();
	wakeups(messengers, workers, work, pause, warm, ms);
}

static void run_pi(void)
{
	int groups = number("GROUPS", 1, MOST_TASKS / 3), step = number("STEP", 1, MOST_CPU);
	long warm = warm_argument(), ms = ms_argument();

	no_more();
	priority_inversions(groups, step, warm, ms);
}

static void run_scale(void)
{
	enum scale what = (enum scale[]){ SCALE_OPEN, SCALE_LOCK, SCALE_SWITCH }[word("open|lock|switch")];
	int threads = number("THREADS", 1, MOST_TASKS / 2), step = number("STEP", 1, MOST_CPU);
	long warm = warm_argument(), ms = ms_argument();

	no_more();
	scale(what, threads, step, warm, ms);
}

static const struct kind {
	const char *name;
	void (*run)(void);
	/* Whether start= works, and whether windows= and window_ms= do. */
	bool placed, timed;
} kinds[] = {
	{ "chase", run_chase, false, false },
	{ "bounce", run_bounce, false, false },
	{ "counters", run_counters, false, false },
	{ "ping-pong", run_ping_pong, false, false },
	{ "messages", run_messages, true, false },
	{ "pipeline", run_pipeline, true, false },
	{ "cyclic", run_cyclic, true, false },
	{ "rate", run_rate, true, true },
	{ "rr", run_rr, true, true },
	{ "sharing", run_sharing, true, true },
	{ "tenants", run_tenants, true, true },
	{ "stw", run_stw, true, true },
	{ "phase", run_phase, true, true },
	{ "hog", run_hog, true, true },
	{ "handoff", run_handoff, true, true },
	{ "mixed", run_mixed, true, true },
	{ "barrier", run_barrier, true, true },
	{ "latency", run_wakeups, true, true },
	{ "pi", run_pi, false, true },
	{ "scale", run_scale, false, true },
};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

static void option(const char *text)
{
	const char *value = strchr(text, '=') + 1;
	int length = value - text - 1, start;

	if (!strncmp(text, "start=", length + 1)) {
		start = start_by_name(value);
		if (start < 0)
			bad("start: '%s' is none of together|two-llcs|two-sockets|scattered", value);
		options.start = start;
	} else if (!strncmp(text, "cpus=", length + 1)) {
		if (!list_cpus(value))
			bad("cpus: '%s' is no list of CPUs, such as 0,96,1,97", value);
	} else if (!strncmp(text, "windows=", length + 1)) {
		options.windows = parse("windows", value, 1, 1000, true);
	} else if (!strncmp(text, "window_ms=", length + 1)) {
		options.window_ms = parse("window_ms", value, 1, MOST_MS, true);
	} else if (!strncmp(text, "settle_ms=", length + 1)) {
		options.settle_ms = parse("settle_ms", value, 1, MOST_MS, true);
	} else if (!strncmp(text, "between=", length + 1)) {
		options.between = value;
	} else if (!strncmp(text, "stats=", length + 1)) {
		options.stats = value;
	} else {
		bad("there is no option %.*s", length, text);
	}
}

int main(int argc, char **argv)
{
	const struct kind *kind;
	int i = 2;

	if (argc == 2 && !strcmp(argv[1], "help")) {
		fputs(usage, stdout);
		return 0;
	}
	if (argc < 3)
		bad("SEED or KIND is missing");
	set_seed(parse("SEED", argv[1], 0, 1e9, true));
	while (i < argc && strchr(argv[i], '='))
		option(argv[i++]);
	if (i == argc)
		bad("KIND is missing");
	for (kind = kinds; kind < kinds + KINDS && strcmp(kind->name, argv[i]); kind++)
		;
	if (kind == kinds + KINDS)
		bad("there is no kind %s", argv[i]);
	if (options.start != START_NONE && !kind->placed)
		bad("start: %s has tasks on given CPUs", kind->name);
	if ((options.windows > 1 || options.window_ms || options.settle_ms || options.between) && !kind->timed)
		bad("%s measures a number of operations; it has no windows", kind->name);
	arguments = argv + i + 1;
	argument_count = argc - i - 1;
	alarm(SECONDS + options.windows * (4 * options.window_ms + options.settle_ms) / 1000);
	scatter();
	sleep_us(SETTLE_US);
	kind->run();
	fflush(stdout);
	end_processes();
	return 0;
}
