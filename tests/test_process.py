# SPDX-License-Identifier: GPL-2.0-only
"""Running programs: the errors, and that no process is left."""

import re
import time

import pytest

from here import gone, wait_for
from kit import process
from kit.process import Error, sh


@pytest.mark.parametrize("how", [{"capture": True}, {"progress": print}, {}])
def test_timeout_ends_the_whole_group(tmp_path, monkeypatch, how):
    monkeypatch.setattr(process, "GRACE", 0.5)
    script = (f"trap '' TERM; sleep 1000 & echo $! > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/child;"
              " echo started; wait; sleep 999")
    started = time.monotonic()
    # On a busy host the shell may not come as far in half a second.
    for timeout in (0.5, 5, 50, 500):
        with pytest.raises(Error, match=f"killed after {timeout} s: sh -c"):
            sh(["sh", "-c", script], timeout=timeout, **how)
        if (tmp_path / "child").exists():
            break
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: gone(child))
    print(f"a shell that ignores SIGTERM, and its child: gone in {time.monotonic() - started:.1f} s")


def test_command_that_leaves_something_running(tmp_path):
    sh(["sh", "-c", f"sleep 1000 >/dev/null 2>&1 & echo $! > {tmp_path}/child"])
    child = int((tmp_path / "child").read_text())
    wait_for(lambda: gone(child))
    print("what a command left in its group was ended with it")


def test_failure_shows_command_and_last_lines(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(Error) as caught:
        sh(["sh", "-c", "seq 100; exit 3"], log=log)
    lines = str(caught.value).splitlines()
    print(caught.value)
    assert lines[0] == "failed with status 3: sh -c 'seq 100; exit 3'"
    assert lines[1] == f"  {101 - process.TAIL}" and lines[-2] == "  100"
    assert lines[-1] == f"(all of it in {log})" and log.read_text().count("\n") == 100


def test_missing_program_and_directory(tmp_path):
    with pytest.raises(Error, match="^no-such-program is not installed$"):
        sh(["no-such-program"])
    with pytest.raises(Error, match="no directory .*/gone to run true in"):
        sh(["true"], cwd=tmp_path / "gone")


def test_git_is_free_of_the_callers_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text("[diff]\n\tnoprefix = true\n[user]\n\tname = Somebody\n")
    process.git(tmp_path, "init", "-q", "repo")
    keys = process.git(tmp_path / "repo", "config", "--list", "--name-only").out.split()
    assert "diff.noprefix" not in keys and "user.name" not in keys
    print(f"{len(keys)} settings, none of them from the user")


@pytest.mark.parametrize("total, text", [(0, "2 files, "), (9, "2 of 9 files, ")])
def test_progress_without_a_terminal(capsys, monkeypatch, total, text):
    monkeypatch.setattr(process, "QUIET", 0)
    progress = process.Progress("kernel stack", r"  (?:CC|HOSTCC)\s+(\S+)", total)
    for line in ("make[1]: Entering directory", "  CC      kernel/sched/core.o",
                 "  HOSTCC  scripts/x", "x.c:1:2: warning: odd"):
        progress(line)
    progress.end()
    out, err = capsys.readouterr()
    print(out + err)
    assert out.splitlines()[-1].startswith("kernel stack: " + text) and "\r" not in out
    assert err == "x.c:1:2: warning: odd\n"


def test_space_on_the_disk(tmp_path):
    process.room(tmp_path / "not/there", 0, "this")
    with pytest.raises(process.Error, match=re.escape(f"this needs 1000000000.0 GB of disk space in {tmp_path}, and")):
        process.room(tmp_path / "not/there", 1e9, "this")
