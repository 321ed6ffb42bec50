# SPDX-License-Identifier: GPL-2.0-only
"""The kernel source that the stack applies to: fetched, checked, and imported into git once.

The base commit names its source in its subject, "Linux 6.12.118 (Debian 6.12.118-1)", so
the tree itself says what it was imported from.
"""

import dataclasses
import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from kit import apt, pinned, toml
from kit.process import Error, Progress, git, room, say, sh, warn

DEBIAN = "Debian "
# GB on the disk that the first import takes, and another one: files, git objects, and what was fetched.
SPACE, SPACE_AGAIN = 3.5, 2.5

# Pinned, so that the same source gives the same commit wherever it is imported.
IDENTITY = {f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "base"), ("EMAIL", "base@localhost"),
                                ("DATE", "2026-01-01T00:00:00+0000"))}


@dataclass(frozen=True)
class Source:
    """A kernel source: what the base commit calls it, where it is (None: not fetched yet), the
    SHA-256 it must have ("": any), the suite of the archive that has it ("": one of the system's),
    and URLs of the same file elsewhere."""

    name: str
    path: Path | None = None
    sha256: str = ""
    suite: str = ""
    urls: tuple = ()

    @property
    def version(self):
        """The Debian version, for a source that is Debian's."""
        return self.name.removeprefix(DEBIAN)


def pin(series) -> Source:
    """The pinned source, from base.toml."""
    try:
        values = toml.read(series.pin)
        return Source(DEBIAN + values["version"], None, values["sha256"], values.get("suite", ""),
                      tuple(values.get("urls", ())))
    except (Error, KeyError) as error:
        raise Error(f"{series.pin}: no version and sha256 of the base ({error})") from error


def write_pin(source, series):
    """Make `source`, fetched from Debian, the pinned one."""
    suite = f'suite = "{source.suite}"\n' if source.suite else ""
    series.pin.write_text(
        "# SPDX-License-Identifier: GPL-2.0-only\n"
        f"# The base of the series: Debian's {package(series)}. Written by make refresh.\n"
        f'version = "{source.version}"\nsha256 = "{pinned.sha256(source.path)}"\n{suite}'
        "# The same file, should the archive have dropped it.\n"
        f'urls = ["{pinned.snapshot(source.path)}"]\n')


def package(series) -> str:
    """The name of Debian's package with the source of a series' base."""
    return f"linux-source-{series.base}"


def _archive(series, suite):
    """What gives versions(package) of a suite, or of the system's sources."""
    if not apt.here():
        raise Error(f"no apt here to see what {package(series)} there is: LINUX=<directory or"
                    f" tarball> uses a {series.base} source that you have")
    if not suite:
        return apt.System(series.downloads / "part")
    return apt.Apt(series.downloads / f"apt-{suite}", apt.archive()[0], (suite,))


def offered(series) -> list[str]:
    """The versions of the series' base that the archive offers, newest first."""
    return _archive(series, pin(series).suite).versions(package(series))


def newest(series) -> Source:
    """The newest source of the series' base that the archive offers."""
    versions = offered(series)
    if not versions:
        raise Error(f"the archive offers no {package(series)}: try apt-get update, or LINUX="
                    f"<directory or tarball> for a {series.base} source that you have")
    return Source(DEBIAN + versions[0], suite=pin(series).suite)


def imported(series) -> Source | None:
    """The source that the tree's tag `base` was imported from; None without a tree."""
    if not series.linux.exists():
        return None
    done = git(series.linux, "log", "-1", "--format=%s", "base", check=False)
    match = re.fullmatch(r"Linux \S+ \((.+)\)\n", done.out)
    if not match:
        raise Error(f"{series.linux} has no tag `base` with an imported kernel: move it away")
    return Source(match[1])


def given(linux, series) -> Source:
    """The source that the user names with LINUX=, a directory or a tarball."""
    path = Path(linux).expanduser().absolute()
    if path.is_file():
        return Source(f"{path.name} sha256 {pinned.sha256(path)[:12]}", path)
    if not path.is_dir():
        raise Error(f"LINUX={linux}: no such directory or file")
    version_of(path, f"LINUX={linux}", series)
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


def wanted(series, linux=None) -> Source:
    """The source to build on: LINUX= if given, else what LINUX= gave last, else the pinned one of
    Debian's, which LINUX=debian goes back to."""
    linux = linux or series.given
    if linux and linux != "debian":
        return given(linux, series)
    have = imported(series)
    return have if have and not linux and not have.name.startswith(DEBIAN) else pin(series)


def deb_path(series, source) -> Path:
    """Where the .deb of a Debian source is kept."""
    return series.downloads / f"{package(series)}_{source.version}_all.deb"


def fetch(source, series) -> Source:
    """Have the .deb of a Debian source (150 MB), checked against its SHA-256 if that is pinned."""
    path = deb_path(series, source)
    version = re.match(r"[\d.]+", source.version)[0]
    pinned.fetch(
        pinned.Deb(package(series), source.version, source.sha256, source.suite, source.urls), path,
        f"Way out: LINUX=<directory or tarball> takes a Linux {series.base} source that you have, on"
        f" which the patches are merged;\nthe kernel's own linux-{version}.tar.xz is the nearest")
    return dataclasses.replace(source, path=path)


def version_of(directory, what, series) -> str:
    """The kernel version in a source's Makefile, which must be one of the series."""
    try:
        text = (directory / "Makefile").read_text(errors="replace")
    except OSError:
        text = ""
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL) = (\d+)$", text, re.MULTILINE))
    version = f"{found.get('VERSION')}.{found.get('PATCHLEVEL')}"
    if version != series.base:
        says = f"it is {version}" if found else "it has no Makefile with a VERSION"
        raise Error(f"{what} is not a Linux {series.base} source: {says}")
    return f"{version}.{found.get('SUBLEVEL', '0')}"


def tag(source) -> str:
    """The tag that an imported source keeps, also when it is no longer `base`."""
    return "base-" + re.sub(r"[^A-Za-z0-9.]+", "-", source.name)


def ensure(series, source=None) -> str:
    """Have `source` (default: the wanted one) imported; its commit id.

    Without a tree, makes one with tag `base` and branch `stack` there. With one, adds the commit
    and its own tag to it, and leaves `base` and everybody's branches alone.
    """
    source = source or wanted(series)
    have = imported(series)
    if have and have.name == source.name:
        return git(series.linux, "rev-parse", "base^{commit}").out.strip()
    if have:
        known = git(series.linux, "rev-parse", "-q", "--verify", tag(source) + "^{commit}",
                    check=False)
        if known.status == 0:
            return known.out.strip()
    if not have:
        commit = _adopt(series, source)
        if commit:
            return commit
    room(series.work, SPACE_AGAIN if have else SPACE, f"the tree of {source.name}")
    if source.name.startswith(DEBIAN):
        source = fetch(source, series)
    return _import(series, source, first=have is None)


def unpack(source, directory):
    """Fill the empty `directory` with the files of a Source."""
    if source.path.is_file():
        # The package holds nothing but a tarball of the source.
        deb = 'dpkg-deb --fsys-tarfile "$1" | tar -xO --wildcards "*/linux-source-*.tar.xz" |' \
              ' tar -xvJ --strip-components=1 -C "$2"'
        plain = 'tar -xvf "$1" --strip-components=1 -C "$2"'
        script = deb if source.path.suffix == ".deb" else plain
    elif (source.path / ".git").exists():
        script = 'git -c safe.directory="*" -C "$1" archive HEAD | tar -xv -C "$2"'
    else:
        script = 'tar -c -C "$1" . | tar -xv -C "$2"'
    progress = Progress(f"unpacking {source.name}", r"(?!tar: )(.+)")
    try:
        sh(["bash", "-o", "pipefail", "-c", script, "bash", source.path, directory], progress=progress)
    finally:
        progress.end()
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


def _adopt(series, source) -> str:
    """Make the tree of a series from that of another series which has imported `source`; the commit
    id, "" if there is none. Objects are hard links, so this takes no space but for the files."""
    for other in sorted(series.build.glob(f"{series.base}*/linux")):
        commit = git(other, "rev-parse", "-q", "--verify", tag(source) + "^{commit}",
                     check=False).out.strip()
        if not commit:
            continue
        say(f"taking {source.name} from {other}")
        part = series.work / "linux.part"
        shutil.rmtree(part, ignore_errors=True)
        part.parent.mkdir(parents=True, exist_ok=True)
        git(other, "clone", "-q", "--local", "--no-checkout", "--no-tags", other, part)
        git(part, "remote", "remove", "origin")
        git(part, "config", "core.compression", "0")
        git(part, "config", "gc.auto", "0")
        for name in (tag(source), "base"):
            git(part, "tag", "-f", name, commit)
        git(part, "checkout", "-q", "-f", "-B", "stack", commit)
        part.rename(series.linux)
        return commit
    return ""


def _import(series, source, first) -> str:
    """Unpack `source` beside the tree and commit it; the commit id. Nothing is left of it if that fails."""
    part = series.work / "linux.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    index = series.linux / ".git/import-index"
    try:
        commit = _commit(series, source, part, None if first else index)
        if first:
            part.rename(series.linux)
        return commit
    except Error as error:
        if shutil.disk_usage(series.work).free < 1e6:
            raise Error(f"the disk of {series.work} was full while {source.name} was imported") from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
        index.unlink(missing_ok=True)


def _commit(series, source, part, index) -> str:
    """Unpack `source` to the directory `part` and commit it there, or with an `index` to the tree's
    repository; the commit id."""
    say(f"unpacking {source.name}")
    unpack(source, part)
    subject = f"Linux {version_of(part, source.path, series)} ({source.name})"
    files = sum(len(names) for _, _, names in os.walk(part))
    say(f"importing {subject} into git")
    if not index:
        git(part, "init", "-q", "-b", "stack")
        git(part, "config", "core.compression", "0")
        git(part, "config", "gc.auto", "0")
    store = index.parent if index else part / ".git"
    env = IDENTITY | {"GIT_DIR": store, "GIT_WORK_TREE": part, "GIT_INDEX_FILE": index or store / "index"}
    progress = Progress("importing", r"add '(.+)'", files)
    try:
        # -f, because the kernel's .gitignore hides files that belong to the source.
        git(part, "add", "-A", "-f", "-v", ".", env=env, capture=False, progress=progress)
    finally:
        progress.end()
    tree = git(part, "write-tree", env=env).out.strip()
    commit = git(part, "commit-tree", tree, env=env, input=subject + "\n").out.strip()
    git(part, "tag", "-f", tag(source), commit, env=env)
    if not index:
        git(part, "tag", "base", commit, env=env)
        git(part, "update-ref", "refs/heads/stack", commit, env=env)
    return commit
