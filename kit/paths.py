# SPDX-License-Identifier: GPL-2.0-only
"""Where everything lives. Outputs are all below BUILD, which KIT_BUILD moves elsewhere."""

import os
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("KIT_BUILD") or ROOT / "build").resolve()
SERIES = "6.12"
# What the stack is compared with.
MAINLINE = "7.3"

CONFIGS = ROOT / "configs"
MACHINES = ROOT / "machines"
# Machines for the simulation only, and what caches cost.
SIMULATED = MACHINES / "simulated"
CACHES = MACHINES / "caches"
GUEST = ROOT / "guest"

BUILDS = ("stack", "base", "debug", "kasan")
# Mainline with its own cache-aware scheduler, and without it.
MAINLINE_BUILDS = (MAINLINE, f"{MAINLINE}-nocache")


@dataclass(frozen=True)
class Layout:
    """The directories of one stack; the tests make toy ones of their own."""

    build: Path = BUILD
    patches: Path = ROOT / "patches" / SERIES

    @property
    def pin(self) -> Path:
        """The file that pins the base: Debian version and SHA-256."""
        return self.patches / "base.toml"

    @property
    def series(self) -> Path:
        """The file that gives the order of the patches."""
        return self.patches / "series"

    @property
    def downloads(self) -> Path:
        """Where the base's .deb is kept."""
        return self.build / "base"

    @property
    def work(self) -> Path:
        """The directory of this series' trees and builds."""
        return self.build / SERIES

    @property
    def linux(self) -> Path:
        """The git tree of the stack: tag `base`, branch `stack`."""
        return self.work / "linux"

    @property
    def linux_base(self) -> Path:
        """The base without the stack, a worktree of `linux`."""
        return self.work / "linux-base"

    def source(self, build: str) -> Path:
        """The git tree that a BUILD of this series is made from."""
        return self.linux_base if build == "base" else self.linux

    def out(self, build: str) -> Path:
        """The O= directory of a BUILD."""
        return (self.build / MAINLINE if build in MAINLINE_BUILDS else self.work) / build


LAYOUT = Layout()
