# SPDX-License-Identifier: GPL-2.0-only
"""A parser for the KTAP that a guest writes to ttyS1, and for TAP 13 as kernel selftests print it.

Subtests are indented, as KUnit prints them, or follow "# ", as the kselftest runner prints them.
Both precede the result line of their test. Nested results count as well as that line, because the
kselftest runner prints "ok" for a program that printed "not ok".

A diagnostic line "# {JSON}" is a figure: an object whose field "figure" names its kind. The jobs print them with
figure() of guest/lib.sh.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field

OK, SKIP, XFAIL, FAIL = "ok", "skip", "xfail", "fail"

_VERSION = re.compile(r"K?TAP version \d+$")
_PLAN = re.compile(r"1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?$", re.IGNORECASE)
_RESULT = re.compile(r"(not )?ok(?: (\d+))?(?:(?: -)? +(.*))?$")
_DIRECTIVE = re.compile(r"(?:^|\s)#\s*(SKIP|TODO|XFAIL)\b:?\s*(.*)$", re.IGNORECASE)
_BAIL = re.compile(r"Bail out!\s*(.*)$")
_END = re.compile(r"END (-?\d+)$")


@dataclass
class Test:
    """One test: its status (OK, SKIP, XFAIL or FAIL) and the reason that its line gives."""
    name: str
    status: str
    reason: str = ""
    diagnostics: list = field(default_factory=list)
    subtests: list = field(default_factory=list)

    def notes(self):
        """Return the diagnostic lines of this test and its subtests, without their "#"."""
        lines = [note for test in self.subtests for note in test.notes()]
        return [line.lstrip("# ") for line in self.diagnostics] + lines

    def walk(self, above=()):
        """Return the tests without subtests, at or below this one, each as (path, Test)."""
        path = (*above, self.name)
        if not self.subtests:
            return [(" / ".join(path), self)]
        return [pair for test in self.subtests for pair in test.walk(path)]


@dataclass
class Results:
    """A parsed run: its tests in order; problems, which make the run a failure whatever the tests
    say; the status of the END line, None without one; figures: {kind: [{field: text or number}]}."""
    tests: list = field(default_factory=list)
    diagnostics: list = field(default_factory=list)
    problems: list = field(default_factory=list)
    status: int | None = None
    skipped: str | None = None
    figures: dict = field(default_factory=lambda: defaultdict(list))

    def leaves(self):
        """Return all tests without subtests, each as (path, Test)."""
        return [pair for test in self.tests for pair in test.walk()]

    def count(self, status):
        """Return the number of leaves with this status."""
        return sum(test.status == status for _, test in self.leaves())

    def failures(self):
        """Return a line for each failed test and each problem."""
        lines = [f"not ok: {path}" + (f" # {test.reason}" if test.reason else "")
                 for path, test in self.leaves() if test.status == FAIL]
        # A test can fail although its subtests passed, for example by a crash after them.
        for test in self.tests:
            lines += _hollow_failures(test)
        return lines + self.problems

    def summary(self):
        """Return the counts as one line."""
        counts = [f"{self.count(status)} {status}" for status in (OK, SKIP, XFAIL, FAIL)]
        return ", ".join(counts) + (f", {len(self.problems)} problems" if self.problems else "")


def _hollow_failures(test, above=()):
    path = (*above, test.name)
    lines = [line for sub in test.subtests for line in _hollow_failures(sub, path)]
    if test.subtests and test.status == FAIL and not any(
            sub.status == FAIL for sub in test.subtests):
        lines.append(f"not ok: {' / '.join(path)}" + (f" # {test.reason}" if test.reason else ""))
    return lines


def parse(text, end=True):
    """Parse a whole stream; return Results.

    end: whether the stream must finish with a line "END <status>", as the guest's init writes it.
    """
    lines = text.replace("\r", "").expandtabs(4).splitlines()
    results = Results()
    for number, line in enumerate(lines):
        match = _END.match(line)
        if match:
            results.status = int(match[1])
            del lines[number:]
            break
    _block(lines, results, "")
    for line in lines:
        if line.startswith("# {"):
            _figure(line, results)
    if not results.tests and not results.problems and results.skipped is None:
        results.problems.append("no test ran")
    if end and results.status is None:
        last = next((line for line in reversed(lines) if line.strip()), "nothing at all")
        results.problems.append(f"no END line: the guest did not finish; the last line was: {last}")
    elif end and results.status:
        results.problems.append(f"the job ended with status {results.status}")
    return results


def _figure(line, results):
    """Add the figure of a line to results. A part of one, from a guest that died, is a problem."""
    try:
        # int() refuses NaN and Infinity, which are not JSON.
        fields = json.loads(line[2:], parse_constant=int)
        results.figures[fields.pop("figure")].append(fields)
    except (ValueError, KeyError, TypeError):
        results.problems.append(f"not a figure: {line}")


def _block(lines, results, where):
    """Parse the lines of one level into results; where names the test they are in."""
    prefix = f"{where}: " if where else ""
    plan = None
    pending = []
    bailed = False
    for line in lines:
        if not line.strip() or _VERSION.match(line):
            continue
        match = _PLAN.match(line)
        if match:
            if plan is not None:
                results.problems.append(f"{prefix}a second plan: {line}")
            plan = int(match[1])
            if plan == 0 and match[2] is not None:
                results.skipped = match[2]
            continue
        match = _BAIL.match(line)
        if match:
            results.problems.append(f"{prefix}Bail out! {match[1]}".rstrip())
            bailed = True
            break
        match = _RESULT.match(line)
        if not match:
            pending.append(line)
            continue
        number = int(match[2]) if match[2] else None
        if number is not None and number != len(results.tests) + 1:
            results.problems.append(f"{prefix}expected result {len(results.tests) + 1}, "
                                    f"found: {line}")
        results.tests.append(_test(match, pending, results.problems, prefix))
        pending = []
    _leftover(pending, results, prefix)
    if bailed:
        return
    if plan is None and results.tests:
        results.problems.append(f"{prefix}no plan (1..N)")
    elif plan is not None and plan != len(results.tests):
        results.problems.append(f"{prefix}the plan is {plan} tests, {len(results.tests)} have a "
                                "result")


def _test(match, pending, problems, prefix):
    """Make a Test of its result line and of the lines before it."""
    failed, text = bool(match[1]), match[3] or ""
    status, reason = FAIL if failed else OK, ""
    directive = _DIRECTIVE.search(text)
    if directive:
        status = SKIP if directive[1].upper() == "SKIP" else XFAIL
        reason = directive[2].strip()
        text = text[:directive.start()]
    elif " # " in text:
        text, reason = text.split(" # ", 1)
    test = Test(text.strip(), status, reason.strip())
    nested, test.diagnostics = _nested(pending)
    if nested:
        inner = Results()
        _block(nested, inner, prefix + test.name)
        test.subtests = inner.tests
        test.diagnostics += inner.diagnostics
        if not inner.tests and not inner.problems and inner.skipped is None:
            inner.problems.append(f"{prefix}{test.name}: began tests and ran none")
        problems += inner.problems
        if inner.skipped is not None and test.status in (OK, SKIP):
            test.status, test.reason = SKIP, inner.skipped or test.reason
        if inner.problems or any(sub.status == FAIL for sub in inner.tests):
            test.status = FAIL
    return test


def _nested(lines):
    """Split lines into (the lines of a level below, diagnostics of this one)."""
    for line in lines:
        inner = line.lstrip(" ")
        depth = len(line) - len(inner)
        if depth >= 2 and _starts_level(inner):
            indent = " " * depth
            return ([line[depth:] for line in lines if line.startswith(indent)],
                    [line for line in lines if not line.startswith(indent)])
    behind = [line[1:].removeprefix(" ") for line in lines if line.startswith("#")]
    if any(_starts_level(line) for line in behind):
        return behind, [line for line in lines if not line.startswith("#")]
    return [], lines


def _starts_level(line):
    return _VERSION.match(line) or _PLAN.match(line) or line.startswith("# Subtest:")


def _leftover(lines, results, prefix):
    """Deal with lines after the last result: notes, or a test that never came to its result."""
    nested, notes = _nested(lines)
    results.diagnostics += notes
    if not nested:
        return
    inner = Results()
    _block(nested, inner, "")
    headings = [line.lstrip("# ") for line in nested + notes if line.startswith("#")]
    begun = [line for line in headings if line.startswith(("Subtest: ", "selftests: "))]
    begun += [line for line in nested if line.startswith("selftests: ")]
    name = begun[0].removeprefix("Subtest: ") if begun else "a test"
    results.problems.append(f"{prefix}{name} began and has no result")
    results.tests.append(Test(name, FAIL, "no result", inner.diagnostics, inner.tests))
