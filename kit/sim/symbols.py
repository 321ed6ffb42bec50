# SPDX-License-Identifier: GPL-2.0-only
"""What is at an address of a guest: the function, for an instruction, and for data the variable, or
whose it is."""

import re
from bisect import bisect_right
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

KERNEL_HALF = 1 << 63
# The kernel's image, which its own variables are in, and what it maps of RAM.
IMAGE = 0xffffffff80000000
MAPPED = 0xffff888000000000
# A task_struct is smaller.
TASK_MOST = 16384


@dataclass(frozen=True)
class Place:
    """Where data is: whose it is, and how many bytes in."""
    owner: str
    offset: int = 0

    def __str__(self):
        return f"{self.owner}+{self.offset:#x}"


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

    def __init__(self, system_map, program):
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

    def function(self, pc):
        """Give the name of the function that an instruction is in."""
        found = (self.functions if pc >= KERNEL_HALF else self.user_functions).at(pc)
        # What the compiler split off is a part of it.
        return found[0].split(".")[0] if found else f"{pc:#x}"

    def place(self, address, per_cpu, tasks):
        """Give the Place of data. per_cpu: what is added to the address of a percpu variable for each
        CPU; tasks: addresses of task_structs, sorted."""
        if address < KERNEL_HALF:
            found = self.user_variables.at(address) if address < self.user_end else None
            return Place(*found) if found else Place("memory of the workload")
        for cpu, offset in enumerate(per_cpu):
            if self.first <= (address - offset) % (1 << 64) < self.last:
                name, inside = self.per_cpu.at((address - offset) % (1 << 64))
                return Place(f"{name} of CPU {cpu}", inside)
        if address >= IMAGE:
            return Place(*self.variables.at(address))
        if MAPPED <= address < MAPPED + (1 << 46):
            inside = address - MAPPED
            first = self.address["_text"] - IMAGE
            if first <= inside < self.address["_end"] - IMAGE:
                return Place(*self.variables.at(IMAGE + inside))
            before = bisect_right(tasks, address) - 1
            if before >= 0 and address - tasks[before] < TASK_MOST:
                return Place("task_struct?", address - tasks[before])
        return Place("memory of the kernel")
