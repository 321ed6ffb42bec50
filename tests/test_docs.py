# SPDX-License-Identifier: GPL-2.0-only
"""README.md and the other pages that are written by hand: what they link to and tell to run exists."""

import re

import pytest

from here import SERIES
from kit import settings
from kit.commands import COMMANDS
from kit.paths import ROOT
from kit.process import Error
from kit.stack import patches

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")),
         *(ROOT / f"results/{name}.md" for name in ("README", "NOTES", "torture", "abuse", "cases", "peers", "irqsoff"))]


def links(text):
    """The relative links of a page: [(path, anchor)], either may be empty."""
    found = re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text)
    return [(path, anchor) for path, anchor in found if ":" not in path]


def anchors(text):
    """The anchors of a page's headings, as Git hosts make them."""
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def commands(text):
    """The `make` commands of a page, in blocks of code and between backticks, without comments:
    [[target, word...]]. `make O=...` is not one of ours: it runs the kernel's makefile."""
    code = re.sub(r"\\\n\s*", "", text)
    found = re.findall(r"^    (?:sudo )?make ([^#\n]+)", code, re.M)
    found += re.findall(r"`(?:sudo )?make ([^`]+)`", code.replace("\n", " "))
    return [re.sub(r"'[^']*'", "x", command).split() for command in found
            if not command.startswith("O=")]


def wrong(words):
    """Say what is wrong with a command, or ""."""
    target, *rest = words
    if target not in COMMANDS:
        return f"there is no command {target}"
    try:
        settings.check(target, [word.partition("=")[0] for word in rest if "=" in word])
    except Error as error:
        return str(error)
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text()
    for path, anchor in links(text):
        target = page.parent / path if path else page
        assert target.exists(), f"{page}: {path}"
        assert not anchor or anchor in anchors(target.read_text()), f"{page}: {path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page):
    """Each command exists, and takes the settings that it is given."""
    found = commands(page.read_text())
    print(len(found))
    bad = {" ".join(words): wrong(words) for words in found if wrong(words)}
    assert not bad


def test_the_workflow_runs_commands_that_exist():
    text = (ROOT / ".github/workflows/test.yml").read_text()
    found = [line.split() for line in re.findall(r"run: make (.*)", text)]
    assert ["test-fast"] in found and not [words for words in found if wrong(words)]


def test_the_cover_letter_lists_each_patch_once():
    text = (SERIES.patches / "cover-letter.txt").read_text()
    section = text.partition("\nPatches\n=======\n\n")[2].partition("\n\n")[0]
    listed = re.findall(r"^ {1,2}(\d+)(?: - +(\d+))? ", section, re.MULTILINE)
    numbers = [number for first, last in listed for number in range(int(first), int(last or first) + 1)]
    assert numbers == list(range(1, len(patches.listed(SERIES)) + 1))


def test_the_front_page_is_short_and_has_no_row_without_a_verdict():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 130 and "no verdict" not in text
