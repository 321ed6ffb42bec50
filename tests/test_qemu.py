# SPDX-License-Identifier: GPL-2.0-only
"""The choice of QEMU where the system's is new, where it is old, and where no other can be had."""

import pytest

from kit import apt, paths, qemu
from kit.run import Error


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A function that makes the system have a QEMU of a version, or none, and no archive."""
    qemu.find.cache_clear()

    def no_archive():
        raise Error("nowhere to take it from")

    def install(version):
        program = tmp_path / qemu.PROGRAM
        if version:
            program.write_text(f"#!/bin/sh\necho 'QEMU emulator version {version}'\n")
            program.chmod(0o755)
        # sh and the like have to stay
        monkeypatch.setenv("PATH", f"{tmp_path}:/nowhere")
        monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
        monkeypatch.setattr(apt, "archive", no_archive)
        return str(program)

    yield install
    qemu.find.cache_clear()


@pytest.mark.parametrize("smp_cache", [False, True])
def test_new_system(system, smp_cache):
    program = system("10.0.2 (Debian 1:10.0.2)")
    assert qemu.find(smp_cache) == qemu.Qemu((program,), {}, True)


def test_old_system_is_used_with_a_warning(system, capsys):
    program = system("7.2.22 (Debian 1:7.2)")
    assert qemu.find(False) == qemu.Qemu((program,), {}, False)
    said = capsys.readouterr().err
    print(said)
    assert "nowhere to take it from" in said and '"Oops: int3"' in said


def test_old_system_cannot_do_shared_l2(system):
    system("7.2.22 (Debian 1:7.2)")
    with pytest.raises(qemu.Unavailable, match="nowhere to take it from"):
        qemu.find(True)


@pytest.mark.parametrize("smp_cache", [False, True])
def test_none(system, smp_cache):
    system(None)
    with pytest.raises(qemu.Unavailable, match="no QEMU 10"):
        qemu.find(smp_cache)


def test_broken(system):
    system("of no version")
    with pytest.raises(qemu.Unavailable, match="does not run"):
        qemu.find(False)
