// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin for QEMU that measures, for kit/trials/irqsoff.py, the sections of the guest's kernel with interrupts off, and
 * the calls in them of functions that the patches add. Lengths are in instructions of the CPU.
 *
 * -plugin irqsoff.so,out=FILE,functions=FILE; functions has a line "ADDRESS KIND" for each function, in the order of
 * addresses. At the end, out has lines "LIST ADDRESS NUMBER MOST OURS": of sections, by the function in which they
 * begin, and of calls. A call lasts until it returns; one in another one is a part of that. OURS: the most instructions
 * of such calls in a section.
 *
 * Instructions that wait for another CPU do not count: the CPUs take turns here, so that their number says nothing. All
 * loops that wait have a pause instruction. What is between two of them does not count, if it is short. All CPUs of the
 * guest have to run on one thread (-icount), as nothing here is locked.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/fail.h"
#include "sim/qemu.h"

#define MAX_CPUS 512
#define MAX_FUNCTIONS (1 << 17)
#define WAITING 200
#define KERNEL_HALF (1ULL << 63)
#define INTERRUPTS_ON 0x200u

EXPORT int qemu_plugin_version = PLUGIN_API;

enum { SECTION, CALL, NR_LISTS };
static const char *const list_names[] = { "section", "call" };

/* A section is named after the first function that is no wrapper of another one. */
enum { PLAIN = '-', OURS = 'o', START = 's', WRAPPER = 'w' };

static struct function {
	uint64_t address;
	char kind;
	struct stat { uint64_t number, most, ours; } lists[NR_LISTS];
} functions[MAX_FUNCTIONS];
static unsigned int nr_functions;

/* A translated block; QEMU may translate the same code again. */
struct block {
	struct function *function;
	unsigned int instructions;
	bool user;
};

static struct vcpu {
	CPUState *qemu;
	/* All instructions; what they were at the last pause, and where the section and the call in it begin. */
	uint64_t total, paused, begin, call_begin;
	/* Interrupts are off; since function. ours: what the calls had until now. */
	bool off;
	struct function *function, *call;
	uint64_t call_sp, ours;
} vcpus[MAX_CPUS];

/* The first program is about to begin: START was called. */
static bool running;
static const char *out;

/*
 * The CPU that executes. On one thread, QEMU 10.0 gives to callbacks the number of the CPU that it has translated the
 * code for, which others execute, too.
 */
static struct vcpu *this_vcpu(void)
{
	static struct vcpu *v = vcpus;

	if (v->qemu == current_cpu)
		return v;
	for (v = vcpus; v->qemu && v->qemu != current_cpu; v++) {
		if (v == &vcpus[MAX_CPUS - 1])
			fail("too many CPUs");
	}
	v->qemu = current_cpu;
	return v;
}

static void count(struct function *function, int list, uint64_t length, uint64_t ours)
{
	struct stat *stat = &function->lists[list];

	if (!running)
		return;
	stat->number++;
	stat->most = length > stat->most ? length : stat->most;
	stat->ours = ours > stat->ours ? ours : stat->ours;
}

static void end_call(struct vcpu *v)
{
	uint64_t length = v->total - v->call_begin;

	if (!v->call)
		return;
	count(v->call, CALL, length, length);
	v->ours += length;
	v->call = NULL;
}

/* Before a block of the kernel, with interrupts off. */
static void in_section(struct vcpu *v, struct function *function, uint64_t sp)
{
	bool ours = function->kind == OURS;

	/* The return address is off the stack. */
	if (v->call && sp > v->call_sp && !ours)
		end_call(v);
	if (ours && !v->call) {
		v->call = function;
		v->call_begin = v->total;
		v->call_sp = sp;
	}
	/* Interrupts went off in the middle of it. */
	if (ours && sp > v->call_sp)
		v->call_sp = sp;
	if (!v->function && function->kind != WRAPPER)
		v->function = function;
}

/* Before each block: so interrupts count as off, and as on, a few instructions late. */
static void executed(unsigned int cpu, void *data)
{
	struct vcpu *v = this_vcpu();
	/* CPUX86State: 16 registers, eip, eflags. Asking QEMU for registers is much slower. */
	uint64_t *env = qemu_env(v->qemu), sp = env[4];
	struct block *block = data;
	bool off = !block->user && !(env[17] & INTERRUPTS_ON);

	(void)cpu;
	if (block->function->kind == START && !running) {
		if (off || sp < KERNEL_HALF)
			fail("QEMU has the registers elsewhere");
		running = true;
	}
	if (v->off && !off) {
		end_call(v);
		if (v->function)
			count(v->function, SECTION, v->total - v->begin, v->ours);
	} else if (!v->off && off) {
		v->begin = v->total;
		v->ours = 0;
		v->function = NULL;
	}
	v->off = off;
	if (off)
		in_section(v, block->function, sp);
	v->total += block->instructions;
}

static void at_pause(unsigned int cpu, void *data)
{
	struct vcpu *v = this_vcpu();

	(void)cpu;
	(void)data;
	if (v->total - v->paused <= WAITING) {
		v->total = v->paused;
		if (v->begin > v->total)
			v->begin = v->total;
		if (v->call_begin > v->total)
			v->call_begin = v->total;
	}
	v->paused = v->total;
}

static struct function *function_at(uint64_t address)
{
	unsigned int low = 0, high = nr_functions;

	while (high - low > 1) {
		unsigned int middle = (low + high) / 2;

		if (functions[middle].address <= address)
			low = middle;
		else
			high = middle;
	}
	return &functions[low];
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	struct block *block = calloc(1, sizeof(*block));
	uint8_t code[2];

	(void)id;
	if (!block)
		fail("no memory");
	block->instructions = qemu_plugin_tb_n_insns(tb);
	block->user = qemu_plugin_tb_vaddr(tb) < KERNEL_HALF;
	block->function = function_at(qemu_plugin_tb_vaddr(tb));
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, READ_REGISTERS, block);
	for (unsigned int i = 0; i < block->instructions; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

		if (qemu_plugin_insn_data(insn, code, 2) == 2 && code[0] == 0xf3 && code[1] == 0x90)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, at_pause, NO_REGISTERS, NULL);
	}
}

static void finish(qemu_plugin_id_t id, void *data)
{
	FILE *file = fopen(out, "w");

	(void)id;
	(void)data;
	if (!file)
		fail("%s cannot be written", out);
	for (struct function *f = functions; f < functions + nr_functions; f++) {
		for (int i = 0; i < NR_LISTS; i++) {
			if (f->lists[i].number)
				fprintf(file, "%s %" PRIx64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", list_names[i],
					f->address, f->lists[i].number, f->lists[i].most, f->lists[i].ours);
		}
	}
	fclose(file);
}

static void read_functions(const char *path)
{
	FILE *file = fopen(path, "r");

	if (!file)
		fail("%s cannot be read", path);
	while (fscanf(file, "%" SCNx64 " %c\n", &functions[nr_functions].address, &functions[nr_functions].kind) == 2) {
		if (++nr_functions == MAX_FUNCTIONS)
			fail("too many functions");
	}
	fclose(file);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	(void)info;
	if (argc != 2 || strncmp(argv[0], "out=", 4) || strncmp(argv[1], "functions=", 10))
		fail("not out=,functions=");
	out = strdup(argv[0] + 4);
	read_functions(argv[1] + 10);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, finish, NULL);
	return 0;
}
