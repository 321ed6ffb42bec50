# SPDX-License-Identifier: GPL-2.0-only
"""Machine files: each error names its key, and expected() returns the groups in TABLES."""

import dataclasses

import pytest

from kit import paths
from kit.process import Error
from kit.sim import costs
from kit.vm import machine

GOOD = {
    "description": '"a machine"', "sockets": "2", "llcs_per_socket": "2", "cores_per_llc": "4",
    "threads_per_core": "2", "memory_mib": "1024",
}

BAD = [
    # what to change (None: leave out), what the message has to name
    ({"colour": '"red"'}, "colour"),
    ({"sockets": None}, "sockets"),
    ({"description": None}, "description"),
    ({"memory_mib": None}, "memory_mib"),
    ({"sockets": '"two"'}, "sockets"),
    ({"sockets": "true"}, "sockets"),
    ({"sockets": "2.0"}, "sockets"),
    ({"nosmt": "1"}, "nosmt"),
    ({"description": "5"}, "description"),
    ({"numa_distances": "5"}, "numa_distances"),
    ({"llcs_per_socket": "0"}, "llcs_per_socket"),
    ({"cores_per_llc": "-4"}, "cores_per_llc"),
    ({"threads_per_core": "3"}, "threads_per_core"),
    ({"threads_per_core": "16"}, "threads_per_core"),
    ({"cores_per_l2": "3"}, "cores_per_l2"),
    ({"cores_per_l2": "8"}, "cores_per_l2"),
    ({"nosmt": "true", "threads_per_core": "1"}, "nosmt"),
    ({"numa_nodes": "3"}, "numa_nodes"),
    ({"sockets": "4", "llcs_per_socket": "3", "numa_nodes": "6"}, "numa_nodes"),
    ({"numa_nodes": "32"}, "numa_nodes"),
    ({"numa_nodes": "8", "cores_per_l2": "4"}, "numa_nodes"),
    ({"numa_nodes": "2", "memory_mib": "1023"}, "memory_mib"),
    ({"numa_distances": "[[10, 20], [20, 10]]"}, "numa_distances"),
    ({"numa_nodes": "2", "numa_distances": "[[10, 20]]"}, "numa_distances"),
    ({"numa_nodes": "2", "numa_distances": "[[10, 20], [20]]"}, "numa_distances"),
    ({"numa_nodes": "2", "numa_distances": "[[10, 20], 20]"}, "numa_distances"),
    ({"numa_nodes": "2", "numa_distances": "[[10, 20], [21, 10]]"}, "numa_distances"),
    ({"numa_nodes": "2", "numa_distances": "[[11, 20], [20, 10]]"}, "numa_distances"),
    ({"numa_nodes": "2", "numa_distances": "[[10, 10], [10, 10]]"}, "numa_distances"),
    ({"numa_nodes": "2", "numa_distances": "[[10, 255], [255, 10]]"}, "numa_distances"),
    ({"numa_nodes": "2", "numa_distances": '[[10, "x"], [20, 10]]'}, "numa_distances"),
    ({"cores_per_llc": "65"}, "cores_per_llc"),
    ({"caches": "5"}, "caches"),
]


def write(path, changes):
    values = GOOD | changes
    path.write_text("".join(f"{k} = {v}\n" for k, v in values.items() if v is not None))
    return path


@pytest.mark.parametrize("changes,key", BAD, ids=[f"{k}-{i}" for i, (_, k) in enumerate(BAD)])
def test_bad_file_names_the_key(tmp_path, changes, key):
    path = write(tmp_path / "bad.toml", changes)
    with pytest.raises(Error) as caught:
        machine.load(path)
    message = str(caught.value)
    print(message)
    # The message begins with the key, or with a product of keys.
    said = message.removeprefix(f"{path}: ")
    assert said.split(":")[0].split(" * ").count(key) == 1
    assert "\n" not in message


def test_good_file(tmp_path):
    m = machine.load(write(tmp_path / "good.toml", {}))
    assert (m.name, m.cpus, m.nosmt, m.cores_per_l2, m.numa_nodes) == ("good", 32, False, 1, 1)


def test_not_toml_and_not_there(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("sockets = \n")
    for name, part in ((path, "not TOML"), (tmp_path / "none.toml", "No such file"),
                       ("none-such", "two-ccx")):
        with pytest.raises(Error, match=part):
            machine.load(name)


def runs(size, count, first=0):
    """count groups of size CPUs, each with the number of its first CPU."""
    return [first + size * number for number in range(count) for _ in range(size)]


# machine: (L2 groups, LLCs, nodes), each the value of CPU 0, 1, 2 ...
TABLES = {
    "one-llc": (runs(2, 2), [0, 0, 0, 0], [0] * 4),
    "two-ccx": ([0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10, 12, 12, 14, 14], [0] * 8 + [8] * 8,
                [0] * 16),
    "epyc-32": (runs(2, 16), runs(8, 4), [0] * 16 + [1] * 16),
    "epyc-9654-64": (runs(2, 32), runs(8, 8), [0] * 32 + [1] * 32),
    "spr-32": (runs(2, 16), runs(16, 2), [0] * 32),
    "nosmt": ([0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14, -1],
              [0, -1, 0, -1, 0, -1, 0, -1, 8, -1, 8, -1, 8, -1, 8, -1], [0] * 16),
    "numa-distances": (runs(2, 8), runs(4, 4), [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4),
    "smt8": (runs(8, 2), [0] * 16, [0] * 16),
    "e-cores": (runs(4, 4), [0] * 16, [0] * 16),
    "snc": (list(range(16)), runs(8, 2), [0] * 8 + [1] * 8),
    "three-llcs": (list(range(24)), runs(8, 3), [0] * 24),
    "vcpu-sockets": (list(range(8)), list(range(8)), [0] * 8),
}


def test_every_machine_has_a_table():
    assert set(machine.names()) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_expected(name):
    groups, llcs, nodes = TABLES[name]
    expected = machine.load(name).expected()
    print(f"{name}: {len(expected)} CPUs, {len({cpu.l2 for cpu in expected} - {-1})} groups, "
          f"{len({cpu.llc for cpu in expected} - {-1})} LLCs")
    assert [cpu.cpu for cpu in expected] == list(range(len(groups)))
    assert [cpu.l2 for cpu in expected] == groups
    assert [cpu.llc for cpu in expected] == llcs
    assert [cpu.node for cpu in expected] == nodes
    assert [cpu.active for cpu in expected] == [group >= 0 for group in groups]


def test_l2_larger_than_a_group_with_nosmt_and_clusters(tmp_path):
    """An L2 of 4 cores with SMT off: its 4 active CPUs, not the first 4 CPUs by number."""
    m = machine.load(write(tmp_path / "m.toml", {"sockets": "1", "llcs_per_socket": "1",
                                                 "cores_per_llc": "8", "cores_per_l2": "4",
                                                 "nosmt": "true"}))
    assert [cpu.l2 for cpu in m.expected()] == [0, -1] * 4 + [8, -1] * 4


def test_interrupts_of_many_cpus(tmp_path):
    """The last APIC id counts, and ids have gaps: 180 CPUs need more than 255."""
    few = machine.load(write(tmp_path / "few.toml", {}))
    many = machine.load(write(tmp_path / "many.toml", {"sockets": "3", "llcs_per_socket": "5",
                                                       "cores_per_llc": "6"}))
    print(few.apic_id_last(), many.apic_id_last())
    assert (few.apic_id_last(), many.apic_id_last()) == (31, 2 * 128 + 4 * 16 + 5 * 2 + 1)
    assert "intel-iommu" not in " ".join(few.qemu_args())
    assert "intel-iommu,intremap=on,eim=on" in many.qemu_args()


@pytest.mark.parametrize("name", costs.machines())
def test_simulated(name):
    m = machine.load(name)
    options = costs.of(m).options(m.cores_per_llc)
    assert all(type(value) is int and value >= 0 for value in options.values())


def test_machine_without_caches():
    with pytest.raises(Error, match="one-llc: cannot be simulated.*epyc-2x2x8"):
        costs.of(machine.load("one-llc"))
    with pytest.raises(Error, match="no caches called of-a-pdp-11; there are: epyc-9654"):
        costs.of(dataclasses.replace(machine.load("one-llc"), caches="of-a-pdp-11"))


@pytest.mark.parametrize("old, new, says", [
    ("ns = 14.0", "", r"l3.ns: must be a number above 0, is None"),
    ("ns = 14.0", "ns = -1", r"l3.ns: must be a number above 0, is -1"),
    ("ns = 14.0", "ns = true", r"l3.ns: must be a number"),
    ("ns = 14.0", "ns = 2.0", r"ns: of l2, l3"),
    ("mhz = 3550", "mhz = 3550.5", r"core.mhz: must be a whole number"),
    ("mhz = 3550", "ghz = 4", r"core.ghz: unknown key"),
    ("[l2]", "[l4]", r"l4: unknown"),
    ("description", "descriptions", r"descriptions: unknown"),
    ('qemu_cpu = "EPYC-Genoa"', "", r"qemu_cpu: missing"),
    ('source = "the same: at least 14 cycles"', "", r"l2.source: missing"),
    ("ways = 16", "ways = 7", r"l3.ways: 7 does not divide"),
    ("[l3]", "[l3", r"not TOML"),
])
def test_bad_caches(tmp_path, monkeypatch, old, new, says):
    text = (paths.CACHES / "epyc-9654.toml").read_text()
    assert old in text
    (tmp_path / "bad.toml").write_text(text.replace(old, new, 1))
    monkeypatch.setattr(paths, "CACHES", tmp_path)
    with pytest.raises(Error, match=says) as caught:
        costs.load("bad")
    print(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/bad.toml: ")
