# SPDX-License-Identifier: GPL-2.0-only
"""make report: all saved results on one page of Markdown, beside the results that it is about."""

import os
import textwrap
from pathlib import Path

from kit.paths import RESULTS, ROOT
from kit.pages import blocks
from kit.pages.blocks import SIM
from kit.process import Error, say
from kit.results import pages, store, tables, text, verdict

PAGE = "all.md"
GUIDES = ["docs/cost.md", "docs/simulation.md", "docs/bench-host.md"]
NOTES = "NOTES.md"
RULE = ("More is better in all changes. The baseline is the geometric mean of the base and its A/A control; "
        "drift is how far the control's figure is from the base's, with p below 5 %. A verdict is on the primary metrics, each "
        "result a family with a chance of 5 % of any wrong GAIN or LOSS. EQUIVALENT is a ratio that is "
        "proved to be within the margin. Where less is better, what is more than twice as much is a ratio, \"x 3.29\". "
        "The rule: `kit/results/verdict.py`.")


# ---- what belongs together ----

def simulated(files):
    """Put Results of make sim, {file: Result}, together that are of the same kernels in the same states:
    each workload's own figure becomes a metric. Each is judged by itself, as on its own page. Give
    [(whole, {file: Result})], Judged ones all."""
    alike = {}
    for path, result in files.items():
        key = (str(result.subjects), str(result.kernels), str(result.repeat.get("round_ns")))
        alike.setdefault(key, {})[path] = result
    found = []
    for together in alike.values():
        first = next(iter(together.values()))
        whole = verdict.Judged(SIM, first.machine, {"commands": {}}, first.kernels, {}, first.subjects,
                               {name: {} for name in first.subjects})
        whole.verdicts = {}
        for path, result in together.items():
            own = result.instrument.removeprefix(SIM)
            name = result.repeat.get("workload", own)
            if name in whole.metrics:
                name = f"{name} ({path.stem})"
            whole.metrics[name] = result.metrics[own]
            whole.repeat["commands"][name] = result.repeat["command"]
            for subject, values in result.values.items():
                whole.values[subject][name] = values[own]
            for subject, verdicts in result.verdicts.items():
                whole.verdicts.setdefault(subject, {})[name] = verdicts[own]
        found.append((whole, together))
    return found


# ---- the page ----

def load(directory):
    """Give {file: Judged} of all results below a directory; Error if there are none."""
    found = {path: verdict.judged(store.load(path)) for path in sorted(Path(directory).glob("*/*.json"))}
    if not found:
        raise Error(f"no results in {directory}: make bench-cost or bench-host, and FROM= names "
                    "the directory that they are in")
    return found


def write(directory, files=None):
    """Write the page, and that of each result that has its own; give the files. files: what load() gives, if
    it is there."""
    directory = Path(directory)
    files = files or load(directory)
    guides = GUIDES
    if directory.resolve().is_relative_to(ROOT):
        guides = [f"[{guide}]({os.path.relpath(ROOT / guide, directory.resolve())})"
                  for guide in GUIDES]
    page = ["# All results", "",
            "Made by `make report` from the files beside this one. How it was measured: "
            f"{', '.join(guides)}."
            + (f" What it means: [{NOTES}]({NOTES})." if (directory / NOTES).exists() else ""), "",
            *textwrap.wrap(RULE, 100), ""]
    written = []
    for machine in dict.fromkeys(path.parent for path in files):
        page += [f"## {machine.name}", ""]
        here = {path: result for path, result in files.items() if path.parent == machine}
        for path, result in here.items():
            lines = pages.own(result)
            if lines:
                path.with_suffix(".md").write_text("\n".join(lines) + "\n")
                written.append(path.with_suffix(".md"))
            if result.instrument == "cost":
                page += _cost(path, result)
                continue
            if result.instrument.startswith(SIM):
                continue
            page += [*_about(path, result), *_judged(result)]
        sims = {path: result for path, result in here.items() if result.instrument.startswith(SIM)}
        for whole, together in simulated(sims):
            page += [*_about_simulated(together), *_judged(whole)]
    (directory / PAGE).write_text("\n".join(page).rstrip("\n") + "\n")
    return [*written, directory / PAGE]


def _about(path, result):
    """Say of a Result how it came about."""
    repeat = result.repeat
    lines = [f"### {path.stem}", "",
             f"By `{repeat.get('command', '?')}` at {repeat.get('commit', '?')}; "
             f"[all values]({path.parent.name}/{path.name}).", ""]
    for name, kernel in result.kernels.items():
        lines.append(f"- kernel {name}: " + ", ".join(f"{key} {str(value)[:40]}"
                                                      for key, value in kernel.items()))
    host = repeat.get("host")
    if host:
        lines.append("- host: " + ", ".join(f"{key} {value}" for key, value in host.items()
                                            if key not in ("mitigations", "boot")))
        lines.append("- mitigations: " + (", ".join(f"{key}: {value}" for key, value in
                                                    host["mitigations"].items()) or "none needed"))
    if "noise" in repeat:
        lines.append(f"- noise: others kept up to {repeat['noise']['others']} CPUs busy while "
                     f"nothing ran, a hypervisor took up to {repeat['noise']['stolen']}")
    for name, reason in repeat.get("left_out", {}).items():
        lines.append(f"- not measured: {name}: {reason}")
    return [*lines, ""]


def _about_simulated(together):
    """Say of Results of make sim, {file: Result}, what they are and where there is more."""
    first = next(iter(together.values()))
    lines = [f"### simulated: {' and '.join(first.kernels)}", "",
             "What else was counted, and where lines moved: "
             + ", ".join(f"[{path.stem}]({path.parent.name}/{path.stem}.md)" for path in together)
             + ".", ""]
    lines += [f"- {name}: {result.repeat['seeds']} seeds, at {result.repeat['commit']}, QEMU "
              f"{result.repeat['qemu']}, {result.repeat['seconds'] / 60:.0f} minutes"
              for name, result in ((path.stem, result) for path, result in together.items())
              if "seconds" in result.repeat]
    lines += [f"- kernel {name}: " + ", ".join(f"{key} {str(value)[:40]}"
                                               for key, value in kernel.items())
              for name, kernel in first.kernels.items()]
    return [*lines, ""]


def _judged(result):
    """Give the part of the page that says what was found."""
    if not tables.tested(result.verdicts):
        return ["There are too few values to compare, or nothing to compare with.", "",
                *tables.markdown(text.medians(result)), ""]
    lines = [*(f"- {line}" for line in tables.sums(result.verdicts)), ""]
    for subject in result.verdicts:
        lines += [f"**{subject}** against {result.subjects[subject].against}", "",
                  *tables.markdown(text.rows(result, subject)), ""]
    commands = result.repeat.get("commands", {})
    shown = [metric for metric in result.metrics if metric in commands]
    if shown:
        lines += ["To run one again:", "", "```"]
        lines += dict.fromkeys(commands[metric] for metric in shown)
        lines += ["```", ""]
    return lines


def _cost(path, result):
    """The part of the page for bench-cost, which has tables of its own: its figures repeat
    exactly."""
    judged = {subject: {metric: one for metric, one in found.items() if not metric.endswith("+ticks")}
              for subject, found in result.verdicts.items()}
    lines = _about(path, result)
    if tables.tested(judged):
        lines += [*(f"- {line}" for line in tables.sums(judged)), "", tables.DISTURBED, ""]
    for heading, table in tables.cost(result):
        if len(table) > 1:
            lines += [f"**{heading}**", "", *tables.markdown(table), ""]
    return lines


def command(settings):
    """make report: write the page of the results in FROM=, by default those in results/ and with
    them the blocks of README.md, docs/, results/ and the cover letters; 0."""
    directory = Path(settings["FROM"] or RESULTS)
    files = load(directory)
    for path in write(directory, files):
        say(str(path))
    if directory.resolve() == RESULTS:
        for path in blocks.update(files):
            say(str(path))
    return 0
