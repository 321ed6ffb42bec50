# SPDX-License-Identifier: GPL-2.0-only
"""Mainline 7.3, to compare with: Debian's source of it, unpacked as it is."""

import shutil

from kit import apt, base
from kit.paths import LAYOUT, MAINLINE
from kit.run import Error, lock, say, sh, warn

PACKAGE = f"linux-source-{MAINLINE}"
SUITE = "trixie-backports"
# What the committed results were measured on.
VERSION = "7.3.4-1~bpo13+1"
SHA256 = "703e369ddd4cce971452f5a593ee55df3a5c10c83caf0fa0df039633ed181ee3"


def ensure(layout=LAYOUT):
    """Have the source of VERSION unpacked; give its directory. A later one is taken, with a warning,
    if the archive no longer has it."""
    work = layout.build / MAINLINE
    source = work / "linux"
    with lock(work / "source.lock"):
        # Of which VERSION this is, or is in place.
        wanted = source / "kit-version"
        if not wanted.exists() or wanted.read_text() != VERSION:
            part = work / "part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            deb = _fetch(work / "apt")
            say(f"unpacking {deb.name}")
            base.unpack(base.Source(deb.name, deb), part)
            (part / "debian-version").write_text(_version(deb) + "\n")
            (part / wanted.name).write_text(VERSION)
            shutil.rmtree(source, ignore_errors=True)
            part.rename(source)
            shutil.rmtree(work / "apt")
    return source


def version(layout=LAYOUT):
    """Give the Debian version of the source that is unpacked."""
    return (ensure(layout) / "debian-version").read_text().strip()


def _version(deb):
    return sh(["dpkg-deb", "-f", deb, "Version"], capture=True).out.strip()


def _fetch(work):
    """Give the path of the source's .deb, fetched into `work`."""
    try:
        uri, _ = apt.archive()
        say(f"fetching {PACKAGE} from {SUITE} (170 MB)")
        source = apt.Apt(work, uri, (SUITE,))
        versions = source.versions(PACKAGE)
        if not versions:
            raise Error(f"{SUITE} does not have it")
        deb = source.download(f"{PACKAGE}={VERSION if VERSION in versions else versions[0]}")
    except Error as error:
        raise Error(f"no {PACKAGE}: {error}") from error
    if VERSION not in versions:
        warn(f"{SUITE} no longer has {PACKAGE} {VERSION}: taking {versions[0]}, whose checksum is "
             "not pinned (apt checks it against the archive)")
    elif base.sha256(deb) != SHA256:
        raise Error(f"{deb.name}: its SHA-256 is {base.sha256(deb)}, pinned is {SHA256}")
    return deb
