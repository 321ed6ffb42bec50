# SPDX-License-Identifier: GPL-2.0-only
"""make sim: the simulation has the latencies of the machine file, finds the data that CPUs share, and
repeats exactly; and the tables made of its figures."""

import copy
import os
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from here import BUILD, SERIES, call, named
from kit import settings
from kit.paths import GUEST
from kit.process import Error
from kit.results import pages, placement, store, verdict
from kit.sim import costs, simulate, symbols, transfers, workloads
from kit.vm import initramfs, kernel, machine, qemu

SMALL = machine.load("epyc-2x2x2")
COSTS = costs.of(SMALL)
STATE = simulate.State(named("stack"))
# CPUs 0 and 1 are a core, 0 to 3 an LLC, 0 to 7 a socket.
CORE, LLC, OTHER_LLC, OTHER_SOCKET = 1, 2, 4, 8
# For other work in the region, such as a tick.
NEAR = 0.05


# ---- in the guest ----

@pytest.fixture(scope="module")
def built():
    """Build the kernel, which takes a moment if it is up to date."""
    kernel.build(named("stack"))


def chase(home, kib, loads):
    return workloads.Task("chase", (0, home, kib, loads))


def pair(kind, other, times=1000):
    return workloads.Task(kind, (0, other, times))


# Twice the L1 and a quarter of the L3: of pages at random, more than it has ways fall into no set. The pages are not at
# random: in boots in which the program begins in the other node, half of 256 KiB does not fit into the L2 of 1 MiB.
CHASES = {"l2": chase(0, 64, 20000), "l3": chase(0, 6144, 20000),
          "dram": chase(0, 98304, 10000), "far_dram": chase(OTHER_SOCKET, 98304, 10000)}
BOUNCES = {"other_core": pair("bounce", LLC), "other_llc": pair("bounce", OTHER_LLC),
           "other_socket": pair("bounce", OTHER_SOCKET)}
SHARED, ALONE = pair("counters", OTHER_LLC), pair("counters", CORE)
SIBLINGS = pair("bounce", CORE)
PING_PONG = workloads.Task("ping-pong", (0, OTHER_LLC, 100))
PIPELINE = workloads.Task("pipeline", (2, 3, 20, 2))
CYCLIC = workloads.Task("cyclic", (24, 1000, 10, "lockstep"))
SLICES = workloads.Task("hackbench", (1, 4, 20, "threads", "pipe", 0, 15, 100))
# On one LLC: on which of several the tasks meet is chance, and makes a third of the rate.
RATE, RATES = (workloads.Task("hackbench-rate", (1, 4, 6, ms, "processes", "socket", 0, 3)) for ms in (4, 8))
PINNED, APART = (workloads.Task("sharing", (2, 4, 64, 6, 2, how)) for how in ("pinned", "apart"))


@pytest.fixture(scope="module")
def regions(built):
    """Return {Task: Region}, the median of five boots: whether a tick falls into a region, or other data uses the same
    sets of the L3, is chance."""
    tasks = [*CHASES.values(), *BOUNCES.values(), SIBLINGS, SHARED, ALONE, PING_PONG,
             PIPELINE, CYCLIC, SLICES, RATE, RATES, PINNED, APART]
    initramfs.base(initramfs.small(SERIES))
    simulate.plugin(BUILD)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        boots = list(pool.map(lambda seed: simulate.run(SMALL, STATE, tasks, seed), range(1, 6)))
    return {task: sorted(found, key=lambda region: region.value)[2]
            for task, *found in zip(tasks, *boots)}


@pytest.mark.parametrize("table", CHASES)
def test_load_takes_what_the_machine_file_says(regions, table):
    found = regions[CHASES[table]].value
    # The load is an instruction too.
    told = COSTS.ns(table) + COSTS.options(SMALL.cores_per_llc)["insn_ps"] / 1000
    print(f"{found:.2f} ns, by the file {told:.2f}")
    assert found == pytest.approx(told, rel=NEAR)


@pytest.mark.parametrize("table", BOUNCES)
def test_line_bounces_at_what_the_machine_file_says(regions, table):
    found = regions[BOUNCES[table]].value
    print(f"{found:.2f} ns, in the file {COSTS.ns(table)}")
    assert found == pytest.approx(COSTS.ns(table), rel=NEAR)


def test_line_stays_in_a_core(regions):
    """Threads of a core share its L1: no line moves, and access is faster than between any two cores.
    A bounce is 23 or 28 ns of instructions in a core, by how the two loops meet; so the time is that of
    counters, which wait for nothing."""
    region = regions[SIBLINGS]
    figures = simulate.figures(region, SMALL)
    print(f"{region.value:.2f} ns; {figures}; counters {regions[ALONE].value:.2f} ns")
    assert regions[ALONE].value < COSTS.ns("other_core")
    assert figures["core"] + figures["llc"] + figures["socket"] < 20


def test_false_sharing_is_seen_and_named(regions):
    """Two counters in one line cost as much as one counter that both CPUs increment: each does so twice before it
    loses the line, see hold_ps in plugins/sim/caches.h."""
    names = transfers.known(named())
    found = transfers.hottest([regions[SHARED]], names)
    print(*found["lines"][:2], *found["functions"][:2], sep="\n")
    assert {row[0].partition("+")[0] for row in found["lines"][:2]} == {"counters"}
    assert {row[0] for row in found["functions"][:2]} == {"increment_first", "increment_second"}
    assert all(row[-2] > 490 and row[-1] == 0 for row in found["lines"][:2])
    assert found["not_counted"] == 0
    alone = regions[ALONE]
    print(f"{regions[SHARED].value:.1f} ns, in one core {alone.value:.1f} ns")
    assert 2 * regions[SHARED].value > COSTS.ns("other_llc") > 4 * alone.value
    assert "counters" not in str(transfers.hottest([alone], names))


def test_ping_pong_is_counted(regions):
    """Each round trip has two wakeups and four switches, and moves lines to the other LLC: by way of the other socket
    where their memory is there, as it is if the program begins there. No task migrates."""
    found = simulate.figures(regions[PING_PONG], SMALL)
    print(found)
    # The first and the last round trip are cut off, and other tasks wake up.
    assert found["wakeups"] == pytest.approx(2 * 100, abs=10)
    assert found["switches"] == pytest.approx(4 * 100, abs=20)
    assert found["migrations"] <= 2 and found["llc"] + found["socket"] > 50 * 100
    functions = [row[0] for row in transfers.hottest([regions[PING_PONG]], transfers.known(named()))["functions"]]
    print(*functions)
    assert {"try_to_wake_up", "pipe_read", "pipe_write"} <= set(functions)


def test_realtime_threads_run_in_each_period(regions):
    """With more threads than CPUs, each wakes up once in a period, and some wait, but not long. The
    runqueue has the address of the root_domain that they write to."""
    region, names = regions[CYCLIC], transfers.known(named())
    print(f"{region.value:.1f} us late, {region.counted['wakeups']} wakeups")
    assert region.counted["wakeups"] >= 24 * 10 and 0 < region.value < 200
    data = bytes.fromhex(region.counted["runqueue"])
    pointers = {int.from_bytes(data[i:i + 8], "little") for i in range(0, len(data), 8)}
    # Two priorities are in use: the CPUs of each and their number share a line, and nothing else of
    # cpupri is on a line that many CPUs write.
    moves = Counter()
    for _, address, pc, *numbers in region.counted["sites"]:
        if names.function(int(pc, 16)) == "cpupri_set":
            moves[int(address, 16) // 64] += sum(numbers)
    print("lines of cpupri_set():", *sorted(moves.values(), reverse=True))
    assert sum(number > 0.05 * moves.total() for number in moves.values()) == 2
    # It sets whether the root domain has a CPU with more than one task.
    written = [int(address, 16) for _, address, pc, *_ in region.counted["sites"]
               if names.function(int(pc, 16)) == "enqueue_task_rt"]
    assert any(pointer >= symbols.MAPPED and 0 <= address - pointer < 1024
               for pointer in pointers for address in written)


def test_messages_with_a_slice_arrive(regions):
    """Each of 4 senders sends each of 4 receivers 20 messages."""
    region = regions[SLICES]
    print(f"{region.value:.3f} ms, {region.counted['wakeups']} wakeups")
    assert region.value > 0 and region.counted["wakeups"] > 8


def test_rate_is_of_the_time_asked_for(regions):
    """The rates of 4 ms and of 8 ms, each after a warm-up, are about the same."""
    (short, long), figures = (regions[RATE], regions[RATES]), [simulate.figures(regions[task], SMALL)
                                                              for task in (RATE, RATES)]
    for region, found in zip((short, long), figures):
        print(f"{region.value:.0f} messages/ms; {found}")
        # Each wakeup has a message for the task. While receivers have messages to read, none sleeps.
        assert region.value * found["time"] > found["wakeups"] / 2
    # The thread that measures is not alone on its CPU: when it wakes up, three tasks a CPU may each run
    # on to the next tick (4 ms) first.
    assert 4 <= figures[0]["time"] < 4 + 12 and 8 <= figures[1]["time"] < 8 + 12
    assert long.value == pytest.approx(short.value, rel=0.3)


def test_pipeline_hands_every_message_on(regions):
    found = simulate.figures(regions[PIPELINE], SMALL)
    print(f"{regions[PIPELINE].value:.3f} ms; {found}")
    # 20 messages in two lanes; each wakes a task in most of three stages and the sink.
    assert found["time"] > regions[PIPELINE].value > 0 and found["wakeups"] > 20 * 2


def test_pinned_threads_stay_and_share_across_llcs(regions):
    found = simulate.figures(regions[PINNED], SMALL)
    print(f"{regions[PINNED].value:.0f} steps/ms; {found}")
    assert found["migrations"] <= 2 and found["llc"] + found["socket"] > 10 * found["core"] / 3


def test_threads_with_parts_of_their_own_share_nothing(regions):
    """No line that they write is used by another thread. Lines move with a thread that migrates within
    its LLC, and those of the kernel do."""
    alone, shared = (transfers.hottest([regions[task]], transfers.known(named()))["functions"]
                     for task in (APART, PINNED))
    print(f"{regions[APART].value:.0f} steps/ms, shared {regions[PINNED].value:.0f}", alone[:3], shared[:3],
          simulate.figures(regions[APART], SMALL))
    assert regions[APART].value > 2 * regions[PINNED].value
    # In both, the same time is looked at.
    moved = [dict((row[0], sum(row[1:])) for row in rows).get("sharer", 0) / regions[task].value
             for rows, task in ((alone, APART), (shared, PINNED))]
    assert moved[0] < moved[1] / 20


def test_clock_of_the_guest_is_simulated_time(regions):
    """The time that a workload measures is that of the plugin's clock, without the two marks."""
    for task, times in ((CHASES["far_dram"], 10000), (BOUNCES["other_socket"], 2 * 1000),
                        (PING_PONG, 100)):
        guest_us, plugin_us = (regions[task].value * times / 1e3,
                               regions[task].counted["time_ps"] / 1e6)
        print(f"{task.name}: {guest_us:.1f} us, by the plugin {plugin_us:.1f} us")
        assert 0 < plugin_us - guest_us < 10


def test_cpus_that_do_nothing_sleep(regions):
    """Two CPUs that wake each other up are idle half of the time, all others all the time."""
    region = regions[PING_PONG]
    busy = simulate.figures(region, SMALL)["busy"]
    print(f"{busy:.1f} % busy, {region.counted['ended_sleeps']} sleeps ended")
    assert 0.5 < busy * SMALL.cpus / 100 < 1.5
    assert region.counted["ended_sleeps"] == pytest.approx(2 * 100, abs=10)


def test_no_cpu_gets_ahead_of_the_others(regions):
    """A CPU is ahead by one block of code at most. Otherwise, when all others sleep, time would jump to
    its clock, and timers in between would be late. A chain of loads is one block."""
    ahead = {task: region.counted["ahead_ps"] / 1e6 for task, region in regions.items()
             if task.name != "chase"}
    print(*(f"{task.name} {task.arguments}: {us:.1f} us" for task, us in ahead.items()), sep="\n")
    assert 0 < ahead[PINNED] < 4 and max(ahead.values()) < 4


def test_tasks_settle_at_the_speed_that_they_will_have(built):
    """Without the caches, threads that wait for memory are as slow as with them, and others are not slower."""
    waiting, computing = (workloads.Task(*task, settle_ms=20) for task in (
        ("sharing", (2, 4, 64, 6, 2, "pinned")), ("rr", (2, 50, 6, 4, "processes", 0, 3))))
    found = simulate.run(SMALL, STATE, [waiting, computing], 1)
    percent = [region.counted["settle_percent"] for region in found]
    print(*percent)
    assert percent[0] > 300 and 100 <= percent[1] < 150


def without_host(region):
    return {key: value for key, value in region.counted.items() if key != "host_s"}


def test_same_seed_gives_the_same_and_another_does_not(built):
    """The same to the nanosecond, and to each line that moved."""
    messages = workloads.Task("hackbench", (1, 4, 10, "processes", "pipe", 0, 15))
    sharing = workloads.Task("sharing", (2, 4, 64, 6, 2))
    (shared, one), (_, again), (differently, other) = (
        simulate.run(SMALL, STATE, [sharing, messages], seed) for seed in (1, 1, 2))
    print(*(f"{region.value} ms, {region.counted['time_ps']} ps, "
            f"{region.counted['instructions']} instructions" for region in (one, again, other)), sep="\n")
    assert one.value == again.value and without_host(one) == without_host(again)
    assert one.counted["time_ps"] != other.counted["time_ps"]
    # A seed changes not only latencies by some ns, but also the addresses of mappings.
    pages = [{int(address, 16) >> 12 for _, address, *_ in region.counted["sites"]
              if 1 << 40 < int(address, 16) < symbols.KERNEL_HALF} for region in (shared, differently)]
    print(f"pages of processes: {len(pages[0])} and {len(pages[1])}, both: {len(pages[0] & pages[1])}")
    assert all(pages) and len(pages[0] & pages[1]) < min(map(len, pages)) / 2


def test_state_that_the_kernel_does_not_take_is_an_error(built):
    with pytest.raises(Error, match="epyc-2x2x2-sim-stack-1-"):
        simulate.run(SMALL, simulate.State(named("stack"), "features=NO_SUCH_FEATURE"), [PING_PONG], 1)


def test_workload_that_fails_is_an_error(built):
    with pytest.raises(Error, match="CPUs 999 to 999"):
        simulate.run(SMALL, STATE, [workloads.Task("ping-pong", (0, 999, 10))], 1)


# ---- the plugin and QEMU ----

def start(accel, change):
    """Start QEMU with the plugin but without a guest; return its status and stderr. change: options
    of the plugin to change, or to leave out if None."""
    program = qemu.find(BUILD)
    system_map = "".join(f"{number:x} T {name}\n" for number, name in enumerate(simulate.HOOKS.values(), 1))
    chosen = simulate.options(SMALL, system_map, 1, 20) | {"out": "/dev/null"} | change
    text = ",".join([str(simulate.plugin(BUILD)), *(f"{k}={v}" for k, v in chosen.items() if v is not None)])
    done = call(*program.command, *SMALL.qemu_args(simulate.cpu_model(SMALL)), "-accel", accel, "-nodefaults",
                "-display", "none", "-no-reboot", "-plugin", text, "-S", "-monitor", "stdio", input="quit\n",
                env=dict(program.env))
    return done.returncode, done.stderr


@pytest.mark.boot
def test_plugin_starts():
    status, text = start("tcg,thread=single", {})
    assert status == 0 and "sim: " not in text


@pytest.mark.boot
@pytest.mark.parametrize("accel, change, says", [
    # With another accelerator, the tables that the plugin writes to differ.
    ("tcg,thread=multi", {}, "is not that of QEMU 10.0 with -accel tcg,thread=single"),
    ("tcg,thread=single", {"l3_ps": None}, "option l3_ps is missing"),
    ("tcg,thread=single", {"l4_ps": 1}, "there is no option l4_ps"),
    ("tcg,thread=single", {"l3_ps": "long"}, "option l3_ps: long is no number"),
    ("tcg,thread=single", {"cores_per_llc": 3}, "too many, or not whole"),
    ("tcg,thread=single", {"out": "/no/such/directory/out"}, "cannot open /no/such/directory/out"),
])
def test_plugin_refuses(accel, change, says):
    status, text = start(accel, change)
    assert status == 1 and "sim: " in text and says in text


@pytest.mark.parametrize("version", ["11.1.3", "9.2.0", "10.1.0"])
def test_other_qemu_is_refused(monkeypatch, version):
    monkeypatch.setattr(qemu, "find", lambda build: None)
    monkeypatch.setattr(qemu, "version", lambda program: version)
    with pytest.raises(Error, match=f"needs QEMU 10.0.*here is {version}"):
        simulate.run(SMALL, STATE, [PING_PONG], 1)


def test_kernel_without_a_place_to_count_at():
    with pytest.raises(Error, match="no ttwu_do_activate, __per_cpu_offset, runqueues to count at"):
        simulate.options(SMALL, "1 T __switch_to_asm\n", 1, 20)


# ---- what is asked for ----

@pytest.mark.parametrize("text, says", [("hackbnch", "there is no hackbnch; there are: hackbench"),
                                        ("chase:1 2", "arguments are words")])
def test_workload_that_there_is_not(text, says):
    with pytest.raises(Error, match=says):
        workloads.task(text, SMALL)


def test_states(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "source_dir", lambda which: tmp_path / which.build)
    for name in ("base", "validate"):
        (tmp_path / f"{name}/kernel/sched").mkdir(parents=True)
        (tmp_path / f"{name}/kernel/sched/features.h").write_text("/* */\nSCHED_FEAT(A, true)\nSCHED_FEAT(B_C, false)\n")
    assert simulate.state("", "stack", SERIES) == simulate.State(named("stack"))
    assert simulate.state("base", "stack", SERIES) == simulate.State(named("base"))
    assert simulate.state("7.3/base,llc_balancing/b=1,preempt=2,features=NO_A", "stack", SERIES) == (
        simulate.State(named("7.3/base"), "llc_balancing/b=1,preempt=2,features=NO_A"))
    assert simulate.state("features=X", "stack", SERIES) == simulate.State(named("stack"), "features=X")
    # The tree is older than the patches, and brought up to date when the kernel is built.
    writes = "features=SIS_FAST,features=NO_SIS_FAST_RFC,features=A"
    assert simulate.state(f"validate,{writes}", "stack", SERIES) == simulate.State(named("validate"), writes)
    for text, says in (("5.4", "no such BUILD: 5.4"), ("base,on", "FILE=VALUE"), ("foo=bar", "foo=bar: sched/ of debugfs has no foo; it has: features, "),
                       ("validate,features=C", "features=C: validate has no such feature; it has: A, B_C, "),
                       ("base,features=NO_C", "features=NO_C: base has no such feature; it has: A, B_C")):
        with pytest.raises(Error, match=says):
            simulate.state(text, "stack", SERIES)


@pytest.mark.parametrize("env, says", [
    ({"SEEDS": "0"}, "SEEDS=0"), ({"SEEDS": "many"}, "SEEDS=many"), ({"ROUND_NS": "-1"}, "ROUND_NS"),
    ({"AGAINST": "stack"}, "is the same state"), ({"WITHOUT": "none"}, "WITHOUT=none: there is no such part"),
    ({"WORKLOAD": "none"}, "there is no none"), ({"STATE": "nonsense"}, "no such BUILD: nonsense")])
def test_wrong_settings(env, says):
    with pytest.raises(Error, match=says):
        simulate.experiment(settings.read("sim", {"MACHINE": SMALL.name, **env}))


# ---- what is made of the figures ----

SYSTEM_MAP = """\
0000000000000000 D __per_cpu_start
0000000000001000 D runqueues
0000000000002000 D __per_cpu_end
ffffffff81000000 T _text
ffffffff81000000 T start
ffffffff81000100 t wake.isra.0
ffffffff81000200 t wake.cold
ffffffff81800000 D init_task
ffffffff81900000 B _end
"""
PROGRAM = """
struct counters { long first, second; } counters;
int main(void) { return (int)counters.first; }
"""


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Return the Symbols of a made-up kernel and program."""
    where = tmp_path_factory.mktemp("symbols")
    (where / "System.map").write_text(SYSTEM_MAP)
    (where / "program.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-static", "-o", where / "program", where / "program.c"], check=True)
    return symbols.Symbols(where / "System.map", where / "program")


TASK = symbols.MAPPED + 0x5000000


@pytest.mark.parametrize("address, says", [
    # offset 8 of CPU 1's runqueue
    (symbols.MAPPED + 0x70001008, "runqueues of CPU 1+0x8"), (0xffffffff81800000, "init_task+0x0"),
    # the same by its other address, in what is mapped of RAM
    (symbols.MAPPED + 0x1800000 + 16, "init_task+0x10"), (TASK + 40, "task_struct?+0x28"),
    (symbols.MAPPED + 0x9000000, "memory of the kernel+0x0"), (0x7fff00000000, "memory of the workload+0x0"),
])
def test_places(names, address, says):
    place = names.place(address, [symbols.MAPPED + 0x60000000, symbols.MAPPED + 0x70000000], [TASK])
    assert str(place) == says


def test_places_of_the_program_and_functions(names):
    counters = next(address for address, name in zip(names.user_variables.addresses,
                                                     names.user_variables.names)
                    if name == "counters")
    assert str(names.place(counters + 8, [], [])) == "counters+0x8"
    assert [names.function(pc) for pc in (0xffffffff81000110, 0xffffffff81000200)] == ["wake"] * 2
    main = names.user_functions.addresses[names.user_functions.names.index("main")]
    assert names.function(main + 4) == "main"


def region(value, **change):
    """Return a Region like one of the plugin's; change replaces some of its counts."""
    found = dict.fromkeys(("l1", "l2", "l3", "core", "llc", "socket", "dram", "far_dram", "taken_core",
                           "taken_llc", "taken_socket"), 1)
    counted = {"time_ps": 10**9, "instructions": 5 * 10**6, "host_s": 1.0, "wakeups": 10,
               "switches": 20, "migrations": 3, "llc_crossings": 2, "socket_crossings": 1,
               "lost_sites": 0, "lost_tasks": 0, "busy_ps": [8 * 10**9, 0, 0, 0],
               "user": {"stalled_ps": 0, **found}, "kernel": {"stalled_ps": 0, **found},
               "far": ["core", "llc", "socket", "dram", "far_dram", "taken_core", "taken_llc",
                       "taken_socket"],
               "moved_ps": [1, 10, 100], "per_cpu": ["ffff888060000000", "ffff888070000000"],
               "tasks": [f"{TASK:x}"],
               "sites": [["0", f"{TASK:x}", "ffffffff81000110", 9, 0, 0, 0, 0, 1, 0, 0],
                         ["0", "ffff888060001008", "ffffffff81000010", 0, 3, 0, 0, 0, 0, 2, 0],
                         ["0", "ffffffff81800010", "ffffffff81000010", 1, 0, 0, 0, 0, 0, 0, 0],
                         ["0", "ffff888070001008", "ffffffff81000210", 0, 1, 0, 0, 0, 0, 0, 0]]}
    return simulate.Region(value, counted | change)


def test_figures():
    found = simulate.figures(region(1), SMALL)
    print(found)
    assert set(found) == set(simulate.METRICS)
    assert (found["time"], found["busy"], found["instructions"]) == (1, 50, 5)
    assert (found["core"], found["llc"], found["socket"], found["memory"]) == (4, 4, 4, 4)


def test_hottest_is_what_costs_most(names):
    found = transfers.hottest([region(1), region(1, lost_sites=4)], names)
    print(found)
    # Five of ten each is more than ten of one each; of both runqueues, and both runs.
    assert found["lines"] == [["runqueues+0x8", "start, wake", 0, 12, 0],
                              ["task_struct?+0x0", "wake", 20, 0, 0],
                              ["init_task+0x10", "start", 2, 0, 0]]
    assert found["functions"] == [["start", 2, 10, 0], ["wake", 20, 2, 0]]
    assert found["not_counted"] == 4


def made(base, other, again=None):
    """A Judged result of the workload `sharing`, of which more is better."""
    states = {"off": base, "on": other} | ({simulate.CONTROL: again} if again else {})
    subjects = {name: store.Subject("k", "on" if name == "on" else "off",
                                    None if name == "off" else "off") for name in states}
    return verdict.Judged("sim-sharing", "m", {"command": "make sim", "commit": "c", "qemu": "10.0.2"},
                          {"k": {"release": "r", "source": "s"}},
                          {"sharing": workloads.WORKLOADS["sharing"].metric}, subjects,
                          {name: {"sharing": numbers} for name, numbers in states.items()},
                          {"on": {"functions": [["f", 1, 2, 3]], "lines": [["d", "f", 1, 2, 3]],
                                  "not_counted": 0}})


QUIET = [100, 101, 99, 100, 102, 98]


# ---- placement ----

@pytest.mark.parametrize("core, llc, socket, place", [
    (100, 0, 0, placement.ONE_LLC), (100, 8, 0, placement.ONE_LLC), (100, 9, 0, placement.LLCS),
    (100, 0, 9, placement.SOCKETS), (100, 500, 5, placement.LLCS), (100, 5, 5, placement.LLCS),
    (0, 0, 0, None)])
def test_placement(core, llc, socket, place):
    assert placement.classify(core, llc, socket) == place


@pytest.mark.parametrize("busy, llcs", [
    ([100, 0, 0, 0], 1), ([95, 5, 0, 0], 1), ([85, 15, 0, 0], 2), ([30, 30, 30, 10], 3),
    ([25, 25, 25, 25], 4), ([0, 0], 0)])
def test_llcs_in_use(busy, llcs):
    assert placement.llcs(busy) == llcs


def test_placements_are_reported():
    """As of the issue's example: off, six of eight runs split the group; on, none of four does."""
    result = made([2504, 6719, 2507, 2517], [6722, 6711, 6805, 6677], [6772, 2146, 2506, 2124])
    result.metrics |= {name: simulate.METRICS[name] for name in ("core", "llc", "socket")}
    for values in result.values.values():
        values |= {"core": [100] * 4, "socket": [0] * 4,
                   "llc": [90 if value < 3000 else 1 for value in values["sharing"]]}
    rows = placement.table(result, "on", "sharing")
    print(*rows, sep="\n")
    assert [row[:5] for row in rows] == [
        ["placement", "runs", "off", "runs", "on"],
        ["within LLCs", "2 of 8", "6745", "4 of 4", "6729"],
        ["across LLCs", "6 of 8", "2377", "0 of 4", "-"]]
    assert rows[1][5].startswith("-0.25 %") and rows[2][5] == "-"
    assert placement.table(result, "off", "sharing") == []
    assert placement.table(result, simulate.CONTROL, "sharing") == []
    text = "\n".join(pages.own(result))
    assert "## By placement, on against off" in text and text.count("## By placement") == 1
    # An instrument that counts no lines.
    assert placement.table(made(QUIET, QUIET), "on", "sharing") == []


# ---- many seeds ----

def test_run_that_fails_ends_the_others():
    stopped = []

    def one(stop, name, seed):
        if seed == 1:
            raise Error("broken")
        stopped.append(stop.wait(10))
    with pytest.raises(Error, match="broken"):
        simulate.each_seed(one, ["a"], range(1, 9))
    assert all(stopped) and len(stopped) < 7


def test_page_and_format(tmp_path):
    result = made(QUIET, [130, 131, 129, 130, 132, 128], QUIET)
    text = "\n".join(pages.own(result))
    print(text)
    assert "| f | 1 | 2 | 3 |" in text and "GAIN; off against itself" in text
    path = tmp_path / "m" / "sim-sharing.json"
    store.save(result, path)
    assert verdict.judged(store.load(path)) == result
    # What was saved before there were details.
    old = copy.copy(result)
    old.details = {}
    store.save(old, path)
    path.write_text(path.read_text().replace(',\n "details": {}', ""))
    assert "details" not in path.read_text() and store.load(path).details == {}


def test_marks_and_moves_are_those_of_the_plugin():
    """Python and C have the same marks and the same names."""
    plugin = (Path(simulate.SOURCES) / "plugin.c").read_text()
    workload = (GUEST / "workload" / "workload.h").read_text()
    for mark in ("0x5ca1ab11", "0x5ca1ab12", "0x5ca1ab13", "0x5ca1ab14"):
        assert f"{mark}u" in plugin and f'MARK("{mark}")' in workload
    report = (Path(simulate.SOURCES) / "report.c").read_text()
    assert all(f'"{name}"' in report for _, names in transfers.MOVES.values() for name in names)
    assert initramfs.SMALL not in kernel.BUILDS
