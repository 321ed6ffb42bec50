# SPDX-License-Identifier: GPL-2.0-only
"""Configure and build the kernels of a series out of tree."""

import hashlib
import os
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from kit.paths import CONFIGS, DEFAULT, TEST_ONLY, VERSION, Series
from kit.process import Error, Progress, git, lock, room, say, sh
from kit.stack import base, patches

BUILD_TIMEOUT = 3600
# GB on the disk that a build with its results takes at most, besides the tree.
SPACE = 1.5
# Part of the source in identity(), if that is so.
UNCOMMITTED = "with changes that are not committed"
KCONFIG = re.compile(r"CONFIG_\w+=.+|# CONFIG_\w+ is not set")


@dataclass(frozen=True)
class Build:
    """A way to build a series: with its patches or without, the fragments of configs/ besides
    boot.config and the base's own, and what names it in `uname -r`. extra: a diff to apply on top, which
    is no part of the series; parallel: it patches no code at run time, so that the CPUs of a guest can
    run at the same time, by the clock of the host; lacks: bits of our features that the configuration
    leaves out; kcsan: it reports data races, of which only those in our code count."""

    patched: bool
    fragments: tuple
    name: str
    extra: Path | None = None
    parallel: bool = False
    lacks: tuple = ()
    kcsan: bool = False


BUILDS = {
    "stack": Build(True, ("stack.config",), "-cachetopo-"),
    "base": Build(False, (), "-base-"),
    "nocache": Build(True, ("nocache.config",), "-nocache-"),
    "offstack": Build(True, ("stack.config", "offstack.config"), "-cachetopo-offstack-"),
    "base-offstack": Build(False, ("offstack.config",), "-base-offstack-"),
    "debug": Build(True, ("stack.config", "debug.config", "faults.config"), "-cachetopo-debug-"),
    "kasan": Build(True, ("stack.config", "kasan.config", "faults.config"), "-cachetopo-kasan-"),
    "kcsan": Build(True, ("stack.config", "kcsan.config"), "-cachetopo-kcsan-", TEST_ONLY / "kcsan.patch",
                   kcsan=True),
    "leak": Build(True, ("stack.config", "leak.config", "faults.config"), "-cachetopo-leak-"),
    "race": Build(True, ("stack.config", "race.config"), "-cachetopo-race-", parallel=True),
    "races": Build(True, ("stack.config", "races.config"), "-cachetopo-races-", TEST_ONLY / "races.patch"),
    "rt": Build(True, ("stack.config", "rt.config", "faults.config"), "-cachetopo-rt-",
                lacks=("SCHED_CACHE_SAMPLE",)),
    "scx": Build(True, ("stack.config", "debug.config", "faults.config", "scx.config"), "-cachetopo-scx-"),
    "host": Build(True, ("stack.config", "host.config"), "-cachetopo-host-"),
    "validate": Build(True, ("stack.config",), "-validate-", TEST_ONLY / "validate.patch"),
}
# What a series without patches can be built as.
UNPATCHED = ("base", "nocache", "base-offstack")
_built = set()


@dataclass(frozen=True)
class Kernel:
    """A BUILD of a series. name: as BUILD= has it, "stack" or "7.3/base"; its text in messages and results."""

    series: Series
    build: str
    name: str = field(default="", compare=False)

    def __str__(self):
        return self.name or self.build

    @property
    def how(self) -> Build:
        """How its BUILD is built."""
        return BUILDS[self.build]

    @property
    def out(self) -> Path:
        """The O= directory."""
        return self.series.work / self.build

    @property
    def image(self) -> Path:
        """The bzImage, whether it is built or not."""
        return self.out / "arch/x86/boot/bzImage"

    @property
    def patched(self) -> bool:
        """Whether it has patches: those of the series, if that has any."""
        return self.how.patched and bool(patches.listed(self.series))

    @property
    def fragments(self) -> list[Path]:
        """The configuration fragments, in the order in which they apply: each is followed by the base's own part
        of it, such as 6.12-debug.config, if there is one."""
        names = ["boot.config", f"{self.series.base}.config"]
        for name in self.how.fragments:
            own = f"{self.series.base}-{name}"
            names += [name, own] if (CONFIGS / own).exists() else [name]
        return [CONFIGS / name for name in names]


def named(series, name) -> Kernel:
    """The Kernel that BUILD or SERIES/BUILD names, such as "stack" of a series, or "7.3/base". Error if
    there is no such series or build."""
    where, _, build = name.rpartition("/")
    if build not in BUILDS:
        raise Error(f"no such BUILD: {name} (there are: {', '.join(BUILDS)})")
    series = series.other(where) if where else series
    if not series.pin.is_file() or not series.patches.is_dir():
        raise Error(f"{name}: there is no series {series.name} in patches/")
    if build not in UNPATCHED and not series.order.is_file():
        raise Error(f"{name}: the series {series.name} has no patches; there are: {', '.join(UNPATCHED)}")
    return Kernel(series, build, name)


def build(kernel) -> Path:
    """Bring a Kernel up to date; its O= directory.

    A kernel is built once in a run of python. Error for a requested option that is not in .config,
    and for a failed build, with the compiler's errors.
    """
    if kernel in _built:
        return kernel.out
    if not kernel.image.exists():
        room(kernel.out, SPACE + (0 if kernel.series.linux.exists() else base.SPACE), f"kernel {kernel}")
    source = source_of(kernel)
    with lock(kernel.out.parent / f"{kernel.build}.lock"):
        kernel.out.mkdir(parents=True, exist_ok=True)
        log = kernel.out.parent / f"{kernel.build}.log"
        log.unlink(missing_ok=True)
        started = time.monotonic()
        say(f"kernel {kernel}: building (log: {log})")
        configure(source, kernel.out, kernel.fragments, log)
        make(source, kernel.out, f"kernel {kernel.build}",
             [f"LOCALVERSION={local_version(source, kernel)}", "bzImage"], kernel.series, log)
    say(f"kernel {kernel}: {release(kernel)} in {time.monotonic() - started:.0f} s")
    _built.add(kernel)
    return kernel.out


def release(kernel) -> str:
    """What `uname -r` says in a guest that runs this kernel; Error if it is not built."""
    try:
        return (kernel.out / "include/config/kernel.release").read_text().strip()
    except OSError as error:
        raise Error(f"{kernel} is not built: make kernel BUILD={kernel}") from error


def identity(kernel) -> dict:
    """What identifies a built kernel in a result: its release, the SHA-256 of its configuration,
    its source, and for a kernel with patches the SHA-256 of those."""
    source = source_dir(kernel)
    tree = "git tree " + git(source, "rev-parse", "HEAD^{tree}").out.strip()
    if git(source, "status", "--porcelain").out:
        tree += f", {UNCOMMITTED}"
    about = {"release": release(kernel), "source": tree,
             "config": hashlib.sha256((kernel.out / ".config").read_bytes()).hexdigest()}
    if kernel.patched:
        text = b"".join((kernel.series.patches / name).read_bytes()
                        for name in patches.listed(kernel.series))
        about["patches"] = hashlib.sha256(text).hexdigest()
    return about


def local_version(source, kernel) -> str:
    """The version suffix: the build's name, for one with patches stack_version(), and tree_name()."""
    version = stack_version(kernel.series) if kernel.how.patched else ""
    return kernel.how.name + version + tree_name(source)


def stack_version(series) -> str:
    """The version of the stack, from the file VERSION, and "-"; "" for another series, which has none.
    Error for what cannot be a part of `uname -r`."""
    if series.name != DEFAULT:
        return ""
    text = VERSION.read_text(encoding="utf-8").strip()
    # `uname -r` has at most 64 characters, of which the rest takes up to 50.
    if not re.fullmatch(r"\d+(\.\d+)*", text) or len(text) > 12:
        raise Error(f"{VERSION}: not a version such as 2.1: {text}")
    return text + "-"


def tree_name(source) -> str:
    """12 digits of the source's tree id, and whether there are changes that are not committed."""
    tree = git(source, "rev-parse", "HEAD^{tree}").out.strip()[:12]
    return tree + ("-dirty" if git(source, "status", "--porcelain").out else "")


def source_dir(kernel) -> Path:
    """The directory of a Kernel's source, whether or not it is there."""
    if kernel.how.extra:
        return kernel.series.work / f"linux-{kernel.build}"
    return kernel.series.linux if kernel.patched else kernel.series.linux_base


def features(kernel) -> list[str]:
    """The names in sched/features of a kernel, as its source has them, and as its patches add them, which may
    be newer; [] if the source is not there."""
    path = source_dir(kernel) / "kernel/sched/features.h"
    texts = [path] * path.exists()
    if texts and kernel.patched:
        texts += [*(kernel.series.patches / name for name in patches.listed(kernel.series)),
                  *filter(None, [kernel.how.extra])]
    return list(dict.fromkeys(name for text in texts for name in re.findall(
        r"^\+?SCHED_FEAT\((\w+)", text.read_text(encoding="utf-8", errors="replace"), re.M)))


def source_of(kernel) -> Path:
    """The source directory of a kernel, made or brought up to date."""
    series = kernel.series
    if kernel.patched:
        stack = patches.ensure(series)
        return _with_extra(stack, kernel) if kernel.how.extra else stack
    with lock(series.work / "tree.lock"):
        if series.linux.exists() and patches.unsaved(series):
            commit = git(series.linux, "rev-parse", "base^{commit}").out.strip()
        else:
            commit = base.ensure(series)
        where = series.linux_base
        if not (where / ".git").exists():
            shutil.rmtree(where, ignore_errors=True)
            git(series.linux, "worktree", "prune")
            git(series.linux, "worktree", "add", "-q", "--detach", where, commit)
        elif git(where, "rev-parse", "HEAD").out.strip() != commit:
            git(where, "checkout", "-q", "--detach", commit)
    return where


def _with_extra(stack, kernel) -> Path:
    """The worktree of a Kernel with its extra diff on top of the last commit of the tree `stack`, made or
    brought up to date. Error if the diff does not apply."""
    where, extra = source_dir(kernel), kernel.how.extra
    head = git(stack, "rev-parse", "HEAD").out.strip()
    # What the tree is made of, by which it is known again: files that are written anew are compiled anew.
    made_of = f"{head} and {extra.name} {hashlib.sha256(extra.read_bytes()).hexdigest()}"
    with lock(kernel.series.work / "tree.lock"):
        if not (where / ".git").exists():
            shutil.rmtree(where, ignore_errors=True)
            git(stack, "worktree", "prune")
            git(stack, "worktree", "add", "-q", "--detach", where, head)
        elif git(where, "log", "-1", "--format=%s").out.strip() == made_of:
            return where
        git(where, "checkout", "-q", "--force", "--detach", head)
        try:
            git(where, "apply", "--index", extra)
        except Error as error:
            raise Error(f"{extra.name} does not apply on the stack: {error}") from error
        date = git(stack, "log", "-1", "--format=%cI").out.strip()
        git(where, "commit", "-q", "-m", made_of, env={
            "GIT_AUTHOR_NAME": "stack", "GIT_AUTHOR_EMAIL": "stack@localhost", "GIT_AUTHOR_DATE": date})
    return where


def requested(fragments) -> list[str]:
    """The lines of the fragments that request an option: CONFIG_X=... and '... is not set'."""
    lines = []
    for fragment in fragments:
        for number, line in enumerate(fragment.read_text().splitlines(), 1):
            if KCONFIG.fullmatch(line):
                lines.append(line)
            elif line and (not line.startswith("# ") or line.startswith("# CONFIG_")):
                raise Error(f"{fragment.name} line {number}: neither an option nor a comment:"
                            f" {line}")
    return lines


def dropped(lines, config) -> list[str]:
    """The requested lines that the text of a .config does not satisfy, each with its value there."""
    have = dict(re.findall(r"^(CONFIG_\w+)=(.*)$", config, re.MULTILINE))
    # A later fragment overrides an earlier one: the last line of an option counts.
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
    sh(["make", "-s", "-C", source, f"O={out}", "ARCH=x86_64", *compiler(),
        f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig"], log=log, timeout=600)
    wrong = dropped(lines, (out / ".config").read_text())
    if wrong:
        raise Error("\n  ".join([f"Kconfig dropped {len(wrong)} of {len(lines)} requested lines:",
                                 *wrong]))


def compiler() -> list[str]:
    """make's variables CC and HOSTCC, by way of ccache where it is installed."""
    cache = "ccache " if shutil.which("ccache") else ""
    return [f"CC={cache}gcc", f"HOSTCC={cache}gcc"]


def make(source, out, what, words, series, log, timeout=BUILD_TIMEOUT):
    """Run the kernel's make for O=`out` with targets and variables, and show progress.

    what: names the build in messages; words: the targets and variables; series: its build directory has
    the ccache; log: gets all output. Error with the compiler's errors.
    """
    # A date, user or host that changes from build to build would defeat ccache and relink.
    env = {"KBUILD_BUILD_TIMESTAMP": git(source, "log", "-1", "--format=%aD").out.strip(),
           "KBUILD_BUILD_USER": "kit", "KBUILD_BUILD_HOST": "localhost",
           "KBUILD_BUILD_VERSION": "1", "LC_ALL": "C",
           # Not in ccache's depend mode, although that saves a fifth of a first build: it does not
           # see what .incbin includes, and bzImage then contains the kernel of an earlier build if
           # that had the same compressed size. The namespace excludes entries of that mode.
           "CCACHE_DIR": series.build / "ccache", "CCACHE_NAMESPACE": "no-depend"}
    progress = Progress(what, r"  (?:CC|AS|AR|LD|HOSTCC)\s+(\S+)")
    try:
        sh(["make", "-C", source, f"O={out}", "ARCH=x86_64", *compiler(),
            f"-j{len(os.sched_getaffinity(0))}", *words],
           env=env, log=log, timeout=timeout, progress=progress)
    except Error as error:
        found = [line for line in log.read_text(errors="replace").splitlines()
                 if re.search(r"\berror\b:|undefined reference|\*\*\*", line)]
        if not found:
            raise
        raise Error("\n  ".join([f"{what} does not build (all of it in {log}):", *found[:20]])) from error
    finally:
        progress.end()


def command(settings) -> int:
    """make kernel: build, and print the image's path."""
    kernel = named(settings.series, settings["BUILD"])
    build(kernel)
    say(str(kernel.image))
    return 0
