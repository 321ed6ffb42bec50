# SPDX-License-Identifier: GPL-2.0-only
"""The model of the caches (plugins/sim/caches.c) without QEMU: what an access costs, where its line was."""

import itertools
import re
import statistics
import subprocess
from pathlib import Path

import pytest

from here import call
from kit.paths import ROOT
from kit.process import Error
from kit.sim import costs

DRIVER = Path(__file__).parent / "model" / "driver.c"
SOURCES = ROOT / "plugins/sim"

# 2 sockets of 2 LLCs of 4 cores of 2 threads: CPUs 0 and 1 are a core, 0 to 7 an LLC, 0 to 15 a
# socket.
# Lines that are the same modulo 8, 16 and 64 are in one set of an L1 (2 ways), L2 (4) and L3 (4).
SMALL = {
    "cpus": 32, "threads": 2, "cores_per_l2": 1, "cores_per_llc": 4, "llcs_per_socket": 2,
    "nodes": 2, "lines": 1 << 20, "l1_kib": 1, "l1_ways": 2, "l2_kib": 4, "l2_ways": 4,
    "l3_kib": 16, "l3_ways": 4, "l2": 4000, "l3": 14000, "core": 27000, "llc": 99000,
    "socket": 192000, "dram": 120000, "far_dram": 213000, "store_percent": 30,
    "through_home": 1, "outstanding": 1, "prefetch": 0, "hold_ps": 0,
    "link_mbs": 0, "memory_mbs": 0, "socket_mbs": 0}
# From this line on memory is in the second socket.
FAR = SMALL["lines"] // 2
# Between two accesses of a table, so that none waits for another.
APART_NS = 10_000


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    """A function that gives commands to a model of a configuration, and gives its answers."""
    program = tmp_path_factory.mktemp("model") / "driver"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}", "-o", program,
                    DRIVER, SOURCES / "caches.c"], check=True, timeout=120)

    def run(commands, config=None):
        words = " ".join(f"{key}={value}" for key, value in (config or SMALL).items())
        done = subprocess.run([program], input="\n".join([f"new {words}", *commands, ""]),
                              text=True, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        first, *answers = done.stdout.splitlines()
        if first != "ok":
            raise Error(first)
        assert len(answers) == len(commands)
        return answers
    return run


def evict(cpu, line):
    """Accesses that fill the set of a line in an L2."""
    return [f"{cpu} r {line + 16 * i}" for i in range(1, 5)]


def check(drive, table, **change):
    """Run the rows of a table, "CPU KIND LINE [@NS] [FOUND COST_NS]", by default each 10 us after
    the one before; and "hit CPU KIND LINE 0|1"."""
    commands, wanted = [], []
    for number, row in enumerate(table, 1):
        words = row.split()
        if words[0] == "hit":
            commands.append(" ".join(words[:4]))
            wanted.append(words[4:])
            continue
        when = words.pop(3)[1:] if "@" in row else number * APART_NS
        commands.append(" ".join([*words[:3], str(when)]))
        wanted.append(words[3:])
    for command, answer, want in zip(commands, drive(commands, SMALL | change), wanted):
        print(f"{command}: {answer}")
        if not want:
            continue
        if len(want) == 1:
            assert answer == want[0]
            continue
        found, cost = answer.split()
        assert (found, int(cost) / 1000) == (want[0], float(want[1]))


# ---- where a line comes from ----

TABLES = {
    "memory of the own and the other socket": [
        "0 r 1 dram 120", f"0 r {FAR} far_dram 213", "16 r 2 far_dram 213",
        f"16 r {FAR + 1} dram 120"],
    "L1 and L2": ["0 r 1", "0 r 1 l1 0", "0 r 9", "0 r 17", "0 r 1 l2 4"],
    "what is written leaves other L1s": ["0 r 1", "0 r 9", "8 w 1", "0 r 1 llc 99", "0 r 1 l1 0"],
    "what leaves an L2 is in the L3": ["0 r 1", *evict(0, 1), "0 r 1 l3 14", "0 r 1 l1 0"],
    # Hits in the L1 do not make it used in the L2.
    "what leaves an L2 leaves its L1 though it is used": [
        "0 r 1", "0 r 17", "0 r 1 l1 0", "0 r 33", "0 r 1 l1 0", "0 r 49", "0 r 1 l1 0", "0 r 65",
        "0 r 1 l3 14"],
    "L3 is of the LLC": ["0 r 1", *evict(0, 1), "2 r 1 l3 14"],
    "what an L2 takes leaves the L3": ["0 r 1", *evict(0, 1), "2 r 1 l3 14", "4 r 1 core 27"],
    # Eight lines in one set of both, which have four ways each.
    "L2 and L3 add up": [*(f"0 r {1 + 64 * i}" for i in range(8)),
                         *(f"0 r {1 + 64 * i} l3 14" for i in range(8))],
    "nine are too many": [*(f"0 r {1 + 64 * i}" for i in range(9)), "0 r 1 dram 120"],
    "the L3 keeps what another L2 has": ["0 r 1", "2 r 1", *evict(0, 1), "0 r 1 l3 14",
                                         "4 r 1 l3 14"],
    "other core": ["0 w 1", "2 r 1 core 27"],
    "other core, not written": ["0 r 1", "2 r 1 core 27"],
    "other LLC": ["0 w 1", "8 r 1 llc 99", "8 r 1 l1 0"],
    "other LLC, not written": ["0 r 1", "8 r 1 llc 99"],
    "other socket": ["0 w 1", "16 r 1 socket 192"],
    "L3 of another LLC": ["0 w 1", *evict(0, 1), "8 r 1 llc 99"],
    "the LLC that wrote it last gives it": ["0 w 1", "8 r 1", "9 r 1 l1 0", "12 r 1 core 27",
                                            "24 r 1 socket 192"],
    "neither owned nor dirty: memory": ["0 r 1", "2 r 1", "8 r 1 dram 120"],
    "written back when it leaves the L3": ["0 w 1", *(f"0 r {1 + 64 * i}" for i in range(1, 9)),
                                           "8 r 1 dram 120"],
    "threads of a core share its L1": ["0 w 1", "1 r 1 l1 0", "1 a 1 l1 0", "0 a 1 l1 0"],
}


@pytest.mark.parametrize("name", TABLES)
def test_source_of_a_line(drive, name):
    check(drive, TABLES[name])


def test_memory_of_a_node_of_two_sockets_is_interleaved(drive):
    check(drive, ["0 r 0 dram 120", "0 r 3 dram 120", "0 r 4 far_dram 213", "16 r 5 dram 120",
                  "16 r 8 far_dram 213"], nodes=1)


def test_memory_of_two_nodes_of_a_socket_is_near(drive):
    check(drive, [f"0 r {FAR - 1} dram 120", f"0 r {FAR} far_dram 213"], nodes=4)


HOME = [f"0 w {FAR}", f"8 r {FAR} socket 192", f"10 r {FAR} core 27", f"8 a {FAR} taken_socket 192",
        f"24 r {FAR} socket 192", f"16 w {FAR}", f"24 r {FAR} llc 99"]


def test_line_passes_its_home(drive):
    """Between LLCs of a socket a line of the other socket's memory takes as long as from there."""
    check(drive, HOME)
    check(drive, [HOME[0], f"8 r {FAR} llc 99", f"8 a {FAR} taken_llc 99"], through_home=0)


def test_cores_that_share_an_l2(drive):
    check(drive, ["0 w 1", "2 r 1 l2 4", "hit 0 w 1 0", "hit 0 r 1 1", "2 a 1 l1 0", "hit 0 r 1 0",
                  "0 r 1 l2 4", "hit 2 w 1 0", "4 r 1 core 27", "0 a 1 taken_core 27",
                  "hit 2 r 1 0"], cores_per_l2=2)


# ---- writes ----

WRITES = {
    "alone": ["0 r 1", "0 a 1 l1 0"],
    "core": ["0 r 1", "2 r 1", "0 a 1 taken_core 27", "2 r 1 core 27"],
    "LLC": ["0 r 1", "8 r 1", "0 a 1 taken_llc 99", "8 r 1 llc 99"],
    "socket": ["0 r 1", "16 r 1", "8 r 1", "0 a 1 taken_socket 192", "16 r 1 socket 192",
               "8 r 1 llc 99"],
    # A write that has to get the line first waits for the farther one: of the data, and the copies.
    "data near, a copy far": ["0 w 1", "16 r 1", "2 a 1 taken_socket 192"],
    "data in the L3, a copy far": ["0 r 1", "16 r 1", *evict(0, 1), "2 a 1 taken_socket 192"],
    "data far, a copy near": ["0 r 1", "2 r 1", "8 a 1 dram 120", "0 r 1 llc 99"],
    "dirty": ["16 w 1", "0 a 1 socket 192"],
    "a store waits for a part": ["16 w 1", "0 w 1 socket 57.6", "2 w 1 core 8.1"],
}


@pytest.mark.parametrize("name", WRITES)
def test_write(drive, name):
    check(drive, WRITES[name])


INVALIDATIONS = {
    "L3": ["0 r 1", *evict(0, 1), "16 w 1", "2 r 1 socket 192", "4 r 1 core 27"],
    "free way of the L1": ["0 r 1", "0 r 9", "8 w 9", "0 r 17", "0 r 1 l1 0"],
    "free way of the L2": [*(f"0 r {1 + 16 * i}" for i in range(4)), "8 w 33", "0 r 65",
                           "0 r 1 l2 4"],
    # Four lines are in the L3, a way of which becomes free.
    "free way of the L3": [*(f"0 r {1 + 64 * i}" for i in range(8)), "16 w 129", "0 r 513",
                           "0 r 1 l3 14"],
}


@pytest.mark.parametrize("name", INVALIDATIONS)
def test_write_removes_the_copies(drive, name):
    """And what comes next takes their place, before a line that is used has to go."""
    check(drive, INVALIDATIONS[name])


def test_least_recently_used_line_goes(drive):
    check(drive, ["0 r 1", "0 r 9", "0 r 1 l1 0", "0 r 17", "0 r 1 l1 0", "0 r 9 l2 4"])
    check(drive, ["0 r 1", "1 r 9", "hit 0 r 1 1", "1 r 17", "1 r 1 l1 0"])
    check(drive, [*(f"0 r {1 + 16 * i}" for i in range(4)), "0 r 1 l2 4", "0 r 65", "0 r 33 l2 4",
                  "0 r 17 l3 14"])


def test_way_of_an_l1_holds_until_the_line_is_taken(drive):
    """What caches_hit() says without the model."""
    check(drive, ["0 r 1", "hit 0 r 1 1", "hit 0 w 1 0", "0 w 1", "hit 0 w 1 1", "8 r 1",
                  "hit 0 w 1 0", "hit 0 r 1 1", "8 w 1", "hit 0 r 1 0", "0 r 1", "1 r 9", "1 r 17",
                  "hit 0 r 1 0"])


# ---- requests for one line at the same time ----

def test_requests_queue_up(drive):
    """Ten CPUs of both sockets by turns at the same time: the last one waits for all the others."""
    cpus = [0, 16, 2, 18, 4, 20, 6, 22, 8, 24]
    check(drive, ["16 w 1", *(f"{cpu} a 1 @100000 socket {192 * number}"
                              for number, cpu in enumerate(cpus, 1))])


def test_store_keeps_the_line_for_the_whole_transfer(drive):
    check(drive, ["16 w 1", "0 w 1 @100000 socket 57.6", "8 r 1 @100001 llc 290"])


def test_line_from_memory_is_not_there_at_once(drive):
    check(drive, ["0 r 1 @1000 dram 120", "2 r 1 @1020 core 127"])


def test_request_from_the_past_does_not_wait_for_the_future(drive):
    """Clocks are apart by what a block of code waits for: here CPU 0 asks for 50 us before the
    others do for 20 us."""
    check(drive, ["6 w 1", "0 a 1 @50000 core 27", "2 a 1 @20000 core 27", "4 a 1 @20000 core 54",
                  "6 a 1 @20060 core 27", "2 a 1 @50010 core 44", "4 a 1 @49990 core 27",
                  "6 a 1 @49995 core 103"])


COUNT_NS, WORK_NS, QUANTUM_NS = 200_000, 6, 20
# What is between two of the CPUs that count, and how many of them there are.
PLACES = {"CCX": (2, (2, 4, 8)), "other CCX": (16, (2, 4, 8, 12)), "all CCX": (16, (16, 24)),
          "sockets": (192, (2,))}


def genoa(**change):
    """The cost file of the EPYC 9654 on two sockets."""
    options = costs.load("epyc-9654").options(8)
    return (SMALL | {"cpus": 384, "cores_per_llc": 8, "llcs_per_socket": 12, "lines": 1 << 22}
            | {key.removesuffix("_ps"): value for key, value in options.items()
               if key.removesuffix("_ps") in SMALL} | change)


def transfer(config, one, other):
    """ps from one CPU to another, of a line of the first socket."""
    llc = config["cores_per_llc"] * config["threads"]
    if one // llc == other // llc:
        return config["core"]
    far = max(one, other) >= config["cpus"] // 2
    return config["socket" if far else "llc"]


@pytest.mark.parametrize("place, number", [(place, number) for place, (_, numbers) in PLACES.items()
                                           for number in numbers])
def test_contended_counter(drive, place, number):
    """One increment for each transfer, however many CPUs want to, and all get the same. The order
    in which they queue up is random."""
    config, step = genoa(), PLACES[place][0]
    cpus = [step * i for i in range(number)]
    each = statistics.mean(transfer(config, *two) for two in itertools.permutations(cpus, 2)) / 1000
    [answer] = drive([f"count {step} {number} {COUNT_NS} {WORK_NS} {QUANTUM_NS}"], config)
    counts = [int(count) for count in answer.split()]
    print(f"{COUNT_NS / sum(counts):.1f} ns for each, the transfer takes {each:.1f}; "
          f"{min(counts)} to {max(counts)} a CPU")
    assert COUNT_NS / sum(counts) == pytest.approx(each, rel=0.1)
    assert max(counts) <= 1.5 * min(counts)


@pytest.mark.parametrize("table", [
    # CPU 8 asks at once. CPU 0 goes on for 10 ns; the requester does not wait longer than for the way.
    ["0 a 1 @100000 dram 120", "8 r 1 @100121 llc 99", "0 w 1 @100129 l1 0", "0 a 1 @100131 taken_llc 188"],
    ["0 a 1 @100000", "0 a 1 @101000 l1 0", "8 a 1 @101001 llc 99", "0 a 1 @101009 l1 0", "0 a 1 @101011 llc 188"],
    # Only of the last line, only of an atomic operation, only on the core.
    ["0 a 1 @100000", "0 a 2 @100130", "8 a 1 @100300 llc 99", "0 a 1 @100301 llc 197"],
    ["0 w 1 @100000", "8 a 1 @100200 llc 99", "0 a 1 @100201 llc 197"],
    ["0 a 1 @100000", "8 a 1 @100121 llc 99", "1 w 1 @100125 l1 0", "2 a 1 @100126 llc 193"]])
def test_core_keeps_a_line_after_an_atomic_operation(drive, table):
    check(drive, table, hold_ps=10_000)


def test_contended_counter_with_hold(drive):
    """Each CPU increments twice for each transfer if that fits into the hold, else once."""
    config = genoa(hold_ps=10_700)
    for work, times in ((6, 2), (11, 1)):
        [answer] = drive([f"count 2 4 {COUNT_NS} {work} {QUANTUM_NS}"], config)
        assert COUNT_NS / sum(map(int, answer.split())) == pytest.approx(config["core"] / 1000 / times, rel=0.1)


def test_hold_is_no_longer_than_a_request_is_under_way(drive):
    with pytest.raises(Error, match="keeps a line"):
        drive([], SMALL | {"hold_ps": 14_000})


def test_order_of_equal_clocks_favours_no_cpu(drive):
    [answer] = drive(["race 2 4 2000"])
    print(answer)
    assert all(400 <= int(wins) <= 600 for wins in answer.split())


@pytest.mark.parametrize("clocks, cpu, until", [
    # 20 ns ahead of a CPU of the LLC, 73 of the other LLC, 142 of the other socket.
    ([100, 90, 130], 1, 120), ([90, 100, 130], 0, 120),
    ([90] + [500] * 7 + [100], 0, 173), ([90] + [500] * 7 + [100, 95], 0, 168),
    ([90] + [500] * 15 + [100], 0, 242), ([90] + [500] * 15 + [200, 120], 0, 262),
    ([100] + [500] * 7 + [90], 8, 173), ([120] + [500] * 7 + [100, 165], 8, 185),
    ([500] * 8 + [100] + [500] * 15 + [90], 24, 242)])
def test_cpu_runs_as_far_as_another_cannot_notice(drive, clocks, cpu, until):
    assert drive([" ".join(["order 20", *map(str, clocks)])]) == [f"{cpu} {until}"]


# ---- bandwidth, outstanding misses, sequences ----

# Each CPU reads the memory of its own socket.
OWN = 2


def gbs(drive, first, number, step, mib=1, home=0, kind="r", **change):
    """GB/s of CPUs that read in sequence, 1 ns of work for each line."""
    [answer] = drive([f"stream {first} {number} {step} {mib} 1000 {home} {kind}"], genoa(**change))
    print(f"{number} CPUs: {answer} MB/s")
    return int(answer) / 1000


def test_streams_get_the_published_bandwidth(drive):
    """Of a core, a CCX, a socket, and of the other socket's memory (Chips and Cheese, Genoa-X)."""
    core, ccx, socket, far = (gbs(drive, 0, 1, 2), gbs(drive, 0, 8, 2), gbs(drive, 0, 96, 2),
                              gbs(drive, 0, 96, 2, home=1))
    assert core == pytest.approx(37, rel=0.05)
    assert ccx == pytest.approx(70, rel=0.05)
    assert socket == pytest.approx(375, rel=0.05)
    assert far == pytest.approx(128, rel=0.05)
    # As many cores, one of each CCX or all of one.
    assert gbs(drive, 0, 8, 16) == pytest.approx(8 * core, rel=0.05)
    assert socket / ccx == pytest.approx(375 / 70, rel=0.05)


def test_second_socket_has_memory_of_its_own(drive):
    assert gbs(drive, 192, 96, 2, home=1) == pytest.approx(375, rel=0.05)
    assert gbs(drive, 0, 192, 2, home=OWN, lines=1 << 24) == pytest.approx(2 * 375, rel=0.05)


def test_nodes_of_a_socket_divide_its_memory(drive):
    assert gbs(drive, 0, 96, 2, nodes=8, lines=1 << 24) == pytest.approx(375 / 4, rel=0.05)


def test_parts_can_be_switched_off(drive):
    """What each of them does is gone then."""
    one = 64 / (120 + 1)
    assert gbs(drive, 0, 8, 2, link_mbs=0) == pytest.approx(8 * 37, rel=0.05)
    assert gbs(drive, 0, 96, 2, memory_mbs=0) == pytest.approx(12 * 70, rel=0.05)
    assert gbs(drive, 0, 96, 2, home=1, socket_mbs=0) == pytest.approx(375, rel=0.05)
    assert gbs(drive, 0, 1, 2, outstanding=1) == pytest.approx(one, rel=0.05)
    assert gbs(drive, 0, 1, 2, prefetch=0) == pytest.approx(one, rel=0.05)
    assert gbs(drive, 0, 1, 2, prefetch=0, kind="i") == pytest.approx(37, rel=0.05)


def test_writing_back_takes_bandwidth_too(drive):
    """Of a sequence that is written each line is read and written."""
    tiny = {key: SMALL[key] for key in SMALL if re.match("l[123]_", key)}
    read, write = (gbs(drive, 0, 1, 2, kind=kind, memory_mbs=10000, **tiny) for kind in "rI")
    assert read == pytest.approx(10, rel=0.05) and write == pytest.approx(5, rel=0.05)


def test_sequence_is_fetched_ahead(drive):
    """From its third line on, also over the end of a page; what is at random is not."""
    on = {"prefetch": 1, "outstanding": 8}
    check(drive, ["0 r 100 dram 120", "0 r 101 dram 120",
                  *(f"0 r {line} dram 0" for line in range(102, 140))], **on)
    check(drive, [f"0 r {line} dram 120" for line in (100, 300, 102, 104, 301, 106)], **on)


def test_atomics_and_dependent_loads_wait_in_full(drive):
    on = {"outstanding": 8}
    check(drive, ["0 r 100 dram 120", "0 i 300 dram 0", "0 I 310 dram 0", "0 r 320 dram 120"], **on)
    check(drive, ["0 r 100", "0 r 101", "0 r 102 dram 0", "0 a 103 dram 120"], prefetch=1, **on)


def test_only_so_many_misses_are_outstanding(drive):
    check(drive, ["0 i 1 @1000 dram 0", "0 i 2 @1010 dram 0", "0 i 3 @1020 dram 100",
                  "0 i 4 @1120 dram 10", "2 i 5 @1020 dram 0"], outstanding=2)


# ---- what it is made of ----

@pytest.mark.parametrize("change, says", [
    ({"cores_per_llc": 3}, "not whole"), ({"cpus": 1024}, "too many"), ({"threads": 0}, "one"),
    ({"nodes": 3}, "nodes"), ({"lines": 0}, "memory"), ({"l1_kib": 0}, "smaller than a set"),
    ({"outstanding": 0}, "outstanding"), ({"cores_per_l2": 3}, "not whole")])
def test_wrong_configuration(drive, change, says):
    with pytest.raises(Error, match=says):
        drive([], SMALL | change)


def test_model_stands_alone(tmp_path):
    """It has no variables that two models would share, and needs nothing of QEMU or the clock."""
    subprocess.run(["gcc", "-O2", "-c", "-o", tmp_path / "caches.o", SOURCES / "caches.c"],
                   check=True, timeout=120)
    symbols = [line.split()[-2:] for line in call("nm", tmp_path / "caches.o", check=True).stdout.splitlines()]
    assert not [name for kind, name in symbols if kind in "bBdDC"]
    assert {name for kind, name in symbols if kind == "U"} <= {
        "calloc", "free", "mmap", "munmap", "memcpy", "memmove", "memset", "__stack_chk_fail"}
