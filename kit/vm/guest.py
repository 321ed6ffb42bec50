# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel in QEMU with an initramfs, run a job in the guest, and report the result.

The console is ttyS0. The job's output goes to ttyS1, and guest/init ends it with a line
"END <status>". A run without that line, or with a splat on the console, has failed.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from kit.paths import GUEST
from kit.process import Error, kill_group, lock, say
from kit.vm import initramfs, kcsan, kernel, ktap, machine, qemu, splats

POLL_SECONDS = 0.2
# Seconds that a guest may take to power off after a panic or END. A simulated one of 32 CPUs took over 20 on a busy host.
OFF_SECONDS = 90
# The kernel's last message.
POWERED_OFF = "reboot: Power down"
LAST_LINES, LAST_PRINTED = 25, 10

# The guest's clock counts instructions of 2^shift ns, and the CPUs take turns on one thread: time in
# the guest does not depend on the load of the host. Idle time is skipped, except at a prompt, where
# time passes as it does outside.
CLOCK = "shift=2,sleep=off"
COST_CLOCK = "shift=0,sleep=off"
# With this and repeatable(), nothing in the guest is random or comes from the host: the same kernel
# and job give the same figures to the last instruction.
COST_KERNEL_ARGS = ["norandmaps"]
SHELL_CLOCK = "shift=2,sleep=on"

# With many CPUs, a CPU waits long for its turn. Raise the limits of the lockup detectors so that
# only a real lockup reaches them.
KERNEL_ARGS = ("console=ttyS0 printk.time=1 panic=-1 oops=panic nokaslr mitigations=off "
               "tsc=reliable rcupdate.rcu_cpu_stall_timeout=120 watchdog_thresh=60").split()
# With this clock the TSC runs at 1 GHz: 4,000,000 cycles in a jiffy of 4 ms. Calibration would take
# each CPU 75 ms of counted instructions.
CLOCK_KERNEL_ARGS = ["lpj=4000000"]

SELFTEST_SECONDS = 1200
STRESS_SECONDS = 900
STRESS_TOGGLES = 500
SOAK_SECONDS = 5400
# How long the soak watches for flip-flopping, in seconds of the guest's clock.
SOAK_WATCH_SECONDS = 300


@dataclass(frozen=True)
class Simulated:
    """How a guest of the simulation runs: QEMU's CPU model, the plugin with its options, and the
    seed of QEMU's random numbers."""
    cpu: str
    plugin: str
    seed: int


@dataclass
class Result:
    """The result of a run.

    console, ktap: the text of ttyS0 and ttyS1; seconds: wall time from QEMU's start to its end;
    ended: whether the END line came; status: the job's exit status, -1 without an END line; splats:
    see kit.vm.splats.find(); problems: failures of the run itself, whatever the job printed; elsewhere: the
    titles of reports of data races that are not in our code, which are no failures.
    """
    console: str
    ktap: str
    seconds: float
    ended: bool
    status: int
    splats: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    elsewhere: list = field(default_factory=list)

    def failures(self):
        """Return the reasons why the run failed; empty if it did not."""
        return self.problems + [f"splat on the console:\n{splat}" for splat in self.splats]

    def check(self, what, tests, wrong=()):
        """Error that names `what` if the run or one of its tests, ktap.Results, failed, or something else is wrong."""
        wrong = self.failures() + tests.failures() or wrong
        if wrong:
            raise Error("\n".join([f"{what}:", *wrong, *self.ktap.splitlines()[-LAST_PRINTED:]]))


def command(settings):
    """Run `shell`, `selftest`, `stress` or `soak` for kit.__main__; return the exit status."""
    m, which = machine.load(settings["MACHINE"]), kernel.named(settings.series, settings["BUILD"])
    kernel.build(which)
    if settings.command == "shell":
        return shell(m, which)
    job = {"selftest": selftest, "stress": stress, "soak": soak}[settings.command]
    return conclude(f"{settings.command} on {m.name}", job(m, which, follow=say))


def conclude(what, result) -> int:
    """Print what failed of a Result, and on one line how `what` ended; the exit status."""
    tests = ktap.parse(result.ktap)
    bad = result.failures() + tests.failures()
    for line in bad:
        print(line, file=sys.stderr)
    say(f"{what}: {tests.summary()}, {result.seconds:.0f} s{kcsan.summary(result.elsewhere)}:"
        f" {'FAILED' if bad else 'passed'}")
    return 1 if bad else 0


def selftest(m, which, kernel_args=(), names=(), follow=None):
    """Run kernel selftests of the series on a Machine; return a Result. kernel_args: further arguments
    for the kernel; names: the selftests, none for all."""
    groups = ",".join(f"{cpu.cpu}:{cpu.l2}" for cpu in m.expected())
    return run(m, which, "selftest", {"SCHED_EXPECTED_GROUPS": groups, "NAMES": " ".join(names)},
               timeout=SELFTEST_SECONDS, kernel_args=kernel_args, follow=follow)


def stress(m, which, follow=None):
    """Toggle the features under load and CPU hotplug on a Machine; return a Result."""
    return run(m, which, "stress", {"TOGGLES": STRESS_TOGGLES, "HOTPLUG": 1},
               timeout=STRESS_SECONDS, follow=follow)


def soak(m, which, follow=None):
    """Compare workloads with and without aggregation on a Machine, then watch for some minutes that
    no task moves back and forth; return a Result."""
    # It starts threads, and asks where they are, as the selftests do.
    program = initramfs.compiled(GUEST / "soak", initramfs.work_of(which),
                                 kernel.source_dir(which) / "tools/testing/selftests/sched")
    return run(m, which, "soak", {"WATCH_SECONDS": SOAK_WATCH_SECONDS},
               timeout=SOAK_SECONDS, follow=follow, files={"bin/soak": program})


def shell(m, which):
    """Run an interactive shell in a guest on this terminal; return 0 when the guest ends."""
    size = shutil.get_terminal_size()
    initrd = initramfs.write(f"{m.name}-shell", which, {"COLUMNS": size.columns, "LINES": size.lines})
    args, env = _qemu_command(m, which, "shell", initrd, SHELL_CLOCK)
    say(f"booting {m.name}; end the guest with `poweroff -f`, or QEMU with Ctrl-A x")
    # Stay in this process group: another one could not read from the terminal.
    done = subprocess.run([*args, "-serial", "mon:stdio", "-serial", "null"],
                          env=os.environ | env, check=False)
    if done.returncode:
        raise Error(f"QEMU ended with status {done.returncode}")
    return 0


def run(m, which, job, env=None, timeout=300, icount=False, userland=None, kernel_args=(),
        qemu_extra=(), follow=None, stop=None, name=None, files=None, simulated=None):
    """Boot a Kernel on a Machine and run guest/jobs/JOB.sh; return a Result.

    env         variables for the job
    timeout     seconds after which QEMU is killed
    icount      one instruction takes 1 ns of guest time, and nothing is random
    userland    the Kernel whose initramfs the guest gets (default: its own), or initramfs.small()
    kernel_args, qemu_extra  further arguments for the kernel and for QEMU
    follow      called with each line of ttyS1 as it comes
    stop        a threading.Event that ends the run when it is set
    name        base name of the run's files (default: from the machine, kernel and job)
    files       further files for the guest, {path in the guest without the first slash: path here}
    simulated   a Simulated: the plugin provides the guest's time in place of QEMU

    The text of the console and of ttyS1 stays under guest/runs/ in the build directory. Error if
    the kernel is not built or QEMU does not start.
    """
    runs = which.series.work / "guest" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    name = (name or f"{m.name}-{which}-{job}").replace("/", "-")
    # Runs of the same name use the same files, so they take turns.
    with lock(runs / f"{name}.lock"):
        initrd = initramfs.write(name, userland or which, env or {}, files or {})
        args, qemu_env = _qemu_command(m, which, job, initrd, COST_CLOCK if icount else CLOCK,
                                       [*(COST_KERNEL_ARGS if icount else []), *kernel_args],
                                       simulated)
        args += [*(repeatable(1) if icount else []), *qemu_extra]
        result = watch(args, qemu_env, runs / name, timeout, follow, stop)
    if which.how.kcsan:
        result.splats, result.elsewhere = kcsan.sort(kcsan.Source(which), result.splats)
    return result


def watch(args, env, where, timeout, follow=None, stop=None):
    """Run QEMU with `args` and two serial ports until the guest powers off; return a Result.

    env: variables to add to the environment; where: path of the run's files, without suffix; timeout,
    follow, stop: as for run(). Error if QEMU does not start.
    """
    console, stream = _Port(Path(f"{where}.console")), _Port(Path(f"{where}.ktap"))
    args = [*args, "-serial", f"file:{console.path}", "-serial", f"file:{stream.path}"]
    problems = []
    begin = time.monotonic()
    said = Path(f"{where}.qemu")
    with open(said, "w", encoding="utf-8") as output:
        proc = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=output,
                                stderr=subprocess.STDOUT, start_new_session=True,
                                env=os.environ | env)
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
        # QEMU warns, for each CPU, of features of the CPU model that TCG does not emulate.
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
    """A serial port of the guest: a file that QEMU appends to and that is read as it grows."""

    def __init__(self, path):
        self.path = path
        self.path.write_bytes(b"")
        self.offset = 0

    def lines(self):
        """Return the complete lines that arrived since the last call."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data[:data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return whole.decode(errors="replace").replace("\r", "").splitlines()

    def read(self):
        """Return the whole text, with \\n as the only line end."""
        return self.path.read_bytes().decode(errors="replace").replace("\r", "")


def _watch(proc, console, stream, deadline, problems, follow, stop):
    """Wait until QEMU ends or must be ended; in the latter case add the reason to `problems`. QEMU with the
    simulation's plugin has gone on after a guest had powered off, twice on a busy host: no problem of the guest."""
    limit, reason, end = deadline, "no END: the guest exceeded its time limit", False
    while proc.poll() is None:
        if time.monotonic() > limit:
            if end and POWERED_OFF in console.read():
                say(f"{console.path}: the guest has powered off, and QEMU has not ended {OFF_SECONDS} s later")
            else:
                problems.append(reason)
            return
        if stop and stop.is_set():
            problems.append("the run was stopped")
            return
        time.sleep(POLL_SECONDS)
        for line in console.lines():
            if splats.is_panic(line):
                limit = min(limit, time.monotonic() + OFF_SECONDS)
                reason = "the guest panicked and did not power off"
        for line in stream.lines():
            if follow:
                follow(line)
            if line.startswith("END "):
                end = True
                limit = min(limit, time.monotonic() + OFF_SECONDS)
                reason = "the guest printed END and did not power off"


def repeatable(seed):
    """QEMU's arguments with which nothing that varies comes from the host."""
    return ["-seed", str(seed), "-rtc", "base=2026-01-01,clock=vm"]


def _qemu_command(m, which, job, initrd, clock, kernel_args=(), simulated=None):
    """Return (QEMU's arguments without the serial ports, environment variables to add)."""
    image = which.image
    if not image.exists():
        raise Error(f"there is no {image}: make kernel BUILD={which}")
    program = qemu.find(which.series.build)
    accel, clock_args = ["-accel", "tcg", "-icount", clock], CLOCK_KERNEL_ARGS
    if which.how.parallel:
        accel, clock_args = ["-accel", "tcg,thread=multi"], []
    if simulated:
        # Room for all translated code: flushing it would cost a retranslation.
        accel, clock_args = ["-accel", "tcg,thread=single,tb-size=512"], []
        accel += ["-plugin", simulated.plugin, *repeatable(simulated.seed)]
    append = [*KERNEL_ARGS, *clock_args, *m.kernel_args(), *kernel_args, f"kit.job={job}"]
    return command_line(program, [*m.qemu_args(simulated and simulated.cpu), *accel], image, initrd,
                        append), program.env


def command_line(program, machine_args, image, initrd, append):
    """Return the arguments that start a qemu.Qemu without the serial ports: of the machine, the paths of
    kernel and initramfs, and the list of the kernel's arguments."""
    # The kernel kills QEMU when this process dies, even by SIGKILL.
    return ["setpriv", "--pdeathsig", "KILL", *program.command, *machine_args,
            "-nodefaults", "-display", "none", "-no-reboot", "-kernel", str(image),
            "-initrd", str(initrd), "-append", " ".join(append)]
