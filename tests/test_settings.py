# SPDX-License-Identifier: GPL-2.0-only
"""The table of settings: what is refused, and that nothing reads the environment past it."""

import re
import sys

import pytest

from here import call
from kit import settings
from kit.paths import DEFAULT, ROOT, Series
from kit.process import Error


def kit(*args, **env):
    """Run the command line in a process of its own, with few variables of the environment."""
    return call(sys.executable, "-m", "kit", *args, cwd=ROOT, env={"PATH": "/usr/bin:/bin", **env})


@pytest.mark.parametrize("args, env, says", [
    (["sim", "SEDE=20"], {}, "SEDE=: no such setting; sim takes: KIT_BUILD SERIES"),
    (["sim"], {"MAKEFLAGS": " -- SEDE=20"}, "SEDE=: no such setting"),
    (["sim", "SEED=20"], {}, "SEED=: sim does not take this setting"),
    (["torture", "MINUTES=0"], {}, "MINUTES=0: must be a whole number from 1 to 10000"),
    (["torture"], {"SEED": "-1"}, "SEED=-1: must be a whole number from 0 to 4294967295"),
    (["boot", "SEEDS=3"], {}, "SEEDS=: boot does not take this setting"),
    (["boot"], {"MAKEFLAGS": "w -- MACHINE=two-ccx SEEDS=3"}, "SEEDS=: boot does not take"),
    (["sim"], {"SEEDS": "many"}, "SEEDS=many: must be a whole number from 1 to 999"),
    (["sim", "SEEDS=0"], {}, "SEEDS=0: must be a whole number from 1 to 999"),
    (["bench-cost", "SHORT=yes"], {}, "SHORT=yes: must be 0 or 1"),
    (["sim", "20"], {}, "20: a setting is NAME=VALUE; python3 -m kit sim --help"),
    (["kernel", "BUILD=fast"], {}, "no such BUILD: fast"),
    (["tree", "SERIES=9.9/none"], {}, "there is no series 9.9/none"),
    (["tree", "SERIES=6.12/test-only"], {}, "6.12/test-only is no series: BUILD= applies each of its diffs by itself"),
    (["test-fast", "TESTS=-k 'a"], {}, "TESTS=-k 'a: No closing quotation"),
    (["test-fast", "TEST=x"], {}, "TEST=: no such setting; test-fast takes: KIT_BUILD SERIES LINUX"),
    (["test"], {"MAKEFLAGS": " -- SEEDS=3"}, "SEEDS=: test does not take this setting"),
])
def test_refused(args, env, says, tmp_path):
    done = kit(*args, KIT_BUILD=str(tmp_path), **env)
    assert done.returncode == 1 and says in done.stderr and "Traceback" not in done.stderr
    # Nothing is made for a series that does not exist.
    assert not list(tmp_path.glob("9.9*"))


def test_what_make_was_given():
    """Names from MAKEFLAGS, as GNU make writes it; a value may contain what looks like a setting."""
    assert settings.given("w -- SEED=20 STATES=a:b=1\\ c=2 NAME=x") == ["SEED", "STATES", "NAME"]
    assert settings.given("w --no-print-directory") == [] and settings.given("") == []
    done = call("make", "--no-print-directory", "-f", "-", "SEED=20", "NAME=a b=c",
                input='all:\n\t@echo "$$MAKEFLAGS"\n', check=True)
    assert sorted(settings.given(done.stdout.strip())) == ["NAME", "SEED"]


def test_each_command_lists_its_settings():
    shown = kit("sim", "--help").stdout
    assert "SEEDS=" in shown and "PROFILE=" not in shown
    table = kit("settings").stdout
    assert all(f"  {setting.name}=" in table for setting in settings.SETTINGS)


def test_values():
    given = settings.read("bench-host", {"SHORT": "1", "FULL": "", "WORKLOADS": "a  b", "SEED": "x"})
    assert given["SHORT"] is True and given["FULL"] is False and given["ROUNDS"] == 0
    assert given["WORKLOADS"] == ("a", "b") and given.texts == {"SHORT": "1", "WORKLOADS": "a  b"}
    with pytest.raises(Error, match="NAME=../x: must be a name of letters"):
        settings.read("sim", {"NAME": "../x"})


def test_nothing_else_reads_the_environment():
    """Every variable that the kit reads by name is in the table (PATH and MAKEFLAGS are not ours)."""
    for path in sorted((ROOT / "kit").rglob("*.py")):
        read = re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", path.read_text())
        assert set(read) <= {"PATH", "MAKEFLAGS"}, path


def test_each_series_has_results_of_its_own():
    """What is measured with another series overwrites nothing, and its command names the series."""
    default, other = Series(DEFAULT), Series("7.3/some")
    assert default.results("two-ccx") == "two-ccx" and default.setting == ""
    assert other.results("two-ccx") == "two-ccx-7.3-some" and other.setting == " SERIES=7.3/some"


@pytest.mark.parametrize("build", [".", str(ROOT.parent), "/"])
def test_build_directory_around_the_repository(build):
    """make distclean removes results/ and machines/ below KIT_BUILD."""
    done = call("make", "-n", "distclean", f"KIT_BUILD={build}", cwd=ROOT)
    assert done.returncode and "is the repository or a directory above it" in done.stderr
    assert "rm -rf" not in done.stdout
