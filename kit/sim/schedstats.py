# SPDX-License-Identifier: GPL-2.0-only
"""What the kernel's own statistics say of a measured region: wakeups by path and distance, from
debugfs's sched/wakeup_stats, and load balancing, from /proc/schedstat."""

import re

# Of a CPU in /proc/schedstat: (title, number of the field after the CPU's name).
CPU = (("calls of schedule()", 2), ("of these, to idle", 3), ("wakeups", 4),
       ("of these, on the waker's CPU", 5), ("ns of waiting to run", 7))
# Of a domain: (title, numbers of the fields after its CPUs, to be added up). The first 24 are eight
# each for three kinds of idleness. sched-stats.rst counts from 1.
DOMAIN = (("balance passes", (0, 8, 16)), ("tasks moved", (4, 12, 20)),
          ("running tasks moved", (26,)), ("wakeups of tasks that ran elsewhere in it", (33,)),
          ("wakeups moved to the waker", (34,)))
# Those whose fields are these: up to 6.12. Version 17, of later kernels, has other fields.
VERSIONS = ("15", "16")


def wakeups(text):
    """Add up the columns of wakeup_stats over all CPUs; give {column: count}, empty for no text."""
    head, *rows = [line.split() for line in text.splitlines() if line.strip()] or [[]]
    return {name: sum(int(row[i]) for row in rows) for i, name in enumerate(head)
            if name != "cpu"}


def schedstat(text):
    """Add up /proc/schedstat over all CPUs; give {title: count}, domains as "TITLE, domain LEVEL".
    Empty if its version is one whose fields are not known here."""
    version = re.search(r"^version (\d+)$", text, re.M)
    if not version or version[1] not in VERSIONS:
        return {}
    counts = {}

    def add(title, number):
        counts[title] = counts.get(title, 0) + number

    for line in text.splitlines():
        name, *fields = line.split() or [""]
        if re.fullmatch(r"cpu\d+", name):
            for title, field in CPU:
                add(title, int(fields[field]))
        elif re.fullmatch(r"domain\d+", name):
            numbers = list(map(int, fields[1:]))
            for title, which in DOMAIN:
                add(f"{title}, {name}", sum(numbers[i] for i in which))
    return counts


def deltas(figures):
    """Give the rows [what, count] of what was counted in the measured region, from the figures `stats` of
    guest/jobs/sim.sh: files before and after it, with a ";" at the end of each line. wakeup_stats has counters of 32 bits for each CPU, which wrap around."""
    texts, rows = {one["file"]: one["text"].replace(";", "\n") for one in figures}, []
    for name, read in (("wakeup_stats", wakeups), ("schedstat", schedstat)):
        before, after = (read(texts.get(f"{name}.{when}", "")) for when in ("before", "after"))
        for title, count in after.items():
            change = count - before.get(title, 0)
            rows.append([title, change % 2**32 if name == "wakeup_stats" else change])
    return rows
