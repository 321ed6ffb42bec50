# SPDX-License-Identifier: GPL-2.0-only
"""The table of commands, which packages make installs for each, and what is said where it cannot."""

import importlib.util
import os
import pty
import subprocess
import sys

import pytest

from here import call, script
from kit import __main__ as main
from kit import process, settings
from kit.commands import COMMANDS
from kit.paths import ROOT

# What each of these must not make a user install.
NOT_FOR = {"boot": {"gcc-aarch64-linux-gnu", "python3-scipy", "sparse", "python3-pytest"},
           "tree": {"build-essential", "qemu-system-x86"},
           "deb": {"qemu-system-x86", "mmdebstrap", "python3-numpy"},
           "report": {"git", "build-essential", "qemu-system-x86"},
           "kernel": {"qemu-system-x86", "python3-numpy"},
           "sim": {"sparse", "gcc-aarch64-linux-gnu", "python3-pytest"},
           "bench-host-dir": {"bc", "build-essential", "qemu-system-x86"},
           "test-fast": {"qemu-system-x86", "busybox-static", "gcc-aarch64-linux-gnu", "pahole",
                         "stress-ng", "rt-tests", "trace-cmd", "linux-perf"}}


def tiers():
    """The packages of packages.txt by tier."""
    found, tier = {}, None
    for line in (ROOT / "packages.txt").read_text().splitlines():
        if line.startswith("["):
            tier = found[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            tier.append(line.partition(":")[0])
    return found


def packages_of(*commands):
    """The packages that these commands of the table need."""
    return {name for command in commands for tier in COMMANDS[command].tiers for name in tiers()[tier]}


def make(*words):
    """Run make in the repository, free of what is above it."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "DEPS", "PYTHON"))}
    return call("make", *words, cwd=ROOT, env=env)


@pytest.fixture
def system(tmp_path):
    """A function that runs deps.sh for some commands on a system with the given packages installed
    and programs there; give (exit status, output, calls of apt-get). typed: what is typed, if its
    stdin is a terminal; fails: what apt-get cannot do."""
    def run(*args, installed=(), programs=("dpkg-query", "apt-get"), sudo="", tiers="", typed=None,
            fails="nothing"):
        path = tmp_path / "bin"
        path.mkdir()
        for name in ("sh", "awk", "sed", "sort", "tr", "grep", "dirname", "env"):
            (path / name).symlink_to(f"/usr/bin/{name}")
        scripts = {
            "dpkg-query": "".join(f"echo installed {name}\n" for name in installed)
                          + "echo not-installed bc\nexit 1",
            "apt-get": f'echo "$@" >> {tmp_path}/calls\ncase " $* " in *" {fails} "*) exit 100;; esac\n',
            "sudo": 'exec "$@"\n'}
        for name in programs:
            script(path / name, scripts[name])
        stdin = subprocess.DEVNULL
        if typed is not None:
            keyboard, stdin = pty.openpty()
            os.write(keyboard, typed.encode())
        done = subprocess.run(["/bin/sh", ROOT / "kit/deps.sh", *args], text=True, stdin=stdin,
                              env={"PATH": str(path), "SUDO": sudo, "TIERS": tiers},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(done.stdout)
        calls = tmp_path / "calls"
        said = calls.read_text().splitlines() if calls.exists() else []
        return done.returncode, done.stdout, said
    return run


def test_nothing_is_missing(system):
    """Then apt is not called at all."""
    assert system("tree", "report", installed=packages_of("tree", "report")) == (0, "", [])


def test_a_command_without_packages(system):
    assert system("bench-host", "clean", programs=()) == (0, "", [])


@pytest.mark.parametrize("typed", [None, "\n", "y\n"])
def test_what_is_missing_is_installed(system, typed):
    """That, and nothing for other commands. Only on a terminal does it ask."""
    status, said, calls = system("kernel", typed=typed,
                                 installed=packages_of("kernel") - {"bc", "git"})
    assert status == 0 and "deps: installing bc git\n" in said and ("go on?" in said) == bool(typed)
    assert calls == ["-q update", "-q -y install --no-install-recommends bc git"]


@pytest.mark.parametrize("typed", ["n\n", "\4"])
def test_no_is_an_answer(system, typed):
    status, said, calls = system("kernel", typed=typed)
    assert status == 1 and calls == [] and "nothing is installed; DEPS=0" in said


def test_commands_together(system):
    _, _, calls = system("report", "deb")
    assert set(calls[1].split()[4:]) == packages_of("report", "deb")


def test_by_way_of_sudo(system):
    status, _, calls = system(tiers="sim", programs=("dpkg-query", "apt-get", "sudo"), sudo="sudo")
    assert status == 0 and calls[1].endswith("install --no-install-recommends python3-pyelftools")


def test_without_sudo(system):
    status, said, calls = system(tiers="sim", sudo="sudo")
    assert status == 1 and calls == []
    assert "as root: apt-get install python3-pyelftools" in said


@pytest.mark.parametrize("fails, wanted", [("update", 0), ("install", 1)])
def test_apt_that_fails(system, fails, wanted):
    """A source that cannot be read does not keep Debian's packages from being installed."""
    status, said, calls = system(tiers="sim", fails=fails)
    assert status == wanted and len(calls) == 2
    assert ("not installed; as root: apt-get update, apt-get install python3-pyelftools" in said) == bool(wanted)


@pytest.mark.parametrize("programs", [(), ("dpkg-query",)])
def test_system_without_apt(system, programs):
    """The packages of each tier and the ways out, and make stops."""
    status, said, calls = system("boot", programs=programs)
    assert status == 1 and calls == []
    for words in ("  boot: busybox-static qemu-system-x86 rsync", "  tree: bzip2", "DEPS=0",
                  "docs/hosts.md"):
        assert words in said
    assert "python3-scipy" not in said


def test_unknown_command(system):
    """As of COMMANDS= of the container, which make does not check."""
    status, said, calls = system("boot", "bot")
    assert status == 1 and calls == [] and said == "deps: there is no command bot in commands.txt\n"


def test_unknown_tier(system):
    status, said, calls = system(tiers="boat")
    assert status == 1 and calls == []
    assert "no tier boat; there are: tree compile kernel boot" in said


@pytest.mark.parametrize("command", sorted(NOT_FOR))
def test_command_needs_no_more(command):
    print(f"make {command}: tiers {' '.join(COMMANDS[command].tiers)}: {len(packages_of(command))} packages")
    assert packages_of(command) and not packages_of(command) & NOT_FOR[command]


def test_the_table_names_what_exists():
    """Modules, tiers and settings; and each tier and each setting is of use to a command."""
    every = list(COMMANDS.values())
    assert all(importlib.util.find_spec(one.module) for one in every if one.module)
    assert {tier for one in every for tier in one.tiers} == set(tiers())
    assert {name for one in every for name in one.settings} == {
        one.name for one in settings.SETTINGS} - {"KIT_BUILD"}
    assert set(COMMANDS["deps"].tiers) == set(COMMANDS["test"].tiers)


def test_make_runs_each_command():
    """Packages first, then the kit; what the table has without a module is a rule of its own."""
    shown = make("help").stdout
    for one in COMMANDS.values():
        assert f"  {one.name:<16}{one.help}\n" in shown
        said = make("-n", one.name).stdout
        assert (f"kit/deps.sh {one.name}\n/usr/bin/python3 -m kit {one.name}\n" in said) == bool(one.module)
    assert "kit/deps.sh deb sim\n" in make("-n", "deb", "sim").stdout
    assert "deps.sh" not in make("-n", "boot", "DEPS=0").stdout


@pytest.mark.parametrize("name", ["nonsense", "tests", "results"])
def test_no_such_command(name):
    """Also where there is a directory of that name, and before a command in front of it runs."""
    done = make("settings", name)
    assert done.returncode and done.stdout == ""
    assert done.stderr.count("\n") == 1 and f"{name}: there is no such command; `make help`" in done.stderr


@pytest.mark.parametrize("name, package, tier", [
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", "cross"),
    ("gcc", "build-essential", "compile"), ("scipy", "python3-scipy", "report"),
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
