# SPDX-License-Identifier: GPL-2.0-only
"""make bench-host-dir: what measures on a host, in one directory to copy there. It needs python 3.9
on the host, and the benchmarks that are to run."""

import os
import shutil
from pathlib import Path

from kit.page import FEATURES
from kit.paths import BUILD, ROOT
from kit.run import Error, git, say

FILES = ("LICENSE", "kit/__init__.py", "kit/__main__.py", "kit/paths.py", "kit/run.py",
         *(f"kit/bench/{name}.py" for name in (
             "__init__", "facts", "host", "knobs", "report", "results", "slice", "stats", "summary",
             "workloads")))
RUN = """\
#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Benchmarks on this host, the features of its kernel off and on by turns; keeps what it finds in
# results/ here. As root: ./run [NAME=VALUE]...
#   SHORT=1    each for a moment            FULL=1  as long as the authors of the patches ran them
#   ROUNDS=5   each twice in each round     WORKLOADS='hackbench perf/pipe' beginnings of names
#   FEATURES=TTWU_QUEUE_L2                  those to measure
#   STATES='NAME:FILE=VALUE,...;...'        further states, files below sched/ of debugfs
#   AS_IS=1    toggle nothing               NOISY=1 measure though others are busy
#   SCHBENCH=  directory of its source      NAME=   what to call the host
#   PYTHON=    a python 3.9 or later

cd "$(dirname "$0")" || exit
for setting; do
	case $setting in
	[A-Z]*=*) export "$setting" ;;
	*) sed -n 's/^# //p' run | sed 1d >&2; exit 2 ;;
	esac
done
PYTHON=${{PYTHON:-python3}}
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || {{
	echo "error: $PYTHON is not a python 3.9 or later" >&2
	exit 1
}}
export KIT_BUILD="$PWD" PYTHONDONTWRITEBYTECODE=1 BENCH_COMMIT='{commit}'
export STACK_FEATURES='{features}'
exec "$PYTHON" -m kit bench-host
"""


def pack(directory):
    """Make the directory; Error if there is something in it that is not ours."""
    directory = Path(directory)
    if directory.exists() and any(directory.iterdir()) and not (directory / "run").exists():
        raise Error(f"DIR={directory}: there is something else in it")
    # Results that are in it stay.
    shutil.rmtree(directory / "kit", ignore_errors=True)
    for name in FILES:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, directory / name)
    run = directory / "run"
    run.write_text(RUN.format(commit=git(ROOT, "describe", "--always", "--dirty").out.strip(),
                              features=" ".join(feature.name for feature in FEATURES)))
    run.chmod(0o755)


def command(_args=None):
    """Make the directory that DIR= names, or one in build/; 0."""
    directory = os.environ.get("DIR") or BUILD / "bench-host"
    pack(directory)
    say(f"copy {directory} to the host, and there, as root: ./run")
    return 0
