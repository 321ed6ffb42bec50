# SPDX-License-Identifier: GPL-2.0-only
"""make peers without guests and without scx_rusty: the programs, the tools that it needs, and its page."""

from pathlib import Path

import pytest

from kit import settings
from kit.process import Error
from kit.trials import peers


def test_the_machines_are_of_16_cpus_in_two_llcs_and_32_in_four():
    assert [(m.cpus, len({cpu.llc for cpu in m.expected()})) for m in peers.machines()] == [(16, 2), (32, 4)]


def test_a_missing_tool_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)
    with pytest.raises(Error, match="cargo is not installed"):
        peers.rusty(tmp_path)
    monkeypatch.setattr(peers.shutil, "which", lambda name: name == "cargo")
    with pytest.raises(Error, match="no clang-16 to clang-18 with libclang.*: apt-get install clang-16 libclang1-16"):
        peers.rusty(tmp_path)


def test_a_built_scx_rusty_is_used_again(monkeypatch, tmp_path):
    program = tmp_path / "scx_rusty-1.0.8/bin/scx_rusty"
    program.parent.mkdir(parents=True)
    program.write_bytes(Path("/bin/sh").resolve().read_bytes())
    program.chmod(0o755)
    monkeypatch.setattr(peers, "tools", lambda: pytest.fail("builds it"))
    files = peers.rusty(tmp_path)
    assert files["bin/scx_rusty"] == program and any("libc.so" in name for name in files)


def test_libraries_are_those_with_a_path():
    assert peers.libraries("\tlinux-vdso.so.1 (0x7ffc1)\n\tlibz.so.1 => /lib/x/libz.so.1 (0x7f1)\n"
                           "\t/lib64/ld-linux-x86-64.so.2 (0x7f2)\n") == {
        "lib/x/libz.so.1": Path("/lib/x/libz.so.1"), "lib64/ld-linux-x86-64.so.2": Path("/lib64/ld-linux-x86-64.so.2")}
    with pytest.raises(Error, match="lacks a library"):
        peers.libraries("\tlibelf.so.1 => not found\n")


def figures():
    """What a guest prints in two rounds: 2 threads in two states, 3 threads that scx_rusty does not survive twice."""
    values = {"on": (100, 0, 1.0), "off": (60, 4, 1.0), "pinned": (100, 0, 0.1), "rusty": (50, 9, 3.0)}
    case = [{"program": peers.PROGRAMS["2 threads"], "state": state, "round": number, "together": together - number,
             "migrations": migrations, "p99": p99, "hops": 3}
            for number in (1, 2) for state, (together, migrations, p99) in values.items()]
    lost = [{"program": peers.PROGRAMS["3 threads"], "round": number, "when": "running"} for number in (1, 2)]
    return {"case": case, "lost": lost}


def test_figures_are_of_a_program_in_a_column():
    found, lost = peers.parse(figures(), peers.STATES["host"])
    assert found["2 threads", "scx_rusty"] == {"together": [49, 48], "migrations": [9, 9], "p99": [3.0, 3.0]}
    assert lost == {("3 threads", "scx_rusty"): ["running", "running"]}


def test_better_and_worse_are_what_all_rounds_show():
    found, _ = peers.parse(figures(), peers.STATES["host"])
    differs = peers.differences(found, 2)
    assert [len(some) for some in differs["scx_rusty"][:2]] == [0, 3]
    assert differs["pinned"] == (["2 threads: p99 1, 0.1 there"], [], 3)
    # Waits do not differ, and 7.3 was not measured.
    assert len(differs["6.12 off"][1]) == 2 and differs["7.3 on"] == ([], [], 0)
    found["2 threads", "pinned"]["p99"][1] = 1.0
    assert peers.differences(found, 2)["pinned"] == ([], [], 3)
    assert peers.differences(found, 3)["pinned"] == ([], [], 0)


@pytest.mark.parametrize("values, lost, text", [
    ([90.0, 100.0], [], "95 (90 to 100)"),
    ([100.0, 100.0], [], "100"),
    ([100.0], [], "not measured"),
    # What was measured before it was thrown out is no figure.
    ([100.0], ["running"], "thrown out, 1 of 2"),
    ([], ["loading", "loading"], "not loaded, 2 of 2"),
])
def test_a_cell_has_a_figure_or_says_why_not(values, lost, text):
    assert peers.cell(values, lost, 2) == text


def test_the_page_says_losses_first_and_what_was_thrown_out():
    found, lost = peers.parse(figures(), peers.STATES["host"])
    lines = peers.section(peers.machines()[0], {"host": "6.12.1-x", "7.3/base": "7.3.4-y"}, found, lost, 2)
    text = peers.page([lines], 2, 1000)
    worse = text.index("- `6.12 on` **worse** than `pinned` in 1 of 3: 2 threads: p99 1, 0.1 there.")
    assert worse < text.index("- `6.12 on` **better** than `pinned` in 0 of 3.")
    assert "- `6.12 on` **worse** than `scx_rusty` in 0 of 3." in text
    assert "- `6.12 on` and `7.3 on` are **not compared**" in text
    assert "| 3 threads | not measured | not measured | thrown out, 2 of 2 | not measured |" in text
    assert "6.12.1-x and 7.3.4-y" in text and "--tune-interval 0.1" in text


def test_a_short_run_is_not_saved():
    with pytest.raises(Error, match="a short run"):
        peers.command(settings.read("peers", {"SHORT": "1", "SAVE": "1"}))
