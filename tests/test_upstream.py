# SPDX-License-Identifier: GPL-2.0-only
"""HARDWARE.md and what a person sends from docs/upstream/: the profile of a testbed, on a stub of geni-lib, and the
file for a test service."""

import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest

from here import call, script
from kit.paths import ROOT
from test_docs import commands, wrong

UPSTREAM = ROOT / "docs/upstream"


class Anything:
    """Takes any attribute; a call of addService is kept."""

    def __init__(self, *args, **named):
        self.args, self.named, self.services = args, named, []

    def addService(self, service):
        self.services.append(service)


class Context:
    """The portal's: parameters have their defaults, or the `given` values."""

    def __init__(self, **given):
        self.values, self.given, self.errors, self.nodes, self.printed = {}, given, [], [], False

    def defineParameter(self, name, _what, _type, default, legal=None, longDescription=None):
        assert legal is None or default in [value for value, _ in legal]
        self.values[name] = default

    def bindParameters(self):
        return types.SimpleNamespace(**self.values | self.given)

    def reportError(self, error):
        self.errors.append(error)

    def verifyParameters(self):
        if self.errors:
            sys.exit(101)

    def makeRequestRSpec(self):
        return self

    def RawPC(self, name):
        node = Anything(name)
        node.Blockstore = lambda *args: setattr(node, "space", Anything(*args)) or node.space
        self.nodes.append(node)
        return node

    def printRequestRSpec(self):
        self.printed = True


@pytest.fixture
def profile(monkeypatch):
    """A function that runs the profile with parameters; the Context."""
    def run(**given):
        portal = types.ModuleType("geni.portal")
        portal.context = Context(**given)
        portal.ParameterType, portal.ParameterError = types.SimpleNamespace(
            **{name: name for name in ("STRING", "NODETYPE", "IMAGE", "INTEGER")}), Anything
        pg = types.ModuleType("geni.rspec.pg")
        pg.Execute = Anything
        for name, module in {"geni": types.ModuleType("geni"), "geni.portal": portal,
                             "geni.rspec": types.ModuleType("geni.rspec"), "geni.rspec.pg": pg}.items():
            monkeypatch.setitem(sys.modules, name, module)
        sys.modules["geni"].portal, sys.modules["geni.rspec"].pg = portal, pg
        run.context = portal.context
        runpy.run_path(str(UPSTREAM / "profile.py"))
        return portal.context
    return run


def test_profile_requests_one_server(profile):
    context = profile(repository="https://example.org/a b.git", hardware="c6525-25g", disk=30)
    [node] = context.nodes
    assert context.printed and node.hardware_type == "c6525-25g" and node.disk_image.startswith("urn:publicid:")
    assert node.space.args == ("space", "/mydata") and node.space.size == "30GB"


def test_profile_builds_once(profile, tmp_path):
    """The service clones and builds, with the name of the repository as one word, and not again after a reboot."""
    [service] = profile(repository="https://example.org/a b.git").nodes[0].services
    for name in ("sudo", "git", "make", "apt-get"):
        script(tmp_path / name, 'exec "$@"' if name == "sudo" else
               f'for word in {name} "$@"; do printf "[%s]" "$word"; done; echo')
    (tmp_path / "repository").mkdir()
    command = service.named["command"].replace("/mydata", str(tmp_path))
    for _ in range(2):
        subprocess.run([service.named["shell"], "-c", command], check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
        text = (tmp_path / "packages.log").read_text()
        (tmp_path / "packages.log").write_text(text + "again\n")
    assert "[git][clone][--][https://example.org/a b.git][repository]\n[make][deb][CONFIG=/boot/config-" in text
    assert text.endswith("\npackages: done\nagain\n")
    assert not wrong(re.search(r"make (deb.*?);", service.named["command"])[1].split())


def test_profile_needs_a_repository(profile):
    with pytest.raises(SystemExit):
        profile()
    assert run_nothing(profile.context)


def run_nothing(context):
    """Whether nothing was requested."""
    return len(context.errors) == 1 and not context.nodes and not context.printed


def test_the_file_for_0_day_is_to_be_filled_in():
    """It names no host and nobody; the text says how many places there are."""
    text = (UPSTREAM / "0-day.yaml").read_text()
    assert all(re.fullmatch(r"[a-z_]+: .+", line) for line in text.splitlines())
    assert text.startswith("url: FILL-IN") and "://" not in text and "@" not in text
    assert text.count("FILL-IN") == 5 and "five places begin with FILL-IN" in (UPSTREAM / "0-day.txt").read_text()


def test_hardware_page_is_short_and_its_commands_exist():
    text = (ROOT / "HARDWARE.md").read_text()
    assert len(text.splitlines()) <= 80 and commands(text)
    tools = re.findall(r"^    (?:sudo )?(tools/\S+)", text, re.M)
    assert tools == ["tools/llcstat", "tools/sched-ab", "tools/sched-selftests"]
    for tool in tools[:2]:
        assert "--line" in call(ROOT / tool, "--help", check=True).stdout


def test_two_groups_runs_on_any_host(tmp_path):
    """The benchmark is one file, without a warning, and counts the work of both groups. Without the feature it says that it
    cannot switch it."""
    program = tmp_path / "two_groups"
    subprocess.run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, UPSTREAM / "two_groups.c"],
                   check=True)
    done = call(program, "-t", "1", "-k", "64", "-n", "1", "-s", "1", check=True)
    figures = re.findall(r"^median (\S+)(?: \d\d %)? +([\d.]+)$", done.stdout, re.M)
    assert [name for name, _ in figures] == ["GB/s", "handoffs/ms", "us", "us"]
    assert all(float(value) > 0 for _, value in figures)
    assert re.search(r"own memory in LLC:threads -?\d+:1; pairs( -?\d+:\d)+$", done.stdout, re.M)
    if not Path("/sys/kernel/debug/sched/llc_balancing/enabled").exists():
        assert call(program, "-x").returncode == 1
    assert call(program, "-n", "6", "-x").returncode == 2


def test_figures_for_grouping_are_those_of_the_results():
    """That of the two groups is in the history: its row was declared anew and not run."""
    text = (UPSTREAM / "grouping.txt").read_text()
    rows = (ROOT / "results/README.md").read_text()
    for figure in ("-52.3 % (-52.7 to -51.8)", "-6.3 % (-7.4 to -5.2)", "+36.4 % (+32.4 to +40.5)",
                   "+29.6 % (+29.3 to +29.9)", "+13.3 % (+1.2 to +23.9)"):
        assert figure in text and figure in rows, figure
    assert "-46.6 % (-54.6 to -37.2)" in text and "-46.6 % (-54.6 to -37.2)" in (UPSTREAM / "two_groups.c").read_text()
    assert "two_groups.c" in text and "No hardware" in " ".join(text.split())
