# SPDX-License-Identifier: GPL-2.0-only
"""make bundle: the series in one tarball, for people who have neither this repository nor its tools.

It has the patches for quilt, the same as one mailbox for git am and as one diff for patch, the tools for
hosts, and checksums.
"""

import hashlib
import shutil
from pathlib import Path

from kit.paths import ROOT
from kit.process import Error, git, lock, say, sh
from kit.stack import base, patches

# Where a file of the repository is in the tarball.
COPIES = {"LICENSE": "LICENSE", "tools": "tools"}
README = """\
{title}

The series for {source}, as of git tree {tree}. cover-letter.txt says what it is. Each of these three
ways gives the same source; DIR is the directory of this file.

In a directory with a source of Linux {base}.y that the patches apply to:

    patch -p1 < DIR/all.diff                            # without history
    QUILT_PATCHES=DIR/patches quilt push -a             # each patch can be popped again
    git am DIR/all.mbox                                 # a git tree: one commit for each patch

    sha256sum -c SHA256SUMS                             # here: checks the files

The .config of the result needs CONFIG_SCHED_CACHE=y, and CONFIG_SCHED_DEBUG=y for its switches.
tools/llcstat shows what the patched kernel does. The licence of all files is GPL-2.0-only.
"""


def write(series, directory=None) -> Path:
    """Write the tarball of a series to a directory (default: bundle/ beside its tree), and a file with
    its SHA-256; the tarball. Error if the tree is not the patches on the pinned base."""
    linux = patches.tree(series)
    have, pinned = base.imported(series), base.pin(series)
    if have.name != pinned.name:
        raise Error(f"the tree is on {have.name}, and the patches are for {pinned.name}: make tree"
                    " LINUX=debian")
    directory = directory or series.work / "bundle"
    with lock(series.work / "bundle.lock"):
        tree = git(linux, "rev-parse", "stack^{tree}").out.strip()[:12]
        version = base.version_of(linux, linux, series)
        name = f"cachetopo-{version}-{tree}"
        shutil.rmtree(directory / name, ignore_errors=True)
        (directory / name).mkdir(parents=True)
        fill(directory / name, series, linux, have.name, tree)
        seconds = int(git(linux, "log", "-1", "--format=%ct", "stack").out)
        tarball = pack(directory / name, seconds)
    digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
    tarball.with_name(tarball.name + ".sha256").write_text(f"{digest}  {tarball.name}\n")
    return tarball


def fill(top, series, linux, source, tree):
    """Write the files of the tarball below the directory `top`."""
    names = patches.listed(series)
    for name in ("series", *names):
        _copy(series.patches / name, top / "patches" / name)
    cover = series.patches / "cover-letter.txt"
    if cover.exists():
        _copy(cover, top / cover.name)
    for here, there in COPIES.items():
        _copy(ROOT / here, top / there)
    (top / "all.mbox").write_bytes(b"".join((series.patches / name).read_bytes() for name in names))
    with open(top / "all.diff", "wb") as file:
        # Blob ids in full: the same file wherever it is made.
        diff = git(linux, "diff", "--full-index", "--no-renames", "--diff-algorithm=myers", "base", "stack")
        file.write(diff.out.encode())
    words = {"title": f"{_title(cover, series)}: {len(names)} patches for Linux {series.base}",
             "source": source, "tree": tree, "base": series.base}
    (top / "README").write_text(README.format(**words))
    files = sorted(path for path in top.rglob("*") if path.is_file())
    (top / "SHA256SUMS").write_text("".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(top)}\n" for path in files))


def _title(cover, series) -> str:
    """The subject of the series' cover letter, or its name if it has none."""
    if not cover.exists():
        return f"Series {series.name}"
    return cover.read_text().partition("\n")[0].removeprefix("Subject: ")


def pack(top, seconds) -> Path:
    """Write a directory to a .tar.xz beside it, the same bytes for the same files; the tarball. seconds:
    the time that all its files get."""
    tarball = top.with_name(top.name + ".tar.xz")
    sh(["tar", "--create", "--sort=name", f"--mtime=@{seconds}", "--owner=root:0", "--group=root:0", "--mode=u+w,go-w,a+rX",
        "--use-compress-program=xz -T1", "-f", tarball, "-C", top.parent, top.name], capture=True)
    return tarball


def _copy(here, there):
    """Copy a file, or a directory without what editors and python leave in it."""
    there.parent.mkdir(parents=True, exist_ok=True)
    if here.is_dir():
        shutil.copytree(here, there, ignore=shutil.ignore_patterns("*~", ".*", "__pycache__"))
    else:
        shutil.copy(here, there)


def command(settings) -> int:
    """kit bundle: write the tarball, print where it is and how large."""
    tarball = write(settings.series)
    say(f"{tarball}: {tarball.stat().st_size // 1024} KiB")
    return 0
