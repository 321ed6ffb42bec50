// SPDX-License-Identifier: GPL-2.0-only
/*
 * The plugin: its options, and what it has QEMU call while the guest runs.
 *
 * Three marks in the guest, instructions that do nothing, say what to look at: nopl
 * MARK_WARM(%rax) begins to look at the caches, MARK_BEGIN to count, and MARK_END ends both.
 * Without the caches a guest boots several times faster.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define MARK_WARM 0x5ca1ab11u
#define MARK_BEGIN 0x5ca1ab12u
#define MARK_END 0x5ca1ab13u

/*
 * The lines that a CPU has touched since its slice began, by the low bits of their addresses:
 * nobody else has run since, so they are in its L1.
 */
#define TOUCHED 256
static struct touched {
	uint64_t line;
	uint32_t when;
	bool writable;
} touched[MAX_CPUS][TOUCHED];

struct settings set;
struct cpu cpus[MAX_CPUS];
int ncpus;
bool detailed;

static struct qemu_plugin_scoreboard *score;

__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_API;

void fail(const char *format, ...)
{
	va_list list;

	fprintf(stderr, "sim: ");
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fprintf(stderr, "\n");
	_Exit(1);
}

/* ---- memory ---- */

static void access_memory(struct cpu *cpu, uint64_t address, struct qemu_plugin_hwaddr *physical,
			  bool write, bool waits, uint64_t pc)
{
	struct touched *entry = &touched[cpu - cpus][address >> LINE_BITS & (TOUCHED - 1)];
	bool kernel = pc >> 63;
	enum found found;
	uint64_t cost;
	int64_t line;

	if (!physical || qemu_plugin_hwaddr_is_io(physical))
		return;
	line = caches_line(qemu_plugin_hwaddr_phys_addr(physical));
	if (line < 0)
		return;
	if (write && clock_watched(line))
		clock_written(cpu, line);
	found = caches_access(cpu, line, write, &cost);
	/* A store waits in the store buffer, and the CPU goes on. */
	if (!waits)
		cost = cost * set.store_percent / 100;
	/* Waiting for memory does not slow down a sibling. */
	cpu->counted->spent += cost * 100 / cpu->rate;
	report_access(found, kernel, cost);
	if (MOVED(found))
		report_transfer(found, address, line, pc);
	entry->line = address >> LINE_BITS;
	entry->when = cpu->touching;
	entry->writable = caches_owns(cpu, line) && !clock_watched(line);
}

static bool just_touched(struct cpu *cpu, uint64_t address, bool write, uint64_t pc)
{
	struct touched *entry = &touched[cpu - cpus][address >> LINE_BITS & (TOUCHED - 1)];

	if (entry->line != address >> LINE_BITS || entry->when != cpu->touching ||
	    (write && !entry->writable))
		return false;
	report_access(IN_L1, pc >> 63, 0);
	return true;
}

static void accessed(unsigned int index, qemu_plugin_meminfo_t info, uint64_t address, void *pc)
{
	struct cpu *cpu = &cpus[index];
	bool write = qemu_plugin_mem_is_store(info);

	clock_is_turn_of(cpu);
	if (!just_touched(cpu, address, write, (uint64_t)pc))
		access_memory(cpu, address, qemu_plugin_get_hwaddr(info, address), write, !write,
			      (uint64_t)pc);
}

/*
 * Of an atomic instruction, for which QEMU reports a read and a write: it takes the line at once.
 */
static void accessed_atomically(unsigned int index, qemu_plugin_meminfo_t info, uint64_t address,
				void *pc)
{
	struct cpu *cpu = &cpus[index];

	clock_is_turn_of(cpu);
	if (!just_touched(cpu, address, true, (uint64_t)pc))
		access_memory(cpu, address, qemu_plugin_get_hwaddr(info, address), true, true,
			      (uint64_t)pc);
}

/* ---- marks ---- */

/* Have all code translated anew. qemu_plugin_reset() is for that, but in QEMU 10.0 it fails an
 * assertion where the CPUs share a thread. */
static void look(struct cpu *cpu, bool how)
{
	if (detailed == how)
		return;
	detailed = how;
	if (how)
		clock_poll_soon();
	tb_flush(cpu->qemu);
}

static void mark_warm(unsigned int index, void *unused)
{
	(void)unused;
	look(&cpus[index], true);
}

static void mark_begin(unsigned int index, void *unused)
{
	(void)unused;
	report_begin(clock_of(&cpus[index]));
}

static void mark_end(unsigned int index, void *unused)
{
	(void)unused;
	report_end(clock_of(&cpus[index]));
	look(&cpus[index], false);
}

/* ---- translation ---- */

/* An instruction as far as its cost goes. */
struct decoded {
	bool atomic;
	/* Beyond what each instruction takes. */
	unsigned int cycles;
	/* Called when it is executed. */
	executed_cb executed;
	int flags;
};

/*
 * What cannot be overlapped with other instructions, in cycles: round figures of what is measured
 * of cores of the last years (Agner Fog's instruction tables, uops.info). An iret pays for the
 * interrupt too.
 */
enum {
	ATOMIC = 18, PAUSE = 40, HLT = 30, IRET = 400, DIVISION = 15, SYSCALL = 70, SYSRET = 60,
	WRMSR = 120, RDMSR = 60, RDTSC = 25, CPUID = 150, MOV_CR3 = 200, SWAPGS = 10, INVLPG = 120,
	FENCE = 20,
};

static void decode_two_bytes(const uint8_t *code, struct decoded *result)
{
	uint8_t modrm = code[1];

	switch (code[0]) {
	case 0x01:
		if (modrm == 0xc8) {
			result->executed = clock_monitor;
			result->flags = READ_REGISTERS;
		} else if (modrm == 0xc9) {
			result->executed = clock_mwait;
		} else if (modrm == 0xf8) {
			result->cycles = SWAPGS;
		} else if ((modrm >> 3 & 7) == 7 && modrm < 0xc0) {
			result->cycles = INVLPG;
			result->executed = clock_forget;
		}
		break;
	case 0x05:
		result->cycles = SYSCALL;
		break;
	case 0x07:
		result->cycles = SYSRET;
		break;
	case 0x22:
		if ((modrm >> 3 & 7) == 3) {
			result->cycles = MOV_CR3;
			result->executed = clock_forget;
		}
		break;
	case 0x30:
		result->cycles = WRMSR;
		break;
	case 0x31:
		result->cycles = RDTSC;
		break;
	case 0x32:
		result->cycles = RDMSR;
		break;
	case 0xa2:
		result->cycles = CPUID;
		break;
	case 0xae:
		if (modrm >= 0xe8)
			result->cycles = FENCE;
		break;
	}
}

static struct decoded decode(const uint8_t *code, size_t length)
{
	struct decoded result = { 0 };
	bool repeated = false;
	size_t i = 0;

	while (i + 1 < length && (code[i] == 0x66 || code[i] == 0xf0 || code[i] == 0xf2 ||
				  code[i] == 0xf3 || code[i] == 0x2e || code[i] == 0x3e ||
				  code[i] == 0x64 || code[i] == 0x65 || (code[i] & 0xf0) == 0x40)) {
		result.atomic |= code[i] == 0xf0;
		repeated |= code[i] == 0xf3;
		i++;
	}
	code += i;
	switch (code[0]) {
	case 0x0f:
		decode_two_bytes(code + 1, &result);
		break;
	case 0x86:
	case 0x87:
		/* xchg with memory needs no prefix. */
		result.atomic |= code[1] < 0xc0;
		break;
	case 0x90:
		if (repeated) {
			result.executed = clock_pause;
			result.cycles = PAUSE;
		}
		break;
	case 0xcf:
		result.cycles = IRET;
		break;
	case 0xf4:
		result.executed = clock_hlt;
		result.cycles = HLT;
		break;
	case 0xf6:
	case 0xf7:
		if ((code[1] >> 3 & 7) >= 6)
			result.cycles = DIVISION;
		break;
	}
	if (result.atomic)
		result.cycles += ATOMIC;
	return result;
}

/* What to call at a mark, or NULL. */
static executed_cb marked(const uint8_t *code, size_t length)
{
	static const uint8_t nopl[] = { 0x0f, 0x1f, 0x80 };
	uint32_t operand;

	if (length != sizeof(nopl) + sizeof(operand) || memcmp(code, nopl, sizeof(nopl)))
		return NULL;
	memcpy(&operand, code + sizeof(nopl), sizeof(operand));
	switch (operand) {
	case MARK_WARM:
		return mark_warm;
	case MARK_BEGIN:
		return mark_begin;
	case MARK_END:
		return mark_end;
	}
	return NULL;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	qemu_plugin_u64 spent = { score, offsetof(struct counted, spent) };
	qemu_plugin_u64 insns = { score, offsetof(struct counted, insns) };
	size_t count = qemu_plugin_tb_n_insns(tb), i;
	uint64_t cost = 0;

	(void)id;
	for (i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t pc = qemu_plugin_insn_vaddr(insn);
		uint8_t code[16] = { 0 };
		size_t length = qemu_plugin_insn_data(insn, code, sizeof(code));
		struct decoded what = decode(code, length);
		executed_cb mark = marked(code, length);

		cost += set.insn_ps + what.cycles * 1000000 / set.mhz;
		if (mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, NO_REGISTERS, NULL);
		if (what.executed)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, what.executed, what.flags,
							       NULL);
		if (!detailed)
			continue;
		if (pc == set.at_wakeup)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, report_wakeup, NO_REGISTERS,
							       NULL);
		if (pc == set.at_switch)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, report_switch, READ_REGISTERS,
							       NULL);
		qemu_plugin_register_vcpu_mem_cb(insn, what.atomic ? accessed_atomically : accessed,
						 NO_REGISTERS, MEMORY_BOTH, (void *)pc);
	}
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD, spent, cost);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD, insns, count);
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, clock_turn, NO_REGISTERS, IF_GE, spent,
						  SLICE_END, NULL);
}

/* ---- set-up ---- */

#define NUMBER(field) { #field, &set.field }
static const struct {
	const char *name;
	uint64_t *value;
} options[] = {
	NUMBER(threads), NUMBER(cores_per_l2), NUMBER(cores_per_llc), NUMBER(llcs_per_socket),
	NUMBER(nodes), NUMBER(ram_mib), NUMBER(l1_kib), NUMBER(l1_ways), NUMBER(l2_kib),
	NUMBER(l2_ways), NUMBER(l3_kib), NUMBER(l3_ways), NUMBER(mhz), NUMBER(insn_ps),
	NUMBER(smt_percent), NUMBER(store_percent), NUMBER(c1_exit_ps), NUMBER(ipi_ps),
	NUMBER(quantum_ps), NUMBER(seed), NUMBER(at_wakeup), NUMBER(at_switch),
	NUMBER(per_cpu_offset), NUMBER(runqueues),
	{ "l2_ps", &set.found_ps[IN_L2] }, { "l3_ps", &set.found_ps[IN_L3] },
	{ "core_ps", &set.found_ps[FROM_CORE] }, { "llc_ps", &set.found_ps[FROM_LLC] },
	{ "socket_ps", &set.found_ps[FROM_SOCKET] }, { "dram_ps", &set.found_ps[FROM_DRAM] },
	{ "far_dram_ps", &set.found_ps[FROM_FAR_DRAM] },
};
#define OPTIONS (sizeof(options) / sizeof(*options))

static void take_options(int argc, char **argv)
{
	bool given[OPTIONS] = { false };
	char *end, *equals;
	size_t k;
	int i;

	for (i = 0; i < argc; i++) {
		equals = strchr(argv[i], '=');
		if (!equals)
			fail("option %s has no value", argv[i]);
		*equals++ = 0;
		if (!strcmp(argv[i], "out")) {
			set.out = strdup(equals);
			continue;
		}
		for (k = 0; k < OPTIONS && strcmp(argv[i], options[k].name); k++)
			;
		if (k == OPTIONS)
			fail("there is no option %s", argv[i]);
		*options[k].value = strtoull(equals, &end, 0);
		if (end == equals || *end)
			fail("option %s: %s is no number", argv[i], equals);
		given[k] = true;
	}
	for (k = 0; k < OPTIONS; k++)
		if (!given[k])
			fail("option %s is missing", options[k].name);
	if (!set.out)
		fail("option out is missing");
	/* To take a line from others is what it costs to get it from there. */
	set.found_ps[TAKEN_CORE] = set.found_ps[FROM_CORE];
	set.found_ps[TAKEN_LLC] = set.found_ps[FROM_LLC];
	set.found_ps[TAKEN_SOCKET] = set.found_ps[FROM_SOCKET];
}

static void new_cpu(qemu_plugin_id_t id, unsigned int index)
{
	unsigned int i;

	(void)id;
	/* QEMU may move them when one is added. */
	for (i = 0; i <= index; i++)
		cpus[i].counted = qemu_plugin_scoreboard_find(score, i);
	clock_new_cpu(index);
}

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
	if (info->version.min > PLUGIN_API || info->version.cur != PLUGIN_API)
		fail("QEMU has plugin API %d, not that of QEMU 10.0, %d", info->version.cur,
		     PLUGIN_API);
	if (!info->system_emulation || strcmp(info->target_name, "x86_64"))
		fail("it is for qemu-system-x86_64");
	ncpus = info->system.smp_vcpus;
	if (ncpus > MAX_CPUS)
		fail("%d CPUs, more than %d", ncpus, MAX_CPUS);
	take_options(argc, argv);
	clock_start();
	caches_start();
	report_start();
	score = qemu_plugin_scoreboard_new(sizeof(struct counted));
	qemu_plugin_register_vcpu_init_cb(id, new_cpu);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
