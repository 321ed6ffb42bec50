// SPDX-License-Identifier: GPL-2.0-only
/* Random numbers, memory, threads, processes, and work of a given length. */
#include "workload.h"
#include "../attributes.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define REGIONS 16
#define REGION_PAGES 64
#define STACK_BYTES (64 << 10)
/* Multiplications of a step of work: about 20 ns at 3 to 4 GHz, of 4 cycles each. */
#define STEP 16
#define CALIBRATION_STEPS 1000
#define CALIBRATIONS 5

static uint64_t random_state;
/* Of a step that touches no memory, and of one that touches a line. */
static double step_ns[2];
static pid_t processes[MOST_TASKS];
static int process_count;
/* What CPU numbers mean: places in this list, if there is one. */
static int listed_cpus[CPU_SETSIZE], listed_count;

void set_seed(uint64_t seed)
{
	random_state = seed * 0x9e3779b97f4a7c15u + 1;
	random_number();
}

static uint64_t next_random(uint64_t number)
{
	return number * 6364136223846793005u + 1442695040888963407u;
}

uint64_t random_number(void)
{
	random_state = next_random(random_state);
	return random_state >> 33;
}

void shuffle(int *order, int count)
{
	int i, j, other;

	for (i = 0; i < count; i++)
		order[i] = i;
	for (i = count - 1; i > 0; i--) {
		j = random_number() % (i + 1);
		other = order[i];
		order[i] = order[j];
		order[j] = other;
	}
}

double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

void sleep_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}

void *map(size_t size, int shared)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, shared | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap of %zu bytes", size);
	return memory;
}

void scatter(void)
{
	int i;

	for (i = 0; i < REGIONS; i++) {
		size_t pages = 1 + random_number() % REGION_PAGES, page;
		char *region = map((pages + 1) * PAGE, MAP_PRIVATE);

		for (page = 0; page < pages; page++)
			region[page * PAGE] = 1;
		if (random_number() % 2)
			munmap(region, pages * PAGE);
	}
	sleep_us(random_number() % DELAY_US);
}

bool list_cpus(const char *list)
{
	cpu_set_t set, has;
	char *end;
	long cpu;

	CPU_ZERO(&set);
	listed_count = 0;
	for (;; list = end + 1) {
		cpu = strtol(list, &end, 10);
		if (end == list || (*end && *end != ',') || cpu < 0 || cpu >= CPU_SETSIZE ||
		    CPU_ISSET(cpu, &set))
			return false;
		CPU_SET(cpu, &set);
		listed_cpus[listed_count++] = cpu;
		if (!*end)
			break;
	}
	/* A cpuset takes away the CPUs that it does not have. */
	if (sched_setaffinity(0, sizeof(set), &set) || sched_getaffinity(0, sizeof(has), &has) ||
	    !CPU_EQUAL(&set, &has))
		errx(1, "cpus: the program may not use all of them");
	return true;
}

int count_cpus(void)
{
	return listed_count ? listed_count : sysconf(_SC_NPROCESSORS_ONLN);
}

static int numbered_cpu(int number)
{
	if (!listed_count)
		return number;
	if (number >= listed_count)
		errx(2, "there are %d CPUs, and none of number %d", listed_count, number);
	return listed_cpus[number];
}

int spread_cpu(int number, int step)
{
	int at = number * step, count = count_cpus();

	return (at % count + at / count) % count;
}

void start_thread(int cpu, void *(*function)(void *), void *argument)
{
	pthread_attr_t attributes;
	cpu_set_t set;
	pthread_t id;

	pthread_attr_init(&attributes);
	CPU_ZERO(&set);
	if (cpu != ANY)
		CPU_SET(numbered_cpu(cpu), &set);
	if (cpu != ANY && pthread_attr_setaffinity_np(&attributes, sizeof(set), &set))
		errx(1, "CPU %d", cpu);
	/* There may be thousands of threads. */
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	if (pthread_create(&id, &attributes, function, argument))
		errx(1, "pthread_create");
	pthread_attr_destroy(&attributes);
}

pid_t start_process(void)
{
	pid_t pid = fork();

	if (pid < 0)
		err(1, "fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		process_count = 0;
	} else if (process_count < MOST_TASKS) {
		processes[process_count++] = pid;
	}
	return pid;
}

void end_processes(void)
{
	int i;

	for (i = 0; i < process_count; i++)
		kill(processes[i], SIGKILL);
	while (wait(NULL) > 0)
		;
}

void allow_files(int count)
{
	struct rlimit files = { count, count };

	if (getrlimit(RLIMIT_NOFILE, &files))
		err(1, "getrlimit");
	if (files.rlim_cur >= (rlim_t)count)
		return;
	files.rlim_cur = count;
	if (files.rlim_max < files.rlim_cur)
		files.rlim_max = files.rlim_cur;
	if (setrlimit(RLIMIT_NOFILE, &files))
		err(1, "%d open files", count);
}

void restrict_cpus(int first, int last)
{
	cpu_set_t allowed;
	int i;

	CPU_ZERO(&allowed);
	for (i = first; i <= last; i++)
		CPU_SET(numbered_cpu(i), &allowed);
	if (sched_setaffinity(0, sizeof(allowed), &allowed))
		err(1, "CPUs %d to %d", first, last);
}

void set_slice(uint64_t slice_ns)
{
	/* It sets the nice value too, and only root may lower that. */
	struct attributes attributes = {
		.size = sizeof(attributes), .nice = getpriority(PRIO_PROCESS, 0), .runtime = slice_ns,
	};

	if (slice_ns && syscall(SYS_sched_setattr, 0, &attributes, 0))
		err(1, "slice of %lu ns", slice_ns);
}

/* A chain of multiplications that depend on each other. */
static uint64_t step(uint64_t number)
{
	int i;

	for (i = 0; i < STEP; i++) {
		number = next_random(number);
		/* Else the compiler finds a closed form. */
		asm volatile("" : "+r"(number));
	}
	return number;
}

/* Not inlined, so that what is calibrated is the code that is used. */
static __attribute__((noinline)) uint64_t do_steps(long steps, uint64_t number, uint64_t *memory,
						    uint64_t lines)
{
	while (steps-- > 0) {
		number = step(number);
		if (lines)
			memory[((number >> 32) * lines >> 32) * (LINE / sizeof(*memory))]++;
	}
	return number;
}

void compute_us(double us)
{
	do_steps(us * 1e3 / step_ns[0] + 0.5, 1, NULL, 0);
}

uint64_t work_us(double us, uint64_t number, uint64_t *memory, uint64_t lines)
{
	return do_steps(us * 1e3 / step_ns[!!lines] + 0.5, number, memory, lines);
}

void calibrate(void)
{
	uint64_t line[LINE / sizeof(uint64_t)] = { 0 };
	double begin, ns;
	int i, touches;

	for (touches = 0; touches < 2; touches++)
		/* The shortest time counts: an interrupt makes one longer. */
		for (i = 0; i < CALIBRATIONS; i++) {
			begin = now_ns();
			do_steps(CALIBRATION_STEPS, 1, line, touches);
			ns = (now_ns() - begin) / CALIBRATION_STEPS;
			if (!i || ns < step_ns[touches])
				step_ns[touches] = ns;
		}
}

void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void futex_wake(_Atomic uint32_t *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
