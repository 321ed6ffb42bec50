# SPDX-License-Identifier: GPL-2.0-only
"""The patches as a git tree and back: apply, export, and move to a newer base.

patches/ is the truth, the tree under build/ the place to edit. Nothing here ever throws away what
is in only one of the two: .git/kit-stack in the tree remembers which commit was last the same as
the patches, and a tree that has moved on from it is refused until it is exported.
"""

import contextlib
import dataclasses
import email
import email.policy
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kit.paths import DEFAULT, PATCHES, TEST_ONLY
from kit.process import Error, git, lock, say, warn
from kit.stack import base

AM = ("am", "--keep-non-patch", "--committer-date-is-author-date", "--whitespace=error-all")
FORMAT = ("format-patch", "-1", "-N", "--zero-commit", "--no-signature", "--full-index",
          "--no-base", "--no-thread", "--no-attach", "--diff-algorithm=myers", "--no-renames")
# The ids of a file before and after. A changed patch would change them in each later patch of the file.
# Only binary patches need them.
IDS = re.compile(rb"^(diff --git .*\n(?:.*mode \d+\n)*)index [0-9a-f]+\.\.[0-9a-f]+.*\n(?!GIT binary patch)",
                 re.MULTILINE)
BRANCH = "stack"
SLUG_MAX = 60


@dataclass(frozen=True)
class Entry:
    """A patch in `series`, with the comment and blank lines above it."""

    name: str
    above: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order:
    """What `series` holds: its head (to the last blank line above the first patch), the patches in
    order, and the lines below the last one.

    The first patches may be those of other series, such as "../leave-llc/NAME", which are sent before."""

    head: tuple[str, ...]
    entries: tuple[Entry, ...]
    below: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How one patch went on: `how` is "clean", "merged three-way", "fuzz: ..." or "FAILED ..."."""

    name: str
    how: str

    @property
    def failed(self) -> bool:
        """Whether the patch did not apply."""
        return self.how.startswith("FAILED")


def read_order(series) -> Order:
    """What is in `series`; an absent file is an empty one.

    Error for a name without a file, a name that is there twice, and a patch file in no series.
    """
    if series.order == TEST_ONLY / "series":
        raise Error(f"{series.name} is no series: BUILD= applies each of its diffs by itself")
    if not series.patches.is_dir():
        raise Error(f"there is no series {series.name}: no directory {series.patches}")
    lines = series.order.read_text().splitlines() if series.order.exists() else []
    head, entries, above = (), [], []
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if not name or name.startswith("#"):
            above.append(line)
            continue
        if not re.fullmatch(r"(\.\./[\w-]+/)?[\w.+-]+\.patch", name):
            raise Error(f"series line {number}: not the name of a patch: {name}")
        if is_of_another(name) and any(not is_of_another(entry.name) for entry in entries):
            raise Error(f"series line {number}: patches of other series come first: {name}")
        if not (series.patches / name).is_file():
            raise Error(f"series line {number}: there is no file {series.patches / name}")
        if any(entry.name == name for entry in entries):
            raise Error(f"series line {number}: {name} is there twice")
        if not entries and "" in above:
            start = len(above) - above[::-1].index("")
            head, above = tuple(above[:start]), above[start:]
        entries.append(Entry(name, tuple(above)))
        above = []
    listed = {entry.name for entry in entries}
    for path in sorted(series.patches.glob("*.patch")):
        if path.name not in listed:
            raise Error(f"{path} is not in series: add its line there, or remove the file")
    return Order(head, tuple(entries), tuple(above))


def listed(series) -> list[str]:
    """The names of the patches, in order, those of other series included."""
    return [entry.name for entry in read_order(series).entries]


def is_of_another(name) -> bool:
    """Whether a patch is one of another series, which this one needs and does not send."""
    return name.startswith("../")


def own(series) -> list[str]:
    """The names of the patches that the series sends, in order."""
    return [name for name in listed(series) if not is_of_another(name)]


def others(root=PATCHES) -> list[str]:
    """The names of all series with patches but the default one, such as "7.3/leave-llc"."""
    names = [str(order.parent.relative_to(root)) for order in sorted(root.glob("**/series"))]
    return [name for name in names if name not in (DEFAULT, f"6.12/{TEST_ONLY.name}")]


def is_rfc(name) -> bool:
    """Whether a series is a request for comments, by its name: evidence is missing to merge it."""
    return name.rpartition("/")[2].startswith("rfc-")


def tree(series, linux=None) -> Path:
    """Make the tree equal to the patches on the wanted base; its path.

    A tree that already is equal is left alone. Error, with nothing lost, for one with changes that
    `make export` has not written, and for a patch that does not apply.
    """
    # Before anything is written for a series that does not exist.
    listed(series)
    with lock(series.work / "tree.lock"):
        return _tree(series, linux)


def ensure(series, linux=None) -> Path:
    """The tree to build: equal to the patches, or with somebody's work in it just as it is."""
    with lock(series.work / "tree.lock"):
        reason = unsaved(series) if series.linux.exists() else None
        if reason:
            warn(f"building {series.linux} as it is: {reason}")
            return series.linux
        return _tree(series, linux)


def _tree(series, linux) -> Path:
    names = listed(series)
    reason = unsaved(series) if series.linux.exists() else None
    if reason:
        raise Error(f"{series.linux} is left as it is: {reason}")
    commit = base.ensure(series, base.wanted(series, linux))
    stamp = {"base": commit, "patches": _digest(series, names)}
    head = git(series.linux, "rev-parse", "HEAD").out.strip()
    if _read_stamp(series) == stamp | {"head": head}:
        return series.linux

    new, outcomes = apply(series, commit, names)
    _move(series, commit, new)
    _write_stamp(series, stamp | {"head": new})
    for outcome in outcomes:
        if outcome.how != "clean":
            warn(f"{outcome.name}: {outcome.how}")
    subject = git(series.linux, "log", "-1", "--format=%s", "base").out.strip()
    was = f" (branch {BRANCH} was at {head[:12]})" if head not in (new, commit) else ""
    hows = Counter(outcome.how for outcome in outcomes)
    counts = ", ".join(f"{count} {how}" for how, count in hows.most_common())
    say(f"{len(names)} patches on {subject}{was}: {counts or 'none to apply'}")
    return series.linux


def unsaved(series) -> str | None:
    """Why replacing the tree, or exporting it, would lose or miss something; None if it would not.

    Commits that the patches do not have are only in the way of replacing it.
    """
    reason = _unfinished(series)
    if reason:
        return reason
    stamp, head = _read_stamp(series), git(series.linux, "rev-parse", "HEAD").out.strip()
    if head == stamp.get("head") or not _commits(series):
        return None
    names = listed(series)
    if [text for _, text in _texts(series)] == [_bytes(series, name) for name in names]:
        _write_stamp(series, {"base": git(series.linux, "rev-parse", "base^{commit}").out.strip(),
                              "patches": _digest(series, names), "head": head})
        return None
    return "it has commits that are not in patches/ (make export writes them)"


def _unfinished(series) -> str | None:
    """What is not committed on the branch yet, in words; None if nothing."""
    state = Path(git(series.linux, "rev-parse", "--absolute-git-dir").out.strip())
    for name, what in (("rebase-merge", "a rebase"), ("rebase-apply", "a rebase or am"),
                       ("MERGE_HEAD", "a merge"), ("CHERRY_PICK_HEAD", "a cherry-pick")):
        if (state / name).exists():
            return f"{what} is in progress in it (finish it, or abort it)"
    where = git(series.linux, "symbolic-ref", "-q", "--short", "HEAD", check=False).out.strip()
    if where != BRANCH:
        return f"it is on {where or 'no branch'}, not on branch {BRANCH} (git switch {BRANCH})"
    changed = git(series.linux, "status", "--porcelain").out.splitlines()
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return f"it has changes that are not committed: {changed[0][3:]}{more}"
    return None


def _commits(series) -> list[str]:
    """The commits of the tree on top of its base, oldest first."""
    return git(series.linux, "rev-list", "--reverse", "base..HEAD").out.split()


def _texts(series) -> list[tuple[str, bytes]]:
    """Subject and patch file, as it is exported, of each commit of the tree."""
    if git(series.linux, "merge-base", "--is-ancestor", "base", "HEAD", check=False).status:
        raise Error(f"{series.linux}: HEAD does not descend from tag `base`")
    result = []
    for commit in _commits(series):
        parents, _, subject = git(series.linux, "log", "-1", "--format=%p%x00%s",
                                  commit).out.rstrip("\n").partition("\0")
        if len(parents.split()) != 1:
            raise Error(f"{series.linux}: {commit[:12]} is a merge; a stack is a line of commits")
        # git 2.47 gives even such a commit a patch file.
        if not git(series.linux, "diff", "--quiet", commit + "^", commit, check=False).status:
            raise Error(f"{series.linux}: {commit[:12]} changes nothing: {subject}")
        result.append((subject, _format(series.linux, commit)))
    return result


def _format(where, commit) -> bytes:
    """The patch file of one commit, which must change something, without the ids of text files."""
    # By way of a file, not a pipe: a patch need not be UTF-8.
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "patch"
        git(where, *FORMAT, f"--output={file}", commit)
        return IDS.sub(rb"\1", file.read_bytes())


def _bytes(series, name) -> bytes:
    return (series.patches / name).read_bytes()


def _digest(series, names) -> str:
    """One hash for the patches: names, order and contents."""
    whole = hashlib.sha256()
    for name in names:
        whole.update(f"{name} {hashlib.sha256(_bytes(series, name)).hexdigest()}\n".encode())
    return whole.hexdigest()


def _stamp_file(series) -> Path:
    return series.linux / ".git" / "kit-stack"


def _read_stamp(series) -> dict:
    with contextlib.suppress(OSError, ValueError):
        return json.loads(_stamp_file(series).read_text())
    return {}


def _write_stamp(series, values):
    _replace(_stamp_file(series), (json.dumps(values) + "\n").encode())


def _replace(path, content):
    """Write a file in one step, so that an interrupted run leaves the old one or the new one."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    os.replace(part, path)


def _move(series, commit, new):
    """Put tag `base` on `commit` and the branch, with the files, on `new`."""
    git(series.linux, "tag", "-f", "base", commit)
    # --keep writes only the files that differ, so that make rebuilds only what it has to.
    git(series.linux, "reset", "-q", "--keep", new)


def apply(series, commit, names, go_on=False) -> tuple[str, list[Outcome]]:
    """Apply the patches `names` in order to `commit`, apart from the tree; the new commit and how
    each went.

    A patch that does not apply is merged three-way, as the commit that it is on another base. The
    first one that cannot be merged is an Error, or with `go_on` an Outcome; the ones after it are
    then tried without it. The caller holds tree.lock.
    """
    if not names:
        return commit, []
    scratch, known = series.work / f"apply-{commit[:12]}", None
    _drop(series, scratch)
    try:
        git(series.linux, "worktree", "add", "-q", "--no-checkout", "--detach", scratch, commit)
        # Only the files that the patches touch are checked out: a second instead of twenty. And
        # what says how to find the function that a hunk's heading names.
        sparse = Path(git(scratch, "rev-parse", "--git-path", "info/sparse-checkout").out.strip())
        sparse = scratch / sparse
        sparse.parent.mkdir(parents=True, exist_ok=True)
        sparse.write_text("".join(f"/{path}\n" for path in
                                  [".gitattributes", *_touched(series, names)]))
        _sparse(scratch, "read-tree", "-m", "-u", "HEAD")
        outcomes = []
        for name in names:
            how = _am(series, scratch, name)
            if how.startswith("FAILED"):
                if known is None:
                    known, why_not = _elsewhere(series, commit, names)
                why_not = _merge(scratch, known[name]) if known else why_not
                how = f"{how}\n  {why_not}" if why_not else "merged three-way"
            outcomes.append(Outcome(name, how))
            if outcomes[-1].failed and not go_on:
                against = git(scratch, "log", "-1", "--format=%s", commit).out.strip()
                advice = ("\nLINUX=debian goes back to the pinned base; to merge by hand: \"The base\""
                          " in docs/working.md" if known else "")
                raise Error(f"patch {name} does not apply to {against}\n{how}{advice}")
        return git(scratch, "rev-parse", "HEAD").out.strip(), outcomes
    finally:
        _drop(series, scratch)


def in_base(series):
    """The series with the tree of its base, if it has none of its own: to apply its patches there takes a second,
    where to make its tree writes 1.3 GB."""
    own = series.linux.exists() or series.name == series.base
    return series if own else dataclasses.replace(series, tree_of=series.base)


def applied(series) -> tuple[list[str], list[Outcome]]:
    """Apply the patches apart from the tree that people edit; the commit of the base and one for each
    patch, and how each applied."""
    with lock(series.work / "tree.lock"):
        if series.linux.exists() and unsaved(series):
            first = git(series.linux, "rev-parse", "base^{commit}").out.strip()
        else:
            first = base.ensure(series)
        last, outcomes = apply(series, first, listed(series))
    each = git(series.linux, "rev-list", "--reverse", f"{first}..{last}").out.split()
    return [first, *each], outcomes


def _elsewhere(series, commit, names):
    """The patches as commits on another base than `commit`, from which they can be merged onto it: those of
    the tree if it is equal to the patches, else made on the pinned base. ({name: commit}, ""), or ({}, in
    words why not)."""
    with contextlib.suppress(Error):
        own = git(series.linux, "rev-parse", "base^{commit}").out.strip()
        if own != commit and [text for _, text in _texts(series)] == [_bytes(series, name) for name in names]:
            return dict(zip(names, _commits(series))), ""
    source = base.pin(series)
    if base.tag(source) in git(series.linux, "tag", "--points-at", commit).out.split():
        return {}, "this is the pinned base, so there is nothing to merge with"
    say(f"a patch does not apply as it is: importing the pinned base, {source.name}, to merge")
    try:
        start = base.ensure(series, source)
        new, _ = apply(series, start, names)
    except Error as error:
        return {}, f"cannot be merged without the pinned base: {error}"
    return dict(zip(names, git(series.linux, "rev-list", "--reverse", f"{start}..{new}").out.split())), ""


def _drop(series, scratch):
    shutil.rmtree(scratch, ignore_errors=True)
    git(series.linux, "worktree", "prune")


def _sparse(scratch, *args, **options):
    return git(scratch, "-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=false",
               *args, **options)


def _touched(series, names) -> list[str]:
    """The paths that the patches name, before and after, quoted for a sparse checkout."""
    found = set()
    for name in names:
        text = _bytes(series, name).decode(errors="replace")
        found.update(re.findall(r"^(?:---|\+\+\+) [ab]/([^\t\n]+)", text, re.MULTILINE))
    # A pattern of its own each, so what means something in a pattern must be quoted.
    return sorted(re.sub(r"([*?\[\\])", r"\\\1", path) for path in found)


def _am(series, scratch, name) -> str:
    """Apply one patch in `scratch` as a commit; how it went."""
    file = series.patches / name
    before = git(scratch, "rev-parse", "HEAD").out.strip()
    done = _sparse(scratch, *AM, file.absolute(), check=False)
    if done.status:
        _sparse(scratch, "am", "--abort", check=False)
        _sparse(scratch, "reset", "-q", "--hard", before)
        return _why(scratch, file, done)
    if git(scratch, "rev-list", "--count", f"{before}..HEAD").out.strip() != "1":
        _sparse(scratch, "reset", "-q", "--hard", before)
        return "FAILED not at a hunk: the file holds more than one commit"
    return _compare(file.read_bytes(), _format(scratch, "HEAD"))


def _merge(scratch, commit) -> str:
    """Merge a commit into `scratch` as a commit with the same message and dates; why that does not work."""
    date = git(scratch, "log", "-1", "--format=%aI", commit).out.strip()
    done = _sparse(scratch, "cherry-pick", commit, env={"GIT_COMMITTER_DATE": date}, check=False)
    if not done.status:
        return ""
    _sparse(scratch, "reset", "-q", "--hard", "HEAD")
    merged = re.findall(r"^CONFLICT .* in (.+)$", done.out, re.MULTILINE)
    # Not so for a commit that changes nothing any more.
    return f"a three-way merge conflicts in {', '.join(merged)}" if merged else (done.out + done.err).strip()


def _why(scratch, file, done) -> str:
    """What stands in the way of a patch: the file and hunk if that is it, and git's own words."""
    check = _sparse(scratch, "apply", "--check", "--whitespace=error-all", file.absolute(),
                    check=False)
    hunks = [f"{path}: hunk at line {line}" for path, line in
             re.findall(r"^error: patch failed: (.+):(\d+)$", check.err, re.MULTILINE)]
    # git am's advice on how to go on does not fit a scratch directory.
    advice = ("hint:", "Patch failed at", "When you have", "If you prefer", "To restore")
    words = [line for line in (check.err if check.status else done.out + done.err).splitlines()
             if not line.startswith(advice)]
    return "\n".join(["FAILED " + ("; ".join(hunks) or "not at a hunk, see below"),
                      *("  git: " + line for line in words)])


def _compare(old, new) -> str:
    """How far a patch that applied is not the one in the file."""
    # A file from elsewhere may have the ids.
    old = IDS.sub(rb"\1", old)
    if old == new:
        return "clean"
    if re.sub(rb"(?m)^@@ .*", b"", old) == re.sub(rb"(?m)^@@ .*", b"", new):
        return "fuzz: at other lines"
    return "fuzz: not as git writes it"


def slug(subject) -> str:
    """The file name of a new patch: its subject in lower case, cut at a word."""
    words = re.sub(r"[^a-z0-9]+", "-", subject.lower().replace("'", "")).strip("-")
    if len(words) > SLUG_MAX:
        words = words[:SLUG_MAX + 1].rpartition("-")[0] or words[:SLUG_MAX]
    if not words:
        raise Error(f"no file name can be made of the subject: {subject}")
    return words + ".patch"


def subject_of(text) -> str:
    """The subject of a patch file, as git would make it a commit's."""
    header = email.message_from_bytes(text, policy=email.policy.default)["Subject"] or ""
    return " ".join(re.sub(r"^\s*\[PATCH[^]]*\]", "", str(header)).split())


def export(series) -> list[str]:
    """Write the tree's commits to the patches and `series`; what changed, one line each."""
    with lock(series.work / "tree.lock"):
        if not series.linux.exists():
            raise Error(f"there is no {series.linux} to export: make tree")
        reason = _unfinished(series)
        if reason:
            raise Error(f"{series.linux} is not exported: {reason}")
        stamp = _read_stamp(series)
        if stamp and stamp["patches"] != _digest(series, listed(series)):
            raise Error(f"{series.patches} has changed since make tree or make export; to write the"
                        f" tree over it would lose that.\nPut these changes into the tree, set"
                        f" the patches back (git checkout), and make export again")
        return _export(series)


def _export(series) -> list[str]:
    old = read_order(series)
    known = {}
    for entry in old.entries:
        known.setdefault(subject_of(_bytes(series, entry.name)), entry.name)

    texts, subjects = {}, {}
    for subject, text in _texts(series):
        if re.match(r"(fixup|squash|amend)! ", subject):
            raise Error(f"{series.linux} has the commit {subject!r}: git rebase -i --autosquash")
        name = known.get(" ".join(subject.split())) or slug(subject)
        if name in texts:
            raise Error(f"two commits would both be {name}; make the subjects differ:\n"
                        f"  {subjects[name]}\n  {subject}")
        if is_of_another(name):
            if texts and not all(map(is_of_another, texts)):
                raise Error(f"{series.linux}: patches of other series come first: {subject}")
            if _bytes(series, name) != text:
                raise Error(f"the tree changes {name}: change it in the tree of its own series, and make tree here")
        texts[name], subjects[name] = text, subject

    series.patches.mkdir(parents=True, exist_ok=True)
    news = []
    for name, text in texts.items():
        path = series.patches / name
        if path.exists() and path.read_bytes() == text:
            continue
        news.append(f"{'changed' if path.exists() else 'new    '} {name}")
        _replace(path, text)
    above = {entry.name: entry.above for entry in old.entries}
    for entry in old.entries:
        if entry.name not in texts:
            news.append("\n".join([f"removed {entry.name}",
                                   *("  with its " + line for line in entry.above if line)]))
            if not is_of_another(entry.name):
                (series.patches / entry.name).unlink()
    lines = [line for name in texts for line in (*above.get(name, ()), name)]
    content = "".join(line + "\n" for line in (*old.head, *lines, *old.below)).encode()
    if not series.order.exists() or series.order.read_bytes() != content:
        news.append("changed series")
        _replace(series.order, content)

    head = git(series.linux, "rev-parse", "HEAD").out.strip()
    _write_stamp(series, {"base": git(series.linux, "rev-parse", "base^{commit}").out.strip(),
                          "patches": _digest(series, list(texts)), "head": head})
    return news


def refresh(series, linux=None) -> list[Outcome]:
    """Move the stack to LINUX= or the archive's newest source; how each patch went.

    Error, with the tree and the patches as they were, if one did not apply. A tree that somebody
    has already rebased onto that source is taken as it is.
    """
    linux = linux or series.given
    with lock(series.work / "tree.lock"):
        if linux == "debian":
            raise Error("LINUX=debian: refresh moves to the newest base of Debian without LINUX=;"
                        " make tree LINUX=debian goes back to the pinned one")
        source = base.given(linux, series) if linux else None
        if not series.linux.exists():
            # On the pinned base, and not on the source that LINUX= asks to move to.
            _tree(series, "debian")
        reason = _unfinished(series)
        if reason:
            raise Error(f"{series.linux} is left as it is: {reason}")
        source = source or base.newest(series)
        pinned = base.pin(series).name
        if source.name == base.imported(series).name and (linux or source.name == pinned):
            say(f"the stack is on this base already: {source.name}")
            return []
        commit = base.ensure(series, source)
        if git(series.linux, "merge-base", "--is-ancestor", commit, "HEAD", check=False).status:
            outcomes = _refresh(series, source, commit)
        else:
            outcomes = []
            git(series.linux, "tag", "-f", "base", commit)
        for line in _export(series):
            say(line)
        if source.name.startswith(base.DEBIAN):
            base.write_pin(base.fetch(source, series), series)
        else:
            say(f"the pin in {series.pin.name} stays: it can only name a source of Debian's")
        return outcomes


def _refresh(series, source, commit) -> list[Outcome]:
    """Apply the patches to `commit` and, if all of them went on, move the tree there."""
    reason = unsaved(series)
    if reason:
        raise Error(f"{series.linux} is left as it is: {reason}")
    new, outcomes = apply(series, commit, listed(series), go_on=True)
    for outcome in outcomes:
        say(f"{outcome.name}: {outcome.how}")
    for outcome in outcomes:
        if is_of_another(outcome.name) and outcome.how != "clean":
            raise Error(f"nothing was changed: refresh the series of {outcome.name} first")
    failed = [outcome.name for outcome in outcomes if outcome.failed]
    if failed:
        raise Error(f"{len(failed)} of {len(outcomes)} patches do not apply to {source.name};"
                    f" nothing was changed.\nBy hand: cd {series.linux} && git rebase --onto"
                    f" {base.tag(source)} base {BRANCH}, then make refresh again")
    _move(series, commit, new)
    return outcomes


def command(settings) -> int:
    """make tree, make export, make refresh."""
    if settings.command == "tree":
        say(str(tree(settings.series)))
    elif settings.command == "export":
        for line in export(settings.series) or ["nothing to write: the patches are as the tree"]:
            say(line)
    else:
        outcomes = refresh(settings.series)
        if outcomes:
            say(f"{len(outcomes)} patches moved")
    return 0
