/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is used of QEMU 10.0. Debian has no package with its headers.
 *
 * The first part is the API for plugins. The second is what it lacks: it cannot hold the guest's
 * clock, nor end a CPU's turn. For these it takes functions that QEMU exports for its own modules,
 * a table of functions whose layout is checked before anything is written into it (clock.c), and
 * two places in QEMU's structures that no function gives, which are checked too.
 */
#ifndef SIM_QEMU_H
#define SIM_QEMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- the API for plugins, version 4 ---- */

#define PLUGIN_API 4

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
struct qemu_plugin_register;
struct qemu_plugin_scoreboard;

typedef struct {
	const char *target_name;
	struct {
		int min, cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus, max_vcpus;
	} system;
} qemu_info_t;

typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

typedef struct {
	struct qemu_plugin_register *handle;
	const char *name, *feature;
} qemu_plugin_reg_descriptor;

/* Of glib, which is in QEMU. */
typedef struct {
	char *data;
	unsigned int len;
} GArray;
typedef struct {
	uint8_t *data;
	unsigned int len;
} GByteArray;
GByteArray *g_byte_array_new(void);
GByteArray *g_byte_array_set_size(GByteArray *array, unsigned int length);

enum { NO_REGISTERS, READ_REGISTERS };
enum { MEMORY_READ = 1, MEMORY_WRITE, MEMORY_BOTH };
enum { INLINE_ADD };
enum { IF_GE = 7 };

typedef void (*vcpu_cb)(qemu_plugin_id_t id, unsigned int vcpu);
typedef void (*translated_cb)(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void (*executed_cb)(unsigned int vcpu, void *data);
typedef void (*memory_cb)(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
			  void *data);
typedef void (*exit_cb)(qemu_plugin_id_t id, void *data);

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, vcpu_cb cb);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id, translated_cb cb);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, exit_cb cb, void *data);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, executed_cb cb, int flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb, int op,
						       qemu_plugin_u64 entry, uint64_t value);
void qemu_plugin_register_vcpu_tb_exec_cond_cb(struct qemu_plugin_tb *tb, executed_cb cb, int flags,
					       int condition, qemu_plugin_u64 entry, uint64_t value,
					       void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, executed_cb cb,
					    int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, memory_cb cb, int flags,
				      int what, void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *data, size_t size);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *address);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *address);
GArray *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *value);
bool qemu_plugin_read_memory_vaddr(uint64_t address, GByteArray *data, size_t length);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score, unsigned int vcpu);

/* ---- what QEMU exports for its modules ---- */

typedef struct CPUState CPUState;

extern __thread CPUState *current_cpu;
CPUState *qemu_get_cpu(int index);
void cpu_exit(CPUState *cpu);
int tcg_cpu_exec(CPUState *cpu);
void cpu_exec_step_atomic(CPUState *cpu);
bool cpu_can_run(CPUState *cpu);
bool cpu_work_list_empty(CPUState *cpu);
bool cpu_thread_is_idle(CPUState *cpu);
void tb_flush(CPUState *cpu);
void tlb_flush(CPUState *cpu);
uint64_t cpu_get_phys_page_debug(CPUState *cpu, uint64_t address);
void cpu_x86_cpuid(void *env, uint32_t leaf, uint32_t subleaf, uint32_t *eax, uint32_t *ebx,
		   uint32_t *ecx, uint32_t *edx);
void tcg_cflags_set(CPUState *cpu, uint32_t flags);
bool tcg_cflags_has(CPUState *cpu, uint32_t flags);
void tcg_handle_interrupt(CPUState *cpu, int mask);
void rr_start_vcpu_thread(CPUState *cpu);
void rr_kick_vcpu_thread(CPUState *cpu);
int64_t qemu_clock_deadline_ns_all(int type, int attributes);
bool qemu_clock_run_timers(int type);
void bql_lock_impl(const char *file, int line);
void bql_unlock(void);

#define CF_PARALLEL 0x8000
#define CPU_INTERRUPT_HARD 0x2
#define EXCP_ATOMIC 0x10005
#define QEMU_CLOCK_VIRTUAL 1

/* What is below is as in QEMU 10.0; before use clock.c compares it with what is exported. */

/* AccelOpsClass: what cpus_get_accel() gives. */
struct accel_ops {
	char object_class[96];
	void *ops_init, *cpus_are_resettable, *cpu_reset_hold;
	void (*create_vcpu_thread)(CPUState *cpu);
	void (*kick_vcpu_thread)(CPUState *cpu);
	bool (*cpu_thread_is_idle)(CPUState *cpu);
	void *synchronize[5];
	void (*handle_interrupt)(CPUState *cpu, int mask);
	int64_t (*get_virtual_clock)(void);
	void (*set_virtual_clock)(int64_t ns);
	int64_t (*get_elapsed_ticks)(void);
};

struct accel_ops *cpus_get_accel(void);

/* CPUState.halted */
#define HALTED_AT 0x2cc
/* CPUX86State follows CPUState. */
#define ENV_AT 0x2bc0
/* X86CPU.mwait, what CPUID leaf 5 answers, is in here. */
#define MWAIT_FROM (ENV_AT + 0x3000)
#define MWAIT_TO (ENV_AT + 0x5000)

static inline uint32_t *qemu_halted(CPUState *cpu)
{
	return (uint32_t *)((char *)cpu + HALTED_AT);
}

static inline void *qemu_env(CPUState *cpu)
{
	return (char *)cpu + ENV_AT;
}

#endif
