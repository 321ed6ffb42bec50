# SPDX-License-Identifier: GPL-2.0-only
"""The scheduler's switches in debugfs: toggled on a running kernel, and put back also after SIGKILL.

A child process, the guard, puts them back. It waits for the end of a pipe that this process holds open,
which comes also if this process is killed. Then it ends the workload that runs, and puts everything back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from kit.process import Error

SCHED = Path("/sys/kernel/debug/sched")
FEATURES = "features"
# What people and systems end programs with.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


def parse(writes):
    """Give what a state of the scheduler is made of, "FILE=VALUE,...", as a list of (file,
    value)."""
    pairs = []
    for write in filter(None, writes.split(",")):
        file, _, value = write.partition("=")
        if not file or not value or ".." in file or file.startswith("/"):
            raise Error(f"{write}: not FILE=VALUE, with a file below {SCHED}")
        pairs.append((file, value))
    return pairs


def key(file, value):
    """What a write of a value to a file replaces: (file, feature), or the whole file: (file, "")."""
    return file, value[3 * value.startswith("NO_"):] if file == FEATURES else ""


def features(sched=SCHED):
    """Give {feature: whether it is on} of the running kernel; Error if it does not say."""
    try:
        words = (sched / FEATURES).read_text().split()
    except OSError as error:
        raise Error(f"{sched / FEATURES}: {error.strerror}: is debugfs mounted, the kernel built "
                    "with CONFIG_SCHED_DEBUG, and this run as root?") from error
    return {word[3:] if word.startswith("NO_") else word: not word.startswith("NO_")
            for word in words}


def value(file, wanted, sched=SCHED):
    """Give what to write to a file to have again what it has now: of the features, only that which
    is written as `wanted`."""
    if file == FEATURES:
        name = wanted.removeprefix("NO_")
        have = features(sched)
        if name not in have:
            raise Error(f"this kernel has no feature {name}")
        return name if have[name] else f"NO_{name}"
    try:
        text = (sched / file).read_text().strip()
    except OSError as error:
        raise Error(f"{sched / file}: {error.strerror}") from error
    if not text or "\n" in text:
        raise Error(f"{sched / file}: not a file with one value")
    return text


def put(path, text):
    """Write to a file of debugfs, at once: the error, if there is one, is that of this write."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, (text + "\n").encode())
    finally:
        os.close(fd)


# What other kernels call the modes of cache-aware scheduling, mainline's among them.
MODES = {"0": "never", "1": "always"}


def write(pairs, sched=SCHED):
    """Write (file, value) pairs and read them back; Error for the first that does not last."""
    for file, text in pairs:
        try:
            put(sched / file, text)
        except OSError as error:
            raise Error(f"{sched / file}: {error.strerror}, writing {text}") from error
        if value(file, text, sched) not in (text, file == "llc_balancing/enabled" and MODES.get(text)):
            raise Error(f"{sched / file}: wrote {text}, it reads {value(file, text, sched)}")


@contextlib.contextmanager
def signals_held():
    """Let signals that end programs wait; gives the mask for a child that is not to hold them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Guard:
    """Holds the switches of a running kernel, from when it is made until close(): puts those that
    `states`, lists of (file, value), would write back to what they are now."""

    def __init__(self, states, sched=SCHED):
        self.sched = sched
        self.saved = list(dict.fromkeys((file, value(file, text, sched))
                                        for pairs in states for file, text in pairs))
        end, self.pipe = os.pipe()
        with signals_held():
            self.pid = os.fork()
            if self.pid == 0:
                # Whatever happens here, this process must not go on as the other. It holds signals
                # for as long as it lives.
                try:
                    os.close(self.pipe)
                    status = _wait_and_restore(end, self.saved, sched)
                except BaseException as error:  # pylint: disable=broad-except
                    status = 1
                    with contextlib.suppress(OSError):
                        os.write(2, f"error: the guard: {error!r}\n".encode())
                finally:
                    os._exit(status)
        os.close(end)

    def running(self, group):
        """Tell the guard which process group to end if this process does not live to do it; 0 for
        none. Error if the guard is gone."""
        try:
            os.write(self.pipe, f"{group}\n".encode())
        except BrokenPipeError as error:
            raise Error("the process that was to put the switches back was killed") from error

    def close(self):
        """Put back what was; Error if that did not work."""
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        # If it was killed. Once more does no harm.
        if status:
            status = _restore(self.saved, self.sched)
        if status:
            raise Error(f"not all in {self.sched} is as it was: see above")


def _wait_and_restore(end, saved, sched):
    """The guard's life; its exit status."""
    os.setsid()
    with open(end, encoding="ascii") as pipe:
        groups = pipe.read().split()
    if groups and int(groups[-1]):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(groups[-1]), signal.SIGKILL)
    return _restore(saved, sched)


def _restore(saved, sched):
    """Put back what was; give 1 if something could not be, after saying so."""
    status = 0
    for pair in saved:
        try:
            write([pair], sched)
        except Error as error:
            status = 1
            print(f"error: could not be put back: {error}", file=sys.stderr, flush=True)
    return status
