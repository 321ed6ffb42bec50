# SPDX-License-Identifier: GPL-2.0-only
"""Find oopses, warnings and other reports of the kernel on a guest's console."""

import re

# The time stamp of a line of the kernel's log, also behind an unfinished line of other output.
_STAMP = re.compile(r"^.*?\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? ?")

# A pattern matches at the start of a line without its time stamp. Elsewhere the same words may be
# part of the kernel's command line, a boot option or a program's name.
PANIC = re.compile(r"Kernel panic - not syncing")
PATTERNS = [PANIC] + [re.compile(pattern) for pattern in (
    r"(?:watchdog: )?(?:\[ )?BUG: ",  # oops, KASAN, KCSAN, KFENCE, sleeping in atomic, soft lockup
    r"Oops: ",
    r"kernel BUG at ",
    r"(?:general protection fault|double fault|divide error|invalid opcode)[,:]",
    r"WARNING: ",  # WARN*() and most of lockdep's reports
    r"unchecked MSR access error: ",
    r"ERROR: ",  # scheduling domains that do not nest
    r"INFO: trying to register non-static key",
    r"INFO: task .* blocked for more than \d+ seconds",
    r"(?:rcu: )?INFO: rcu_\w+ .*detected .*stall",
    r"rcu: rcu_\w+ kthread (?:timer wakeup didn't happen|starved) for ",
    r"(?:NMI )?watchdog: .*hard LOCKUP",
    r"UBSAN: ",
    r"kmemleak: \d+ new suspected memory leaks",
    r"DEBUG_LOCKS_WARN_ON\(",
)]
_HEAD = re.compile(r"-+\[ cut here \]-+$|=+$")
_TAIL = re.compile(r"---\[ end ")
# KASAN and KCSAN begin and end a report with the same line.
_SANITIZER = re.compile(r"BUG: K\w+SAN: ")
_RULE = re.compile(r"=+$")

# A trace without an end marker is cut after this many lines.
LINES_MAX = 80


def bare(line):
    """A line of a console without its time stamp."""
    return _STAMP.sub("", line.rstrip(), count=1)


def is_panic(line):
    """Whether a line of a console reports a panic."""
    return bool(PANIC.match(bare(line)))


def find(console):
    """Return the splats in the text of a console, each a trace of one or more lines.

    A matching line within a trace is part of that trace.
    """
    lines = console.replace("\r", "").splitlines()
    splats = []
    number = 0
    while number < len(lines):
        if not any(pattern.match(bare(lines[number])) for pattern in PATTERNS):
            number += 1
            continue
        first = number
        # WARN()'s message is printed between the marker and the line that matches.
        for back in range(number - 1, max(number - 6, -1), -1):
            if _HEAD.match(bare(lines[back])):
                first = back
                break
        tail = _RULE if _SANITIZER.match(bare(lines[number])) else _TAIL
        last = number
        for last in range(number, min(number + LINES_MAX, len(lines))):
            if tail.match(bare(lines[last])):
                break
        splats.append("\n".join(lines[first:last + 1]))
        number = last + 1
    return splats
