# SPDX-License-Identifier: GPL-2.0-only
"""The checks that each patch of the stack passes, and those that the whole stack passes.

A patch is judged by what it adds: the messages of the compiler (W=1), sparse and kernel-doc are
collected without it and with it, freed of line numbers, and compared as multisets. The whole stack
is compiled in a number of configurations, and the layout of struct root_domain is read from the
object file.

The patches are applied apart from the tree that people edit, and checked out in a worktree that
belongs to the checks. What was measured is kept in build/ under the ids of the source, the
configuration, the versions of the tools and this file, and is not measured again.
"""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kit import base, kernel, layout, stack
from kit.paths import CONFIGS, LAYOUT
from kit.run import Error, git, lock, say, sh

WORK = LAYOUT.work / "checks"
SOURCE = WORK / "src"
TIMEOUT = 1200

CROSS = {"x86_64": "", "arm64": "aarch64-linux-gnu-"}
SCHED = "kernel/sched/"


@dataclass
class Result:
    """What one check measured, for the reader, and its findings: none if all is well."""

    facts: str
    findings: list[str] = field(default_factory=list)


# ---- messages ----

PLACE = re.compile(r"(?P<file>[^\s:]+):(?P<line>(?:\d+:){0,2}) ?(?P<rest>.*)")
KIND = re.compile(r"(?:fatal )?(?:warning|error): ", re.IGNORECASE)


def messages(text, *directories) -> list[str]:
    """The warnings and errors in the output of a tool, without line numbers.

    The `directories` are cut from the names of files. The lines in which sparse goes on about the
    same place ("expected ...", "got ...") become part of the message; notes and quoted source do
    not.
    """
    found, goes_on = [], False
    for line in text.splitlines():
        match = PLACE.fullmatch(line)
        if match and KIND.match(match["rest"]):
            found.append(f"{match['file']}: {match['rest']}")
            goes_on = True
        elif match and goes_on and match["line"] and match["rest"].startswith("  "):
            found[-1] += "; " + match["rest"].strip()
        else:
            goes_on = False
    return [_normal(message, directories) for message in found]


def _normal(message, directories) -> str:
    """A message without what changes when lines move: places within files and functions."""
    for directory in directories:
        message = message.replace(f"{directory}/", "")
    message = re.sub(r"(\.[chS]):\d+(:\d+)?", r"\1", message)
    return re.sub(r"\+0x[0-9a-f]+", "+0x", message)


def added(before, after) -> list[str]:
    """The messages that are more often in `after` than in `before`, as many times as that."""
    return sorted((Counter(after) - Counter(before)).elements())


# ---- the source, and what was measured on it ----

@cache
def _applied() -> tuple[list[str], list[stack.Outcome]]:
    """The commit of the base and one for each patch of the series, and how each patch applied."""
    with lock(LAYOUT.work / "tree.lock"):
        if LAYOUT.linux.exists() and stack.unsaved(LAYOUT):
            first = git(LAYOUT.linux, "rev-parse", "base^{commit}").out.strip()
        else:
            first = base.ensure(LAYOUT)
        last, outcomes = stack.apply(LAYOUT, first, stack.series())
    patches = git(LAYOUT.linux, "rev-list", "--reverse", f"{first}..{last}").out.split()
    return [first, *patches], outcomes


def commits() -> list[str]:
    """The commit of the base, and after it one for each patch of the series."""
    return _applied()[0]


def pair(patch) -> tuple[str, str]:
    """The commits without a patch and with it, on top of the patches before it."""
    number = stack.series().index(patch)
    return commits()[number], commits()[number + 1]


def _touched(first, last) -> list[str]:
    """The files that differ between two commits, and that the second one still has."""
    return git(LAYOUT.linux, "diff", "--name-only", "--no-renames", "--diff-filter=d",
               first, last).out.split()


def _checkout(commit):
    """Have the files of a commit in SOURCE. Only those that differ are written, for make."""
    if not (SOURCE / ".git").exists():
        shutil.rmtree(SOURCE, ignore_errors=True)
        git(LAYOUT.linux, "worktree", "prune")
        git(LAYOUT.linux, "worktree", "add", "-q", "--detach", SOURCE, commit)
    else:
        git(SOURCE, "checkout", "-q", "-f", "--detach", commit)


@cache
def _tools() -> dict[str, str]:
    """The versions of the tools that the messages come from."""
    tools = ("gcc", "aarch64-linux-gnu-gcc", "sparse", "pahole", "perl")
    return {tool: sh([tool, "--version"], capture=True).out.strip().splitlines()[0]
            for tool in tools}


def _code(commit) -> list[str]:
    """The ids of all that a kernel is made from: a patch to a document or a selftest changes none
    of them."""
    entries = git(LAYOUT.linux, "ls-tree", commit, "./", "tools/").out.splitlines()
    other = ("tools", "tools/testing", "Documentation", "MAINTAINERS")
    return [entry for entry in entries if entry.partition("\t")[2] not in other]


def _measured(what, commit, inputs, measure) -> dict:
    """The result of measure(), from an earlier run if the source, `inputs`, tools and this file
    are the same.

    A build that failed is not kept: the reason may be something else, such as a full disk.
    """
    key = json.dumps([what, _code(commit), inputs, _tools(), Path(__file__).read_text()],
                     sort_keys=True)
    file = WORK / "results" / f"{what}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    if file.exists():
        return json.loads(file.read_text()) | {"took": "measured before"}
    started = time.monotonic()
    with lock(WORK / "lock"):
        _checkout(commit)
        result = measure()
    if not result.get("failed"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result))
    return result | {"took": f"{time.monotonic() - started:.0f} s"}


def _make(arch, *args) -> tuple[int, str]:
    """Run make for one architecture; its status and all that was printed."""
    ccache = "ccache " if shutil.which("ccache") else ""
    # What the caller's make was given must not reach this one.
    env = {name: None for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")}
    # The kernel's makefile drops LC_ALL, and messages must not be translated.
    env |= {"LC_ALL": "C", "LANG": "C", "LC_MESSAGES": "C", "LC_CTYPE": "C", "LANGUAGE": None,
            "CCACHE_DIR": LAYOUT.build / "ccache"}
    # Without -O the lines of two compilers or checkers would mix.
    done = sh(["make", "-s", "-Otarget", f"-j{len(os.sched_getaffinity(0))}", f"ARCH={arch}",
               f"CROSS_COMPILE={CROSS[arch]}", f"CC={ccache}{CROSS[arch]}gcc",
               f"HOSTCC={ccache}gcc", *args],
              env=env, timeout=TIMEOUT, capture=True, check=False)
    return done.status, done.out + done.err


def _kbuild(out, arch, *args) -> tuple[int, str]:
    """Run the kernel's make on SOURCE with the O= directory `out`."""
    return _make(arch, "-C", SOURCE, f"O={out}", *args)


def _compile(out, arch, *targets) -> tuple[str, str]:
    """Compile `targets` anew with W=1; all that was printed, and why it failed if it did."""
    # What is up to date says nothing. With ccache this costs little, and it keeps messages.
    for target in targets:
        for file in _objects(out, target):
            file.unlink()
    status, text = _kbuild(out, arch, "W=1", *targets)
    if status:
        return text, _why(text)
    # make goes by what it has no rule for in this configuration.
    missing = [target for target in targets if not _objects(out, target)]
    return text, f"does not build: nothing was compiled for {' '.join(missing)}" if missing else ""


def _objects(out, target) -> list[Path]:
    """The object files of a target, which is one of them or a directory with a slash."""
    return sorted(out.glob(f"{target}*.o" if target.endswith("/") else target))


def _why(text) -> str:
    """The lines that say why make failed."""
    lines = [line for line in text.splitlines() if re.search(r"\berror\b|\*\*\*", line, re.I)]
    return "\n  ".join(["does not build:", *(lines or text.splitlines()[-10:])[:10]])


# ---- each patch ----

def _boot_lines() -> list[str]:
    return kernel.requested([CONFIGS / "boot.config"])


def _stack_lines() -> list[str]:
    """What is asked for, but does not hold before the patch that brings it."""
    return kernel.requested([CONFIGS / "stack.config"])


@cache
def _said(commit) -> dict:
    """What gcc, sparse and kernel-doc say about a commit, in the configuration that boots.

    They look at kernel/sched and at every other file that the series touches.
    """
    everything = _touched(commits()[0], commits()[-1])
    there = set(git(LAYOUT.linux, "ls-tree", "-r", "--name-only", commit, "--",
                    *everything).out.split() if everything else [])
    files = sorted(there & set(everything))
    code = [file for file in files if not file.startswith(("tools/", "Documentation/"))]
    targets = [SCHED, *(file[:-2] + ".o" for file in code
                        if file.endswith(".c") and not file.startswith(SCHED))]
    documented = [file for file in code if file.endswith((".c", ".h"))]

    def measure():
        out = WORK / "patches"
        failed = _configure(out, "x86_64", _boot_lines() + _stack_lines(), _boot_lines())
        if failed:
            return {"failed": failed}
        text, failed = _compile(out, "x86_64", *targets)
        if failed:
            return {"failed": failed}
        status, sparse = _kbuild(out, "x86_64", "W=1", "C=2", *targets)
        if status:
            return {"failed": _why(sparse)}
        doc = sh(["perl", "scripts/kernel-doc", "-none", *documented], cwd=SOURCE, capture=True,
                 check=False).err if documented else ""
        return {"gcc": messages(text, SOURCE, out), "sparse": messages(sparse, SOURCE, out),
                "kernel-doc": messages(doc, SOURCE)}

    return _measured("patch", commit, [_boot_lines() + _stack_lines(), targets, documented], measure)


def _configure(out, arch, lines, must) -> str:
    """Write out/.config from allnoconfig and `lines`; which of the lines `must` do not hold."""
    out.mkdir(parents=True, exist_ok=True)
    wanted = out / "requested.config"
    wanted.write_text("".join(line + "\n" for line in lines))
    status, text = _kbuild(out, arch, f"KCONFIG_ALLCONFIG={wanted}", "allnoconfig")
    if status:
        return _why(text)
    wrong = kernel.dropped(must, (out / ".config").read_text())
    return "\n  ".join(["Kconfig dropped what was requested:", *wrong]) if wrong else ""


def messages_added(tool, patch, before, after) -> Result:
    """What `tool` ("gcc", "sparse" or "kernel-doc") says more often about the second commit, with
    the patch, than about the first."""
    old, new = _said(before), _said(after)
    if old.get("failed"):
        return Result("not compared", [f"{patch}: the source without it {old['failed']}"])
    if new.get("failed"):
        return Result(new["took"], [f"{patch}: {new['failed']}"])
    more = added(old[tool], new[tool])
    return Result(f"{len(old[tool])} messages before, {len(new[tool])} after, {len(more)} new"
                  f" ({new['took']} for all tools)",
                  [f"{patch}: {tool}: {message}" for message in more])


def applies(patch) -> Result:
    """Whether a patch applies just as it is; Error if any of the series does not at all."""
    how = next(outcome.how for outcome in _applied()[1] if outcome.name == patch)
    return Result(how, [] if how == "clean" else [f"{patch}: applies with {how}"])


# Types of checkpatch's messages that the stack does not follow, each with the reason.
NOT_FOLLOWED = (
    # Asks, for each patch with a new file, whether MAINTAINERS must change. unlisted() answers
    # that for the whole stack, which has one patch for MAINTAINERS.
    "FILE_PATH_CHANGES",
)
# The same in headers of trace events: how TRACE_EVENT() is written there is not C.
NOT_FOLLOWED_IN_EVENTS = ("OPEN_ENDED_LINE", "PARENTHESIS_ALIGNMENT")
EVENTS = "include/trace/events/"


def style(patch, directory=LAYOUT.patches) -> Result:
    """What checkpatch says about a patch file."""
    _scripts()
    file = directory / patch
    done = sh(["perl", "scripts/checkpatch.pl", "--strict", "--no-signoff", "--codespell",
               "--codespellfile", _dictionary(), "--terse", "--show-types", "--no-summary",
               "--color=never", "--ignore", ",".join(NOT_FOLLOWED), file],
              cwd=SOURCE, capture=True, check=False)
    # Not done.err: there spdxcheck.py says, for each new file, which python module it misses.
    said = [line for line in done.out.replace(f"{file}:", "").splitlines()
            if not _about_events(line, file)]
    if done.status and not done.out.strip():
        said = [f"checkpatch ended with status {done.status}: {done.err.strip()}"]
    return Result(f"{len(said)} messages on {len(file.read_bytes().splitlines())}"
                  " lines", [f"{patch}: {line}" for line in said])


def _about_events(message, file) -> bool:
    """Whether a message of checkpatch, LINE: LEVEL:TYPE: ..., is one not followed there."""
    found = re.match(r" *(\d+): \w+:(\w+): ", message)
    if not found or found[2] not in NOT_FOLLOWED_IN_EVENTS:
        return False
    before = file.read_text().splitlines()[:int(found[1])]
    files = [line.removeprefix("+++ b/") for line in before if line.startswith("+++ b/")]
    return bool(files) and files[-1].startswith(EVENTS)


def _dictionary() -> Path:
    """codespell's list of misspellings, which checkpatch asks the wrong python for."""
    found = importlib.util.find_spec("codespell_lib")
    if not found:
        raise Error("codespell is not installed: make deps")
    return Path(found.origin).parent / "data/dictionary.txt"


def _scripts():
    """Have the kernel's scripts in SOURCE, of whatever commit."""
    with lock(WORK / "lock"):
        if not (SOURCE / ".git").exists():
            _checkout(commits()[-1])


def selftests(patch) -> Result | None:
    """Whether the selftests build without a warning with a patch; None if it touches none."""
    before, commit = pair(patch)
    root = "tools/testing/selftests/"
    targets = sorted({file.removeprefix(root).split("/")[0]
                      for file in _touched(before, commit) if file.startswith(root)})
    if not targets:
        return None

    def measure():
        out = WORK / "selftests"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        status, text = _make("x86_64", "-C", SOURCE / root, f"O={out}", "FORCE_TARGETS=1",
                             f"TARGETS={' '.join(targets)}", "USERLDFLAGS=-static")
        return {"failed": _why(text)} if status else {"gcc": messages(text, SOURCE)}

    tests = git(LAYOUT.linux, "rev-parse", f"{commit}:{root}").out.strip()
    result = _measured("selftests", commit, [targets, tests], measure)
    said = [result["failed"]] if result.get("failed") else result["gcc"]
    return Result(f"{' '.join(targets)}: {len(said)} messages ({result['took']})",
                  [f"{patch}: selftests: {line}" for line in said])


# ---- the whole stack ----

@dataclass(frozen=True, eq=False)
class Config:
    """What is changed in the configuration that boots, and must then hold."""

    name: str
    options: dict[str, str]
    arch: str = "x86_64"

    def lines(self) -> list[str]:
        """The options as Kconfig writes them."""
        return [f"# CONFIG_{name} is not set" if value == "n" else f"CONFIG_{name}={value}"
                for name, value in self.options.items()]


# With debug information, for pahole, and with as many CPUs for both.
LAYOUTS = (
    Config("CPUMASK_OFFSTACK on", {"DEBUG_PER_CPU_MAPS": "y", "CPUMASK_OFFSTACK": "y",
                                   "NR_CPUS": "512", "DEBUG_INFO_DWARF5": "y"}),
    Config("CPUMASK_OFFSTACK off", {"CPUMASK_OFFSTACK": "n", "NR_CPUS": "512",
                                    "DEBUG_INFO_DWARF5": "y"}),
)

# boot.config is for x86, so what kernel/sched needs of it is asked for again.
ARM64 = dict.fromkeys(("SMP", "SCHED_MC", "SCHED_CLUSTER", "NUMA", "SCHEDSTATS", "SCHED_DEBUG",
                       "FAIR_GROUP_SCHED", "CPUSETS", "HOTPLUG_CPU"), "y")

CONFIGURATIONS = (
    Config("SMP off", {"SMP": "n"}),
    Config("SCHED_MC off", {"SCHED_MC": "n"}),
    Config("SCHED_CLUSTER off", {"SCHED_CLUSTER": "n"}),
    Config("NUMA off", {"NUMA": "n"}),
    Config("PREEMPT_RT", {"EXPERT": "y", "PREEMPT_RT": "y"}),
    Config("SCHED_DEBUG off", {"SCHED_DEBUG": "n"}),
    Config("SCHEDSTATS off", {"SCHEDSTATS": "n"}),
    Config("SCHED_CACHE off", {"SCHED_CACHE": "n"}),
    *LAYOUTS,
    Config("arm64", ARM64 | {"SCHED_SMT": "y", "SCHED_CORE": "y"}, "arm64"),
    # x86 has no way to switch SCHED_SMT off but SMP.
    Config("SCHED_SMT off (arm64)", ARM64 | {"SCHED_SMT": "n"}, "arm64"),
)


@cache
def _compiled(config, commit) -> dict:
    """What gcc says about kernel/sched of a commit in one configuration; pahole's output, too,
    if the configuration has debug information."""
    # Where an option is there twice the last one counts.
    lines = _boot_lines() + _stack_lines() + config.lines()

    def measure():
        out = WORK / config.arch
        failed = _configure(out, config.arch, lines, config.lines())
        if failed:
            return {"failed": failed}
        text, failed = _compile(out, config.arch, SCHED)
        if failed:
            return {"failed": failed}
        result = {"gcc": messages(text, SOURCE, out)}
        if config in LAYOUTS:
            result["pahole"] = sh(["pahole", "-C", "root_domain,cpupri,cpupri_vec",
                                   out / "kernel/sched/build_policy.o"], capture=True).out
            if "struct root_domain {" not in result["pahole"]:
                return {"failed": "has no struct root_domain that pahole sees"}
        return result

    return _measured("config", commit, [config.arch, lines, SCHED], measure)


def compiles(config) -> Result:
    """Whether kernel/sched of the whole stack compiles in a Config, with no message of gcc (W=1)
    that the base does not have."""
    result = _compiled(config, commits()[-1])
    if result.get("failed"):
        return Result(result["took"], [f"{config.name}: {result['failed']}"])
    # The base is only asked when there is something to compare.
    old = _compiled(config, commits()[0]) if result["gcc"] else {"gcc": []}
    if old.get("failed"):
        return Result(result["took"], [f"{config.name}: the base {old['failed']}"])
    new = added(old["gcc"], result["gcc"])
    return Result(f"{len(result['gcc'])} messages, {len(new)} new ({result['took']})",
                  [f"{config.name}: {message}" for message in new])


def root_domain(config, commit) -> Result:
    """The layout of struct root_domain in a commit's object file, for a Config of LAYOUTS."""
    result = _compiled(config, commit)
    if result.get("failed"):
        return Result(result["took"], [f"{config.name}: {result['failed']}"])
    structs = layout.parse(result["pahole"])
    size = structs["root_domain"].size
    return Result("\n".join([f"struct root_domain: {size} bytes, {-(-size // layout.LINE)} lines;"
                             f" struct cpupri: {structs['cpupri'].size} bytes ({result['took']})",
                             *layout.table(structs)]),
                  [f"{config.name}: {finding}" for finding in layout.findings(structs)])


def unlisted() -> Result:
    """The files new in the stack that the scheduler's entry in MAINTAINERS does not name."""
    new = git(LAYOUT.linux, "diff", "--name-only", "--no-renames", "--diff-filter=A",
              commits()[0], commits()[-1]).out.split()
    findings = []
    with lock(WORK / "lock"):
        _checkout(commits()[-1])
        for file in new:
            entries = sh(["perl", "scripts/get_maintainer.pl", "--no-git", "--no-git-fallback",
                          "--no-m", "--no-r", "--no-l", "--sections", "-f", file],
                         cwd=SOURCE, capture=True).out.split("\n\n")
            if not any(entry.startswith("SCHEDULER\n") for entry in entries):
                findings.append(f"MAINTAINERS: SCHEDULER does not list {file}")
    return Result(f"{len(new)} new files, {len(findings)} not listed", findings)


# ---- make checks ----

TOOLS = ("gcc", "sparse", "kernel-doc")


def command(args) -> int:
    """make checks: all of it, as a table; 1 if there are findings."""
    started = time.monotonic()
    findings = []

    def show(what, result):
        say(f"{what:<24} {result.facts}")
        findings.extend(result.findings)

    for patch in stack.series():
        say(patch)
        show("  applies", applies(patch))
        for tool in TOOLS:
            show(f"  {tool}", messages_added(tool, patch, *pair(patch)))
        show("  checkpatch", style(patch))
        built = selftests(patch)
        if built:
            show("  selftests", built)
    say("the whole stack")
    show("  MAINTAINERS", unlisted())
    for config in CONFIGURATIONS:
        show(f"  {config.name}", compiles(config))
    for config in LAYOUTS:
        say(f"layout, {config.name}")
        show("", root_domain(config, commits()[-1]))
    say(f"{len(findings)} findings in {time.monotonic() - started:.0f} s")
    for finding in findings:
        say(finding)
    return 1 if findings else 0
