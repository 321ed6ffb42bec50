# SPDX-License-Identifier: GPL-2.0-only
"""make bench-host-dir: bench-host in one directory to copy to a host. It needs python 3.9 there, and the
benchmarks that are to run."""

import shutil
from pathlib import Path

from kit.paths import ROOT
from kit.process import Error, say
from kit.results import store

# What is copied. These import nothing else of the kit, and run on python 3.9.
MODULES = ("__init__", "__main__", "commands", "features", "paths", "process", "settings", "host/*", "results/*")
FILES = ("LICENSE", "commands.txt", *(f"kit/{name}.py" for name in MODULES))
RUN = """\
#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# As root: ./run [NAME=VALUE]...   benchmarks on this host, the features of its kernel off and on in
# turn, in about an hour; the results are in results/ here. `./run --help` lists all settings.
# The variable PYTHON names a python 3.9 or later.

cd "$(dirname "$0")" || exit
PYTHON=${{PYTHON:-python3}}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || {{
	echo "error: $PYTHON is not a python 3.9 or later" >&2
	exit 1
}}
export KIT_BUILD="$PWD" PYTHONDONTWRITEBYTECODE=1 BENCH_COMMIT='{commit}'
exec "$PYTHON" -m kit bench-host "$@"
"""


def pack(directory):
    """Make the directory; Error if it contains other files."""
    directory = Path(directory)
    if directory.exists() and any(directory.iterdir()) and not (directory / "run").exists():
        raise Error(f"DIR={directory}: there is something else in it")
    # Results in it stay.
    shutil.rmtree(directory / "kit", ignore_errors=True)
    for path in [path for name in FILES for path in ROOT.glob(name)]:
        copy = directory / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    run = directory / "run"
    run.write_text(RUN.format(commit=store.commit()))
    run.chmod(0o755)


def command(settings):
    """Make the directory that DIR= names, or bench-host in the build directory; 0."""
    directory = settings["DIR"] or settings.build / "bench-host"
    pack(directory)
    say(f"copy {directory} to the host, and there, as root: ./run")
    return 0
