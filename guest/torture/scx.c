// SPDX-License-Identifier: GPL-2.0-only
/*
 * BPF schedulers that come and go, where the kernel has sched_ext. They are put together here from the BTF of the
 * kernel and a few instructions: the build needs neither a compiler for BPF nor libbpf, and a default of sched_ext
 * does what no program does.
 */
#define _GNU_SOURCE
#include <linux/bpf.h>
#include <linux/btf.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "torture.h"

#define SCX "/sys/kernel/sched_ext/"
#define SYSRQ "/proc/sysrq-trigger"
#define BTF "/sys/kernel/btf/vmlinux"
#define BTF_MAX (16 << 20)

/* Of kernel/sched/ext.c and include/linux/sched/ext.h. */
#define ENQ_LAST 2
#define SWITCH_PARTIAL 8
#define DSQ_GLOBAL (1ull << 63 | 1)
#define DSQ_LOCAL (1ull << 63 | 2)
#define SLICE_NS 20000000

/* No queue: a task that ops.enqueue() gets never runs again. */
#define LOST 1

/* The first one has no program at all; such a scheduler ends when a CPU goes offline or online. */
static const struct kind {
	const char *name;
	uint64_t dsq, flags;
	uint32_t timeout_ms;
} kinds[] = {
	{ .name = "default" },
	{ .name = "global", .dsq = DSQ_GLOBAL },
	{ .name = "local", .dsq = DSQ_LOCAL, .flags = ENQ_LAST },
	/* A task that finds an idle CPU runs there without ops.enqueue(). The watchdog sees the others. */
	{ .name = "lost", .dsq = LOST, .timeout_ms = 40 },
};

static char *btf;
/* The value of the map, the scheduler in it, and where that begins. */
static const struct btf_type *value_type, *ops_type;
static unsigned int value_id, ops_id, data;
/* Programs: ops.enqueue() of each kind, ops.cpu_online() and ops.cpu_offline(), which do nothing. */
static int enqueue[ARRAY_SIZE(kinds)], online, offline;
/* Types of the map's own. */
static int types;

bool has_scx(void)
{
	/* Mainline calls it scx_bpf_dsq_insert(). */
	return !getenv("MAINLINE") && !access(SCX "state", R_OK);
}

/* A SCHED_EXT task is a fair one while no scheduler is loaded. Its children take over the policy. */
void scx_or_fair(void)
{
	struct sched_param none = {};

	counted(OP_class, sched_setscheduler(0, below(2) ? SCHED_EXT : SCHED_OTHER, &none) ? errno : 0);
}

static int bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

static size_t btf_size(const struct btf_type *type)
{
	/* What follows a type of each kind, once, and for each of its members. */
	static const unsigned char once[] = {
		[BTF_KIND_INT] = 4, [BTF_KIND_ARRAY] = sizeof(struct btf_array),
		[BTF_KIND_VAR] = 4, [BTF_KIND_DECL_TAG] = 4, [BTF_KIND_ENUM64] = 0,
	}, each[ARRAY_SIZE(once)] = {
		[BTF_KIND_STRUCT] = sizeof(struct btf_member), [BTF_KIND_UNION] = sizeof(struct btf_member),
		[BTF_KIND_ENUM] = sizeof(struct btf_enum), [BTF_KIND_ENUM64] = sizeof(struct btf_enum64),
		[BTF_KIND_FUNC_PROTO] = sizeof(struct btf_param), [BTF_KIND_DATASEC] = sizeof(struct btf_var_secinfo),
	};
	unsigned int kind = BTF_INFO_KIND(type->info);

	if (kind >= ARRAY_SIZE(once))
		errx(1, "a new kind of type in " BTF ": %u", kind);
	return sizeof(*type) + once[kind] + BTF_INFO_VLEN(type->info) * each[kind];
}

static const char *btf_name(uint32_t offset)
{
	const struct btf_header *header = (void *)btf;

	return btf + header->hdr_len + header->str_off + offset;
}

static const struct btf_type *btf_find(unsigned int kind, const char *name, unsigned int *id)
{
	const struct btf_header *header = (void *)btf;
	char *at = btf + header->hdr_len + header->type_off, *end = at + header->type_len;

	for (*id = 1; at < end; ++*id) {
		const struct btf_type *type = (void *)at;

		if (BTF_INFO_KIND(type->info) == kind && !strcmp(btf_name(type->name_off), name))
			return type;
		at += btf_size(type);
	}
	errx(1, "no type %s in " BTF, name);
}

static unsigned int member(const struct btf_type *type, const char *name)
{
	const struct btf_member *members = (void *)(type + 1);

	for (unsigned int i = 0; i < BTF_INFO_VLEN(type->info); i++) {
		if (!strcmp(btf_name(members[i].name_off), name))
			return i;
	}
	errx(1, "no member %s in " BTF, name);
}

static unsigned int offset(const struct btf_type *type, const char *name)
{
	const struct btf_member *members = (void *)(type + 1);

	return members[member(type, name)].offset / 8;
}

static int program(const char *name, const struct bpf_insn *code, unsigned int length)
{
	union bpf_attr attr = {
		.prog_type = BPF_PROG_TYPE_STRUCT_OPS,
		.insns = (uintptr_t)code,
		.insn_cnt = length,
		.license = (uintptr_t)"GPL",
		.attach_btf_id = ops_id,
		.expected_attach_type = member(ops_type, name),
	};
	int fd = bpf(BPF_PROG_LOAD, &attr);

	if (fd < 0)
		err(1, "program %s", name);
	return fd;
}

/* The map has to come with types, which nothing looks at. */
static int load_btf(void)
{
	static const uint32_t own[] = {
		/* struct btf_header: the types are 16 bytes long, the strings behind them 8. */
		BTF_MAGIC | BTF_VERSION << 16, sizeof(struct btf_header), 0, 16, 16, 8,
		/* struct btf_type of an int of 32 bits, and its name */
		1, BTF_KIND_INT << 24, 4, 32,
		'i' << 8 | 'n' << 16 | 't' << 24, 0,
	};
	union bpf_attr attr = { .btf = (uintptr_t)own, .btf_size = sizeof(own) };
	int fd = bpf(BPF_BTF_LOAD, &attr);

	if (fd < 0)
		err(1, "types of the map");
	return fd;
}

static void make_programs(void)
{
	static const struct bpf_insn nothing[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	struct bpf_insn dispatch[] = {
		/* scx_bpf_dispatch(p, dsq_id, slice, enq_flags), of the arguments p and enq_flags */
		{ .code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_4, .src_reg = BPF_REG_1, .off = 8 },
		{ .code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_1 },
		{ .code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = BPF_REG_2 },
		{ 0 },
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3, .imm = SLICE_NS },
		{ .code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_KFUNC_CALL },
		nothing[0],
		nothing[1],
	};
	unsigned int id;

	btf = malloc(BTF_MAX);
	if (!btf || read_file(BTF, btf, BTF_MAX) <= 0)
		errx(1, "no " BTF);
	value_type = btf_find(BTF_KIND_STRUCT, "bpf_struct_ops_sched_ext_ops", &value_id);
	ops_type = btf_find(BTF_KIND_STRUCT, "sched_ext_ops", &ops_id);
	data = offset(value_type, "data");
	btf_find(BTF_KIND_FUNC, "scx_bpf_dispatch", &id);
	dispatch[5].imm = id;

	types = load_btf();
	online = program("cpu_online", nothing, ARRAY_SIZE(nothing));
	offline = program("cpu_offline", nothing, ARRAY_SIZE(nothing));
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		dispatch[2].imm = kinds[i].dsq;
		dispatch[3].imm = kinds[i].dsq >> 32;
		if (kinds[i].dsq == LOST)
			enqueue[i] = program("enqueue", nothing, ARRAY_SIZE(nothing));
		else if (kinds[i].dsq)
			enqueue[i] = program("enqueue", dispatch, ARRAY_SIZE(dispatch));
	}
}

static void set(char *value, const char *name, uint64_t number, size_t size)
{
	memcpy(value + data + offset(ops_type, name), &number, size);
}

/* Make a map of a scheduler, and load that. The file descriptor of the map, or -errno. */
static int load(size_t number, bool partial)
{
	const struct kind *kind = &kinds[number];
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_STRUCT_OPS,
		.key_size = sizeof(uint32_t),
		.value_size = value_type->size,
		.max_entries = 1,
		.btf_vmlinux_value_type_id = value_id,
		.btf_fd = types,
	};
	char *value = calloc(1, value_type->size);
	int map = bpf(BPF_MAP_CREATE, &attr), key = 0;

	if (!value || map < 0)
		err(1, "map of a BPF scheduler");
	strcpy(value + data + offset(ops_type, "name"), kind->name);
	set(value, "flags", kind->flags | (partial ? SWITCH_PARTIAL : 0), 8);
	set(value, "timeout_ms", kind->timeout_ms, 4);
	if (kind->dsq) {
		set(value, "enqueue", enqueue[number], 8);
		set(value, "cpu_online", online, 8);
		set(value, "cpu_offline", offline, 8);
	}
	attr = (union bpf_attr){ .map_fd = map, .key = (uintptr_t)&key, .value = (uintptr_t)value };
	if (bpf(BPF_MAP_UPDATE_ELEM, &attr)) {
		key = errno;
		close(map);
		map = -key;
	}
	free(value);
	return map;
}

static void unload(int map)
{
	int key = 0;
	union bpf_attr attr = { .map_fd = map, .key = (uintptr_t)&key };

	if (bpf(BPF_MAP_DELETE_ELEM, &attr))
		wrong("a BPF scheduler is not unloaded: %s", strerror(errno));
	close(map);
}

static bool in_state(const char *state)
{
	char text[32] = "";

	read_file(SCX "state", text, sizeof(text));
	return !strncmp(text, state, strlen(state));
}

static bool disabled(void)
{
	return in_state("disabled");
}

/* Is a thread that stays a task of the BPF scheduler? */
static void look_at_thread(bool partial)
{
	char path[64], text[8192], *at;
	int load = below(NR_LOADS);

	snprintf(path, sizeof(path), "/proc/%d/task/%d/sched", shared->pids[load],
		 shared->tids[load][below(NR_LOAD_THREADS)]);
	if (read_file(path, text, sizeof(text)) <= 0)
		return;
	at = strstr(text, "\next.enabled");
	if (!at || !(at = strchr(at, ':')))
		errx(1, "no ext.enabled in %s", path);
	counted(partial ? OP_scx_partial_thread : OP_scx_full_thread, !atoi(at + 1));
}

/* While a BPF scheduler has all tasks but real-time ones, none is counted. It may end at any time. */
static void check_none_prefers(void)
{
	unsigned int nr;

	if (!in_state("enabled"))
		return;
	nr = nr_prefer();
	if (nr && in_state("enabled"))
		wrong("%u tasks prefer an LLC while a BPF scheduler has all tasks", nr);
}

static void *compute(void *unused)
{
	const struct sched_param none = {};
	int policy = SCHED_OTHER;

	for (;;) {
		for (volatile int i = 0; i < 100000; i++)
			;
		if (policy == shared->policy)
			continue;
		policy = shared->policy;
		counted(OP_class, sched_setscheduler(0, policy, &none) ? errno : 0);
	}
	return unused;
}

/* The threads of this process soon prefer an LLC. */
static void run_computing(int number)
{
	pthread_t thread;

	(void)number;
	for (int i = 0; i < 2; i++) {
		if (pthread_create(&thread, NULL, compute, NULL))
			errx(1, "pthread_create");
	}
	compute(NULL);
}

static void end_computing(pid_t *pid)
{
	if (*pid && (kill(*pid, SIGKILL) || waitpid(*pid, NULL, 0) != *pid))
		wrong("no process %d to end: %s", *pid, strerror(errno));
	*pid = 0;
}

/* Whether each has been loaded in both modes. */
bool each_scx_loaded(void)
{
	return shared->done[OP_scx_partial] >= ARRAY_SIZE(kinds);
}

void run_scx(int number)
{
	make_programs();
	for (size_t i = 0; !shared->stop; i++) {
		const struct kind *kind = &kinds[i / 2 % ARRAY_SIZE(kinds)];
		bool partial = i % 2;
		pid_t pid;
		int map;

		shared->policy = SCHED_OTHER;
		pid = start("computing", run_computing, 0, number);
		/* In vain while the feature is off, or few CPUs are online. */
		for (int j = 0; j < 30 && !nr_prefer(); j++)
			usleep(10000);
		/* A CPU on its way off- or online ends a scheduler that is not quite there yet, programs or not. */
		if (kind->dsq)
			lock(true);
		counted(OP_scx_preferring, !nr_prefer());
		map = load(kind - kinds, partial);
		if (kind->dsq)
			lock(false);
		if (map < 0) {
			wrong("the BPF scheduler %s is not loaded: %s", kind->name, strerror(-map));
			break;
		}
		done(partial ? OP_scx_partial : OP_scx_full);
		if (partial)
			shared->policy = SCHED_EXT;
		if (kind->dsq == LOST && !partial) {
			counted(OP_scx_stall, wait_for(disabled, "the end of a BPF scheduler that loses tasks"));
		} else {
			for (int j = 1 + below(10); j > 0 && !disabled(); j--) {
				look_at_thread(partial);
				if (!partial)
					check_none_prefers();
				usleep(below(20000));
			}
			if (disabled())
				done(OP_scx_gone);
			else if (!below(3) && !write_file(SYSRQ, "S"))
				counted(OP_scx_sysrq, wait_for(disabled, "the end of a BPF scheduler by sysrq-S"));
		}
		if (below(2))
			end_computing(&pid);
		unload(map);
		end_computing(&pid);
		if (!disabled())
			wrong("a BPF scheduler is not disabled");
		usleep(below(20000));
	}
}
