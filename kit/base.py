# SPDX-License-Identifier: GPL-2.0-only
"""The kernel source that the stack applies to: fetched, checked, and imported into git once.

The base commit names its source in its subject, "Linux 6.12.117 (Debian 6.12.117-1~deb12u1)", so
the tree itself says what it was imported from.
"""

import hashlib
import os
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from kit import apt
from kit.paths import LAYOUT, SERIES
from kit.run import Error, git, lock, say, sh, warn

PACKAGE = f"linux-source-{SERIES}"
DEBIAN = "Debian "

# Pinned, so that the same source gives the same commit wherever it is imported.
IDENTITY = {f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "base"), ("EMAIL", "base@localhost"),
                                ("DATE", "2026-01-01T00:00:00+0000"))}


@dataclass(frozen=True)
class Source:
    """A kernel source: what the base commit calls it, and where it is (None: not fetched yet)."""

    name: str
    path: Path | None = None
    sha256: str | None = None

    @property
    def version(self):
        """The Debian version, for a source that is Debian's."""
        return self.name.removeprefix(DEBIAN)


def pin(layout=LAYOUT) -> Source:
    """The pinned source, from base.toml."""
    try:
        values = tomllib.loads(layout.pin.read_text())
        return Source(DEBIAN + values["version"], sha256=values["sha256"])
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise Error(f"{layout.pin}: no version and sha256 of the base ({error})") from error


def write_pin(source, layout=LAYOUT):
    """Make `source`, fetched from Debian, the pinned one."""
    layout.pin.write_text(
        "# SPDX-License-Identifier: GPL-2.0-only\n"
        f"# The base of this stack: Debian's {PACKAGE}. Written by make refresh.\n"
        f'version = "{source.version}"\nsha256 = "{sha256(source.path)}"\n')


def sha256(path) -> str:
    """The SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def offered() -> list[str]:
    """The versions of the package that the archive offers, newest first."""
    if not shutil.which("apt-cache"):
        raise Error(f"no apt here to fetch {PACKAGE} with: LINUX=<directory or tarball>"
                    f" uses a {SERIES} source that you have")
    return apt.versions(PACKAGE)


def newest() -> Source:
    """The newest source of the series that the archive offers."""
    versions = offered()
    if not versions:
        raise Error(f"the archive offers no {PACKAGE}: try apt-get update, or LINUX=<directory or"
                    f" tarball> for a {SERIES} source that you have")
    return Source(DEBIAN + versions[0])


def imported(layout=LAYOUT) -> Source | None:
    """The source that the tree's tag `base` was imported from; None without a tree."""
    if not layout.linux.exists():
        return None
    done = git(layout.linux, "log", "-1", "--format=%s", "base", check=False)
    match = re.fullmatch(r"Linux \S+ \((.+)\)\n", done.out)
    if not match:
        raise Error(f"{layout.linux} has no tag `base` with an imported kernel: move it away")
    return Source(match[1])


def given(linux) -> Source:
    """The source that the user names with LINUX=, a directory or a tarball."""
    path = Path(linux).expanduser().absolute()
    if path.is_file():
        return Source(f"{path.name} sha256 {sha256(path)[:12]}", path)
    if not path.is_dir():
        raise Error(f"LINUX={linux}: no such directory or file")
    version_of(path, f"LINUX={linux}")
    if (path / ".git").exists():
        if git(path, "status", "--porcelain", "-uno").out:
            warn(f"LINUX={linux}: its HEAD is taken, without its uncommitted changes")
        return Source("git tree " + git(path, "rev-parse", "HEAD^{tree}").out[:12], path)
    return Source("directory " + _fingerprint(path), path)


def _fingerprint(path) -> str:
    """12 hex digits that change when a file below `path` does, without reading them all."""
    lines = []
    for top, dirs, files in os.walk(path):
        dirs.sort()
        for name in sorted(files):
            stat = os.lstat(os.path.join(top, name))
            lines.append(f"{os.path.relpath(top, path)}/{name} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()[:12]


def wanted(layout=LAYOUT, linux=None) -> Source:
    """The source to build on: LINUX= if given, else what LINUX= gave last, else Debian's, which
    LINUX=debian goes back to.

    That is the pinned version or, if the archive no longer has it, the newest, with a warning.
    """
    linux = linux or os.environ.get("LINUX")
    if linux and linux != "debian":
        return given(linux)
    have, pinned = imported(layout), pin(layout)
    if have and (have.name == pinned.name or not (linux or have.name.startswith(DEBIAN))):
        return have
    if deb_path(layout, pinned).exists() or pinned.version in offered():
        return pinned
    source = newest()
    warn(f"the archive no longer has {PACKAGE} {pinned.version}: taking its newest,"
         f" {source.version}, whose checksum is not pinned (apt checks it against the archive)")
    return source


def deb_path(layout, source) -> Path:
    """Where the .deb of a Debian source is kept."""
    return layout.downloads / f"{PACKAGE}_{source.version}_all.deb"


def fetch(source, layout=LAYOUT) -> Source:
    """Have the .deb of a Debian source, checked against its SHA-256 if that is pinned."""
    path = deb_path(layout, source)
    if not path.exists():
        say(f"fetching {PACKAGE} {source.version} (150 MB)")
        # Apart, because apt-get leaves part of a file under its final name when interrupted.
        part = layout.downloads / "part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        # Apt warns when it cannot drop to its own user, which cannot write to this directory.
        sandbox = ["-o", "APT::Sandbox::User=root"] if os.geteuid() == 0 else []
        sh(["apt-get", "-q", *sandbox, "download", f"{PACKAGE}={source.version}"], cwd=part,
           timeout=1800, capture=True)
        (part / path.name).rename(path)
        part.rmdir()
    if source.sha256 and sha256(path) != source.sha256:
        got = sha256(path)
        path.unlink()
        raise Error(f"{path.name} is not the pinned file, and was removed:\n"
                    f"  its SHA-256 is {got}\n  pinned in base.toml is {source.sha256}")
    return Source(source.name, path, source.sha256)


def version_of(directory, what) -> str:
    """The kernel version in a source's Makefile, which must be one of the series."""
    try:
        text = (directory / "Makefile").read_text(errors="replace")
    except OSError:
        text = ""
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", text, re.MULTILINE))
    series = f"{found.get('VERSION')}.{found.get('PATCHLEVEL')}"
    if series != SERIES:
        says = f"it is {series}" if found else "it has no Makefile with a VERSION"
        raise Error(f"{what} is not a Linux {SERIES} source: {says}")
    return f"{series}.{found.get('SUBLEVEL', '0')}"


def tag(source) -> str:
    """The tag that an imported source keeps, also when it is no longer `base`."""
    return "base-" + re.sub(r"[^A-Za-z0-9.]+", "-", source.name)


def ensure(layout=LAYOUT, source=None) -> str:
    """Have `source` (default: the wanted one) imported; its commit id.

    Without a tree, makes one with tag `base` and branch `stack` there. With one, adds the commit
    and its own tag to it, and leaves `base` and everybody's branches alone.
    """
    source = source or wanted(layout)
    have = imported(layout)
    if have and have.name == source.name:
        return git(layout.linux, "rev-parse", "base^{commit}").out.strip()
    if have:
        known = git(layout.linux, "rev-parse", "-q", "--verify", tag(source) + "^{commit}",
                    check=False)
        if known.status == 0:
            return known.out.strip()
    if source.name.startswith(DEBIAN):
        source = fetch(source, layout)
    return _import(layout, source, first=have is None)


def unpack(source, directory):
    """Fill the empty `directory` with the files of a Source."""
    if source.path.is_file():
        # The package holds nothing but a tarball of the source.
        deb = 'dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards "*/linux-source-*.tar.xz" |' \
              ' tar -xJ --strip-components=1 -C "$2"'
        plain = 'tar -xf "$1" --strip-components=1 -C "$2"'
        script = deb if source.path.suffix == ".deb" else plain
    elif (source.path / ".git").exists():
        script = 'git -c safe.directory="*" -C "$1" archive HEAD | tar -x -C "$2"'
    else:
        script = 'tar -c -C "$1" . | tar -x -C "$2"'
    sh(["bash", "-o", "pipefail", "-c", script, "bash", source.path, directory], capture=True)
    # What somebody built in the directory that LINUX= names would stop every O= build.
    if (directory / ".config").exists() or (directory / "include/generated").exists():
        sh(["make", "-s", "-C", directory, "mrproper"], capture=True)
    _unhide(directory)


def _unhide(directory):
    """Take out of .gitignore what Debian adds for its packaging: it ignores everything, so that
    a new file would be in no `git status` and in no exported patch."""
    ignore = directory / ".gitignore"
    if ignore.exists():
        lines = ignore.read_text().splitlines(keepends=True)
        ignore.write_text("".join(line for line in lines if line not in ("/*\n", "!/debian/\n")))


def _import(layout, source, first) -> str:
    """Unpack `source` beside the tree and commit it; the commit id."""
    part = layout.work / "linux.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    say(f"unpacking {source.name}")
    unpack(source, part)
    subject = f"Linux {version_of(part, source.path)} ({source.name})"
    say(f"importing {subject} into git (about a minute)")

    if first:
        git(part, "init", "-q", "-b", "stack")
        git(part, "config", "core.compression", "0")
        git(part, "config", "gc.auto", "0")
    store = part / ".git" if first else layout.linux / ".git"
    index = store / ("index" if first else "import-index")
    env = IDENTITY | {"GIT_DIR": store, "GIT_WORK_TREE": part, "GIT_INDEX_FILE": index}
    # -f, because the kernel's .gitignore hides files that belong to the source.
    git(part, "add", "-A", "-f", ".", env=env)
    tree = git(part, "write-tree", env=env).out.strip()
    commit = git(part, "commit-tree", tree, env=env, input=subject + "\n").out.strip()
    git(part, "tag", "-f", tag(source), commit, env=env)
    if first:
        git(part, "tag", "base", commit, env=env)
        git(part, "update-ref", "refs/heads/stack", commit, env=env)
        part.rename(layout.linux)
    else:
        index.unlink()
        shutil.rmtree(part)
    return commit


def command(args) -> int:
    """kit base: fetch and import, without the patches."""
    with lock(LAYOUT.work / "tree.lock"):
        commit = ensure()
    say(git(LAYOUT.linux, "log", "-1", "--format=%s: %h", commit).out.strip())
    return 0
