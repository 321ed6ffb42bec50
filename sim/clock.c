// SPDX-License-Identifier: GPL-2.0-only
/*
 * Time. Each CPU has a clock, which goes on with the instructions that it executes and with what
 * its accesses to memory cost. QEMU lets the CPUs take turns on one thread; a turn is here a
 * slice: a CPU runs until its clock is at the end of the round, and waits there. When all that run
 * have come, the next round begins for those whose clocks are not beyond its end. So no CPU is
 * ahead of another by more than a round (set.quantum_ps) and the two blocks of code that are begun
 * at its end, three if it gets an interrupt there, whatever they do; and nothing depends on the
 * host, so that a run can be repeated to the last digit.
 *
 * The guest's TSC and timers follow these clocks. A CPU that sleeps takes no part in a round; if
 * all sleep, time jumps to the next timer. A CPU that spins (PAUSE) spends the rest of its round.
 */
#include "sim.h"

/* Before the caches are looked at, rounds are longer, and nobody sees the write that ends an MWAIT:
 * then the CPUs in it look for themselves, now and then. */
#define FAST_QUANTUM (8 * 1000 * 1000)
/* While the workload warms up, who is first by some ns does not matter. */
#define WARM_QUANTUM (100 * 1000)
#define POLL (50 * 1000 * 1000)
#define NS 1000
#define NEVER (~0ULL)
#define WATCHED 4096
/* Of a random number: up to 64 ns. */
#define JITTER_PS 64000

uint64_t now;

static uint64_t round_end;
/* The CPU whose turn it is, and what the guest's clock is while a timer is fired, 0 if none is. */
static struct cpu *turn;
static uint64_t firing;
static uint64_t next_poll, poll_until;
static uint64_t random_state;
/* How many CPUs monitor a line whose number is this one modulo WATCHED. */
static uint16_t watched[WATCHED];
static __thread bool cpu_thread;
static GArray *registers;
static GByteArray *value;

static uint64_t random_number(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

uint64_t clock_round(void)
{
	if (!detailed)
		return FAST_QUANTUM;
	return measuring || set.quantum_ps > WARM_QUANTUM ? set.quantum_ps : WARM_QUANTUM;
}

uint64_t clock_of(const struct cpu *cpu)
{
	return cpu->clock + (cpu->counted->spent - cpu->begin) * cpu->rate / 100;
}

static uint64_t guest_time(void)
{
	uint64_t time;

	if (firing)
		return firing;
	if (!turn)
		return now;
	time = clock_of(turn);
	return time > now ? time : now;
}

/* Of QEMU's other threads none waits for the guest's clock: for them it stands still. */
static int64_t virtual_clock(void)
{
	return cpu_thread ? (int64_t)(guest_time() / NS) : 0;
}

static int64_t elapsed_ticks(void)
{
	return (unsigned __int128)(cpu_thread ? guest_time() : now) * set.mhz / 1000000;
}

uint64_t read_register(const char *name)
{
	const qemu_plugin_reg_descriptor *all = (void *)registers->data;
	uint64_t result = 0;
	unsigned int i;

	for (i = 0; i < registers->len; i++) {
		if (__builtin_strcmp(all[i].name, name))
			continue;
		g_byte_array_set_size(value, 0);
		if (qemu_plugin_read_register(all[i].handle, value) != sizeof(result))
			break;
		__builtin_memcpy(&result, value->data, sizeof(result));
		return result;
	}
	fail("QEMU gives no register %s", name);
}

/* ---- sleeping and waking ---- */

static void unwatch(struct cpu *cpu)
{
	if (cpu->monitoring)
		watched[cpu->monitored % WATCHED]--;
	cpu->monitoring = false;
}

/* Something happens at this time that ends the sleep of a CPU, once it has left its C1. */
static void wake(struct cpu *cpu, uint64_t when)
{
	when += set.c1_exit_ps + (detailed ? random_number() % JITTER_PS : 0);
	if (when < cpu->clock)
		when = cpu->clock;
	if (!cpu->waking || when < cpu->wakes_at)
		cpu->wakes_at = when;
	cpu->waking = true;
}

static void end_mwait(struct cpu *cpu, uint64_t when)
{
	unwatch(cpu);
	if (cpu->in_mwait)
		wake(cpu, when);
}

/* Have QEMU run those that wake up in this round. */
static void wake_up(void)
{
	int i;

	for (i = 0; i < ncpus; i++) {
		struct cpu *cpu = &cpus[i];

		if (!cpu->waking || cpu->wakes_at >= round_end)
			continue;
		cpu->waking = cpu->halted = false;
		cpu->clock = cpu->wakes_at;
		unwatch(cpu);
		if (cpu->in_mwait)
			*qemu_halted(cpu->qemu) = 0;
		cpu->in_mwait = false;
		if (cpu->interrupts)
			tcg_handle_interrupt(cpu->qemu, cpu->interrupts);
		cpu->interrupts = 0;
		report_woken();
	}
}

bool clock_watched(uint64_t line)
{
	return watched[line % WATCHED];
}

void clock_written(struct cpu *by, uint64_t line)
{
	int i;

	for (i = 0; i < ncpus; i++)
		if (cpus[i].monitoring && cpus[i].monitored == line && &cpus[i] != by)
			end_mwait(&cpus[i], clock_of(by));
}

static void poll_mwait(void)
{
	int i;

	next_poll = now + POLL;
	for (i = 0; i < ncpus; i++)
		if (cpus[i].in_mwait)
			end_mwait(&cpus[i], now);
}

/* What was written before the caches were looked at nobody saw. */
void clock_poll_soon(void)
{
	next_poll = now;
	poll_until = now + 2 * POLL;
}

static bool polling(void)
{
	return !detailed || now < poll_until;
}

void clock_end_slice(struct cpu *cpu)
{
	uint64_t time = clock_of(cpu);

	report_busy(cpu, time - cpu->clock);
	cpu->clock = time;
	cpu->counted->spent = cpu->begin = SLICE_END;
	cpu->running = false;
}

/*
 * For QEMU it is halted meanwhile: it would execute a block of code each time it is asked, and what
 * waits for memory in each of them would get ahead of the others.
 */
static void wait_for_round(struct cpu *cpu)
{
	clock_end_slice(cpu);
	cpu->waiting = true;
	*qemu_halted(cpu->qemu) = 1;
}

static void sleep_now(struct cpu *cpu)
{
	clock_end_slice(cpu);
	cpu->halted = true;
	cpu->waking = cpu->waiting = false;
	cpu->interrupts = 0;
}

void clock_hlt(unsigned int index, void *unused)
{
	(void)unused;
	sleep_now(&cpus[index]);
}

void clock_pause(unsigned int index, void *unused)
{
	struct cpu *cpu = &cpus[index];

	(void)unused;
	wait_for_round(cpu);
	if (cpu->clock < round_end) {
		report_busy(cpu, round_end - cpu->clock);
		cpu->clock = round_end;
	}
}

void clock_monitor(unsigned int index, void *unused)
{
	struct cpu *cpu = &cpus[index];
	uint64_t address = read_register("rax");
	uint64_t page = cpu_get_phys_page_debug(cpu->qemu, address & ~0xfffULL);
	int64_t line = page == ~0ULL ? -1 : caches_line(page | (address & 0xfff));

	(void)unused;
	unwatch(cpu);
	if (line < 0)
		return;
	cpu->monitored = line;
	cpu->monitoring = true;
	watched[line % WATCHED]++;
}

/* Another CPU may have written to the line since MONITOR: then there is nothing to wait for. */
void clock_mwait(unsigned int index, void *unused)
{
	struct cpu *cpu = &cpus[index];

	(void)unused;
	if (!cpu->monitoring) {
		clock_end_slice(cpu);
		return;
	}
	sleep_now(cpu);
	cpu->in_mwait = true;
	*qemu_halted(cpu->qemu) = 1;
}

/* QEMU may have left a CPU in the middle of its slice for another one, and comes back. */
void clock_is_turn_of(struct cpu *cpu)
{
	if (turn == cpu)
		return;
	turn = cpu;
	cpu->touching++;
}

/* The addresses are others from now on. */
void clock_forget(unsigned int index, void *unused)
{
	(void)unused;
	cpus[index].touching++;
}

/* ---- rounds and slices ---- */

static void fire_timers(void)
{
	firing = now;
	if (!qemu_clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL, ~0))
		qemu_clock_run_timers(QEMU_CLOCK_VIRTUAL);
	firing = 0;
}

/* What has happened until now. */
static void catch_up(void)
{
	bool locked = bql_locked();

	if (!locked)
		bql_lock_impl(__FILE__, __LINE__);
	fire_timers();
	if (polling() && now >= next_poll)
		poll_mwait();
	wake_up();
	if (!locked)
		bql_unlock();
}

/* When something happens next that ends a sleep. */
static uint64_t next_event(void)
{
	uint64_t then;
	int64_t ns;
	int i;

	firing = now;
	ns = qemu_clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL, ~0);
	firing = 0;
	then = ns < 0 ? NEVER : now + ns * NS + NS;
	for (i = 0; i < ncpus; i++) {
		if (cpus[i].waking && cpus[i].wakes_at < then)
			then = cpus[i].wakes_at;
		if (polling() && cpus[i].in_mwait && now + POLL < then)
			then = now + POLL;
	}
	return then;
}

/* No CPU has anything to do in this one. Give whether there is a next one. */
static bool next_round(void)
{
	uint64_t lowest = NEVER;
	int i;

	for (i = 0; i < ncpus; i++) {
		/* Not every interrupt ends a sleep. */
		if (!cpus[i].waiting)
			cpus[i].halted = true;
		else if (clock_of(&cpus[i]) < lowest)
			lowest = clock_of(&cpus[i]);
	}
	if (lowest == NEVER)
		lowest = next_event();
	if (lowest == NEVER)
		return false;
	if (lowest > now)
		now = lowest;
	if (now >= round_end)
		round_end = now + clock_round();
	turn = NULL;
	catch_up();
	for (i = 0; i < ncpus; i++) {
		if (!cpus[i].waiting)
			continue;
		if (clock_of(&cpus[i]) > now)
			report_ahead(clock_of(&cpus[i]) - now);
		if (clock_of(&cpus[i]) >= round_end)
			continue;
		cpus[i].waiting = false;
		*qemu_halted(cpus[i].qemu) = 0;
	}
	return true;
}

/*
 * It had an interrupt already when it went to sleep. What else came meanwhile its APIC tells it
 * of; what does not come by way of that is not to get lost.
 */
static void woken_by_itself(struct cpu *cpu)
{
	int others = cpu->interrupts & ~CPU_INTERRUPT_HARD;

	cpu->halted = cpu->in_mwait = cpu->waking = false;
	cpu->interrupts = 0;
	unwatch(cpu);
	if (!others)
		return;
	bql_lock_impl(__FILE__, __LINE__);
	tcg_handle_interrupt(cpu->qemu, others);
	bql_unlock();
}

/* Called at the begin of a block of code if the slice of a CPU is over, or a new one begins. */
void clock_turn(unsigned int index, void *unused)
{
	struct cpu *cpu = &cpus[index];
	struct cpu *sibling = &cpus[index ^ 1];

	(void)unused;
	if (cpu->running) {
		wait_for_round(cpu);
		cpu_exit(cpu->qemu);
		return;
	}
	if (*qemu_halted(cpu->qemu))
		fail("CPU %u runs and is halted: this is not QEMU 10.0 as it is known", index);
	turn = cpu;
	if (cpu->halted)
		woken_by_itself(cpu);
	cpu->waiting = false;
	cpu->touching++;
	/* What the last block cost, at the rate that it was executed at; and this first one. */
	clock_end_slice(cpu);
	cpu->rate = set.threads == 2 && !sibling->halted ? set.smt_percent : 100;
	/* Those that wait get their interrupts, too. */
	if (cpu->clock >= round_end) {
		wait_for_round(cpu);
		cpu_exit(cpu->qemu);
		return;
	}
	cpu->counted->spent = cpu->begin = SLICE_END - (round_end - cpu->clock) * 100 / cpu->rate - 1;
	cpu->running = true;
}

/* QEMU asks for each CPU in order if it has nothing to do; after the last of them, none has. */
static bool thread_is_idle(CPUState *cpu)
{
	if (!cpu_thread || !cpus[ncpus - 1].qemu)
		return true;
	if (!*qemu_halted(cpu))
		fail("an idle CPU is not halted: this is not QEMU 10.0 as it is known");
	return cpu != cpus[ncpus - 1].qemu || !next_round();
}

/* A CPU that sleeps gets its interrupts when it is awake; one that runs, with its next slice. */
static void handle_interrupt(CPUState *qemu, int mask)
{
	struct cpu *cpu = NULL;
	int i;

	for (i = 0; cpu_thread && i < ncpus; i++)
		if (cpus[i].qemu == qemu)
			cpu = &cpus[i];
	if (!cpu || !cpu->halted) {
		tcg_handle_interrupt(qemu, mask);
		return;
	}
	cpu->interrupts |= mask;
	wake(cpu, guest_time() + (firing ? 0 : set.ipi_ps));
}

static void kick(CPUState *qemu)
{
	/* On the thread of the CPUs there is nobody to wake up. */
	if (!cpu_thread)
		rr_kick_vcpu_thread(qemu);
}

/* ---- set-up ---- */

/*
 * Have CPUID say that MWAIT knows a C1, without which Linux idles in HLT. There is no option for it
 * where QEMU translates. Where it lies is found by what it answers, before and after.
 */
static void offer_c1(CPUState *cpu)
{
	uint32_t a, b, c, d, *found;

	for (found = (uint32_t *)((char *)cpu + MWAIT_FROM);
	     found < (uint32_t *)((char *)cpu + MWAIT_TO); found++) {
		if (found[0] || found[1] || found[2] != 3 || found[3])
			continue;
		found[3] = 0x20;
		cpu_x86_cpuid(qemu_env(cpu), 5, 0, &a, &b, &c, &d);
		if (c == 3 && d == 0x20) {
			found[0] = found[1] = 1 << LINE_BITS;
			return;
		}
		found[3] = 0;
	}
	fail("what CPUID says of MWAIT is not where it is in QEMU 10.0");
}

static void check_layout(CPUState *cpu)
{
	const struct accel_ops *ops = cpus_get_accel();
	uint32_t a, b, c, d;

	if (ops->create_vcpu_thread != rr_start_vcpu_thread ||
	    ops->kick_vcpu_thread != rr_kick_vcpu_thread || ops->cpu_thread_is_idle ||
	    ops->handle_interrupt != tcg_handle_interrupt || ops->get_virtual_clock ||
	    ops->set_virtual_clock || ops->get_elapsed_ticks)
		fail("AccelOpsClass is not that of QEMU 10.0 with -accel tcg,thread=single");
	cpu_x86_cpuid(qemu_env(cpu), 0, 0, &a, &b, &c, &d);
	/* "Genu" */
	if (b != 0x756e6547)
		fail("CPUX86State is not where it is in QEMU 10.0");
}

void clock_new_cpu(int index)
{
	struct cpu *cpu = &cpus[index];
	struct accel_ops *ops;

	cpu->qemu = qemu_get_cpu(index);
	cpu->halted = index != 0;
	cpu->counted->spent = cpu->begin = SLICE_END;
	cpu->rate = 100;
	/*
	 * Without it, on one thread, QEMU puts the number of the CPU that it translates for into
	 * code that others execute too.
	 */
	tcg_cflags_set(cpu->qemu, CF_PARALLEL);
	if (!tcg_cflags_has(cpu->qemu, CF_PARALLEL))
		fail("QEMU takes no CF_PARALLEL");
	if (index == 0) {
		check_layout(cpu->qemu);
		registers = qemu_plugin_get_registers();
		value = g_byte_array_new();
		cpu_thread = true;
		ops = cpus_get_accel();
		ops->kick_vcpu_thread = kick;
		ops->cpu_thread_is_idle = thread_is_idle;
		ops->handle_interrupt = handle_interrupt;
		ops->get_virtual_clock = virtual_clock;
		ops->get_elapsed_ticks = elapsed_ticks;
	}
	if (!cpu_thread)
		fail("the CPUs have a thread each: it has to be -accel tcg,thread=single");
	if (*qemu_halted(cpu->qemu) != (index != 0))
		fail("CPUState.halted is not where it is in QEMU 10.0");
	offer_c1(cpu->qemu);
}

void clock_start(void)
{
	random_state = 0x9e3779b97f4a7c15ULL * (set.seed + 1);
}
