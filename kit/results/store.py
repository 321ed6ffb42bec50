# SPDX-License-Identifier: GPL-2.0-only
"""The format of results, the same for every instrument: plain JSON, results/<machine>/<instrument>.json.

A result has metrics (what was measured, in which unit), subjects (which kernel, in which state, and
which subject it is to be compared with), and for each subject and metric the values, one for each
block. What is in the same block was measured in the same circumstances (memory layout, seed, round of
an A/B run), so that subjects are compared block by block.

A subject of the same kernel and in the same state as the one that it is compared with is the A/A
control: what it shows is chance.
"""

# What measures on a host has to run where python is old.
from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field

from kit.paths import ROOT
from kit.process import Error, git

FORMAT = 1
# What `make report` and SAVE=1 write. A row of sim-all writes it before the next one begins.
MADE = ("results", "docs", "README.md", "patches/*/cover-letter.txt")


def commit(repository=ROOT):
    """Give the newest commit of the repository, abbreviated, with "-dirty" if a file that git tracks
    differs from it, other than those that results are written to; "unknown" in a copy without .git."""
    if not (repository / ".git").exists():
        return "unknown"
    name = git(repository, "describe", "--always").out.strip()
    changed = git(repository, "status", "--porcelain", "--untracked-files=no", "--", ".",
                  *(f":(exclude){path}" for path in MADE)).out
    return f"{name}-dirty" if changed.strip() else name


@dataclass(frozen=True)
class Metric:
    """What was measured: its unit, whether less or more of it is better, and in words."""
    unit: str
    better: str
    title: str


@dataclass(frozen=True)
class Subject:
    """What it was measured on: a kernel (a key of Result.kernels) in a state; against: the name of
    the subject to compare it with, or None."""
    kernel: str
    state: str
    against: str | None


@dataclass
class Result:
    """Everything that an instrument measured on a machine.

    repeat: what is needed to do it again: the command, the commit of this repo, versions and
    settings, where each metric has a command of its own, commands: {metric: str}, and the metrics
    that were declared before the run to be judged (see primary()); kernels:
    {name: {release, config, source ...}}; metrics: {name: Metric}; subjects: {name: Subject}; values:
    {subject: {metric: [float for each block]}}; details: what an instrument found besides, {subject:
    anything that JSON has}.
    """
    instrument: str
    machine: str
    repeat: dict
    kernels: dict
    metrics: dict
    subjects: dict
    values: dict
    details: dict = field(default_factory=dict)


def save(result, path):
    """Write a Result to a file, a line for each list of values."""
    text = json.dumps({"format": FORMAT, **dataclasses.asdict(result)}, indent=1)
    # A list of numbers on one line.
    text = re.sub(r"\[[^][{}\"]*\]", lambda found: re.sub(r"\s+", " ", found[0])
                  .replace("[ ", "[").replace(" ]", "]"), text)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text + "\n")
    part.replace(path)


def load(path):
    """Read a Result; Error that names the file and what is wrong with it."""
    try:
        return parse(json.loads(path.read_text(), parse_constant=_no_number), path)
    except OSError as error:
        raise Error(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Error(f"{path}: no result: {error!r}") from error


def parse(data, where):
    """Give the Result that is in the JSON of a file; Error that says where and what is wrong with it."""
    try:
        if data["format"] != FORMAT:
            raise Error(f"{where}: not of format {FORMAT}")
        result = Result(**{name: value for name, value in data.items() if name != "format"} | {
            "metrics": {name: Metric(**metric) for name, metric in data["metrics"].items()},
            "subjects": {name: Subject(**subject) for name, subject in data["subjects"].items()}})
    except (KeyError, TypeError, AttributeError) as error:
        raise Error(f"{where}: no result: {error!r}") from error
    for problem in problems(result):
        raise Error(f"{where}: {problem}")
    return result


def _no_number(name):
    """What json would take for a number though JSON does not have it: NaN, Infinity."""
    raise ValueError(f"{name} is no number")


def problems(result):
    """Give what does not fit together in a Result, a str each."""
    found = []
    for name, subject in result.subjects.items():
        if subject.kernel not in result.kernels:
            found.append(f"subject {name}: no kernel {subject.kernel}")
        if subject.against is not None and subject.against not in result.subjects:
            found.append(f"subject {name}: no subject {subject.against} to compare it with")
    for name, values in result.values.items():
        against = result.subjects[name].against if name in result.subjects else None
        if name not in result.subjects:
            found.append(f"values of {name}, which is no subject")
        for metric, numbers in values.items():
            if metric not in result.metrics:
                found.append(f"values of {metric}, which is no metric")
            if not numbers or not all(type(number) in (int, float) for number in numbers):
                found.append(f"values of {metric} for {name}: not numbers")
            elif len(numbers) != len(result.values.get(against, {}).get(metric, numbers)):
                found.append(f"values of {metric} for {name}: not as many as for {against}")
    return found


def control(result, subject):
    """Give the name of the A/A control of a subject that others are compared with, or None."""
    what = result.subjects[subject]
    for name, other in result.subjects.items():
        if other == Subject(what.kernel, what.state, subject):
            return name
    return None


def primary(result, subject=None):
    """Give the names of the primary metrics, which a verdict is given on, of a subject: those that the
    run declared for it (repeat["primary_of"]), or for all subjects (repeat["primary"]),
    else a simulation's own figure, else all but those that bench-cost counts ticks in."""
    own = result.instrument.removeprefix("sim-")
    default = [own] if own != result.instrument and own in result.metrics else [
        name for name in result.metrics if not name.endswith("+ticks")]
    return result.repeat.get("primary_of", {}).get(subject, result.repeat.get("primary", default))
