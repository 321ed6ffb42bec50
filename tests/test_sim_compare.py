# SPDX-License-Identifier: GPL-2.0-only
"""tools/sim-compare on made-up directories in place of debugfs and sysfs, with a made-up workload."""

import json
import os
import re
import subprocess
import sys

import pytest

from kit.host import portable
from kit.paths import RESULTS, ROOT

TOOL = ROOT / "tools/sim-compare"
BEFORE = "SCHED_CACHE NO_SIS_FAST\n"
# A machine of 2 sockets of 2 LLCs of 8 cores.
CROWD = RESULTS / "epyc-2x2x8/sim-crowd.json"
# Prints its arguments and CPUs to a file; 15 steps with the last bit written on, else 10.
WORKLOAD = """\
#!/bin/sh
echo "$* on $(taskset -cp $$ | sed 's/.*: //')" >> "$LOG"
case $(tail -n 1 "$SCHED_DEBUGFS/features") in NO_*) echo "10.0 steps/ms" ;; *) echo "15.0 steps/ms" ;; esac
"""


@pytest.fixture
def host(tmp_path):
    """A function that makes the sysfs of a host: numbers as those of a machine, and whether the second thread of
    each core comes behind all first ones."""
    (tmp_path / "features").write_text(BEFORE)
    (tmp_path / "workload").write_text(WORKLOAD)
    (tmp_path / "workload").chmod(0o755)

    def make(sockets, llcs, cores, threads=2):
        first = sockets * llcs * cores

        def put(name, text):
            path = tmp_path / "cpu" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        put("online", f"0-{first * threads - 1}")
        for cpu in range(first * threads):
            core = cpu % first
            llc = core // cores * cores
            put(f"cpu{cpu}/topology/physical_package_id", core // (llcs * cores))
            put(f"cpu{cpu}/topology/thread_siblings_list",
                ",".join(str(core + thread * first) for thread in range(threads)))
            put(f"cpu{cpu}/cache/index3/level", 3)
            put(f"cpu{cpu}/cache/index3/shared_cpu_list",
                ",".join(f"{llc + thread * first}-{llc + thread * first + cores - 1}" for thread in range(threads)))
            put(f"cpu{cpu}/cache/index0/level", 1)
            put(f"cpu{cpu}/cache/index0/shared_cpu_list", cpu)

    def run(*files, seeds=2):
        env = os.environ | {"SCHED_DEBUGFS": str(tmp_path), "CPU_SYSFS": str(tmp_path / "cpu"),
                            "LOG": str(tmp_path / "log")}
        done = subprocess.run([sys.executable, TOOL, "-n", str(seeds), "-w", tmp_path / "workload", *files],
                              capture_output=True, text=True, env=env, timeout=60, check=False)
        print(done.stdout, done.stderr)
        assert done.stderr == "" and done.returncode == 0
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines()[2:]]
    make.run, make.directory = run, tmp_path
    return make


def changed(path, directory, **repeat):
    """A copy of a result with other things to repeat."""
    result = json.loads(path.read_text())
    result["repeat"].update(repeat)
    copy = directory / path.name
    copy.write_text(json.dumps(result))
    return copy


def test_simulated_beside_measured(host):
    """The workload runs in the order A B B A for each seed with the arguments of the simulation. On a host of one
    LLC that is the simulated machine, with SMT in place of none."""
    machine = json.loads(CROWD.read_text())["repeat"]["machine"]
    file = changed(CROWD, host.directory, machine=machine | {"sockets": 1, "llcs_per_socket": 1, "cores_per_llc": 1})
    host(1, 2, 1)
    [[name, state, simulated, measured, overlap]] = host.run(file)
    assert (name, state, overlap) == ("crowd", "features=SCHED_CACHE", "no")
    assert measured == "+50.0 % (+50.0 to +50.0)"
    # The interval on the page of the result is of another method.
    change, low, high = map(float, re.findall(r"[+-][0-9.]+", simulated))
    [page] = re.findall(r"^\| steps per ms (?:\|[^|]*){2}\| ([+-][0-9.]+) % \(", CROWD.with_suffix(".md").read_text(),
                        re.M)
    assert low < change < high and abs(change - float(page)) <= 0.05001
    assert (host.directory / "log").read_text().splitlines() == [
        f"{seed} sharing 2 16 512 60 20 on 0" for seed in (1, 2) for _ in range(4)]
    written = (host.directory / "features").read_text().removeprefix(BEFORE).split()
    off, on = "NO_SCHED_CACHE", "SCHED_CACHE"
    assert written == [off, on, on, off] * 2 + [on]


def test_hosts_that_are_too_small(host):
    for numbers in ((1, 12, 8), (2, 1, 8), (2, 12, 4)):
        host(*numbers)
        [row] = host.run(CROWD)
        assert row[3] == "left out: the host has not so many sockets, LLCs, cores and threads"
    assert (host.directory / "features").read_text() == BEFORE and not (host.directory / "log").exists()


@pytest.fixture
def tool(host, monkeypatch):
    """The tool as a module, on the host's directories."""
    monkeypatch.setenv("SCHED_DEBUGFS", str(host.directory))
    monkeypatch.setenv("CPU_SYSFS", str(host.directory / "cpu"))
    found = {"__file__": str(TOOL), "__name__": "sim_compare"}
    exec(compile(TOOL.read_text(), TOOL, "exec"), found)  # pylint: disable=exec-used
    return found


def test_cpus_of_a_simulated_machine(host, tool):
    """On two EPYC 9654: the first two LLCs of each socket, without SMT."""
    host(2, 12, 8)
    machine = json.loads(CROWD.read_text())["repeat"]["machine"]
    assert tool["cut"](machine, tool["topology"]()) == [*range(16), *range(96, 112)]
    smt = machine | {"threads_per_core": 2, "llcs_per_socket": 1, "cores_per_llc": 2}
    assert tool["cut"](smt, tool["topology"]()) == [0, 192, 1, 193, 96, 288, 97, 289]


@pytest.mark.parametrize("task, cpus, words", [
    ("sharing:1:6:512:60:20:apart", [3, 7], "sharing 1 6 512 60 20 apart"),
    ("hackbench:1:8:100:threads:pipe:0:3", [4, 5, 6, 7], "messages 1 8 100 threads pipe 4 7"),
    ("hackbench-rate:1:8:60:10:threads:pipe:0:1:100", [4, 5, 9, 10], "rate 1 8 60 10 threads pipe 4 5 100"),
    ("rr:4:5:60:20:processes:0:3", [0, 1, 2, 3], "rr 4 5 60 20 processes 0 3"),
    ("rr:4:5:60:20:processes:0:3", [0, 1, 4, 5], None),
    ("sharing:4:6:512:20:10:pinned", [0, 1], "sharing 4 6 512 20 10 pinned"),
    ("sharing:4:6:512:20:10:pinned", [0, 2], None),
    ("pi:1:2:5:10", [1, 2], None)])
def test_arguments(tool, task, cpus, words):
    if words:
        assert tool["command"](task, "", cpus) == words.split()
        assert tool["command"](task, "scattered", cpus)[0] == "start=scattered"
    else:
        with pytest.raises(tool["Left"]):
            tool["command"](task, "", cpus)


def test_all_results_are_understood(host):
    """Each result of the repository is run, or left out for a reason that it has."""
    host(1, 1, 1)
    files = sorted(RESULTS.glob("*/sim-*.json"))
    found = host.run(*files)
    assert {row[0] for row in found} == {path.stem[4:] for path in files}
    assert {row[3] for row in found} == {"left out: the host has not so many sockets, LLCs, cores and threads",
                                         "left out: it is of another kernel"}


def test_directory_for_hosts(tmp_path):
    """make bench-host-dir packs the tool, the program and the results of the stack."""
    portable.pack(tmp_path)
    done = subprocess.run([tmp_path / "run", "simulated", "--help"], capture_output=True, text=True, check=True)
    assert "put what was simulated beside" in done.stdout
    done = subprocess.run([tmp_path / "guest/workload", "help"], capture_output=True, text=True, check=True)
    assert "usage: workload" in done.stdout
    assert (tmp_path / "simulated/epyc-2x2x8/sim-crowd.json").is_file()
    assert not list(tmp_path.glob("simulated/*/*-mainline.json"))
