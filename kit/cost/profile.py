# SPDX-License-Identifier: GPL-2.0-only
"""make bench-cost PROFILE=: the instructions of a row by function of the kernel, on the kernel of one
column and on the one that it is compared with."""

import dataclasses
from bisect import bisect_right
from collections import Counter

from kit.cost import plan
from kit.paths import ROOT
from kit.process import Error, say, sh
from kit.results import tables, verdict
from kit.vm import guest, ktap

SOURCE = ROOT / "plugins/profile.c"
USER_SPACE = "(user space)"
KERNEL_HALF = 1 << 63
SHOWN = 30


def plugin(build, source=SOURCE):
    """Compile a plugin for QEMU below the directory `build`, if it changed; its path."""
    path = build / f"{source.stem}.so"
    newest = max(file.stat().st_mtime for file in (source, *(source.parent / "sim").glob("*.h")))
    if not path.exists() or path.stat().st_mtime < newest:
        path.parent.mkdir(parents=True, exist_ok=True)
        sh(["gcc", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden", "-o", path,
            source], timeout=120, capture=True)
    return path


def functions(which):
    """(addresses, names) of the functions of a Kernel, sorted by address."""
    lines = (which.out / "System.map").read_text().splitlines()
    found = sorted((int(address, 16), name) for address, kind, name in
                   (line.split() for line in lines) if kind in "tTwW")
    return [address for address, _ in found], [name for _, name in found]


def by_function(counts, addresses, names):
    """Add up the plugin's lines: {function: instructions}. The parts that the compiler split off a
    function (.part, .isra, .cold) count as that function."""
    total = Counter()
    for line in counts.splitlines():
        address, instructions, times = line.split()
        address = int(address, 16)
        place = bisect_right(addresses, address) - 1
        name = (names[place].split(".")[0] if address >= KERNEL_HALF and place >= 0 else
                USER_SPACE)
        total[name] += int(instructions) * int(times)
    return total


def measure(m, which, state, row, size, userland):
    """Run one Row in one State: {function: instructions per operation}. Error if that fails."""
    build = which.series.build
    out = build / f"profile-{which}".replace("/", "-")
    out.unlink(missing_ok=True)
    boot = next(boot for boot in plan.boots(m, size)
                if row.name in {other.name for other in boot.rows})
    m = dataclasses.replace(m, **boot.change)
    result = guest.run(m, which, "cost", {"ROWS": f"{row.name}:{row.command}", "BLOCKS": 1,
                                          "STATE": state.writes},
                       timeout=plan.TIMEOUT, icount=True, userland=userland,
                       kernel_args=boot.kernel_args, name=f"{m.name}-{which}-profile",
                       qemu_extra=["-plugin", f"{plugin(build)},out={out}"])
    tests = ktap.parse(result.ktap)
    result.check(f"the profile of {row.name} on {which}", tests)
    total = by_function(out.read_text(), *functions(which))
    return {name: count / tests.figures["cost"][0]["operations"] for name, count in total.items()}


def table(base, other, names):
    """The rows of a table: instructions per operation of the functions that differ most, and of all
    together."""
    everything = sorted(base.keys() | other.keys(),
                        key=lambda name: -abs(other.get(name, 0) - base.get(name, 0)))
    rows = [["", *names, "difference"]]
    for name in everything[:SHOWN]:
        one, two = base.get(name, 0), other.get(name, 0)
        rows.append([name, f"{one:.1f}", f"{two:.1f}", verdict.signed(two - one, 1)])
    one, two = sum(base.values()), sum(other.values())
    return [*rows, ["all", f"{one:.1f}", f"{two:.1f}", verdict.signed(two - one, 1)]]


def wanted(m, what, kernels, size):
    """The Row, the column that its own is compared with, its own, and {column: (Kernel, State)}, of `what`, ROW or
    "ROW,COLUMN" (default: the stack with all off), on a Machine. Error if there is no such row or column."""
    name, _, column = what.partition(",")
    rows = {row.name: row for boot in plan.boots(m, size) for row in boot.rows
            if row.command.startswith("cost:")}
    columns = {state.column: (which, state) for which in kernels for state in plan.states(which)}
    column = column or "off"
    if name not in rows or column not in columns or columns[column][1].against is None:
        raise Error(f"PROFILE={what}: ROW or ROW,COLUMN, where ROW is one of {', '.join(rows)} and "
                    "COLUMN one of " + ", ".join(key for key, (_, state) in columns.items()
                                                 if state.against))
    return rows[name], columns[column][1].against, column, columns


def show(m, what, kernels, size, userland):
    """Print the profile of `what`, as wanted() takes it, on a Machine; the Kernels are built; userland: the one
    whose initramfs the guests get."""
    row, against, column, columns = wanted(m, what, kernels, size)
    found = [measure(m, *columns[key], row, size, userland) for key in (against, column)]
    say(f"instructions per operation, ticks included: {row.title}")
    for line in tables.text(table(*found, [against, column])):
        say(line)
