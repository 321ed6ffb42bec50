# SPDX-License-Identifier: GPL-2.0-only
"""Pinned packages: from the archive, from elsewhere, and never another file than the pinned one."""

import hashlib
import http.server
import threading

import pytest

from kit import apt, pinned
from kit.process import Error

CONTENT = b"the package"
WAY_OUT = "Way out: do something else"


@pytest.fixture
def archive(monkeypatch):
    """The files that apt gives, {(suite, or "" for the system's sources, NAME=VERSION): bytes}."""
    files = {}

    class Fake:
        def __init__(self, work, uri="", suites=("",)):
            work.mkdir(parents=True)
            self.work, self.suite = work, suites[0]

        def download(self, package):
            if (self.suite, package) not in files:
                raise Error(f"apt says\n  E: Version of {package} was not found\n(all of it in x)")
            path = self.work / "x.deb"
            path.write_bytes(files[self.suite, package])
            return path

    monkeypatch.setattr(apt, "here", lambda: True)
    monkeypatch.setattr(apt, "archive", lambda: ("http://archive.example/debian", "bookworm"))
    monkeypatch.setattr(apt, "System", Fake)
    monkeypatch.setattr(apt, "Apt", Fake)
    return files


@pytest.fixture
def server(tmp_path):
    """A web server for the files in tmp_path/web, and its address."""
    (tmp_path / "web").mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=tmp_path / "web")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        thread.join()


def deb(*urls, content=CONTENT):
    return pinned.Deb("p", "1-1", hashlib.sha256(content).hexdigest(), "suite", urls)


@pytest.mark.parametrize("suite", ["", "suite"])
def test_archive_has_it(archive, tmp_path, suite):
    archive[suite, "p=1-1"] = CONTENT
    archive[suite, "p=2-1"] = b"newer"
    path = tmp_path / "down/p.deb"
    pinned.fetch(deb("http://127.0.0.1:1/unused"), path, WAY_OUT)
    assert path.read_bytes() == CONTENT
    archive.clear()
    pinned.fetch(deb(), path, WAY_OUT)
    assert [file.name for file in path.parent.iterdir()] == ["p.deb"]


def test_archive_dropped_it(archive, server, tmp_path):
    """The URLs are tried in order; a server without it and a wrong file are passed over."""
    archive["suite", "p=2-1"] = b"newer"
    (tmp_path / "web/wrong").write_bytes(b"something else")
    (tmp_path / "web/right").write_bytes(CONTENT)
    path = tmp_path / "down/p.deb"
    pinned.fetch(deb(f"{server}/none", f"{server}/wrong", f"{server}/right"), path, WAY_OUT)
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["p.deb"]


def test_system_without_apt(monkeypatch, tmp_path):
    monkeypatch.setattr(apt, "here", lambda: False)
    (tmp_path / "file").write_bytes(CONTENT)
    pinned.fetch(deb((tmp_path / "file").as_uri()), tmp_path / "p.deb", WAY_OUT)
    assert (tmp_path / "p.deb").read_bytes() == CONTENT


def test_nobody_has_it(archive, server, tmp_path):
    (tmp_path / "web/wrong").write_bytes(b"something else")
    urls = f"{server}/none", f"{server}/wrong", "http://127.0.0.1:1/refused", "no-scheme"
    with pytest.raises(Error) as caught:
        pinned.fetch(deb(*urls), tmp_path / "down/p.deb", WAY_OUT)
    text = str(caught.value)
    print(text)
    for words in ("p 1-1 cannot be had", "the system's archive: E: Version of p=1-1 was not found",
                  "suite: E: Version", f"{urls[0]}: HTTP Error 404", f"{urls[1]}: its SHA-256 is",
                  "Connection refused", "unknown url type", WAY_OUT,
                  str(tmp_path / "down/p.deb")):
        assert words in text
    assert not list(tmp_path.glob("down/*"))


def test_file_that_changed_is_removed(archive, tmp_path):
    archive["", "p=1-1"] = CONTENT
    path = tmp_path / "p.deb"
    path.write_bytes(b"something else")
    with pytest.raises(Error, match="was removed: its SHA-256 is .*, pinned is"):
        pinned.fetch(deb(), path, WAY_OUT)
    assert not path.exists()


def test_interrupted_download_leaves_nothing(archive, tmp_path, monkeypatch):
    def interrupt(*args):
        (tmp_path / "part-p.deb/file").write_bytes(b"half")
        raise KeyboardInterrupt
    monkeypatch.setattr(pinned.shutil, "copyfileobj", interrupt)
    (tmp_path / "file").write_bytes(CONTENT)
    with pytest.raises(KeyboardInterrupt):
        pinned.fetch(deb((tmp_path / "file").as_uri()), tmp_path / "p.deb", WAY_OUT)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_security_updates_are_in_an_archive_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(apt, "sh", lambda *args, **options: None)
    work = apt.Apt(tmp_path / "apt", "http://archive.example/debian/", ("a", "a-security")).work
    assert (work / "sources.list").read_text().splitlines() == [
        "deb http://archive.example/debian a main",
        "deb http://archive.example/debian-security a-security main"]
