# SPDX-License-Identifier: GPL-2.0-only
"""What a host is and how it is set up, as far as it matters to what the scheduler does; and whether
it is quiet enough to measure on. All paths are below `root`, which the tests fake."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
CPU = "sys/devices/system/cpu"
# What others may use of the host's CPUs: this share of all, and on small hosts this of one CPU.
QUIET_SHARE = 0.005
QUIET_CPUS = 0.1


@dataclass(frozen=True)
class Shape:
    """What the sizes of workloads are scaled to: CPUs online, and of one LLC."""
    cpus: int
    llc_cpus: int


def text(path, root=ROOT, otherwise="-"):
    """Give what is in a file, on one line; `otherwise` if it cannot be read."""
    try:
        return " ".join((root / path).read_text(errors="replace").split())
    except OSError:
        return otherwise


def cpus_of(ranges):
    """Give the CPUs of a list as the kernel writes it: 0-3,8."""
    found = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def topology(root=ROOT):
    """Give {packages, cores, cpus, nodes, llcs, llc_cpus, llc_size} of the CPUs that are online.
    llcs are the caches of the highest level that a file names; without any, the packages."""
    online = cpus_of(text(f"{CPU}/online", root, "0"))
    packages, cores, llcs = {}, set(), {}
    for cpu in online:
        where = f"{CPU}/cpu{cpu}"
        package = text(f"{where}/topology/physical_package_id", root, "0")
        packages.setdefault(package, []).append(cpu)
        cores.add(text(f"{where}/topology/core_cpus_list", root, str(cpu)))
        caches = {}
        for index in sorted((root / where / "cache").glob("index[0-9]*")):
            if text(index / "type", root) != "Instruction":
                caches[int(text(index / "level", root, "0"))] = index
        if caches and max(caches) >= 2:
            last = caches[max(caches)]
            llcs[text(last / "shared_cpu_list", root)] = text(last / "size", root)
    if not llcs:
        llcs = {",".join(map(str, cpus)): "-" for cpus in packages.values()}
    nodes = [node for node in (root / "sys/devices/system/node").glob("node[0-9]*")
             if cpus_of(text(node / "cpulist", root, ""))]
    sizes = [len(set(cpus_of(ranges)) & set(online)) for ranges in llcs]
    return {"packages": len(packages), "nodes": max(len(nodes), 1), "llcs": len(llcs),
            "cores": len(cores), "cpus": len(online), "llc_cpus": max(sizes),
            "llc_size": " ".join(sorted(set(llcs.values())))}


def shape(root=ROOT):
    """Give the Shape of the host."""
    found = topology(root)
    return Shape(found["cpus"], found["llc_cpus"])


def gather(root=ROOT):
    """Give all facts, {name: text or number}; "-" for what the host does not tell."""
    cpuinfo = "/proc/cpuinfo"
    try:
        fields = dict(re.findall(r"^([^\t:\n]+?)\s*: (.*)$",
                                 (root / cpuinfo[1:]).read_text(errors="replace"), re.M))
    except OSError:
        fields = {}
    meminfo = re.search(r"MemTotal:\s+(\d+) kB", text("proc/meminfo", root))
    found = topology(root)
    cpufreq = sorted((root / CPU).glob("cpu[0-9]*/cpufreq"))
    boost = text(f"{CPU}/cpufreq/boost", root)
    if boost == "-":
        turbo = text(f"{CPU}/intel_pstate/no_turbo", root)
        boost = {"0": "1", "1": "0"}.get(turbo, "-")
    return {
        "cpu": fields.get("model name", "-"),
        "microcode": fields.get("microcode", "-"),
        "virtual": "yes" if "hypervisor" in fields.get("flags", "").split() else "no",
        "memory_mib": int(meminfo[1]) // 1024 if meminfo else 0,
        **found,
        # NPS on AMD, SNC on Intel.
        "nodes_per_socket": found["nodes"] / found["packages"],
        "smt": text(f"{CPU}/smt/control", root),
        "isolated": text(f"{CPU}/isolated", root, "") or "none",
        "driver": _all(text(path / "scaling_driver", root) for path in cpufreq),
        "governor": _all(text(path / "scaling_governor", root) for path in cpufreq),
        "preference": _all(text(path / "energy_performance_preference", root) for path in cpufreq),
        "boost": boost,
        "idle": text(f"{CPU}/cpuidle/current_driver", root),
        "mitigations": {path.name: text(path, root) for path in
                        sorted((root / CPU / "vulnerabilities").glob("*"))
                        if text(path, root) != "Not affected"},
        "numa_balancing": text("proc/sys/kernel/numa_balancing", root),
        "thp": _chosen(text("sys/kernel/mm/transparent_hugepage/enabled", root)),
        "preempt": _chosen(text("sys/kernel/debug/sched/preempt", root)),
        "base_slice_ns": text("sys/kernel/debug/sched/base_slice_ns", root),
        "clocksource": text("sys/devices/system/clocksource/clocksource0/current_clocksource",
                            root),
        "cmdline": text("proc/cmdline", root),
        "boot": text("proc/sys/kernel/random/boot_id", root),
    }


def _all(texts):
    """Give what all say, or all there is to say."""
    return " ".join(sorted(set(texts))) or "-"


def _chosen(choices):
    """Give the [one] in brackets of a list of choices."""
    found = re.search(r"[\[(](\S+?)[\])]", choices)
    return found[1] if found else choices


def kernel(root=ROOT, uname=None):
    """Give what says which kernel runs: release, version, SHA-256 of its configuration, and the git
    tree of the stack that its release names, "-" without one."""
    uname = uname or os.uname()
    try:
        config = gzip.decompress((root / "proc/config.gz").read_bytes())
    except OSError:
        try:
            config = (root / f"boot/config-{uname.release}").read_bytes()
        except OSError:
            config = None
    tree = re.search(r"-cachetopo-(?:[a-z]+-)?(?:[0-9.]+-)?([0-9a-f]{12}(?:-dirty)?)", uname.release)
    return {"release": uname.release, "source": uname.version,
            "config": hashlib.sha256(config).hexdigest() if config else "-",
            "stack": tree[1] if tree else "-"}


def name(facts):
    """Give what to call a host in results/: its CPU, sockets and NUMA nodes."""
    cpu = re.sub(r"\((r|tm)\)|@.*|\d+-core|processor|\bcpu\b", " ", facts["cpu"].lower())
    cpu = re.sub(r"[^a-z0-9]+", "-", cpu).strip("-") or "host"
    smt = "-nosmt" if facts["smt"] in ("off", "forceoff") else ""
    virtual = "-vm" if facts["virtual"] == "yes" else ""
    return f"{cpu}-{facts['packages']}s-{facts['nodes']}n{smt}{virtual}"


def warnings(facts):
    """Give what about a host makes figures vary, or not hold elsewhere, a line each."""
    return [words for wrong, words in (
        (facts["virtual"] == "yes",
         "it is a virtual machine: others share its CPUs, and its caches may not be what it sees"),
        (facts["governor"] not in ("-", "performance"),
         f"the cpufreq governor is {facts['governor']}, not performance"),
        (facts["boost"] == "1", "boost is on: frequency depends on temperature and load"),
        (facts["isolated"] != "none", f"CPUs {facts['isolated']} are isolated"),
        (facts["llcs"] == 1, "it has one LLC: nothing here can gain by choosing between several"),
    ) if wrong]


def _ticks(root):
    """Give (ticks in which CPUs did something, those that a hypervisor took, all ticks)."""
    numbers = [int(word) for word in text("proc/stat", root).split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = numbers
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + steal + idle + iowait


def _spent(root):
    """Give {process: (its name, the ticks it has used)}."""
    found = {}
    for path in (root / "proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text(errors="replace")
        except OSError:
            continue
        fields = words.rpartition(")")[2].split()
        found[path.parent.name] = (words.partition("(")[2].rpartition(")")[0],
                                   int(fields[11]) + int(fields[12]))
    return found


def busy(seconds, root=ROOT, sleep=time.sleep):
    """Watch the host while we do nothing; give (CPUs that others kept busy, CPUs whose time a
    hypervisor took, names of the busiest processes)."""
    before, spent = _ticks(root), _spent(root)
    sleep(seconds)
    used, steal, total = (after - then for then, after in zip(before, _ticks(root)))
    cpus = len(cpus_of(text(f"{CPU}/online", root, "0")))
    grown = sorted(((ticks - spent.get(pid, ("", 0))[1], name_)
                    for pid, (name_, ticks) in _spent(root).items()), reverse=True)
    names = [name_ for ticks, name_ in grown[:3] if ticks > 0]
    return (used / total * cpus, steal / total * cpus, names) if total > 0 else (0.0, 0.0, names)


def limit(cpus):
    """Give how many CPUs others may keep busy on a quiet host."""
    return max(QUIET_SHARE * cpus, QUIET_CPUS)
