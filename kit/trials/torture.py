# SPDX-License-Identifier: GPL-2.0-only
"""make torture: do to the patched kernel, in one guest after the other, all at once what servers do to it,
and worse.

Each guest gets a seed of its own. Nothing in it comes from the host but the programs of programs.py: the same seed,
kernel, machine and packages repeat all that happened, so that what one guest finds is found again by giving its
seed. With BUILD=race, CPUs run in parallel and by the clock of the host, so that a seed repeats only what the
programs try.
"""

import random
import sys
import time
from dataclasses import dataclass, field

from kit.features import FEATURES
from kit.process import say
from kit.trials import programs
from kit.vm import guest, kcsan, kernel, ktap, machine

# Of the guest's clock, in each guest: enough for each operation to happen, and short enough that little
# has to be repeated to see again what was found.
SECONDS = 5
# The same where the CPUs run in parallel. The host has fewer CPUs than the guest, so that less happens in a
# second of its clock.
PARALLEL_SECONDS = 60
# Seconds after which a guest is taken for dead. Guests with KASAN on a busy host have taken a quarter of it.
TIMEOUT = 1800
# The same for each process with threads. It has taken half of it with KASAN.
PROCESS_TIMEOUT = 0.25
# Bits of the base that decide which of our code runs.
BASE_FEATURES = ("TTWU_QUEUE", "SIS_UTIL", "UTIL_EST", "DELAY_DEQUEUE", "NEXT_BUDDY")


@dataclass
class Totals:
    """What a number of guests did.

    counts: of each operation, how often it was done, and how often the kernel refused it as it may;
    guest_seconds: their clocks; splats: reports on their consoles; failures: all that was wrong;
    skipped: the parts that a guest left out, each with its reason; elsewhere: the titles of reports of data
    races that are not in our code.
    """
    guests: int = 0
    counts: dict = field(default_factory=dict)
    guest_seconds: float = 0
    splats: int = 0
    failures: list = field(default_factory=list)
    skipped: set = field(default_factory=set)
    elsewhere: list = field(default_factory=list)

    def add(self, result):
        """Add the guest.Result of one guest, and return its failures."""
        self.guests += 1
        tests = ktap.parse(result.ktap)
        for one in tests.figures["count"]:
            before = self.counts.get(one["name"], (0, 0))
            self.counts[one["name"]] = (before[0] + one["done"], before[1] + one["refused"])
        self.guest_seconds += sum(one["seconds"] for one in tests.figures["clock"])
        self.splats += len(result.splats)
        self.elsewhere += result.elsewhere
        self.skipped |= {f"{path} ({test.reason})" for path, test in tests.leaves() if test.status == ktap.SKIP}
        failures = result.failures() + tests.failures()
        if failures:
            failures += [line for line in result.ktap.splitlines() if line.startswith("# wrong: ")]
        self.failures += failures
        return failures

    def programs(self):
        """How many programs of others have run, those included that could not do here what they do."""
        return sum(sum(self.counts.get(name, (0, 0))) for name in ("stress_ng", "rt_tests", "selftest"))

    def lines(self):
        """The lines of a table of the counts."""
        return [f"  {name.replace('_', ' '):<24}{done:>9}" + (f"  {refused} refused" if refused else "")
                for name, (done, refused) in self.counts.items()]


def bits(which) -> list[str]:
    """The bits of sched/features to switch in a kernel: ours and some of the base. A series for mainline has
    those of ours that it adds to features.h."""
    ours = [feature.name for feature in FEATURES if feature.name not in which.how.lacks]
    if which.series.setting:
        header = (kernel.source_dir(which) / "kernel/sched/features.h").read_text()
        ours = [name for name in ours if f"SCHED_FEAT({name}," in header]
    return [*ours, *BASE_FEATURES]


def one(m, which, seed, processes, follow=None, seconds=None, files=None):
    """Torture a kernel in one guest on a Machine; return a guest.Result. processes: with threads; seconds: of
    the guest's clock, by default as many as the build needs; files: those of programs.files(), to run them too."""
    seconds = seconds or (PARALLEL_SECONDS if which.how.parallel else SECONDS)
    env = {"SEED": seed, "SECONDS": seconds, "PROCESSES": processes, "FEATURES": " ".join(bits(which))}
    if which.series.setting:
        env["MAINLINE"] = 1
    args = [*guest.COST_KERNEL_ARGS]
    # Not in each guest: with nohz_full=, the kernel lacks a command of membarrier(). Two CPUs of four, so that an LLC
    # of four or more has CPUs of both kinds.
    if seed % 2 and "CONFIG_NO_HZ_FULL=y" in kernel.requested(which.fragments):
        args.append("nohz_full=" + ",".join(str(cpu) for cpu in range(m.cpus) if cpu & 2))
    return guest.run(m, which, "torture", env, timeout=max(TIMEOUT, PROCESS_TIMEOUT * processes), follow=follow,
                     kernel_args=args, qemu_extra=guest.repeatable(1), files=files)


def run(m, which, seed, processes, minutes, follow=None):
    """Torture a kernel in guests with the seeds `seed`, `seed` + 1, ..., until so many minutes have
    passed, or one of them finds something; return the Totals."""
    totals, files, begin = Totals(), programs.files(which), time.monotonic()
    while not totals.guests or time.monotonic() - begin < 60 * minutes:
        result = one(m, which, seed + totals.guests, processes, follow, files=files)
        failures = totals.add(result)
        say(f"torture: SEED={seed + totals.guests - 1}: {result.seconds:.0f} s,"
            f" {'FAILED' if failures else 'passed'}")
        if failures:
            break
    return totals


def command(settings):
    """make torture; return the exit status."""
    m, which, minutes = (machine.load(settings["MACHINE"]), kernel.named(settings.series, settings["BUILD"]),
                         settings["MINUTES"])
    seed = settings["SEED"]
    if seed is None:
        seed = random.randrange(2**32)
    kernel.build(which)
    say(f"torture: SEED={seed}")
    begin = time.monotonic()
    totals = run(m, which, seed, settings["PROCESSES"], minutes, follow=say)
    print(*totals.lines(), sep="\n")
    for line in totals.failures:
        print(line, file=sys.stderr)
    say(f"torture on {m.name}, {kernel.release(which)}: {totals.guests} guests from SEED={seed},"
        f" {time.monotonic() - begin:.0f} s, guest time {totals.guest_seconds:.0f} s,"
        f" splats: {totals.splats}{kcsan.summary(totals.elsewhere)}:"
        f" {'FAILED' if totals.failures else 'passed'}")
    if totals.failures:
        say(f"to repeat it: make torture MINUTES=1 BUILD={which} MACHINE={m.name}"
            f" PROCESSES={settings['PROCESSES']} SEED={seed + totals.guests - 1}")
    return 1 if totals.failures else 0
