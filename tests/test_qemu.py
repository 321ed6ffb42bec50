# SPDX-License-Identifier: GPL-2.0-only
"""The choice of QEMU where the system's is new, where it is old, and where no other can be had."""

import hashlib

import pytest

from conftest import pack
from here import script
from kit import apt
from kit.process import sh
from kit.vm import qemu

SAYS = "echo 'QEMU emulator version {}'"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A function that makes the system have a QEMU of a version, or none, and no apt."""
    qemu.find.cache_clear()
    monkeypatch.setattr(apt, "here", lambda: False)

    def install(version):
        program = tmp_path / "bin" / qemu.PROGRAM
        program.parent.mkdir()
        if version:
            script(program, SAYS.format(version))
        # sh and the like have to stay
        monkeypatch.setenv("PATH", f"{program.parent}:/nowhere")
        return str(program)

    install.build = tmp_path / "build"
    yield install
    qemu.find.cache_clear()


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """A function that pins a toy of a QEMU of a version, and makes an archive of a release that
    has it, or has dropped it; it gives the pinned packages."""
    def make(version="10.0.2", release="bookworm", dropped=False, suite_dropped=False):
        root = tmp_path / "package"
        script(root / "usr/bin" / qemu.PROGRAM, SAYS.format(version))
        deb = pack(root, tmp_path / "toy.deb", "toy", "1-1")
        pin = tmp_path / "qemu.toml"
        pin.write_text('release = "bookworm"\nsuite = "bookworm-backports"\n[[deb]]\n'
                       'package = "toy"\nversion = "1-1"\n'
                       f'sha256 = "{hashlib.sha256(deb.read_bytes()).hexdigest()}"\n'
                       f'urls = ["{(tmp_path / "elsewhere").as_uri()}"]\n')
        monkeypatch.setattr(qemu, "PIN", pin)
        monkeypatch.setattr(apt, "archive", lambda: ("http://archive.example/debian", release))

        class Fake:
            def __init__(self, work, uri, suites):
                assert suites[0] == "bookworm" and suites[1:] in ((), ("bookworm-backports",))
                if suite_dropped and len(suites) > 1:
                    raise apt.Error("E: The repository bookworm-backports does not exist")
                work.mkdir(parents=True)

            def download(self, package):
                if dropped:
                    raise apt.Error("E: Version '1-1' for 'toy' was not found")
                return deb.replace(deb.with_name("downloaded"))

            def unpack(self, packages, suite, directory):
                for package in packages:
                    sh(["/usr/bin/dpkg", "-x", package, directory], env={"PATH": "/usr/bin:/bin"})

        monkeypatch.setattr(apt, "Apt", Fake)
        return deb
    return make


def test_new_system(system):
    program = system("10.0.2 (Debian 1:10.0.2)")
    assert qemu.find(system.build) == qemu.Qemu((program,), {})


def test_old_system_gets_the_pinned_one(system, archive, tmp_path):
    archive()
    system("7.2.22 (Debian 1:7.2)")
    found = qemu.find(system.build)
    assert found.command[0] == str(tmp_path / "build/qemu/root/usr/bin" / qemu.PROGRAM)
    assert qemu.version(found) == "10.0.2"


def test_archive_that_dropped_the_suite(system, archive, tmp_path):
    archive(dropped=True, suite_dropped=True).rename(tmp_path / "elsewhere")
    system(None)
    assert qemu.version(qemu.find(system.build)) == "10.0.2"


@pytest.mark.parametrize("have", ["7.2.22 (Debian 1:7.2)", None])
def test_unsupported_system_is_an_error_with_the_way_out(system, archive, have):
    """Not a guest that dies now and then."""
    archive(dropped=True)
    system(have)
    with pytest.raises(qemu.Unavailable) as caught:
        qemu.find(system.build)
    text = str(caught.value)
    print(text)
    for words in ("is QEMU 7.2.22" if have else "is not installed", "the guests need 10 or later",
                  "E: Version '1-1' for 'toy' was not found", "Way out: install QEMU 10 or later",
                  "docs/hosts.md"):
        assert words in text


def test_other_file_than_the_pinned_one(system, archive):
    archive().write_bytes(b"something else")
    system("7.2.22 (Debian 1:7.2)")
    with pytest.raises(qemu.Unavailable, match="its SHA-256 is .*, pinned is"):
        qemu.find(system.build)


def test_other_release(system, archive):
    archive(release="bullseye")
    system("5.2.0")
    with pytest.raises(qemu.Unavailable, match="QEMU is for Debian bookworm, this is bullseye"):
        qemu.find(system.build)


def test_broken(system):
    system("of no version")
    with pytest.raises(qemu.Unavailable, match="does not run"):
        qemu.find(system.build)
