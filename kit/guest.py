# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel in QEMU with an initramfs of our own, run a job in it, and say what came of it.

The console is ttyS0. What the job prints goes to ttyS1, and guest/init ends that with a line
"END <status>". A run without that line, or with a splat on the console, has failed.
"""

import os
import shlex
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kit import kernel, ktap, machine, qemu, splats
from kit.paths import GUEST, LAYOUT
from kit.run import Error, kill_group, lock, say, sh

POLL_SECONDS = 0.2
# How long a guest that panicked, or said END, may take to switch itself off.
OFF_SECONDS = 20
LAST_LINES = 25

# The guest's clock counts instructions, each of 2^shift ns, and all CPUs take turns. So time in the
# guest does not depend on how busy the host is. Idle time is skipped, but not for a person, to
# whom time should pass as it does outside.
CLOCK = "shift=2,sleep=off"
COST_CLOCK = "shift=0,sleep=off"
# With it and _repeatable() the same kernel and job give the same figures, to the last instruction:
# nothing in the guest is random or comes from the host.
COST_KERNEL_ARGS = ["norandmaps"]
SHELL_CLOCK = "shift=2,sleep=on"

# With many CPUs one may wait long for its turn. The lockup detectors get limits that only what
# really stands still reaches.
KERNEL_ARGS = ("console=ttyS0 printk.time=1 panic=-1 oops=panic nokaslr mitigations=off "
               "tsc=reliable rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60").split()
# By such a clock the TSC runs at 1 GHz: 4,000,000 in a jiffy of 4 ms. Measuring that would take each
# CPU 75 ms, during which it counts instructions.
CLOCK_KERNEL_ARGS = ["lpj=4000000"]

# In place of a BUILD's initramfs: one that is the same for all of them, with what the simulation runs.
SMALL = "sim"

SELFTEST_SECONDS = 1200
STRESS_SECONDS = 900
STRESS_TOGGLES = 500
SOAK_SECONDS = 5400
# How long to watch what should be steady, in seconds of the guest's.
SOAK_WATCH_SECONDS = 300


@dataclass(frozen=True)
class Simulated:
    """What a guest runs on in the simulation: QEMU's model of CPU, the plugin with its options, and
    the seed of what is random in the guest."""
    cpu: str
    plugin: str
    seed: int


@dataclass
class Result:
    """What came of a run.

    console, ktap: the text of ttyS0 and ttyS1; seconds: from QEMU's start to its end; ended: the
    END line was there; status: the one it gives, -1 without it; splats: see kit.splats.find();
    problems: a line for each thing that was wrong with the run itself, whatever the job printed.
    """
    console: str
    ktap: str
    seconds: float
    ended: bool
    status: int
    splats: list = field(default_factory=list)
    problems: list = field(default_factory=list)

    def failures(self):
        """Give what makes the run a failure, one str each; empty if nothing does."""
        return self.problems + [f"the kernel complained:\n{splat}" for splat in self.splats]


def command(args):
    """Run `shell`, `selftest`, `stress` or `soak` for kit.__main__; give the exit status."""
    m = machine.load(args.machine)
    kernel.build(args.build)
    if args.command == "shell":
        return shell(m, args.build)
    job = {"selftest": selftest, "stress": stress, "soak": soak}[args.command]
    result = job(m, args.build, follow=say)
    tests = ktap.parse(result.ktap)
    bad = result.failures() + tests.failures()
    for line in bad:
        print(line, file=sys.stderr)
    say(f"{args.command} on {m.name}: {tests.summary()}, {result.seconds:.0f} s: "
        f"{'FAILED' if bad else 'all well'}")
    return 1 if bad else 0


def selftest(m, build, kernel_args=(), follow=None, stop=None):
    """Run all of the stack's kernel selftests on a Machine, the kernel booted with `kernel_args`
    too; give a Result. Setting `stop`, a threading.Event, ends the run."""
    groups = ",".join(f"{cpu.cpu}:{cpu.group}" for cpu in m.expected())
    return run(m, build, "selftest", {"SCHED_EXPECTED_GROUPS": groups},
               timeout=SELFTEST_SECONDS, kernel_args=kernel_args, follow=follow, stop=stop)


def stress(m, build, follow=None):
    """Toggle the features under load while CPUs come and go, on a Machine; give a Result."""
    return run(m, build, "stress", {"TOGGLES": STRESS_TOGGLES, "HOTPLUG": 1},
               timeout=STRESS_SECONDS, follow=follow)


def soak(m, build, follow=None):
    """Compare workloads with and without gathering, and watch for minutes that nothing goes back
    and forth, on a Machine; give a Result."""
    return run(m, build, "soak", {"SCHED_CACHE_AB_SECONDS": SOAK_WATCH_SECONDS},
               timeout=SOAK_SECONDS, follow=follow)


def shell(m, build):
    """Give the user a prompt in a guest, on this terminal, until it is left; give 0."""
    size = shutil.get_terminal_size()
    initrd = _initrd(f"{m.name}-shell", build, {"COLUMNS": size.columns, "LINES": size.lines})
    args, env = _qemu_command(m, build, "shell", initrd, SHELL_CLOCK)
    say(f"{m.name} boots; leave the guest with `poweroff -f`, or end QEMU with Ctrl-A x")
    # In this process group, or it could not read from the terminal.
    done = subprocess.run([*args, "-serial", "mon:stdio", "-serial", "null"],
                          env=os.environ | env, check=False)
    if done.returncode:
        raise Error(f"QEMU ended with status {done.returncode}")
    return 0


def run(m, build, job, env=None, timeout=300, icount=False, userland=None, kernel_args=(),
        qemu_extra=(), follow=None, stop=None, name=None, files=None, simulated=None):
    """Boot the kernel of a BUILD on a Machine and run guest/jobs/JOB.sh in it; give a Result.

    env         variables for the job
    timeout     seconds after which QEMU is killed
    icount      let an instruction take 1 ns of the guest's time, so that its clock counts them
    userland    the BUILD whose initramfs the guest gets, if it is not that of its kernel, or SMALL
    kernel_args, qemu_extra  further arguments for the kernel and for QEMU
    follow      called with each line of ttyS1 as it comes
    stop        a threading.Event that ends the run when it is set
    name        of the run's files, where there are several runs of a job
    files       what else the guest is to have, {path there without the first slash: path here}
    simulated   a Simulated that the guest's time is to come from, and not from a clock of QEMU's

    The console and ttyS1 stay under guest/runs/ in the build directory. Error if there is no
    kernel or QEMU does not start.
    """
    runs = LAYOUT.work / "guest" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    name = name or f"{m.name}-{build}-{job}"
    # Runs of the same name take turns: their files are the same.
    with lock(runs / f"{name}.lock"):
        console, stream = _Port(runs / f"{name}.console"), _Port(runs / f"{name}.ktap")
        initrd = _initrd(name, userland or build, env or {}, files or {})
        args, qemu_env = _qemu_command(m, build, job, initrd, COST_CLOCK if icount else CLOCK,
                                       [*(COST_KERNEL_ARGS if icount else []), *kernel_args],
                                       simulated)
        args += [*(_repeatable(1) if icount else []), "-serial", f"file:{console.path}",
                 "-serial", f"file:{stream.path}", *qemu_extra]
        problems = []
        begin = time.monotonic()
        said = runs / f"{name}.qemu"
        with open(said, "w", encoding="utf-8") as output:
            proc = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=subprocess.STDOUT, start_new_session=True,
                                    env=os.environ | qemu_env)
            try:
                _watch(proc, console, stream, begin + timeout, problems, follow, stop)
                by_itself = proc.poll()
            finally:
                kill_group(proc)
        seconds = time.monotonic() - begin
        found = splats.find(console.read())
        parsed = ktap.parse(stream.read())
        ended = parsed.status is not None
        if by_itself:
            # A model of CPU has more than QEMU can do, which it says for each CPU.
            lines = [line for line in said.read_text().splitlines()
                     if "TCG doesn't support requested feature" not in line]
            raise Error("\n".join([f"QEMU ended with status {by_itself}:", *lines]))
        if not ended and not problems:
            problems.append("the guest stopped before END")
        if not ended:
            last = console.read().splitlines()[-LAST_LINES:]
            problems[-1] = "\n".join([problems[-1] + "; last on the console:",
                                      *("  " + line for line in last)])
        return Result(console.read(), stream.read(), seconds, ended,
                      parsed.status if ended else -1, found, problems)


class _Port:
    """A serial port of the guest: a file that QEMU writes and we read as it grows."""

    def __init__(self, path):
        self.path = path
        self.path.write_bytes(b"")
        self.offset = 0

    def lines(self):
        """Give the complete lines that came since the last call."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data[:data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return whole.decode(errors="replace").replace("\r", "").splitlines()

    def read(self):
        """Give all of the text, lines ending in \\n only."""
        return self.path.read_bytes().decode(errors="replace").replace("\r", "")


def _watch(proc, console, stream, deadline, problems, follow, stop):
    """Wait until QEMU ends, or has to be ended: what for is added to problems."""
    limit, reason = deadline, "no END: the guest ran out of time"
    while proc.poll() is None:
        if time.monotonic() > limit:
            problems.append(reason)
            return
        if stop and stop.is_set():
            problems.append("the run was stopped")
            return
        time.sleep(POLL_SECONDS)
        for line in console.lines():
            if splats.is_panic(line):
                limit = min(limit, time.monotonic() + OFF_SECONDS)
                reason = "the guest panicked and did not stop by itself"
        for line in stream.lines():
            if follow:
                follow(line)
            if line.startswith("END "):
                limit = min(limit, time.monotonic() + OFF_SECONDS)
                reason = "the guest said END and did not switch itself off"


def _repeatable(seed):
    """QEMU's arguments with which nothing comes from the host that is different each time."""
    return ["-seed", str(seed), "-rtc", "base=2026-01-01,clock=vm"]


def _qemu_command(m, build, job, initrd, clock, kernel_args=(), simulated=None):
    """Give (QEMU's arguments but for the serial ports, environment variables to add)."""
    image = LAYOUT.out(build) / "arch/x86/boot/bzImage"
    if not image.exists():
        raise Error(f"there is no {image}: make kernel BUILD={build}")
    program = qemu.find(m.needs_smp_cache)
    accel, clock_args = ["-accel", "tcg,thread=multi"], []
    if program.fair or clock == COST_CLOCK:
        accel, clock_args = ["-accel", "tcg", "-icount", clock], CLOCK_KERNEL_ARGS
    if simulated:
        # Room for what is translated, so that it is not forgotten halfway.
        accel, clock_args = ["-accel", "tcg,thread=single,tb-size=512"], []
        accel += ["-plugin", simulated.plugin, *_repeatable(simulated.seed)]
    append = " ".join([*KERNEL_ARGS, *clock_args, *m.kernel_args(), *kernel_args, f"kit.job={job}"])
    # QEMU dies with us, also if we are killed and cannot see to it.
    return (["setpriv", "--pdeathsig", "KILL", *program.command,
             *m.qemu_args(simulated and simulated.cpu), *accel,
             "-nodefaults", "-display", "none", "-no-reboot", "-kernel", str(image),
             "-initrd", str(initrd), "-append", append], program.env)


def _initrd(name, build, env, files=None):
    """Write the initrd of one run, the build's with a file of variables and further files; give its
    path."""
    lines = [f"export {key}={shlex.quote(str(value))}\n" for key, value in env.items()]
    archive = _Archive()
    archive.file("env", "".join(lines).encode())
    files = files or {}
    for directory in sorted({str(above) for there in files for above in Path(there).parents}):
        archive.directory(directory)
    for there, here in files.items():
        archive.file(there, here.read_bytes(), stat.S_IMODE(here.stat().st_mode))
    path = LAYOUT.work / "guest" / "runs" / f"{name}.initrd"
    path.parent.mkdir(parents=True, exist_ok=True)
    # The kernel takes archives one after the other.
    path.write_bytes(initramfs(build) + archive.bytes())
    return path


@cache
def initramfs(build):
    """Make the initramfs of a BUILD: busybox, guest/ and the kernel selftests; or SMALL. Give its
    bytes, the same throughout a run of python."""
    busybox = shutil.which("busybox")
    if not busybox:
        raise Error("busybox is not installed: make deps")
    out = LAYOUT.work / "guest" / build
    out.mkdir(parents=True, exist_ok=True)
    archive = _Archive()
    for name in ("bin", "dev", "proc", "sys", "tmp", "jobs"):
        archive.directory(name)
    archive.device("dev/console", 5, 1)
    archive.file("bin/busybox", _static(busybox), 0o755)
    archive.symlink("bin/sh", "busybox")
    archive.file("init", (GUEST / "init").read_bytes(), 0o755)
    archive.file("lib.sh", (GUEST / "lib.sh").read_bytes())
    for job in sorted((GUEST / "jobs").glob("sim.sh" if build == SMALL else "*.sh")):
        archive.file(f"jobs/{job.name}", job.read_bytes(), 0o755)
    for source in sorted(GUEST.glob("workload.c" if build == SMALL else "*.c")):
        archive.file(f"bin/{source.stem}", _compile(source, out).read_bytes(), 0o755)
    # The base's selftests/sched cannot be installed with O=, which the stack's first patch mends.
    if build not in ("base", SMALL):
        with lock(out / "lock"):
            _add_tree(archive, "selftests", _selftests(build, out))
    return archive.bytes()


def _static(busybox):
    data = open(busybox, "rb").read()
    if b"/lib64/ld-linux" in data:
        raise Error(f"{busybox} is not static; Debian's package is busybox-static: make deps")
    return data


def _compile(source, out):
    """Compile one program of guest/ for the guest, if it changed; give the program's path."""
    program = out / source.stem
    newest = max(path.stat().st_mtime for path in [source, *GUEST.glob("*.h")])
    if not program.exists() or program.stat().st_mtime < newest:
        sh(["gcc", "-O2", "-Wall", "-Wextra", "-static", "-pthread", "-o", program, source],
           timeout=120, capture=True)
    return program


def _selftests(build, out):
    """Install the selftests that the stack adds to or mends; give the directory."""
    installed = out / "selftests"
    shutil.rmtree(installed, ignore_errors=True)
    log = out / "selftests.log"
    log.unlink(missing_ok=True)
    sh(["make", "-C", LAYOUT.source(build) / "tools/testing/selftests", f"O={out}",
        "TARGETS=sched", "FORCE_TARGETS=1", "USERLDFLAGS=-static", f"INSTALL_PATH={installed}",
        "install"], log=log, timeout=300)
    return installed


def _add_tree(archive, name, path):
    archive.directory(name)
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            _add_tree(archive, f"{name}/{entry.name}", entry)
        else:
            mode = stat.S_IMODE(entry.stat().st_mode)
            archive.file(f"{name}/{entry.name}", entry.read_bytes(), mode)


class _Archive:
    """A cpio archive in the format that the kernel unpacks (newc). Not compressed: unpacking
    takes an emulated CPU longer than loading."""

    def __init__(self):
        self.parts = []
        self.inode = 0

    def directory(self, name):
        self._add(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o644):
        self._add(name, stat.S_IFREG | mode, data)

    def symlink(self, name, target):
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name, major, minor):
        self._add(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def bytes(self):
        """Give the archive, ended; nothing can be added after."""
        self._add("TRAILER!!!", 0)
        return b"".join(self.parts)

    def _add(self, name, mode, data=b"", device=(0, 0)):
        self.inode += 1
        encoded = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        header = b"070701" + "".join(f"{field:08x}" for field in fields).encode()
        self.parts += [_padded(header + encoded), _padded(data)]


def _padded(data):
    return data + bytes(-len(data) % 4)
