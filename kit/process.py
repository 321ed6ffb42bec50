# SPDX-License-Identifier: GPL-2.0-only
"""Run other programs, bounded in time; none is left behind."""

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent / "packages.txt"
TAIL = 20
GRACE = 5
# Seconds between two lines of progress where there is no terminal to draw on.
QUIET = 60


class Error(Exception):
    """An error that the user can correct; shown without a traceback."""


def missing(name):
    """Say that a program or Python module is not installed, and which package of which tier of
    packages.txt has it."""
    tier = ""
    # A directory of make bench-host-dir has no such file: it needs nothing but what it measures.
    with suppress(OSError):
        for line in PACKAGES.read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                tier = line.strip("[]")
            package, _, names = line.partition(":")
            if name in names.split() and not line.startswith("#"):
                return (f"{name} is not installed: it is in the Debian package {package};"
                        f" make deps TIERS={tier} installs it")
    return f"{name} is not installed"


@dataclass(frozen=True)
class Done:
    """A command that ended: its exit status and, where captured, its output."""

    status: int
    out: str = ""
    err: str = ""


def say(text):
    """Print one line and flush it: stdout may be a pipe."""
    print(text, flush=True)


def warn(text):
    """Print one line on stderr."""
    print(text, file=sys.stderr, flush=True)


def kill_group(proc):
    """End the process group that `proc` leads (started with start_new_session) and reap it."""
    for sig in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(proc.pid, sig)
        with suppress(subprocess.TimeoutExpired):
            proc.wait(GRACE)
            break
    # The leader may have ended while one of its children ignores SIGTERM.
    with suppress(ProcessLookupError):
        os.killpg(proc.pid, signal.SIGKILL)
    proc.wait()


def sh(cmd, *, cwd=None, env=None, log=None, timeout=None, capture=False, check=True,
       input=None, progress=None) -> Done:
    """Run `cmd` (a list) in a process group of its own and wait for it.

    env       variables to add to the environment; None as a value removes one
    log       file that gets stdout and stderr, appended
    timeout   seconds; after that the group is killed and Error raised
    capture   give stdout and stderr back in Done instead of showing them
    check     raise Error, with the command and its last lines, if the status is not 0
    input     text for its stdin, which is otherwise empty
    progress  called with each line of output (stdout and stderr together), which is not shown
    """
    cmd = [str(arg) for arg in cmd]
    # The variables of our make (BUILD=, the job server) must not reach the kernel's make.
    full_env = {key: value for key, value in os.environ.items()
                if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}
    for key, value in (env or {}).items():
        full_env.pop(key, None)
        if value is not None:
            full_env[key] = str(value)
    merged = bool(log or progress) and not capture
    pipe = subprocess.PIPE if capture or merged else None
    try:
        proc = subprocess.Popen(
            cmd, cwd=cwd, env=full_env, text=True, errors="replace", start_new_session=True,
            stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
            stdout=pipe, stderr=subprocess.STDOUT if merged else pipe)
    except FileNotFoundError as error:
        if cwd is not None and not os.path.isdir(cwd):
            raise Error(f"no directory {cwd} to run {cmd[0]} in") from error
        raise Error(missing(cmd[0])) from error

    try:
        if merged:
            out, err = _follow(proc, log, progress, timeout, input), ""
        else:
            out, err = proc.communicate(input, timeout)
    except subprocess.TimeoutExpired as error:
        raise Error(f"killed after {timeout:g} s: {shlex.join(cmd)}") from error
    finally:
        # A command that succeeded may have left a process running in its group.
        kill_group(proc)

    done = Done(proc.returncode, out or "", err or "")
    if check and done.status:
        last = (done.err or done.out).splitlines()[-TAIL:]
        where = [f"(all of it in {log})"] if log else []
        raise Error("\n".join([f"failed with status {done.status}: {shlex.join(cmd)}",
                               *("  " + line for line in last), *where]))
    return done


def _follow(proc, log, progress, timeout, input):
    """Read the output line by line as it comes; give the last lines back."""
    last = deque(maxlen=TAIL)
    late = threading.Event()

    def stop():
        late.set()
        kill_group(proc)

    timer = threading.Timer(timeout, stop) if timeout else None
    if timer:
        timer.start()
    try:
        if input is not None:
            with proc.stdin:
                proc.stdin.write(input)
        with open(log or os.devnull, "a", encoding="utf-8") as file:
            for line in proc.stdout:
                file.write(line)
                last.append(line)
                if progress:
                    progress(line.rstrip("\n"))
        proc.wait()
    finally:
        if timer:
            timer.cancel()
    if late.is_set():
        raise subprocess.TimeoutExpired(proc.args, timeout)
    return "".join(last)


def git(where, *args, env=None, **options) -> Done:
    """Run git in the directory `where`, free of the caller's configuration, hooks and identity.

    The options and the Error are those of sh(); output is captured unless asked otherwise.
    """
    clean = {key: None for key in os.environ if key.startswith("GIT_")}
    clean |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C",
              "TZ": "UTC", "GIT_COMMITTER_NAME": "stack", "GIT_COMMITTER_EMAIL": "stack@localhost"}
    # Without a global configuration, safe.directory is the only way to use another user's build/.
    return sh(["git", "-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", *args],
              cwd=where, env=clean | (env or {}), **{"capture": True, **options})


class Progress:
    """Shows how many files a command has done, as the `progress` of sh(): on one line of a terminal, else
    on a new line every QUIET seconds. what: names the work; pattern: matches the output's line for a file, with
    its name as group 1; total: the number of files, if it is known."""

    def __init__(self, what, pattern, total=0):
        self.what, self.pattern, self.total = what, re.compile(pattern), f" of {total}" if total else ""
        self.files, self.started = 0, time.monotonic()
        self.terminal, self.shown = sys.stdout.isatty(), 0.0

    def __call__(self, line):
        """Count one line of output."""
        match = self.pattern.match(line)
        if not match:
            if "warning:" in line:
                self.end()
                warn(line)
            return
        self.files += 1
        elapsed = time.monotonic() - self.started
        if elapsed - self.shown < (0.1 if self.terminal else QUIET):
            return
        self.shown = elapsed
        text = f"{self.what}: {self.files}{self.total} files, {elapsed:.0f} s"
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + f"{text}  {match[1]}"[:width].ljust(width), end="", flush=True)
        else:
            say(text)

    def end(self):
        """Clear the terminal's line."""
        if self.terminal:
            print("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r", end="", flush=True)


def room(path, gigabytes, what):
    """Raise Error if there is less space than that on the disk for the file or directory `path`, which need
    not exist. what: names what needs it."""
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    free = shutil.disk_usage(there).free / 1e9
    if free < gigabytes:
        raise Error(f"{what} needs {gigabytes:.1f} GB of disk space in {there}, and {free:.1f} GB are free."
                    "\nKIT_BUILD= names another directory for all output")


@contextmanager
def lock(path):
    """Hold a lock on the file `path`, so that two runs do not write to the same directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            warn(f"waiting for another run that holds {path}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
