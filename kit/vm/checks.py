# SPDX-License-Identifier: GPL-2.0-only
"""The checks that each patch of the series passes, and those that the whole series passes.

A patch is checked for what it adds: the messages of gcc (W=1), sparse and kernel-doc are collected
without the patch and with it, line numbers are removed, and the two multisets are compared. The
whole series is compiled in a number of configurations.

The patches are applied apart from the tree that people edit, and are checked out in a worktree of
the checks' own. A measurement is kept in the build directory under a key of its source,
configuration, tools and the code of this file, and is not repeated while these are the same: a
patch that changes no kernel code costs nothing, and a second run costs seconds.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kit.paths import CONFIGS
from kit.process import Error, git, lock, missing, say, sh
from kit.stack import patches
from kit.vm import kernel

TIMEOUT = 1200

CROSS = {"x86_64": "", "arm64": "aarch64-linux-gnu-"}
SCHED = "kernel/sched/"


@dataclass
class Result:
    """What one check measured, as text, and its findings, one str each."""

    facts: str
    findings: list[str] = field(default_factory=list)


class Failed(Exception):
    """Why a build failed, in words."""


# ---- messages ----

PLACE = re.compile(r"(?P<file>[^\s:]+):(?P<line>(?:\d+:){0,2}) ?(?P<rest>.*)")
KIND = re.compile(r"(?:fatal )?(?:warning|error): ", re.IGNORECASE)


def messages(text, *directories) -> list[str]:
    """Return the warnings and errors in the output of a tool, without line numbers.

    directories are removed from the names of files. Lines in which sparse continues a message
    ("expected ...", "got ...") become part of it; notes and quoted source do not.
    """
    found, continued = [], False
    for line in text.splitlines():
        match = PLACE.fullmatch(line)
        if match and KIND.match(match["rest"]):
            found.append(f"{match['file']}: {match['rest']}")
            continued = True
        elif match and continued and match["line"] and match["rest"].startswith("  "):
            found[-1] += "; " + match["rest"].strip()
        else:
            continued = False
    return [_normal(message, directories) for message in found]


def _normal(message, directories) -> str:
    """Return a message without what changes when lines move: places within files and functions."""
    for directory in directories:
        message = message.replace(f"{directory}/", "")
    message = re.sub(r"(\.[chS]):\d+(:\d+)?", r"\1", message)
    return re.sub(r"\+0x[0-9a-f]+", "+0x", message)


def added(before, after) -> list[str]:
    """Return the messages that are more often in `after` than in `before`, each as many times as
    it is there more often."""
    return sorted((Counter(after) - Counter(before)).elements())


# ---- the source, and what was measured on it ----

def _work(series) -> Path:
    return series.work / "checks"


def _source(series) -> Path:
    """Return the worktree of the checks."""
    return _work(series) / "src"


_applied = cache(patches.applied)


def commits(series) -> list[str]:
    """Return the commit of the base, and after it one for each patch of the series."""
    return _applied(series)[0]


def pair(series, patch) -> tuple[str, str]:
    """Return the commits without a patch and with it, on top of the patches before it."""
    number = patches.listed(series).index(patch)
    return commits(series)[number], commits(series)[number + 1]


def _touched(series, first, last) -> list[str]:
    """Return the files that differ between two commits, without those that the second lacks."""
    return git(series.linux, "diff", "--name-only", "--no-renames", "--diff-filter=d",
               first, last).out.split()


def _checkout(series, commit):
    """Check a commit out in SOURCE. Only files that differ are written, so that make rebuilds only
    what depends on them."""
    if not (_source(series) / ".git").exists():
        shutil.rmtree(_source(series), ignore_errors=True)
        git(series.linux, "worktree", "prune")
        git(series.linux, "worktree", "add", "-q", "--detach", _source(series), commit)
    else:
        git(_source(series), "checkout", "-q", "-f", "--detach", commit)


@cache
def _tools() -> dict[str, str]:
    """Return the versions of the tools that print the messages."""
    tools = ("gcc", "aarch64-linux-gnu-gcc", "sparse", "perl")
    return {tool: sh([tool, "--version"], capture=True).out.strip().splitlines()[0]
            for tool in tools}


def _code(series, commit) -> list[str]:
    """Return the ids of all that a kernel is made from. A patch to documentation or to selftests
    changes none of them."""
    entries = git(series.linux, "ls-tree", commit, "./", "tools/").out.splitlines()
    other = ("tools", "tools/testing", "Documentation", "MAINTAINERS")
    return [entry for entry in entries if entry.partition("\t")[2] not in other]


def _measured(series, what, commit, inputs, measure) -> dict:
    """Return the result of measure(), or of an earlier run if the source, `inputs`, tools and the
    code of this file are the same.

    A build that failed is not kept, because the reason may be something else, such as a full disk.
    """
    key = json.dumps([what, _code(series, commit), inputs, _tools(), Path(__file__).read_text()], sort_keys=True)
    file = _work(series) / "results" / f"{what}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError):
        return json.loads(file.read_text()) | {"took": "measured before"}
    started = time.monotonic()
    with lock(_work(series) / "lock"):
        _checkout(series, commit)
        try:
            result = measure()
        except Failed as error:
            return {"failed": str(error), "took": f"{time.monotonic() - started:.0f} s"}
    file.parent.mkdir(parents=True, exist_ok=True)
    # In one step: an interrupted run leaves no half of a file.
    part = file.with_suffix(".part")
    part.write_text(json.dumps(result))
    part.replace(file)
    return result | {"took": f"{time.monotonic() - started:.0f} s"}


def _make(series, arch, *args) -> str:
    """Run make for one architecture; return its output. Failed with the lines that say why."""
    ccache = "ccache " if shutil.which("ccache") else ""
    # Messages must not be translated; the kernel's makefile unsets LC_ALL.
    env = {"LC_ALL": "C", "LANG": "C", "LC_MESSAGES": "C", "LC_CTYPE": "C", "LANGUAGE": None,
           # Also where kernels are built without ccache: most files are as they were before a patch.
           "CCACHE_DIR": series.build / "ccache", "CCACHE_DISABLE": None}
    # Without -O the output of two compilers would be mixed line by line.
    done = sh(["make", "-s", "-Otarget", f"-j{len(os.sched_getaffinity(0))}", f"ARCH={arch}",
               f"CROSS_COMPILE={CROSS[arch]}", f"CC={ccache}{CROSS[arch]}gcc",
               f"HOSTCC={ccache}gcc", *args],
              env=env, timeout=TIMEOUT, capture=True, check=False)
    text = done.out + done.err
    if done.status:
        lines = [line for line in text.splitlines() if re.search(r"\berror\b|\*\*\*", line, re.I)]
        raise Failed("\n  ".join(["does not build:", *(lines or text.splitlines()[-10:])[:10]]))
    return text


def _kbuild(series, out, arch, *args) -> str:
    """Run the kernel's make on the worktree with the O= directory `out`."""
    return _make(series, arch, "-C", _source(series), f"O={out}", *args)


def _compile(series, out, arch, *targets) -> str:
    """Compile `targets` again with W=1; return the output."""
    # An object that is up to date prints no messages. ccache repeats those of an earlier run.
    for target in targets:
        for file in _objects(out, target):
            file.unlink()
    text = _kbuild(series, out, arch, "W=1", *targets)
    # make ignores a target that is not part of this configuration.
    left_out = [target for target in targets if not _objects(out, target)]
    if left_out:
        raise Failed(f"does not build: nothing was compiled for {' '.join(left_out)}")
    return text


def _objects(out, target) -> list[Path]:
    """Return the object files of a target: an object file, or a directory with a slash."""
    return sorted(out.glob(f"{target}*.o" if target.endswith("/") else target))


# ---- each patch ----

def _boot_lines(series) -> list[str]:
    return kernel.requested(kernel.named(series, "base").fragments)


def _stack_lines() -> list[str]:
    """Return the lines that hold only from the patch on that adds their options."""
    return kernel.requested([CONFIGS / "stack.config"])


TOOLS = ("gcc", "sparse", "kernel-doc")


@cache
def _said(series, commit, tools=TOOLS) -> dict:
    """Return the messages of some of TOOLS about a commit, in the configuration that boots, for
    kernel/sched and every other file that the series touches. gcc always runs."""
    everything = _touched(series, commits(series)[0], commits(series)[-1])
    there = set(git(series.linux, "ls-tree", "-r", "--name-only", commit, "--",
                    *everything).out.split() if everything else [])
    files = sorted(there & set(everything))
    code = [file for file in files if not file.startswith(("tools/", "Documentation/"))]
    targets = [SCHED, *(file[:-2] + ".o" for file in code
                        if file.endswith(".c") and not file.startswith(SCHED))]
    documented = [file for file in code if file.endswith((".c", ".h"))]

    def measure():
        out = _work(series) / "patches"
        # Files outside of kernel/sched may depend on more than the guests' kernels have.
        lines = _boot_lines(series) + _stack_lines() + ["CONFIG_TRANSPARENT_HUGEPAGE=y"]
        _configure(series, out, "x86_64", lines, _boot_lines(series))
        said = {"gcc": messages(_compile(series, out, "x86_64", *targets), _source(series), out)}
        if "sparse" in tools:
            sparse = _kbuild(series, out, "x86_64", "W=1", "C=2", *targets)
            # make goes on without sparse if the kernel needs a newer one.
            if "sparse is not available or not up to date" in sparse:
                raise Failed("is not checked: the kernel needs a newer sparse")
            said["sparse"] = messages(sparse, _source(series), out)
        if "kernel-doc" in tools:
            doc = sh(["perl", "scripts/kernel-doc", "-none", *documented], cwd=_source(series), capture=True,
                     check=False).err if documented else ""
            said["kernel-doc"] = messages(doc, _source(series))
        return said

    return _measured(series, "patch", commit, [_boot_lines(series) + _stack_lines(), targets, documented, tools],
                     measure)


def _configure(series, out, arch, lines, must):
    """Write out/.config from allnoconfig and `lines`; Failed with those of the lines `must` that do not hold.
    An earlier .config is used if nothing that it depends on has changed."""
    out.mkdir(parents=True, exist_ok=True)
    wanted, kept, config = out / "requested.config", out / "requested.key", out / ".config"
    kconfig = git(_source(series), "ls-files", "-s", "*Kconfig*", "scripts/kconfig").out
    key = hashlib.sha256(json.dumps([arch, lines, kconfig, _tools()]).encode()).hexdigest()
    if not (config.exists() and kept.exists() and kept.read_text() == key):
        kept.unlink(missing_ok=True)
        wanted.write_text("".join(line + "\n" for line in lines))
        _kbuild(series, out, arch, f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig")
        kept.write_text(key)
    wrong = kernel.dropped(must, config.read_text())
    if wrong:
        raise Failed("\n  ".join(["Kconfig dropped what was requested:", *wrong]))


def reliable(messages, files) -> list[str]:
    """Return those of sparse's messages that depend on what is said of, in one of `files`.

    Whether sparse comes to its last phase with kernel/sched/build_utility.c depends on the order in
    which inline functions are called: with one more, it complains of functions that are as they
    were. It cannot follow task_rq_lock(), nor guards; lockdep does, in guests.
    """
    return [message for message in messages
            if message.partition(":")[0] in files and ": context imbalance in " not in message]


def messages_added(series, tool, patch, before, after, tools=TOOLS) -> Result:
    """Compare the messages of `tool`, one of `tools`, about the second commit, with the patch, with
    those about the first. tools: what runs if nothing is kept of an earlier run."""
    if _code(series, before) == _code(series, after):
        return Result("changes no kernel code")
    old, new = _said(series, before, tools), _said(series, after, tools)
    if old.get("failed"):
        return Result("not compared", [f"{patch}: the source without it {old['failed']}"])
    if new.get("failed"):
        return Result(new["took"], [f"{patch}: {new['failed']}"])
    more = added(old[tool], new[tool])
    if tool == "sparse":
        more = reliable(more, _touched(series, commits(series)[0], after))
    return Result(f"{len(old[tool])} messages before, {len(new[tool])} after, {len(more)} new"
                  f" ({new['took']} for all tools)",
                  [f"{patch}: {tool}: {message}" for message in more])


def applies(series, patch) -> Result:
    """Check that a patch applies without fuzz; Error if any patch of the series does not apply."""
    how = next(outcome.how for outcome in _applied(series)[1] if outcome.name == patch)
    return Result(how, [] if how == "clean" else [f"{patch}: applies with {how}"])


# Types of checkpatch's messages that the series does not follow, each with the reason.
NOT_FOLLOWED = (
    # Asks, for each patch with a new file, whether MAINTAINERS must change. unlisted() checks that
    # for the whole series, which has one patch for MAINTAINERS.
    "FILE_PATH_CHANGES",
    # The tree has no history before the base, so no commit that a patch names is found in it.
    "UNKNOWN_COMMIT_ID",
)
# In headers of trace events only: checkpatch does not know the syntax of TRACE_EVENT().
NOT_FOLLOWED_IN_EVENTS = ("OPEN_ENDED_LINE", "PARENTHESIS_ALIGNMENT")
EVENTS = "include/trace/events/"


def style(series, patch, directory=None) -> Result:
    """Run checkpatch on a patch file, and codespell on what it adds; its findings are the messages."""
    _scripts(series)
    file = (directory or series.patches) / patch
    done = sh(["perl", "scripts/checkpatch.pl", "--strict", "--no-signoff", "--terse", "--show-types",
               "--no-summary", "--color=never", "--ignore", ",".join(NOT_FOLLOWED), file],
              cwd=_source(series), capture=True, check=False)
    # done.err is ignored: spdxcheck.py complains there about a python module for each new file.
    said = [line for line in done.out.replace(f"{file}:", "").splitlines()
            if not _about_events(line, file)]
    if done.status and not done.out.strip():
        said = [f"checkpatch ended with status {done.status}: {done.err.strip()}"]
    said += _misspelled(file)
    return Result(f"{len(said)} messages on {len(file.read_bytes().splitlines())}"
                  " lines", [f"{patch}: {line}" for line in said])


def _about_events(message, file) -> bool:
    """Whether a message of checkpatch, LINE: LEVEL:TYPE: ..., is about a header of trace events and
    of a type in NOT_FOLLOWED_IN_EVENTS."""
    found = re.match(r" *(\d+): \w+:(\w+): ", message)
    if not found or found[2] not in NOT_FOLLOWED_IN_EVENTS:
        return False
    before = file.read_text().splitlines()[:int(found[1])]
    files = [line.removeprefix("+++ b/") for line in before if line.startswith("+++ b/")]
    return bool(files) and files[-1].startswith(EVENTS)


def _misspelled(file) -> list[str]:
    """Return codespell's messages on the message of a patch and the lines that it adds. checkpatch --codespell
    takes 17 s for a patch of 1,700 lines, codespell 0.3 s."""
    if not shutil.which("codespell"):
        raise Error(missing("codespell"))
    message, _, diff = file.read_text().partition("\n---\n")
    lines = message.splitlines() + [line[1:] for line in diff.splitlines() if line.startswith("+")]
    done = sh(["codespell", "--builtin", "clear", "-"], input="\n".join(lines) + "\n", capture=True, check=False)
    return [line for line in done.out.splitlines() if "==>" in line]


@cache
def _scripts(series):
    """Make sure that the worktree has the kernel's scripts, of any commit."""
    with lock(_work(series) / "lock"):
        if not (_source(series) / ".git").exists():
            _checkout(series, commits(series)[-1])


def selftests(series, patch) -> Result | None:
    """Build the selftests that a patch touches; None if it touches none."""
    before, commit = pair(series, patch)
    root = "tools/testing/selftests/"
    targets = sorted({file.removeprefix(root).split("/")[0]
                      for file in _touched(series, before, commit) if file.startswith(root)})
    if not targets:
        return None

    def measure():
        out = _work(series) / "selftests"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        text = _make(series, "x86_64", "-C", _source(series) / root, f"O={out}", "FORCE_TARGETS=1",
                     f"TARGETS={' '.join(targets)}", "USERLDFLAGS=-static")
        return {"gcc": messages(text, _source(series))}

    tests = git(series.linux, "rev-parse", f"{commit}:{root}").out.strip()
    result = _measured(series, "selftests", commit, [targets, tests], measure)
    said = [result["failed"]] if result.get("failed") else result["gcc"]
    return Result(f"{' '.join(targets)}: {len(said)} messages ({result['took']})",
                  [f"{patch}: selftests: {line}" for line in said])


# ---- the whole series ----

@dataclass(frozen=True, eq=False)
class Config:
    """Changes of the configuration that boots, which must hold in the resulting .config."""

    name: str
    options: dict[str, str]
    arch: str = "x86_64"

    def lines(self) -> list[str]:
        """Return the options as Kconfig writes them."""
        return [f"# CONFIG_{name} is not set" if value == "n" else f"CONFIG_{name}={value}"
                for name, value in self.options.items()]


# boot.config is for x86; these options of it are what kernel/sched needs.
ARM64 = dict.fromkeys(("SMP", "SCHED_MC", "SCHED_CLUSTER", "NUMA", "SCHEDSTATS", "SCHED_DEBUG",
                       "FAIR_GROUP_SCHED", "CPUSETS", "HOTPLUG_CPU"), "y")

CONFIGURATIONS = (
    Config("SMP off", {"SMP": "n"}),
    Config("SCHED_MC, SCHED_CLUSTER, SCHEDSTATS off", {"SCHED_MC": "n", "SCHED_CLUSTER": "n", "SCHEDSTATS": "n"}),
    Config("NUMA off", {"NUMA": "n"}),
    Config("PREEMPT_RT", {"EXPERT": "y", "PREEMPT_RT": "y"}),
    Config("SCHED_DEBUG off", {"SCHED_DEBUG": "n"}),
    Config("SCHED_CACHE off", {"SCHED_CACHE": "n"}),
    Config("CGROUPS off", {"CGROUPS": "n", "SCHED_CACHE": "y"}),
    # The one that boots has it off.
    Config("CPUMASK_OFFSTACK on", {"DEBUG_PER_CPU_MAPS": "y", "CPUMASK_OFFSTACK": "y"}),
    Config("arm64", ARM64 | {"SCHED_SMT": "y", "SCHED_CORE": "y"}, "arm64"),
    # On x86, SCHED_SMT is off only if SMP is.
    Config("SCHED_SMT off (arm64)", ARM64 | {"SCHED_SMT": "n"}, "arm64"),
)


@cache
def _compiled(series, config, commit) -> dict:
    """Return gcc's messages about kernel/sched of a commit in one configuration."""
    # Of an option that is there twice, the last line counts.
    lines = _boot_lines(series) + _stack_lines() + config.lines()

    def measure():
        out = _work(series) / config.arch
        _configure(series, out, config.arch, lines, config.lines())
        return {"gcc": messages(_compile(series, out, config.arch, SCHED), _source(series), out)}

    return _measured(series, "config", commit, [config.arch, lines, SCHED], measure)


def compiles(series, config) -> Result:
    """Check that kernel/sched of the whole series compiles in a Config, and that gcc (W=1) prints no
    message that it does not print for the base."""
    result = _compiled(series, config, commits(series)[-1])
    if result.get("failed"):
        return Result(result["took"], [f"{config.name}: {result['failed']}"])
    # The base is compiled only if there are messages to compare.
    old = _compiled(series, config, commits(series)[0]) if result["gcc"] else {"gcc": []}
    if old.get("failed"):
        return Result(result["took"], [f"{config.name}: the base {old['failed']}"])
    new = added(old["gcc"], result["gcc"])
    return Result(f"{len(result['gcc'])} messages, {len(new)} new ({result['took']})",
                  [f"{config.name}: {message}" for message in new])


@cache
def _functions(series, config, commit) -> dict:
    """Return the functions and the constants of kernel/sched of a commit in one configuration: {file: {name:
    hash}}, the hash of the instructions or the data and of what they refer to."""
    lines = _boot_lines(series) + _stack_lines() + config.lines()

    def measure():
        out = _work(series) / config.arch
        # Without the feature's patches, its options are not there.
        _configure(series, out, config.arch, lines, [])
        _compile(series, out, config.arch, SCHED)
        return {"files": {file.name: _disassembled(file) for file in _objects(out, SCHED)}}

    return _measured(series, "functions", commit, [config.arch, lines, SCHED], measure)


# What functions depend on beside their instructions: the keys of their branches, tables, callbacks. The
# tables of warnings have line numbers, and are left out.
DATA = ("__jump_table", ".rodata", ".data", ".data..read_mostly")


def _disassembled(file) -> dict[str, str]:
    """Return {function or section: hash} of an object file. Addresses of functions are left out."""
    text = sh(["objdump", "--disassemble", "--reloc", "--no-addresses", "--no-show-raw-insn", file],
              capture=True).out
    found = dict(re.findall(r"^<(.+)>:\n((?:.+\n)*)", text, re.M))
    for section in DATA:
        found[section] = sh(["objdump", "--full-contents", "--reloc", f"--section={section}", file],
                            capture=True, check=False).out.partition("\n\n")[2]
    # The compiler numbers these symbols in the order of the source.
    return {name: hashlib.sha256(re.sub(r"(__UNIQUE_ID_\w+?)\d+\b", r"\1", code).encode()).hexdigest()[:16]
            for name, code in found.items()}


def unchanged(series, config, first, last) -> Result:
    """Check that neither a function nor data of kernel/sched changes in a Config from the commit `first` to
    `last`."""
    old, new = _functions(series, config, first), _functions(series, config, last)
    failed = old.get("failed") or new.get("failed")
    if failed:
        return Result("not compared", [f"{config.name}: {failed}"])
    count, findings = 0, []
    for file in sorted(old["files"].keys() | new["files"].keys()):
        before, after = old["files"].get(file, {}), new["files"].get(file, {})
        count += len(after)
        findings += [f"{config.name}: {file}: {name} differs" for name in sorted(before | after)
                     if before.get(name) != after.get(name)]
    return Result(f"{count} functions and sections, {len(findings)} differ ({new['took']})", findings)


def unlisted(series) -> Result:
    """Check that the scheduler's entry in MAINTAINERS lists each new file of the series."""
    new = git(series.linux, "diff", "--name-only", "--no-renames", "--diff-filter=A",
              commits(series)[0], commits(series)[-1]).out.split()
    findings = []
    with lock(_work(series) / "lock"):
        _checkout(series, commits(series)[-1])
        for file in new:
            entries = sh(["perl", "scripts/get_maintainer.pl", "--no-git", "--no-git-fallback",
                          "--no-m", "--no-r", "--no-l", "--sections", "-f", file],
                         cwd=_source(series), capture=True).out.split("\n\n")
            if not any(entry.startswith("SCHEDULER\n") for entry in entries):
                findings.append(f"MAINTAINERS: SCHEDULER does not list {file}")
    return Result(f"{len(new)} new files, {len(findings)} not listed", findings)


# ---- make checks ----

def command(settings) -> int:
    """make checks: run all checks and print a table; return 1 if there are findings. With SHORT=1,
    only what a change of a patch is most likely to break: gcc, checkpatch, the selftests."""
    started, series = time.monotonic(), patches.in_base(settings.series)
    tools = ("gcc",) if settings["SHORT"] else TOOLS
    findings = []

    def show(what, result):
        say(f"{what:<24} {result.facts}")
        findings.extend(result.findings)

    for patch in patches.own(series):
        say(patch)
        show("  applies", applies(series, patch))
        for tool in tools:
            show(f"  {tool}", messages_added(series, tool, patch, *pair(series, patch), tools))
        show("  checkpatch", style(series, patch))
        built = selftests(series, patch)
        if built:
            show("  selftests", built)
    if not settings["SHORT"]:
        say("the whole series")
        show("  MAINTAINERS", unlisted(series))
        for config in CONFIGURATIONS:
            show(f"  {config.name}", compiles(series, config))
    say(f"{len(findings)} findings in {time.monotonic() - started:.0f} s")
    for finding in findings:
        say(finding)
    return 1 if findings else 0
