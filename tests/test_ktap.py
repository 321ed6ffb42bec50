# SPDX-License-Identifier: GPL-2.0-only
"""The KTAP parser, on small samples and on those of the kernel's own parser."""

import re

import pytest

from here import SERIES
from kit.paths import GUEST
from kit.process import sh
from kit.stack import patches
from kit.vm import ktap

HEAD = "TAP version 13\n"


def failures(text, **options):
    results = ktap.parse(text, **options)
    print(results.summary(), *results.failures(), sep="\n  ")
    return results.failures()


def test_all_well():
    text = HEAD + "1..3\nok 1 one\nok 2 - two\nok 3 three # SKIP no such thing\nEND 0\n"
    results = ktap.parse(text)
    assert not results.failures()
    assert [(test.name, test.status, test.reason) for test in results.tests] == [
        ("one", "ok", ""), ("two", "ok", ""), ("three", "skip", "no such thing")]
    assert results.status == 0


NESTED = HEAD + """1..1
# selftests: sched: thing
# TAP version 13
# 1..3
# ok 1 first
# # figure: BIT off=1 on=2.5 unit="x"
# {second}
# ok 3 third # SKIP not here
# # Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
{outer}
END 0
"""


def test_kselftest_runner():
    text = NESTED.format(second="ok 2 second", outer="ok 1 selftests: sched: thing")
    results = ktap.parse(text)
    assert not results.failures()
    assert [path for path, _ in results.leaves()] == [
        f"selftests: sched: thing / {name}" for name in ("first", "second", "third")]
    assert results.count("skip") == 1
    assert 'figure: BIT off=1 on=2.5 unit="x"' in results.tests[0].notes()


def test_the_runner_says_ok_of_a_failure():
    text = NESTED.format(second="not ok 2 second", outer="ok 1 selftests: sched: thing")
    assert failures(text) == ["not ok: selftests: sched: thing / second"]


def test_it_fails_after_all_passed():
    text = NESTED.format(second="ok 2 second",
                         outer="not ok 1 selftests: sched: thing # exit=139")
    assert failures(text) == ["not ok: selftests: sched: thing # exit=139"]


def test_indented():
    text = """KTAP version 1
1..2
    KTAP version 1
    # Subtest: suite
    1..2
    ok 1 case one
        1..1
        not ok 1 deep
    not ok 2 case two
not ok 1 suite
ok 2 alone
END 0
"""
    assert failures(text) == ["not ok: suite / case two / deep"]


@pytest.mark.parametrize("text,part", [
    (HEAD + "1..1\nnot ok 1 it\nEND 0\n", "not ok: it"),
    (HEAD + "1..1\nnot ok 1 it # TIMEOUT 5 seconds\nEND 0\n", "TIMEOUT 5 seconds"),
    (HEAD + "1..2\nok 1 it\nEND 0\n", "the plan is 2 tests, 1 have a result"),
    (HEAD + "1..1\nok 1 it\nok 2 more\nEND 0\n", "the plan is 1 tests, 2 have a result"),
    (HEAD + "1..2\nok 1 it\nok 3 more\nEND 0\n", "expected result 2"),
    (HEAD + "1..2\nok 1 it\nok 1 it\nEND 0\n", "expected result 2"),
    (HEAD + "1..1\n1..1\nok 1 it\nEND 0\n", "a second plan"),
    (HEAD + "ok 1 it\nEND 0\n", "no plan"),
    (HEAD + "1..1\nok 1 it\nBail out! no memory\nEND 0\n", "Bail out! no memory"),
    (HEAD + "1..1\nok 1 it\n", "no END line"),
    (HEAD + "1..1\nok 1 it\nTHE END 0\n", "no END line"),
    (HEAD + "1..1\nok 1 it\nEND 2\n", "ended with status 2"),
    (HEAD + "END 0\n", "no test ran"),
    ("", "no test ran"),
    (HEAD + "1..1\n# 1..2\n# ok 1 a\nok 1 it\nEND 0\n", "it: the plan is 2 tests, 1 have"),
    (HEAD + "1..1\n# TAP version 13\n# ok 1 a\nok 1 it\nEND 0\n", "it: no plan"),
    (HEAD + "1..1\n# TAP version 13\nok 1 it\nEND 0\n", "it: began tests and ran none"),
    (HEAD + "1..1\n# 1..1\n# Bail out! why\nok 1 it\nEND 0\n", "it: Bail out! why"),
    (HEAD + "1..1\n# selftests: sched: x\n# 1..2\n# ok 1 a\nEND 0\n",
     "selftests: sched: x began and has no result"),
    # Figures: cut off by the end of the guest or by another line, and what is no JSON or has no kind.
    (HEAD + '1..1\n# {"figure": "cost", "row": "pi', 'not a figure: # {"figure": "cost", "row": "pi'),
    (HEAD + '1..1\n# {"figure": "cost", ok 1 it\nEND 0\n', 'not a figure: # {"figure": "cost", ok 1 it'),
    (HEAD + '1..1\n# {"figure": "x", "a": NaN}\nok 1 it\nEND 0\n', 'not a figure: # {"figure": "x", "a": NaN}'),
    (HEAD + '1..1\n# {"a": 1}\nok 1 it\nEND 0\n', 'not a figure: # {"a": 1}'),
])
def test_seen_as_failure(text, part):
    assert any(part in line for line in failures(text)), f"nothing says: {part}"


def test_figures_of_jobs():
    """What guest/lib.sh prints is read as it was said, and what is no number is a problem."""
    words = ["row=a/b", "middle=1.50", "moved=-3", "release=6.12.1", "list=0-7", "none=-", "text=a b=c", "empty="]
    lines = "".join(sh(["sh", "-c", '. "$0"; figure "$@"', GUEST / "lib.sh", *args], capture=True).out
                    for args in (["cost", *words], ["load", "cpus=8"], ["cost", "row=b"]))
    results = ktap.parse(f"{HEAD}1..1\n{lines}ok 1 it\nEND 0\n")
    assert results.figures == {"load": [{"cpus": 8}], "cost": [
        {"row": "a/b", "middle": 1.5, "moved": -3, "release": "6.12.1", "list": "0-7", "none": "-", "text": "a b=c",
         "empty": ""}, {"row": "b"}]}
    assert not results.failures()
    bad = sh(["sh", "-c", '. "$0"; figure cost middle=-nan', GUEST / "lib.sh"], capture=True).out
    assert failures(f"{HEAD}1..1\n{bad}ok 1 it\nEND 0\n") == [f"not a figure: {bad.strip()}"]


def test_figures_of_torture():
    """Its formats become figures with what printf() puts in."""
    text = "".join(path.read_text() for path in (GUEST / "torture").glob("*.c"))
    lines = [re.sub("%[a-z.0-9]+", "1", line.replace("\\", "")) for line in re.findall(r'printf\("(# {.*)\\n"', text)]
    results = ktap.parse("\n".join([HEAD + "1..1", *lines, "ok 1 it", "END 0"]))
    assert not results.failures() and set(results.figures) == {"count", "clock", "windows"}


@pytest.mark.parametrize("text,statuses", [
    (HEAD + "1..2\nnot ok 1 a # TODO later\nok 2 b # XFAIL why\nEND 0\n", ["xfail", "xfail"]),
    (HEAD + "1..2\nok 1 a # skip\nnot ok 2 b # SKIP why\nEND 0\n", ["skip", "skip"]),
    (HEAD + "1..1\n# 1..0 # SKIP no such CPU\nok 1 a\nEND 0\n", ["skip"]),
    (HEAD + "1..1\n# 1..0 # SKIP no such CPU\nok 1 a # SKIP\nEND 0\n", ["skip"]),
    # words that look like what they are not
    (HEAD + "1..1\n# ok, this is fine\n# not ok either\nok 1 a\nEND 0\n", ["ok"]),
    (HEAD + "1..1\nok 1 a # SKIPPED?\nokay 2\nEND 0\n", ["ok"]),
    (HEAD + "ok 1 a\r\n1..1\r\nEND 0\r\n", ["ok"]),
])
def test_not_a_failure(text, statuses):
    assert not failures(text)
    assert [test.status for test in ktap.parse(text).tests] == statuses


def test_reason_of_a_skipped_program():
    """The reason is the program's own; else that of the result line."""
    for inner, outer, reason in (("1..0 # SKIP no such CPU", "ok 1 a", "no such CPU"),
                                 ("1..0 # SKIP no such CPU", "ok 1 a # SKIP", "no such CPU"),
                                 ("1..0 # SKIP", "ok 1 a # SKIP not root", "not root")):
        [test] = ktap.parse(f"{HEAD}1..1\n# {inner}\n{outer}\nEND 0\n").tests
        assert (test.status, test.reason) == ("skip", reason)


@pytest.mark.parametrize("inner", ["1..1\n# not ok 1 a", "1..2\n# ok 1 a"])
def test_program_fails_with_its_subtests(inner):
    """Although its result line is ok: with one that failed, and with one that is missing."""
    [test] = ktap.parse(f"{HEAD}1..1\n# {inner}\nok 1 it\nEND 0\n").tests
    assert test.status == "fail"


# What the name of each of the kernel's samples implies: passed, skipped, failed; problems or not.
KERNEL_SAMPLES = {
    "test_config_printk_time": (10, 0, 0, False),
    "test_insufficient_memory": (0, 0, 0, True),
    "test_interrupted_tap_output": (10, 0, 0, False),
    "test_is_test_passed-all_passed": (10, 0, 0, False),
    "test_is_test_passed-all_passed_nested": (7, 0, 0, False),
    "test_is_test_passed-failure": (9, 0, 1, False),
    "test_is_test_passed-kselftest": (4, 0, 0, False),
    "test_is_test_passed-missing_plan": (10, 0, 0, True),
    "test_is_test_passed-no_tests_no_plan": (0, 0, 1, True),
    "test_is_test_passed-no_tests_run_no_header": (0, 0, 0, True),
    "test_is_test_passed-no_tests_run_with_header": (0, 0, 0, True),
    "test_kernel_panic_interrupt": (8, 0, 0, True),
    "test_multiple_prefixes": (10, 0, 0, False),
    "test_parse_attributes": (1, 0, 0, False),
    "test_parse_ktap_output": (3, 0, 0, False),
    "test_parse_subtest_header": (1, 0, 0, False),
    "test_pound_sign": (10, 0, 0, False),
    "test_skip_all_tests": (0, 5, 0, False),
    "test_skip_tests": (4, 1, 0, False),
}


@pytest.mark.patches
def test_kernel_samples():
    directory = patches.ensure(SERIES) / "tools/testing/kunit/test_data"
    for name, (passed, skipped, failed, problems) in KERNEL_SAMPLES.items():
        # These were on a console, behind time stamps.
        text = re.sub(r"(?m)^\[ *\d+\.\d+\](\[ *T\d+\])? ?", "",
                      (directory / f"{name}.log").read_text())
        results = ktap.parse(text, end=False)
        print(f"{name}: {results.summary()}")
        assert (results.count("ok"), results.count("skip"), results.count("fail"),
                bool(results.problems)) == (passed, skipped, failed, problems), name
