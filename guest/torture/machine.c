// SPDX-License-Identifier: GPL-2.0-only
/* What is done to the machine: CPUs that go offline, SMT, cgroups and cpusets. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "torture.h"

#define SMT CPU_DIR "smt/control"
#define NR_GROUPS 4

/* The CPUs are numbered from 0. Of each its LLC, by the first CPU that shares it. */
static int nr_cpus, llc_of[CPU_SETSIZE];
static bool movable[CPU_SETSIZE];

int cpus(void)
{
	return nr_cpus;
}

/*
 * Not both at a time: CPUs that go offline, and a process that is moved to another cgroup. The base
 * warns in cpuset_attach_task() if the cpuset's last CPU goes offline meanwhile, and if a task is moved to
 * the root after sched_setaffinity() has left it only CPUs that are offline. A lock of fcntl()
 * belongs to a process, also on a file that was inherited.
 */
static int lock_file = -1;

void lock(bool on)
{
	struct flock range = { .l_type = on ? F_WRLCK : F_UNLCK, .l_whence = SEEK_SET };

	if (fcntl(lock_file, F_SETLKW, &range))
		errx(1, "lock of cgroups and CPUs");
}

static const char *online_path(int cpu)
{
	static char path[64];

	snprintf(path, sizeof(path), CPU_DIR "cpu%d/online", cpu);
	return path;
}

void find_cpus(void)
{
	char path[96], text[4096];

	for (nr_cpus = 0;; nr_cpus++) {
		snprintf(path, sizeof(path), CPU_DIR "cpu%d/cache/index3/shared_cpu_list", nr_cpus);
		if (read_file(path, text, sizeof(text)) <= 0)
			break;
		llc_of[nr_cpus] = atoi(text);
		movable[nr_cpus] = !access(online_path(nr_cpus), W_OK);
	}
	if (!nr_cpus)
		errx(1, "no CPU of which the L3 is known");
	lock_file = open("/tmp/torture.lock", O_RDWR | O_CREAT, 0600);
}

/* A CPU that is as it should be already counts as well. */
static void set_online(int cpu, bool online)
{
	int result;

	if (!movable[cpu])
		return;
	lock(true);
	result = write_file(online_path(cpu), online ? "1" : "0");
	lock(false);
	/*
	 * EBUSY: it is the last one, or something else changes which CPUs are online. EPERM: it is the
	 * second thread of a core while SMT is off.
	 */
	counted(online ? OP_cpu_online : OP_cpu_offline, -result);
	if (result && result != -EBUSY && result != -EPERM)
		wrong("CPU %d does not go %s: %s", cpu, online ? "online" : "offline",
		      strerror(-result));
}

static bool one_online(void)
{
	char text[64];

	/* "0", not "0-7" or "0,4". */
	return read_file(CPU_DIR "online", text, sizeof(text)) > 0 && !strpbrk(text, "-,");
}

/* 0 or -errno. EPERM, ENODEV: the machine has no SMT. */
static int set_smt(const char *value)
{
	int result;

	lock(true);
	result = write_file(SMT, value);
	lock(false);
	return result;
}

static void all_back(void)
{
	if (!access(SMT, W_OK))
		set_smt("on");
	for (int cpu = 0; cpu < nr_cpus; cpu++)
		set_online(cpu, true);
}

/* Whether all CPUs are online that were so at the start. found: gets those that are, at most 4096 bytes. */
static bool are_all_online(char *found)
{
	char text[64];

	snprintf(text, sizeof(text), "0-%d\n", nr_cpus - 1);
	return read_file(CPU_DIR "online", found, 4096) > 0 && (nr_cpus == 1 || !strcmp(found, text));
}

void all_online(void)
{
	char found[4096];

	all_back();
	if (!are_all_online(found))
		wrong("online CPUs are %s", found);
}

/* Bring all CPUs online and lock. Returns false if one has gone offline again before the lock. */
bool lock_all_online(void)
{
	char found[4096];

	if (!are_all_online(found))
		all_back();
	lock(true);
	return are_all_online(found);
}

/* Write a process to the root's cgroup.procs, 0 or -errno; -EAGAIN if a CPU has gone offline again. */
static int move_to_root(const char *pid)
{
	int result = -EAGAIN;

	if (lock_all_online())
		result = write_file(CGROUP "cgroup.procs", pid);
	lock(false);
	return result;
}

void run_hotplug(int number)
{
	int cpu, stay;

	(void)number;
	while (!shared->stop) {
		switch (below(12)) {
		case 0:
			/* One LLC stays, that of CPU 0 included if it cannot go. */
			stay = llc_of[below(nr_cpus)];
			for (cpu = 0; cpu < nr_cpus && !shared->stop; cpu++) {
				if (llc_of[cpu] != stay)
					set_online(cpu, false);
			}
			done(OP_one_llc_online);
			usleep(below(20000));
			all_back();
			break;
		case 1:
			/* CPU 0 may have to stay. */
			stay = movable[0] ? below(nr_cpus) : 0;
			for (cpu = 0; cpu < nr_cpus && !shared->stop; cpu++) {
				if (cpu != stay)
					set_online(cpu, false);
			}
			counted(OP_one_cpu_online, !one_online());
			usleep(below(20000));
			all_back();
			break;
		case 2:
			if (access(SMT, W_OK))
				break;
			counted(OP_smt, -set_smt("off"));
			usleep(below(20000));
			counted(OP_smt, -set_smt("on"));
			all_back();
			break;
		default:
			cpu = below(nr_cpus);
			set_online(cpu, false);
			usleep(below(5000));
			if (below(4))
				set_online(cpu, true);
		}
		/* Nobody can write to a file that changes a static key meanwhile. */
		usleep(below(60000));
	}
}

static const char *group_file(int group, const char *name)
{
	static char path[96];

	snprintf(path, sizeof(path), CGROUP "torture%d/%s", group, name);
	return path;
}

/* Move a process that stays. */
static void move(int group)
{
	char pid[16];
	int of = shared->pids[below(NR_LOADS)];

	if (!of)
		return;
	snprintf(pid, sizeof(pid), "%d", of);
	/* ENOENT: there is no such group. ENOSPC: it has no CPUs. */
	if (group < 0) {
		counted(OP_cgroup_move, -move_to_root(pid));
		return;
	}
	lock(true);
	counted(OP_cgroup_move, -write_file(group_file(group, "cgroup.procs"), pid));
	lock(false);
}

static void set_cpu_max(int group)
{
	static const char *const invalid[] = { "0 100000", "-1", "100000 0", "100000 5000000",
					       "x", "" };
	char text[64], before[64] = "", after[64] = "";
	const char *path = group_file(group, "cpu.max");

	if (read_file(path, before, sizeof(before)) <= 0)
		return;
	if (below(4)) {
		if (below(3))
			snprintf(text, sizeof(text), "%u 100000", 5000 + below(400000));
		else
			snprintf(text, sizeof(text), "max");
		counted(OP_cpu_max, -write_file(path, text));
		return;
	}
	const char *bad = invalid[below(ARRAY_SIZE(invalid))];
	int result = write_file(path, bad);

	/* An empty write does not get to the file. */
	if (result != -EINVAL && *bad)
		wrong("'%s' to cpu.max: %s, not EINVAL", bad, strerror(-result));
	read_file(path, after, sizeof(after));
	if (strcmp(before, after))
		wrong("'%s' to cpu.max changed it from %s to %s", bad, before, after);
	done(OP_invalid_cpu_max);
}

static void set_cpuset(int group)
{
	unsigned int first = below(nr_cpus), last = first + below(nr_cpus - first);
	char text[64];

	snprintf(text, sizeof(text), "%u-%u", first, last);
	counted(OP_cpuset_cpus, -write_file(group_file(group, "cpuset.cpus"), text));
}

/*
 * Nothing becomes a partition: in the base, generate_sched_domains() warns that two of them share CPUs,
 * and cpuset_attach_task() that one has no CPUs, while cpusets and CPUs change.
 */
static void set_partition(int group)
{
	int result = write_file(group_file(group, "cpuset.cpus.partition"), "isolate");

	if (result != -EINVAL && result != -ENOENT)
		wrong("'isolate' to cpuset.cpus.partition: %s, not EINVAL", strerror(-result));
	done(OP_invalid_partition);
}

static void empty(int group)
{
	char pids[4096], *at = pids, *pid;

	if (read_file(group_file(group, "cgroup.procs"), pids, sizeof(pids)) <= 0)
		return;
	while ((pid = strsep(&at, "\n"))) {
		if (*pid)
			move_to_root(pid);
	}
}

static void change_group(int group)
{
	char path[96];

	snprintf(path, sizeof(path), "%s", group_file(group, ""));
	if (mkdir(path, 0755) == 0) {
		done(OP_cgroup_made);
	} else if (below(3) == 0) {
		empty(group);
		counted(OP_cgroup_removed, rmdir(path) ? errno : 0);
	}
}

void run_cgroups(int number)
{
	(void)number;
	if (write_file(CGROUP "cgroup.subtree_control", "+cpu +cpuset"))
		errx(1, "the controllers cpu and cpuset cannot be enabled");
	while (!shared->stop) {
		int group = below(NR_GROUPS);

		switch (below(8)) {
		case 0:
			change_group(group);
			break;
		case 1:
		case 2:
			move((int)below(NR_GROUPS + 1) - 1);
			break;
		case 3:
		case 4:
			set_cpu_max(group);
			break;
		case 5:
			set_partition(group);
			break;
		default:
			set_cpuset(group);
		}
		usleep(below(2000));
	}
}

static bool removed(void)
{
	for (int group = 0; group < NR_GROUPS; group++) {
		empty(group);
		if (rmdir(group_file(group, "")) && errno != ENOENT)
			return false;
	}
	return true;
}

void remove_cgroups(void)
{
	wait_for(removed, "an empty cgroup is removed: it");
}
