# SPDX-License-Identifier: GPL-2.0-only
"""Tell the data races that KCSAN reports in our code from those of mainline's scheduler, which has many.

A report is ours if one of its two accesses is in a line of the kernel's source that the patches add or change, and do
not only move, or is called by such a line of a function that they add. A function that they only give another name
does not count. A field that they add is accessed in such lines only. An access in a function that the compiler has put
into others is in all of these functions: the debugging information of the kernel has them, and the line. What is not
seen: a race of two lines of mainline which the patches have made possible, by a lock that they do not take any more.
"""

import re
from dataclasses import dataclass

from kit.process import git, sh
from kit.vm import kernel, splats

_TITLE = re.compile(r"BUG: KCSAN: (.*)$")
_ACCESS = re.compile(r"(?:race at unknown origin, with )?((?:read|write|read-write|assert).*) to 0x[0-9a-f]+ of"
                     r" \d+ bytes by (?:task \d+|interrupt) on cpu \d+:$")
_FRAME = re.compile(r"([\w.]+)\+0x([0-9a-f]+)/0x[0-9a-f]+$")
_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,\d+)? @@")
# The first line of a definition, with its type on the same line. A declaration ends in a semicolon.
_FUNCTION = re.compile(r"[a-zA-Z_][\w \t*]*[ \t*](\w+)\([^;]*$")


@dataclass(frozen=True)
class Access:
    """What an access is, such as "write" or "read (marked)"; the function it is in and how far from its
    beginning the CPU returns to after it, None and 0 if the report does not tell."""
    kind: str
    function: str | None = None
    offset: int = 0


def title(splat):
    """The title of a KCSAN report, such as "data-race in f / g"; None for any other splat."""
    for line in splat.splitlines():
        match = _TITLE.match(splats.bare(line))
        if match:
            return match[1]
    return None


def accesses(report):
    """The list of Accesses of a KCSAN report: two, or one if the origin of the other is unknown."""
    found = []
    for line in map(splats.bare, report.splitlines()):
        if match := _ACCESS.match(line):
            found.append(Access(match[1]))
        elif found and not found[-1].function and (match := _FRAME.match(line.strip())):
            found[-1] = Access(found[-1].kind, match[1], int(match[2], 16))
    return found


@dataclass(frozen=True)
class Ours:
    """What patches add: a set of (file, line) and a set of functions."""
    lines: frozenset
    functions: frozenset

    def has(self, chain):
        """Whether an access is in our code: where its line is, and where the functions are called that this
        is in, each (function, file, line). In a function that the patches add, lines may be mainline's: it
        got another name. Then all that is called there is mainline's, wherever that function is called."""
        innermost = [tuple(place) for function, *place in chain if function in self.functions][:1]
        return chain[0][1:] in self.lines or any(place in self.lines for place in innermost)


def ours(diff):
    """The Ours of a diff without context. A line is not ours if another one with the same text is removed,
    however far it is indented, nor is a function that is also removed, which has other arguments then or another
    place."""
    removed = [line[1:] for line in diff.splitlines() if line.startswith("-")]
    gone = {text.strip() for text in removed}
    functions = {match[1] for text in removed if (match := _FUNCTION.match(text))}
    lines, new, name, number = set(), set(), None, 0
    for line in diff.splitlines():
        if line.startswith("+++ "):
            name = line[len("+++ b/"):]
        elif match := _HUNK.match(line):
            number = int(match[1])
        elif line.startswith("+"):
            if line[1:].strip() not in gone:
                lines.add((name, number))
            if (match := _FUNCTION.match(line[1:])) and match[1] not in functions:
                new.add(match[1])
            number += 1
    return Ours(frozenset(lines), frozenset(new))


class Source:
    """The source that a built Kernel was made from: which lines are ours, and which lines code is made of."""

    def __init__(self, which):
        self.where, self.out = kernel.source_dir(which), which.out
        self.ours = ours(git(self.where, "diff", "-U0", "--no-renames", "--no-ext-diff", "base",
                             "--", "*.c", "*.h").out)
        self.symbols = {}
        for line in (self.out / "System.map").read_text().splitlines():
            address, kind, name = line.split()
            if kind in "tTwW":
                self.symbols.setdefault(name, []).append(int(address, 16))

    def places(self, some):
        """For each of a list of Accesses, the list of chains that it may be (see Ours): one, or none if its
        line is not known; several if functions have the same name."""
        wanted = [[start + access.offset - 1 for start in self.symbols.get(access.function, [])] for access in some]
        everything = sorted({address for addresses in wanted for address in addresses})
        if not everything:
            return [[] for _ in some]
        out = sh(["addr2line", "-a", "-f", "-i", "-e", self.out / "vmlinux", *map(hex, everything)],
                 capture=True).out
        chains, lines = {}, iter(out.splitlines())
        for line in lines:
            if re.fullmatch(r"0x[0-9a-f]+", line):
                chain = chains.setdefault(int(line, 16), [])
            elif match := re.match(r"(?!\?\?)(.*):(\d+)", next(lines)):
                chain.append((line.partition(".")[0], self._relative(match[1]), int(match[2])))
        return [[chains[address] for address in addresses if chains[address]] for addresses in wanted]

    def _relative(self, path):
        """A path of the debugging information, relative to the source."""
        root = f"{self.where}/"
        return path[len(root):] if path.startswith(root) else path


def sort(source, found):
    """Divide the splats of a console: (those that count, the titles of the reports of races elsewhere).
    A report that cannot be read counts, and so does one with another splat in it. source: a Source. Lines
    with the places of both accesses are added to a report that counts."""
    reports = {splat: accesses(splat) for splat in found if title(splat)}
    everything = sorted({access for some in reports.values() for access in some if access.function},
                        key=lambda access: (access.function, access.offset, access.kind))
    places = dict(zip(everything, source.places(everything)))
    count, elsewhere = [], []
    for splat in found:
        if splat not in reports:
            count.append(splat)
            continue
        known = [(access, places.get(access, [])) for access in reports[splat]]
        whole = len(known) == (2 if " / " in title(splat) else 1)
        rest = "\n".join(line for line in splat.splitlines() if not _TITLE.match(splats.bare(line)))
        if whole and all(chains for _, chains in known) and not splats.find(rest) and not any(
                source.ours.has(chain) for _, chains in known for chain in chains):
            elsewhere.append(title(splat))
            continue
        count.append("\n".join([splat, *(f"{access.kind}: {_text(source.ours, chains)}" for access, chains in known)]))
    return count, elsewhere


def _text(which, chains):
    """Where an access is, for a report."""
    return " or ".join(" < ".join(f"{function} {name}:{line}" for function, name, line in chain)
                       + (" (ours)" if which.has(chain) else "") for chain in chains) or "unknown place"


def summary(elsewhere):
    """What to say of the titles of reports of races elsewhere: nothing if there are none."""
    return f", races not in our code: {len(elsewhere)} of {len(set(elsewhere))} kinds" if elsewhere else ""
