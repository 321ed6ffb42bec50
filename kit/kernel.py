# SPDX-License-Identifier: GPL-2.0-only
"""Configuring and building a kernel out of tree: BUILD=stack, base or debug, and mainline's."""

import os
import re
import shutil
import sys
import time
from pathlib import Path

from kit import base, mainline, stack
from kit.paths import CONFIGS, LAYOUT, MAINLINE_BUILDS
from kit.run import Error, git, lock, say, sh, warn

FRAGMENTS = {"stack": ("boot.config", "stack.config"), "base": ("boot.config",),
             "debug": ("boot.config", "stack.config", "debug.config"),
             "kasan": ("boot.config", "stack.config", "kasan.config"),
             "7.3": ("boot.config", "7.3.config"),
             "7.3-nocache": ("boot.config", "7.3.config", "7.3-nocache.config")}
NAMES = {"stack": "-cachetopo-", "base": "-base-", "debug": "-cachetopo-debug-",
         "kasan": "-cachetopo-kasan-"}
BUILD_TIMEOUT = 3600
# Seconds between two lines of progress where there is no terminal to draw on.
QUIET = 60

_built = set()


def build(build: str = "stack", layout=LAYOUT) -> Path:
    """Bring the kernel of one BUILD up to date; its O= directory.

    Within one run of python a BUILD is made once. Error for a requested option that is not in
    .config, and for a failed build with the compiler's errors.
    """
    if build not in FRAGMENTS:
        raise Error(f"no such BUILD: {build} (there are: {', '.join(FRAGMENTS)})")
    if (build, layout) in _built:
        return layout.out(build)
    source, out = source_of(build, layout), layout.out(build)
    with lock(out.parent / f"{build}.lock"):
        out.mkdir(parents=True, exist_ok=True)
        log = out.parent / f"{build}.log"
        log.unlink(missing_ok=True)
        started = time.monotonic()
        say(f"kernel {build}: building (log: {log})")
        configure(source, out, [CONFIGS / name for name in FRAGMENTS[build]], log)
        _make(source, out, log, layout, build)
    say(f"kernel {build}: {release(build, layout)} in {time.monotonic() - started:.0f} s")
    _built.add((build, layout))
    return out


def release(build: str = "stack", layout=LAYOUT) -> str:
    """What `uname -r` says in a guest that runs this BUILD; Error if it is not built."""
    try:
        return (layout.out(build) / "include/config/kernel.release").read_text().strip()
    except OSError as error:
        raise Error(f"BUILD={build} is not built: make kernel BUILD={build}") from error


def local_version(source, build) -> str:
    """The version suffix: the stack's name and 12 digits of the source's tree id. Mainline's is
    the build's name: its source is always the same."""
    if build in MAINLINE_BUILDS:
        return "-mainline" + build.removeprefix(MAINLINE_BUILDS[0])
    tree = git(source, "rev-parse", "HEAD^{tree}").out.strip()[:12]
    dirty = "-dirty" if git(source, "status", "--porcelain").out else ""
    return NAMES[build] + tree + dirty


def source_of(build, layout=LAYOUT) -> Path:
    """The source directory of a BUILD, made or brought up to date."""
    if build in MAINLINE_BUILDS:
        return mainline.ensure(layout)
    if build != "base":
        return stack.ensure(layout)
    with lock(layout.work / "tree.lock"):
        if layout.linux.exists() and stack.unsaved(layout):
            commit = git(layout.linux, "rev-parse", "base^{commit}").out.strip()
        else:
            commit = base.ensure(layout)
        where = layout.linux_base
        if not (where / ".git").exists():
            shutil.rmtree(where, ignore_errors=True)
            git(layout.linux, "worktree", "prune")
            git(layout.linux, "worktree", "add", "-q", "--detach", where, commit)
        elif git(where, "rev-parse", "HEAD").out.strip() != commit:
            git(where, "checkout", "-q", "--detach", commit)
    return where


def requested(fragments) -> list[str]:
    """The lines of the fragments that ask for something: CONFIG_X=... and '... is not set'."""
    lines = []
    for fragment in fragments:
        for number, line in enumerate(fragment.read_text().splitlines(), 1):
            if re.fullmatch(r"CONFIG_\w+=.+|# CONFIG_\w+ is not set", line):
                lines.append(line)
            elif line and (not line.startswith("# ") or line.startswith("# CONFIG_")):
                raise Error(f"{fragment.name} line {number}: neither an option nor a comment:"
                            f" {line}")
    return lines


def dropped(lines, config) -> list[str]:
    """The requested lines that do not hold in the text of a .config, and what it has instead."""
    have = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config, re.MULTILINE))
    # A later fragment may ask for something else than an earlier one: the last line counts.
    last = {re.search(r"CONFIG_\w+", line)[0]: line for line in lines}
    wrong = []
    for name, line in last.items():
        want = None if line.startswith("#") else line.partition("=")[2]
        if have.get(name) != want:
            wrong.append(f"{line}  (it is {have.get(name, 'not set')})")
    return wrong


def configure(source, out, fragments, log):
    """Write out/.config from allnoconfig and the fragments; Error if Kconfig dropped a line."""
    lines = requested(fragments)
    wanted = out / "requested.config"
    wanted.write_text("".join(line + "\n" for line in lines))
    sh(["make", "-s", "-C", source, f"O={out}", "ARCH=x86_64", *_compiler(),
        f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"], log=log, timeout=600)
    wrong = dropped(lines, (out / ".config").read_text())
    if wrong:
        raise Error("\n  ".join([f"Kconfig dropped {len(wrong)} of {len(lines)} requested lines:",
                                 *wrong]))


def _compiler() -> list[str]:
    """CC and HOSTCC, by way of ccache where it is installed."""
    cache = "ccache " if shutil.which("ccache") else ""
    return [f"CC={cache}gcc", f"HOSTCC={cache}gcc"]


def _make(source, out, log, layout, build):
    """Compile, with progress; Error with the errors in the log."""
    # What changes from one build to the next would make ccache miss, and make link again.
    date = (base.IDENTITY["GIT_AUTHOR_DATE"] if build in MAINLINE_BUILDS else
            git(source, "log", "-1", "--format=%aD").out.strip())
    env = {"KBUILD_BUILD_TIMESTAMP": date,
           "KBUILD_BUILD_USER": "kit", "KBUILD_BUILD_HOST": "localhost",
           "KBUILD_BUILD_VERSION": "1", "LC_ALL": "C",
           # Not in depend mode, though that spares a fifth of a first build's time: it does not see
           # what .incbin takes in, and bzImage then has the kernel of an earlier build in it if
           # that was as long when compressed. A namespace of its own, without what that left.
           "CCACHE_DIR": layout.build / "ccache", "CCACHE_NAMESPACE": "no-depend"}
    progress = Progress(f"kernel {build}")
    try:
        sh(["make", "-C", source, f"O={out}", "ARCH=x86_64", *_compiler(),
            f"-j{len(os.sched_getaffinity(0))}",
            f"LOCALVERSION={local_version(source, build)}", "bzImage"],
           env=env, log=log, timeout=BUILD_TIMEOUT, progress=progress)
    except Error as error:
        found = [line for line in log.read_text(errors="replace").splitlines()
                 if re.search(r"\berror\b:|undefined reference|\*\*\*", line)]
        if not found:
            raise
        raise Error("\n  ".join([f"BUILD={build} does not build (all of it in {log}):",
                                 *found[:20]])) from error
    finally:
        progress.end()


class Progress:
    """Counts the compiled files of a build on one line of a terminal, or now and then on a new
    line where there is none."""

    def __init__(self, what):
        self.what, self.files, self.started = what, 0, time.monotonic()
        self.terminal, self.shown = sys.stdout.isatty(), 0.0

    def __call__(self, line):
        """Take one line of make's output."""
        match = re.match(r"  (?:CC|AS|AR|LD|HOSTCC)\s+(\S+)", line)
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
        text = f"{self.what}: {self.files} files, {elapsed:.0f} s"
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + f"{text}  {match[1]}"[:width].ljust(width), end="", flush=True)
        else:
            say(text)

    def end(self):
        """Leave the terminal's line empty."""
        if self.terminal:
            print("\r" + " " * (shutil.get_terminal_size().columns - 1) + "\r", end="", flush=True)


def command(args) -> int:
    """make kernel: build, and say where it is."""
    say(str(build(args.build) / "arch/x86/boot/bzImage"))
    return 0
