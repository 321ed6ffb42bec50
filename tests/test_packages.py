# SPDX-License-Identifier: GPL-2.0-only
"""Which packages a target installs, and what is said where they cannot be installed."""

import os
import re
import subprocess
import sys

import pytest

from kit import __main__ as main
from kit import process
from kit.paths import ROOT

# What each of these must not make a user install.
NOT_FOR = {"boot": {"gcc-aarch64-linux-gnu", "python3-scipy", "sparse", "python3-pytest"},
           "tree": {"build-essential", "qemu-system-x86"},
           "deb": {"qemu-system-x86", "mmdebstrap", "python3-numpy"},
           "report": {"git", "build-essential", "qemu-system-x86"},
           "kernel": {"qemu-system-x86", "python3-numpy"},
           "sim": {"sparse", "gcc-aarch64-linux-gnu", "python3-pytest"},
           "test-fast": {"qemu-system-x86", "gcc-aarch64-linux-gnu"}}


def tiers():
    """The packages of packages.txt by tier."""
    found, tier = {}, None
    for line in (ROOT / "packages.txt").read_text().splitlines():
        if line.startswith("["):
            tier = found[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            tier.append(line.partition(":")[0])
    return found


def make(*words):
    """What make -n prints of a target."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", "-n", *words], cwd=ROOT, env=env, capture_output=True, text=True,
                          check=True).stdout


def tiers_of(*words):
    """The tiers whose packages make would see to before a target; None if none."""
    found = re.search(r"^SUDO=\S* sh kit/deps.sh (.*)$", make(*words), re.M)
    return found and found[1].split()


@pytest.fixture
def system(tmp_path):
    """A function that runs deps.sh for some tiers on a system with the given packages installed
    and programs there; give (exit status, output, calls of apt-get)."""
    def run(*args, installed=(), programs=("dpkg-query", "apt-get"), sudo=""):
        path = tmp_path / "bin"
        path.mkdir()
        for name in ("sh", "awk", "sed", "sort", "tr", "grep", "dirname", "env"):
            (path / name).symlink_to(f"/usr/bin/{name}")
        scripts = {
            "dpkg-query": "".join(f"echo installed {name}\n" for name in installed)
                          + "echo not-installed bc\nexit 1\n",
            "apt-get": f'echo "$@" >> {tmp_path}/calls\n', "sudo": 'exec "$@"\n'}
        for name in programs:
            (path / name).write_text("#!/bin/sh\n" + scripts[name])
            (path / name).chmod(0o755)
        done = subprocess.run(["/bin/sh", ROOT / "kit/deps.sh", *args], text=True,
                              env={"PATH": str(path), "SUDO": sudo}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        print(done.stdout)
        calls = tmp_path / "calls"
        said = calls.read_text().splitlines() if calls.exists() else []
        return done.returncode, done.stdout, said
    return run


def test_nothing_is_missing(system):
    """Then apt is not called at all."""
    assert system("tree", "report", installed=tiers()["tree"] + tiers()["report"]) == (0, "", [])


def test_what_is_missing_is_installed(system):
    """That, and nothing of other tiers."""
    status, _, calls = system("tree", "kernel", installed=[
        name for name in tiers()["tree"] + tiers()["kernel"] if name not in ("bc", "git")])
    assert status == 0
    assert calls == ["-q update", "-q -y install --no-install-recommends bc git"]


def test_by_way_of_sudo(system):
    status, _, calls = system("sim", programs=("dpkg-query", "apt-get", "sudo"), sudo="sudo")
    assert status == 0 and calls[1].endswith(" python3-pyelftools")


def test_without_sudo(system):
    status, said, calls = system("sim", sudo="sudo")
    assert status == 1 and calls == []
    assert "as root: apt-get install python3-pyelftools" in said


@pytest.mark.parametrize("programs", [(), ("dpkg-query",)])
def test_system_without_apt(system, programs):
    """The packages of each tier and the ways out, and make stops."""
    status, said, calls = system("tree", "boot", programs=programs)
    assert status == 1 and calls == []
    for words in ("  boot: busybox-static qemu-system-x86 rsync", "  tree: bzip2", "DEPS=0",
                  "docs/hosts.md"):
        assert words in said
    assert "python3-scipy" not in said


def test_unknown_tier(system):
    status, said, calls = system("boat")
    assert status == 1 and calls == []
    assert "no tier boat; there are: tree kernel boot torture report sim" in said


@pytest.mark.parametrize("target", sorted(NOT_FOR))
def test_target_needs_no_more(target):
    wanted = tiers_of(target)
    packages = {name for tier in wanted for name in tiers()[tier]}
    print(f"make {target}: tiers {' '.join(wanted)}: {len(packages)} packages")
    assert wanted and not packages & NOT_FOR[target]


def test_every_target_names_its_tiers():
    """A target that depends on deps names tiers that exist; no other one asks for packages."""
    text = (ROOT / "Makefile").read_text()
    for target, needs in re.findall(r"^([a-z-]+):(.*?)##", text, re.M):
        wanted = tiers_of(target)
        assert (wanted is not None) == ("deps" in needs or target == "deps"), target
        assert set(wanted or ()) <= set(tiers()), target
        assert wanted != [], f"{target} has no tiers_{target} in the Makefile"
    assert set(tiers_of("deps")) == set(tiers()) - {"deb", "deb-test"} == set(tiers_of("test"))


def test_targets_together_and_none():
    assert set(tiers_of("report", "sim")) == {"tree", "kernel", "boot", "report", "sim"}
    assert tiers_of("deps", "TIERS=deb") == ["deb"]
    assert tiers_of("boot", "DEPS=0") is None


@pytest.mark.parametrize("name, package, tier", [
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", "cross"),
    ("gcc", "build-essential", "kernel"), ("scipy", "python3-scipy", "report"),
    ("busybox", "busybox-static", "boot")])
def test_message_names_package_and_tier(name, package, tier):
    text = process.missing(name)
    assert text == f"{name} is not installed: it is in the Debian package {package}; make deps" \
                   f" TIERS={tier} installs it"
    assert package in tiers()[tier]


def test_missing_program_is_named_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(process.Error, match="sparse is not installed: .* sparse; .*TIERS=check"):
        process.sh(["sparse", "--version"])


def test_missing_module_is_named_so(monkeypatch, capsys):
    """No traceback."""
    for name in [name for name in sys.modules if name.startswith(("kit.results", "kit.pages"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scipy", None)
    assert main.main(["report"]) == 1
    said = capsys.readouterr().err
    assert said == f"error: {process.missing('scipy')}\n" and "python3-scipy" in said
