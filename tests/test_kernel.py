# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's configuration and its name."""

import pytest

from kit import kernel, stack
from kit.paths import CONFIGS
from kit.run import Error


def test_dropped_options_are_listed():
    config = "CONFIG_SMP=y\nCONFIG_NR_CPUS=64\n# CONFIG_VT is not set\nCONFIG_MODULES=y\n"
    lines = ["CONFIG_SMP=y", "CONFIG_NR_CPUS=512", "# CONFIG_VT is not set", "CONFIG_GONE=y",
             "# CONFIG_MODULES is not set", "# CONFIG_ABSENT is not set"]
    wrong = kernel.dropped(lines, config)
    print("\n".join(wrong))
    assert wrong == ["CONFIG_NR_CPUS=512  (it is 64)", "CONFIG_GONE=y  (it is not set)",
                     "# CONFIG_MODULES is not set  (it is y)"]
    assert kernel.dropped(["CONFIG_A=y", "# CONFIG_A is not set"], "") == []


def test_fragments_are_clean(tmp_path):
    for name, fragments in kernel.FRAGMENTS.items():
        lines = kernel.requested([CONFIGS / fragment for fragment in fragments])
        print(f"{name}: {len(lines)} requested lines")
        assert len(lines) > 50
    bad = tmp_path / "bad.config"
    for line in ("CONFIG_A = y", "CONFIG_A", "# CONFIG_A is not  set", "#CONFIG_A=y",
                 "# CONFIG_A=y"):
        bad.write_text(f"# a comment\nCONFIG_B=y\n\n{line}\n")
        with pytest.raises(Error, match="bad.config line 4: neither an option nor a comment"):
            kernel.requested([bad])


def test_option_that_kconfig_drops_stops_the_build(tmp_path):
    # VIRTIO_PCI needs VIRTIO_MENU, which nothing here asks for: Kconfig drops it in silence.
    fragment = tmp_path / "fragment.config"
    fragment.write_text("CONFIG_64BIT=y\nCONFIG_PCI=y\nCONFIG_VIRTIO_PCI=y\n")
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(Error, match="Kconfig dropped 1 of 3 requested lines") as caught:
        kernel.configure(stack.ensure(), out, [fragment], tmp_path / "log")
    print(caught.value)
    assert "CONFIG_VIRTIO_PCI=y  (it is not set)" in str(caught.value)


def test_version_names_build_and_tree(toy):
    stack.tree(toy.layout, toy.source)
    tree = toy.git("rev-parse", "HEAD^{tree}")[:12]
    names = {build: kernel.local_version(toy.linux, build) for build in kernel.NAMES}
    print(names)
    assert names == {"stack": f"-cachetopo-{tree}", "base": f"-base-{tree}",
                     "debug": f"-cachetopo-debug-{tree}",
                     "kasan": f"-cachetopo-kasan-{tree}"}
    (toy.linux / "kernel/new.c").write_text("int new;\n")
    assert kernel.local_version(toy.linux, "stack") == f"-cachetopo-{tree}-dirty"


def test_unknown_build():
    with pytest.raises(Error, match="no such BUILD: fast") as caught:
        kernel.build("fast")
    print(caught.value)


def test_progress_without_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(kernel, "QUIET", 0)
    progress = kernel.Progress("kernel stack")
    for line in ("make[1]: Entering directory", "  CC      kernel/sched/core.o",
                 "  HOSTCC  scripts/x", "x.c:1:2: warning: odd"):
        progress(line)
    progress.end()
    out, err = capsys.readouterr()
    print(out + err)
    assert out.splitlines()[-1].startswith("kernel stack: 2 files, ") and "\r" not in out
    assert err == "x.c:1:2: warning: odd\n"
