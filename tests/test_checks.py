# SPDX-License-Identifier: GPL-2.0-only
"""The checks of the stack, and that each of them can fail."""

import re

import pytest

from kit import checks, layout, stack
from kit.base import IDENTITY
from kit.paths import LAYOUT
from kit.run import git

PATCHES = stack.series()


def verdict(result):
    """Print what was measured, and fail with the findings if there are any."""
    print(result.facts)
    assert not result.findings, "\n".join(result.findings)


# ---- the stack ----

@pytest.mark.parametrize("patch", PATCHES)
def test_patch_applies_as_it_is(patch):
    verdict(checks.applies(patch))


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("tool", checks.TOOLS)
def test_patch_adds_no_message(tool, patch):
    verdict(checks.messages_added(tool, patch, *checks.pair(patch)))


@pytest.mark.parametrize("patch", PATCHES)
def test_patch_style(patch):
    verdict(checks.style(patch))


@pytest.mark.parametrize("patch", PATCHES)
def test_patch_selftests_build(patch):
    result = checks.selftests(patch)
    if result is None:
        print("touches no selftest")
    else:
        verdict(result)


def test_new_files_are_in_maintainers():
    verdict(checks.unlisted())


@pytest.mark.parametrize("config", checks.CONFIGURATIONS, ids=lambda config: config.name)
def test_stack_compiles_with(config):
    verdict(checks.compiles(config))


@pytest.mark.parametrize("config", checks.LAYOUTS, ids=lambda config: config.name)
def test_root_domain_lines(config):
    verdict(checks.root_domain(config, checks.commits()[-1]))


# ---- that the checks can fail ----

@pytest.mark.parametrize("config", checks.LAYOUTS, ids=lambda config: config.name)
def test_root_domain_lines_of_the_base_are_shared(config):
    result = checks.root_domain(config, checks.commits()[0])
    print(result.facts)
    print(f"{len(result.findings)} findings, the first ones:", *result.findings[:9], sep="\n")
    shared = [set(re.findall(r"[\w.\[\]]+", finding)) for finding in result.findings]
    assert any({"rto_count", "refcount"} <= names for names in shared)
    assert any({"rto_mask", "cpupri.pri_to_cpu[0].count"} <= names for names in shared)


GCC = """\
{src}/kernel/sched/core.c: In function 'schedule':
{src}/kernel/sched/core.c:{line}:9: warning: unused variable 'x' [-Wunused-variable]
  {line} |     int x;
      |         ^
kernel/sched/core.o: warning: objtool: schedule+0x{line}: unreachable instruction
{src}/kernel/sched/sched.h:7:1: note: declared here
"""

SPARSE = """\
{src}/kernel/sched/fair.c:{line}:38: warning: incorrect type in initializer
{src}/kernel/sched/fair.c:{line}:38:    expected struct {what} *curr
{src}/kernel/sched/fair.c:{line}:38:    got struct task_struct [noderef] __rcu *curr
{src}/kernel/sched/fair.c: note: in included file:
"""


def test_message_that_moved_is_not_new():
    before = checks.messages(GCC.format(src="/one", line=100), "/one")
    after = checks.messages(GCC.format(src="/two", line=234), "/two")
    print("\n".join(before))
    assert before == [
        "kernel/sched/core.c: warning: unused variable 'x' [-Wunused-variable]",
        "kernel/sched/core.o: warning: objtool: schedule+0x: unreachable instruction"]
    assert checks.added(before, after) == []


def test_same_message_once_more_is_new():
    once = checks.messages(GCC.format(src="/one", line=100), "/one")
    print(checks.added(once, once + once[:1]))
    assert checks.added(once, once + once[:1]) == once[:1]
    assert checks.added(once + once, once) == []


def test_sparse_message_with_another_type_is_new():
    before = checks.messages(SPARSE.format(src="/s", line=12, what="task_struct"), "/s")
    moved = checks.messages(SPARSE.format(src="/s", line=99, what="task_struct"), "/s")
    other = checks.messages(SPARSE.format(src="/s", line=12, what="rq"), "/s")
    print("\n".join(other))
    assert checks.added(before, moved) == []
    assert checks.added(before, other) == [
        "kernel/sched/fair.c: warning: incorrect type in initializer;"
        " expected struct rq *curr; got struct task_struct [noderef] __rcu *curr"]


TOY = """
/**
 * checks_toy - Do nothing
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
    """Commit a change of the base that adds `text` to kernel/sched/core.c; the commit."""
    first, file = checks.commits()[0], "kernel/sched/core.c"
    index = {"GIT_INDEX_FILE": directory / "index"}
    whole = git(LAYOUT.linux, "show", f"{first}:{file}").out + text
    blob = git(LAYOUT.linux, "hash-object", "-w", "--stdin", input=whole).out.strip()
    git(LAYOUT.linux, "read-tree", first, env=index)
    git(LAYOUT.linux, "update-index", "--cacheinfo", f"100644,{blob},{file}", env=index)
    tree = git(LAYOUT.linux, "write-tree", env=index).out.strip()
    return git(LAYOUT.linux, "commit-tree", tree, "-p", first, "-m", "sched/core: Add a toy",
               env=IDENTITY).out.strip()


@pytest.fixture(scope="module")
def toy_commit(tmp_path_factory):
    """A commit on the base with something for every check to find."""
    return add_to_core(TOY, tmp_path_factory.mktemp("toy"))


@pytest.mark.parametrize(("tool", "finds"), [
    ("gcc", ["no previous prototype for .checks_toy.", "unused variable .unused."]),
    ("sparse", ["symbol 'checks_toy' was not declared"]),
    ("kernel-doc", ["'b' not described in 'checks_toy'", "'a' description in 'checks_toy'"])])
def test_new_message_is_found(toy_commit, tool, finds):
    result = checks.messages_added(tool, "toy.patch", checks.commits()[0], toy_commit)
    print(result.facts, *result.findings, sep="\n")
    assert all(finding.startswith(f"toy.patch: {tool}: kernel/sched/core.c: ")
               for finding in result.findings)
    for what in finds:
        assert len([finding for finding in result.findings if re.search(what, finding)]) == 1


def test_bad_style_is_found(toy_commit, tmp_path):
    patch = tmp_path / "toy.patch"
    git(LAYOUT.linux, "format-patch", "-1", f"--output={patch}", toy_commit)
    result = checks.style(patch.name, tmp_path)
    print(result.facts, *result.findings, sep="\n")
    for what in ("ERROR:TRAILING_STATEMENTS", "WARNING:COMMIT_MESSAGE", "WARNING:BRACES"):
        assert any(what in finding for finding in result.findings)


def test_option_that_kconfig_drops_is_found():
    # SCHED_SMT has no prompt on x86: it follows SMP.
    result = checks.compiles(checks.Config("toy", {"SCHED_SMT": "n"}))
    print(result.facts, *result.findings, sep="\n")
    assert "# CONFIG_SCHED_SMT is not set  (it is y)" in result.findings[0]


def test_patch_that_does_not_build_is_found(tmp_path):
    broken = add_to_core("static int checks_toy = no_such_thing;\n", tmp_path)
    result = checks.messages_added("gcc", "toy.patch", checks.commits()[0], broken)
    print(result.facts, *result.findings, sep="\n")
    assert "toy.patch: does not build:" in result.findings[0]
    assert "'no_such_thing' undeclared here" in result.findings[0]


def test_target_that_make_passes_over_is_found(monkeypatch):
    monkeypatch.setattr(checks, "SCHED", "kernel/sched/no-such-directory/")
    result = checks.compiles(checks.Config("toy", {}))
    print(result.facts, *result.findings, sep="\n")
    assert result.findings == ["toy: does not build: nothing was compiled for"
                               " kernel/sched/no-such-directory/"]


PAHOLE = """\
struct cpupri_vec {
	atomic_t                   count __attribute__((__aligned__(64))); /*     0     4 */

	/* XXX 60 bytes hole, try to pack */

	/* --- cacheline 1 boundary (64 bytes) --- */
	cpumask_var_t              mask __attribute__((__aligned__(64))); /*    64     8 */

	/* size: 128, cachelines: 2, members: 2 */
} __attribute__((__aligned__(64)));
struct cpupri {
	struct cpupri_vec          pri_to_cpu[2] __attribute__((__aligned__(64))); /*     0   256 */
	/* --- cacheline 4 boundary (256 bytes) --- */
	int *                      cpu_to_pri;           /*   256     8 */

	/* size: 320, cachelines: 5, members: 2 */
} __attribute__((__aligned__(64)));
struct root_domain {
	cpumask_var_t              span __attribute__((__aligned__(64))); /*     0     8 */
	atomic_t                   rto_count __attribute__((__aligned__(64))); /*    64     4 */
	struct cpupri              cpupri __attribute__((__aligned__(64))); /*   128   320 */

	/* size: 448, cachelines: 7, members: 3 */
} __attribute__((__aligned__(64)));
"""


def line_findings(text):
    """The findings about a layout; the toy does not have all the fields, which is not the point."""
    found = [finding for finding in layout.findings(layout.parse(text))
             if "not in the struct" not in finding]
    print(*layout.table(layout.parse(text)), *found, sep="\n")
    return found


def test_line_with_two_writers_is_found():
    assert line_findings(PAHOLE) == []
    shared = PAHOLE.replace("/*    64     4 */", "/*    60     4 */")
    assert line_findings(shared) == ["line 0 is shared by span | rto_count"]
    # A bitmap in place of a pointer reaches into the next line.
    long = PAHOLE.replace("/*     0     8 */", "/*     0    72 */")
    assert line_findings(long) == ["line 1 is shared by span | rto_count"]
    close = PAHOLE.replace("/*    64     8 */", "/*     8     8 */")
    assert line_findings(close) == [
        f"line {line} is shared by cpupri.pri_to_cpu[{n}].count | cpupri.pri_to_cpu[{n}].mask"
        for n, line in ((0, 2), (1, 4))]


def test_struct_without_alignment_is_found():
    head, _, _ = PAHOLE.rpartition("} __attribute__")
    assert ["not aligned" in finding for finding in line_findings(head + "};\n")] == [True]


def test_fields_that_the_table_does_not_know_are_found():
    text = PAHOLE.replace("rto_count", "brand_new")
    assert line_findings(text) == ["brand_new is in no group: say in kit/layout.py who writes it"]
    missing = layout.findings(layout.parse(PAHOLE))
    assert "rto_mask is in a group, but not in the struct" in missing
