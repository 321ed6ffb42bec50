# SPDX-License-Identifier: GPL-2.0-only
"""Splats on a console: samples of each kind, and lines that are not splats."""

import pytest

from kit.vm import splats

SPLATS = [
    "[    3.141592][    T1] Kernel panic - not syncing: Fatal exception",
    "[    3.141592] BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "[    3.141592] BUG: scheduling while atomic: swapper/3/0/0x00000002",
    "[    3.141592] BUG: workqueue lockup - pool cpus=1 node=0 flags=0x0 nice=0 stuck for 40s!",
    "[    3.141592] [ BUG: Invalid wait context ]",
    "[    3.141592] Oops: 0000 [#1] PREEMPT SMP NOPTI",
    "[    3.141592] general protection fault, probably for non-canonical address 0xdead: 0000",
    "[    3.141592] kernel BUG at kernel/sched/core.c:1234!",
    "[    3.141592] divide error: 0000 [#1] SMP",
    "[    3.141592] WARNING: CPU: 3 PID: 77 at kernel/sched/fair.c:99 f+0x1/0x2",
    "[    3.141592] WARNING: possible circular locking dependency detected",
    "[    3.141592] INFO: trying to register non-static key.",
    "[    3.141592] INFO: task kworker/1:2:345 blocked for more than 120 seconds.",
    "[    3.141592] rcu: INFO: rcu_sched self-detected stall on CPU",
    "[    3.141592] rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-.... }",
    "[    3.141592] rcu: rcu_preempt kthread starved for 5003 jiffies! g8993 f0x0",
    "[    3.141592] watchdog: BUG: soft lockup - CPU#2 stuck for 26s! [stress:123]",
    "[    3.141592] watchdog: CPU5: Watchdog detected hard LOCKUP on cpu 5",
    "[    3.141592] NMI watchdog: Watchdog detected hard LOCKUP on cpu 5",
    "[    3.141592] UBSAN: array-index-out-of-bounds in kernel/sched/topology.c:7:9",
    "[    3.141592] unchecked MSR access error: RDMSR from 0x17f at rIP: 0xffffffff81000000",
    "[    3.141592] ERROR: groups don't span domain->span",
    # the kernel's line follows what a program left unfinished
    "~ # ls[    3.141592] WARNING: CPU: 3 PID: 77 at kernel/sched/fair.c:99 f+0x1/0x2",
    # before time stamps are on
    "WARNING: CPU: 0 PID: 0 at arch/x86/kernel/x.c:1 y+0x1/0x2",
    "Kernel panic - not syncing: no time yet",
]

INNOCENT = [
    "[    0.000000] Command line: console=ttyS0 panic=-1 oops=panic kit.job=panic x=WARNING:",
    "[    0.000000] Kernel command line: console=ttyS0 BUG: WARNING: Oops: kit.job=warn",
    "[    0.031415] debug: unmap: freed 0x1234",
    "[    0.031415] debug: BUG: and WARNING: in the middle of a line",
    "[    0.031415] x86/mm: Checked W+X mappings: passed, no W+X pages found.",
    "[    0.031415] DEBUG: all well",
    "[    0.031415] rcu: Hierarchical RCU implementation.",
    "[    0.031415] rcu: \tRCU CPU stall warnings timeout set to 120 (rcu_cpu_stall_timeout).",
    "[    0.031415] rcu: RCU calculated value of scheduler-enlistment delay is 25 jiffies.",
    "[    0.031415] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
    "[    0.031415] ... MAX_LOCKDEP_SUBCLASSES:  8",
    "[    0.031415] NMI watchdog: Perf NMI watchdog permanently disabled",
    "[    0.031415] watchdog: Delayed init of the lockup detector failed: -19",
    "[    0.031415] INFO: NMI handler (perf_event_nmi_handler) took too long to run: 1.2 msecs",
    "[    0.031415] hrtimer: interrupt took 40513934 ns",
    "[    0.031415] sched: RT throttling activated",
    "[    0.031415] sched: DL replenish lagged too much",
    "[    0.031415] Spectre V2 : WARNING: Unprivileged eBPF is enabled",
    "[    0.031415] traps: ttwu_queue[71] general protection fault ip:401b2c sp:7ffd error:0 in x",
    "[    0.031415] ttwu_queue[71]: segfault at 0 ip 0000000000401b2c sp 00007ffd error 4 in x",
    "[    0.031415] lkdtm: Performing direct entry WARNING",
    "[    0.031415] smpboot: CPU 3 is now offline",
    "[    0.031415] printk: legacy console [ttyS0] enabled",
    "KASAN and lockdep are words, and so are panic, oops and BUG",
    "",
]

TRACE = """\
[    2.000000] Run /init as init process
[    3.000000] ------------[ cut here ]------------
[    3.000001] this went wrong: 7
[    3.000002] WARNING: CPU: 1 PID: 64 at kernel/sched/core.c:100 thing+0x11/0x20
[    3.000003] CPU: 1 UID: 0 PID: 64 Comm: sh Not tainted 6.12.117 #1
[    3.000004] Call Trace:
[    3.000005]  <TASK>
[    3.000006]  other+0x1a/0x30
[    3.000007]  </TASK>
[    3.000008] ---[ end trace 0000000000000000 ]---
[    4.000000] reboot: Power down
"""


@pytest.mark.parametrize("line", SPLATS)
def test_splat(line):
    assert splats.find(f"[    1.000000] before\n{line}\n[    9.000000] after\n")


@pytest.mark.parametrize("line", INNOCENT)
def test_no_splat(line):
    assert splats.find(f"[    1.000000] before\n{line}\n[    9.000000] after\n") == []


def test_trace_is_cut_out():
    found = splats.find(TRACE.replace("\n", "\r\n") + TRACE)
    print(found[0])
    assert len(found) == 2 and found[0] == found[1]
    assert found[0].startswith("[    3.000000] ---") and "this went wrong: 7" in found[0]
    assert found[0].endswith("---[ end trace 0000000000000000 ]---")


def test_no_end_of_the_trace():
    rest = "\n".join(f"[    5.{n:06d}] line {n}" for n in range(1000))
    [found] = splats.find("[    3.000000] Kernel panic - not syncing: x\n" + rest)
    # The panic itself and 79 lines after it.
    assert found.splitlines()[-1].endswith(" line 78")


def test_reports_between_two_lines_of_equals_signs():
    """KASAN and KCSAN print one below the other: the end of a report is not the middle of the next one."""
    rule = "[    3.000000] " + "=" * 66 + "\n"
    text = "".join(f"{rule}[    3.000001] BUG: KCSAN: data-race in f{n} / g\n[    3.000002]  f{n}+0x1/0x2\n{rule}"
                   for n in range(3))
    found = splats.find(text + "[    3.000003] after\n")
    assert len(found) == 3 and all(splat.count("=" * 66) == 2 and splat.count("+0x1") == 1 for splat in found)


@pytest.mark.parametrize("between, is_part", [(0, True), (4, True), (5, False)])
def test_how_far_back_a_trace_begins(between, is_part):
    """The "cut here" line is looked for in the 5 lines before the one that matches: a message of
    WARN() may have several. One that is further up belongs to something else."""
    text = "\n".join(["[    3.000000] ------------[ cut here ]------------",
                      *(f"[    3.000001] message {n}" for n in range(between)),
                      "[    3.000002] WARNING: CPU: 1 PID: 64 at kernel/sched/core.c:100",
                      "[    3.000003] ---[ end trace 0000000000000000 ]---"])
    [found] = splats.find("[    2.000000] ---[ end of something ]---\n" + text)
    print(found)
    assert ("cut here" in found) == is_part and "end of something" not in found
    assert found.count("\n") == (between + 2 if is_part else 1)


def test_nearest_cut_here_counts():
    marker = "[    3.000000] ------------[ cut here ]------------\n"
    [found] = splats.find(marker + "[    3.000001] before\n" + marker
                          + "[    3.000002] WARNING: x\n[    3.000003] ---[ end trace 0 ]---\n")
    assert found.count("cut here") == 1 and "before" not in found


def test_traces_in_a_row():
    """A trace that begins on the line after the end of another trace is reported separately."""
    text = "[    3.0] x\n" + "".join(
        f"[    3.00000{n}] BUG: number {n}\n[    3.00000{n}] ---[ end trace 0 ]---\n" for n in range(3))
    found = splats.find(text)
    print(*found, sep="\n\n")
    assert [splat.count("number") for splat in found] == [1, 1, 1]


def test_panic_alone_is_the_last_word():
    assert [line for line in SPLATS if splats.is_panic(line)] == [
        line for line in SPLATS if "Kernel panic" in line]
    assert not any(splats.is_panic(line) for line in INNOCENT)
