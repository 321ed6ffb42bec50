# SPDX-License-Identifier: GPL-2.0-only
"""Programs that others have written to test schedulers, for make torture: Debian's stress-ng and rt-tests, and
selftests of the kernel itself, with the libraries that they need.

guest/torture/programs.c runs them, by a list in the guest.
"""

import re
import shutil
from pathlib import Path

from kit.process import Error, lock, missing, sh
from kit.vm import initramfs, kernel

# Of stress-ng's class `scheduler`. Left out are those that set SCHED_DEADLINE, with which CPU hotplug divides by zero
# in the base (schedpolicy; cyclic without a policy), that leave next to nothing of the CPUs to all others (softlockup;
# hrtimers, whose real-time tasks take 10 to 20 s to end instead of 1 s, alone in a guest with lockdep, also without the
# patches), that fill the memory of a guest or its table of processes (forkheavy, loadavg, mmapfork, vforkmany), that do
# nothing as root (exec, spawn), and that are about files, faults and the network.
STRESSORS = ("affinity", "clone --clone-max 50", "cyclic --cyclic-policy fifo", "cyclic --cyclic-policy rr", "daemon",
             "eventfd", "exit-group", "fifo", "fork", "futex", "kill", "mq", "msg", "mutex", "nanosleep", "nice", "poll",
             "pthread --pthread-max 32", "race-sched", "resched", "sem", "sem-sysv", "session",
             "sleep --sleep-max 32", "switch", "vfork", "wait", "yield", "zombie --zombie-max 64")
RT_TESTS = ("hackbench --pipe --threads --groups 2 --fds 2 --loops 20", "hackbench --groups 2 --fds 2 --loops 20",
            "pi_stress --quiet --groups 2 --inversions 50",
            "cyclictest --quiet --smp --priority 80 --interval 2000 --loops 100")
# Directory, program and arguments. No CPU may be offline beside two of them: basic_test expects to run on each CPU that
# was online when it began. test_cpuset moves processes to cpusets, of which the base warns if they lose their last CPU,
# and that of 7.3 expects all CPUs in an affinity. Those of rseq with percpu_ops in their name take no argument and more
# than 60 s of a guest with lockdep.
SELFTESTS = (("selftest_alone", "rseq", "basic_test"),
             ("selftest", "rseq", "param_test -T s -r 100 -t 4"),
             ("selftest", "rseq", "param_test_mm_cid -T m -r 100 -t 4"),
             ("selftest", "membarrier", "membarrier_test_single_thread"),
             ("selftest", "membarrier", "membarrier_test_multi_thread"),
             ("selftest_alone", "cgroup", "test_cpuset"))
TARGETS = tuple(dict.fromkeys(directory for _, directory, _ in SELFTESTS))
# Of stress-ng, for each stressor.
PROCESSES = 2
TIMEOUT = 600


def stressors():
    """The command lines of stress-ng. Error if it is not installed."""
    return [f"{_program('stress-ng')} --temp-path /tmp --timeout 1 --{name} {PROCESSES} {options}".rstrip()
            for name, _, options in (line.partition(" ") for line in STRESSORS)]


def files(which):
    """The programs for a guest with a kernel, their libraries and the list of them: {path in the guest without
    the first slash: path here}. Builds the selftests. Error if a package is missing, or if the kernel lacks
    a selftest."""
    lines = [f"stress_ng /tmp {line}" for line in stressors()]
    lines += [f"rt_tests /tmp {_program(line.split()[0])} {line.split(maxsplit=1)[1]}" for line in RT_TESTS]
    lines += [f"{kind} /programs/{directory} ./{line}" for kind, directory, line in SELFTESTS]
    # In the same order in each run: it decides where the guest's memory has what.
    found = {path.lstrip("/"): Path(path) for path in sorted({line.split()[2] for line in lines if " /tmp " in line})}
    out = initramfs.work_of(which) / "programs"
    with lock(out.with_name("programs.lock")):
        selftests = _selftests(which, out)
        found["programs/list"] = out / "list"
        found["programs/list"].write_text("\n".join(lines) + "\n", encoding="utf-8")
    wanted = {f"{directory}/{line.split()[0]}" for _, directory, line in SELFTESTS} | {"rseq/librseq.so"}
    for name in sorted(wanted):
        found[f"programs/{name}"] = selftests / name
        if not (selftests / name).exists():
            raise Error(f"the kernel of BUILD={which} has no selftest {name}: SELFTESTS in kit/trials/programs.py has it")
    programs = [path for name, path in found.items() if name != "programs/list"]
    return found | libraries(programs)


def _program(name):
    found = shutil.which(name)
    if not found:
        raise Error(missing(name))
    return Path(found)


def _selftests(which, out):
    """Build and install the kernel's selftests; return the directory with them."""
    out.mkdir(parents=True, exist_ok=True)
    # Debian's headers are older than the tests.
    sh(["make", "-s", "-C", kernel.source_dir(which), f"O={out}/headers", "ARCH=x86", "headers"],
       log=out / "headers.log", timeout=TIMEOUT)
    return initramfs.install_selftests(which, out, TARGETS, (f"KHDR_INCLUDES=-isystem {out}/headers/usr/include",))


def libraries(programs):
    """The libraries that dynamic programs need, as files() gives its own."""
    found = set(re.findall(r"(?<!\S)(/\S+) \(0x", sh(["ldd", *programs], capture=True).out))
    return {path.lstrip("/"): Path(path) for path in sorted(found)}
