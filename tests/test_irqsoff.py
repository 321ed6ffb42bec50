# SPDX-License-Identifier: GPL-2.0-only
"""make irqsoff without guests: what the plugin measures, whose functions are whose, and the table."""

from kit.process import sh
from kit.trials import irqsoff

MAP = {"try_to_wake_up": 0x100, "find_idle_llc_cpu": 0x200, "sched_tick": 0x300, "sched_tick.cold": 0x400,
       "__lock_text_start": 0x600, "_raw_spin_lock_irqsave": 0x600, "__lock_text_end": 0x700,
       "__entry_text_start": 0x800, "asm_sysvec_apic_timer_interrupt": 0x820, "__entry_text_end": 0x900,
       "start_thread": 0x900}
ADDRESSES, NAMES = list(MAP.values()), list(MAP)
# Executes blocks of 10 instructions: CPU, function, interrupts off, stack pointer. Function 0 is user space, and 1 a
# pause. Nothing calls what the plugin needs of QEMU.
HARNESS = r"""
#include "%s"
__thread CPUState *current_cpu;
int main(int argc, char **argv)
{
	static char cpus[2][1 << 20];
	unsigned int cpu, address, off, sp;

	out = argv[1];
	read_functions(argv[2]);
	while (scanf("%%u %%x %%u %%u", &cpu, &address, &off, &sp) == 4) {
		current_cpu = (void *)cpus[cpu];
		uint64_t *env = qemu_env(current_cpu);
		struct block block = { function_at(address), 10, !address };
		env[4] = KERNEL_HALF + sp;
		env[17] = off ? 0 : INTERRUPTS_ON;
		if (address == 1)
			at_pause(0, NULL);
		else
			executed(0, &block);
	}
	finish(0, NULL);
}
"""


def test_the_plugin_measures(tmp_path):
    """Each block has 10 instructions. A section begins in try_to_wake_up, behind its wrapper. It calls a function of
    the patches, which calls sched_tick and returns."""
    (tmp_path / "harness.c").write_text(HARNESS % irqsoff.SOURCE)
    (tmp_path / "functions").write_text("".join(f"{address:x} {kind}\n" for address, kind in zip(
        ADDRESSES, irqsoff.kinds(ADDRESSES, NAMES, {"try_to_wake_up", "sched_tick"}))))
    sh(["gcc", "-no-pie", "-Wl,--unresolved-symbols=ignore-all", "-o", tmp_path / "harness", tmp_path / "harness.c"])

    before = ["0 300 1 60", "0 300 0 60", "0 900 0 90"]

    def run(*blocks):
        sh([tmp_path / "harness", tmp_path / "out", tmp_path / "functions"], input="\n".join([*before, *blocks]))
        return (tmp_path / "out").read_text().splitlines()
    path = ["0 600 1 50", "0 100 1 60", "0 200 1 40", "0 300 1 30", "0 210 1 38", "0 110 1 48"]
    assert run(*path, "0 120 0 60") == ["section 100 1 60 30", "call 200 1 30 30"]
    # Of two, the longer one; each CPU has its own.
    assert run(*path, "1 300 1 60", "0 130 1 60", "0 120 0 60", "1 300 0 60", *path[:4], "0 120 0 60") == [
        "section 100 2 70 30", "call 200 2 30 30", "section 300 1 10 0"]
    # Waiting does not count: what is between two pauses, if it is short.
    pause = ["0 1 1 60", "0 110 1 60"]
    assert run(*["0 100 1 60"] * 21, *pause * 2, *pause[:1], "0 120 0 60") == ["section 100 1 210 0"]
    assert run("0 110 0 60", *path[1:3], "0 1 1 40", *path[4:], "0 120 0 60") == [
        "section 100 1 20 10", "call 200 1 10 10"]
    # Interrupts go off in the middle of a function of the patches.
    assert run("0 220 1 40", "0 230 1 48", "0 300 1 44", "0 240 1 48", "0 110 1 56", "0 120 0 60") == [
        "section 200 1 50 40", "call 200 1 40 40"]
    # What is in user space has interrupts on, also where a CPU starts.
    assert run("0 0 1 60", "0 0 1 60", "0 120 0 60") == []


def test_kinds_of_functions(monkeypatch):
    monkeypatch.setattr(irqsoff, "AROUND", ("sched_tick",))
    found = dict(zip(NAMES, irqsoff.kinds(ADDRESSES, NAMES, {"try_to_wake_up"})))
    assert {name: kind for name, kind in found.items() if "text_" not in name} == {
        "try_to_wake_up": "-", "find_idle_llc_cpu": "o", "sched_tick": "-", "sched_tick.cold": "-",
        "_raw_spin_lock_irqsave": "w", "asm_sysvec_apic_timer_interrupt": "w", "start_thread": "s"}


def test_functions_of_mainline_are_known_where_they_are_inlined(tmp_path):
    (tmp_path / "kernel/sched").mkdir(parents=True)
    (tmp_path / "kernel/sched/fair.c").write_text("static int detach_tasks(struct lb_env *env)\n")
    assert "detach_tasks" in irqsoff.words(tmp_path)


def test_parts_of_a_function_are_one():
    found = {which: {} for which in irqsoff.LISTS}
    for text in ("section 300 5 70 9\nsection 400 1 90 3\n", "section 300 1 10 20\n"):
        irqsoff.parse(text, ADDRESSES, NAMES, found)
    assert found == {"section": {"sched_tick": irqsoff.Stat(7, 90, 20)}, "call": {}}


def test_table_has_what_is_long_and_what_is_ours(monkeypatch):
    monkeypatch.setattr(irqsoff, "SHOWN", 1)

    def state(**sections):
        return {"section": {name: irqsoff.Stat(1, *numbers) for name, numbers in sections.items()}}
    assert irqsoff.rows("section", {"base": state(long=(900, 0), wake=(100, 0), same=(50, 0)),
                                    "on": state(long=(899, 0), wake=(300, 150))}) == [
        ["begins in", "base", "on", "ours base", "ours on", "number"],
        ["long", "900", "899", "0", "0", "1 1"], ["wake", "100", "300", "0", "150", "1 1"]]
