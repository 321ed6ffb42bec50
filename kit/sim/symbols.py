# SPDX-License-Identifier: GPL-2.0-only
"""What is at an address of a guest: the function, for an instruction, and for data the variable, or
whose it is, and where there is debug information the field of the structure."""

import re
from bisect import bisect_right
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

from kit.process import Error, sh
from kit.vm import kernel

KERNEL_HALF = 1 << 63
# The kernel's image, which its own variables are in, and what it maps of RAM.
IMAGE = 0xffffffff80000000
MAPPED = 0xffff888000000000
# A task_struct is smaller.
TASK_MOST = 16384
# In which the structures are that the scheduler shares; the names of those that are not the type of
# a variable.
TYPES_FROM = "kernel/sched/core.o"


@dataclass(frozen=True)
class Place:
    """Where data is: whose it is, and how many bytes in; the name of the field there, or ""."""
    owner: str
    offset: int
    field: str

    def __str__(self):
        return f"{self.owner}.{self.field}" if self.field else f"{self.owner}+{self.offset:#x}"


class Table:
    """Symbols by address."""

    def __init__(self, symbols):
        symbols = sorted(symbols)
        self.addresses = [address for address, _ in symbols]
        self.names = [name for _, name in symbols]

    def at(self, address):
        """Give (name, bytes in) of the last symbol at or before an address, or None."""
        place = bisect_right(self.addresses, address) - 1
        return (self.names[place], address - self.addresses[place]) if place >= 0 else None


class Symbols:
    """What the addresses of a kernel, and of the one program that runs on it, are."""

    def __init__(self, system_map, program, kernel_types=None, program_types=None):
        lines = [line.split() for line in system_map.read_text().splitlines()]
        self.kernel = [(int(address, 16), kind, name) for address, kind, name in lines]
        self.address = {name: address for address, _, name in reversed(self.kernel)}
        self.functions = Table((address, name) for address, kind, name in self.kernel
                               if kind in "tTwW")
        # What begins or ends a section has an address, but nothing is there.
        variables = [(address, name) for address, kind, name in self.kernel
                     if kind in "bBdDrRvVaA" and not re.match(r"__(start|stop|per_cpu)_|_?_?(begin|end)",
                                                             name)]
        self.first, self.last = self.address["__per_cpu_start"], self.address["__per_cpu_end"]
        self.per_cpu = Table(pair for pair in variables if self.first <= pair[0] < self.last)
        self.variables = Table(pair for pair in variables if pair[0] >= IMAGE and not
                               self.first <= pair[0] < self.last)
        with open(program, "rb") as file:
            known = [(symbol["st_value"], symbol["st_info"]["type"], symbol.name) for symbol in
                     ELFFile(file).get_section_by_name(".symtab").iter_symbols()]
        self.user_functions = Table((address, name) for address, kind, name in known
                                    if kind == "STT_FUNC")
        self.user_variables = Table((address, name) for address, kind, name in known
                                    if kind == "STT_OBJECT")
        self.user_end = max(address for address, kind, _ in known if kind == "STT_OBJECT") + 4096
        self.kernel_types, self.program_types = kernel_types, program_types

    def function(self, pc):
        """Give the name of the function that an instruction is in."""
        found = (self.functions if pc >= KERNEL_HALF else self.user_functions).at(pc)
        # What the compiler split off is a part of it.
        return found[0].split(".")[0] if found else f"{pc:#x}"

    def root_domain(self, runqueue):
        """Give the address of the root_domain that a runqueue, by its first bytes, belongs to; None
        without debug information. Error if they do not reach so far."""
        offset = self.kernel_types.offset("rq", "rd") if self.kernel_types else None
        if offset is None:
            return None
        if offset + 8 > len(runqueue):
            raise Error(f"rq.rd is {offset} bytes in, of which {len(runqueue)} were kept: see RUNQUEUE "
                        "in plugins/sim/report.c")
        return int.from_bytes(runqueue[offset:offset + 8], "little")

    def place(self, address, per_cpu, tasks, domain=None):
        """Give the Place of data. per_cpu: what is added to the address of a percpu variable for each
        CPU; tasks: addresses of task_structs, sorted; domain: of the root_domain, if it is known."""
        if address < KERNEL_HALF:
            found = self.user_variables.at(address) if address < self.user_end else None
            if not found:
                return Place("memory of the workload", 0, "")
            return self._named(*found, self.program_types)
        for cpu, offset in enumerate(per_cpu):
            if self.first <= (address - offset) % (1 << 64) < self.last:
                name, inside = self.per_cpu.at((address - offset) % (1 << 64))
                found = self._named(name, inside, self.kernel_types)
                return Place(f"{found.owner} of CPU {cpu}", found.offset, found.field)
        if address >= IMAGE:
            return self._named(*self.variables.at(address), self.kernel_types)
        if domain and 0 <= address - domain < self.kernel_types.size("root_domain"):
            return Place("root_domain", address - domain,
                         self.kernel_types.field("root_domain", address - domain))
        if MAPPED <= address < MAPPED + (1 << 46):
            inside = address - MAPPED
            first = self.address["_text"] - IMAGE
            if first <= inside < self.address["_end"] - IMAGE:
                return self._named(*self.variables.at(IMAGE + inside), self.kernel_types)
            before = bisect_right(tasks, address) - 1
            if before >= 0 and address - tasks[before] < TASK_MOST:
                size = self.kernel_types.size("task_struct") if self.kernel_types else None
                if size is None or address - tasks[before] < size:
                    offset = address - tasks[before]
                    field = self.kernel_types.field("task_struct", offset) if size else ""
                    return Place("task_struct" if size else "task_struct?", offset, field)
        return Place("memory of the kernel", 0, "")

    def _named(self, name, offset, types):
        struct = types.of_variable(name) if types else None
        return Place(name, offset, types.field(struct, offset) if struct else "")


class Types:
    """The structures of an object file with debug information (DWARF)."""

    def __init__(self, path):
        self.file = open(path, "rb")
        self.variables, self.structs = {}, {}
        for unit in ELFFile(self.file).get_dwarf_info().iter_CUs():
            for entry in unit.get_top_DIE().iter_children():
                name = _name(entry)
                if entry.tag == "DW_TAG_variable" and "DW_AT_specification" in entry.attributes:
                    entry = entry.get_DIE_from_attribute("DW_AT_specification")
                    name = _name(entry)
                if entry.tag == "DW_TAG_variable" and name:
                    self.variables[name] = entry
                elif entry.tag == "DW_TAG_structure_type" and name and (
                        "DW_AT_byte_size" in entry.attributes):
                    self.structs[name] = entry

    def of_variable(self, name):
        """The structure (DWARF entry) that a variable, or an element of it, is; None if it is none."""
        entry = self.variables.get(name)
        entry = entry and _plain(entry)
        return entry if entry and entry.tag == "DW_TAG_structure_type" else None

    def size(self, name):
        """The bytes of a structure, by its name; None if it is not known."""
        entry = self.structs.get(name)
        return entry.attributes["DW_AT_byte_size"].value if entry else None

    def offset(self, name, field):
        """The bytes of a structure, by its name, before one of its fields; None if it has none."""
        members = self.structs[name].iter_children() if name in self.structs else ()
        return next((_offset(member) for member in members if _name(member) == field), None)

    def field(self, struct, offset):
        """The name of the field at an offset of a structure, by its name or entry: "a.b", or ""."""
        entry = self.structs.get(struct) if isinstance(struct, str) else struct
        names = []
        while entry is not None and entry.tag in ("DW_TAG_structure_type", "DW_TAG_union_type"):
            offset %= entry.attributes["DW_AT_byte_size"].value or 1
            found = None
            for member in entry.iter_children():
                if member.tag != "DW_TAG_member":
                    continue
                start = _offset(member)
                if start > offset:
                    break
                found = (member, start)
                # Of a union the first member stands for all of them.
                if entry.tag == "DW_TAG_union_type":
                    break
            if found is None:
                break
            member, start = found
            if _name(member):
                names.append(_name(member))
            offset -= start
            entry = _plain(member)
        return ".".join(names)


def _name(entry):
    name = entry.attributes.get("DW_AT_name")
    return name.value.decode() if name else ""


def _offset(member):
    if "DW_AT_data_bit_offset" in member.attributes:
        return member.attributes["DW_AT_data_bit_offset"].value // 8
    where = member.attributes.get("DW_AT_data_member_location")
    return where.value if where else 0


def _plain(entry):
    """What the type of an entry is without typedefs, qualifiers and being an array; None for a type
    that has no entry."""
    while "DW_AT_type" in entry.attributes:
        entry = entry.get_DIE_from_attribute("DW_AT_type")
        if entry.tag not in ("DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type",
                             "DW_TAG_array_type", "DW_TAG_atomic_type"):
            return entry
    return None


def kernel_types(build, source):
    """Give the Types of a BUILD that is built from a directory: compile one file of it with debug
    information, which changes no structure, unless that is there already. Takes a minute."""
    out = kernel.named(build).out.with_name(f"{kernel.named(build).build}-types")
    made = out / TYPES_FROM
    config = (kernel.named(build).out / ".config").read_text()
    asked = out / "asked.config"
    if not made.exists() or asked.read_text() != config:
        out.mkdir(parents=True, exist_ok=True)
        log = out.with_suffix(".log")
        log.unlink(missing_ok=True)
        made.unlink(missing_ok=True)
        lines = [line for line in config.splitlines() if "DEBUG_INFO" not in line]
        (out / ".config").write_text("\n".join([*lines, "CONFIG_DEBUG_INFO_DWARF5=y", ""]))
        for target in ("olddefconfig", TYPES_FROM):
            sh(["make", "-s", "-C", source, f"O={out}", "ARCH=x86_64", target], log=log, timeout=1200)
        asked.write_text(config)
    return Types(made)


def program_types(source, directory):
    """Give the Types of a program of guest/, by its source, a file or a directory of files; what is
    compiled for it goes to `directory`."""
    path = directory / f"{source.stem}-types.o"
    sources = sorted(source.glob("*.c")) if source.is_dir() else [source]
    sh(["gcc", "-O2", "-g", "-pthread", "-r", "-o", path, *sources], timeout=120, capture=True)
    return Types(path)
