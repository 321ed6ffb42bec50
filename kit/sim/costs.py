# SPDX-License-Identifier: GPL-2.0-only
"""A file in machines/caches/: what a machine's CPUs and caches cost, for the simulation; each table of
it says where its figures are from."""

import dataclasses
from dataclasses import dataclass

from kit import paths, toml
from kit.process import Error
from kit.vm import machine

# The tables of a file, and the numbers of each; a source is in each of them too.
TABLES = {
    "core": ("mhz", "cycles_per_instruction", "smt_percent", "store_percent"),
    "l1": ("kib", "ways"),
    "l2": ("kib", "ways", "ns"),
    "l3": ("kib_per_core", "ways", "ns"),
    "other_core": ("ns",),
    "other_llc": ("ns",),
    "other_socket": ("ns",),
    "dram": ("ns",),
    "far_dram": ("ns",),
    "home": ("passed",),
    "misses": ("outstanding",),
    "atomic": ("hold_cycles",),
    "bandwidth": ("link_gbs", "memory_gbs", "socket_gbs"),
    "sleep": ("c1_exit_ns", "ipi_ns"),
}
WORDS = ("description", "qemu_cpu")
# What may be a fraction; the others are whole.
FRACTIONS = ("ns", "cycles_per_instruction")
# What is true or false, and what may be 0, which is without a limit.
FLAGS = ("passed",)
UNLIMITED = ("link_gbs",)
# Parts of the model that can be switched off, and the options that do it.
PARTS = {"bandwidth": {"link_mbs": 0, "memory_mbs": 0, "socket_mbs": 0},
         "misses": {"outstanding": 1}, "prefetch": {"prefetch": 0}, "home": {"through_home": 0},
         "hold": {"hold_cycles": 0}}
# What SCALE= multiplies: {its name: the numbers, (table, key), that it stands for}. A latency within an
# LLC is never more than one across it, so these change together; and so do the two of memory.
CLASSES = {"llc": (("l2", "ns"), ("l3", "ns"), ("other_core", "ns")), "other_llc": (("other_llc", "ns"),),
           "other_socket": (("other_socket", "ns"),), "memory": (("dram", "ns"), ("far_dram", "ns")),
           "store": (("core", "store_percent"),)}


@dataclass(frozen=True)
class Costs:
    """A file: its name, description, the model of CPU that QEMU is to show for the sizes of its
    caches, and the tables, {table: {key: number}}. Times are in ns from load to use, sizes in KiB."""
    name: str
    description: str
    qemu_cpu: str
    tables: dict

    def ns(self, table):
        """The latency of a table, in ns."""
        return self.tables[table]["ns"]

    def options(self, cores_per_llc, without=()):
        """Give what plugins/sim/plugin.c has to know of it, {option: whole number}, times in ps, bandwidth
        in MB/s. without: names of PARTS that are off."""
        core, sleep = self.tables["core"], self.tables["sleep"]
        found = {"mhz": core["mhz"], "smt_percent": core["smt_percent"],
                 "store_percent": core["store_percent"],
                 "insn_ps": round(core["cycles_per_instruction"] * 1e6 / core["mhz"]),
                 "l1_kib": self.tables["l1"]["kib"], "l2_kib": self.tables["l2"]["kib"],
                 "l3_kib": self.tables["l3"]["kib_per_core"] * cores_per_llc,
                 "c1_exit_ps": sleep["c1_exit_ns"] * 1000, "ipi_ps": sleep["ipi_ns"] * 1000}
        found |= {name.replace("gbs", "mbs"): gbs * 1000
                  for name, gbs in self.tables["bandwidth"].items()}
        found |= {"hold_cycles": self.tables["atomic"]["hold_cycles"], "outstanding": self.tables["misses"]["outstanding"], "prefetch": 1,
                  "through_home": int(self.tables["home"]["passed"])}
        found |= {f"{level}_ways": self.tables[level]["ways"] for level in ("l1", "l2", "l3")}
        found |= {f"{table.removeprefix('other_')}_ps": round(numbers["ns"] * 1000)
                  for table, numbers in self.tables.items() if "ns" in numbers}
        for part in without:
            found |= PARTS[part]
        return found


@dataclass(frozen=True)
class Scaled(machine.Machine):
    """A Machine whose costs are multiplied; scale: ((one of CLASSES, factor), ...); without: the names of
    PARTS of the model that are off."""
    scale: tuple = ()
    without: tuple = ()


def scaled(m, scale, without=()):
    """Give a Machine with its costs multiplied as SCALE= says and without the parts of the model that
    WITHOUT= names, or `m` if both are empty. Error if there is no such class of costs, or no such part."""
    for name, _ in scale:
        if name not in CLASSES:
            raise Error(f"SCALE={name}=...: there is no such class of costs; there are:"
                        f" {', '.join(CLASSES)}")
    for part in without:
        if part not in PARTS:
            raise Error(f"WITHOUT={part}: there is no such part of the model; there are: {', '.join(PARTS)}")
    if not scale and not without:
        return m
    return Scaled(**dataclasses.asdict(m), scale=scale, without=tuple(sorted(without)))


def load(name):
    """Read machines/caches/NAME.toml; Error that names the table and key for what is wrong."""
    path = paths.CACHES / f"{name}.toml"
    if not path.is_file():
        raise Error(f"no caches called {name}; there are: {', '.join(names())}")
    values = toml.read(path)
    try:
        return _check(name, values)
    except Error as error:
        raise Error(f"{path}: {error}") from None


def of(m):
    """Give the Costs of a Machine; Error if its file names none, or a file that is not there."""
    if not m.caches:
        raise Error(f"{m.name}: cannot be simulated, as its file does not say which caches it has;"
                    f" those that do: {', '.join(machines())}")
    found = load(m.caches)
    for name, factor in getattr(m, "scale", ()):
        for table, key in CLASSES[name]:
            value = found.tables[table][key] * factor
            found.tables[table][key] = value if key == "ns" else round(value)
    return found


def machines():
    """Give the names of all machines that can be simulated, sorted."""
    every = [*machine.names(), *machine.names(paths.SIMULATED)]
    return sorted(name for name in every if machine.load(name).caches)


def names():
    """Give the names of the files, sorted."""
    return sorted(path.stem for path in paths.CACHES.glob("*.toml"))


def _check(name, values):
    for key in values:
        if key not in TABLES and key not in WORDS:
            raise Error(f"{key}: unknown; known are: {', '.join([*WORDS, *TABLES])}")
    for key in WORDS:
        if not isinstance(values.get(key), str):
            raise Error(f"{key}: missing, or no text")
    tables = {}
    for table, keys in TABLES.items():
        given = values.get(table)
        if not isinstance(given, dict):
            raise Error(f"{table}: missing, or no table")
        for key in given:
            if key not in (*keys, "source"):
                raise Error(f"{table}.{key}: unknown key; known are: {', '.join(keys)}, source")
        if not isinstance(given.get("source"), str) or not given["source"]:
            raise Error(f"{table}.source: missing: say where the figures are from")
        for key in keys:
            if key in FLAGS:
                if type(given.get(key)) is not bool:
                    raise Error(f"{table}.{key}: must be true or false, is {given.get(key)!r}")
                continue
            kinds = (int, float) if key in FRACTIONS else (int,)
            if type(given.get(key)) not in kinds or given[key] < 0 or (
                    given[key] == 0 and key not in UNLIMITED):
                raise Error(f"{table}.{key}: must be a {'' if key in FRACTIONS else 'whole '}"
                            f"number above 0, is {given.get(key)!r}")
        tables[table] = {key: given[key] for key in keys}
    order = [tables[table]["ns"] for table in ("l2", "l3", "other_core", "other_llc", "other_socket")]
    if order != sorted(order):
        raise Error("ns: of l2, l3, other_core, other_llc, other_socket none may be less than the "
                    "one before")
    for level, size in (("l1", "kib"), ("l2", "kib"), ("l3", "kib_per_core")):
        if tables[level][size] * 16 % tables[level]["ways"]:
            raise Error(f"{level}.ways: {tables[level]['ways']} does not divide {size}")
    return Costs(name, values["description"], values["qemu_cpu"], tables)
