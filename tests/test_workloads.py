# SPDX-License-Identifier: GPL-2.0-only
"""guest/workload, the program that make sim runs: on this host, and on a simulated machine; and what
the kit makes of its kinds, its starts and its windows."""

import os
import re
import sys
from pathlib import Path

import pytest

from here import SERIES, call, named, script
from kit import settings
from kit.paths import GUEST, ROOT
from kit.process import Error
from kit.sim import schedstats, simulate, transfers, workloads
from kit.vm import initramfs, kernel, machine

SMALL = machine.load("epyc-2x2x2")
STATE = simulate.State(named("stack"))
ONE_LLC = machine.load("epyc-2x2x8").larger(1)
CPUS = sorted(os.sched_getaffinity(0))
FIRST, LAST = str(CPUS[0]), str(CPUS[-1])
# A run of each workload on a host: {name: arguments}. Windows are so long that each task has had a
# turn on a host that is busy.
SHORT = {
    "hackbench": "2 2 10 groups socket FIRST LAST 200", "hackbench-rate": "1 2 5 400 threads pipe FIRST LAST",
    "rr": "2 1 5 400 client-server FIRST LAST 1000", "sharing": "2 2 16 20 400",
    "tenants": "2 200 5 400", "stw": "1 20 2 20 64 5 400",
    "hog": "1 2 64 5 400", "handoff": "2 1 1 16 5 400",
    "phase": "1 2 16 64 50 20 400", "mixed": "1 64 1 1 5 400", "barrier": "2 1 16 5 400", "latency": "2 2 1 0 5 400",
    "scale": "open 2 1 5 400", "pi": "1 1 5 400",
    "pipeline": "1 2 20 5", "cyclic": "2 1000 10", "ping-pong": "FIRST LAST 50",
    "bounce": "FIRST LAST 100", "counters": "FIRST LAST 100", "chase": "FIRST FIRST 64 1000"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The path of guest/workload, compiled for this host."""
    return initramfs.compiled(GUEST / "workload", tmp_path_factory.mktemp("program"))


def run(program, *words):
    """Run guest/workload with seed 1, again if a busy host gave its tasks no turn in a window; give the finished
    process."""
    for _ in range(5):
        done = call(program, "1", *map(str, words))
        if "no task has done anything" not in done.stderr:
            break
    return done


# ---- on this host ----

@pytest.mark.parametrize("kind", ["open", "lock", "switch"])
def test_scale_does_each_kind_and_leaves_no_file(program, kind):
    before = set(Path("/tmp").glob("scale-*"))
    done = run(program, "scale", kind, 2, 1, 5, 400)
    assert done.returncode == 0 and float(done.stdout.split()[0]) > 0
    # The name has the process, and another test may run one at the same time.
    assert not [path for path in set(Path("/tmp").glob("scale-*")) - before
                if not Path("/proc", path.name.split("-")[1]).exists()]


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_kind_gives_its_figures(program, name):
    """The unit, and the further figures, are those that the table declares."""
    if name in ("bounce", "counters") and len(CPUS) < 2:
        pytest.skip("needs two CPUs")
    workload = workloads.WORKLOADS[name]
    arguments = SHORT[name].replace("FIRST", FIRST).replace("LAST", LAST).split()
    done = run(program, workload.kind, *arguments)
    if name in ("cyclic", "pi") and "SCHED_FIFO" in done.stderr:
        pytest.skip("may not use SCHED_FIFO")
    assert done.returncode == 0 and not done.stderr
    value, unit, *more = done.stdout.split()
    more = dict(figure.split("=") for figure in more)
    assert float(value) > 0 and unit == workload.metric.unit and set(more) == set(workload.more)
    percentiles = [float(more[p]) for p in ("p50", "p90", "p99") if p in more]
    assert percentiles == sorted(percentiles) and all(us > 0 for us in percentiles)


def test_each_window_follows_its_state(program, tmp_path):
    """Before each of three windows, the command is called with the number of the window."""
    numbers = tmp_path / "numbers"
    between = script(tmp_path / "between", f"echo $1 >> {numbers}")
    done = run(program, "windows=3", "window_ms=200", f"between={between}", "hog", 1, 1, 64, 5, 99999)
    # Behind those of runs in which the thread had no turn.
    assert done.returncode == 0 and numbers.read_text().split()[-3:] == ["0", "1", "2"]
    assert re.fullmatch(r"([\d.]+ GB/s\n){3}", done.stdout)
    script(between, "exit 3")
    done = run(program, "windows=3", f"between={between}", "hog", 1, 1, 64, 5, 5)
    assert done.returncode == 1 and f"{between} 0 >&2 failed" in done.stderr


def test_slice_leaves_the_nice_value(program, tmp_path):
    """A user who is not root may not lower it, and the tests may run under nice."""
    between = script(tmp_path / "between", "pid=$PPID\n"
                     "grep -q workload /proc/$pid/comm || pid=$(awk '{print $4}' /proc/$pid/stat)\n"
                     "awk '{print \"nice\", $19}' /proc/$pid/task/*/stat >&2")
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + 1, 19)
    words = SHORT["rr"].replace("client-server", "threads").replace("FIRST", FIRST).replace("LAST", LAST).split()
    done = call("nice", "-n", "1", program, "1", f"between={between}", "rr", *words)
    assert done.returncode == 0 and done.stderr.split("\n")[1:] == [f"nice {nice}"] * 4 + [""]
    done = call("nice", "-n", "1", sys.executable, "-m", "kit.host.slice", "1000000", "nice", cwd=ROOT)
    assert done.stdout == f"{nice}\n"


def test_statistics_are_copied(program, tmp_path):
    done = run(program, f"stats={tmp_path}", "chase", FIRST, FIRST, 64, 1000)
    print(done.stderr, sorted(path.name for path in tmp_path.iterdir()))
    assert done.returncode == 0
    assert {"wakeup_stats.before", "schedstat.after"} <= {path.name for path in tmp_path.iterdir()}


RR = "rr 1 1 1 1 threads 0 0"


@pytest.mark.parametrize("words, says", [
    ("nothing", "there is no kind nothing"), ("start=there rr", "start: 'there' is none of together|"),
    ("stop=1 rr", "there is no option stop"), ("windows=0 rr", "windows: '0' is no whole number from 1"),
    ("start=together", "KIND is missing"), ("rr 1 1 1", "MS is missing"),
    ("rr 0 1 1 1", "PAIRS: '0' is no whole number from 1 to 2048"),
    ("rr 2049 1 1 1", "PAIRS: '2049' is no"), ("rr 1x 1", "PAIRS: '1x' is no"),
    ("rr 1 -1 1", "WORK_US: '-1' is no number"), ("rr 1 nan 1", "WORK_US: 'nan' is no number"),
    ("rr 1 1 1 1 together", "'together' is none of threads|processes|client-server"),
    ("rr 1 1 1 1 threads 3 2", "LAST: '2' is no whole number from 3"),
    (f"{RR} 50", "SLICE_US: '50' is no whole number from 100 to 100000"),
    (f"{RR} 100 1", "'1' is one argument too many"), (f"start=together {RR} 1000000", "SLICE_US"),
    ("messages 1 1 1 group pipe 0 0", "'group' is none of threads|processes|groups"),
    ("hog 1 1 3 1 1", "KIB: '3' is no whole number from 4"), ("hog 1 1 4 1 0", "MS: '0' is no"),
    ("handoff 1 1 -1", "SHARED_KIB: '-1' is no"), ("latency 1 1 1 1 1 1 1", "one argument too many"),
    ("pi 0 1 1 1", "GROUPS: '0' is no whole number from 1 to 1365"), ("pi 1 1 1 0", "MS: '0' is no"),
    ("start=together pi 1 1 1 1", "pi has tasks on given CPUs"),
    ("start=together chase 0 0 64 1000", "chase has tasks on given CPUs"),
    ("start=together sharing 1 2 16 1 1 pinned", "pinned threads cannot be placed"),
    ("tenants 2 50 1 1 far", "'far' is none of near"), ("start=together tenants 2 50 1 1 near", "pinned threads"),
    ("tenants 1 50 1 1", "PROCESSES: '1' is no whole number from 2"), ("settle_ms=1 cyclic 1 1 1", "no windows"),
    ("cyclic 1 1 1 step", "'step' is none of lockstep"), ("stw 1 1 1 1", "KIB is missing"),
    ("windows=2 messages 1 1 1 threads pipe 0 0", "messages measures a number of operations"),
])
def test_bad_arguments_are_refused(program, words, says):
    done = run(program, *words.split())
    assert done.returncode == 2 and says in done.stderr and not done.stdout


def test_usage_has_all_kinds_options_and_starts(program):
    text = call(program, "help", check=True).stdout
    for workload in workloads.WORKLOADS.values():
        [line] = re.findall(rf"^([* ]) {workload.kind} ", text, re.M)
        assert (line == "*") == workload.placed, workload.kind
    windowed = text[text.index("Kinds that measure windows"):]
    for workload in workloads.WORKLOADS.values():
        assert (f" {workload.kind} " in windowed) == workload.timed, workload.kind
    assert all(f"{start}:" in text for start in settings.STARTS)
    options = workloads.Windows(("", "a=1"), 5, True).options()
    assert all(f"  {option.split('=')[0]}=" in text for option in [*options, "start=x", "settle_ms=7"])


# ---- what is asked for ----

def test_rows():
    task = workloads.task("rr:2:5:60:20:threads:0:15", SMALL, "two-llcs")
    assert task.row(7) == "rr:workload:7:start=two-llcs:rr:2:5:60:20:threads:0:15"
    assert "7:settle_ms=1000:rr" in workloads.task("rr:2:5:60:20:threads:0:15", SMALL, settle_ms=1000).row(7)
    with pytest.raises(Error, match="SETTLE_MS=5: pipeline measures"):
        workloads.task("pipeline", SMALL, settle_ms=5)
    with pytest.raises(Error, match="START=scattered"):
        workloads.task("sharing", SMALL, "scattered", 5)
    windows = workloads.Windows(("", "features=X", "features=X,a/b=1", ""), 300)
    assert task.row(7, windows) == ("rr:workload:7:start=two-llcs:windows=4:between=/jobs/sim.sh:"
                                    "window_ms=300:rr:2:5:60:20:threads:0:15")
    assert windows.variables() == {"STATES": "default features=X features=X,a/b=1 default", "STATS": 0}
    assert workloads.Windows(stats=True).variables() == {"STATES": "", "STATS": 1}
    assert workloads.Windows().options() == []
    assert workloads.abba(1, "A", "B") == ("A", "B", "B", "A")
    assert workloads.abba(2, "A", "B") == ("B", "A", "A", "B")


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_default_arguments_fit_the_machine(program, name):
    """The program takes them: the message, if there is one, is of something else."""
    task = workloads.task(name, ONE_LLC)
    print(task)
    done = call(program, "1", workloads.WORKLOADS[name].kind, *task.arguments, "x")
    assert done.returncode == 2 and "'x' is" in done.stderr


@pytest.mark.parametrize("text, name, start, says", [
    ("rr", "epyc-2x2x2", "nowhere", None), ("ping-pong", "epyc-2x2x2", "together", "run on given CPUs"),
    ("rr", "spr-2x30x2", "two-llcs", "has 2 x 1 LLCs"), ("rr", "spr-2x30x2", "two-sockets", None)])
def test_starts_that_the_machine_has(text, name, start, says):
    if says:
        with pytest.raises(Error, match=says):
            workloads.task(text, machine.load(name), start)
    else:
        assert workloads.task(text, machine.load(name), start).start == start


@pytest.mark.parametrize("env, length", [({}, 0), ({"ABBA": "1"}, simulate.WINDOW_MS)])
def test_length_of_windows(env, length):
    states = [STATE, simulate.State(named("stack"), "features=X")]
    assert simulate.check_windows(workloads.task("rr", SMALL), states, settings.read("sim", env)) == length


# ---- what is made of the figures ----

WAKEUPS = "cpu queued_llc locked_llc\n0 {} 1\n1 5 2\n"
SCHEDSTAT = """version {}
timestamp 4294900000
cpu0 0 0 {} 1 10 4 99 77 12
domain0 3 1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 8 1 2 3 4 {} 6 7 8 9 1 {} 0 0 0 0 0 0 11 12 13
cpu1 0 0 1 1 1 1 1 1 1
"""


def printed(name, before, after):
    """The figures of what a guest has copied of a file."""
    return [{"file": f"{name}.{when}", "text": text.replace("\n", ";")}
            for when, text in (("before", before), ("after", after))]


def test_statistics_are_added_up():
    """Of all CPUs and kinds of idleness, by level; a counter of wakeup_stats may wrap around."""
    rows = dict(schedstats.deltas(printed("wakeup_stats", WAKEUPS.format(2**32 - 3), WAKEUPS.format(4)) + printed(
        "schedstat", SCHEDSTAT.format(16, 100, 5, 7), SCHEDSTAT.format(16, 130, 9, 8))))
    print(rows)
    assert rows["queued_llc"] == 7 and rows["locked_llc"] == 0 and "cpu" not in rows
    assert rows["calls of schedule()"] == 30
    assert rows["tasks moved, domain0"] == 4 and rows["running tasks moved, domain0"] == 1


def test_statistics_of_other_kernels():
    """An unknown version gives nothing."""
    later = SCHEDSTAT.format(17, 1, 1, 1)
    assert schedstats.deltas(printed("schedstat", later, later) + printed("wakeup_stats", "", "")) == []


# ---- on a simulated machine ----

def task(name, *arguments, start=""):
    """A Task."""
    return workloads.Task(name, arguments, start)


@pytest.fixture(scope="module")
def built():
    """The kernel, which is quick if it is there."""
    kernel.build(named("stack"))
    return initramfs.base(initramfs.small(SERIES))


RRS = {how: task("rr", 2, 10, 6, 4, how, 0, 15) for how in ("threads", "processes", "client-server")}
# These are compared, and how many lines move depends on where the threads run.
SHARING = task("sharing", 1, 3, 64, 6, 4, start="together")
# More than its L2, and in no cache before.
HOG = task("hog", 1, 2, 24576, 3, 4)
# The same threads and memory, but no line is used by two of them: at all, and in every second ms.
STRIDE = task("sharing", 1, 3, 64, 6, 4, "stride", start="together")
PHASE = task("phase", 1, 3, 64, 64, 1, 6, 4, start="together")
MIXED, BARRIER = task("mixed", 2, 24576, 1, 20, 3, 4), task("barrier", 3, 50, 16, 6, 4)
SLOW, FAST = (task("handoff", 1, us, 1, 0, 6, 4) for us in (100, 20))
LATENCY = task("latency", 2, 3, 20, 20, 6, 6)
INVERSIONS = task("pi", 4, 2, 3, 4)
# CPUs 0 to 3 are LLC 0; LLCs 0 and 1 are a socket. All tasks are one group.
STARTS = {"together": {0}, "two-llcs": {0, 1}, "two-sockets": {0, 2}, "scattered": {0, 1, 2, 3}}
PLACED = {start: task("sharing", 1, 4, 16, 6, 2, start=start) for start in STARTS}
TWO_GROUPS = task("hackbench-rate", 2, 2, 6, 2, "groups", "pipe", 0, 15, start="together")
# These sleep until they are released, so each has to place itself.
SLEEPERS = task("hackbench", 1, 2, 20, "threads", "pipe", 0, 15, start="two-sockets")
# More threads that never sleep than an LLC has CPUs.
CROWD = task("hog", 1, 6, 16, 6, 60, start="together")


@pytest.fixture(scope="module")
def regions(built):
    """{Task: Region}, of one boot."""
    tasks = [*RRS.values(), SHARING, STRIDE, PHASE, HOG, MIXED, BARRIER, SLOW, FAST, LATENCY, INVERSIONS,
             *PLACED.values(), TWO_GROUPS, SLEEPERS, CROWD]
    return dict(zip(tasks, simulate.run(SMALL, STATE, tasks, 1)))


def shares(region_):
    """The part of the time that went by in each LLC."""
    busy = region_.counted["busy_ps"]
    found = [ps / sum(busy) for ps in busy]
    print("by LLC:", *(f"{share:.2f}" for share in found))
    return found


@pytest.mark.parametrize("how", RRS)
def test_requests_arrive(regions, how):
    """Each request wakes the server, and each response the client; no percentile is shorter than the
    work."""
    found = simulate.figures_of(RRS[how], regions[RRS[how]], SMALL)
    print(found)
    requests = found["rr"] * found["time"]
    assert found["wakeups"] >= 2 * 0.9 * requests and requests > 50
    assert 10 <= found["p50"] <= found["p90"] <= found["p99"]
    # Two pairs, each at most one request in 10 us.
    assert found["rr"] <= 200


def test_hog_takes_what_it_streams_from_memory(regions):
    """It never sleeps, and as many lines come from memory as it goes through."""
    found = simulate.figures_of(HOG, regions[HOG], SMALL)
    lines = found["hog"] * found["time"] * 1e6 / 64
    print(found, f"{lines:.0f} lines")
    assert found["memory"] > 0.8 * lines > 10000 and found["wakeups"] < 20
    assert found["busy"] == pytest.approx(100 * 2 / SMALL.cpus, rel=0.1)


def moves(region_):
    """How many lines came from another cache for the program's own accesses."""
    names = [name for metric in ("core", "llc", "socket") for name in transfers.MOVES[metric][1]]
    return sum(region_.counted["user"][name] for name in names)


def test_lines_that_threads_do_not_share_do_not_move(regions):
    """`stride` touches the pages that `sharing` does, but no line of another thread; `phase` does what
    `sharing` does half of the time."""
    shared, stride, phase = (moves(regions[each]) for each in (SHARING, STRIDE, PHASE))
    print(shared, stride, phase)
    assert stride < shared / 20 and shared * 0.2 < phase < shared * 0.8


def test_only_the_hogs_count_beside_pairs(regions):
    """The pair hands its work on meanwhile, each 20 us at most."""
    found = simulate.figures_of(MIXED, regions[MIXED], SMALL)
    lines = found["mixed"] * found["time"] * 1e6 / 64
    print(found, f"{lines:.0f} lines")
    assert 10000 < lines < found["memory"] / 0.8
    assert found["wakeups"] > found["time"] * 1000 / 40 and 0 < found["p50"] <= found["p99"]


def test_a_round_lasts_as_long_as_its_slowest_thread(regions):
    """All threads but the last one sleep in each round."""
    found = simulate.figures_of(BARRIER, regions[BARRIER], SMALL)
    print(found)
    assert 1000 / 100 < found["barrier"] < 1000 / 50 * 1.02
    assert found["wakeups"] >= 2 * 0.9 * (found["barrier"] * found["time"] - 1)


@pytest.mark.parametrize("which, us", [(SLOW, 100), (FAST, 20)])
def test_work_is_handed_on_at_the_given_rate(regions, which, us):
    """One thread works at a time; a wakeup takes a few us."""
    found = simulate.figures_of(which, regions[which], SMALL)
    print(found)
    assert 1000 / (us + 10) < found["handoff"] < 1000 / us * 1.02
    assert 0 < found["p50"] <= found["p90"] <= found["p99"]
    assert found["wakeups"] >= found["handoff"] * found["time"] - 1


def test_wakeup_latencies_are_ordered(regions):
    found = simulate.figures_of(LATENCY, regions[LATENCY], SMALL)
    print(found)
    assert 0 < found["p50"] <= found["p90"] <= found["latency"] == regions[LATENCY].value
    assert found["wakeups"] == regions[LATENCY].counted["wakeups"]


def test_each_inversion_sleeps_on_the_cpu_of_its_group(regions):
    """In a round, two threads sleep at each of two barriers, and one at the lock. Of 16 CPUs, 4 are busy."""
    found = simulate.figures_of(INVERSIONS, regions[INVERSIONS], SMALL)
    print(found)
    rounds = found["pi"] * found["time"]
    assert rounds > 100 and found["wakeups"] == pytest.approx(5 * rounds, rel=0.1)
    assert found["busy"] == pytest.approx(25, rel=0.1) and found["migrations"] < 10


@pytest.mark.parametrize("start", STARTS)
def test_tasks_start_where_they_are_to(regions, start):
    """Of four tasks of one group, the LLCs asked for have equal parts, and the others nothing."""
    found = shares(regions[PLACED[start]])
    for llc, share in enumerate(found):
        wanted = 1 / len(STARTS[start]) if llc in STARTS[start] else 0
        assert share == pytest.approx(wanted, abs=0.1), f"LLC {llc}"


def test_groups_start_in_llcs_of_their_own(regions):
    found = shares(regions[TWO_GROUPS])
    assert found[0] > 0.2 and found[1] > 0.2 and found[0] + found[1] > 0.9


def test_tasks_that_sleep_start_where_they_are_to(regions):
    """Once released, a wakeup may choose the other LLC of the socket, but not the other socket."""
    found = shares(regions[SLEEPERS])
    assert found[0] + found[1] > 0.3 and found[2] + found[3] > 0.3


def test_placed_tasks_are_released(regions):
    """Six threads that begin on the four CPUs of an LLC are on more once they may be."""
    # If they stayed, it would be 1.
    assert max(shares(regions[CROWD])) < 0.95


def test_each_window_begins_at_the_start(built):
    """Six threads that never sleep leave the four CPUs of their LLC soon, but are back for each window.
    Placed once only, they have half of their time in each of two LLCs."""
    windows = workloads.Windows(("",) * 3, 2)
    found = simulate.run(SMALL, STATE, [task("hog", 1, 6, 16, 3, 1, start="together")], 1,
                         windows=windows)
    assert len(found) == 3
    for each in found:
        assert each.counted["time_ps"] == pytest.approx(2e9, rel=0.2)
        assert shares(each)[0] > 0.7


@pytest.mark.parametrize("states, queued", [(("", "features=NO_TTWU_QUEUE"), False),
                                            (("features=NO_TTWU_QUEUE", ""), True)])
def test_states_take_turns_in_one_boot(built, states, queued):
    """The last window is in its own state, and not in that of the window before: only with TTWU_QUEUE
    are wakeups queued, as all CPUs that they select are idle."""
    windows = workloads.Windows(states, 4, stats=True)
    rr = task("rr", 2, 10, 6, 1, "processes", 0, 15, start="two-llcs")
    found = dict(simulate.run(SMALL, STATE, [rr], 1, windows=windows)[-1].statistics)
    print(found)
    by_path = {path: sum(count for what, count in found.items() if what.startswith(path))
               for path in ("queued_", "locked_")}
    print(by_path)
    assert by_path["queued_"] > 100 if queued else by_path["queued_"] == 0
    assert by_path["locked_"] < 20 if queued else by_path["locked_"] > 100


def test_state_that_does_not_last_ends_the_run(built):
    windows = workloads.Windows(("", "features=NO_SUCH_FEATURE"), 2)
    with pytest.raises(Error, match="failed"):
        simulate.run(SMALL, STATE, [SHARING], 1, windows=windows)


def test_start_that_the_cpus_do_not_have(built):
    with pytest.raises(Error, match="start=two-llcs: the CPUs that the program may use have 1 LLCs in 1"):
        simulate.run(SMALL, STATE, [task("rr", 1, 5, 2, 1, "threads", 0, 3, start="two-llcs")], 1)
