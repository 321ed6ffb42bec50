# SPDX-License-Identifier: GPL-2.0-only
"""make bench-host SIMULATED=: workloads of the simulation on the host itself, to validate the model. A
result of make sim names a workload, its arguments, a machine and the states that it compares. The same
program runs with the same arguments in the same states, on CPUs of the host with the machine's topology.
What is measured becomes a result of its own, with the simulation's in it; kit/pages/report.py puts both
side by side. Python 3.9 without further packages is enough.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from dataclasses import dataclass

from kit.features import FEATURES
from kit.host import calibrate, facts, knobs, workloads
from kit.paths import BUILD, GUEST, RESULTS, ROOT
from kit.process import Error, sh
from kit.results import store
from kit.sim.workloads import Task

INSTRUMENT = "beside"
# Of the instruments and files of make sim.
SIM = "sim-"
ALL = "all"
# In a directory of bench-host-dir: the program, compiled where that was made, and the results of make sim.
PACKED, PACKED_RESULTS = ROOT / "guest/bin/workload", ROOT / "simulated"
# A run: starting the tasks, the warm-up and the measured window.
SECONDS = 1
# Each run draws other delays and another order of the tasks, as each seed does in the simulation.
SEED = "$(od -An -N2 -tu2 /dev/urandom)"


class Left(Exception):
    """Why a result is left out."""


@dataclass(frozen=True)
class Job:
    """A result of make sim to measure: its name and what is in its file; states, {subject: [(file, value)]};
    workload, a workloads.Workload whose figure is the result's own metric."""
    name: str
    data: dict
    states: dict
    workload: workloads.Workload

    @property
    def metric(self):
        """The name of the result's own metric."""
        return self.data["instrument"][len(SIM):]


def files(names, directory=None):
    """The results of make sim of these names, "all" for all: {name: path}; Error if one does not exist.
    directory: by default the results that were packed, else those of the repository."""
    directory = directory or (PACKED_RESULTS if PACKED_RESULTS.is_dir() else RESULTS)
    found = {path.stem[len(SIM):]: path for path in sorted(directory.glob(f"*/{SIM}*.json"))}
    missing = [name for name in names if name not in (ALL, *found)]
    if missing or not found:
        raise Error(f"SIMULATED={' '.join(names)}: there is no result of a simulation named "
                    f"{', '.join(missing) or ALL}; there are: {', '.join(found) or 'none'}")
    return found if ALL in names else {name: found[name] for name in names}


def places(root=facts.ROOT):
    """The calibrate.Places of the CPUs that this process may use and that load balancing reaches."""
    isolated = facts.cpus_of(facts.text(f"{facts.CPU}/isolated", root, ""))
    return [place for place in calibrate.places(root)
            if place.cpu in os.sched_getaffinity(0) and place.cpu not in isolated]


def cut(machine, here):
    """The CPUs of the host that stand for those of a machine, in its order: as many sockets, LLCs, cores and
    threads, in as many NUMA nodes. machine: the fields of a kit.vm.machine.Machine; here: of places(). Left
    if the host has too few, or other nodes, or more threads to a core: limits count all of them."""
    threads, cores, llcs = (machine[name] for name in ("threads_per_core", "cores_per_llc", "llcs_per_socket"))
    wanted = f"{machine['sockets']} x {llcs} LLCs of {cores} cores with {threads} threads"
    sockets = {}
    for place in here:
        sockets.setdefault(place.socket, {}).setdefault(place.llc, {}).setdefault(place.core, []).append(place)
    chosen, wide = [], False
    for socket in sockets.values():
        large = []
        for llc in socket.values():
            fit = [core for core in llc.values() if len(core) == threads]
            wide |= any(len(core) > threads for core in llc.values())
            if len(fit) >= cores:
                large.append(fit[:cores])
        if len(large) >= llcs:
            chosen.append(large[:llcs])
    if len(chosen) < machine["sockets"]:
        raise Left(f"the host has no {wanted}" + (
            ": switch SMT off (echo off > /sys/devices/system/cpu/smt/control)" if wide and threads == 1 else ""))
    found = [place for socket in chosen[:machine["sockets"]] for llc in socket for core in llc for place in core]
    nodes = len({place.node for place in found})
    if nodes != machine["numa_nodes"]:
        raise Left(f"{wanted} are in {nodes} NUMA nodes here, and in {machine['numa_nodes']} there")
    return [place.cpu for place in found]


def _check(result, have):
    """Left if a host whose kernel has these features cannot be in the states of a Result."""
    kernels = {what.kernel for what in result.subjects.values()}
    if kernels not in ({"stack"}, {"7.3/base"}):
        raise Left(f"it is of {' and '.join(sorted(kernels))}, not of one kernel that hosts run")
    # Both have llc_balancing/enabled.
    if kernels != {"stack"} and "SCHED_CACHE" in have:
        raise Left("it is of mainline, which does not run")
    if "window_ms" in result.repeat or "CGROUPS=" in result.repeat["command"]:
        raise Left("it has several windows in a boot, or control groups")


def _states(result, have, sched):
    """The (file, value) pairs of each subject of a Result: the stack's features are as they are at boot, what
    else one of the states writes is as it is now, unless the state writes it. Left if this kernel lacks one."""
    written = {name: {knobs.key(file, value): value for file, value in knobs.parse(what.state)}
               for name, what in result.subjects.items()}
    try:
        usual = {key: knobs.value(*key, sched) for writes in written.values() for key in writes}
    except Error as error:
        raise Left(str(error)) from error
    usual |= {(knobs.FEATURES, one.name): one.name if one.default == "on" else f"NO_{one.name}"
              for one in FEATURES if one.name in have}
    return {name: [(file, value) for (file, _), value in {**usual, **writes}.items()]
            for name, writes in written.items()}


def jobs(chosen, path_of_program, here, sched=knobs.SCHED):
    """The Jobs of results, {name: path}, on a host of places(): ([Job], {name: why it is left out})."""
    have, found, left = knobs.features(sched), [], {}
    for name, path in chosen.items():
        try:
            result = store.load(path)
            _check(result, have)
            cpus = ",".join(map(str, cut(result.repeat["machine"], here)))
            states = _states(result, have, sched)
            kind, *arguments = result.repeat["workload"].split(":")
            # Without the names of the row and the program, and the seed.
            words = Task(kind, tuple(arguments), result.repeat["start"]).row(0).split(":")[3:]
            about = result.metrics[result.instrument[len(SIM):]]
        except Left as why:
            left[name] = str(why)
        except (Error, KeyError) as error:
            left[name] = f"no result of make sim: {error}"
        else:
            figure = workloads.Figure("", "", about.unit, about.better, workloads.all_of(r"^([0-9.]+) ", 1))
            command = f"{shlex.quote(str(path_of_program))} {SEED} cpus={cpus} {' '.join(words)}"
            found.append(Job(name, json.loads(path.read_text()), states, workloads.Workload(
                name, f"{name}: {about.title}", command, (), (figure,), SECONDS)))
    return found, left


def result_of(job, machine, repeat, kernel, measured):
    """What was measured of a Job as a store.Result with the simulation's subjects, its own in `details`.
    measured: {subject: [[figure] of each pass]}."""
    metric = job.metric
    about = store.Metric(**job.data["metrics"][metric])
    return store.Result(
        INSTRUMENT, machine, {**repeat, "primary": [metric], "commands": {metric: job.workload.command}},
        {kernel["release"]: kernel}, {metric: about},
        {name: store.Subject(kernel["release"], what["state"], what["against"])
         for name, what in job.data["subjects"].items()},
        {name: {metric: [figures[0] for figures in measured[name]]} for name in job.states},
        {"name": job.name, "simulated": job.data})


def program():
    """The path of guest/workload as a program: the one that was packed, or compiled here. Error without
    either."""
    if PACKED.exists():
        return PACKED
    if not shutil.which("gcc"):
        raise Error("SIMULATED= needs gcc, or a directory that was made where gcc is")
    return compiled(BUILD / "workload")


def compiled(path, *options):
    """Compile guest/workload to a path, with options of gcc; the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sh(["gcc", "-O2", "-pthread", *options, "-o", path, *sorted((GUEST / "workload").glob("*.c"))],
       capture=True, timeout=120)
    return path
