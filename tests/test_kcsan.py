# SPDX-License-Identifier: GPL-2.0-only
"""Which of the data races that KCSAN reports are in our code, without a kernel."""

from types import SimpleNamespace

import pytest

from kit.paths import Series
from kit.trials import torture
from kit.vm import guest, kcsan, kernel, machine, splats

REPORT = """\
[    5.100000] ==================================================================
[    5.100001] BUG: KCSAN: data-race in {first} / {second}

[    5.100002] read-write to 0xffff88802f02c0a8 of 4 bytes by task 93 on cpu 2:
[    5.100003]  {first}+0x7c/0x150
[    5.100004]  enqueue_task_fair+0x2a1/0x5c0
[    5.100005]  do_syscall_64+0x4f/0x110

[    5.100006] read (marked) to 0xffff88802f02c0a8 of 4 bytes by interrupt on cpu 9:
[    5.100007]  {second}+0x33/0x90
[    5.100008]  sched_balance_softirq+0x21/0x40

[    5.100009] value changed: 0x00000001 -> 0x00000002

[    5.100010] Reported by Kernel Concurrency Sanitizer on:
[    5.100011] CPU: 9 UID: 0 PID: 0 Comm: swapper/9 Not tainted 6.12.117-cachetopo-kcsan-0123456789ab #1
[    5.100012] Hardware name: QEMU Standard PC (Q35 + ICH9, 2009), BIOS 1.16.3-debian-1.16.3-2 04/01/2014
[    5.100013] ==================================================================
"""
UNKNOWN = """\
[    5.200000] ==================================================================
[    5.200001] BUG: KCSAN: data-race in {first}+0x7c/0x150

[    5.200002] race at unknown origin, with read to 0xffffffff82c0a0e0 of 8 bytes by task 93 on cpu 2:
[    5.200003]  {first}+0x7c/0x150
[    5.200004]  enqueue_task_fair+0x2a1/0x5c0

[    5.200005] value changed: 0x0000000000000001 -> 0x0000000000000002

[    5.200006] Reported by Kernel Concurrency Sanitizer on:
[    5.200007] CPU: 2 UID: 0 PID: 93 Comm: torture Not tainted 6.12.117-cachetopo-kcsan-0123456789ab #1
[    5.200008] ==================================================================
"""
DIFF = """\
diff --git a/kernel/sched/cache.c b/kernel/sched/cache.c
new file mode 100644
--- /dev/null
+++ b/kernel/sched/cache.c
@@ -0,0 +1,4 @@
+static void cache_count(struct rq *rq)
+{
+	rq->nr_pref_llc++;
+}
diff --git a/kernel/sched/fair.c b/kernel/sched/fair.c
--- a/kernel/sched/fair.c
+++ b/kernel/sched/fair.c
@@ -10,0 +11 @@ static void f(void)
+	one = 1;
@@ -20,3 +22,0 @@ static void g(void)
-static inline bool sched_idle_rq(struct rq *rq)
-	return rq->nr_running;
-static int select_idle_sibling(struct task_struct *p)
@@ -40,0 +39,2 @@ static void h(void)
+static int select_idle_sibling(struct task_struct *p, int sync)
+	sis(p, sync);
@@ -60,0 +61,2 @@ static void i(void)
+static noinline bool dequeue_task_fair_traced(struct rq *rq)
+	return cache_count(rq);
@@ -70 +72 @@ static void j(void)
-		sd->nr_balance_failed = 0;
+			sd->nr_balance_failed = 0;
diff --git a/kernel/sched/sched.h b/kernel/sched/sched.h
--- a/kernel/sched/sched.h
+++ b/kernel/sched/sched.h
@@ -4,0 +5,4 @@ x
+static inline bool sched_idle_rq(struct rq *rq)
+	return rq->nr_running;
+void declared(int a);
+	two = 2;
"""
OURS = kcsan.ours(DIFF)
# By the function that a report names: what its access is made of, from the inside out.
PLACES = {"cache_count": [("cache_count", "kernel/sched/cache.c", 3)],
          "update_rq_clock": [("update_rq_clock", "kernel/sched/core.c", 40)],
          "pick_eevdf": [("pick_eevdf", "kernel/sched/fair.c", 12)],
          # A line of ours in a function of mainline that is part of another one.
          "pick_task_fair": [("pick_eevdf", "kernel/sched/fair.c", 11), ("pick_task_fair", "kernel/sched/fair.c", 90)],
          # A function of mainline that is part of one of ours.
          "enqueue_task_fair": [("rq_clock", "kernel/sched/sched.h", 90), ("cache_count", "kernel/sched/cache.c", 4),
                                ("enqueue_task_fair", "kernel/sched/fair.c", 70)],
          # A line of mainline in a function that has another name now.
          "dequeue_task_fair": [("util_est_dequeue", "kernel/sched/fair.c", 7),
                                ("cache_count", "kernel/sched/cache.c", 90),
                                ("dequeue_task_fair", "kernel/sched/fair.c", 80)],
          # The same, and one of ours calls that function.
          "dequeue_task_fair_traced": [("util_est_dequeue", "kernel/sched/fair.c", 7),
                                       ("cache_count", "kernel/sched/cache.c", 90),
                                       ("dequeue_task_fair_traced", "kernel/sched/fair.c", 62)],
          # The patches have moved the one, and changed the arguments of the other.
          "sched_idle_cpu": [("sched_idle_rq", "kernel/sched/sched.h", 6),
                             ("sched_idle_cpu", "kernel/sched/fair.c", 50)],
          "select_task_rq_fair": [("cpu_util", "kernel/sched/fair.c", 5),
                                  ("select_idle_sibling", "kernel/sched/fair.c", 60),
                                  ("select_task_rq_fair", "kernel/sched/fair.c", 40)]}


class Source:
    ours = OURS

    def places(self, some):
        return [[PLACES[access.function]] if access.function in PLACES else [] for access in some]


def sort(console):
    return kcsan.sort(Source(), splats.find(console))


def report(first, second):
    return REPORT.format(first=first, second=second)


@pytest.mark.parametrize("first, second", [
    ("cache_count", "update_rq_clock"), ("update_rq_clock", "cache_count"), ("cache_count", "cache_count"),
    ("pick_eevdf", "pick_task_fair"), ("enqueue_task_fair", "pick_eevdf")])
def test_one_access_in_our_code_counts(first, second):
    [count], elsewhere = sort(report(first, second))
    print(count)
    assert not elsewhere and "(ours)" in count
    function, name, line = PLACES[first][0]
    assert f"read-write: {function} {name}:{line}" in count


def test_mainline_alone_does_not_count():
    """Nor does what the patches have moved or renamed, or what a line calls that they have changed."""
    count, elsewhere = sort(report("update_rq_clock", "pick_eevdf") + UNKNOWN.format(first="pick_eevdf")
                            + report("sched_idle_cpu", "select_task_rq_fair")
                            + report("dequeue_task_fair", "pick_eevdf")
                            + report("dequeue_task_fair_traced", "pick_eevdf"))
    assert not count
    assert elsewhere == ["data-race in update_rq_clock / pick_eevdf", "data-race in pick_eevdf+0x7c/0x150",
                         "data-race in sched_idle_cpu / select_task_rq_fair",
                         "data-race in dequeue_task_fair / pick_eevdf",
                         "data-race in dequeue_task_fair_traced / pick_eevdf"]


def test_an_unknown_origin_counts_in_our_lines():
    [count], _ = sort(UNKNOWN.format(first="cache_count"))
    assert "kernel/sched/cache.c:3 (ours)" in count


def test_what_is_not_understood_counts():
    """A function without a place, a report that is cut short, and another splat in the middle of a report."""
    whole = report("update_rq_clock", "pick_eevdf")
    assert sort(report("update_rq_clock", "new_function"))[0]
    assert sort(whole[:whole.index(" read-write")])[0]
    assert sort(whole[:whole.index(" read (marked)")])[0]
    warning = "[    5.100007] WARNING: CPU: 1 PID: 2 at x.c:3 y+0x1/0x2\n"
    broken = whole.replace("[    5.100007] ", warning + "[    5.100007] ")
    assert len(sort(broken)[0]) == 1


def test_a_report_without_its_end_does_not_hide_the_next():
    end = report("f", "g").rindex("[    5.100013]")
    count, elsewhere = sort(report("update_rq_clock", "pick_eevdf")[:end - 60] + report("cache_count", "pick_eevdf"))
    assert len(count) == 1 and "cache_count" in count[0] and len(elsewhere) == 1


def test_other_splats_count():
    console = report("update_rq_clock", "pick_eevdf") + "[    6.000000] WARNING: CPU: 3 PID: 77 at x.c:9\n"
    count, elsewhere = sort(console)
    assert len(count) == 1 and "WARNING: " in count[0] and "KCSAN" not in count[0] and len(elsewhere) == 1


def test_functions_and_lines_come_from_the_build(monkeypatch, tmp_path):
    """Two functions of one name are both looked at; the address that addr2line gets is that of the call, not
    the one that it returns to."""
    (tmp_path / "System.map").write_text("ffffffff81000000 t f\nffffffff81000100 T g\nffffffff81000200 t f\n"
                                         "ffffffff82000000 D g\n")
    asked = []

    def sh(args, capture):
        asked.extend(args[6:])
        return SimpleNamespace(out="0xffffffff8100000f\ng\n/src/a.h:1 (discriminator 3)\nf.isra.0\n/src/kernel/a.c:2\n"
                                   "0xffffffff8100020f\nf\n/src/kernel/b.c:3\n0xffffffff81000107\n??\n??:0\n")
    monkeypatch.setattr(kcsan, "sh", sh)
    monkeypatch.setattr(kcsan, "git", lambda *_: SimpleNamespace(out=DIFF))
    monkeypatch.setattr(kernel, "source_dir", lambda which: "/src")
    source = kcsan.Source(SimpleNamespace(out=tmp_path))
    places = source.places([kcsan.Access("read", "f", 0x10), kcsan.Access("write", "g", 8),
                            kcsan.Access("read", "h", 8)])
    assert sorted(asked) == ["0xffffffff8100000f", "0xffffffff81000107", "0xffffffff8100020f"]
    assert places == [[[("g", "a.h", 1), ("f", "kernel/a.c", 2)], [("f", "kernel/b.c", 3)]], [], []]


def test_guests_of_other_builds_keep_all_splats(monkeypatch, tmp_path):
    """Only BUILD=kcsan is expected to report races of mainline."""
    monkeypatch.setattr(guest.initramfs, "write", lambda *_: "initrd")
    monkeypatch.setattr(guest, "_qemu_command", lambda *_: ([], {}))
    console = report("update_rq_clock", "pick_eevdf")
    monkeypatch.setattr(guest, "watch", lambda *_: guest.Result(console, "", 1.0, True, 0, splats.find(console)))
    monkeypatch.setattr(kcsan, "Source", lambda which: Source())
    for build, kept in (("stack", 1), ("kcsan", 0)):
        result = guest.run(machine.load("two-ccx"), kernel.Kernel(Series("6.12", build=tmp_path), build), "torture")
        assert len(result.splats) == kept and len(result.elsewhere) == 1 - kept


def test_torture_says_how_many_races_are_not_ours():
    totals = torture.Totals()
    for _ in range(2):
        assert not totals.add(guest.Result("", "TAP version 13\n1..1\nok 1 run\nEND 0\n", 1.0, True, 0,
                                           elsewhere=["data-race in f / g", "data-race in g / h"]))
    assert kcsan.summary(totals.elsewhere) == ", races not in our code: 4 of 2 kinds"
    assert kcsan.summary([]) == ""
