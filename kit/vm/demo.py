# SPDX-License-Identifier: GPL-2.0-only
"""`make boot`: boot the series' kernel, show the topology it sees and what its features change.

The guest (guest/jobs/boot.sh) prints facts; this module compares them with what is expected.
"""

import re
import sys
import textwrap

from kit.features import FEATURES
from kit.process import Error, say
from kit.vm import guest, kernel, ktap, machine

WIDTH = 96
SECONDS = 600
# On this machine each feature must show a figure; on others, a selftest may be unable to measure.
DEFAULT_MACHINE = "two-ccx"


LAYOUT_NOTE = ("The layout of root_domain and cpupri is fixed when the kernel is compiled and "
               "cannot be switched here.")


def command(settings):
    """Boot and print the page for kit.__main__; return 0 only if every check passed."""
    which = kernel.named(settings.series, settings["BUILD"])
    if not which.patched:
        raise Error(f"the page is about the stack's features and BUILD={which} has none; to look "
                    f"at it: make shell BUILD={which}")
    m = machine.load(settings["MACHINE"])
    kernel.build(which)
    print(f"booting {m.name} ...", file=sys.stderr, flush=True)
    result = guest.run(m, which, "boot",
                       {"FEATURES": " ".join(feature.name for feature in FEATURES),
                        "TESTS": " ".join(dict.fromkeys(f.test for f in FEATURES))},
                       timeout=SECONDS)
    text, problems = page(m, kernel.release(which), result)
    if problems:
        print(result.ktap, file=sys.stderr, flush=True)  # with the figures that a failed test looked at
    say(text)
    return 1 if problems else 0


def page(m, release, result):
    """Make the page of a run of the job `boot` on a Machine.

    release: the expected `uname -r`. Return (text, list of the checks that failed).
    """
    tests = ktap.parse(result.ktap)
    notes = [note for test in tests.tests for note in test.notes()]
    problems = result.failures() + tests.failures()
    [said] = [one["release"] for one in tests.figures["kernel"]] or [None]
    if said != release:
        problems.append(f"the guest runs kernel {said or 'of no known name'}, not {release}")

    lines = [f"Kernel    {said}",
             *textwrap.wrap(f"Machine   {m.name}: {m.description}", WIDTH,
                            subsequent_indent=" " * 10),
             f"          {_cpus(m)}, {m.memory_mib} MiB, up and measured in {result.seconds:.0f} s",
             "", *_topology(m, tests.figures, problems), "",
             "Scheduler features of the stack (/sys/kernel/debug/sched/features)", ""]
    for feature in FEATURES:
        lines += [*_feature(m, release, feature, tests, notes, problems), ""]
    refused = _passed(tests, "rubbish")
    lines += ["An unknown feature is refused with EINVAL and changes nothing: "
              f"{'yes' if refused else 'NO'}",
              *textwrap.wrap(LAYOUT_NOTE, WIDTH), ""]
    if problems:
        lines.append(f"FAILED: {len(problems)} checks:")
        for problem in problems:
            lines.append(textwrap.indent(problem, "  ").replace("  ", "- ", 1))
    else:
        lines.append("All checks passed.")
    return "\n".join(lines), problems


def _cpus(m):
    inactive = sum(not cpu.active for cpu in m.expected())
    return f"{m.cpus} CPUs" + (f", {inactive} of them switched off (nosmt)" if inactive else "")


def _passed(tests, name):
    return any(test.name == name and test.status == ktap.OK for test in tests.tests)


def _topology(m, figures, problems):
    """Compare the guest's topology with the machine file; return the lines of the table."""
    seen = {one["cpu"]: (one["l2"], one["llc"], one["node"]) for one in figures["cpu"]}
    groups = {one["cpu"]: one["group"] for one in figures["group"]}
    wrong = []
    expected = m.expected()
    if len(seen) != len(expected):
        wrong.append(f"the kernel has {len(seen)} CPUs, the machine file {len(expected)}")
    for cpu in expected:
        l2, llc, node = seen.get(cpu.cpu, (None, None, None))
        for what, is_, should in (("L2 group", groups.get(cpu.cpu), cpu.l2),
                                  ("L2", l2, cpu.l2), ("LLC", llc, cpu.llc),
                                  ("node", node, cpu.node)):
            if is_ != should:
                wrong.append(f"CPU {cpu.cpu}: {what} {is_}, by the machine file {should}")
    problems += wrong

    shared = {}
    for cpu, (_, llc, node) in sorted(seen.items()):
        if llc >= 0:
            shared.setdefault((node, llc), {}).setdefault(groups.get(cpu), []).append(cpu)
    lines = ["Which CPUs share a node, an LLC (last-level cache) and an L2 group (an L2), as the",
             "kernel sees it", "",
             "  node  LLC           L2 groups"]
    for (node, _), by_group in shared.items():
        llc = ranges([cpu for cpus in by_group.values() for cpu in cpus])
        cells = "  ".join(ranges(cpus) for cpus in by_group.values())
        first, *more = textwrap.wrap(cells, WIDTH - 22)
        lines.append(f"  {node:<4}  {llc:<12}  {first}")
        lines += [" " * 22 + line for line in more]
    lines += ["", f"As {m.name}.toml describes it: {'NO' if wrong else 'yes'}"]
    return lines


def ranges(cpus):
    """Write a list of CPUs as the kernel does: 0-3,8."""
    parts = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _feature(m, release, feature, tests, notes, problems):
    """Check one feature; return its lines of the page."""
    [state] = [one["state"] for one in tests.figures["state"] if one["feature"] == feature.name] or ["missing"]
    default = feature.at_boot("-rt-" in release)
    if state != default:
        problems.append(f"{feature.name} is {state} at boot, not {default}")
    toggled = _passed(tests, f"toggle {feature.name}")
    return [f"  {feature.name:<24}at boot: {state}    switched both ways and read back: "
            f"{'yes' if toggled else 'NO'}",
            *textwrap.wrap(feature.does, WIDTH, initial_indent="    ", subsequent_indent="    "),
            *textwrap.wrap(_figure(m, feature, tests, notes, problems), WIDTH,
                           initial_indent="    ", subsequent_indent="      ")]


def _figure(m, feature, tests, notes, problems):
    """Return the line with the figure that the feature changes, or why there is none."""
    for note in notes:
        match = re.match(rf'figure: {feature.name} off=(\S+) on=(\S+) unit="([^"]*)"', note)
        if not match:
            continue
        off, on = float(match[1]), float(match[2])
        if (on > off) != feature.more or on == off:
            problems.append(f"{feature.name}: {match[3]} should be "
                            f"{'more' if feature.more else 'less'} with it on: {off:g} -> {on:g}")
            return f"-> off {match[1]}, on {match[2]}, UNEXPECTED: {match[3]}"
        return f"-> off {match[1]}, on {match[2]}: {match[3]}"
    reason = _skip_reason(tests, feature)
    if reason is None or m.name == DEFAULT_MACHINE:
        problems.append(f"{feature.name}: selftest {feature.test} gave no figure"
                        + (f" ({reason})" if reason else ""))
    return f"-> no figure on this machine: {reason or 'the selftest gave none'}"


def _skip_reason(tests, feature):
    """Return why the selftest skipped the feature, or None if it did not."""
    skipped = [test for path, test in tests.leaves()
               if f"sched: {feature.test}" in path and test.status == ktap.SKIP]
    # kselftest.h prints the whole text of a skipped test behind the directive.
    named = [test for test in skipped
             if re.search(rf"\b{feature.name}\b", f"{test.name} {test.reason}")]
    for test in named or skipped:
        return test.reason or test.name
    return None
