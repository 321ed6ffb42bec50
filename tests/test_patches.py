# SPDX-License-Identifier: GPL-2.0-only
"""From patches to tree and back, on a toy kernel; and once with the real series and base."""

import dataclasses
import re
import shutil

import pytest

from here import SERIES
from kit.paths import GUEST
from kit.process import Error, git, lock, sh
from kit.stack import base, patches
from kit.vm import initramfs

FIRST = "sched/one: Number the first things from one hundred upwards, as the others are"
FIRST_FILE = "sched-one-number-the-first-things-from-one-hundred-upwards.patch"
SECOND = "sched/two: Drop a thing"


@pytest.fixture
def stacked(toy):
    """Return a toy with two exported patches."""
    patches.tree(toy.series, toy.source)
    toy.commit(FIRST, "kernel/one.c", "int one_9;", "int one_109;")
    toy.commit(SECOND, "kernel/two.c", "int two_30;\n", "")
    patches.export(toy.series)
    return toy


def test_round_trip_is_byte_stable(stacked):
    files, trees = stacked.files(), stacked.git("log", "--format=%T %an %ai %s", "stack")
    assert stacked.series.order.read_text() == f"{FIRST_FILE}\nsched-two-drop-a-thing.patch\n"
    assert patches.export(stacked.series) == []

    stacked.linux.rename(stacked.directory / "old")
    patches.tree(stacked.series, stacked.source)
    assert stacked.git("log", "--format=%T %an %ai %s", "stack") == trees
    assert stacked.git("log", "-1", "--format=%cI") == stacked.git("log", "-1", "--format=%aI")
    commits = stacked.git("rev-list", "stack")
    assert patches.export(stacked.series) == []
    assert stacked.files() == files

    patches.tree(stacked.series)
    assert stacked.git("rev-list", "stack") == commits
    print(f"{len(files)} files the same after export, tree, export; the trees:\n{trees}")


def test_text_that_is_not_utf8_survives(toy):
    (toy.source / "kernel/two.c").write_bytes(b"/* caf\xe9 */\nint x;\n")
    patches.tree(toy.series, toy.source)
    changed = b"/* caf\xe9s */\nint x;\n\fint y;\n"
    (toy.linux / "kernel/two.c").write_bytes(changed)
    git(toy.linux, "commit", "-q", "-a", "-m", "sched: Add y", env=base.IDENTITY)
    patches.export(toy.series)
    files = toy.files()
    assert b"+/* caf\xe9s */\n" in files["sched-add-y.patch"]
    toy.git("reset", "-q", "--hard", "base")
    patches.tree(toy.series)
    assert (toy.linux / "kernel/two.c").read_bytes() == changed
    assert patches.export(toy.series) == [] and toy.files() == files
    print(f"the same {len(files['sched-add-y.patch'])} bytes, with latin-1 and a form feed")


def test_export_writes_only_what_changed(stacked):
    """An edit of one patch leaves later patches of the same file as they were, and a line that looks like
    git's ids stays."""
    stacked.commit("sched/one: Drop the last", "kernel/one.c", "int one_59;\n", "index 12ab..34cd 100644\n")
    text = stacked.linux / "kernel/new.c"
    text.write_text("int new;\n")
    git(stacked.linux, "add", "kernel/new.c")
    git(stacked.linux, "commit", "-q", "-m", "sched: Add a file\n\nindex 12ab..34cd 100644", env=base.IDENTITY)
    (stacked.linux / "kernel/logo").write_bytes(bytes(range(256)))
    git(stacked.linux, "add", "kernel/logo")
    git(stacked.linux, "commit", "-q", "-m", "sched: Add a picture", env=base.IDENTITY)
    patches.export(stacked.series)
    files, trees = stacked.files(), stacked.git("log", "--format=%T", "stack")
    assert b"+index 12ab..34cd 100644\n" in files["sched-one-drop-the-last.patch"]
    assert b"\nindex 12ab..34cd 100644\n---\n" in files["sched-add-a-file.patch"]
    stacked.linux.rename(stacked.directory / "old")
    patches.tree(stacked.series, stacked.source)
    assert stacked.git("log", "--format=%T", "stack") == trees

    stacked.edit("kernel/one.c", "int one_109;", "int one_209;")
    first = stacked.git("log", "--format=%H", "--grep", "Number the first", "stack")
    git(stacked.linux, "commit", "-q", "-a", "--fixup", first, env=base.IDENTITY)
    git(stacked.linux, "rebase", "-q", "-i", "--autosquash", "base", env={"GIT_EDITOR": "true"})
    assert patches.export(stacked.series) == [f"changed {FIRST_FILE}"]
    files.pop(FIRST_FILE)
    assert files.items() <= stacked.files().items()


def test_series_keeps_comments_and_names(stacked):
    series = stacked.series.order
    series.write_text(f"# the stack\n\n# ready\n{FIRST_FILE}\n\n# needs numbers\n"
                      "sched-two-drop-a-thing.patch\n# the end\n")
    stacked.series.patches.joinpath("cover-letter.txt").write_text("hello\n")
    named = stacked.series.patches / "short.patch"
    (stacked.series.patches / "sched-two-drop-a-thing.patch").rename(named)
    series.write_text(series.read_text().replace("sched-two-drop-a-thing", "short"))
    patches.tree(stacked.series)
    text = series.read_text()
    assert patches.export(stacked.series) == [] and series.read_text() == text

    stacked.commit("sched/two: Drop another", "kernel/two.c", "int two_50;\n", "")
    news = patches.export(stacked.series)
    assert news == ["new     sched-two-drop-another.patch", "changed series"]
    assert series.read_text() == text.replace("# the end",
                                              "sched-two-drop-another.patch\n# the end")

    stacked.git("rebase", "-q", "--onto", "base", "HEAD~1", "stack")
    news = patches.export(stacked.series)
    print("\n".join(news))
    assert f"removed {FIRST_FILE}\n  with its # ready" in news
    assert "removed short.patch\n  with its # needs numbers" in news
    assert series.read_text() == "# the stack\n\nsched-two-drop-another.patch\n# the end\n"
    assert sorted(stacked.files()) == ["base.toml", "cover-letter.txt",
                                       "sched-two-drop-another.patch", "series"]


def test_patch_that_does_not_apply(stacked):
    path = stacked.series.patches / "sched-two-drop-a-thing.patch"
    head, status = stacked.git("rev-parse", "HEAD"), stacked.git("status", "--porcelain")
    path.write_bytes(path.read_bytes().replace(b" int two_29;", b" int two_x;"))
    with pytest.raises(Error) as caught:
        patches.tree(stacked.series)
    text = str(caught.value)
    print(text)
    assert "patch sched-two-drop-a-thing.patch does not apply to Linux 6.12.1" in text
    assert "kernel/two.c: hunk at line 28" in text
    assert stacked.git("rev-parse", "HEAD") == head
    assert stacked.git("status", "--porcelain") == status
    assert not (stacked.linux / ".git/rebase-apply").exists()
    assert "apply" not in stacked.git("worktree", "list", "--porcelain").split("/")


def test_whitespace_error_in_a_patch(stacked):
    path = stacked.series.patches / FIRST_FILE
    path.write_bytes(path.read_bytes().replace(b"+int one_109;", b"+int one_109; "))
    with pytest.raises(Error, match=f"(?s){FIRST_FILE}.*trailing whitespace"):
        patches.tree(stacked.series)


def test_file_with_two_commits(stacked):
    first, second = (stacked.series.patches / name for name in patches.listed(stacked.series))
    first.write_bytes(first.read_bytes() + second.read_bytes())
    with pytest.raises(Error, match="holds more than one commit"):
        patches.tree(stacked.series)


def test_work_in_the_tree_is_not_lost(stacked):
    path = stacked.series.patches / FIRST_FILE
    theirs = path.read_bytes().replace(b"one_109", b"one_209")

    def refused(words, function=patches.tree):
        head, diff = stacked.git("rev-parse", "HEAD"), stacked.git("diff", "HEAD")
        with pytest.raises(Error, match=words) as caught:
            function(stacked.series)
        print(f"{function.__name__}: {caught.value}")
        assert (stacked.git("rev-parse", "HEAD"), stacked.git("diff", "HEAD")) == (head, diff)

    path.write_bytes(theirs)
    stacked.edit("kernel/one.c", "int one_1;", "int mine;")
    refused("changes that are not committed: kernel/one.c")
    refused("changes that are not committed: kernel/one.c", patches.export)
    stacked.git("commit", "-q", "-a", "-m", "mine")
    refused("commits that are not in patches/")
    stacked.git("switch", "-q", "-c", "other")
    refused("is on other, not on branch stack")
    stacked.git("switch", "-q", "stack")
    (stacked.linux / ".git/rebase-merge").mkdir()
    refused("a rebase is in progress")
    refused("a rebase is in progress", patches.export)
    (stacked.linux / ".git/rebase-merge").rmdir()
    (stacked.linux / "kernel/new.c").write_text("int new;\n")
    refused("changes that are not committed: kernel/new.c")


def test_work_in_the_patches_is_not_lost(stacked):
    """An export does not overwrite patches that changed by other means, such as a pull."""
    path = stacked.series.patches / FIRST_FILE
    path.write_bytes(path.read_bytes().replace(b"one_109", b"one_209"))
    stacked.commit("sched/two: Mine", "kernel/two.c", "int two_5;\n", "")
    files = stacked.files()
    with pytest.raises(Error, match="has changed since"):
        patches.export(stacked.series)
    assert stacked.files() == files


def test_kernel_builds_the_tree_as_it_is(stacked, capsys):
    stacked.edit("kernel/one.c", "int one_1;", "int mine;")
    patches.ensure(stacked.series)
    assert "int mine;" in (stacked.linux / "kernel/one.c").read_text()
    said = capsys.readouterr().err
    assert "as it is: it has changes that are not committed" in said
    print(said.strip())


def test_patches_that_changed_are_applied(stacked):
    path = stacked.series.patches / FIRST_FILE
    before = (stacked.linux / "kernel/two.c").stat().st_mtime_ns
    path.write_bytes(path.read_bytes().replace(b"one_109", b"one_209"))
    patches.ensure(stacked.series)
    assert "int one_209;" in (stacked.linux / "kernel/one.c").read_text()
    assert (stacked.linux / "kernel/two.c").stat().st_mtime_ns == before
    print("the changed patch is in the tree; a file it does not touch kept its time")


def test_bad_series(stacked):
    series, text = stacked.series.order, stacked.series.order.read_text()
    extra = stacked.series.patches / "extra.patch"
    for line, words in (("gone.patch", "there is no file .*gone.patch"),
                        (FIRST_FILE, f"{FIRST_FILE} is there twice"),
                        ("a b", "not the name of a patch: a b")):
        series.write_text(f"{text}{line}\n")
        for function in (patches.tree, patches.export):
            with pytest.raises(Error, match="series line 3: " + words):
                function(stacked.series)
    series.write_text(text)
    extra.write_text("x\n")
    with pytest.raises(Error, match="extra.patch is not in series"):
        patches.tree(stacked.series)


def test_a_series_on_patches_of_another(stacked):
    """They are in its tree, and the files stay those of the other series."""
    first, _ = stacked.series.order.read_text().split()
    before, other = (stacked.series.other(f"{stacked.series.name}/{name}") for name in ("before", "other"))
    before.patches.mkdir()
    shutil.copy(stacked.series.patches / first, before.patches)
    before.order.write_text(f"{first}\n")
    needed = f"../before/{first}"
    other.patches.mkdir()
    other.order.write_text(f"{needed}\n")
    files = (before.patches / first).read_bytes()
    tree = patches.tree(other, stacked.source)

    def commit(text, subject):
        (tree / "kernel/one.c").write_text(text)
        git(tree, "commit", "-q", "-a", "-m", subject, env=base.IDENTITY)

    commit("int only;\n", "sched/one: Keep one")
    patches.export(other)
    assert other.order.read_text() == f"{needed}\nsched-one-keep-one.patch\n"
    assert patches.listed(other) == [needed, *patches.own(other)]
    git(tree, "reset", "-q", "--hard", "HEAD~2")
    commit("int other;\n", FIRST)
    with pytest.raises(Error, match="the tree changes ../.*in the tree of its own series"):
        patches.export(other)
    git(tree, "reset", "-q", "--hard", "HEAD~1")
    commit("int one_109;\n", "sched/one: Keep another one")
    commit("int one_9;\n", FIRST)
    with pytest.raises(Error, match="patches of other series come first: sched/one: Number"):
        patches.export(other)
    git(tree, "reset", "-q", "--hard", "HEAD~2")
    patches.export(other)
    assert (before.patches / first).read_bytes() == files and not other.order.read_text()

    other.order.write_text(f"{needed}\n")
    patches.tree(other)
    newer = stacked.make_source(2, {"kernel/one.c": lambda text: "int more;\n" + text})
    head = git(tree, "rev-parse", "HEAD").out
    with pytest.raises(Error, match="nothing was changed: refresh the series of ../before/.* first"):
        patches.refresh(other, newer)
    assert git(tree, "rev-parse", "HEAD").out == head and patches.export(other) == []

    (other.patches / "mine.patch").write_text("x\n")
    other.order.write_text(f"mine.patch\n{needed}\n")
    with pytest.raises(Error, match="series line 2: patches of other series come first"):
        patches.listed(other)


def test_commits_that_cannot_be_exported(stacked):
    files, head = stacked.files(), stacked.git("rev-parse", "HEAD")

    def refused(words):
        with pytest.raises(Error, match=words):
            patches.export(stacked.series)
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
    patches.export(stacked.series)
    newer = stacked.make_source(2, {
        "kernel/one.c": lambda text: text.replace("int one_30;", "int more;\nint one_30;"),
        "kernel/two.c": lambda text: text.replace("int two_56;", "int changed;")})
    outcomes = patches.refresh(stacked.series, newer)
    print(capsys.readouterr().out)
    assert [(outcome.name, outcome.how) for outcome in outcomes] == [
        (FIRST_FILE, "clean"), ("sched-two-drop-a-thing.patch", "clean"),
        ("sched-one-drop-the-last.patch", "fuzz: at other lines"),
        ("sched-two-drop-the-last.patch", "merged three-way")]
    assert "SUBLEVEL = 2" in (stacked.linux / "Makefile").read_text()
    assert b"@@ -58,4 +58,3 @@" in stacked.files()["sched-one-drop-the-last.patch"]
    assert patches.export(stacked.series) == []
    # The exported patches are now clean on the new base.
    commit = stacked.git("rev-parse", "base")
    _, outcomes = patches.apply(stacked.series, commit, patches.listed(stacked.series))
    assert {outcome.how for outcome in outcomes} == {"clean"}


@pytest.fixture
def elsewhere(toy):
    """A toy with two patches on its pinned base, and no tree: LINUX= is the first that it sees."""
    base.write_pin(toy.make_deb(), toy.series)
    patches.tree(toy.series)
    toy.commit(FIRST, "kernel/one.c", "int one_9;", "int one_109;")
    toy.commit(SECOND, "kernel/two.c", "int two_30;\n", "")
    patches.export(toy.series)
    shutil.rmtree(toy.linux)
    return toy


def test_other_base_is_merged_three_way(elsewhere, capsys):
    """A line beside a changed one is another in another point release. The pinned base, imported
    for that, says what was there before."""
    newer = elsewhere.make_source(2, {
        "kernel/two.c": lambda text: text.replace("int two_28;", "int changed;")})
    files = elsewhere.files()
    capsys.readouterr()
    patches.tree(elsewhere.series, newer)
    said = capsys.readouterr()
    print(said.out, said.err)
    assert "sched-two-drop-a-thing.patch: merged three-way" in said.err
    assert "2 patches on Linux 6.12.2" in said.out and "1 clean, 1 merged three-way" in said.out
    assert "int changed;\nint two_29;\nint two_31;\n" in (
        elsewhere.linux / "kernel/two.c").read_text()
    assert elsewhere.git("log", "--format=%s", "stack").split("\n")[2].startswith("Linux 6.12.2")
    assert elsewhere.files() == files
    # The pinned base is there, but nothing is built on it.
    assert elsewhere.git("rev-parse", "base-Debian-6.12.1-1") != elsewhere.git("rev-parse", "base")


def test_other_base_that_conflicts(elsewhere):
    newer = elsewhere.make_source(2, {
        "kernel/two.c": lambda text: text.replace("int two_30;", "long two_30;")})
    with pytest.raises(Error) as caught:
        patches.tree(elsewhere.series, newer)
    print(caught.value)
    assert "patch sched-two-drop-a-thing.patch does not apply to Linux 6.12.2" in str(caught.value)
    assert "a three-way merge conflicts in kernel/two.c" in str(caught.value)
    assert "LINUX=debian goes back" in str(caught.value)

    # As docs/working.md says: the patches on the pinned base, rebased by hand, are built as they are.
    patches.tree(elsewhere.series, "debian")
    new = [tag for tag in elsewhere.git("tag").split() if tag.startswith("base-directory")][0]
    git(elsewhere.linux, "rebase", "-q", "--onto", new, "base", "stack", check=False)
    text = (elsewhere.linux / "kernel/two.c").read_text()
    (elsewhere.linux / "kernel/two.c").write_text(re.sub(r"(?s)<{7}.*>{7}[^\n]*\n", "", text))
    git(elsewhere.linux, "add", "-u")
    git(elsewhere.linux, "rebase", "--continue", env={"GIT_EDITOR": "true"})
    git(elsewhere.linux, "tag", "-f", "base", new)
    patches.ensure(elsewhere.series)
    assert "SUBLEVEL = 2" in (elsewhere.linux / "Makefile").read_text()
    assert "two_30" not in (elsewhere.linux / "kernel/two.c").read_text()


def test_other_base_without_the_pinned_one(elsewhere):
    base.deb_path(elsewhere.series, base.pin(elsewhere.series)).unlink()
    newer = elsewhere.make_source(2, {
        "kernel/two.c": lambda text: text.replace("int two_28;", "int changed;")})
    with pytest.raises(Error) as caught:
        patches.tree(elsewhere.series, newer)
    print(caught.value)
    for words in ("kernel/two.c: hunk at line 28", "cannot be merged without the pinned base",
                  "cannot be had from anywhere"):
        assert words in str(caught.value)


def test_refresh_without_a_tree_begins_on_the_pinned_base(toy, monkeypatch):
    """Not on the source that LINUX= asks to move to: the patches would be taken for up to date."""
    asked = []

    def tree(series, linux):
        asked.append(linux)
        raise Error("no tree in this test")

    monkeypatch.setattr(patches, "_tree", tree)
    with pytest.raises(Error, match="no tree in this test"):
        patches.refresh(dataclasses.replace(toy.series, given=str(toy.source)))
    assert asked == ["debian"]
    # What cannot be moved to is refused before anything is fetched.
    with pytest.raises(Error, match="/nowhere: no such directory or file"):
        patches.refresh(toy.series, "/nowhere")
    with pytest.raises(Error, match="LINUX=debian: refresh moves to the newest base"):
        patches.refresh(toy.series, "debian")


def test_refresh_that_fails_changes_nothing(stacked, capsys):
    files, refs = stacked.files(), stacked.git("rev-parse", "HEAD", "base")
    newer = stacked.make_source(2, {
        "kernel/one.c": lambda text: text.replace("int one_9;", "long one_9;")})
    with pytest.raises(Error, match="1 of 2 patches do not apply") as caught:
        patches.refresh(stacked.series, newer)
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
    patches.refresh(stacked.series, newer)
    assert b"+long one_109;" in stacked.files()[FIRST_FILE]
    assert stacked.git("rev-parse", "base") == stacked.git("rev-parse", new)


@pytest.mark.patches
def test_the_stack_itself_round_trips():
    # Not in the work tree, which may have uncommitted work.
    names = patches.listed(SERIES)
    with lock(SERIES.work / "tree.lock"):
        commit = base.ensure(SERIES)
        new, outcomes = patches.apply(SERIES, commit, names)
    assert {outcome.name: outcome.how for outcome in outcomes} == dict.fromkeys(names, "clean")
    commits = git(SERIES.linux, "rev-list", "--reverse", f"{commit}..{new}").out.split()
    assert len(commits) == len(names)
    for name, applied in zip(names, commits):
        assert patches._format(SERIES.linux, applied) == (SERIES.patches / name).read_bytes(), name
    print(f"{len(names)} patches exported to the same bytes")


@pytest.mark.patches
def test_soak_compiles_with_the_headers_of_the_selftests(tmp_path):
    """What is run by hand, and for minutes, is not to break unseen."""
    headers = patches.ensure(SERIES) / "tools/testing/selftests/sched"
    assert initramfs.compiled(GUEST / "soak", tmp_path, headers).stat().st_size


@pytest.mark.patches
def test_documents_of_the_kernel(tmp_path):
    """The kernel's documentation tools have nothing to say about the documents that the patches change."""
    source = patches.ensure(SERIES)
    changed = git(source, "diff", "--name-only", "base", "stack", "--", "*.rst").out.split()
    print(*changed)
    assert changed and all(name.startswith("Documentation/scheduler/") for name in changed)
    done = sh(["make", "-C", source, f"O={tmp_path}", "SPHINXDIRS=scheduler", "htmldocs"], capture=True)
    assert (tmp_path / "Documentation/output/scheduler/sched-cache.html").is_file()
    lines = (done.out + done.err).splitlines()
    assert [line for line in lines if any(name in line for name in changed)] == []
