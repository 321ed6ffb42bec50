# SPDX-License-Identifier: GPL-2.0-only
"""The initramfs of a guest: busybox, the programs and jobs of guest/, the series' kernel selftests,
and the files and variables of one run."""

import shlex
import shutil
import stat
from functools import cache
from pathlib import Path

from kit.paths import GUEST
from kit.process import Error, lock, missing, sh
from kit.vm import kernel

# The BUILD of what small() gives.
SMALL = "sim"


def small(series):
    """What has, in place of a Kernel, the initramfs that is the same for all kernels, with what the
    simulation runs."""
    return kernel.Kernel(series, SMALL)


def work_of(which):
    """The directory with what is compiled for the initramfs of a Kernel, or of small()."""
    return which.series.work / "guest" / which.build


def write(name, which, env, files=None):
    """Write the initrd of one run: that of a Kernel, a file of variables, and further files. Return its
    path."""
    lines = [f"export {key}={shlex.quote(str(value))}\n" for key, value in env.items()]
    archive = Archive()
    archive.file("env", "".join(lines).encode())
    files = files or {}
    for directory in sorted({str(above) for there in files for above in Path(there).parents}):
        archive.directory(directory)
    for there, here in files.items():
        archive.file(there, here.read_bytes(), stat.S_IMODE(here.stat().st_mode))
    path = which.series.work / "guest" / "runs" / f"{name}.initrd"
    path.parent.mkdir(parents=True, exist_ok=True)
    # The kernel unpacks concatenated archives one after the other.
    path.write_bytes(base(which) + archive.bytes())
    return path


@cache
def base(which):
    """Make the initramfs of a Kernel: busybox, guest/ and the series' kernel selftests. For small(),
    make the simulation's, without selftests. Return its bytes; made once in a run of python."""
    busybox = shutil.which("busybox")
    if not busybox:
        raise Error(missing("busybox"))
    out = work_of(which)
    out.mkdir(parents=True, exist_ok=True)
    archive = Archive()
    for name in ("bin", "dev", "proc", "sys", "tmp", "jobs"):
        archive.directory(name)
    archive.device("dev/console", 5, 1)
    archive.file("bin/busybox", _static(busybox), 0o755)
    archive.symlink("bin/sh", "busybox")
    archive.file("init", (GUEST / "init").read_bytes(), 0o755)
    archive.file("lib.sh", (GUEST / "lib.sh").read_bytes())
    for job in sorted((GUEST / "jobs").glob("sim.sh" if which.build == SMALL else "*.sh")):
        archive.file(f"jobs/{job.name}", job.read_bytes(), 0o755)
    for source in [GUEST / "workload"] if which.build == SMALL else [
            *sorted(GUEST.glob("*.c")), GUEST / "cases", GUEST / "torture", GUEST / "workload"]:
        archive.file(f"bin/{source.stem}", compiled(source, out).read_bytes(), 0o755)
    if which.build != SMALL and which.patched:
        with lock(out / "lock"):
            _add_tree(archive, "selftests", install_selftests(which, out))
    return archive.bytes()


def _static(busybox):
    data = open(busybox, "rb").read()
    if b"/lib64/ld-linux" in data:
        raise Error(f"{busybox} is not static: the Debian package busybox-static is; make deps"
                    " TIERS=boot installs it")
    return data


def compiled(source, out, headers=None):
    """Compile one program of guest/ for the guest if it changed: a file, or all files of a directory. headers: a
    directory with further headers, or None. Return the program's path."""
    program = out / source.stem
    sources = sorted(source.glob("*.c")) if source.is_dir() else [source]
    newest = max(path.stat().st_mtime for path in [*sources, *GUEST.glob("**/*.h"),
                                                   *(headers.glob("*.h") if headers else ())])
    with lock(out / f"{source.stem}.lock"):
        if not program.exists() or program.stat().st_mtime < newest:
            part = program.with_suffix(".part")
            sh(["gcc", "-O2", "-Wall", "-Wextra", "-static", "-pthread",
                *(["-isystem", headers] if headers else []), "-o", part, *sources, "-lm"],
               timeout=120, capture=True)
            part.replace(program)
    return program


def install_selftests(which, out, targets=("sched",), words=("USERLDFLAGS=-static", "TEST_PROGS=")):
    """Build kernel selftests below `out`, by default those that the series changes; return the directory with them.
    targets: directories of tools/testing/selftests; words: further arguments for make. Mainline's sched names a
    generated program in TEST_PROGS, which cannot be installed with O=."""
    installed = out / "selftests"
    shutil.rmtree(installed, ignore_errors=True)
    log = out / "selftests.log"
    log.unlink(missing_ok=True)
    sh(["make", "-C", kernel.source_dir(which) / "tools/testing/selftests", f"O={out}",
        f"TARGETS={' '.join(targets)}", "FORCE_TARGETS=1", *words, f"INSTALL_PATH={installed}",
        "install"], log=log, timeout=300)
    return installed


def _add_tree(archive, name, path):
    archive.directory(name)
    for entry in sorted(path.iterdir()):
        if entry.is_dir():
            _add_tree(archive, f"{name}/{entry.name}", entry)
        else:
            mode = stat.S_IMODE(entry.stat().st_mode)
            archive.file(f"{name}/{entry.name}", entry.read_bytes(), mode)


class Archive:
    """A cpio archive in the format that the kernel unpacks (newc). It is not compressed: an emulated
    CPU takes longer to unpack an archive than to load it."""

    def __init__(self):
        self.parts = []
        self.inode = 0

    def directory(self, name):
        self._add(name, stat.S_IFDIR | 0o755)

    def file(self, name, data, mode=0o644):
        self._add(name, stat.S_IFREG | mode, data)

    def symlink(self, name, target):
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name, major, minor):
        self._add(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def bytes(self):
        """Return the complete archive; nothing can be added afterwards."""
        self._add("TRAILER!!!", 0)
        return b"".join(self.parts)

    def _add(self, name, mode, data=b"", device=(0, 0)):
        self.inode += 1
        encoded = name.encode() + b"\0"
        fields = (self.inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(encoded), 0)
        header = b"070701" + "".join(f"{field:08x}" for field in fields).encode()
        self.parts += [_padded(header + encoded), _padded(data)]


def _padded(data):
    return data + bytes(-len(data) % 4)
