# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's configuration and its name."""

import dataclasses
import re
import shutil
from types import SimpleNamespace

import pytest

from here import SERIES, named
from kit.process import Error, git
from kit.stack import base, patches
from kit.vm import kernel


def test_dropped_options_are_listed():
    config = "CONFIG_SMP=y\nCONFIG_NR_CPUS=64\n# CONFIG_VT is not set\nCONFIG_MODULES=y\n"
    lines = ["CONFIG_SMP=y", "CONFIG_NR_CPUS=512", "# CONFIG_VT is not set", "CONFIG_GONE=y",
             "# CONFIG_MODULES is not set", "# CONFIG_ABSENT is not set"]
    wrong = kernel.dropped(lines, config)
    print("\n".join(wrong))
    assert wrong == ["CONFIG_NR_CPUS=512  (it is 64)", "CONFIG_GONE=y  (it is not set)",
                     "# CONFIG_MODULES is not set  (it is y)"]
    assert kernel.dropped(["CONFIG_A=y", "# CONFIG_A is not set"], "") == []


def test_checks_that_only_the_stack_has_are_asked_of_it_only():
    """Kconfig would drop them elsewhere, which is an error."""
    for build in kernel.BUILDS:
        own = {line for line in kernel.requested(named(build).fragments) if "SCHED_CACHE_DEBUG" in line
               or "_KUNIT_TEST" in line}
        other = kernel.requested(named(f"7.3/leave-llc/{build}").fragments)
        checked = ("debug", "kasan", "kcsan", "leak", "race", "races", "rt", "scx")
        assert bool(own) == (build in checked) and not own & set(other)


def test_fragments_are_clean(tmp_path):
    for name in (*kernel.BUILDS, "7.3/base", "7.3/nocache"):
        lines = kernel.requested(named(name).fragments)
        print(f"{name}: {len(lines)} requested lines")
        assert len(lines) > 50
    bad = tmp_path / "bad.config"
    for line in ("CONFIG_A = y", "CONFIG_A", "# CONFIG_A is not  set", "#CONFIG_A=y",
                 "# CONFIG_A=y"):
        bad.write_text(f"# a comment\nCONFIG_B=y\n\n{line}\n")
        with pytest.raises(Error, match="bad.config line 4: neither an option nor a comment"):
            kernel.requested([bad])


@pytest.mark.patches
def test_option_that_kconfig_drops_stops_the_build(tmp_path):
    # VIRTIO_PCI needs VIRTIO_MENU, which nothing here asks for: Kconfig drops it in silence.
    fragment = tmp_path / "fragment.config"
    fragment.write_text("CONFIG_64BIT=y\nCONFIG_PCI=y\nCONFIG_VIRTIO_PCI=y\n")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(Error, match="Kconfig dropped 1 of 3 requested lines") as caught:
        kernel.configure(patches.ensure(SERIES), out, [fragment], tmp_path / "log")
    print(caught.value)
    assert "CONFIG_VIRTIO_PCI=y  (it is not set)" in str(caught.value)


@pytest.fixture
def version(monkeypatch, tmp_path):
    """A function that writes the version of the stack."""
    monkeypatch.setattr(kernel, "VERSION", tmp_path / "VERSION")
    return kernel.VERSION.write_text


def test_version_names_build_and_tree(toy, version):
    patches.tree(toy.series, toy.source)
    tree = toy.git("rev-parse", "HEAD^{tree}")[:12]
    version("2.31\n")
    names = {build: kernel.local_version(toy.linux, kernel.Kernel(toy.series, build))
             for build in kernel.BUILDS}
    print(names)
    assert names.pop("stack") == f"-cachetopo-2.31-{tree}"
    assert names.pop("validate") == f"-validate-2.31-{tree}"
    assert names.pop("nocache") == f"-nocache-2.31-{tree}"
    for build, name in names.items():
        assert name == (f"-{build}-{tree}" if build in kernel.UNPATCHED else f"-cachetopo-{build}-2.31-{tree}")
    other = kernel.Kernel(dataclasses.replace(toy.series, name="6.12/other"), "stack")
    assert kernel.local_version(toy.linux, other) == f"-cachetopo-{tree}"

    version("123.456.7890")
    (toy.linux / "kernel/new.c").write_text("int new;\n")
    names = [base.pin(SERIES).version.partition("-")[0]
             + kernel.local_version(toy.linux, kernel.Kernel(toy.series, build)) for build in kernel.BUILDS]
    assert max(map(len, names)) <= 64
    assert all(name.endswith(f"{tree}-dirty") for name in names)


@pytest.mark.parametrize("text", ["", "2.1-rc1", "v2", "2..1", "123.456.78901"])
def test_version_that_cannot_be_in_a_name(version, text):
    version(text)
    with pytest.raises(Error, match="not a version such as 2.1"):
        kernel.stack_version(SERIES)


def test_extra_diff_is_in_a_tree_of_its_own(toy, tmp_path, monkeypatch):
    """It is on top of the stack, follows it, and changes neither its tree nor what is exported."""
    patches.tree(toy.series, toy.source)
    extra = tmp_path / "extra.patch"
    monkeypatch.setitem(kernel.BUILDS, "validate",
                        dataclasses.replace(kernel.BUILDS["validate"], extra=extra))
    one = kernel.Kernel(toy.series, "validate")
    diff = "for tests\n\n--- /dev/null\n+++ b/extra.c\n@@ -0,0 +1 @@\n+int extra;\n"
    extra.write_text(diff)
    where = kernel._with_extra(toy.linux, one)
    assert where == kernel.source_dir(one) != toy.linux and (where / "extra.c").read_text() == "int extra;\n"
    assert not (toy.linux / "extra.c").exists() and patches.unsaved(toy.series) is None
    head = toy.git("rev-parse", "HEAD")
    assert kernel.git(where, "rev-parse", "HEAD^").out.strip() == head.strip()
    # An unchanged tree is left as it is, or make would compile all of it again.
    (where / "extra.c").write_text("int kept;\n")
    assert kernel._with_extra(toy.linux, one) == where
    assert (where / "extra.c").read_text() == "int kept;\n"
    extra.write_text(diff.replace("extra;", "other;"))
    kernel._with_extra(toy.linux, one)
    assert (where / "extra.c").read_text() == "int other;\n"
    extra.write_text("--- a/none.c\n+++ b/none.c\n@@ -1 +1 @@\n-x\n+y\n")
    with pytest.raises(Error, match="extra.patch does not apply on the stack"):
        kernel._with_extra(toy.linux, one)


@pytest.mark.patches
@pytest.mark.parametrize("name", [name for name, build in kernel.BUILDS.items() if build.extra])
def test_test_only_diff_applies_on_the_stack(name):
    git(patches.ensure(SERIES), "apply", "--check", kernel.BUILDS[name].extra)


def test_diff_of_validate_has_the_states_of_older_kernels():
    text = kernel.BUILDS["validate"].extra.read_text()
    assert "+SCHED_FEAT(TG_LOAD_AVG_LIMIT, true)" in text and "+SCHED_FEAT(LAZY_TLB_COUNT, true)" in text


def test_kcsan_looks_at_the_scheduler_without_changing_it():
    """Its diff is for makefiles only: a race is one of the series. Lockdep would make its guests slower still, and
    it alone has reports that do not count."""
    build = kernel.BUILDS["kcsan"]
    text = build.extra.read_text()
    assert re.findall(r"^\+\+\+ b/(\S+)$", text, re.MULTILINE) == ["kernel/sched/Makefile", "scripts/Makefile.lib"]
    assert "\n+KCSAN_SANITIZE := y\n" in text
    lines = kernel.requested(named("kcsan").fragments)
    assert {"CONFIG_KCSAN=y", "CONFIG_KCSAN_STRICT=y"} <= set(lines) and "CONFIG_PROVE_LOCKING=y" not in lines
    assert [name for name in kernel.BUILDS if named(name).how.kcsan] == ["kcsan"]


def test_unknown_build():
    with pytest.raises(Error, match="no such BUILD: fast"):
        named("fast")
    with pytest.raises(Error, match="no series 9.9 in patches/"):
        named("9.9/base")


def test_space_is_asked_for_before_anything_is_made(toy, monkeypatch):
    """With that of the tree, if that is not there either; not for a kernel that is built."""
    which = kernel.Kernel(toy.series, "stack")
    monkeypatch.setattr(base, "SPACE", 3.5)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=3.7e9))
    with pytest.raises(Error, match=r"kernel stack needs 5\.0 GB of disk space in .*, and 3\.7 GB are free"):
        kernel.build(which)
    assert not toy.series.build.exists()
    monkeypatch.setattr(base, "SPACE", 0)
    patches.tree(toy.series, toy.source)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1.4e9))
    with pytest.raises(Error, match=r"kernel stack needs 1\.5 GB"):
        kernel.build(which)
    image = which.image
    image.parent.mkdir(parents=True)
    image.write_text("")
    monkeypatch.setattr(kernel, "configure", lambda *args: None)
    monkeypatch.setattr(kernel, "make", lambda *args: None)
    monkeypatch.setattr(kernel, "release", lambda name: "6.12.1")
    kernel.build(which)


def test_series_without_patches_is_not_patched():
    """It has no selftests of ours to install, and its kernels are made from the base."""
    assert named("stack").patched and not named("base").patched
    assert named("offstack").patched and not named("base-offstack").patched
    for name in ("7.3/base", "7.3/nocache"):
        assert not named(name).patched
        assert kernel.source_dir(named(name)).name == "linux-base"
    with pytest.raises(Error, match="the series 7.3 has no patches; there are: base, nocache, base-offstack"):
        named("7.3/stack")
