# SPDX-License-Identifier: GPL-2.0-only
"""Packages of other Debian releases, fetched with lists and caches of apt's own below a directory:
the system's sources, lists and packages stay as they are."""

import os
import shutil

from kit.process import Error, sh

SECONDS = 1800
# What the name of a release's suite of security updates, and of their archive, ends in.
SECURITY = "-security"


def here():
    """Whether the system has apt."""
    return bool(shutil.which("apt-get"))


def archive():
    """Give (URI of the Debian archive this machine uses, codename of its release); Error if there
    is none."""
    if not here():
        raise Error("this is not Debian")
    done = sh(["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)",
               "Created-By: Packages", "Origin: Debian", "Component: main"], capture=True,
              timeout=60)
    for line in done.out.splitlines():
        codename, uri = line.split(" ", 1)
        # The release itself, not its -updates or -security.
        if "-" not in codename:
            return uri, codename
    raise Error("apt knows no Debian archive to take it from (has apt-get update been run?)")


class System:
    """apt with the system's own sources; `work` is the directory to download into, emptied. Every method raises Error
    with what apt said."""

    def __init__(self, work):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        self.work, self.log = work, work / "log"
        # apt's own user may not be able to write to this directory, as below a home directory.
        self.options = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []

    def versions(self, package):
        """Give the versions of a package that there are, newest first."""
        out = sh(["apt-cache", *self.options, "madison", package], capture=True).out
        rows = [line.split("|") for line in out.splitlines()]
        return list(dict.fromkeys(row[1].strip() for row in rows if "Sources" not in row[2]))

    def download(self, package):
        """Fetch one package (NAME or NAME=VERSION) into `work`; give its path."""
        before = set(self.work.glob("*.deb"))
        sh(["apt-get", "-q", *self.options, "download", package], cwd=self.work, log=self.log,
           timeout=SECONDS)
        return (set(self.work.glob("*.deb")) - before).pop()


class Apt(System):
    """apt with the main component of some suites as its only source, and its state in `work`,
    which is emptied."""

    def __init__(self, work, uri, suites):
        super().__init__(work)
        (work / "lists").mkdir()
        (work / "cache/archives").mkdir(parents=True)
        (work / "sources.list").write_text("".join(
            f"deb {uri.rstrip('/')}{SECURITY if suite.endswith(SECURITY) else ''} {suite} main\n"
            for suite in suites))
        self.options += [option for setting in (
            f"Dir::Etc::sourcelist={work}/sources.list", "Dir::Etc::sourceparts=-",
            f"Dir::State::lists={work}/lists", f"Dir::Cache={work}/cache", "Debug::NoLocking=1")
            for option in ("-o", setting)]
        sh(["apt-get", "-q", *self.options, "update"], log=self.log, timeout=SECONDS)

    def unpack(self, packages, suite, directory):
        """Unpack packages into a directory, with what they need and is not installed on the system.

        packages: names, of which the newest version in a suite is taken, or paths of .deb files.
        """
        sh(["apt-get", "-q", "-y", *self.options, "--download-only", "--no-install-recommends",
            "-t", suite, "install", *packages], log=self.log, timeout=SECONDS)
        files = [package for package in packages if str(package).endswith(".deb")]
        for deb in [*sorted((self.work / "cache/archives").glob("*.deb")), *files]:
            sh(["dpkg", "-x", deb, directory], log=self.log, timeout=SECONDS)
