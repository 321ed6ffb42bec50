# SPDX-License-Identifier: GPL-2.0-only
"""Which functions and data cache lines moved between caches for, from the plugin's reports."""

import re
from collections import Counter

from kit.sim import symbols
from kit.vm import initramfs

SHOWN = 15
# Ways of a line, as the plugin names them, {metric: (title, names)}.
MOVES = {"core": ("lines from another core of the LLC", ("core", "taken_core")),
         "llc": ("lines from another LLC of the socket", ("llc", "taken_llc")),
         "socket": ("lines from another socket", ("socket", "taken_socket")),
         "memory": ("lines from memory", ("dram", "far_dram"))}


def known(which):
    """Give the Symbols of a Kernel and of the workload."""
    return symbols.Symbols(which.out / "System.map", initramfs.work_of(initramfs.small(which.series)) / "workload")


def hottest(regions, names):
    """Add up over Regions, with the Symbols `names`, which functions and data lines moved between
    caches for; give {"functions": [[name, core, llc, socket]...], "lines": [[place, functions, core,
    llc, socket]...], "not_counted": moves in none of them}, the most expensive first."""
    functions, lines, users, lost = {}, {}, {}, 0
    for region in regions:
        counted = region.counted
        lost += counted["lost_sites"]
        tasks = sorted(int(text, 16) for text in counted["tasks"])
        per_cpu = [int(text, 16) for text in counted["per_cpu"]]
        ways = counted["far"]
        for _, address, pc, *numbers in counted["sites"]:
            moves = [sum(number for way, number in zip(ways, numbers) if way in MOVES[metric][1])
                     for metric in ("core", "llc", "socket")]
            function = names.function(int(pc, 16))
            # Of what each CPU has, all are one.
            place = re.sub(r" of CPU \d+", "", str(names.place(int(address, 16), per_cpu, tasks)))
            for table, key in ((functions, function), (lines, place)):
                table[key] = [a + b for a, b in zip(table.get(key, (0, 0, 0)), moves)]
            users.setdefault(place, Counter())[function] += sum(moves)
    cost_of = [region.counted["moved_ps"] for region in regions][0]

    def top(table):
        return sorted(table.items(), key=lambda item: (-sum(
            number * ps for number, ps in zip(item[1], cost_of)), item[0]))[:SHOWN]

    return {"functions": [[name, *moves] for name, moves in top(functions)],
            "lines": [[place, ", ".join(name for name, _ in users[place].most_common(3)), *moves]
                      for place, moves in top(lines)],
            "not_counted": lost}
