// SPDX-License-Identifier: GPL-2.0-only
/*
 * A simulation of time and caches for the CPUs of a guest, as a plugin for QEMU: its options, and
 * what it has QEMU call while the guest runs.
 *
 * clock.c runs the CPUs in lock step, each on a clock of its own; caches.c says what an access to
 * memory costs; report.c counts and writes. None of them knows another one: this file ties them
 * together. All of it runs on the one thread on which QEMU's CPUs take turns (-accel
 * tcg,thread=single), so nothing is locked.
 *
 * Marks in the guest, instructions that do nothing, say what to look at: nopl MARK_WARM(%rax)
 * begins to look at the caches, MARK_BEGIN to count, and MARK_END ends both. Without the caches a
 * guest boots several times faster. From MARK_SETTLE to MARK_WARM they are looked at now and then, see
 * SETTLE_PS.
 */
#include <stdlib.h>
#include <string.h>

#include "caches.h"
#include "clock.h"
#include "fail.h"
#include "qemu.h"
#include "report.h"

#define MARK_WARM 0x5ca1ab11u
#define MARK_BEGIN 0x5ca1ab12u
#define MARK_END 0x5ca1ab13u
#define MARK_SETTLE 0x5ca1ab14u

/*
 * While tasks settle, the caches are looked at for PROBE_PS in each SETTLE_PS. In the rest, user code is slower by
 * what it waited for memory in the second half of that, by when the caches are full: so tasks run and sleep as they
 * will when they are measured, which is what the scheduler goes by. The kernel's code waits little.
 */
#define SETTLE_PS (250ULL * 1000 * 1000 * 1000)
#define PROBE_PS (10ULL * 1000 * 1000 * 1000)

#define MAX_CPUS CACHES_MAX_CPUS
_Static_assert(MAX_CPUS <= CLOCK_MAX_CPUS, "the clock has too few CPUs");

/* Where PCI has its hole below 4 GiB on q35, and RAM goes on above. */
#define LOW_MOST (0xb0000000ULL)
#define LOW_ELSE (0x80000000ULL)
#define HIGH (1ULL << 32)

/* What the machine file says, and where to write. Every option has to be given: see options[]. */
static struct {
	struct caches_config caches;
	struct clock_config clock;
	struct report_config report;
	uint64_t threads, cores_per_l2, cores_per_llc, llcs_per_socket, nodes, ram_mib;
	uint64_t through_home, outstanding, prefetch, hold_cycles;
	/* How far a CPU may get ahead of another one of its LLC. */
	uint64_t quantum_ps;
	uint64_t insn_ps;
	/*
	 * Addresses in the kernel of what is executed at each wakeup and at each switch of tasks.
	 */
	uint64_t at_wakeup, at_switch;
} set;

/* What the translated code itself counts. */
struct counted {
	/* In user: of that spent, what user code takes without memory, while the caches are looked at. */
	uint64_t spent, insns, user;
};

/*
 * Lines that a CPU has touched, by the low bits of their virtual addresses. An entry holds as long
 * as the L1 has the line and the CPU has not changed its address space since. It is small, as those
 * of all CPUs are to stay in the caches of the host.
 */
#define TOUCHED 256
static struct touched {
	/* See key_of(). */
	uint64_t key;
	/*
	 * Where the L1 has it, and its tag there; writable if writes need not be looked at either.
	 */
	uint32_t way, tag;
} touched[MAX_CPUS][TOUCHED];
/* Numbers of the address spaces of CPUs; a number comes back after 4 million others. */
static uint32_t spaces[MAX_CPUS];
/* Bits of the number of a line of virtual memory. */
#define VIRTUAL_BITS 42

static struct caches *caches;
static struct caches_l1s l1s;
static int ncpus;
/* Where the part of RAM ends that is below 4 GiB. */
static uint64_t low;
/* The caches are looked at, from the mark before the warm-up to the one at the end. */
static bool detailed;
/*
 * How long user code takes, in percent of what it takes without memory: now, and where the caches are not looked at
 * while tasks settle, 0 before. And how long it has waited for memory.
 */
static unsigned int percent = 100, settle_percent;
static uint64_t user_waited;
static struct qemu_plugin_scoreboard *score;

__attribute__((visibility("default"))) int qemu_plugin_version = PLUGIN_API;

/* ---- memory ---- */

/* The number of a line of RAM, by its physical address, or -1. */
static int64_t line_of(uint64_t address)
{
	if (address >= HIGH)
		address -= HIGH - low;
	else if (address >= low)
		return -1;
	address >>= CACHES_LINE_BITS;
	return address < set.caches.lines ? (int64_t)address : -1;
}

/* The line of a virtual address and the address space it is in, in one number that is not 0. */
static uint64_t key_of(unsigned int cpu, uint64_t address)
{
	return (address >> CACHES_LINE_BITS & ((1ULL << VIRTUAL_BITS) - 1)) |
	       (uint64_t)(spaces[cpu] + 1) << VIRTUAL_BITS;
}

static struct touched *touched_at(unsigned int cpu, uint64_t address)
{
	return &touched[cpu][address >> CACHES_LINE_BITS & (TOUCHED - 1)];
}

static struct caches_result access_line(unsigned int cpu, uint64_t line, uint64_t address,
					enum caches_kind kind, bool independent)
{
	struct caches_access access = { cpu, kind, independent, line, address >> CACHES_LINE_BITS,
					clock_of(cpu) };
	struct caches_result result = caches_access(caches, &access);

	/* The other thread of the core is not slower because this one waits. */
	clock_spend(cpu, result.cost);
	return result;
}

static void access_memory(unsigned int cpu, uint64_t address, struct qemu_plugin_hwaddr *physical,
			  enum caches_kind kind, bool independent, uint64_t pc)
{
	struct touched *entry = touched_at(cpu, address);
	struct caches_result result;
	int64_t line;

	if (!physical || qemu_plugin_hwaddr_is_io(physical))
		return;
	line = line_of(qemu_plugin_hwaddr_phys_addr(physical));
	if (line < 0)
		return;
	if (kind != CACHES_READ && clock_watched(line))
		clock_written(cpu, line);
	result = access_line(cpu, line, address, kind, independent);
	if (!(pc >> 63))
		user_waited += result.cost;
	report_access(result.found, pc >> 63, result.cost);
	if (CACHES_MOVED(result.found))
		report_transfer(result.found, address, line, pc);
	entry->key = key_of(cpu, address);
	entry->way = result.way - l1s.ways;
	entry->tag = CACHES_TAG(line) | (clock_watched(line) ? 0 : CACHES_WRITABLE);
}

/* Give what the L1 is known to have without looking, NULL if that is not known. */
static struct touched *just_touched(unsigned int cpu, uint64_t address, bool write, uint64_t pc)
{
	struct touched *entry = touched_at(cpu, address);

	if (entry->key != key_of(cpu, address) || (write && !(entry->tag & CACHES_WRITABLE)) ||
	    !caches_hit(&l1s.ways[entry->way], entry->tag & ~CACHES_WRITABLE, write, l1s.tick))
		return NULL;
	report_access(IN_L1, pc >> 63, 0);
	return entry;
}

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *pc)
{
	bool write = qemu_plugin_mem_is_store(info);

	clock_runs(cpu);
	if (!just_touched(cpu, address, write, (uint64_t)pc))
		access_memory(cpu, address, qemu_plugin_get_hwaddr(info, address),
			      write ? CACHES_WRITE : CACHES_READ, false, (uint64_t)pc);
}

/* By an instruction that copies: what it loads is not the address of a later load. */
static void accessed_to_copy(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address,
			     void *pc)
{
	bool write = qemu_plugin_mem_is_store(info);

	clock_runs(cpu);
	if (!just_touched(cpu, address, write, (uint64_t)pc))
		access_memory(cpu, address, qemu_plugin_get_hwaddr(info, address),
			      write ? CACHES_WRITE : CACHES_READ, !write, (uint64_t)pc);
}

/*
 * Of an atomic instruction QEMU reports a read and a write: the read takes the line to write to it.
 */
static void accessed_atomically(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address,
				void *pc)
{
	struct touched *entry;

	clock_runs(cpu);
	entry = just_touched(cpu, address, true, (uint64_t)pc);
	if (entry)
		caches_hold(caches, cpu, entry->tag & ~CACHES_WRITABLE, clock_of(cpu));
	else
		access_memory(cpu, address, qemu_plugin_get_hwaddr(info, address), CACHES_ATOMIC,
			      false, (uint64_t)pc);
}

/* The addresses of a CPU are others from now on. */
static void forget(unsigned int cpu, void *unused)
{
	(void)unused;
	spaces[cpu]++;
}

/* ---- what the guest executes ---- */

static uint64_t read_register(const char *name)
{
	static GArray *registers;
	static GByteArray *value;
	const qemu_plugin_reg_descriptor *all;
	uint64_t result = 0;
	unsigned int i;

	if (!registers) {
		registers = qemu_plugin_get_registers();
		value = g_byte_array_new();
	}
	all = (void *)registers->data;
	for (i = 0; i < registers->len; i++) {
		if (strcmp(all[i].name, name))
			continue;
		g_byte_array_set_size(value, 0);
		if (qemu_plugin_read_register(all[i].handle, value) != sizeof(result))
			break;
		memcpy(&result, value->data, sizeof(result));
		return result;
	}
	fail("QEMU gives no register %s", name);
}

/*
 * MONITOR reads the line, so that no other core writes to it without asking. The threads of the
 * same core forget that they may.
 */
static void monitored(unsigned int cpu, void *unused)
{
	uint64_t address = read_register("rax");
	uint64_t page = cpu_get_phys_page_debug(qemu_get_cpu(cpu), address & ~0xfffULL);
	int64_t line = page == ~0ULL ? -1 : line_of(page | (address & 0xfff));
	unsigned int first = cpu - cpu % set.threads, i;

	(void)unused;
	clock_runs(cpu);
	clock_monitor(cpu, line);
	if (!detailed || line < 0)
		return;
	access_line(cpu, line, address, CACHES_READ, false);
	for (i = first; i < first + set.threads; i++)
		spaces[i]++;
}

static void wakes_up(unsigned int cpu, void *unused)
{
	(void)unused;
	report_wakeup(cpu);
}

/* __switch_to_asm(previous, next) */
static void switches(unsigned int cpu, void *unused)
{
	(void)unused;
	report_switch(cpu, read_register("rsi"));
}

/* ---- what is looked at ---- */

/* Have all code translated anew. qemu_plugin_reset() is for that, but in QEMU 10.0 it fails an
 * assertion where the CPUs share a thread. */
static void look(unsigned int cpu, bool how, unsigned int user_percent)
{
	if (detailed == how && percent == user_percent)
		return;
	detailed = how;
	percent = user_percent;
	tb_flush(qemu_get_cpu(cpu));
}

static struct report_totals totals(unsigned int cpu)
{
	struct report_totals found = { .time = clock_of(cpu),
				       .ended_sleeps = clock_counts()->ended_sleeps,
				       .ahead_ps = clock_counts()->ahead_ps,
				       .settle_percent = settle_percent };
	int i;

	for (i = 0; i < ncpus; i++) {
		const struct counted *counted = qemu_plugin_scoreboard_find(score, i);

		found.insns += counted->insns;
		found.busy_ps[i / set.report.cpus_per_llc] += clock_busy(i);
	}
	return found;
}

/* ---- settling ---- */

static uint64_t user_time(void)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < ncpus; i++)
		sum += ((const struct counted *)qemu_plugin_scoreboard_find(score, i))->user;
	return sum;
}

static void begin_probe(uint64_t now);
/* What the times were when the second half of a probe began. */
static uint64_t probed_time, probed_waited;

static void end_probe(uint64_t now)
{
	uint64_t time = user_time() - probed_time, waited = user_waited - probed_waited;

	settle_percent = time ? 100 + 100 * waited / time : 100;
	clock_set_phase(CLOCK_FAST);
	look(0, false, settle_percent);
	clock_alarm(now + SETTLE_PS - PROBE_PS, begin_probe);
}

static void measure_probe(uint64_t now)
{
	probed_time = user_time();
	probed_waited = user_waited;
	clock_alarm(now + PROBE_PS / 2, end_probe);
}

static void begin_probe(uint64_t now)
{
	clock_set_phase(CLOCK_WARM);
	look(0, true, 100);
	clock_alarm(now + PROBE_PS / 2, measure_probe);
}

static void mark_settle(unsigned int cpu, void *unused)
{
	(void)unused;
	begin_probe(clock_of(cpu));
}

/* ---- marks ---- */

static void mark_warm(unsigned int cpu, void *unused)
{
	(void)unused;
	clock_alarm(CLOCK_NEVER, NULL);
	clock_set_phase(CLOCK_WARM);
	look(cpu, true, 100);
}

static void mark_begin(unsigned int cpu, void *unused)
{
	struct report_totals found;

	(void)unused;
	clock_set_phase(CLOCK_MEASURED);
	clock_reset_ahead();
	found = totals(cpu);
	report_begin(&found);
}

static void mark_end(unsigned int cpu, void *unused)
{
	struct report_totals found = totals(cpu);

	(void)unused;
	report_end(&found);
	clock_set_phase(CLOCK_FAST);
	look(cpu, false, 100);
}

/* ---- translation ---- */

/* An instruction as far as its cost goes. */
struct decoded {
	bool atomic;
	/* It moves data that is no address. */
	bool copies;
	/* Beyond what each instruction takes. */
	unsigned int cycles;
	/* Called when it is executed. */
	executed_cb executed;
	int flags;
};

/*
 * Cycles that do not overlap with other instructions: round figures of measurements on cores of the
 * last years (Agner Fog's instruction tables, uops.info). An iret pays for the interrupt too.
 */
enum {
	ATOMIC = 18, PAUSE = 40, HLT = 30, IRET = 400, DIVISION = 15, SYSCALL = 70, SYSRET = 60,
	WRMSR = 120, RDMSR = 60, RDTSC = 25, CPUID = 150, MOV_CR3 = 200, SWAPGS = 10, INVLPG = 120,
	FENCE = 20,
};

/* Whether an opcode after 0F is movups, movaps, movdqu, or one of their like. */
static bool copies(uint8_t opcode)
{
	return opcode == 0x10 || opcode == 0x11 || opcode == 0x28 || opcode == 0x29 ||
	       opcode == 0x6f || opcode == 0x7f;
}

static void decode_two_bytes(const uint8_t *code, struct decoded *result)
{
	uint8_t modrm = code[1];

	result->copies = copies(code[0]);
	switch (code[0]) {
	case 0x01:
		if (modrm == 0xc8) {
			result->executed = monitored;
			result->flags = READ_REGISTERS;
		} else if (modrm == 0xc9) {
			result->executed = clock_mwait;
		} else if (modrm == 0xf8) {
			result->cycles = SWAPGS;
		} else if ((modrm >> 3 & 7) == 7 && modrm < 0xc0) {
			result->cycles = INVLPG;
			result->executed = forget;
		}
		break;
	case 0x05:
		result->cycles = SYSCALL;
		break;
	case 0x07:
		result->cycles = SYSRET;
		break;
	case 0x22:
		/* Of CR0 and CR4 too. */
		result->executed = forget;
		if ((modrm >> 3 & 7) == 3)
			result->cycles = MOV_CR3;
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
	case 0x38:
		if (code[1] == 0x82) {
			/* invpcid */
			result->cycles = INVLPG;
			result->executed = forget;
		}
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
	case 0xa4:
	case 0xa5:
	case 0xaa:
	case 0xab:
		/* movs, stos */
		result.copies = true;
		break;
	case 0xc4:
	case 0xc5:
		/* VEX, of three bytes or of two */
		result.copies = copies(code[code[0] == 0xc4 ? 3 : 2]);
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
	case MARK_SETTLE:
		return mark_settle;
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
	qemu_plugin_u64 in_user = { score, offsetof(struct counted, user) };
	size_t count = qemu_plugin_tb_n_insns(tb), i;
	uint64_t cost = 0;
	bool user = !(qemu_plugin_tb_vaddr(tb) >> 63);

	(void)id;
	for (i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint64_t pc = qemu_plugin_insn_vaddr(insn);
		uint8_t code[16] = { 0 };
		size_t length = qemu_plugin_insn_data(insn, code, sizeof(code));
		struct decoded what = decode(code, length);
		executed_cb mark = marked(code, length);

		cost += set.insn_ps + what.cycles * 1000000 / set.clock.mhz;
		if (mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, mark, NO_REGISTERS, NULL);
		if (what.executed)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, what.executed, what.flags,
							       NULL);
		if (!detailed)
			continue;
		if (pc == set.at_wakeup)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, wakes_up, NO_REGISTERS,
							       NULL);
		if (pc == set.at_switch)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, switches, READ_REGISTERS,
							       NULL);
		qemu_plugin_register_vcpu_mem_cb(insn, what.atomic ? accessed_atomically :
						 what.copies ? accessed_to_copy : accessed,
						 NO_REGISTERS, MEMORY_BOTH, (void *)pc);
	}
	if (user)
		cost = cost * percent / 100;
	if (user && detailed)
		qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD, in_user, cost);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD, spent, cost);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, INLINE_ADD, insns, count);
	qemu_plugin_register_vcpu_tb_exec_cond_cb(tb, clock_turn, NO_REGISTERS, IF_GE, spent,
						  CLOCK_SLICE_END, NULL);
}

/* ---- set-up ---- */

#define NUMBER(field) { #field, &set.field }
#define OF(part, field) { #field, &set.part.field }
static const struct {
	const char *name;
	uint64_t *value;
} options[] = {
	NUMBER(threads), NUMBER(cores_per_l2), NUMBER(cores_per_llc), NUMBER(llcs_per_socket),
	NUMBER(nodes), NUMBER(ram_mib), NUMBER(through_home), NUMBER(outstanding), NUMBER(prefetch),
	NUMBER(hold_cycles),
	NUMBER(quantum_ps), NUMBER(insn_ps), NUMBER(at_wakeup), NUMBER(at_switch),
	OF(caches, l1_kib), OF(caches, l1_ways), OF(caches, l2_kib), OF(caches, l2_ways),
	OF(caches, l3_kib), OF(caches, l3_ways), OF(caches, store_percent), OF(caches, link_mbs),
	OF(caches, memory_mbs), OF(caches, socket_mbs),
	OF(clock, mhz), OF(clock, smt_percent), OF(clock, c1_exit_ps), OF(clock, ipi_ps),
	OF(clock, seed),
	OF(report, per_cpu_offset), OF(report, runqueues),
	{ "l2_ps", &set.caches.found_ps[IN_L2] }, { "l3_ps", &set.caches.found_ps[IN_L3] },
	{ "core_ps", &set.caches.found_ps[FROM_CORE] },
	{ "llc_ps", &set.caches.found_ps[FROM_LLC] },
	{ "socket_ps", &set.caches.found_ps[FROM_SOCKET] },
	{ "dram_ps", &set.caches.found_ps[FROM_DRAM] },
	{ "far_dram_ps", &set.caches.found_ps[FROM_FAR_DRAM] },
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
			set.report.out = strdup(equals);
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
	if (!set.report.out)
		fail("option out is missing");
}

/* Give each part the options that it needs. */
static void start(void)
{
	uint64_t ram = set.ram_mib << 20;
	const char *wrong;
	int i;

	low = ram < LOW_MOST ? ram : LOW_ELSE;
	set.caches.cpus = set.clock.cpus = set.report.cpus = ncpus;
	set.caches.threads = set.clock.threads = set.threads;
	set.caches.cores_per_l2 = set.cores_per_l2;
	set.caches.cores_per_llc = set.cores_per_llc;
	set.caches.llcs_per_socket = set.llcs_per_socket;
	set.caches.nodes = set.nodes;
	set.caches.lines = ram >> CACHES_LINE_BITS;
	set.caches.through_home = set.through_home;
	set.caches.outstanding = set.outstanding;
	set.caches.prefetch = set.prefetch;
	/* A CPU's clock has the cycles of an instruction before it accesses memory. */
	if (set.hold_cycles)
		set.caches.hold_ps = (set.hold_cycles + ATOMIC) * 1000000 / set.clock.mhz;
	wrong = caches_check(&set.caches);
	if (wrong)
		fail("%d CPUs: %s", ncpus, wrong);
	caches = caches_new(&set.caches);
	if (!caches)
		fail("no memory for the caches");
	l1s = caches_l1s(caches);
	set.report.cpus_per_llc = set.cores_per_llc * set.threads;
	set.report.cpus_per_socket = set.report.cpus_per_llc * set.llcs_per_socket;
	set.clock.cpus_per_llc = set.report.cpus_per_llc;
	set.clock.cpus_per_socket = set.report.cpus_per_socket;
	for (i = 0; i < 3; i++) {
		set.report.moved_ps[i] = set.caches.found_ps[FROM_CORE + i];
		/* The same part of each way as of that within an LLC. */
		set.clock.ahead_ps[i] = set.quantum_ps * set.caches.found_ps[FROM_CORE + i] /
					set.caches.found_ps[FROM_CORE];
	}
	clock_start(&set.clock);
	report_start(&set.report);
}

static void new_cpu(qemu_plugin_id_t id, unsigned int index)
{
	unsigned int i;

	(void)id;
	/* QEMU may move the counters when a CPU is added. */
	for (i = 0; i <= index; i++) {
		struct counted *counted = qemu_plugin_scoreboard_find(score, i);

		clock_count_in(i, &counted->spent);
	}
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
	start();
	score = qemu_plugin_scoreboard_new(sizeof(struct counted));
	qemu_plugin_register_vcpu_init_cb(id, new_cpu);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
