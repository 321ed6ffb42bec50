# SPDX-License-Identifier: GPL-2.0-only
"""The kit's modules import downwards only, and in no circle; those for hosts only each other. Tools are one file. Scripts
pass shellcheck."""

import ast
import fnmatch
import graphlib
import shutil
import sys

import pytest

from here import call
from kit import process
from kit.commands import COMMANDS
from kit.host import portable
from kit.paths import ROOT

# From the bottom to the top: "" is kit/ itself.
LAYERS = ("", "stack", "vm", "results", "cost", "sim", "host", "trials", "pages")


def imported(text, version=sys.version_info[:2]):
    """Give what a source for a version of python imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(text, feature_version=version)):
        if isinstance(node, ast.ImportFrom):
            # Of a package that is a submodule, of a module a name in it.
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def packages(names):
    """The packages that these are in, without Python's own."""
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def modules(top):
    """Give {module of the kit below `top`: what it imports, anywhere in it: modules of the kit, and the
    names of packages that are not Python's own}."""
    paths = {".".join(path.relative_to(top).with_suffix("").parts): path for path in sorted((top / "kit").rglob("*.py"))}
    found = {}
    for name, path in paths.items():
        names = imported(path.read_text())
        found[name] = names & set(paths) | packages(names) - {"kit"}
    return found


def reached(found, module):
    """Give all that a module imports, and what that imports, from {module: imports}."""
    seen, left = set(), [module]
    while left:
        name = left.pop()
        left += found.get(name, set()) - seen
        seen.add(name)
    return seen


def is_portable(module):
    """Whether a module is copied by bench-host-dir to hosts that have python 3.9 and little else."""
    return any(fnmatch.fnmatch(module, f"kit.{name}".replace("/", ".")) for name in portable.MODULES)


def layer(module):
    """The place of a module in LAYERS, below all for a package of others; ValueError if it is in none."""
    if not module.startswith("kit."):
        return -1
    return LAYERS.index(module.split(".")[1] if module.count(".") > 1 else "")


def faults(found):
    """Give what is wrong with {module: imports}, a line each."""
    lines = [f"{name} imports {other}, which is above it" for name, others in found.items()
             for other in sorted(others) if layer(other) > layer(name)]
    lines += [f"{name} imports {other}, which hosts do not have" for name, others in found.items() if is_portable(name)
              for other in sorted(others) if other.startswith("kit.") and not is_portable(other)]
    try:
        graphlib.TopologicalSorter(found).prepare()
    except graphlib.CycleError as error:
        lines.append(f"a circle: {' -> '.join(error.args[1])}")
    return lines


def test_imports_go_down():
    found = modules(ROOT)
    assert "kit.vm.kernel" in found["kit.vm.guest"]
    assert faults(found) == []


def test_packages_of_what_each_command_imports_are_installed():
    found, lacking = modules(ROOT), []
    for command in COMMANDS.values():
        # A command without tiers installs nothing, and does with what is there.
        others = [name for name in reached(found, command.module) if not name.startswith("kit.")]
        lacking += [f"make {command.name}: {process.missing(name)}" for name in sorted(filter(None, others))
                    if command.tiers and process.missing(name).partition("TIERS=")[2].split()[0] not in command.tiers]
    assert lacking == []


@pytest.mark.parametrize("name", ["llcctl", "llcstat", "sched-ab"])
def test_tools_need_nothing_but_python(name):
    """One file each, for python 3.9."""
    assert not packages(imported((ROOT / "tools" / name).read_text(), (3, 9)))


@pytest.mark.parametrize("path", [ROOT / "tools/sched-settings", ROOT / "tools/sched-selftests",
                                  *sorted((ROOT / "guest/debian").glob("*.sh"))], ids=lambda path: path.name)
def test_shellcheck(path):
    assert shutil.which("shellcheck"), "make deps TIERS=test installs it"
    done = call("shellcheck", "-s", "sh", path)
    assert (done.returncode, done.stdout) == (0, "")
