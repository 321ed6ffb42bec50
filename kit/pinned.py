# SPDX-License-Identifier: GPL-2.0-only
"""Debian packages pinned by version and SHA-256: from the archive, and from elsewhere once that has
dropped them. What a newer version in the archive is like makes no difference."""

import hashlib
import http.client
import os
import shutil
import urllib.request
from dataclasses import dataclass

from kit import apt
from kit.process import Error, say

# Seconds without a byte after which a server counts as not reachable.
SILENCE = 30


@dataclass(frozen=True)
class Deb:
    """A package and its version, the SHA-256 of its .deb ("": not pinned), the suite of the archive
    that has or had it ("": one of the system's), and URLs of the same file elsewhere."""

    package: str
    version: str
    sha256: str = ""
    suite: str = ""
    urls: tuple = ()

    def __str__(self):
        return f"{self.package} {self.version}"


def sha256(path) -> str:
    """The SHA-256 of a file, in hex."""
    return _digest(path, "sha256")


def snapshot(path) -> str:
    """The URL that Debian's snapshot archive, which keeps every version, has for a .deb."""
    return f"https://snapshot.debian.org/file/{_digest(path, 'sha1')}"


def _digest(path, kind):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def fetch(deb, path, way_out, archive=None):
    """Have a Deb as the file `path`; a file that is there is checked, too.

    Places are tried in order: the archive, then the URLs. archive: an apt.Apt to use in place of
    the system's and one for the Deb's suite. Error if no place has the pinned file, with what each
    said and the sentence `way_out`. A wrong file is never left.
    """
    if path.exists():
        wrong = _wrong(deb, path)
        if wrong:
            path.unlink()
            raise Error(f"{path} was removed: {wrong}")
        return
    work = path.parent / f"part-{path.name}"
    said = []
    for place, download in _places(deb, work, archive):
        say(f"fetching {deb} from {place}")
        try:
            file = download()
            wrong = _wrong(deb, file)
            if wrong:
                raise Error(wrong)
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, path)
            return
        except Error as error:
            # Of what a program said, the last line; the log that it is in is removed.
            lines = [line for line in str(error).splitlines() if not line.startswith("(all of it")]
            said.append(f"{place}: " + lines[-1].strip())
        finally:
            shutil.rmtree(work, ignore_errors=True)
    raise Error("\n".join([f"{deb} cannot be had from anywhere:", *("  " + line for line in said),
                           way_out, f"With the file itself from elsewhere: put it at {path}"]))


def _places(deb, work, archive):
    """Pairs of a place and a function that downloads `deb` from there."""
    name = f"{deb.package}={deb.version}"
    if archive:
        yield "the archive", lambda: archive.download(name)
    elif apt.here():
        yield "the system's archive", lambda: apt.System(work).download(name)
        if deb.suite:
            yield deb.suite, lambda: apt.Apt(work, apt.archive()[0],
                                         (deb.suite,)).download(name)
    for url in deb.urls:
        yield url, lambda url=url: _download(url, work)


def _download(url, work):
    """Download a URL (https:, http: or file:) into the directory `work`; give the file's path."""
    work.mkdir(parents=True, exist_ok=True)
    path = work / "file"
    try:
        with urllib.request.urlopen(url, timeout=SILENCE) as answer, open(path, "wb") as file:
            shutil.copyfileobj(answer, file)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Error(str(error)) from error
    return path


def _wrong(deb, path):
    """What is wrong with a downloaded file; "" if nothing."""
    got = sha256(path)
    if deb.sha256 and got != deb.sha256:
        return f"its SHA-256 is {got}, pinned is {deb.sha256}"
    return ""
