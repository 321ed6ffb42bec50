# SPDX-License-Identifier: GPL-2.0-only
"""make sim: that the simulation costs what the machine file says, sees who shares what, and gives the
same again; and what is made of its figures."""

import copy
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit import guest, kernel, machine, qemu
from kit.bench import results, sim, symbols, validate
from kit.paths import GUEST
from kit.run import Error

SMALL = machine.load("epyc-2x2x2")
COSTS = SMALL.costs()
STATE = sim.State("stack")
# CPUs 0 and 1 are a core, 0 to 3 an LLC, 0 to 7 a socket.
CORE, LLC, OTHER_LLC, OTHER_SOCKET = 1, 2, 4, 8
# What else happens meanwhile, a tick for example.
NEAR = 0.05


# ---- in the guest ----

@pytest.fixture(scope="module")
def built():
    """The kernel, which is quick if it is there."""
    kernel.build("stack")


def chase(home, kib, loads):
    return sim.Task("chase", (0, home, kib, loads))


def pair(kind, other, times=1000):
    return sim.Task(kind, (0, other, times))


# A quarter of the L2 and of the L3: of pages at random, more than it has ways fall into no set.
CHASES = {"l2": chase(0, 256, 20000), "l3": chase(0, 6144, 20000),
          "dram": chase(0, 98304, 10000), "far_dram": chase(OTHER_SOCKET, 98304, 10000)}
BOUNCES = {"other_core": pair("bounce", LLC), "other_llc": pair("bounce", OTHER_LLC),
           "other_socket": pair("bounce", OTHER_SOCKET)}
SHARED, ALONE = pair("counters", OTHER_LLC), pair("counters", CORE)
SIBLINGS = pair("bounce", CORE)
PING_PONG = sim.Task("ping-pong", (0, OTHER_LLC, 100))
PIPELINE = sim.Task("pipeline", (2, 3, 20, 2))
CYCLIC = sim.Task("cyclic", (24, 1000, 10))
SLICES = sim.Task("hackbench", (1, 4, 20, "threads", "pipe", 0, 15, 100))
RATE, RATES = (sim.Task("hackbench-rate", (1, 4, 6, ms, "processes", "socket", 0, 15)) for ms in (4, 8))
PINNED, APART = (sim.Task("sharing", (2, 4, 64, 6, 2, how)) for how in ("pinned", "apart"))


@pytest.fixture(scope="module")
def regions(built):
    """{Task: Region}, the one in the middle of five boots: a tick, or a region that shares its sets
    of the L3 with something else, is a matter of chance."""
    tasks = [*CHASES.values(), *BOUNCES.values(), SIBLINGS, SHARED, ALONE, PING_PONG,
             PIPELINE, CYCLIC, SLICES, RATE, RATES, PINNED, APART]
    guest.initramfs(guest.SMALL)
    sim.plugin()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        boots = list(pool.map(lambda seed: sim.run(SMALL, STATE, tasks, seed), range(1, 6)))
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
    """Threads of a core share its L1: no line moves, and it is quicker than any way between cores."""
    region = regions[SIBLINGS]
    figures = sim.figures(region, SMALL)
    print(f"{region.value:.2f} ns; {figures}")
    assert region.value < COSTS.ns("other_core")
    assert figures["core"] + figures["llc"] + figures["socket"] < 20


def test_false_sharing_is_seen_and_named(regions):
    """Two counters in a line, in the way of each other as the line itself would be."""
    names = sim.known("stack")
    found = sim.hottest([regions[SHARED]], names)
    print(*found["lines"][:2], *found["functions"][:2], sep="\n")
    assert {row[0] for row in found["lines"][:2]} == {"counters.first", "counters.second"}
    assert {row[0] for row in found["functions"][:2]} == {"increment_first", "increment_second"}
    assert all(row[-2] > 500 and row[-1] == 0 for row in found["lines"][:2])
    assert found["not_counted"] == 0
    alone = regions[ALONE]
    print(f"{regions[SHARED].value:.1f} ns, in one core {alone.value:.1f} ns")
    assert regions[SHARED].value > COSTS.ns("other_llc") > 4 * alone.value
    assert "counters" not in str(sim.hottest([alone], names))


def test_ping_pong_is_counted(regions):
    """Two wakeups and two switches to a task each time, of lines that go to the other LLC; nobody
    goes elsewhere."""
    found = sim.figures(regions[PING_PONG], SMALL)
    print(found)
    # One that began before, one that is not over, and what else wakes up.
    assert found["wakeups"] == pytest.approx(2 * 100, abs=10)
    assert found["switches"] == pytest.approx(4 * 100, abs=20)
    assert found["migrations"] <= 2 and found["llc"] > 50 * 100 > 10 * found["socket"]
    functions = [row[0] for row in sim.hottest([regions[PING_PONG]], sim.known("stack"))["functions"]]
    print(*functions)
    assert {"try_to_wake_up", "pipe_read", "pipe_write"} <= set(functions)


def test_realtime_threads_run_in_each_period(regions):
    """More of them than CPUs: once in each period each wakes up, some have to wait, none for long.
    And a runqueue tells where the root_domain is that they write to."""
    region, names = regions[CYCLIC], sim.known("stack")
    print(f"{region.value:.1f} us late, {region.counted['wakeups']} wakeups")
    assert region.counted["wakeups"] >= 24 * 10 and 0 < region.value < 200
    data = bytes.fromhex(region.counted["runqueue"])
    pointers = {int.from_bytes(data[i:i + 8], "little") for i in range(0, len(data), 8)}
    written = [int(address, 16) for _, address, pc, *_ in region.counted["sites"]
               if names.function(int(pc, 16)) == "cpupri_set"]
    assert any(pointer >= symbols.MAPPED and 0 <= address - pointer < 16384
               for pointer in pointers for address in written)


def test_messages_with_a_slice_arrive(regions):
    """Each of 4 senders has sent each of 4 receivers 20 messages."""
    region = regions[SLICES]
    print(f"{region.value:.3f} ms, {region.counted['wakeups']} wakeups")
    assert region.value > 0 and region.counted["wakeups"] > 8


def test_rate_is_of_the_time_asked_for(regions):
    """Of 4 ms and of 8, after a warm-up each, about the same; and some of the messages wake somebody."""
    (short, long), figures = (regions[RATE], regions[RATES]), [sim.figures(regions[task], SMALL)
                                                              for task in (RATE, RATES)]
    for region, found in zip((short, long), figures):
        print(f"{region.value:.0f} messages/ms; {found}")
        assert region.value * found["time"] > found["wakeups"] / 2 > 8
    # A tick may come in between.
    assert figures[0]["time"] == pytest.approx(4, abs=1) and figures[1]["time"] == pytest.approx(8, abs=1)
    assert long.value == pytest.approx(short.value, rel=0.3)


def test_pipeline_hands_every_message_on(regions):
    found = sim.figures(regions[PIPELINE], SMALL)
    print(f"{regions[PIPELINE].value:.3f} ms; {found}")
    # Of 20 messages in two lanes: three stages each, and the one that takes them in.
    assert found["time"] > regions[PIPELINE].value > 0 and found["wakeups"] > 20 * 2


def test_pinned_threads_stay_and_share_across_llcs(regions):
    found = sim.figures(regions[PINNED], SMALL)
    print(f"{regions[PINNED].value:.0f} steps/ms; {found}")
    assert found["migrations"] <= 2 and found["llc"] + found["socket"] > 10 * found["core"] / 3


def test_threads_with_parts_of_their_own_share_nothing(regions):
    """Of what they write, no line is another's; what moves is the kernel's."""
    alone, shared = (sim.hottest([regions[task]], sim.known("stack"))["functions"]
                     for task in (APART, PINNED))
    print(f"{regions[APART].value:.0f} steps/ms, shared {regions[PINNED].value:.0f}", alone[:3], shared[:3])
    assert regions[APART].value > 2 * regions[PINNED].value
    moved = [dict((row[0], sum(row[1:])) for row in rows).get("sharer", 0) for rows in (alone, shared)]
    assert moved[0] < moved[1] / 20


def test_clock_of_the_guest_is_simulated_time(regions):
    """What a workload measures is what goes by on the plugin's clock, but for what is at both ends."""
    for task, times in ((CHASES["far_dram"], 10000), (BOUNCES["other_socket"], 2 * 1000),
                        (PING_PONG, 100)):
        guest_us, plugin_us = (regions[task].value * times / 1e3,
                               regions[task].counted["time_ps"] / 1e6)
        print(f"{task.name}: {guest_us:.1f} us, by the plugin {plugin_us:.1f} us")
        assert 0 < plugin_us - guest_us < 10


def test_cpus_that_do_nothing_sleep(regions):
    """Two CPUs that wake each other up are half idle, and all others are."""
    region = regions[PING_PONG]
    busy = sim.figures(region, SMALL)["busy"]
    print(f"{busy:.1f} % busy, {region.counted['ended_sleeps']} sleeps ended")
    assert 0.5 < busy * SMALL.cpus / 100 < 1.5
    assert region.counted["ended_sleeps"] == pytest.approx(2 * 100, abs=10)


def test_no_cpu_gets_ahead_of_the_others(regions):
    """By more than what a block of code waits for: else, once all others sleep, time would jump to where
    it is, and what was to wake them up in between comes too late. A chain of loads is one block."""
    ahead = {task: region.counted["ahead_ps"] / 1e6 for task, region in regions.items()
             if task.name != "chase"}
    print(*(f"{task.name} {task.arguments}: {us:.1f} us" for task, us in ahead.items()), sep="\n")
    assert 0 < ahead[PINNED] < 4 and max(ahead.values()) < 4


def without_host(region):
    return {key: value for key, value in region.counted.items() if key != "host_s"}


def test_same_seed_gives_the_same_and_another_does_not(built):
    """To the nanosecond, and to the last line that moved."""
    messages = sim.Task("hackbench", (1, 4, 10, "processes", "pipe", 0, 15))
    sharing = sim.Task("sharing", (2, 4, 64, 6, 2))
    (shared, one), (_, again), (differently, other) = (
        sim.run(SMALL, STATE, [sharing, messages], seed) for seed in (1, 1, 2))
    print(*(f"{region.value} ms, {region.counted['time_ps']} ps, "
            f"{region.counted['instructions']} instructions" for region in (one, again, other)), sep="\n")
    assert one.value == again.value and without_host(one) == without_host(again)
    assert one.counted["time_ps"] != other.counted["time_ps"]
    # Not only who wins by some ns, but where things lie: what processes have mapped.
    pages = [{int(address, 16) >> 12 for _, address, *_ in region.counted["sites"]
              if 1 << 40 < int(address, 16) < symbols.KERNEL_HALF} for region in (shared, differently)]
    print(f"pages of processes: {len(pages[0])} and {len(pages[1])}, both: {len(pages[0] & pages[1])}")
    assert all(pages) and len(pages[0] & pages[1]) < min(map(len, pages)) / 2


def test_stopped_run_ends(built):
    stop = threading.Event()
    stop.set()
    with pytest.raises(Error, match="the run was stopped"):
        sim.run(SMALL, STATE, [PING_PONG], 1, stop=stop)


def test_state_that_the_kernel_does_not_take_is_an_error(built):
    with pytest.raises(Error, match="epyc-2x2x2-sim-stack-1-") as caught:
        sim.run(SMALL, sim.State("stack", "features=NO_SUCH_FEATURE"), [PING_PONG], 1)
    print(caught.value)


def test_workload_that_fails_is_an_error(built):
    with pytest.raises(Error, match="CPU 999"):
        sim.run(SMALL, STATE, [sim.Task("ping-pong", (0, 999, 10))], 1)


# ---- the plugin and QEMU ----

def start(accel, change):
    """Start QEMU with the plugin but without a guest; give its status and what it says. change:
    options of the plugin that are others, or None to leave them out."""
    program = qemu.find()
    system_map = "".join(f"{number:x} T {name}\n" for number, name in enumerate(sim.HOOKS.values(), 1))
    chosen = sim.options(SMALL, system_map, 1, 20) | {"out": "/dev/null"} | change
    text = ",".join([str(sim.plugin()), *(f"{k}={v}" for k, v in chosen.items() if v is not None)])
    done = subprocess.run([*program.command, *SMALL.qemu_args(sim.cpu_model(SMALL)), "-accel", accel,
                           "-nodefaults", "-display", "none", "-no-reboot", "-plugin", text, "-S",
                           "-monitor", "stdio"], input="quit\n", capture_output=True, text=True,
                          timeout=60, check=False, env=dict(program.env))
    return done.returncode, done.stderr


def test_plugin_starts():
    status, said = start("tcg,thread=single", {})
    print(said)
    assert status == 0 and "sim: " not in said


@pytest.mark.parametrize("accel, change, says", [
    # Elsewhere the tables that it writes into are others.
    ("tcg,thread=multi", {}, "is not that of QEMU 10.0 with -accel tcg,thread=single"),
    ("tcg,thread=single", {"l3_ps": None}, "option l3_ps is missing"),
    ("tcg,thread=single", {"l4_ps": 1}, "there is no option l4_ps"),
    ("tcg,thread=single", {"l3_ps": "long"}, "option l3_ps: long is no number"),
    ("tcg,thread=single", {"cores_per_llc": 3}, "too many, or not whole"),
    ("tcg,thread=single", {"out": "/no/such/directory/out"}, "cannot open /no/such/directory/out"),
])
def test_plugin_refuses(accel, change, says):
    status, said = start(accel, change)
    print(said)
    assert status == 1 and "sim: " in said and says in said


@pytest.mark.parametrize("version", ["11.1.3", "9.2.0", "10.1.0"])
def test_other_qemu_is_refused(monkeypatch, version):
    monkeypatch.setattr(qemu, "version", lambda program: version)
    with pytest.raises(Error, match=f"needs QEMU 10.0.*here is {version}"):
        sim.run(SMALL, STATE, [PING_PONG], 1)


def test_kernel_without_a_place_to_count_at():
    with pytest.raises(Error, match="no ttwu_do_activate, __per_cpu_offset, runqueues to count at"):
        sim.options(SMALL, "1 T __switch_to_asm\n", 1, 20)


# ---- what is asked for ----

def test_workloads_of_a_machine():
    for name in sim.WORKLOADS:
        found = sim.task(name, SMALL)
        print(found.row(7))
        assert found.row(7).startswith(f"{name}:workload:7:{sim.WORKLOADS[name].kind}:")
    assert sim.task("sharing:4:6:512:60:30", SMALL).arguments == ("4", "6", "512", "60", "30")


@pytest.mark.parametrize("text, says", [("hackbnch", "there is no hackbnch; there are: hackbench"),
                                        ("chase:1 2", "arguments are words")])
def test_workload_that_there_is_not(text, says):
    with pytest.raises(Error, match=says):
        sim.task(text, SMALL)


def test_states():
    assert sim.state("", "stack") == sim.State("stack")
    assert sim.state("base", "stack") == sim.State("base")
    assert sim.state("7.3,a/b=1,c=2", "stack") == sim.State("7.3", "a/b=1,c=2")
    assert sim.state("features=X", "stack") == sim.State("stack", "features=X")
    for text, says in (("5.4", "no such BUILD: 5.4"), ("base,on", "FILE=VALUE")):
        with pytest.raises(Error, match=says):
            sim.state(text, "stack")


@pytest.mark.parametrize("env, says", [
    ({"SEEDS": "0"}, "SEEDS=0"), ({"SEEDS": "many"}, "SEEDS=many"), ({"ROUND_NS": "-1"}, "ROUND_NS"),
    ({"AGAINST": "stack"}, "is the same state"), ({"FIELDS": "2"}, "FIELDS=2"),
    ({"WORKLOAD": "none"}, "there is no none"), ({"STATE": "nonsense"}, "no such BUILD: nonsense")])
def test_wrong_variables(monkeypatch, env, says):
    class Args:
        machine = SMALL.name
    for name in ("SEEDS", "ROUND_NS", "AGAINST", "FIELDS", "WORKLOAD", "STATE", "BUILD", "SAVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Error, match=says) as caught:
        sim.command(Args)
    print(caught.value)


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
TYPES = """
struct inner { int one; union { long two; char three; }; };
struct task_struct { long flags; struct inner in[2]; struct { int last; }; };
struct root_domain { long span; struct { int count, mask; } cpupri[2]; };
struct rq { char lock; struct task_struct *curr; int numbers[4]; struct root_domain *rd; };
struct rq runqueues;
typedef struct task_struct task_t;
const task_t init_task;
struct counters { long first, second; } counters;
int main(void) { return (int)counters.first + (int)(long)&runqueues + (int)init_task.flags; }
"""


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """Symbols of a kernel, and a program, of some lines."""
    where = tmp_path_factory.mktemp("symbols")
    (where / "System.map").write_text(SYSTEM_MAP)
    (where / "program.c").write_text(TYPES)
    subprocess.run(["gcc", "-static", "-o", where / "program", where / "program.c"], check=True)
    types = symbols.program_types(where / "program.c", where)
    return symbols.Symbols(where / "System.map", where / "program", types, types)


TASK, DOMAIN = symbols.MAPPED + 0x5000000, symbols.MAPPED + 0x8000000
# Up to the pointer that is behind a lock, a pointer and four numbers.
RUNQUEUE = bytes(32) + DOMAIN.to_bytes(8, "little")


@pytest.mark.parametrize("address, says", [
    # offset 8 of CPU 1's runqueue
    (symbols.MAPPED + 0x70001008, "runqueues of CPU 1.curr"),
    (symbols.MAPPED + 0x7000101c, "runqueues of CPU 1.numbers"),
    (0xffffffff81800000, "init_task.flags"),
    # the same by its other address, in what is mapped of RAM; an element of an array, and a union
    (symbols.MAPPED + 0x1800000 + 16, "init_task.in.two"),
    (TASK + 8 + 16, "task_struct.in.one"),
    (TASK + 40, "task_struct.last"),
    # after the end of the task
    (TASK + 48, "memory of the kernel+0x0"),
    (DOMAIN + 20, "root_domain.cpupri.mask"),
    (DOMAIN + 24, "memory of the kernel+0x0"),
    (symbols.MAPPED + 0x9000000, "memory of the kernel+0x0"),
    (0x7fff00000000, "memory of the workload+0x0"),
])
def test_places(names, address, says):
    assert names.root_domain(RUNQUEUE) == DOMAIN
    with pytest.raises(Error, match="rq.rd is 32 bytes in, of which 39 were kept"):
        names.root_domain(RUNQUEUE[:-1])
    place = names.place(address, [symbols.MAPPED + 0x60000000, symbols.MAPPED + 0x70000000], [TASK],
                        DOMAIN)
    print(place)
    assert str(place) == says


def test_places_of_the_program_and_functions(names):
    counters = next(address for address, name in zip(names.user_variables.addresses,
                                                     names.user_variables.names)
                    if name == "counters")
    assert str(names.place(counters + 8, [], [])) == "counters.second"
    assert [names.function(pc) for pc in (0xffffffff81000110, 0xffffffff81000200)] == ["wake"] * 2
    main = names.user_functions.addresses[names.user_functions.names.index("main")]
    assert names.function(main + 4) == "main"


def region(value, seed=1, **change):
    """A Region as the plugin gives one."""
    found = dict.fromkeys(("l1", "l2", "l3", "core", "llc", "socket", "dram", "far_dram", "taken_core",
                           "taken_llc", "taken_socket"), 1)
    counted = {"time_ps": 10**9, "instructions": 5 * 10**6, "host_s": 1.0, "wakeups": 10,
               "switches": 20, "migrations": 3, "llc_crossings": 2, "socket_crossings": 1,
               "lost_sites": 0, "lost_tasks": 0, "busy_ps": [8 * 10**9, 0, 0, 0],
               "user": {"stalled_ps": 0, **found}, "kernel": {"stalled_ps": 0, **found},
               "far": ["core", "llc", "socket", "dram", "far_dram", "taken_core", "taken_llc",
                       "taken_socket"],
               "moved_ps": [1, 10, 100], "per_cpu": ["ffff888060000000", "ffff888070000000"],
               "tasks": [f"{TASK:x}"], "runqueue": RUNQUEUE.hex(),
               "sites": [["0", f"{TASK:x}", "ffffffff81000110", 9, 0, 0, 0, 0, 1, 0, 0],
                         ["0", "ffff888060001008", "ffffffff81000010", 0, 3, 0, 0, 0, 0, 2, 0],
                         ["0", f"{DOMAIN + 20:x}", "ffffffff81000010", 1, 0, 0, 0, 0, 0, 0, 0],
                         ["0", "ffff888070001008", "ffffffff81000210", 0, 1, 0, 0, 0, 0, 0, 0]]}
    return sim.Region(value, counted | change)


def test_figures():
    found = sim.figures(region(1), SMALL)
    print(found)
    assert set(found) == set(sim.METRICS)
    assert (found["time"], found["busy"], found["instructions"]) == (1, 50, 5)
    assert (found["core"], found["llc"], found["socket"], found["memory"]) == (4, 4, 4, 4)


def test_hottest_is_what_costs_most(names):
    found = sim.hottest([region(1), region(1, lost_sites=4)], names)
    print(found)
    # Five of ten each is more than ten of one each; of both runqueues, and both runs.
    assert found["lines"] == [["runqueues.curr", "start, wake", 0, 12, 0],
                              ["task_struct.flags", "wake", 20, 0, 0],
                              ["root_domain.cpupri.mask", "start", 2, 0, 0]]
    assert found["functions"] == [["start", 2, 10, 0], ["wake", 20, 2, 0]]
    assert found["not_counted"] == 4


def made(base, other, again=None):
    """A Result of the workload `sharing`, of which more is better."""
    states = {"off": base, "on": other} | ({sim.CONTROL: again} if again else {})
    subjects = {name: results.Subject("k", name, None if name == "off" else "off") for name in states}
    return results.Result("sim-sharing", "m", {"command": "make sim", "commit": "c", "qemu": "10.0.2"},
                          {"k": {"release": "r", "source": "s"}},
                          {"sharing": sim.WORKLOADS["sharing"].metric}, subjects,
                          {name: {"sharing": numbers} for name, numbers in states.items()},
                          {"on": {"functions": [["f", 1, 2, 3]], "lines": [["d", "f", 1, 2, 3]],
                                  "not_counted": 0}})


LARGE, LARGER = [130, 131, 129, 130, 132, 128], [190, 191, 189, 190, 192, 188]
NOISY, QUIET = [100, 110, 90, 105, 95, 100], [100, 101, 99, 100, 102, 98]


@pytest.mark.parametrize("other, again, says", [
    ([130, 131, 129, 130, 132, 128], QUIET, "better"),
    ([70, 71, 69, 70, 72, 68], QUIET, "WORSE"),
    # Within what the control shows; within its own interval; without a control.
    ([105, 106, 104, 105, 107, 103], NOISY, "no verdict"),
    ([105, 90, 120, 100, 110, 99], QUIET, "no verdict"),
    ([130, 131, 129, 130, 132, 128], None, "no verdict"),
])
def test_verdict(other, again, says):
    [line] = sim.verdict(made(QUIET, other, again), "sharing")
    print(line)
    assert says in line


@pytest.mark.parametrize("two, three, signs", [
    (LARGE, LARGER, [1, 1]), (LARGE, LARGE, [1, 0]), (LARGER, LARGE, [1, -1]), (NOISY, LARGE, [0, 1])])
def test_validation_judges_the_order(two, three, signs):
    judged = validate.judge(["one", "two", "three"], {"one": QUIET, "two": two, "three": three})
    print(*judged, sep="\n")
    assert [sign for *_, sign in judged] == signs


def test_validation_asks_for_what_there_is():
    for experiment in validate.EXPERIMENTS:
        m = machine.load(experiment.machine)
        for variant in experiment.variants:
            print(sim.task(variant.workload, m).row(1), sim.state(variant.state, "stack"))
            assert m.costs() and len(experiment.variants) > 1


def test_page_and_format(tmp_path):
    result = made(QUIET, [130, 131, 129, 130, 132, 128], QUIET)
    text = "\n".join(sim.page(result))
    print(text)
    assert "| f | 1 | 2 | 3 |" in text and "better**" in text
    path = tmp_path / "m" / "sim-sharing.json"
    results.save(result, path)
    assert results.load(path) == result
    # What was saved before there were details.
    old = copy.copy(result)
    old.details = {}
    results.save(old, path)
    path.write_text(path.read_text().replace(',\n "details": {}', ""))
    assert "details" not in path.read_text() and results.load(path).details == {}


def test_marks_and_moves_are_those_of_the_plugin():
    """What is in two languages is the same."""
    plugin = (Path(sim.SOURCES) / "plugin.c").read_text()
    workload = (GUEST / "workload.c").read_text()
    for mark in ("0x5ca1ab11", "0x5ca1ab12", "0x5ca1ab13"):
        assert f"{mark}u" in plugin and f'MARK("{mark}")' in workload
    report = (Path(sim.SOURCES) / "report.c").read_text()
    assert all(f'"{name}"' in report for _, names in sim.MOVES.values() for name in names)
    assert guest.SMALL not in kernel.FRAGMENTS
