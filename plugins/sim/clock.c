// SPDX-License-Identifier: GPL-2.0-only
/*
 * Time. The clock of a CPU goes on with the instructions that it executes and with what it waits
 * for. The CPUs take turns on one thread; a turn is here a slice: the CPU that is the farthest
 * behind runs until it is ahead of the others by what a line takes from them (order.h). So no CPU
 * is ahead of another by more than that and two blocks of code, the one that it has begun and the
 * one after. Nothing depends on the host, so a run can be repeated to the last digit.
 *
 * QEMU itself would ask each CPU in turn whether it has something to do, which takes longer than
 * most slices. To QEMU a CPU that waits for its slice is halted; when it asks whether all CPUs are
 * idle, run_cpus() runs slices, and returns now and then for what else QEMU has to do.
 *
 * The guest's TSC and timers follow these clocks. A CPU that sleeps takes no part in this; if all
 * sleep, time jumps to the next timer. A CPU that spins (PAUSE) spends the rest of its slice.
 *
 * All of it runs on the thread of the CPUs (-accel tcg,thread=single), so nothing is locked.
 */
#include "clock.h"
#include "fail.h"
#include "order.h"

/*
 * Before the caches are looked at, a quantum is longer, and the write that ends an MWAIT is not
 * seen: then the CPUs in it wake up now and then.
 */
#define FAST_QUANTUM (8 * 1000 * 1000)
/* While the workload warms up, which CPU is first by some ns does not matter. */
#define WARM_QUANTUM (100 * 1000)
/* Slices after which QEMU gets to do what else it has to. */
#define SLICES 4096
#define POLL (50 * 1000 * 1000)
/*
 * How often QEMU's TLB of a CPU is flushed, with the first slice after that. Only then it grows, up to what the guest
 * uses, and switches between threads of one process flush nothing: most of their accesses missed it. A guest may be
 * told no more often than that what it has accessed, as by any TLB.
 */
#define FLUSH (5ULL * 1000 * 1000 * 1000)
#define NS 1000
/* What MONITOR watches. */
#define LINE_BYTES 64
#define NEVER ORDER_NEVER
_Static_assert(CLOCK_NEVER == NEVER, "two times that are never");
/*
 * Two lines are taken for one if their numbers are the same modulo this. Of the lines that another
 * one is taken for, each idle CPU makes one: with 384 of them 2 %.
 */
#define WATCHED 16384
/* Of a random number: up to 64 ns. */
#define JITTER_PS 64000
/* Larger than the number of CPUs. */
#define HASHED 2048

static struct clock_config set;
static enum clock_phase phase;

static struct cpu {
	CPUState *qemu;
	/* ps in this slice; the slice is over at CLOCK_SLICE_END. */
	uint64_t *spent;
	/*
	 * Of this slice: the clock and *spent at its begin, and the rate in percent at which time
	 * passes.
	 */
	uint64_t clock, begin, rate;
	uint64_t busy;
	bool running, halted, in_mwait, monitoring;
	uint64_t monitored;
	/* When QEMU's TLB is flushed next. */
	uint64_t next_flush;
	/* Asleep, but only until then; and the interrupts, as QEMU has them, that it gets then. */
	bool waking;
	uint64_t wakes_at;
	int interrupts;
	/* Halted for QEMU until its next slice. */
	bool waiting;
	/* It may run, but whether it is awake QEMU has to say. */
	bool dozing;
} cpus[CLOCK_MAX_CPUS];

static struct clock_counts counts;
static struct order order;
/* The time that all CPUs that run have come to. */
static uint64_t now;
/* The clocks of the CPUs that wait for a slice; NEVER for the others. */
static struct order_clocks ready;
/* No sleep ends before. */
static uint64_t next_wake;
/* When the slice of the CPU whose turn it is ends, and when timers are to be looked at again. */
static uint64_t slice_end, next_look;
/* What is to be called, and when. */
static uint64_t alarm_at = NEVER;
static void (*alarm_call)(uint64_t now);
/* QEMU has something else to do. */
static bool kicked;
/* In run_cpus(). */
static bool inside;
/* The CPU whose turn it is, and what the guest's clock is while a timer is fired, 0 if none is. */
static struct cpu *turn;
static uint64_t firing;
static uint64_t next_poll, poll_until;
static uint64_t random_state;
/* How many CPUs monitor a line whose number is this one modulo WATCHED. */
static uint16_t watched[WATCHED];
/* The CPUs by the address of QEMU's structure. */
static struct cpu *by_qemu[HASHED];
static __thread bool cpu_thread;

static uint64_t random_number(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* Set how far CPUs may be apart in this phase. */
static void set_order(void)
{
	static const uint64_t least[] = { FAST_QUANTUM, WARM_QUANTUM, 0 };
	int i;

	order = (struct order){ set.cpus, set.cpus_per_llc, set.cpus_per_socket, { 0 } };
	for (i = 0; i < 3; i++)
		order.ahead[i] = set.ahead_ps[i] > least[phase] ? set.ahead_ps[i] : least[phase];
}

static uint64_t time_of(const struct cpu *cpu)
{
	return cpu->clock + (*cpu->spent - cpu->begin) * cpu->rate / 100;
}

uint64_t clock_of(unsigned int index)
{
	return time_of(&cpus[index]);
}

void clock_spend(unsigned int index, uint64_t ps)
{
	*cpus[index].spent += ps * 100 / cpus[index].rate;
}

uint64_t clock_busy(unsigned int index)
{
	return cpus[index].busy;
}

const struct clock_counts *clock_counts(void)
{
	return &counts;
}

void clock_reset_ahead(void)
{
	counts.ahead_ps = 0;
}

static uint64_t guest_time(void)
{
	uint64_t time;

	if (firing)
		return firing;
	if (!turn)
		return now;
	time = time_of(turn);
	return time > now ? time : now;
}

/* None of QEMU's other threads waits for the guest's clock: for them it stands still. */
static int64_t virtual_clock(void)
{
	return cpu_thread ? (int64_t)(guest_time() / NS) : 0;
}

static int64_t elapsed_ticks(void)
{
	return (unsigned __int128)(cpu_thread ? guest_time() : now) * set.mhz / 1000000;
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
	when += set.c1_exit_ps + (phase != CLOCK_FAST ? random_number() % JITTER_PS : 0);
	if (when < cpu->clock)
		when = cpu->clock;
	if (!cpu->waking || when < cpu->wakes_at)
		cpu->wakes_at = when;
	cpu->waking = true;
	if (cpu->wakes_at < next_wake)
		next_wake = cpu->wakes_at;
}

static void end_mwait(struct cpu *cpu, uint64_t when)
{
	unwatch(cpu);
	if (cpu->in_mwait)
		wake(cpu, when);
}

/* Let a CPU have a slice. */
static void make_ready(struct cpu *cpu, bool dozing)
{
	cpu->dozing = dozing;
	order_set(&ready, cpu - cpus, time_of(cpu));
}

/* The CPUs that wake up before the end of the next quantum want to run. */
static void wake_up(void)
{
	int i;

	if (next_wake >= now + order.ahead[0])
		return;
	next_wake = NEVER;
	for (i = 0; i < set.cpus; i++) {
		struct cpu *cpu = &cpus[i];

		if (!cpu->waking)
			continue;
		if (cpu->wakes_at >= now + order.ahead[0]) {
			if (cpu->wakes_at < next_wake)
				next_wake = cpu->wakes_at;
			continue;
		}
		cpu->waking = cpu->halted = false;
		cpu->clock = cpu->wakes_at;
		unwatch(cpu);
		make_ready(cpu, !cpu->in_mwait);
		cpu->in_mwait = false;
		if (cpu->interrupts)
			tcg_handle_interrupt(cpu->qemu, cpu->interrupts);
		cpu->interrupts = 0;
		counts.ended_sleeps++;
	}
}

bool clock_watched(uint64_t line)
{
	return watched[line % WATCHED];
}

void clock_written(unsigned int by, uint64_t line)
{
	int i;

	for (i = 0; i < set.cpus; i++)
		if (cpus[i].monitoring && cpus[i].monitored == line && i != (int)by)
			end_mwait(&cpus[i], time_of(&cpus[by]));
}

static void poll_mwait(void)
{
	int i;

	next_poll = now + POLL;
	for (i = 0; i < set.cpus; i++)
		if (cpus[i].in_mwait)
			end_mwait(&cpus[i], now);
}

void clock_set_phase(enum clock_phase next)
{
	/* A write before the accesses were looked at was not seen: look once more. */
	if (phase == CLOCK_FAST && next != CLOCK_FAST) {
		next_poll = now;
		poll_until = now + 2 * POLL;
	}
	phase = next;
	set_order();
}

void clock_alarm(uint64_t when, void (*call)(uint64_t now))
{
	alarm_at = when;
	alarm_call = call;
}

static bool polling(void)
{
	return phase == CLOCK_FAST || now < poll_until;
}

static void end_slice(struct cpu *cpu)
{
	uint64_t time = time_of(cpu);

	cpu->busy += time - cpu->clock;
	cpu->clock = time;
	*cpu->spent = cpu->begin = CLOCK_SLICE_END;
	cpu->running = false;
}

/*
 * For QEMU the CPU is halted while it waits: it would execute a block of code each time it is
 * asked, and a CPU that waits for memory in each of them would get ahead of the others.
 */
static void wait_for_slice(struct cpu *cpu)
{
	end_slice(cpu);
	cpu->waiting = true;
	*qemu_halted(cpu->qemu) = 1;
}

static void sleep_now(struct cpu *cpu)
{
	end_slice(cpu);
	cpu->halted = true;
	cpu->waking = cpu->waiting = false;
	cpu->interrupts = 0;
	order_set(&ready, cpu - cpus, NEVER);
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
	wait_for_slice(cpu);
	if (cpu->clock < slice_end) {
		cpu->busy += slice_end - cpu->clock;
		cpu->clock = slice_end;
	}
}

void clock_monitor(unsigned int index, int64_t line)
{
	struct cpu *cpu = &cpus[index];

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
		end_slice(cpu);
		return;
	}
	sleep_now(cpu);
	cpu->in_mwait = true;
	*qemu_halted(cpu->qemu) = 1;
}

/* QEMU may leave a CPU in the middle of its slice for another one and come back. */
void clock_runs(unsigned int index)
{
	turn = &cpus[index];
}

/* ---- slices ---- */

static void fire_timers(void)
{
	firing = now;
	if (!qemu_clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL, ~0))
		qemu_clock_run_timers(QEMU_CLOCK_VIRTUAL);
	firing = 0;
}

/* Do what is due: fire timers, end sleeps. */
static void look(void)
{
	int i;

	bql_lock_impl(__FILE__, __LINE__);
	fire_timers();
	if (polling() && now >= next_poll)
		poll_mwait();
	wake_up();
	if (now >= alarm_at) {
		alarm_at = NEVER;
		alarm_call(now);
	}
	bql_unlock();
	for (i = 0; i < set.cpus; i++)
		if (ready.of[i] != NEVER && ready.of[i] > now + counts.ahead_ps)
			counts.ahead_ps = ready.of[i] - now;
	next_look = now + order.ahead[0];
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
	for (i = 0; i < set.cpus; i++) {
		if (cpus[i].waking && cpus[i].wakes_at < then)
			then = cpus[i].wakes_at;
		if (polling() && cpus[i].in_mwait && now + POLL < then)
			then = now + POLL;
	}
	return then;
}

/*
 * Choose the CPU that runs next and the end of its slice; NULL if all sleep, for good. The slice is
 * limited also if there is no other CPU, so that timers are not late.
 */
static struct cpu *choose(void)
{
	int chosen;

	for (;;) {
		uint64_t time;

		chosen = order_choose(&order, &ready, random_number() % set.cpus);
		time = chosen < 0 ? next_event() : ready.of[chosen];
		if (time == NEVER)
			return NULL;
		if (time > now)
			now = time;
		if (chosen >= 0 && now < next_look)
			break;
		turn = NULL;
		look();
	}
	order_set(&ready, chosen, NEVER);
	slice_end = order_limit(&order, &ready, chosen);
	if (slice_end > now + order.ahead[2])
		slice_end = now + order.ahead[2];
	return &cpus[chosen];
}

/* Have QEMU execute the code of a CPU until its slice is over, or QEMU has something else to do. */
static void run_slice(struct cpu *cpu)
{
	if (now >= cpu->next_flush) {
		tlb_flush(cpu->qemu);
		cpu->next_flush = now + FLUSH;
	}
	cpu->waiting = false;
	if (!cpu->dozing)
		*qemu_halted(cpu->qemu) = 0;
	do {
		if (tcg_cpu_exec(cpu->qemu) == EXCP_ATOMIC)
			cpu_exec_step_atomic(cpu->qemu);
	} while (!kicked && !cpu->waiting && !*qemu_halted(cpu->qemu) && cpu_can_run(cpu->qemu) &&
		 cpu_work_list_empty(cpu->qemu));
	if (cpu->waiting) {
		make_ready(cpu, false);
	} else if (*qemu_halted(cpu->qemu)) {
		/* Not every interrupt ends a sleep; and a CPU may go to sleep with one. */
		cpu->halted = true;
		if (!cpu_thread_is_idle(cpu->qemu))
			make_ready(cpu, true);
	}
}

/* Let the CPUs run. Give whether QEMU has something to do; else all CPUs sleep for good. */
static bool run_cpus(void)
{
	struct cpu *cpu;
	int i;

	kicked = false;
	inside = true;
	/* QEMU calls with its lock held, which what the CPUs execute takes where it needs it. */
	bql_unlock();
	for (i = 0; i < SLICES && !kicked; i++) {
		cpu = choose();
		if (!cpu)
			break;
		if (!cpu_can_run(cpu->qemu) || !cpu_work_list_empty(cpu->qemu)) {
			make_ready(cpu, cpu->dozing);
			break;
		}
		run_slice(cpu);
	}
	bql_lock_impl(__FILE__, __LINE__);
	inside = false;
	return cpu;
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
		wait_for_slice(cpu);
		cpu_exit(cpu->qemu);
		return;
	}
	if (*qemu_halted(cpu->qemu))
		fail("CPU %u runs and is halted: this is not QEMU 10.0 as it is known", index);
	turn = cpu;
	if (cpu->halted)
		woken_by_itself(cpu);
	cpu->waiting = false;
	/* What the last block cost, at the rate that it was executed at; and this first one. */
	end_slice(cpu);
	cpu->rate = set.threads == 2 && !sibling->halted ? set.smt_percent : 100;
	/* Those that wait get their interrupts, too. */
	if (cpu->clock >= slice_end) {
		wait_for_slice(cpu);
		cpu_exit(cpu->qemu);
		return;
	}
	*cpu->spent = cpu->begin =
		CLOCK_SLICE_END - (slice_end - cpu->clock) * 100 / cpu->rate - 1;
	cpu->running = true;
}

/*
 * QEMU asks for each CPU in order if it has nothing to do. After the last of them none has: what is
 * left are those that wait for a slice.
 */
static bool thread_is_idle(CPUState *qemu)
{
	int i;

	if (!cpu_thread || !cpus[set.cpus - 1].qemu || inside)
		return true;
	if (!*qemu_halted(qemu))
		fail("an idle CPU is not halted: this is not QEMU 10.0 as it is known");
	if (qemu != cpus[set.cpus - 1].qemu)
		return true;
	for (i = 0; i < set.cpus; i++) {
		struct cpu *cpu = &cpus[i];

		/* QEMU may have run a CPU by itself. */
		if (cpu->waiting)
			make_ready(cpu, false);
		else if (ready.of[i] == NEVER)
			cpu->halted = true;
	}
	return !run_cpus();
}

/* The place in by_qemu of a CPU, or the free one for it. */
static struct cpu **hashed(const CPUState *qemu)
{
	size_t place = (uintptr_t)qemu >> 6;

	while (by_qemu[place % HASHED] && by_qemu[place % HASHED]->qemu != qemu)
		place++;
	return &by_qemu[place % HASHED];
}

/* A CPU that sleeps gets its interrupts when it is awake; one that runs, with its next slice. */
static void handle_interrupt(CPUState *qemu, int mask)
{
	struct cpu *cpu = cpu_thread ? *hashed(qemu) : NULL;

	if (!cpu || !cpu->halted) {
		tcg_handle_interrupt(qemu, mask);
		return;
	}
	cpu->interrupts |= mask;
	wake(cpu, guest_time() + (firing ? 0 : set.ipi_ps));
}

/* On the thread of the CPUs nothing sleeps; but a CPU may have got work from another one. */
static void kick(CPUState *qemu)
{
	if (!cpu_thread)
		rr_kick_vcpu_thread(qemu);
	if (!cpu_thread || !cpu_work_list_empty(qemu))
		kicked = true;
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
			found[0] = found[1] = LINE_BYTES;
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
	*hashed(cpu->qemu) = cpu;
	cpu->halted = index != 0;
	*cpu->spent = cpu->begin = CLOCK_SLICE_END;
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

void clock_count_in(int index, uint64_t *spent)
{
	cpus[index].spent = spent;
}

void clock_start(const struct clock_config *config)
{
	set = *config;
	set_order();
	order_clear(&ready);
	random_state = 0x9e3779b97f4a7c15ULL * (set.seed + 1);
}
