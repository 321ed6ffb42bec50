# SPDX-License-Identifier: GPL-2.0-only
"""make bench-host SIMULATED=: which CPUs of a host stand for those of a simulated machine, which results can be
measured, in which states; and what the page puts side by side."""

import json
import os
import subprocess

import pytest

from kit.host import calibrate, facts, knobs, measure, simulated
from kit.pages import report
from kit.process import Error
from kit.results import store, text, verdict

ON, OFF = "features=SIS_FAST", "features=NO_SIS_FAST"
HERE = sorted(os.sched_getaffinity(0))


def places(sockets, llcs, cores, threads, shift=0):
    """The Places of a host whose second threads have numbers behind all first ones, as on x86."""
    every = [(socket, llc, core) for socket in range(sockets) for llc in range(llcs) for core in range(cores)]
    return [calibrate.Place(shift + number + thread * len(every), number, (socket * llcs + llc) * cores, socket,
                            socket)
            for thread in range(threads) for number, (socket, llc, core) in enumerate(every)]


def machine(sockets, llcs, cores, threads):
    return {"sockets": sockets, "llcs_per_socket": llcs, "cores_per_llc": cores, "threads_per_core": threads,
            "numa_nodes": sockets}


def result(base, other, at=(1, 1, 1, 1), kernel="stack", also="", **more):
    """A Result of make sim that found the given figures, more is better. also: what both states write."""
    off, on = f"{also}{OFF}", f"{also}{ON}"
    subjects = {f"stack {off}": store.Subject(kernel, off, None),
                f"stack {on}": store.Subject(kernel, on, f"stack {off}"),
                "again": store.Subject(kernel, off, f"stack {off}")}
    return store.Result("sim-rr", "made-up", {"command": "make sim", "start": "", "machine": machine(*at),
                                              "workload": "rr:1:1:5:50:processes:0:0", **more}, {kernel: {}},
                        {"rr": store.Metric("requests/ms", "more", "requests per ms")}, subjects,
                        dict(zip(subjects, ({"rr": base}, {"rr": other}, {"rr": base}))))


@pytest.fixture(name="sched")
def made_up(tmp_path, monkeypatch):
    """A directory like that of debugfs."""
    sched = tmp_path / "sched"
    sched.mkdir()
    (sched / "features").write_text("NO_TTWU_QUEUE_L2 NO_SIS_FAST NO_SCHED_CACHE DELAY_DEQUEUE\n")

    def put(path, text):
        words = [text if word.removeprefix("NO_") == text.removeprefix("NO_") else word
                 for word in path.read_text().split()]
        path.write_text(" ".join(words) + "\n")
    monkeypatch.setattr(knobs, "put", put)
    return sched


def save(tmp_path, **results):
    """Save Results of make sim; {name: path}."""
    for name, one in results.items():
        store.save(one, tmp_path / f"simulated/{one.machine}/sim-{name}.json")
    return simulated.files(results, tmp_path / "simulated")


# ---- which CPUs ----

def test_cpus_are_those_of_the_machine_in_its_order():
    # Two sockets of 3 LLCs of 4 cores: the threads of CPU 0's core are 0 and 24.
    host = places(2, 3, 4, 2)
    assert simulated.cut(machine(2, 2, 2, 2), host) == [0, 24, 1, 25, 4, 28, 5, 29, 12, 36, 13, 37, 16, 40, 17, 41]
    assert simulated.cut(machine(1, 1, 4, 2), host) == [0, 24, 1, 25, 2, 26, 3, 27]


@pytest.mark.parametrize("at", [(3, 1, 1, 2), (1, 4, 1, 2), (1, 1, 5, 2), (1, 1, 1, 3)])
def test_host_with_too_little_of_something(at):
    with pytest.raises(simulated.Left, match="has no.*threads$"):
        simulated.cut(machine(*at), places(2, 3, 4, 2))


def test_threads_that_the_machine_does_not_have():
    """The limits of cache-aware scheduling count all threads of a core, also those that stay idle."""
    with pytest.raises(simulated.Left, match="1 threads: switch SMT off"):
        simulated.cut(machine(1, 1, 4, 1), places(2, 3, 4, 2))
    assert simulated.cut(machine(1, 1, 4, 1), places(2, 3, 4, 1)) == [0, 1, 2, 3]


def test_an_llc_or_socket_that_is_too_small_is_passed_over():
    small = [place for place in places(2, 2, 2, 1) if place.cpu not in (1, 6, 7)]
    assert simulated.cut(machine(1, 1, 2, 1), small) == [2, 3]
    assert simulated.cut(machine(2, 1, 2, 1), small) == [2, 3, 4, 5]
    with pytest.raises(simulated.Left):
        simulated.cut(machine(1, 2, 2, 1), small)


def test_other_nodes():
    """With NPS4 the LLCs of a socket are in several nodes."""
    split = [calibrate.Place(place.cpu, place.core, place.llc, place.socket, place.llc) for place in places(1, 2, 2, 1)]
    with pytest.raises(simulated.Left, match="are in 2 NUMA nodes here, and in 1 there"):
        simulated.cut(machine(1, 2, 2, 1), split)
    assert simulated.cut(machine(1, 1, 2, 1), split) == [0, 1]


def test_isolated_cpus_and_those_of_a_cpuset(monkeypatch, tmp_path):
    monkeypatch.setattr(calibrate, "places", lambda root: places(1, 1, 4, 1))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 2, 3})
    (tmp_path / facts.CPU).mkdir(parents=True)
    (tmp_path / facts.CPU / "isolated").write_text("2\n")
    assert [place.cpu for place in simulated.places(tmp_path)] == [1, 3]


# ---- which results, in which states ----

def test_names(tmp_path):
    found = save(tmp_path, one=result([1.0], [1.0]), two=result([1.0], [1.0]))
    assert simulated.files(["all"], tmp_path / "simulated") == found
    assert list(simulated.files(["two"], tmp_path / "simulated")) == ["two"]
    with pytest.raises(Error, match="SIMULATED=three one: there is no result of a simulation named three; there "
                                    "are: one, two"):
        simulated.files(["three", "one"], tmp_path / "simulated")


def test_states_are_those_of_the_simulation(tmp_path, sched):
    """The stack's features have their defaults, those of the simulated boots, whatever they are now; the rest
    stays as it is."""
    two = result([1.0], [1.0], also="features=NO_DELAY_DEQUEUE,")
    (one, other), left = simulated.jobs(save(tmp_path, one=result([1.0], [1.0], start="scattered"), two=two),
                                        "a b/w", places(1, 1, 2, 1, 5), sched)
    assert left == {} and (one.name, other.name, one.metric) == ("one", "two", "rr")
    usual = {("features", "NO_TTWU_QUEUE_L2"), ("features", "SCHED_CACHE")}
    assert {name: set(pairs) - usual for name, pairs in one.states.items()} == {
        f"stack {OFF}": {("features", "NO_SIS_FAST")}, f"stack {ON}": {("features", "SIS_FAST")},
        "again": {("features", "NO_SIS_FAST")}}
    assert all(usual < set(pairs) and len(pairs) == 3 for pairs in one.states.values())
    assert all(("features", "NO_DELAY_DEQUEUE") in pairs for pairs in other.states.values())
    assert one.workload.command == f"'a b/w' {simulated.SEED} cpus=5 start=scattered rr 1 1 5 50 processes 0 0"


@pytest.mark.parametrize("one, says", [
    (result([1.0], [1.0], kernel="validate"), "of validate, not of one kernel"),
    (result([1.0], [1.0], kernel="7.3/base"), "of mainline"), (result([1.0], [1.0], window_ms=300), "several windows"),
    (result([1.0], [1.0], command="make sim CGROUPS=3"), "control groups"),
    (result([1.0], [1.0], at=(2, 1, 1, 1)), "the host has no"),
    (result([1.0], [1.0], also="features=NO_SUCH,"), "this kernel has no feature SUCH"),
    (result([1.0], [1.0], also="none=1,"), "No such file"), (result([1.0], [1.0], machine={}), "no result of make sim"),
])
def test_results_that_are_left_out(tmp_path, sched, one, says):
    found, left = simulated.jobs(save(tmp_path, one=one), "w", places(1, 1, 2, 1), sched)
    print(left)
    assert says in left["one"] and not found


def test_file_that_is_no_result(tmp_path, sched):
    chosen = save(tmp_path, one=result([1.0], [1.0]), two=result([1.0], [1.0]))
    chosen["two"].write_text("{}")
    found, left = simulated.jobs(chosen, "w", places(1, 1, 2, 1), sched)
    assert [job.name for job in found] == ["one"] and "no result" in left["two"]


def test_mainline_has_a_file_and_no_feature(tmp_path, sched):
    (sched / "features").write_text("NO_DELAY_DEQUEUE\n")
    (sched / "llc_balancing").mkdir()
    (sched / "llc_balancing/enabled").write_text("1\n")
    one = result([1.0], [1.0], kernel="7.3/base")
    for value, (name, what) in zip((0, 1, 0), list(one.subjects.items())):
        one.subjects[name] = store.Subject(what.kernel, f"llc_balancing/enabled={value}", what.against)
    [job], left = simulated.jobs(save(tmp_path, one=one, two=result([1.0], [1.0])), "w", places(1, 1, 2, 1), sched)
    assert list(left) == ["two"] and list(job.states.values()) == [
        [("llc_balancing/enabled", value)] for value in "010"]


@pytest.mark.parametrize("name", ["FULL", "AS_IS", "WORKLOADS", "FEATURES", "STATES", "SCHBENCH"])
def test_settings_of_its_own(name):
    with pytest.raises(Error, match=f"SIMULATED= has workloads and states of its own: not with {name}"):
        measure.settings({"SIMULATED": "all", name: "x:features=X" if name == "STATES" else "1"})


# ---- the program ----

@pytest.fixture(name="program", scope="module")
def compiled(tmp_path_factory):
    return simulated.compiled(tmp_path_factory.mktemp("workload") / "workload")


def workload(program, *words):
    return subprocess.run([program, "1", *map(str, words)], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("cpus", ["", "x", "0,", "0,0", "-1", "99999", "0 1"])
def test_lists_of_cpus_that_are_refused(program, cpus):
    done = workload(program, f"cpus={cpus}", *"rr 1 1 5 50 processes 0 0".split())
    assert done.returncode == 2 and "is no list of CPUs, such as" in done.stderr


def test_cpus_that_are_not_to_be_had(program):
    behind = max(HERE) + 1
    done = workload(program, f"cpus={HERE[0]},{behind}", *"rr 1 1 5 50 processes 0 0".split())
    assert done.returncode == 1 and "may not use all of them" in done.stderr
    done = workload(program, f"cpus={HERE[0]}", *"rr 1 1 5 50 processes 0 1".split())
    assert done.returncode == 2 and "there are 1 CPUs, and none of number 1" in done.stderr


@pytest.mark.skipif(len(HERE) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("words, wanted", [
    # Tasks that are restricted to a range, and threads that have a CPU each.
    ("rr 1 1 5 50 threads 0 0", {(HERE[1],)}), ("scale open 2 1 5 50", {(HERE[1],), (HERE[0],)}),
    ("scale open 1 1 5 50", {(HERE[1],)}), ("rr 1 1 5 50 threads 0 1", {(HERE[0], HERE[1])})])
def test_numbers_are_places_in_the_list(program, tmp_path, words, wanted):
    """CPU 0 of the arguments is the first of the list; before the window, each thread says where it may run."""
    script = tmp_path / "between"
    script.write_text("#!/bin/sh\npid=$PPID\n"
                      "grep -q workload /proc/$pid/comm || pid=$(awk '{print $4}' /proc/$pid/stat)\n"
                      f"cat /proc/$pid/task/*/status > {tmp_path}/said\n")
    script.chmod(0o755)
    done = workload(program, f"cpus={HERE[1]},{HERE[0]}", f"between={script}", *words.split())
    assert done.returncode == 0, done.stderr
    said = {tuple(facts.cpus_of(line.split()[1])) for line in (tmp_path / "said").read_text().splitlines()
            if line.startswith("Cpus_allowed_list")}
    # The main thread of `scale` works on no CPU of its own.
    assert said - {(HERE[0], HERE[1])} == wanted - {(HERE[0], HERE[1])} and wanted <= said


# ---- from beginning to end ----

@pytest.fixture(name="host")
def faked(tmp_path, sched, program, monkeypatch):
    """A quiet host of one CPU and this debugfs; the directory of the results."""
    monkeypatch.setattr(measure, "BUILD", tmp_path)
    monkeypatch.setattr(measure, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(facts, "busy", lambda seconds: (0.0, 0.0, []))
    monkeypatch.setattr(knobs, "recover", lambda: None)
    monkeypatch.setattr(simulated, "places", lambda: places(1, 1, 1, 1, HERE[-1]))
    monkeypatch.setattr(simulated, "program", lambda: program)
    monkeypatch.setattr(simulated, "PACKED_RESULTS", tmp_path / "simulated")
    monkeypatch.setattr(simulated.jobs, "__defaults__", (sched,))
    init = measure.Host.__init__
    monkeypatch.setattr(measure.Host, "__init__", lambda self, subjects, shape, noisy: init(
        self, subjects, shape, noisy, sched, tmp_path / "state"))
    for name, value in {"SIMULATED": "all", "NAME": "here", "NOISY": "1"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "results/here"


def test_from_beginning_to_end(host, tmp_path, sched, capsys):
    """The workload runs in the states; what was simulated and what is measured are on one page, each judged by
    itself."""
    save(tmp_path, near=result([1.0, 1.01] * 4, [1.01, 1.0] * 4), far=result([1.0] * 8, [9.0, 9.1] * 4),
         left=result([1.0], [1.0], at=(9, 1, 1, 1)))
    before = (sched / "features").read_text()
    assert measure.command() == 0
    assert (sched / "features").read_text() == before
    out = capsys.readouterr().out
    assert "further apart than both intervals" in out
    results = [store.load(path) for path in sorted(host.glob("beside-*.json"))]
    for found in results:
        assert found.instrument == "beside" and store.control(found, f"stack {OFF}") == "again"
        assert {len(values) for rows in found.values.values() for values in rows.values()} == {10}
        [[one]] = [rows.values() for rows in verdict.of(found).values()]
        assert one.word != verdict.SECONDARY
    head, *rows = text.beside(results)
    print(head, *rows, sep="\n")
    assert [(row[0], row[1], row[2].split(",")[-1].strip()) for row in rows] == [
        ("far", ON, "GAIN"), ("near", ON, "EQUIVALENT")]
    # Nothing differs between the states here: not a ninefold figure.
    assert rows[0][4] == "yes"
    report.write(host.parent)
    page = (host.parent / "README.md").read_text()
    assert "### Simulated and measured" in page and "- not measured: left: the host has no 9 x" in page


def test_without_numpy(host, tmp_path, monkeypatch, capsys):
    save(tmp_path, one=result([1.0], [1.0]))
    monkeypatch.setenv("SHORT", "1")
    monkeypatch.setattr(measure, "_text", lambda: None)
    assert measure.command() == 0
    assert f"requests per ms (requests/ms, more is better): stack {OFF} " in capsys.readouterr().out


def test_workload_that_fails_is_left_out(host, tmp_path, capsys):
    save(tmp_path, good=result([1.0], [1.0]), bad=result([1.0], [1.0], workload="rr:1:1:5:50:processes:0:7"))
    assert measure.command() == 0
    assert [json.loads(path.read_text())["details"]["name"] for path in host.glob("*.json")] == ["good"]
    assert "none of number 1" in capsys.readouterr().err
