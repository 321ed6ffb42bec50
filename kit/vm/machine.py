# SPDX-License-Identifier: GPL-2.0-only
"""A machine file: the topology that QEMU emulates, and the topology that the kernel should see.

expected() never asks a kernel: tests compare what a kernel reports with it.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from kit import paths, toml
from kit.process import Error

# CONFIG_NR_CPUS of configs/boot.config.
CPUS_MAX = 512
# Above this APIC id, interrupts need an IOMMU with remapping.
APIC_ID_MAX = 254

# key: (type, default); None: the file must give a value
KEYS = {
    "description": (str, None),
    "sockets": (int, None),
    "llcs_per_socket": (int, None),
    "cores_per_llc": (int, None),
    "threads_per_core": (int, None),
    "cores_per_l2": (int, 1),
    "memory_mib": (int, None),
    "nosmt": (bool, False),
    "numa_nodes": (int, 1),
    "numa_distances": (list, []),
    "caches": (str, ""),
}
CPU_KEYS = "sockets * llcs_per_socket * cores_per_llc * threads_per_core"


@dataclass(frozen=True)
class Cpu:
    """What the kernel should report for one possible CPU. An id is the first active CPU that shares
    the resource, or -1 if the CPU itself is not active; node is a node number."""
    cpu: int
    active: bool
    l2: int
    llc: int
    node: int


@dataclass(frozen=True)
class Machine:
    """One machine file: its name, and a field for each key."""
    name: str
    description: str
    sockets: int
    llcs_per_socket: int
    cores_per_llc: int
    threads_per_core: int
    cores_per_l2: int
    memory_mib: int
    nosmt: bool
    numa_nodes: int
    numa_distances: list
    caches: str = ""

    @property
    def cpus(self):
        """The number of possible CPUs, active or not."""
        return (self.sockets * self.llcs_per_socket * self.cores_per_llc
                * self.threads_per_core)

    def apic_id_last(self):
        """The highest APIC id. Each level takes whole bits of it, so a size that is not a power of two
        leaves a gap."""
        last = 0
        for count in (self.sockets, self.llcs_per_socket, self.cores_per_llc // self.cores_per_l2,
                      self.cores_per_l2, self.threads_per_core):
            last = (last << (count - 1).bit_length()) + count - 1
        return last

    def qemu_args(self, cpu=None):
        """Return the list of QEMU's arguments for CPUs, memory and nodes; cpu: a CPU model in place
        of the default."""
        smp = f"{self.cpus},sockets={self.sockets},dies={self.llcs_per_socket}"
        machine = "q35"
        if self.cores_per_l2 > 1:
            # Which cores share an L2, QEMU can be told from version 10 on.
            smp += f",modules={self.cores_per_llc // self.cores_per_l2}"
            smp += f",cores={self.cores_per_l2}"
            machine += ",smp-cache.0.cache=l2,smp-cache.0.topology=module"
            machine += ",smp-cache.1.cache=l3,smp-cache.1.topology=die"
        else:
            smp += f",cores={self.cores_per_llc}"
        smp += f",threads={self.threads_per_core}"
        # With this vendor the kernel reads the caches from CPUID leaf 4, in which QEMU describes one
        # L3 for each die; with AMD's, one for each socket, whatever dies= is. A query above the
        # highest leaf is answered from the highest: if that is the topology's, 1FH, QEMU 10 fails
        # an assertion.
        args = ["-machine", machine, "-smp", smp, "-m", f"{self.memory_mib}M",
                "-cpu", cpu or "max,vendor=GenuineIntel,l3-cache=on,min-level=0x20"]
        if self.apic_id_last() > APIC_ID_MAX:
            args += ["-device", "intel-iommu,intremap=on,eim=on"]
        if self.numa_nodes == 1:
            return args
        memory = self.memory_mib // self.numa_nodes
        share = self.cpus // self.numa_nodes
        for node in range(self.numa_nodes):
            first = node * share
            args += ["-object", f"memory-backend-ram,id=m{node},size={memory}M", "-numa",
                     f"node,nodeid={node},cpus={first}-{first + share - 1},memdev=m{node}"]
        for src, row in enumerate(self.numa_distances):
            for dst, distance in enumerate(row):
                args += ["-numa", f"dist,src={src},dst={dst},val={distance}"]
        return args

    def larger(self, times):
        """Return the Machine with `times` as many sockets; Error if that is too large."""
        more = dataclasses.replace(self, sockets=self.sockets * times)
        _check_cpus(more)
        return more

    def kernel_args(self):
        """Return the list of kernel arguments that the machine needs."""
        return ["nosmt"] if self.nosmt else []

    def expected(self):
        """Return a list with a Cpu for each possible CPU.

        QEMU numbers the threads of a core consecutively, then cores, LLCs and sockets. With nosmt,
        the first thread of each core stays active.
        """
        node_size = self.cpus // self.numa_nodes
        # For the scheduler an LLC ends where its node does.
        llc_size = min(self.cores_per_llc * self.threads_per_core, node_size)
        l2_size = self.cores_per_l2 * self.threads_per_core

        def active_in(first, size):
            step = self.threads_per_core if self.nosmt else 1
            return list(range(first, first + size, step))

        result = []
        for cpu in range(self.cpus):
            llc = active_in(cpu - cpu % llc_size, llc_size)
            l2 = active_in(cpu - cpu % l2_size, l2_size)
            node = cpu // node_size
            if cpu not in llc:
                result.append(Cpu(cpu, False, -1, -1, node))
                continue
            result.append(Cpu(cpu, True, l2[0], llc[0], node))
        return result


def load(name_or_path):
    """Read machines/NAME.toml, or the file itself if given a path ending in .toml; return a Machine.

    Error, naming the key, if the file has an unknown key, lacks a key, or describes a topology that
    QEMU or x86 cannot have.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = paths.MACHINES / f"{name_or_path}.toml"
        if not path.is_file():
            path = paths.SIMULATED / f"{name_or_path}.toml"
        if not path.is_file():
            raise Error(f"no machine called {name_or_path}; there are: {', '.join(names())}; and for "
                        f"the simulation: {', '.join(names(paths.SIMULATED))}")
    values = toml.read(path)
    try:
        return _check(path.stem, values)
    except Error as error:
        raise Error(f"{path}: {error}") from None


def names(directory=paths.MACHINES):
    """Return the sorted names of the machine files in a directory; every boot test runs on those in
    machines/."""
    return sorted(path.stem for path in directory.glob("*.toml"))


def _check(name, values):
    for key in values:
        if key not in KEYS:
            raise Error(f"{key}: unknown key; known are: {', '.join(KEYS)}")
    full = {}
    for key, (kind, default) in KEYS.items():
        value = values.get(key, default)
        if value is None:
            raise Error(f"{key}: missing")
        # isinstance() would accept a bool as an int.
        if type(value) is not kind:
            raise Error(f"{key}: must be of type {kind.__name__}, is {value!r}")
        if kind is int and value < 1:
            raise Error(f"{key}: must be 1 or more, is {value}")
        full[key] = value
    machine = Machine(name, **full)
    _check_cpus(machine)
    _check_nodes(machine)
    return machine


def _check_cpus(m):
    if m.threads_per_core not in (1, 2, 4, 8):
        raise Error(f"threads_per_core: must be 1, 2, 4 or 8, is {m.threads_per_core}")
    if m.cores_per_llc % m.cores_per_l2:
        raise Error(f"cores_per_l2: {m.cores_per_l2} does not divide cores_per_llc "
                    f"({m.cores_per_llc})")
    if m.nosmt and m.threads_per_core == 1:
        raise Error("nosmt: there is no SMT to switch off with threads_per_core = 1")
    if m.cpus > CPUS_MAX:
        raise Error(f"{CPU_KEYS}: {m.cpus} CPUs, more than the {CPUS_MAX} supported")


def _check_nodes(m):
    nodes = m.numa_nodes
    llcs = m.sockets * m.llcs_per_socket
    if llcs % nodes and nodes % llcs:
        raise Error(f"numa_nodes: {nodes} does not divide the {llcs} LLCs "
                    "(sockets * llcs_per_socket), nor do these divide the nodes")
    if m.cores_per_llc % (m.cores_per_l2 * max(nodes // llcs, 1)):
        raise Error(f"numa_nodes: {nodes} nodes do not divide the cores of {llcs} LLCs into whole "
                    "L2 caches")
    if nodes % m.sockets and m.sockets % nodes:
        raise Error(f"numa_nodes: with {nodes} nodes and {m.sockets} sockets a node would have "
                    "part of a socket and part of another")
    if m.memory_mib % nodes:
        raise Error(f"memory_mib: {m.memory_mib} is not the same whole number for each of "
                    f"{nodes} nodes")
    rows = m.numa_distances
    if not rows:
        return
    if nodes == 1:
        raise Error("numa_distances: there is one node, so there is no distance")
    if len(rows) != nodes or any(type(row) is not list or len(row) != nodes for row in rows):
        raise Error(f"numa_distances: must be {nodes} lists of {nodes} distances, one for each "
                    "pair of nodes")
    for src, row in enumerate(rows):
        for dst, distance in enumerate(row):
            where = f"numa_distances: from node {src} to node {dst}"
            if type(distance) is not int:
                raise Error(f"{where}: must be of type int, is {distance!r}")
            if src == dst and distance != 10:
                raise Error(f"{where}: a node is at distance 10 from itself, not {distance}")
            if src != dst and not 10 < distance < 255:
                raise Error(f"{where}: must be 11 to 254, is {distance}")
            if distance != rows[dst][src]:
                raise Error(f"{where}: {distance}, but {rows[dst][src]} the other way")
