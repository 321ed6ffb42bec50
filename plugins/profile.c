// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin for QEMU that counts how often each block of the guest's code is executed between two
 * marks in it, for kit/cost/profile.py.
 *
 * -plugin profile.so,out=FILE; at the end FILE has a line "ADDRESS INSTRUCTIONS TIMES" for each block,
 * the address in hex. The marks are the instructions nopl MARK_ON(%rax) and nopl MARK_OFF(%rax), which
 * do nothing; nopl MARK_FORGET(%rax) sets all counts to 0. All CPUs of the guest have to run on one
 * thread (-icount), as nothing here is locked.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/fail.h"
#include "sim/qemu.h"

#define MARK_FORGET 0x5ca1ab00u
#define MARK_ON 0x5ca1ab01u
#define MARK_OFF 0x5ca1ab02u

EXPORT int qemu_plugin_version = PLUGIN_API;

/* A translated block; QEMU may translate the same code again. */
struct block {
	uint64_t address;
	uint64_t instructions;
	uint64_t times;
	struct block *next;
};

static struct block *blocks;
static bool counting;
static const char *out;

static void executed(unsigned int cpu, void *data)
{
	struct block *block = data;

	(void)cpu;
	block->times += counting;
}

static void mark(unsigned int cpu, void *data)
{
	(void)cpu;
	counting = data;
}

/* The program measures again after a disturbed attempt: only the last one counts. */
static void forget(unsigned int cpu, void *data)
{
	struct block *block;

	(void)cpu;
	(void)data;
	for (block = blocks; block; block = block->next)
		block->times = 0;
}

/* The operand of nopl OPERAND(%rax), or 0. */
static uint32_t operand(const struct qemu_plugin_insn *insn)
{
	static const uint8_t nopl[] = { 0x0f, 0x1f, 0x80 };
	uint8_t code[7];
	uint32_t value;

	if (qemu_plugin_insn_data(insn, code, sizeof(code)) != sizeof(code) ||
	    memcmp(code, nopl, sizeof(nopl)))
		return 0;
	memcpy(&value, code + sizeof(nopl), sizeof(value));
	return value;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	struct block *block = calloc(1, sizeof(*block));
	size_t i;

	(void)id;
	if (!block)
		fail("no memory");
	block->address = qemu_plugin_tb_vaddr(tb);
	block->instructions = qemu_plugin_tb_n_insns(tb);
	block->next = blocks;
	blocks = block;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, block);
	for (i = 0; i < block->instructions; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint32_t value = operand(insn);

		if (value == MARK_ON || value == MARK_OFF)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, NO_REGISTERS,
							       value == MARK_ON ? &counting : NULL);
		if (value == MARK_FORGET)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, forget, NO_REGISTERS, NULL);
	}
}

static void finish(qemu_plugin_id_t id, void *data)
{
	FILE *file = fopen(out, "w");
	struct block *block;

	(void)id;
	(void)data;
	if (!file)
		fail("%s cannot be written", out);
	for (block = blocks; block; block = block->next)
		if (block->times)
			fprintf(file, "%" PRIx64 " %" PRIu64 " %" PRIu64 "\n", block->address,
				block->instructions, block->times);
	fclose(file);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4))
		fail("out=FILE is missing");
	out = strdup(argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, finish, NULL);
	return 0;
}
