# SPDX-License-Identifier: GPL-2.0-only
"""Properties of the policy of cache-aware scheduling, on the code that the patches add."""

import re
import subprocess
from pathlib import Path

import pytest

from kit.paths import PATCHES
from kit.process import git

HERE = Path(__file__).parent / "policy"
STACK = PATCHES / "6.12"
# What the gates are made of in cache.h and cache.c.
GATE = ["enum sched_cache_gate", "struct sched_cache_slot", "struct sched_cache_group",
        "struct cache_decision", "cache_in_set", "cache_measure", "cache_open", "cache_part", "cache_home",
        "cache_pick_set", "cache_does", "cache_gate_flaps", "cache_consider", "cache_commit", "cache_memory_fits",
        "cache_judge", "cache_has_to_wait", "cache_trace_prefer", "cache_trace_gate", "cache_apply"]
STATES = 200_000
# Above this imb_pct the load balancer, whose imbalance_pct is 117, moves tasks back.
TOLERATED = 17


def cut(text, name):
    """A definition out of C: of a function, or of "struct NAME" or "enum NAME"."""
    start = rf"{name} \{{\n" if " " in name else rf"static [^\n;]*\b{name}\([^;]*?\)\n\{{\n"
    return re.search(rf"^{start}.*?^\}}.*?\n", text, re.M | re.S)[0]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The text of cache_math.h, gate.h and cache.c after the whole series, by name."""
    tree = tmp_path_factory.mktemp("tree")
    git(tree, "apply", "--include=kernel/sched/cache*",
        *(STACK / name for name in (STACK / "series").read_text().splitlines()
          if "b/kernel/sched/cache" in (STACK / name).read_text()),
        env={"GIT_CEILING_DIRECTORIES": tree.parent})
    math, hooks, cache = ((tree / "kernel/sched" / name).read_text()
                          for name in ("cache_math.h", "cache.h", "cache.c"))
    numbers = re.findall(r"#define CACHE_(?:PAUSE|LOOK_EACH)\b.*\n", cache)
    return {"cache_math.h": re.sub("(?m)^#include.*", "", math), "cache.c": cache,
            "gate.h": "".join([*numbers, *(cut(hooks + cache, name) for name in GATE)])}


@pytest.fixture(scope="module")
def build(sources, tmp_path_factory):
    """A function that compiles a program of tests/policy and gives what it prints for arguments."""
    def built(name, change=None, options=("-fsanitize=undefined", "-fno-sanitize-recover")):
        where = tmp_path_factory.mktemp(name)
        for header in ("cache_math.h", "gate.h"):
            (where / header).write_text((change or {}).get(header, sources[header]))
        # Some compilers take what a sanitizer adds for a use of what has not been initialized.
        subprocess.run(["gcc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-Wno-maybe-uninitialized",
                        *options, f"-I{where}", f"-I{HERE}", "-o", where / name,
                        HERE / f"{name}.c"], check=True)

        def run(*args):
            done = subprocess.run([where / name, *map(str, args)], text=True, capture_output=True,
                                  check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout
        return run
    return built


@pytest.fixture(scope="module")
def properties(build):
    """The program properties.c."""
    return build("properties")


def failures(output):
    """What properties.c found: failures and the first of them, by property; all were tried."""
    rows = [line.split(" ", 3) for line in output.splitlines()]
    assert all(int(tried) > 0 for _, tried, _, _ in rows)
    return {name: (int(failed), first) for name, _, failed, first in rows}


def test_properties(properties):
    """No state breaks one. Memory: after random histories of load, also by others, and a second of a steady load,
    gate and number of LLCs are as without them."""
    output = properties(1, STATES, TOLERATED)
    print(output)
    assert [name for name, (failed, _) in failures(output).items() if failed] == []


# Changes of the code, by the property that each breaks.
MUTANTS = [
    ("arithmetic", "CACHE_ONE_SHIFT) + elapsed / 2", "CACHE_ONE_SHIFT) ^ 4"),
    ("arithmetic", "diff > 0 ? diff + nr - 1 : diff - nr + 1", "diff"),
    ("arithmetic", "limit = min(each * 3 / 4, all - spread)", "limit = all - spread"),
    ("sample", "hot / 8 <= llc", "hot / 8 >= llc"),
    ("policy", "dst_full && !cache_exceeds", "dst_full && cache_exceeds"),
    ("scaling", "task - task / 4", "task - min(task, CACHE_ONE / 4)"),
    ("undoing", "part = task - task / 4", "part = task / 4"),
    ("symmetry", "i < group->nr_slots", "i < group->nr_slots - 1"),
    ("memory", "if (holds &&",
     "if (holds && !(group->gate == SCHED_CACHE_BUSY && d->value > d->limit - d->limit / 8) &&"),
    ("memory", " &&\n\t       !cache_sum_large(&d->demand, &d->sum)", ""),
    ("memory", "outside <= CACHE_ONE / 4", "outside <= 100 * CACHE_ONE"),
    ("memory", "!d->crowded && ", ""),
    ("memory", "\tif (d->stands)\n\t\treturn true;\n\n\t/* That", "\t/* That"),
    ("patience_anew", "group->closes == opens", "false"),
    ("patience", "d->crowded = open && ", "d->crowded = "),
    ("patience", "? !opens || d->changes :", "? opens && d->changes :"),
    ("memory", "distance, 0, false, room, sum))\n\t\treturn false;",
     "distance, most, true, room, sum))\n\t\treturn false;"),
    ("unknown_size", "cache_memory_fits(group, d))", "(!d->sum.bytes || cache_memory_fits(group, d)))"),
    ("unknown_size", "cache_memory_fits(group, d))", "(group->communicates || cache_memory_fits(group, d)))"),
]


@pytest.mark.parametrize("name, old, new", MUTANTS)
def test_properties_find_mutants(build, sources, name, old, new):
    """A change that breaks a property is found."""
    [file] = [file for file in ("cache_math.h", "gate.h") if old in sources[file]]
    run = build("properties", {file: sources[file].replace(old, new)}, ["-w", "-O0"])
    failed, first = failures(run(1, STATES // 5, TOLERATED))[name]
    print(first)
    assert failed


# LLCs and tasks that loop.c tries: equal and unequal LLCs, free and full, pinned tasks.
LOOPS = ["4,4 0:3:3 1:3:3", "3,3 0:3:3 1:2:3 2:2:3", "4,2,2 0:3:7 1:2:7", "2,2,2 0:3:7 9:4:7",
         "2,2,2 0:3:5 0:1:3 9:1:4", "3,3,3 0:5:7 1:2:7 9:2:7", "2,2,2,2 0:3:15 1:3:15"]
# Rules that are not good enough, of the model and one of cache_math.h, and what comes of them.
BROKEN = [("3c", LOOPS[4], "waits for ever"), ("3a", LOOPS[1], "cycle"),
          ("3ace", LOOPS[0], "cycle"), ("3acf", LOOPS[1], "states, [^0]"),
          ("2", "4,4 0:3:3", "cycle")]
KEEPS = "overaggr_pct))\n\t\treturn CACHE_FORBID"


@pytest.fixture(scope="module")
def loop(build):
    """The program loop.c."""
    return build("loop", options=["-O2"])


@pytest.mark.parametrize("version", ["2", "3ac"])
@pytest.mark.parametrize("tasks", LOOPS)
def test_closed_loop(loop, version, tasks):
    """No cycle, no task that waits for more than four steps for each task, and no memory."""
    output = loop(version, *tasks.split())
    print(output)
    found = re.fullmatch(r"\d+ states, (\d+) differ, wait (\d+)\n", output)
    assert found
    differ, wait = map(int, found.groups())
    assert wait <= 4 * sum(int(kind.split(":")[1]) for kind in tasks.split()[1:])
    assert version == "2" or not differ


@pytest.mark.parametrize("version, tasks, what", BROKEN)
def test_closed_loop_finds_bad_rules(build, loop, sources, version, tasks, what):
    """The model's other rules, and a policy that lets the load balancer take tasks away."""
    if version == "2":
        assert KEEPS in sources["cache_math.h"]
        loop = build("loop", {"cache_math.h": sources["cache_math.h"].replace(
            KEEPS, KEEPS.replace("FORBID", "GENERIC"))}, ["-O2"])
    output = loop(version, *tasks.split())
    print(output)
    assert re.search(what, output)


def test_balancer_does_not_undo_a_move_at_the_default(sources):
    """The default of imb_pct is what the properties are tried with."""
    assert re.findall(r"cache_imb_pct = (\d+);", sources["cache.c"]) == [str(TOLERATED)]
