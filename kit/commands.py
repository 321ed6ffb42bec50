# SPDX-License-Identifier: GPL-2.0-only
"""The table of commands, commands.txt. Python 3.9 is enough, because bench-host runs on other hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "commands.txt"


@dataclass(frozen=True)
class Command:
    """An entry of the table. module: "" if the Makefile runs the command itself; tiers: of packages.txt;
    settings: the names of those that it takes, besides KIT_BUILD."""

    name: str
    help: str
    module: str = ""
    tiers: tuple = ()
    settings: tuple = ()


def read(text):
    """Parse the text of the table; give {name: Command} in its order."""
    found = {}
    for line in text.splitlines():
        if line.startswith("  "):
            key, *words = line.split()
            found[name][key] = words[0] if key == "module" else tuple(words)
        elif line and line[0] not in "#[":
            name, _, about = line.partition(": ")
            found[name] = {"name": name, "help": about}
    return {name: Command(**fields) for name, fields in found.items()}


COMMANDS = read(TABLE.read_text(encoding="utf-8"))
