# SPDX-License-Identifier: GPL-2.0-only
"""The checks of the series, and that each of them can fail."""

import re

import pytest

from here import SERIES
from kit.process import git
from kit.stack import patches
from kit.vm import checks
from kit.stack.base import IDENTITY

PATCHES = patches.listed(SERIES)
# These take turns in one worktree, so they leave the other CPUs to other tests.
COMPILES = pytest.mark.xdist_group("compiles")


def verdicts(results):
    """Print what was measured of each patch, in pairs with its Result; fail with the findings of all."""
    findings = []
    for what, result in results:
        print(f"{what}: {result.facts}")
        findings += result.findings
    assert not findings, "\n".join(findings)


# ---- the series ----

@pytest.mark.long
@COMPILES
@pytest.mark.parametrize("tool", checks.TOOLS)
def test_no_patch_adds_a_message(tool):
    """To compile each patch takes a fifth of the time of CI: `make checks` does it before patches are sent."""
    verdicts((patch, checks.messages_added(SERIES, tool, patch, *checks.pair(SERIES, patch))) for patch in PATCHES)


@pytest.mark.patches
@COMPILES
@pytest.mark.parametrize("tool", checks.TOOLS)
def test_stack_adds_no_message(tool):
    base, *_, last = checks.commits(SERIES)
    verdicts([("stack", checks.messages_added(SERIES, tool, "stack", base, last))])


@pytest.mark.patches
def test_style_of_each_patch():
    verdicts((patch, checks.style(SERIES, patch)) for patch in PATCHES)


@pytest.mark.patches
@COMPILES
def test_selftests_build_with_each_patch_that_touches_them():
    built = [(patch, result) for patch in PATCHES if (result := checks.selftests(SERIES, patch))]
    assert built
    verdicts(built)


@pytest.mark.patches
@COMPILES
def test_new_files_are_in_maintainers():
    verdicts([("series", checks.unlisted(SERIES))])


@pytest.mark.patches
@COMPILES
@pytest.mark.parametrize("config", checks.CONFIGURATIONS, ids=lambda config: config.name)
def test_stack_compiles_with(config):
    verdicts([(config.name, checks.compiles(SERIES, config))])


CACHE_OFF = next(config for config in checks.CONFIGURATIONS if config.name == "SCHED_CACHE off")


@pytest.mark.patches
@COMPILES
def test_cache_aware_scheduling_changes_no_function_if_not_configured():
    verdicts([(CACHE_OFF.name, checks.unchanged(
        SERIES, CACHE_OFF, checks.pair(SERIES, "sched-cache-number-the-llcs.patch")[0],
        checks.pair(SERIES, "sched-cache-enable-cache-aware-scheduling-by-default.patch")[1]))])


# ---- that the checks can fail ----

SPARSE = """\
{src}/kernel/sched/fair.c:{line}:38: warning: incorrect type in initializer
{src}/kernel/sched/fair.c:{line}:38:    expected struct {what} *curr
{src}/kernel/sched/fair.c:{line}:38:    got struct task_struct [noderef] __rcu *curr
{src}/kernel/sched/fair.c: note: in included file:
"""


def test_message_that_only_moved_is_not_new():
    """One with another type is, and the same once more."""
    before = checks.messages(SPARSE.format(src="/s", line=12, what="task_struct"), "/s")
    moved = checks.messages(SPARSE.format(src="/s", line=99, what="task_struct"), "/s")
    other = checks.messages(SPARSE.format(src="/s", line=12, what="rq"), "/s")
    print("\n".join(other))
    assert checks.added(before, moved) == [] and checks.added(before, 2 * before) == before
    assert checks.added(before, other) == [
        "kernel/sched/fair.c: warning: incorrect type in initializer;"
        " expected struct rq *curr; got struct task_struct [noderef] __rcu *curr"]


TOY = """
/**
 * checks_toy - Do nothing, and recieve nothing
 * @a: a number
 */
int checks_toy(int b)
{
	int unused;

	if (b) { return 1; }
	return 0;
}
"""


def add_to_core(text, directory):
    """Make a commit on the base that adds `text` to kernel/sched/core.c; return its id."""
    first, file = checks.commits(SERIES)[0], "kernel/sched/core.c"
    index = {"GIT_INDEX_FILE": directory / "index"}
    whole = git(SERIES.linux, "show", f"{first}:{file}").out + text
    blob = git(SERIES.linux, "hash-object", "-w", "--stdin", input=whole).out.strip()
    git(SERIES.linux, "read-tree", first, env=index)
    git(SERIES.linux, "update-index", "--cacheinfo", f"100644,{blob},{file}", env=index)
    tree = git(SERIES.linux, "write-tree", env=index).out.strip()
    return git(SERIES.linux, "commit-tree", tree, "-p", first, "-m", "sched/core: Add a toy",
               env=IDENTITY).out.strip()


@pytest.fixture(scope="module")
def toy_commit(tmp_path_factory):
    """Return a commit on the base in which each check has something to find."""
    return add_to_core(TOY, tmp_path_factory.mktemp("toy"))


@pytest.mark.patches
@COMPILES
@pytest.mark.parametrize(("tool", "finds"), [
    ("gcc", ["no previous prototype for .checks_toy.", "unused variable .unused."]),
    ("sparse", ["symbol 'checks_toy' was not declared"]),
    ("kernel-doc", ["'b' not described in 'checks_toy'", "'a' description in 'checks_toy'"])])
def test_new_message_is_found(toy_commit, tool, finds):
    result = checks.messages_added(SERIES, tool, "toy.patch", checks.commits(SERIES)[0], toy_commit)
    print(result.facts, *result.findings, sep="\n")
    assert all(finding.startswith(f"toy.patch: {tool}: kernel/sched/core.c: ")
               for finding in result.findings)
    for what in finds:
        assert len([finding for finding in result.findings if re.search(what, finding)]) == 1


def test_what_sparse_says_by_chance_is_left_out():
    said = ["kernel/sched/cache.c: warning: dereference of noderef expression",
            "kernel/sched/psi.c: warning: dereference of noderef expression",
            "kernel/sched/cache.c: warning: context imbalance in 'f' - wrong count at exit"]
    assert checks.reliable(said, ["kernel/sched/cache.c", "kernel/sched/sched.h"]) == said[:1]


@pytest.mark.patches
@COMPILES
def test_function_that_changes_is_found(toy_commit):
    result = checks.unchanged(SERIES, CACHE_OFF, checks.commits(SERIES)[0], toy_commit)
    print(result.facts, *result.findings, sep="\n")
    assert result.findings == ["SCHED_CACHE off: core.o: checks_toy differs"]


@pytest.mark.patches
@COMPILES
def test_bad_style_is_found(toy_commit, tmp_path):
    patch = tmp_path / "toy.patch"
    git(SERIES.linux, "format-patch", "-1", f"--output={patch}", toy_commit)
    result = checks.style(SERIES, patch.name, tmp_path)
    print(result.facts, *result.findings, sep="\n")
    for what in ("ERROR:TRAILING_STATEMENTS", "WARNING:COMMIT_MESSAGE", "WARNING:BRACES", "recieve ==> receive"):
        assert any(what in finding for finding in result.findings)


@pytest.mark.patches
@COMPILES
def test_option_that_kconfig_drops_is_found():
    # SCHED_SMT has no prompt on x86: it follows SMP.
    result = checks.compiles(SERIES, checks.Config("toy", {"SCHED_SMT": "n"}))
    print(result.facts, *result.findings, sep="\n")
    assert "# CONFIG_SCHED_SMT is not set  (it is y)" in result.findings[0]


@pytest.mark.patches
@COMPILES
def test_patch_that_does_not_build_is_found(tmp_path):
    broken = add_to_core("static int checks_toy = no_such_thing;\n", tmp_path)
    result = checks.messages_added(SERIES, "gcc", "toy.patch", checks.commits(SERIES)[0], broken)
    print(result.facts, *result.findings, sep="\n")
    assert "toy.patch: does not build:" in result.findings[0]
    assert "'no_such_thing' undeclared here" in result.findings[0]


@pytest.mark.patches
@COMPILES
def test_target_that_make_passes_over_is_found(monkeypatch):
    monkeypatch.setattr(checks, "SCHED", "kernel/sched/no-such-directory/")
    result = checks.compiles(SERIES, checks.Config("toy", {}))
    print(result.facts, *result.findings, sep="\n")
    assert result.findings == ["toy: does not build: nothing was compiled for"
                               " kernel/sched/no-such-directory/"]
