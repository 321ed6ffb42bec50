# SPDX-License-Identifier: GPL-2.0-only
"""What on a guest's console means that its kernel is unwell."""

import re

# A line of the kernel's log, also when it follows an unfinished line of something else.
_STAMP = re.compile(r"^.*?\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? ?")

# Each is matched at the start of a line without its time stamp: the words alone may also be in
# the kernel's command line, in a boot option's name or in what a program was called.
PANIC = re.compile(r"Kernel panic - not syncing")
PATTERNS = [PANIC] + [re.compile(pattern) for pattern in (
    r"(?:watchdog: )?(?:\[ )?BUG: ",  # oops, KASAN, KCSAN, KFENCE, sleeping in atomic, soft lockup
    r"Oops: ",
    r"kernel BUG at ",
    r"(?:general protection fault|double fault|divide error|invalid opcode)[,:]",
    r"WARNING: ",  # WARN*() and most of lockdep's reports
    r"unchecked MSR access error: ",
    r"ERROR: ",  # sched domains that do not fit into each other
    r"INFO: trying to register non-static key",
    r"INFO: task .* blocked for more than \d+ seconds",
    r"(?:rcu: )?INFO: rcu_\w+ .*detected .*stall",
    r"rcu: rcu_\w+ kthread (?:timer wakeup didn't happen|starved) for ",
    r"(?:NMI )?watchdog: .*hard LOCKUP",
    r"(?:NMI )?watchdog: Watchdog detected hard LOCKUP",
    r"UBSAN: ",
    r"kmemleak: \d+ new suspected memory leaks",
    r"DEBUG_LOCKS_WARN_ON\(",
)]
_HEAD = re.compile(r"-+\[ cut here \]-+$|=+$")
_TAIL = re.compile(r"---\[ end ")

# A trace without an end marker is cut after so many lines.
LINES_MAX = 80


def _bare(line):
    return _STAMP.sub("", line.rstrip(), count=1)


def is_panic(line):
    """Say whether a line of a console is the kernel's last word."""
    return bool(PANIC.match(_bare(line)))


def find(console):
    """Give the splats in the text of a console: a list of str, each a trace of several lines.

    A further line that matches within a trace belongs to that trace.
    """
    lines = console.replace("\r", "").splitlines()
    splats = []
    number = 0
    while number < len(lines):
        if not any(pattern.match(_bare(lines[number])) for pattern in PATTERNS):
            number += 1
            continue
        first = number
        # What WARN() was told to say stands between the marker and the line that matched.
        for back in range(number - 1, max(number - 6, -1), -1):
            if _HEAD.match(_bare(lines[back])):
                first = back
                break
        last = number
        for last in range(number, min(number + LINES_MAX, len(lines))):
            if _TAIL.match(_bare(lines[last])):
                break
        splats.append("\n".join(lines[first:last + 1]))
        number = last + 1
    return splats
