# SPDX-License-Identifier: GPL-2.0-only
"""Patches to tree and back, on a toy kernel; and once the real stack on the real base."""

import re

import pytest

from kit import base, stack
from kit.paths import LAYOUT
from kit.run import Error, git, lock

FIRST = "sched/one: Number the first things from one hundred upwards, as the others are"
FIRST_FILE = "sched-one-number-the-first-things-from-one-hundred-upwards.patch"
SECOND = "sched/two: Drop a thing"


@pytest.fixture
def stacked(toy):
    """A toy with two patches, exported."""
    stack.tree(toy.layout, toy.source)
    toy.commit(FIRST, "kernel/one.c", "int one_9;", "int one_109;")
    toy.commit(SECOND, "kernel/two.c", "int two_30;\n", "")
    stack.export(toy.layout)
    return toy


def test_round_trip_is_byte_stable(stacked):
    files, trees = stacked.files(), stacked.git("log", "--format=%T %an %ai %s", "stack")
    assert stacked.layout.series.read_text() == f"{FIRST_FILE}\nsched-two-drop-a-thing.patch\n"
    assert stack.export(stacked.layout) == []

    stacked.linux.rename(stacked.directory / "old")
    stack.tree(stacked.layout, stacked.source)
    assert stacked.git("log", "--format=%T %an %ai %s", "stack") == trees
    assert stacked.git("log", "-1", "--format=%cI") == stacked.git("log", "-1", "--format=%aI")
    commits = stacked.git("rev-list", "stack")
    assert stack.export(stacked.layout) == []
    assert stacked.files() == files

    stack.tree(stacked.layout)
    assert stacked.git("rev-list", "stack") == commits
    print(f"{len(files)} files the same after export, tree, export; the trees:\n{trees}")


def test_text_that_is_not_utf8_survives(toy):
    (toy.source / "kernel/two.c").write_bytes(b"/* caf\xe9 */\nint x;\n")
    stack.tree(toy.layout, toy.source)
    changed = b"/* caf\xe9s */\nint x;\n\fint y;\n"
    (toy.linux / "kernel/two.c").write_bytes(changed)
    git(toy.linux, "commit", "-q", "-a", "-m", "sched: Add y", env=base.IDENTITY)
    stack.export(toy.layout)
    files = toy.files()
    assert b"+/* caf\xe9s */\n" in files["sched-add-y.patch"]
    toy.git("reset", "-q", "--hard", "base")
    stack.tree(toy.layout)
    assert (toy.linux / "kernel/two.c").read_bytes() == changed
    assert stack.export(toy.layout) == [] and toy.files() == files
    print(f"the same {len(files['sched-add-y.patch'])} bytes, with latin-1 and a form feed")


def test_series_keeps_comments_and_names(stacked):
    series = stacked.layout.series
    series.write_text(f"# the stack\n\n# ready\n{FIRST_FILE}\n\n# needs numbers\n"
                      "sched-two-drop-a-thing.patch\n# the end\n")
    stacked.layout.patches.joinpath("cover-letter.txt").write_text("hello\n")
    named = stacked.layout.patches / "short.patch"
    (stacked.layout.patches / "sched-two-drop-a-thing.patch").rename(named)
    series.write_text(series.read_text().replace("sched-two-drop-a-thing", "short"))
    stack.tree(stacked.layout)
    text = series.read_text()
    assert stack.export(stacked.layout) == [] and series.read_text() == text

    stacked.commit("sched/two: Drop another", "kernel/two.c", "int two_50;\n", "")
    news = stack.export(stacked.layout)
    assert news == ["new     sched-two-drop-another.patch", "changed series"]
    assert series.read_text() == text.replace("# the end",
                                              "sched-two-drop-another.patch\n# the end")

    stacked.git("rebase", "-q", "--onto", "base", "HEAD~1", "stack")
    news = stack.export(stacked.layout)
    print("\n".join(news))
    assert f"removed {FIRST_FILE}\n  with its # ready" in news
    assert "removed short.patch\n  with its # needs numbers" in news
    assert series.read_text() == "# the stack\n\nsched-two-drop-another.patch\n# the end\n"
    assert sorted(stacked.files()) == ["base.toml", "cover-letter.txt",
                                       "sched-two-drop-another.patch", "series"]


def test_patch_that_does_not_apply(stacked):
    path = stacked.layout.patches / "sched-two-drop-a-thing.patch"
    head, status = stacked.git("rev-parse", "HEAD"), stacked.git("status", "--porcelain")
    # The blob ids go too: with them a 3-way merge finds its way.
    path.write_bytes(re.sub(rb"(?m)^index .*\n", b"", path.read_bytes())
                     .replace(b" int two_29;", b" int two_x;"))
    with pytest.raises(Error) as caught:
        stack.tree(stacked.layout)
    text = str(caught.value)
    print(text)
    assert "patch sched-two-drop-a-thing.patch does not apply to Linux 6.12.1" in text
    assert "kernel/two.c: hunk at line 28" in text
    assert stacked.git("rev-parse", "HEAD") == head
    assert stacked.git("status", "--porcelain") == status
    assert not (stacked.linux / ".git/rebase-apply").exists()
    assert "apply" not in stacked.git("worktree", "list", "--porcelain").split("/")


def test_whitespace_error_in_a_patch(stacked):
    path = stacked.layout.patches / FIRST_FILE
    path.write_bytes(path.read_bytes().replace(b"+int one_109;", b"+int one_109; "))
    with pytest.raises(Error, match=f"(?s){FIRST_FILE}.*trailing whitespace") as caught:
        stack.tree(stacked.layout)
    print(caught.value)


def test_file_with_two_commits(stacked):
    first, second = (stacked.layout.patches / name for name in stack.series(stacked.layout))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    with pytest.raises(Error, match="holds more than one commit") as caught:
        stack.tree(stacked.layout)
    print(caught.value)


def test_work_in_the_tree_is_not_lost(stacked):
    path = stacked.layout.patches / FIRST_FILE
    theirs = path.read_bytes().replace(b"one_109", b"one_209")

    def refused(words, function=stack.tree):
        head, diff = stacked.git("rev-parse", "HEAD"), stacked.git("diff", "HEAD")
        with pytest.raises(Error, match=words) as caught:
            function(stacked.layout)
        print(f"{function.__name__}: {caught.value}")
        assert (stacked.git("rev-parse", "HEAD"), stacked.git("diff", "HEAD")) == (head, diff)

    path.write_bytes(theirs)
    stacked.edit("kernel/one.c", "int one_1;", "int mine;")
    refused("changes that are not committed: kernel/one.c")
    refused("changes that are not committed: kernel/one.c", stack.export)
    stacked.git("commit", "-q", "-a", "-m", "mine")
    refused("commits that are not in patches/")
    stacked.git("switch", "-q", "-c", "other")
    refused("is on other, not on branch stack")
    stacked.git("switch", "-q", "stack")
    (stacked.linux / ".git/rebase-merge").mkdir()
    refused("a rebase is in progress")
    refused("a rebase is in progress", stack.export)
    (stacked.linux / ".git/rebase-merge").rmdir()
    (stacked.linux / "kernel/new.c").write_text("int new;\n")
    refused("changes that are not committed: kernel/new.c")


def test_work_in_the_patches_is_not_lost(stacked):
    """What came into patches/ by another way, a pull say, is not overwritten by an export."""
    path = stacked.layout.patches / FIRST_FILE
    path.write_bytes(path.read_bytes().replace(b"one_109", b"one_209"))
    stacked.commit("sched/two: Mine", "kernel/two.c", "int two_5;\n", "")
    files = stacked.files()
    with pytest.raises(Error, match="has changed since") as caught:
        stack.export(stacked.layout)
    print(caught.value)
    assert stacked.files() == files


def test_kernel_builds_the_tree_as_it_is(stacked, capsys):
    stacked.edit("kernel/one.c", "int one_1;", "int mine;")
    stack.ensure(stacked.layout)
    assert "int mine;" in (stacked.linux / "kernel/one.c").read_text()
    said = capsys.readouterr().err
    assert "as it is: it has changes that are not committed" in said
    print(said.strip())


def test_patches_that_changed_are_applied(stacked):
    path = stacked.layout.patches / FIRST_FILE
    before = (stacked.linux / "kernel/two.c").stat().st_mtime_ns
    path.write_bytes(path.read_bytes().replace(b"one_109", b"one_209"))
    stack.ensure(stacked.layout)
    assert "int one_209;" in (stacked.linux / "kernel/one.c").read_text()
    assert (stacked.linux / "kernel/two.c").stat().st_mtime_ns == before
    print("the changed patch is in the tree; a file it does not touch kept its time")


def test_bad_series(stacked):
    series, text = stacked.layout.series, stacked.layout.series.read_text()
    extra = stacked.layout.patches / "extra.patch"
    for line, words in (("gone.patch", "there is no file .*gone.patch"),
                        (FIRST_FILE, f"{FIRST_FILE} is there twice"),
                        ("a b", "not the name of a patch: a b")):
        series.write_text(f"{text}{line}\n")
        for function in (stack.tree, stack.export):
            with pytest.raises(Error, match="series line 3: " + words) as caught:
                function(stacked.layout)
        print(caught.value)
    series.write_text(text)
    extra.write_text("x\n")
    with pytest.raises(Error, match="extra.patch is not in series") as caught:
        stack.tree(stacked.layout)
    print(caught.value)


def test_commits_that_cannot_be_exported(stacked):
    files, head = stacked.files(), stacked.git("rev-parse", "HEAD")

    def refused(words):
        with pytest.raises(Error, match=words) as caught:
            stack.export(stacked.layout)
        print(caught.value)
        assert stacked.files() == files
        stacked.git("reset", "-q", "--hard", head)

    stacked.commit("fixup! " + SECOND, "kernel/two.c", "int two_5;", "int x;")
    refused("autosquash")
    stacked.commit("Sched/two: drop a THING", "kernel/two.c", "int two_5;", "int x;")
    refused("(?s)two commits would both be .*Drop a thing.*drop a THING")
    git(stacked.linux, "commit", "-q", "--allow-empty", "-m", "sched: Do nothing",
        env=base.IDENTITY)
    refused("changes nothing: sched: Do nothing")


def test_refresh_reports_each_patch(stacked, capsys):
    stacked.commit("sched/one: Drop the last", "kernel/one.c", "int one_59;\n", "")
    stacked.commit("sched/two: Drop the last", "kernel/two.c", "int two_58;\n", "")
    stack.export(stacked.layout)
    newer = stacked.make_source(2, {
        "kernel/one.c": lambda text: text.replace("int one_30;", "int more;\nint one_30;"),
        "kernel/two.c": lambda text: text.replace("int two_56;", "int changed;")})
    outcomes = stack.refresh(stacked.layout, newer)
    print(capsys.readouterr().out)
    assert [(outcome.name, outcome.how) for outcome in outcomes] == [
        (FIRST_FILE, "clean"), ("sched-two-drop-a-thing.patch", "clean"),
        ("sched-one-drop-the-last.patch", "fuzz: at other lines"),
        ("sched-two-drop-the-last.patch", "fuzz: needed a 3-way merge")]
    assert "SUBLEVEL = 2" in (stacked.linux / "Makefile").read_text()
    assert b"@@ -58,4 +58,3 @@" in stacked.files()["sched-one-drop-the-last.patch"]
    assert stack.export(stacked.layout) == []
    # The exported patches are now clean on the new base.
    commit = stacked.git("rev-parse", "base")
    _, outcomes = stack.apply(stacked.layout, commit, stack.series(stacked.layout))
    assert {outcome.how for outcome in outcomes} == {"clean"}


def test_refresh_that_fails_changes_nothing(stacked, capsys):
    files, refs = stacked.files(), stacked.git("rev-parse", "HEAD", "base")
    newer = stacked.make_source(2, {
        "kernel/one.c": lambda text: text.replace("int one_9;", "long one_9;")})
    with pytest.raises(Error, match="1 of 2 patches do not apply") as caught:
        stack.refresh(stacked.layout, newer)
    said = capsys.readouterr().out
    print(said, caught.value)
    assert f"{FIRST_FILE}: FAILED kernel/one.c: hunk at line 7" in said
    assert "sched-two-drop-a-thing.patch: clean" in said
    assert (stacked.files(), stacked.git("rev-parse", "HEAD", "base")) == (files, refs)

    # As the message says: by hand, and refresh takes what it finds.
    new = re.search(r"--onto (\S+)", str(caught.value))[1]
    git(stacked.linux, "rebase", "-q", "--onto", new, "base", "stack", check=False)
    text = (stacked.linux / "kernel/one.c").read_text()
    text = re.sub(r"(?s)<{7}.*>{7}[^\n]*\n", "long one_109;\n", text)
    (stacked.linux / "kernel/one.c").write_text(text)
    git(stacked.linux, "add", "-u")
    git(stacked.linux, "rebase", "--continue", env={"GIT_EDITOR": "true"})
    stack.refresh(stacked.layout, newer)
    assert b"+long one_109;" in stacked.files()[FIRST_FILE]
    assert stacked.git("rev-parse", "base") == stacked.git("rev-parse", new)


def test_the_stack_itself_round_trips():
    # Apart from the tree, where somebody may be at work.
    names = stack.series()
    with lock(LAYOUT.work / "tree.lock"):
        commit = base.ensure()
        new, outcomes = stack.apply(LAYOUT, commit, names)
    for outcome in outcomes:
        print(f"{outcome.name}: {outcome.how}")
    commits = git(LAYOUT.linux, "rev-list", "--reverse", f"{commit}..{new}").out.split()
    assert len(commits) == len(names)
    for name, applied in zip(names, commits):
        assert stack._format(LAYOUT.linux, applied) == (LAYOUT.patches / name).read_bytes(), name
    print(f"{len(names)} patches exported to the same bytes")
