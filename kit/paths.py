# SPDX-License-Identifier: GPL-2.0-only
"""The directories of the repository and of its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


# The name of the series for hosts.
DEFAULT = "6.12"
ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "patches"
RESULTS = ROOT / "results"
# Diffs for kernels that only tests boot. They are in no series; its file `series` says what each is for.
TEST_ONLY = PATCHES / "6.12/test-only"

# The version of the stack.
VERSION = ROOT / "VERSION"
CONFIGS = ROOT / "configs"
MACHINES = ROOT / "machines"
# Machines that only the simulation uses, and the files with the costs of their caches.
SIMULATED = MACHINES / "simulated"
CACHES = MACHINES / "caches"
GUEST = ROOT / "guest"


@dataclass(frozen=True)
class Series:
    """A series of patches, the base it applies to, and the directories made of both.

    name: the series' directory below `root`; its first part is the base, "6.12" or "7.3". A base
    without a file `series` is a series without patches. root, build: the tests make toy ones. given: what
    LINUX= names as the source of its base. tree_of: the series that it shares the tree and the builds of.
    """

    name: str
    root: Path = PATCHES
    build: Path = ROOT / "build"
    given: str = ""
    tree_of: str = ""

    def other(self, name) -> Series:
        """The series of a name beside this one. LINUX= is about this one only."""
        return self if name == self.name else Series(name, self.root, self.build)

    @property
    def base(self) -> str:
        """The kernel version that the series applies to, such as "6.12"."""
        return self.name.partition("/")[0]

    @property
    def patches(self) -> Path:
        """The directory of the patch files."""
        return self.root / self.name

    @property
    def order(self) -> Path:
        """The file with the order of the patches."""
        return self.patches / "series"

    @property
    def pin(self) -> Path:
        """The file that pins the base, shared by all series on it."""
        return self.root / self.base / "base.toml"

    def results(self, machine) -> str:
        """The directory of the results on a machine, below results/. Another series than the default
        one has a directory of its own, so that no series overwrites the results of another."""
        if self.name == DEFAULT:
            return machine
        return f"{machine}-{self.name.replace('/', '-')}"

    @property
    def setting(self) -> str:
        """What selects the series on the command line: "" for the default one, else " SERIES=..."."""
        return "" if self.name == DEFAULT else f" SERIES={self.name}"

    @property
    def downloads(self) -> Path:
        """The directory with the base's .deb."""
        return self.build / "base"

    @property
    def work(self) -> Path:
        """The directory of this series' trees and builds."""
        return self.build / (self.tree_of or self.name).replace("/", "-")

    @property
    def linux(self) -> Path:
        """The git tree of the series: tag `base`, branch `stack`."""
        return self.work / "linux"

    @property
    def linux_base(self) -> Path:
        """The base without the patches, a worktree of `linux`."""
        return self.work / "linux-base"
