# SPDX-License-Identifier: GPL-2.0-only
"""Packages for hosts: configurations that are taken and refused, names, and what is kept of bindeb-pkg."""

import re

import pytest

from here import SERIES
from kit.paths import Series
from kit.process import Error
from kit.stack import patches
from kit.vm import deb, guest, kernel, qemu

# As it is in Debian's kernel packages; linux-config-6.12 has no keys.
THEIRS = """\
# Linux/x86 6.12.117 Kernel Configuration
CONFIG_X86_64=y
CONFIG_LOCALVERSION="+deb12"
CONFIG_HZ_250=y
# CONFIG_SCHED_DEBUG is not set
# CONFIG_DEBUG_INFO_NONE is not set
CONFIG_DEBUG_INFO=y
CONFIG_KEYS=y
CONFIG_CRYPTO=y
CONFIG_CRYPTO_RSA=y
CONFIG_ASYMMETRIC_KEY_TYPE=y
CONFIG_ASYMMETRIC_PUBLIC_KEY_SUBTYPE=y
CONFIG_X509_CERTIFICATE_PARSER=y
CONFIG_SYSTEM_TRUSTED_KEYRING=y
CONFIG_SYSTEM_TRUSTED_KEYS="debian/certs/debian-uefi-certs.pem"
"""


def test_configuration_that_is_not_there(tmp_path):
    for config in ("clout", tmp_path / "none", tmp_path):
        with pytest.raises(Error, match="neither one of cloud, generic nor a .config that can be read"):
            deb.read(SERIES, str(config))


@pytest.mark.parametrize("text, says", [
    ("# Linux/arm64 6.12.1 Kernel Configuration\nCONFIG_ARM64=y\n", ", but of Linux/arm64 6.12.1"),
    ("CONFIG_X86_32=y\n", "64-bit x86 kernel"), ("# CONFIG_X86_64=y\n", "64-bit x86 kernel"), ("", "64-bit x86")])
def test_configuration_of_another_machine(tmp_path, text, says):
    (tmp_path / "config").write_text(text)
    with pytest.raises(Error, match="not the configuration of a 64-bit x86 kernel") as caught:
        deb.read(SERIES, str(tmp_path / "config"))
    print(caught.value)
    assert says in str(caught.value)


def test_other_series_is_refused(toy):
    toy.series = Series("7.3/x", toy.series.root, toy.series.build)
    with pytest.raises(Error, match="SERIES=7.3/x: packages are made of 6.12 only"):
        deb.build(toy.series, "generic")


@pytest.mark.patches
def test_kconfig_takes_our_options(tmp_path):
    source = patches.ensure(SERIES)
    deb.configure(source, tmp_path, THEIRS, "x", tmp_path / "log")
    text = (tmp_path / ".config").read_text()
    assert "CONFIG_HZ_250=y" in text and 'CONFIG_SYSTEM_TRUSTED_KEYS=""' in text
    assert "CONFIG_SCHED_CACHE=y" in text and "CONFIG_DEBUG_INFO=y" not in text
    with pytest.raises(Error) as caught:
        deb.configure(source, tmp_path, THEIRS + "CONFIG_EXPERT=y\n# CONFIG_PROC_FS is not set\n", "x", tmp_path / "log")
    print(caught.value)
    assert str(caught.value).splitlines()[1:] == ["  CONFIG_SCHEDSTATS=y  (it is not set)"]


def test_packages_of_a_build(toy, tmp_path, monkeypatch):
    """Those of image and headers are kept, under names of their own; what would replace a package of the
    distribution is not."""
    patches.tree(toy.series, toy.source)
    monkeypatch.setattr(deb, "configure", lambda *args: None)
    monkeypatch.setattr(kernel, "stack_version", lambda series: "2.31-")
    config = tmp_path / "config"
    config.write_text(THEIRS)
    monkeypatch.setattr(deb, "_debian", lambda flavour, series: THEIRS)

    def make(source, out, what, words, series, log, timeout):
        values = dict(word.split("=", 1) for word in words if "=" in word)
        assert words[-1] == "bindeb-pkg"
        release = "6.12.1" + values["LOCALVERSION"]
        (out / "include/config").mkdir(parents=True)
        (out / "include/config/kernel.release").write_text(release + "\n")
        for name in (f"linux-image-{release}", f"linux-headers-{release}", "linux-libc-dev"):
            (out.parent / f"{name}_{values['KDEB_PKGVERSION']}_amd64.deb").write_text("")
    monkeypatch.setattr(kernel, "make", make)
    tree = toy.git("rev-parse", "HEAD^{tree}")[:12]
    found = {}
    for name in ("cloud", "generic", str(config)):
        built = deb.build(toy.series, name)
        assert len(built) == 2 and all(path.is_file() for path in built)
        found[name] = [path.name for path in built]
    for names in found.values():
        print("\n".join(names))
    assert found["cloud"] == [f"linux-{kind}-6.12.1-cachetopo-cloud-2.31-{tree}_6.12.1-1_amd64.deb"
                              for kind in ("image", "headers")]
    assert found[str(config)][0] == f"linux-image-6.12.1-cachetopo-2.31-{tree}_6.12.1-1_amd64.deb"
    packages = sorted(path.name.partition("_")[0] for path in (toy.series.work / "deb").glob("*.deb"))
    assert len(set(packages)) == 6 and all("-cachetopo-" in name for name in packages)
    # What a package may be called, says the Debian policy.
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name) for name in packages)


def test_boots(tmp_path, monkeypatch, capsys):
    """All boots of deb-test take place, each with its arguments, and one that fails is enough."""
    series = Series("6.12", build=tmp_path)
    asked, good = [], "TAP version 13\n1..1\nok 1 fine\nEND 0\n"

    def root(built, work, series):
        (work / "boot").mkdir()
        for name in ("vmlinuz-1-cachetopo-2", "vmlinuz-3", "initrd.img-1-cachetopo-2"):
            (work / "boot" / name).touch()
        return work / "root.ext2"

    def watch(args, env, where, timeout, follow):
        asked.append((where.name, args[args.index("-append") + 1], args[args.index("-kernel") + 1]))
        text = good.replace("ok 1", bad[where.name] + " 1")
        return guest.Result("", text, 1.0, True, 0, [], [])
    monkeypatch.setattr(deb, "_root", root)
    monkeypatch.setattr(qemu, "find", lambda build: qemu.Qemu(("qemu",), {}))
    monkeypatch.setattr(guest, "watch", watch)
    for bad, status in (({"locked": "ok", "boot": "ok"}, 0), ({"locked": "not ok", "boot": "ok"}, 1),
                        ({"locked": "ok", "boot": "not ok"}, 1)):
        assert deb.try_out(series, []) == status
        print(capsys.readouterr().out)
    (locked, arguments, image), (boot, plain, _) = asked[:2]
    assert (locked, boot) == ("locked", "boot") and image.endswith("/vmlinuz-1-cachetopo-2")
    assert arguments == plain + " lockdown=integrity sched_features=TTWU_QUEUE_L2,NONSENSE"
