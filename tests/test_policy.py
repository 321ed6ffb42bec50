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
        "struct cache_decision", "cache_in_set", "cache_measure", "cache_open", "cache_part",
        "cache_home", "cache_pick_set", "cache_does", "cache_gate_flaps", "cache_consider",
        "cache_commit", "cache_memory_fits", "cache_judge", "cache_has_to_wait", "cache_prefer",
        "cache_trace_gate", "cache_apply"]
# What decisions, preferences and loads are made of there, besides these.
WHOLE = ["struct sched_cache_llc", "cache_llc_span", "cache_epoch", "cache_group", "cache_group_tolerance", "cache_llc_smt",
         "cache_count_cpus", "cache_see_cpus", "cache_promised", "cache_promise", "cache_age", "cache_published",
         "cache_see_promises", "cache_llc_cpu", "cache_follows", "cache_see_llcs", "cache_decide", "cache_end",
         "cache_expired", "sched_cache_cpu", "cache_room", "cache_task_gate", "cache_task_choice",
         "sched_cache_may_go", "sched_cache_publish_due", "cache_sd_capacity", "sched_cache_load", "cache_add_load",
         "cache_keep_promise", "sched_cache_reserve", "sched_cache_moved",
         "sched_cache_mark_stray", "sched_cache_has_stray", "sched_cache_has_room", "sched_cache_keeps"]
STATES = 200_000
# Above this imb_pct the load balancer, whose imbalance_pct is 117, moves tasks back.
TOLERATED = 17


def cut(text, name):
    """A definition out of C: of a function, or of "struct NAME" or "enum NAME"."""
    start = rf"{name} \{{\n" if " " in name else rf"[a-z][^\n;]*\b{name}\([^;]*?\)\n\{{\n"
    return re.search(rf"^{start}.*?^\}}.*?\n", text, re.M | re.S)[0]


def in_order(text, names):
    """The definitions of these names, in the order in which they are in `text`."""
    return "".join(sorted((cut(text, name) for name in names), key=text.index))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The text of cache_math.h, gate.h, code.h and cache.c after the whole series, by name."""
    tree = tmp_path_factory.mktemp("tree")
    git(tree, "apply", "--include=kernel/sched/cache*",
        *(STACK / name for name in (STACK / "series").read_text().splitlines()
          if "b/kernel/sched/cache" in (STACK / name).read_text()),
        env={"GIT_CEILING_DIRECTORIES": tree.parent})
    math, hooks, cache = ((tree / "kernel/sched" / name).read_text()
                          for name in ("cache_math.h", "cache.h", "cache.c"))
    numbers = re.findall(r"#define CACHE_(?:PAUSE|LOOK_EACH)\b.*\n", cache)
    code = in_order(hooks + cache, GATE + WHOLE)
    return {"cache_math.h": re.sub("(?m)^#include.*", "", math), "cache.c": cache,
            "gate.h": "".join([*numbers, in_order(hooks + cache, GATE)]),
            "code.h": "".join([*re.findall(r"#define CACHE_\w+\s.*\n", cache),
                               *re.findall(r"static unsigned int cache_\w+ = \d+;\n", cache),
                               *(f"{head};\n" for head in re.findall(r"(?m)^(?!static)[a-z].*\)(?=\n\{)", code)), code])}


@pytest.fixture(scope="module")
def build(sources, tmp_path_factory):
    """A function that compiles a program of tests/policy and gives what it prints for arguments."""
    def built(name, change=None, options=("-fsanitize=undefined", "-fno-sanitize-recover")):
        where = tmp_path_factory.mktemp(name)
        for header in ("cache_math.h", "gate.h", "code.h"):
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
    ("policy", "&&\n\t       !cache_exceeds(", "&&\n\t       cache_exceeds("),
    ("scaling", "task - task / 4", "task - min(task, CACHE_ONE / 4)"),
    ("undoing", "llc->load + task - task / 4", "llc->load"),
    ("symmetry", "i < group->nr_slots", "i < group->nr_slots - 1"),
    ("memory", "if (holds && demand",
     "if (holds && !(group->gate == SCHED_CACHE_BUSY && d->value > d->limit - d->limit / 8) && demand"),
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
KEEPS = "overaggr_pct))\n\t\treturn true"


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
            KEEPS, KEEPS.replace("true", "false"))}, ["-O2"])
    output = loop(version, *tasks.split())
    print(output)
    assert re.search(what, output)


# How many runs of what mixes.c simulates, and the least or, as "-", the most of each figure. Each limit is between
# what the code gives and what the mutants below give. At once: threads that run all the time, on machines with cores
# for them. Phases: their number changes; threads are pinned, and tasks are of no process. Sleeping: threads of all kinds
# that start one after another. Beats: threads come and go together. Full: about as many threads as cores, and others.
MIXES = {
    "at once": (500, [], {"few": 93, "soon": 82, "never": "-12.3", "late": "-0.006", "changes": "-0.001", "open": "-1",
                          "waits": "-0"}),
    "phases": (200, ["phases=3", "others=1", "length=1500"], {"few": 88, "soon": 52.5, "never": "-30"}),
    "sleeping": (200, ["duty=0", "high=80", "others=1", "apart=300"], {"few": 91, "changes": "-0.1", "waits": "-125"}),
    "beats": (200, ["beat=300"], {"soon": 80, "late": "-0.3", "changes": "-0.02", "open": "-10"}),
    "full": (300, ["low=90", "high=130", "others=1"], {"few": 63}),
}


def wrong(run, mix):
    """Those figures of a mix that are not as they have to be."""
    runs, given, limits = MIXES[mix]
    words = run(runs, *given).split()
    found = dict(zip(words[::2], map(float, words[1::2])))
    print(mix, found)
    return [name for name, limit in limits.items()
            if (found[name] > -float(limit) if str(limit).startswith("-") else found[name] < limit)]


@pytest.mark.parametrize("mix", MIXES)
def test_mixes(build, mix):
    """Processes of random mixes get as few LLCs as hold them, soon, and nothing moves under a steady load."""
    assert wrong(build("mixes"), mix) == []


@pytest.mark.parametrize("mix, option, fails", [("at once", "off=1", ["few", "soon", "never"]), ("full", "pairs=1", ["few"])])
def test_mixes_need(build, mix, option, fails):
    """It is not the load balancer of the model that gathers threads; where all is full, not only pairs are swapped."""
    assert wrong(lambda runs, *given: build("mixes")(runs, *given, option), mix) == fails


# Changes of the code, by the mix whose figures show each.
MIXED = [
    ("at once", "several ? cache_room(p, i) : 0", "0"),
    ("at once", "atomic_long_add(load, &llc->promised)", "(void)0"),
    ("at once", "promised / (1L << min(*halves, 30UL))", "promised"),
    ("at once", "(CACHE_REQUEST / 8)", "CACHE_REQUEST"),
    ("at once", "(250 * NSEC_PER_MSEC", "(1 * NSEC_PER_MSEC"),
    ("at once", "if (cache_open(group) && !option->chosen)", "if (false)"),
    ("at once", "WRITE_ONCE(sds->llc_stray, jiffies + time);", ";"),
    ("at once", "sum->room + CACHE_ONE / 16", "sum->room"),
    ("at once", "(room + grain / 4) / grain * grain", "room / CACHE_ONE * CACHE_ONE"),
    ("at once", "strict.tolerance = min(demand->tolerance, 1U);", "return false;"),
    ("at once", "few = min(most, 1U)", "few = most"),
    ("at once", "} while (distance && !demand->near);", "} while (0);"),
    ("at once", "rank += BIT(29);", ";"),
    ("at once", "outside <= CACHE_ONE / 4", "true"),
    ("at once", "\t/* Another change waits anew. */\n\tgroup->since = 0;\n", ""),
    ("at once", "#define CACHE_AVERAGE\t\t8", "#define CACHE_AVERAGE\t\t1"),
    ("at once", "d->sum.least_cpus && !d->crowded &&", "d->sum.least_cpus &&"),
    ("at once", KEEPS, KEEPS.replace("true", "false")),
    ("at once", "return !cache_full(llc->load + task - task / 4", "return !cache_full(llc->load"),
    ("at once", "part = task - task / 4", "part = 0"),
    ("phases", "!cache_sum_large(&d->demand, &d->sum)", "true"),
    ("sleeping", "if (dst && !atomic_long_try_cmpxchg", "return true;\n\tif (dst && !atomic_long_try_cmpxchg"),
    ("sleeping", "? !opens || d->changes :", "? opens && d->changes :"),
    ("beats", "running / 2 >> age", "0 * age"),
    ("beats", "return gate == SCHED_CACHE_BUSY || gate == SCHED_CACHE_FOOTPRINT;", "return false;"),
]


@pytest.mark.parametrize("mix, old, new", MIXED)
def test_mixes_find_mutants(build, sources, mix, old, new):
    """Without one of its parts, the code does worse than it has to."""
    [file] = [file for file in ("cache_math.h", "code.h") if old in sources[file]]
    assert wrong(build("mixes", {file: sources[file].replace(old, new)}, ["-w", "-O2"]), mix)


# What ends a choice early where no LLC has room, and what it is without.
NO_ROOM = ("if (options[i].usable && options[i].room >= least)\n\t\t\t", "")
LESS_ROOM = (" || (holds && !keep && !bias && options[best].room < least)", "")


@pytest.fixture(scope="module")
def choices(build, sources):
    """A function that gives what choices.c prints for the code with changes: (picks, looks, looks)."""
    def chosen(*changes):
        math = sources["cache_math.h"]
        for old, new in (("rank = options[i].room", "looks++;\n\t\t\trank = options[i].room"), *changes):
            assert math.count(old) == 1
            math = math.replace(old, new)
        return tuple(map(int, build("choices", {"cache_math.h": math}, ["-w"])(STATES).split()))
    return chosen


def test_choices_without_room_end_early(choices):
    """With the same picks. A full machine needs both for the fewest looks, and one with little room the second."""
    picks, full, little = choices()
    plain, plain_full, plain_little = choices(NO_ROOM, LESS_ROOM)
    assert picks == plain and full * 10 < plain_full and little < plain_little
    assert choices(LESS_ROOM)[0] == choices(NO_ROOM)[0] == picks
    assert choices(LESS_ROOM)[2] > little and choices(NO_ROOM)[1] > full


def test_choices_that_end_too_early_are_seen(choices):
    """The room that ends them is what a sum counts as none."""
    assert choices(("return grain - grain / 4;", "return grain;"))[0] != choices()[0]


def test_balancer_does_not_undo_a_move_at_the_default(sources):
    """The default of imb_pct is what the properties are tried with."""
    assert re.findall(r"cache_imb_pct = (\d+);", sources["cache.c"]) == [str(TOLERATED)]
