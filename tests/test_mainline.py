# SPDX-License-Identifier: GPL-2.0-only
"""Mainline's source from another release's archive, here with packages and an apt made up."""

import pytest

from kit import apt, base, mainline
from kit.paths import Layout
from kit.run import Error, sh

NEW = "7.3.9-1~bpo13+1"


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """An archive with packages that a test puts in: {version: .deb}."""
    debs = {}

    class Apt:
        def __init__(self, work, uri, suites):
            assert suites == (mainline.SUITE,)
            work.mkdir()

        def versions(self, package):
            assert package == mainline.PACKAGE
            return list(debs)

        def download(self, package):
            return debs[package.split("=")[1]]

    def add(version):
        root = tmp_path / version
        inner = root / f"usr/src/{mainline.PACKAGE}"
        (inner / "kernel").mkdir(parents=True)
        (inner / "Makefile").write_text("VERSION = 7\nPATCHLEVEL = 3\nSUBLEVEL = 4\n")
        (inner / "kernel/one.c").write_text(f"/* {version} */\n")
        sh(["tar", "-C", inner.parent, "-cJf", f"{inner}.tar.xz", "--remove-files", inner.name])
        (root / "DEBIAN").mkdir()
        (root / "DEBIAN/control").write_text(
            f"Package: {mainline.PACKAGE}\nVersion: {version}\nArchitecture: all\n"
            "Maintainer: nobody <nobody@example.org>\nDescription: a toy\n")
        debs[version] = tmp_path / f"{version}.deb"
        sh(["dpkg-deb", "-b", root, debs[version]], capture=True)
        return debs[version]

    monkeypatch.setattr(apt, "Apt", Apt)
    monkeypatch.setattr(apt, "archive", lambda: ("http://archive.example/debian", "bookworm"))
    return add


@pytest.fixture
def layout(tmp_path):
    return Layout(build=tmp_path / "build", patches=tmp_path / "patches")


def test_pinned_version(archive, layout, monkeypatch, capsys):
    monkeypatch.setattr(mainline, "SHA256", base.sha256(archive(mainline.VERSION)))
    archive(NEW)
    source = mainline.ensure(layout)
    assert mainline.version(layout) == mainline.VERSION
    assert mainline.VERSION in (source / "kernel/one.c").read_text()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(mainline, "_fetch", None)
    assert mainline.ensure(layout) == source


def test_other_pinned_version_takes_its_place(archive, layout, monkeypatch):
    monkeypatch.setattr(mainline, "SHA256", base.sha256(archive(mainline.VERSION)))
    mainline.ensure(layout)
    monkeypatch.setattr(mainline, "SHA256", base.sha256(archive(NEW)))
    monkeypatch.setattr(mainline, "VERSION", NEW)
    mainline.ensure(layout)
    assert mainline.version(layout) == NEW


def test_wrong_checksum(archive, layout):
    archive(mainline.VERSION)
    with pytest.raises(Error, match="its SHA-256 is .*, pinned is") as caught:
        mainline.ensure(layout)
    print(caught.value)
    assert not (layout.build / "7.3/linux").exists()


def test_version_that_is_gone(archive, layout, capsys):
    """The one that is there instead is taken, once, and is said to be another."""
    archive(NEW)
    mainline.ensure(layout)
    assert mainline.version(layout) == NEW
    warned = capsys.readouterr().err
    print(warned)
    assert f"no longer has linux-source-7.3 {mainline.VERSION}: taking {NEW}" in warned
    mainline.ensure(layout)
    assert capsys.readouterr().err == ""


def test_archive_without_it(archive, layout):
    with pytest.raises(Error, match="trixie-backports does not have it"):
        mainline.ensure(layout)


def test_versions_that_apt_cache_knows(tmp_path, monkeypatch):
    """Each once, sources left out, in its order, which is newest first."""
    program = tmp_path / "apt-cache"
    program.write_text("#!/bin/sh\n[ \"$*\" = '-o A=b madison p' ] || exit 1\n"
                       "echo ' p | 2-1 | http://x b/main amd64 Packages'\n"
                       "echo ' p | 2-1 | http://y b/main amd64 Packages'\n"
                       "echo ' p | 3-1 | http://x b/main Sources'\n"
                       "echo ' p | 1-1 | http://x b/main amd64 Packages'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert apt.versions("p", ["-o", "A=b"]) == ["2-1", "1-1"]
