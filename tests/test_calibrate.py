# SPDX-License-Identifier: GPL-2.0-only
"""make calibrate: which CPUs it selects on hosts of several shapes, what it makes of the figures, and
that the simulation takes a complete file and refuses another. The figures themselves are not judged."""

import os
import subprocess

import pytest
import tomllib
from test_host import bench_files

from kit import paths
from kit.host import calibrate, facts, knobs
from kit.paths import GUEST
from kit.process import Error
from kit.sim import costs
from kit.vm import guest, kernel, ktap, machine

KIB = {1: (32, 8), 2: (1024, 8), 3: (32768, 16)}
HAVE = calibrate.Caches(KIB, 64 << 20)
MEMINFO = "MemTotal:  70000000 kB\nMemAvailable:  67108864 kB\n"


def host(root, sockets=2, nodes=2, llcs=2, cores=2, threads=2):
    """The files of a host: `nodes` in all, `llcs` in a socket, `cores` in an LLC; the second threads
    are numbered behind the first."""
    def put(name, text):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    count = sockets * llcs * cores
    put(f"{facts.CPU}/online", f"0-{count * threads - 1}")
    for cpu in range(count * threads):
        core = cpu % count
        siblings = ",".join(str(core + count * thread) for thread in range(threads))
        first = core // cores * cores
        shared = ",".join(str(other + count * thread) for thread in range(threads)
                          for other in range(first, first + cores))
        where = f"{facts.CPU}/cpu{cpu}"
        put(f"{where}/topology/physical_package_id", core // (cores * llcs))
        put(f"{where}/topology/core_cpus_list", siblings)
        for index, (level, kib, ways, cpus) in enumerate((
                (1, 32, 8, siblings), (2, 1024, 8, siblings), (3, 32768, 16, shared))):
            at = f"{where}/cache/index{index}"
            for name, text in {"level": level, "type": "Unified", "size": f"{kib}K",
                               "ways_of_associativity": ways, "shared_cpu_list": cpus}.items():
                put(f"{at}/{name}", text)
    for node in range(nodes):
        put(f"sys/devices/system/node/node{node}/cpulist", ",".join(
            str(cpu) for cpu in range(count * threads) if cpu % count * nodes // count == node))
    put("proc/meminfo", MEMINFO)
    return root


def planned(root):
    figures, missing = calibrate.plan(calibrate.places(root), calibrate.caches(root),
                                      calibrate.FULL)
    return {figure.name: figure for figure in figures}, missing


# ---- which CPUs ----

def test_places_and_pairs(tmp_path):
    """Two sockets of two LLCs of two cores of two threads."""
    cpus = calibrate.places(host(tmp_path))
    assert [(one.core, one.llc, one.socket, one.node) for one in cpus[:4]] == [
        (0, 0, 0, 0), (1, 0, 0, 0), (2, 2, 0, 0), (3, 2, 0, 0)]
    assert cpus[15] == calibrate.Place(15, 7, 6, 1, 1)
    found = {distance: [(one.cpu, two.cpu) for one, two in pairs]
             for distance, pairs in calibrate.pairs(cpus).items()}
    print(found)
    assert found["smt"] == [(core, core + 8) for core in range(8)]
    assert found["llc"] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert found["other_llc"][:4] == [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert len(found["other_llc"]) == 8 and len(found["other_socket"]) == 16
    assert calibrate.caches(tmp_path) == HAVE


def test_plan_of_two_sockets(tmp_path):
    """Nothing is missing; lines and memory are near and far."""
    figures, missing = planned(host(tmp_path))
    for name, figure in figures.items():
        print(name, figure.what, *figure.samples)
    assert missing == {}
    assert figures["home_near"].samples[0] == (0, 0, 2)
    assert figures["home_far"].samples[0] == (1, 0, 2)
    assert figures["other_socket"].samples[0] == (0, 0, 4)
    assert {sample[0] for sample in figures["far_dram"].samples} == {1}
    assert {sample[0] for sample in figures["dram"].samples} == {0, 1}
    assert figures["read_llc"].samples == ((0, 65536, 0, 1),)
    assert figures["read_far"].samples == ((1, 65536, 0, 1, 2, 3),)
    assert figures["add_llc/2"].samples == ((0, 0, 1),)
    assert figures["add_llcs/4"].samples == ((0, 0, 2, 4, 6),)
    assert "add_all/8" in figures and "pipe/other_socket" in figures


@pytest.mark.parametrize("shape, missing, there", [
    ({"sockets": 1, "nodes": 1, "llcs": 1},
     {"other_llc", "other_socket", "far_dram", "home_near", "home_far", "read_far"}, {"other_core"}),
    ({"nodes": 1}, {"far_dram", "home_near", "home_far", "read_far"}, {"other_socket"}),
    ({"nodes": 4, "threads": 1}, {"smt_percent", "smt_line"}, {"home_far"}),
    ({"llcs": 1}, {"other_llc"}, {"home_far", "other_socket"}),
    ({"cores": 1}, {"other_core", "store", "ipi"}, {"other_llc"}),
    ({"sockets": 1, "nodes": 1, "llcs": 1, "cores": 1, "threads": 1}, {"other_core"}, {"dram"}),
])
def test_plan_of_smaller_hosts(tmp_path, shape, missing, there):
    """What a host does not have is missing, with a reason, and takes no other figure's place."""
    figures, absent = planned(host(tmp_path, **shape))
    print(absent)
    assert missing <= set(absent) and there <= set(figures) and not set(figures) & set(absent)
    assert all("the host has" in absent[name] for name in missing)


def test_too_little_memory(tmp_path):
    root = host(tmp_path)
    (root / "proc/meminfo").write_text("MemAvailable: 100000 kB\n")
    figures, missing = planned(root)
    assert "dram" not in figures and "too few" in missing["dram"]
    assert "need more memory" in missing["read_socket"]


def test_samples():
    assert calibrate.spread_out(list(range(10)), 4) == [0, 2, 5, 7]
    assert calibrate.spread_out([1, 2], 4) == [1, 2]
    assert calibrate.steps(6) == [1, 2, 4, 6] and calibrate.steps(1) == [1]


# ---- what it makes of the figures ----

MEASURED = {"mhz": 3550, "cpi": 1.5, "smt_percent": 131.6, "store": 9, "l1": 1.2, "l2": 3.94,
            "l3": 14, "other_core": 27, "other_llc": 99, "other_socket": 192, "dram": 120,
            "far_dram": 213, "home_near": 98, "home_far": 200, "read_core": 37, "read_llc": 69.6,
            "read_socket": 375, "read_far": 128, "idle_c1": 6400, "idle_poll": 3800, "ipi": 512}


def written(tmp_path, monkeypatch, measured, shape=(), missing=None):
    """Write a file of these figures; (its values, its path)."""
    found = {name: [[[number]]] for name, number in measured.items()}
    cpus = calibrate.places(host(tmp_path / "host", **dict(shape)))
    numbers, absent = calibrate.tables(found, cpus, HAVE, missing or {}, " and ".join)
    path = tmp_path / "here.toml"
    path.write_text(calibrate.toml('a "host"', "EPYC-Genoa", numbers, absent))
    print(path.read_text())
    monkeypatch.setattr(paths, "CACHES", tmp_path)
    return tomllib.loads(path.read_text()), path


def test_complete_file_is_taken_by_the_simulation(tmp_path, monkeypatch):
    """Every key by hand. The stores: 9 ns of 27. The lines in flight: 37 GB/s for 120 ns, of 64
    bytes. C1: half of what it adds to a round trip."""
    values, _ = written(tmp_path, monkeypatch, MEASURED)
    found = costs.load("here")
    assert "incomplete" not in values and found.description == 'a "host"'
    assert found.tables == {
        "core": {"mhz": 3550, "cycles_per_instruction": 1.5, "smt_percent": 132,
                 "store_percent": 33},
        "l1": {"kib": 32, "ways": 8}, "l2": {"kib": 1024, "ways": 8, "ns": 3.94},
        "l3": {"kib_per_core": 16384, "ways": 16, "ns": 14.0},
        "other_core": {"ns": 27.0}, "other_llc": {"ns": 99.0}, "other_socket": {"ns": 192.0},
        "dram": {"ns": 120.0}, "far_dram": {"ns": 213.0}, "home": {"passed": True},
        "misses": {"outstanding": 69},
        "bandwidth": {"link_gbs": 70, "memory_gbs": 375, "socket_gbs": 128},
        "sleep": {"c1_exit_ns": 1300, "ipi_ns": 512}}
    assert values["misses"]["source"] == "read_core and dram"


def test_one_llc_in_a_socket(tmp_path, monkeypatch):
    """There is no other LLC and no link, and the line is answered for in the socket."""
    values, _ = written(tmp_path, monkeypatch, {**MEASURED, "home_far": 101}, {"llcs": 1})
    found = costs.load("here")
    assert found.ns("other_llc") == 27.0 and found.tables["bandwidth"]["link_gbs"] == 0
    assert found.tables["home"]["passed"] is False
    assert values["other_llc"]["source"].endswith("a socket has one LLC")


@pytest.mark.parametrize("name, keys", [
    ("far_dram", ["far_dram.ns"]), ("dram", ["dram.ns", "misses.outstanding"]),
    ("idle_c1", ["sleep.c1_exit_ns"]), ("home_far", ["home.passed"]), ("cpi", [
        "core.cycles_per_instruction"])])
def test_incomplete_file_is_refused(tmp_path, monkeypatch, name, keys):
    measured = {key: number for key, number in MEASURED.items() if key != name}
    values, path = written(tmp_path, monkeypatch, measured, missing={name: "no such thing here"})
    assert values["incomplete"] == [f"{key}: no such thing here" for key in keys]
    with pytest.raises(Error, match=f"{keys[0]}: no such thing here") as caught:
        costs.load("here")
    print(caught.value)
    assert str(path) in str(caught.value) and "cannot be simulated" in str(caught.value)


@pytest.mark.parametrize("name, number", [("ipi", -74.5), ("idle_c1", 3000), ("store", 0.001)])
def test_figure_of_noise_is_missing(tmp_path, monkeypatch, name, number):
    values, _ = written(tmp_path, monkeypatch, {**MEASURED, name: number})
    [line] = values["incomplete"]
    assert "noise" in line


def test_median_of_medians():
    """One odd run, and one odd pair, do not decide."""
    runs = [[5.0, 1], [4.0, 2], [99.0, 3]]
    assert calibrate.value([runs, [[6.0, 0]], [[900.0, 0]]]) == 6.0
    assert calibrate.value([runs]) == 5.0 and calibrate.value([runs], 1) == 2


@pytest.mark.parametrize("vendor, family, model, name", [
    ("AuthenticAMD", 25, 17, "EPYC-Genoa"), ("AuthenticAMD", 25, 1, "EPYC-Milan"),
    ("GenuineIntel", 6, 143, "SapphireRapids"), ("GenuineIntel", 6, 1, None)])
def test_model_for_qemu(tmp_path, vendor, family, model, name):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"vendor_id\t: {vendor}\ncpu family\t: {family}\n"
                                           f"model\t\t: {model}\nmodel name\t: x\n")
    assert calibrate.qemu_cpu(tmp_path) == name
    assert ("qemu_cpu: no model" in calibrate.toml("d", name, {}, {})) == (name is None)


# ---- idle states ----

@pytest.fixture(name="idle")
def made_idle(tmp_path, monkeypatch):
    """Two CPUs with three idle states each."""
    for cpu in (0, 1):
        for number, name in enumerate(("POLL", "C1", "C2")):
            where = tmp_path / f"cpu{cpu}/cpuidle/state{number}"
            where.mkdir(parents=True)
            (where / "name").write_text(name + "\n")
            (where / "disable").write_text("0\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(calibrate, "CPU", tmp_path)
    monkeypatch.setattr(knobs, "put", lambda path, text: path.write_text(text + "\n"))
    return tmp_path


def disabled(root):
    return [[int((root / f"cpu{cpu}/cpuidle/state{state}/disable").read_text())
             for state in range(3)] for cpu in (0, 1)]


def test_idle_states_are_chosen_and_put_back(idle, tmp_path, monkeypatch):
    seen = {}
    init = knobs.Guard.__init__
    monkeypatch.setattr(knobs.Guard, "__init__", lambda self, states, sched: init(
        self, states, sched, tmp_path / "state"))

    def fake(path, figures, length, missing):
        seen[figures[0].name] = disabled(idle)
        return {figures[0].name: [[[1.0]]]}
    monkeypatch.setattr(calibrate, "measure", fake)
    monkeypatch.setattr(calibrate, "idle_states",
                        lambda one, two, real=calibrate.idle_states: real(one, two, idle))
    cpus = [calibrate.Place(cpu, cpu, 0, 0, 0) for cpu in (0, 1)]
    missing = {}
    assert set(calibrate.measure_idle("p", cpus, calibrate.SHORT, missing)) == {
        "idle_poll", "idle_c1"} and missing == {}
    assert seen == {"idle_poll": [[0, 1, 1]] * 2, "idle_c1": [[1, 0, 1]] * 2}
    assert disabled(idle) == [[0, 0, 0]] * 2


def test_host_without_idle_states(idle, monkeypatch):
    (idle / "cpu1/cpuidle/state1/name").write_text("C1E\n")
    with pytest.raises(calibrate.Cannot, match="not both of POLL and C1"):
        calibrate.idle_states(0, 1, idle)
    (idle / "cpu1/cpuidle/state1/name").write_text("C1\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(calibrate.Cannot, match="only root"):
        calibrate.idle_states(0, 1, idle)


# ---- the program ----

@pytest.fixture(name="program", scope="module")
def compiled(tmp_path_factory):
    """guest/calibrate.c for the host, without a warning."""
    path = tmp_path_factory.mktemp("calibrate") / "calibrate"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", path,
                    GUEST / "calibrate.c"], check=True)
    return path


@pytest.mark.parametrize("what, sample, count", [
    ("chase", (-1, 64, 0), 1), ("bounce", (-1, 0, 1), 1), ("store", (-1, 0, 1), 1),
    ("add", (-1, 0, 1), 2), ("read", (-1, 4096, 0, 1), 1), ("mhz", (0, 1), 1), ("smt", (0, 1), 1),
    ("pipe", (0, 1), 1), ("futex", (0, 1), 1), ("ipi", (0, 1), 1)])
def test_program_prints_figures(program, what, sample, count):
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("the host has not both of CPU 0 and 1")
    numbers = calibrate.run(program, calibrate.Figure("f", what, (sample,)), sample, 5)
    print(what, numbers)
    assert len(numbers) == count and (what == "ipi" or all(0 < number < 1e9 for number in numbers))


def test_program_that_cannot(program):
    missing = {}
    found = calibrate.measure(program, [calibrate.Figure("far", "chase", ((1000, 64, 0),)),
                                        calibrate.Figure("bad", "chase", ((-1, 64, 8191),)),
                                        calibrate.Figure("l1", "chase", ((-1, 64, 0),))],
                              calibrate.SHORT, missing)
    assert set(found) == {"l1"} and set(missing) == {"far", "bad"} and "CPU 8191" in missing["bad"]
    with pytest.raises(Error, match="status 1.*CPU 8191"):
        calibrate.run(program, calibrate.Figure("f", "chase", ()), (-1, 64, 8191), 5)


@pytest.mark.parametrize("words", [["x"], [], ["chase", "0", "5"], ["pipe", "5", "0"],
                                   ["mhz", "0", "0"], ["add", "0", "5"], ["mhz", "5", "zero"]])
def test_program_refuses_arguments(program, words):
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("calibrate: ")


# ---- the command ----

@pytest.fixture(name="small")
def made_small(monkeypatch, tmp_path):
    """The command on a host of two cores that is quiet, with a program that prints numbers."""
    script = tmp_path / "program"
    script.write_text("#!/bin/sh\necho 10 0.5\n")
    script.chmod(0o755)
    root = host(tmp_path / "host", 1, 1, 1, 2, 1)
    real = {"places": calibrate.places, "caches": calibrate.caches}
    for name, function in real.items():
        monkeypatch.setattr(calibrate, name, lambda function=function: function(root))
    monkeypatch.setattr(calibrate, "program", lambda: script)
    monkeypatch.setattr(calibrate, "BUILD", tmp_path / "build")
    monkeypatch.setattr(knobs, "recover", lambda: None)
    monkeypatch.setattr(facts, "busy", lambda seconds: (0.0, 0.0, []))
    monkeypatch.setattr(facts, "warnings", lambda about: [])
    for name, text in {"SHORT": "1", "NAME": "here", "NOISY": "", "SAVE": ""}.items():
        monkeypatch.setenv(name, text)
    return tmp_path / "build"


def test_command_writes_a_file_and_raw_values(small, monkeypatch, capsys):
    assert calibrate.command() == 0
    values = tomllib.loads((small / "machines/caches/here.toml").read_text())
    print(capsys.readouterr().out)
    assert values["other_core"]["ns"] == 10.0 and values["incomplete"][0].startswith("SHORT=1: ")
    assert "1 runs" in values["other_core"]["source"] and "Linux " in values["other_core"]["source"]
    [raw] = (small / "results/here/calibrate").glob("*.json")
    assert '"add_llc/2"' in raw.read_text()
    monkeypatch.setattr(paths, "CACHES", small / "machines/caches")
    with pytest.raises(Error, match="for a moment"):
        costs.load("here")


@pytest.mark.parametrize("env, says", [
    ({"SAVE": "1"}, "not for machines/caches/"), ({"SHORT": "", "SAVE": "1", "NAME": "spr"},
                                                  "spr.toml exists")])
def test_command_overwrites_nothing(small, monkeypatch, env, says):
    for name, text in env.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(Error, match=says):
        calibrate.command()


def test_noisy_host(small, monkeypatch):
    monkeypatch.setattr(facts, "busy", lambda seconds: (1.0, 0.0, ["make"]))
    with pytest.raises(Error, match=r"not quiet: others keep 1.00 of its \d+ CPUs busy \(make\)"):
        calibrate.command()
    assert not small.exists()
    monkeypatch.setenv("NOISY", "1")
    assert calibrate.command() == 0
    text = (small / "machines/caches/here.toml").read_text()
    assert "NOISY=1" in tomllib.loads(text)["description"]


# ---- in the guest ----

@pytest.mark.boot
def test_calibrate_in_the_guest(tmp_path):
    """The copied directory, on two LLCs of cores with SMT and one node: what such a host can measure is
    measured, and the rest is missing."""
    kernel.build("stack")
    run = guest.run(machine.load("two-ccx"), "stack", "calibrate", timeout=1200,
                    files=bench_files(tmp_path))
    print(run.ktap)
    assert run.failures() + ktap.parse(run.ktap).failures() == []
    values = tomllib.loads("".join(line.removeprefix("# toml ").rstrip() + "\n"
                                   for line in run.ktap.splitlines() if line.startswith("# toml ")))
    for table in ("other_core", "other_llc", "dram"):
        assert values[table]["ns"] > 0
    assert values["bandwidth"]["link_gbs"] > 0 and values["core"]["smt_percent"] > 0
    missing = {line.partition(":")[0] for line in values["incomplete"]}
    assert {"other_socket.ns", "far_dram.ns", "home.passed", "SHORT=1"} <= missing
