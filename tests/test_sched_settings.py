# SPDX-License-Identifier: GPL-2.0-only
"""tools/sched-settings and its systemd unit: on a made-up directory in place of debugfs, and in a guest (with
tests/test_llcplot.py)."""

import os
import re
import shutil

import pytest

from here import call
from kit.paths import ROOT

TOOL = ROOT / "tools/sched-settings"
UNIT = ROOT / "tools/sched-settings.service"


@pytest.fixture
def apply(tmp_path):
    """A function that applies the text of a settings file to a made-up sched/: (status, stdout, stderr). Of
    the files there, `frozen` keeps its value and `full` refuses a write."""
    sched = tmp_path / "sched"
    (sched / "llc_balancing").mkdir(parents=True)
    (sched / "features").write_text("SCHED_CACHE NO_SIS_FAST \n")
    (sched / "base_slice_ns").write_text("2800000\n")
    (sched / "llc_balancing/aggr_tolerance").write_text("1\n")
    # What is written to the one is lost; the other has no space left.
    (sched / "frozen").symlink_to("/dev/null")
    (sched / "full").symlink_to("/dev/full")

    def run(text, debugfs=sched):
        path = tmp_path / "conf"
        path.write_text(text)
        done = call("/bin/sh", TOOL, path, env=os.environ | {"SCHED_DEBUGFS": str(debugfs), "LC_ALL": "C"})
        return done.returncode, done.stdout, done.stderr.replace(f"{path}:", "")
    run.sched = sched
    return run


def test_settings_are_applied(apply):
    status, out, err = apply("# a comment = none\n\nfeatures=SIS_FAST\nbase_slice_ns=700000\n"
                             "llc_balancing/aggr_tolerance=100")
    assert (status, err) == (0, "") and "3 applied, 0 failed" in out
    assert (apply.sched / "features").read_text() == "SIS_FAST\n"
    assert (apply.sched / "base_slice_ns").read_text() == "700000\n"
    # The last line has no newline.
    assert (apply.sched / "llc_balancing/aggr_tolerance").read_text() == "100\n"


@pytest.mark.parametrize("line, says", [
    ("llc_balancing/none=1", "this kernel has no such file"),
    ("base_slice_ns", "not NAME=VALUE"), ("base_slice_ns=", "not NAME=VALUE"),
    ("../../etc/passwd=x", "not the name of a file below"), ("/etc/passwd=x", "not the name of a file"),
    ("llc_balancing/../../../x=1", "not the name of a file"), ("=1", "not the name of a file"),
    ("llc_balancing=1", "this kernel has no such file"),
    ("frozen=1", "this kernel has no such file"), ("full=1", "this kernel has no such file"),
])
def test_a_line_that_fails(apply, line, says):
    """It is reported with its number, the next one is applied, and the status says that one failed."""
    status, out, err = apply(f"{line}\nbase_slice_ns=700000\n")
    assert status == 1 and f"1: {line}: {says}" in err and "1 applied, 1 failed" in out
    assert (apply.sched / "base_slice_ns").read_text() == "700000\n"


def test_refused_writes(apply, monkeypatch):
    """Where the kernel refuses a value, or takes it and does not keep it. A made-up `[` tells the script that
    the devices that stand for such files are regular ones."""
    text = TOOL.read_text()
    assert text.count('[ -f "$path" ]') == 1
    tool = apply.sched.parent / "tool"
    tool.write_text(text.replace('[ -f "$path" ]', '[ -e "$path" ]'))
    monkeypatch.setattr(f"{__name__}.TOOL", tool)
    status, _, err = apply("frozen=1\nfull=1\n")
    assert status == 1 and "1: frozen=1: written, but the file does not show it" in err
    assert "2: full=1: refused: " in err and "error" in err.lower()


def test_a_line_that_may_fail(apply):
    status, out, err = apply("-llc_balancing/none=1\n-base_slice_ns=700000\n")
    assert (status, err) == (0, "") and "left out: llc_balancing/none=1" in out
    assert (apply.sched / "base_slice_ns").read_text() == "700000\n"
    # Not a typing error.
    assert apply("-base_slice_ns\n")[0] == 1


def test_no_debugfs_or_file(apply, tmp_path):
    status, _, err = apply("features=SIS_FAST\n", tmp_path / "none")
    assert status == 1 and "is debugfs mounted" in err
    done = call("/bin/sh", TOOL, tmp_path / "none")
    assert done.returncode == 1 and "cannot read" in done.stderr
    assert call("/bin/sh", TOOL, "a", "b").returncode == 2


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(option):
    done = call("/bin/sh", TOOL, option)
    assert (done.returncode, done.stderr) == (0, "") and "A line is NAME=VALUE" in done.stdout


def test_example_is_valid(apply):
    """Its lines are comments; without the # they are lines that the script takes."""
    text = (ROOT / "tools/sched-settings.conf").read_text()
    assert apply(text)[0] == 0
    lines = re.findall(r"^#(-\S+)$", text, re.M)
    assert lines and apply("\n".join(lines))[0] == 0


def test_unit(tmp_path):
    """systemd takes the unit, if it names a program that is there."""
    assert shutil.which("systemd-analyze"), "make deps TIERS=test installs systemd"
    unit = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert "ExecStart=/usr/local/sbin/sched-settings\n" in text
    unit.write_text(text.replace("/usr/local/sbin/sched-settings", str(TOOL)))

    def verify():
        # Without --user it makes a directory in /run, where systemd is installed and does not run.
        return call("systemd-analyze", "--user", "verify", unit, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)})

    done = verify()
    assert (done.returncode, done.stderr) == (0, "")
    unit.write_text(text.replace("Type=oneshot", "Type=once"))
    done = verify()
    assert "once" in done.stderr
