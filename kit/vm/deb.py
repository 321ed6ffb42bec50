# SPDX-License-Identifier: GPL-2.0-only
"""make deb: Debian packages of the patched kernel for a host, and make deb-test, which tries them.

The kernel's own `make bindeb-pkg` makes the packages; their maintainer scripts run the hooks that those of
the distribution's kernels run. A package's name is that of the kernel: linux-image-6.12.118-cachetopo-...
No package of a distribution has such a name, so apt never takes one for a version of the other.
"""

import lzma
import re
import shutil
import time
from pathlib import Path

from kit import apt, pinned
from kit.paths import CONFIGS, DEFAULT, GUEST, ROOT
from kit.process import Error, lock, say, sh
from kit.stack import base, patches
from kit.vm import guest, initramfs, kernel, machine, qemu

FRAGMENT = CONFIGS / "deb.config"
# CONFIG=, and Debian's name of that flavour.
FLAVOURS = {"cloud": "cloud-amd64", "generic": "amd64"}
REVISION = "1"
HOURS = 12
# The build profile of bindeb-pkg without a package of debug information, for a FRAGMENT that does not switch
# that off.
NO_DEBUG_PACKAGE = "pkg.linux-upstream.nokerneldbg"

# The Debian of make deb-test: what a host has for its kernels. objtool, in the headers, needs libelf1.
ROOT_PACKAGES = "systemd-sysv udev initramfs-tools zstd dkms libelf1 grub2-common"
ROOT_MINUTES = 60
BOOT_MINUTES = 60
TEST_MACHINE = "two-ccx"
# The boots of make deb-test, and their further kernel arguments. The last one removes the packages.
BOOTS = {"locked": ["lockdown=integrity", "sched_features=TTWU_QUEUE_L2,NONSENSE"], "boot": []}


def command(settings) -> int:
    """make deb and make deb-test; the exit status."""
    built = build(settings.series, settings["CONFIG"])
    if settings.command == "deb-test":
        return try_out(settings.series, built)
    say("\nInstall the packages, after a look at docs/hosts.md about GRUB's default:\n\n"
        "    sudo dpkg -i " + " \\\n        ".join(str(path) for path in built))
    return 0


def build(series, config) -> list[Path]:
    """Build the packages for CONFIG=`config`; the paths of image and headers.

    Error for a configuration that cannot be used (see read() and configure()), for another series than the
    default one, and for a failed build.
    """
    if series.name != DEFAULT:
        raise Error(f"SERIES={series.name}: packages are made of {DEFAULT} only")
    text = read(series, config)
    source = patches.ensure(series)
    what = config if config in FLAVOURS else "file"
    work = series.work / "deb"
    out, log = work / what, work / f"{what}.log"
    # bindeb-pkg writes the packages of all configurations beside their O= directories.
    with lock(series.work / "deb.lock"):
        out.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        started = time.monotonic()
        say(f"packages {what}: building (log: {log})")
        configure(source, out, text, config, log)
        kernel.make(source, out, f"packages {what}",
                    [f"LOCALVERSION={local_version(what, source, series)}", f"KDEB_PKGVERSION={version(source, series)}",
                     "KDEB_CHANGELOG_DIST=unstable", f"DPKG_FLAGS=-P{NO_DEBUG_PACKAGE}", "bindeb-pkg"],
                    series, log, HOURS * 3600)
        # It would replace the distribution's, and programs do not need this kernel's.
        for path in work.glob("linux-libc-dev_*.deb"):
            path.unlink()
    release = (out / "include/config/kernel.release").read_text().strip()
    say(f"packages {what}: {release} in {(time.monotonic() - started) / 60:.0f} minutes")
    return [work / f"linux-{kind}-{release}_{version(source, series)}_amd64.deb" for kind in ("image", "headers")]


def local_version(what, source, series) -> str:
    """What `uname -r` and the packages' names have behind the kernel's version."""
    flavour = "" if what == "file" else f"{what}-"
    return f"-cachetopo-{flavour}{kernel.stack_version(series)}{kernel.tree_name(source)}"


def version(source, series) -> str:
    """The version of the packages. It is the same for each build of a tree, so that `dpkg -i` replaces an
    earlier build of it."""
    return f"{base.version_of(source, source, series)}-{REVISION}"


def read(series, config) -> str:
    """The text of the configuration that CONFIG=`config` names: Debian's of the pinned version, or a file.

    Error if there is no such file, and if it is not the configuration of a 64-bit x86 kernel.
    """
    if config in FLAVOURS:
        text = _debian(FLAVOURS[config], series)
    else:
        try:
            text = Path(config).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Error(f"CONFIG={config}: neither one of {', '.join(FLAVOURS)} nor a .config that can be read"
                        f" ({error})") from error
    if "CONFIG_X86_64=y" not in text.splitlines():
        head = re.search(r"^# (Linux/.*) Kernel Configuration", text, re.MULTILINE)
        raise Error(f"CONFIG={config}: not the configuration of a 64-bit x86 kernel"
                    + (f", but of {head[1]}" if head else ""))
    return text


def _debian(flavour, series):
    """The text of Debian's configuration of a flavour, from the package that belongs to the pinned source."""
    pin = base.pin(series)
    package = f"linux-config-{series.base}"
    path = series.downloads / f"{package}_{pin.version}_amd64.deb"
    with lock(series.downloads / "config.lock"):
        pinned.fetch(pinned.Deb(package, pin.version, "", pin.suite), path,
                     "Way out: CONFIG=<file> takes any .config, such as /boot/config-$(uname -r)")
    directory = series.downloads / f"{package}_{pin.version}"
    sh(["dpkg-deb", "-x", path, directory], capture=True)
    file = directory / f"usr/src/{package}/config.amd64_none_{flavour}.xz"
    return lzma.decompress(file.read_bytes()).decode()


def configure(source, out, text, config, log):
    """Write out/.config: `text`, what CONFIG=`config` names, with the lines of FRAGMENT in place of its own.

    Error with the lines that the kernel's Kconfig does not take, because what they depend on is off.
    """
    ours = kernel.requested([FRAGMENT])
    names = {re.search(r"CONFIG_\w+", line)[0] for line in ours}
    theirs = [line for line in text.splitlines()
              if not (kernel.KCONFIG.fullmatch(line) and re.search(r"CONFIG_\w+", line)[0] in names)]
    # These name files of certificates that only the distribution's builds have.
    theirs = [re.sub(r"^(CONFIG_SYSTEM_(?:TRUSTED|REVOCATION)_KEYS)=.*", r'\1=""', line) for line in theirs]
    (out / ".config").write_text("\n".join([*theirs, *ours]) + "\n")
    sh(["make", "-s", "-C", source, f"O={out}", "ARCH=x86_64", *kernel.compiler(), "olddefconfig"], log=log,
       timeout=600)
    wrong = kernel.dropped(ours, (out / ".config").read_text())
    if wrong:
        raise Error("\n  ".join([f"CONFIG={config} lacks what these lines of {FRAGMENT.name} need:", *wrong]))


def try_out(series, built) -> int:
    """Install the packages `built` in a Debian, beside a kernel of its own, boot that in each of BOOTS, and have
    guest/debian/ check it and remove the packages; the exit status. Error if the installation fails."""
    work = series.work / "deb" / "test"
    m = machine.load(TEST_MACHINE)
    failed = False
    with lock(series.work / "deb-test.lock"):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        root = _root(built, work, series)
        [image], [initrd] = (list((work / "boot").glob(f"{name}-*cachetopo*")) for name in ("vmlinuz", "initrd.img"))
        program = qemu.find(series.build)
        drive = ["-drive", f"file={root},format=raw,if=virtio"]
        for name, further in BOOTS.items():
            args = guest.command_line(
                program, [*m.qemu_args(), "-accel", "tcg", "-icount", guest.CLOCK, *drive], image, initrd,
                [*guest.KERNEL_ARGS, *guest.CLOCK_KERNEL_ARGS, *m.kernel_args(), "root=/dev/vda", "rw", *further])
            say(f"booting {' '.join([image.name, *further])} on {m.name} (console: {work}/{name}.console)")
            result = guest.watch(args, program.env, work / name, BOOT_MINUTES * 60, follow=say)
            failed |= bool(guest.conclude(f"deb-test, {name}", result))
    return 1 if failed else 0


def _root(built, work, series):
    """Make the disk of a minimal Debian with the packages `built`, and a copy of its /boot; the disk's path."""
    uri, release = apt.archive()
    sources = [f"deb {uri} {release} main", f"deb {uri.rstrip('/')}-security {release}-security main"]
    log, root = work / "root.log", work / "root.ext2"
    say(f"installing Debian {release} and the packages in {root} (log: {log})")
    here = GUEST / "debian"
    # Its mounts of /proc, /sys and /dev must not outlive it, if it is killed: the next run empties `work`.
    sh(["unshare", "--mount", "mmdebstrap", "--variant=apt", "--format=ext2",
        f"--include={ROOT_PACKAGES} linux-image-cloud-amd64",
        '--customize-hook=mkdir "$1/packages"',
        f"--customize-hook=copy-in {' '.join(str(path) for path in built)} {here}/install.sh {ROOT}/tools /packages",
        f"--customize-hook=copy-in {initramfs.install_selftests(kernel.named(series, 'stack'), work)} /",
        f"--customize-hook=copy-in {here}/hello-1.0 /usr/src",
        f"--customize-hook=copy-in {here}/deb-test.sh /root",
        f"--customize-hook=copy-in {here}/deb-test.service /etc/systemd/system",
        '--customize-hook=chroot "$1" /packages/install.sh',
        f"--customize-hook=sync-out /boot {work}/boot",
        release, root, *sources], log=log, timeout=ROOT_MINUTES * 60, env={"TMPDIR": work})
    return root
