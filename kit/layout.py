# SPDX-License-Identifier: GPL-2.0-only
"""Which cachelines the fields of struct root_domain are in, and who writes them.

A field that one set of CPUs writes slows down every other CPU that needs something else from its
line. So the fields are put into groups, each with its own writers and readers, and no line may
have fields of two groups. The groups hold for cpumasks off stack, where a mask is a pointer that
never changes, and for inline ones, where it is the bitmap that is written.
"""

import re
from dataclasses import dataclass

LINE = 64

# Who writes the fields of a group while tasks run, and the fields. [] stands for each element of
# an array, with lines of its own for each.
GROUPS = (
    ("nobody: domain rebuilds and hotplug do", ("span", "online", "pd")),
    ("slow paths: rebuild, deadline admission, users of the pull IPI",
     ("refcount", "rcu", "dl_bw", "visit_gen")),
    ("a CPU that finds the load changed", ("overloaded", "overutilized")),
    ("a CPU that gets or loses its second RT task; read at each fall in priority", ("rto_count",)),
    ("the same CPU; read only if rto_count is not 0", ("rto_mask",)),
    ("each CPU that wants to pull an RT task", ("rto_loop_next", "rto_loop_start")),
    ("one CPU at a time: where the pull IPI is",
     ("rto_push_work", "rto_lock", "rto_loop", "rto_cpu")),
    ("a CPU that gets or loses its second deadline task", ("dlo_count", "dlo_mask")),
    ("a CPU whose earliest deadline changes", ("cpudl",)),
    ("a CPU that changes to or from this priority", ("cpupri.pri_to_cpu[].count",)),
    ("the same CPU; read only if the count is not 0", ("cpupri.pri_to_cpu[].mask",)),
    ("nobody: allocated with the domain", ("cpupri.cpu_to_pri",)),
)


@dataclass(frozen=True)
class Member:
    """A member of a struct: name, offset and size in bytes, elements if it is an array."""

    name: str
    offset: int
    size: int
    elements: int | None = None

    def lines(self) -> range:
        """The cachelines that it is in, counted from the start of the struct."""
        return range(self.offset // LINE, (self.offset + self.size - 1) // LINE + 1)


@dataclass(frozen=True)
class Struct:
    """A struct as pahole prints it; align is 0 where pahole shows none."""

    size: int
    align: int
    members: tuple[Member, ...]


def parse(text) -> dict[str, Struct]:
    """The structs in the output of pahole, by name."""
    structs = {}
    for name, body, end in re.findall(r"^struct (\w+) \{\n(.*?)^\}(.*?);$", text,
                                      re.MULTILINE | re.DOTALL):
        members = []
        for declared, offset, size in re.findall(
                r"^\t+([^}\n]*?);\s*/\*\s*(\d+)\s+(\d+)\s*\*/$", body, re.MULTILINE):
            declared = re.sub(r"\s*__attribute__\(\(.*?\)\)(?=\s|$)", "", declared)
            member, elements = re.search(r"(\w+)(?:\[(\d+)\])?$", declared).groups()
            if int(size):
                members.append(Member(member, int(offset), int(size),
                                      int(elements) if elements else None))
        size = re.search(r"/\* size: (\d+)", body)
        align = re.search(r"__aligned__\((\d+)\)", end)
        structs[name] = Struct(int(size[1]), int(align[1]) if align else 0, tuple(members))
    return structs


def fields(structs) -> list[Member]:
    """The members of struct root_domain, with those of struct cpupri in place of `cpupri`."""
    result = []
    for member in structs["root_domain"].members:
        if member.name != "cpupri":
            result.append(member)
            continue
        for inner in structs["cpupri"].members:
            start = member.offset + inner.offset
            if inner.name != "pri_to_cpu":
                result.append(Member(f"cpupri.{inner.name}", start, inner.size))
                continue
            vector = structs["cpupri_vec"]
            result += [Member(f"cpupri.pri_to_cpu[{number}].{part.name}",
                              start + number * vector.size + part.offset, part.size)
                       for number in range(inner.elements) for part in vector.members]
    return result


def table(structs) -> list[str]:
    """The fields in order, one line each: cachelines, offset, size, name, and who writes it."""
    writers = {name: who for who, names in GROUPS for name in names}
    lines = []
    for field in fields(structs):
        # The first priority stands for the hundred others.
        if re.search(r"\[[1-9]\d*\]", field.name):
            continue
        first, last = field.lines()[0], field.lines()[-1]
        where = f"{first}" if first == last else f"{first}-{last}"
        who = writers.get(re.sub(r"\[\d+\]", "[]", field.name), "?")
        lines.append(f"line {where:>7}  offset {field.offset:5}  size {field.size:3}"
                     f"  {field.name:<27}  {who}")
    return lines


def findings(structs) -> list[str]:
    """What is wrong: lines with fields of two groups, fields in no group, no alignment."""
    found = []
    if structs["root_domain"].align % LINE or not structs["root_domain"].align:
        found.append(f"struct root_domain is not aligned to {LINE} bytes, so nothing is known"
                     " about its lines")
    group_of = {name: number for number, (_, names) in enumerate(GROUPS) for name in names}
    seen, lines = set(), {}
    for field in fields(structs):
        name = re.sub(r"\[\d+\]", "[]", field.name)
        seen.add(name)
        if name not in group_of:
            found.append(f"{field.name} is in no group: say in kit/layout.py who writes it")
            continue
        element = re.search(r"\[(\d+)\]", field.name)
        group = (group_of[name], element[1] if element else None)
        for line in field.lines():
            lines.setdefault(line, {}).setdefault(group, []).append(field.name)
    found += [f"{name} is in a group, but not in the struct" for name in group_of
              if name not in seen]
    for line, groups in sorted(lines.items()):
        if len(groups) > 1:
            found.append(f"line {line} is shared by "
                         + " | ".join(", ".join(names) for names in groups.values()))
    return found
