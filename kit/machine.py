# SPDX-License-Identifier: GPL-2.0-only
"""A machine file: the topology QEMU is told to emulate, and what the kernel should make of it.

expected() never looks at a kernel: it is the other side of the comparison in the tests.
"""

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path

from kit import caches, paths
from kit.run import Error

# With this many active CPUs or fewer, what shares a cache is one small cache group.
GROUP_MAX = 4
# CONFIG_NR_CPUS of configs/boot.config.
CPUS_MAX = 512
# Above this APIC id interrupts go by way of an IOMMU.
APIC_ID_MAX = 254

# key: (type, default); None where the file has to give a value
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
    """What the kernel should report for one possible CPU. Each id is the first active CPU of what
    is shared, -1 if the CPU itself is not active; node is a node number."""
    cpu: int
    active: bool
    group: int
    l2: int
    llc: int
    node: int


@dataclass(frozen=True)
class Machine:
    """One machine file. The fields are its keys, and the name is that of the file."""
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
        """How many CPUs are possible, whether or not they are active."""
        return (self.sockets * self.llcs_per_socket * self.cores_per_llc
                * self.threads_per_core)

    @property
    def needs_smp_cache(self):
        """True if QEMU has to be told which cores share an L2 (it can from version 10 on)."""
        return self.cores_per_l2 > 1

    def costs(self):
        """Give the Caches of the machine; Error if its file names none."""
        if not self.caches:
            raise Error(f"{self.name}: cannot be simulated, as its file does not say which caches it "
                        f"has; those that do: {', '.join(simulated())}")
        return caches.load(self.caches)

    def apic_id_last(self):
        """The highest APIC id. Each level takes whole bits of it, so sizes that are no powers of two
        leave holes."""
        last = 0
        for count in (self.sockets, self.llcs_per_socket, self.cores_per_llc // self.cores_per_l2,
                      self.cores_per_l2, self.threads_per_core):
            last = (last << (count - 1).bit_length()) + count - 1
        return last

    def qemu_args(self, cpu=None):
        """Give the QEMU arguments for CPUs, memory and nodes, as a list; cpu: another model than the
        usual."""
        smp = f"{self.cpus},sockets={self.sockets},dies={self.llcs_per_socket}"
        machine = "q35"
        if self.needs_smp_cache:
            smp += f",modules={self.cores_per_llc // self.cores_per_l2}"
            smp += f",cores={self.cores_per_l2}"
            machine += ",smp-cache.0.cache=l2,smp-cache.0.topology=module"
            machine += ",smp-cache.1.cache=l3,smp-cache.1.topology=die"
        else:
            smp += f",cores={self.cores_per_llc}"
        smp += f",threads={self.threads_per_core}"
        # With this vendor the kernel reads the caches from CPUID leaf 4, and there QEMU says one
        # L3 a die; with AMD's it says one L3 a socket, whatever dies= is. What is asked of a leaf
        # above the highest is answered from the highest: if that is the topology's, 1FH, QEMU 10
        # fails an assertion.
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
        """Give the Machine with so many times the sockets; Error if that is too large."""
        more = dataclasses.replace(self, sockets=self.sockets * times)
        _check_cpus(more)
        return more

    def kernel_args(self):
        """Give the kernel arguments that belong to the machine, as a list."""
        return ["nosmt"] if self.nosmt else []

    def expected(self):
        """Give a list with a Cpu for each possible CPU.

        QEMU numbers CPUs with threads next to each other, then cores, LLCs and sockets. With
        nosmt the first thread of each core stays.
        """
        llc_size = self.cores_per_llc * self.threads_per_core
        l2_size = self.cores_per_l2 * self.threads_per_core
        node_size = self.cpus // self.numa_nodes

        def active_in(first, size):
            step = self.threads_per_core if self.nosmt else 1
            return list(range(first, first + size, step))

        result = []
        for cpu in range(self.cpus):
            llc = active_in(cpu - cpu % llc_size, llc_size)
            l2 = active_in(cpu - cpu % l2_size, l2_size)
            node = cpu // node_size
            if cpu not in llc:
                result.append(Cpu(cpu, False, -1, -1, -1, node))
                continue
            if len(llc) <= GROUP_MAX:
                group = llc[0]
            else:
                place = l2.index(cpu)
                group = l2[place - place % GROUP_MAX]
            result.append(Cpu(cpu, True, group, l2[0], llc[0], node))
        return result


def load(name_or_path):
    """Read machines/NAME.toml, or the file itself if given a path ending in .toml.

    Give a Machine. Error, naming the key, if the file has a key that is not known, lacks one, or
    describes what QEMU or x86 cannot be.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = paths.MACHINES / f"{name_or_path}.toml"
        if not path.is_file():
            path = paths.SIMULATED / f"{name_or_path}.toml"
        if not path.is_file():
            raise Error(f"no machine called {name_or_path}; there are: {', '.join(names())}; and for "
                        f"the simulation: {', '.join(_stems(paths.SIMULATED))}")
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Error(f"{path}: not TOML: {error}") from None
    try:
        return _check(path.stem, values)
    except Error as error:
        raise Error(f"{path}: {error}") from None


def names():
    """Give the names of the machines in machines/, which every boot test runs on, sorted."""
    return _stems(paths.MACHINES)


def simulated():
    """Give the names of all machines whose caches are known, sorted: those in machines/simulated/, and
    some of the others."""
    return sorted(name for name in [*names(), *_stems(paths.SIMULATED)] if load(name).caches)


def _stems(directory):
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
        # not isinstance(): it takes true for an int
        if type(value) is not kind:
            raise Error(f"{key}: must be of type {kind.__name__}, is {value!r}")
        if kind is int and value < 1:
            raise Error(f"{key}: must be 1 or more, is {value}")
        full[key] = value
    machine = Machine(name, **full)
    _check_cpus(machine)
    _check_nodes(machine)
    if machine.caches and machine.caches not in caches.names():
        raise Error(f"caches: there is no {machine.caches}; there are: {', '.join(caches.names())}")
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
    if llcs % nodes:
        raise Error(f"numa_nodes: {nodes} does not divide the {llcs} LLCs "
                    "(sockets * llcs_per_socket)")
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
