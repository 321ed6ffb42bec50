/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the parts of the torture program share: counts, random numbers, files. Define _GNU_SOURCE
 * before including it.
 */
#ifndef TORTURE_H
#define TORTURE_H

#include <err.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SCHED "/sys/kernel/debug/sched/"
#define KNOBS SCHED "llc_balancing/"
#define FEATURES SCHED "features"
#define CPU_DIR "/sys/devices/system/cpu/"
#define CGROUP "/sys/fs/cgroup/"
#define PROGRAM "/proc/self/exe"

#ifndef SCHED_EXT
#define SCHED_EXT 7
#endif

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* What is counted: each operation that was done, and those that the kernel refused as it may. */
#define OPERATIONS(X)                                                                             \
	X(fork) X(exec) X(posix_spawn) X(vfork) X(clone_vm) X(threads) X(exec_in_thread)          \
	X(leader_exits_first) X(exit_beside_threads) X(kill) X(core_cookie)                       \
	X(class) X(nice) X(slice) X(invalid_slice) X(affinity)                                    \
	X(cpu_offline) X(cpu_online) X(one_llc_online) X(one_cpu_online) X(smt)                   \
	X(cgroup_move) X(cpu_max) X(invalid_cpu_max) X(cpuset_cpus)                               \
	X(invalid_partition) X(cgroup_made) X(cgroup_removed)                                     \
	X(feature) X(invalid_feature) X(knob) X(invalid_knob) X(numa_balancing) X(schedstats)     \
	X(trace_events) X(read) X(partial_read) X(raced_read) X(refused_open)                     \
	X(process_with_threads) X(failed_allocation)                                              \
	X(scx_preferring) X(scx_full) X(scx_partial) X(scx_full_thread) X(scx_partial_thread) \
	X(scx_sysrq) X(scx_stall) X(scx_gone)                                                     \
	X(stress_ng) X(rt_tests) X(selftest)

#define X(name) OP_##name,
enum operation { OPERATIONS(X) NR_OPERATIONS };
#undef X

/* Few, so that most CPUs are idle: emulated ticks of 16 busy ones leave time for little else. */
#define NR_LOADS 3
#define NR_LOAD_THREADS 4
#define NR_PAIRS (NR_LOAD_THREADS / 2)

/* Seen by all processes. */
struct shared {
	atomic_bool stop;
	atomic_int wrong;
	atomic_ulong done[NR_OPERATIONS], refused[NR_OPERATIONS];
	/* The processes that are there all the time, and what is done to. */
	atomic_int pids[NR_LOADS], tids[NR_LOADS][NR_LOAD_THREADS];
	atomic_ulong turns[NR_LOADS][NR_PAIRS];
	/* What the threads that compute beside a BPF scheduler are. */
	atomic_int policy;
};

extern struct shared *shared;

/* main.c */
void seed(uint64_t number);
uint64_t random64(void);
unsigned int below(unsigned int limit);
void done(enum operation operation);
/* Count an operation by its result: 0, or an errno with which the kernel may refuse it. */
void counted(enum operation operation, int error);
/* Say what is wrong, which fails the run. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
int read_file(const char *path, char *text, size_t size);
int write_bytes(const char *path, const void *bytes, size_t length);
int write_file(const char *path, const char *text);
extern int patience;
int wait_for(bool (*condition)(void), const char *what);
double now(void);
/* Fork a process that runs a function, with its number and with random numbers of its own. */
pid_t start(const char *name, void (*run)(int number), int number, int of_all);

/* tasks.c */
int leaf(void);
void run_load(int number);
void run_churn(int number);
void run_attributes(int number);
bool turns_go_on(void);
pid_t process_with_threads(int threads);

/* machine.c */
void find_cpus(void);
int cpus(void);
void lock(bool on);
bool lock_all_online(void);
void run_hotplug(int number);
void run_cgroups(int number);
void all_online(void);
void remove_cgroups(void);

/* files.c */
void find_files(void);
void run_knobs(int number);
void run_readers(int number);
void restore_files(void);
unsigned int nr_prefer(void);
void check_llcs(void);
int torture_files(void);

/* scx.c */
bool has_scx(void);
void scx_or_fair(void);
bool each_scx_loaded(void);
void run_scx(int number);

/* programs.c */
bool has_programs(void);
void run_programs(int number);

/* memory.c */
int leaf_reached(void);
int torture_memory(int processes);

/* races.c */
int torture_races(double seconds, const char *name, const char *out);

#endif
