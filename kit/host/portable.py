# SPDX-License-Identifier: GPL-2.0-only
"""make bench-host-dir: bench-host and calibrate in one directory to copy to a host. They need python
3.9 there, and bench-host the benchmarks that are to run."""

import shutil
from pathlib import Path

from kit import settings
from kit.paths import BUILD, ROOT
from kit.process import Error, say, sh
from kit.results import store

FILES = ("LICENSE", "commands.txt", *(f"kit/{name}.py" for name in (
    "__init__", "__main__", "commands", "features", "paths", "process", "settings",
    *(f"host/{name}" for name in ("__init__", "calibrate", "facts", "knobs", "measure", "slice", "workloads")),
    *(f"results/{name}" for name in ("__init__", "pages", "placement", "store", "tables",
                                     "text", "verdict")))), "guest/calibrate.c", "guest/pin.h")
RUN = """\
#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# As root: ./run [NAME=VALUE]...   benchmarks on this host, the features of its kernel off and on in
# turn, in about an hour; the results are in results/ here. `./run --help` lists all settings:
#   SHORT=1    each for a moment            FULL=1  all workloads in all states, for hours
#   ROUNDS=5   each twice in each round     WORKLOADS='hackbench perf/pipe' beginnings of names
#   FEATURES=TTWU_QUEUE_L2                  the features to measure
#   STATES='NAME:FILE=VALUE,...;...'        further states, files below sched/ of debugfs
#   AS_IS=1    toggle nothing               NOISY=1 measure although the host is not quiet
#   SCHBENCH=  directory of its source      NAME=   name of the host
# ./run calibrate [NAME=VALUE]...  latencies and bandwidths of this host for the simulation, in some ten
# minutes; the file is in machines/caches/ here. It takes SHORT, NOISY and NAME.
# The variable PYTHON names a python 3.9 or later.

cd "$(dirname "$0")" || exit
PYTHON=${{PYTHON:-python3}}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || {{
	echo "error: $PYTHON is not a python 3.9 or later" >&2
	exit 1
}}
export KIT_BUILD="$PWD" PYTHONDONTWRITEBYTECODE=1 BENCH_COMMIT='{commit}'
command=bench-host
[ "$1" != calibrate ] || {{ command=$1; shift; }}
exec "$PYTHON" -m kit $command "$@"
"""


def pack(directory):
    """Make the directory, with calibrate and workload compiled for hosts without a compiler, and the results of
    make sim; Error if it contains other files."""
    directory = Path(directory)
    if directory.exists() and any(directory.iterdir()) and not (directory / "run").exists():
        raise Error(f"DIR={directory}: there is something else in it")
    # Results in it stay.
    shutil.rmtree(directory / "kit", ignore_errors=True)
    for name in FILES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, directory / name)
    sh(["gcc", "-O2", "-static", "-pthread", "-o", directory / "guest/calibrate",
        ROOT / "guest/calibrate.c"], capture=True, timeout=120)
    run = directory / "run"
    run.write_text(RUN.format(commit=store.commit()))
    run.chmod(0o755)


def command(_args=None):
    """Make the directory that DIR= names, or bench-host in the build directory; 0."""
    directory = settings.get("DIR") or BUILD / "bench-host"
    pack(directory)
    say(f"copy {directory} to the host, and there, as root: ./run")
    return 0
