# SPDX-License-Identifier: GPL-2.0-only
"""make report: all saved results on one page of Markdown, with a plot of each, and the same tables
as text for a mail. The page lies beside the results that it is about."""

import math
import os
import re
import textwrap
from pathlib import Path

from kit.bench import report, results, stats
from kit.paths import ROOT
from kit.run import Error, say

BOOTS = "boots"
# Begins the names of the instruments of make sim.
SIM = "sim-"
PAGE, MAIL = "README.md", "tables.txt"
HEAD = ["case", "baseline (std%)", "compare% (std%)", "95 % interval", "A/A floor", "p", "verdict"]


# ---- judging ----

def judge(result):
    """Give {subject: {metric: Comparison}} for all of a Result that is compared with something, but
    for the A/A controls; all of it counts as one question when p is corrected."""
    keys, cases = [], []
    for subject, what in result.subjects.items():
        if what.against is None or subject == results.control(result, what.against):
            continue
        for metric, values in result.values.get(subject, {}).items():
            base = result.values.get(what.against, {}).get(metric)
            if base is not None:
                keys.append((subject, metric))
                cases.append((result.metrics[metric].better, base, values,
                              _floor(result, what.against, metric)))
    found = {}
    for (subject, metric), comparison in zip(keys, stats.compare(cases)):
        if comparison:
            found.setdefault(subject, {})[metric] = comparison
    return found


def _floor(result, base, metric):
    """Give how far the A/A control reaches, or None without one. The control of a kernel's boots is
    how far they are from their own median."""
    values = result.values[base][metric]
    again = result.values.get(results.control(result, base), {}).get(metric)
    if len(values) < 2 or min(values) <= 0:
        return None
    if result.instrument == BOOTS:
        middle = stats.median(values)
        return max(abs(value / middle - 1) for value in values)
    return stats.floor(values, again) if again and len(again) > 1 and min(again) > 0 else None


def across(runs, base=None):
    """Put the Results of several kernels on the same host together, where each boot of a kernel
    counts as one value, the median of its passes: what differs from boot to boot (where things lie
    in memory) no run on one boot can tell. Give a Result, or None without two kernels.

    base: the release of the kernel to compare with; else the first that has no stack in it.
    """
    boots = {}
    for run in runs:
        [(release, about)] = run.kernels.items()
        boot = run.repeat.get("host", {}).get("boot")
        boots.setdefault(release, (about, {}))[1].setdefault(boot, []).append(run)
    if len(boots) < 2:
        return None
    base = base or min(boots, key=lambda name: (boots[name][0].get("stack", "-") != "-", name))
    whole = results.Result(BOOTS, runs[0].machine, {"commands": {}, "left_out": {}}, {}, {}, {}, {})
    against = None
    for release in sorted(boots, key=lambda name: (name != base, name)):
        whole.kernels[release], by_boot = boots[release]
        for together in by_boot.values():
            for subject in dict.fromkeys(name for run in together for name in run.subjects):
                what = next(run for run in together if subject in run.subjects).subjects[subject]
                # The controls say nothing here, and of the base only what others are compared with
                # is of use.
                if what.state != subject or (release == base and what.against):
                    continue
                name = f"{release} {subject}"
                whole.subjects.setdefault(name, results.Subject(release, subject, against))
                _add_boot(whole, name, subject, together)
        against = against or next(iter(whole.subjects))
    return whole


def _add_boot(whole, name, subject, together):
    """Add the medians of what runs on one boot measured of a subject."""
    values = {}
    for run in together:
        whole.metrics |= run.metrics
        for metric, passes in run.values.get(subject, {}).items():
            command_ = run.repeat["commands"].get(metric)
            if whole.repeat["commands"].setdefault(metric, command_) == command_:
                values.setdefault(metric, []).extend(passes)
            else:
                whole.repeat["left_out"][metric] = "not run by the same command each time"
    for metric, passes in values.items():
        whole.values.setdefault(name, {}).setdefault(metric, []).append(stats.median(passes))


def differences(runs):
    """Give in what the host was set up differently for its runs, a line each: what of a comparison
    of kernels that may explain instead."""
    lines = []
    hosts = [run.repeat.get("host", {}) for run in runs]
    for key in dict.fromkeys(key for host in hosts for key in host if key != "boot"):
        values = [re.sub(r"BOOT_IMAGE=\S+ ?", "", str(host.get(key, "-"))) for host in hosts]
        if len(set(values)) > 1:
            lines.append(f"{key} was not always the same: " + "; ".join(sorted(set(values))))
    return lines


def simulated(files):
    """Put Results of make sim, {file: Result}, together that are of the same kernels in the same states:
    each workload's own figure becomes a metric. Give [(whole, {file: Result})]."""
    alike = {}
    for path, result in files.items():
        key = (str(result.subjects), str(result.kernels), str(result.repeat.get("round_ns")))
        alike.setdefault(key, {})[path] = result
    found = []
    for together in alike.values():
        first = next(iter(together.values()))
        whole = results.Result(SIM, first.machine, {"commands": {}}, first.kernels, {}, first.subjects,
                               {name: {} for name in first.subjects})
        for path, result in together.items():
            own = result.instrument.removeprefix(SIM)
            name = result.repeat.get("workload", own)
            if name in whole.metrics:
                name = f"{name} ({path.stem})"
            whole.metrics[name] = result.metrics[own]
            whole.repeat["commands"][name] = result.repeat["command"]
            for subject, values in result.values.items():
                whole.values[subject][name] = values[own]
        found.append((whole, together))
    return found


# ---- tables ----

def rows(result, judged, subject):
    """Give the table of a subject against its base, lists of text, the first the head: as in the
    tables of LKML, but that the baseline is its figure and not 1.00, and more is always better."""
    against = result.subjects[subject].against
    table = [HEAD]
    for metric, found in judged[subject].items():
        base, values = result.values[against][metric], result.values[subject][metric]
        table.append([metric, f"{_figure(stats.median(base))} {result.metrics[metric].unit} "
                      f"({_std(base)})", f"{100 * found.gain:+.2f} ({_std(values)})",
                      f"{100 * found.low:+.2f} to {100 * found.high:+.2f}",
                      "-" if found.floor is None else f"{100 * found.floor:.2f}", f"{found.p:.2g}",
                      found.verdict + (f" ({found.reason})" if found.reason else "")])
    return table


def medians(result):
    """Give a table of all medians, for what is compared with nothing."""
    table = [["case", *(f"{subject} (std%)" for subject in result.subjects)]]
    for metric, about in result.metrics.items():
        row = [f"{metric} ({about.unit})"]
        for subject in result.subjects:
            values = result.values.get(subject, {}).get(metric)
            row.append(f"{_figure(stats.median(values))} ({_std(values)})" if values else "-")
        table.append(row)
    return table


def _figure(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _std(values):
    spread = stats.spread(values)
    return "-" if spread is None else f"{100 * spread:.2f}"


def text(result):
    """Give the lines of a Result for a terminal, ending in what it comes to."""
    judged = judge(result)
    lines = [] if judged else report.text(medians(result))
    for subject in judged:
        lines += [f"{subject}, against {result.subjects[subject].against}", "",
                  *report.text(rows(result, judged, subject)), ""]
    return [*lines, *sums(judged)]


def sums(judged):
    """Give how many losses and gains there are for each subject, and the worst and the best."""
    lines = []
    for subject, found in judged.items():
        words = []
        for verdict, pick in ((stats.LOSS, min), (stats.GAIN, max)):
            all_ = {metric: one.gain for metric, one in found.items() if one.verdict == verdict}
            if all_:
                most = pick(all_, key=all_.get)
                words.append(f"{len(all_)} {verdict}, most {100 * all_[most]:+.2f} % ({most})")
            else:
                words.append(f"no {verdict}")
        none = sum(one.verdict == stats.NONE for one in found.values())
        lines.append(f"{subject}: {'; '.join(words)}; no verdict on {none} of {len(found)}")
    return lines


def mail(result, judged):
    """Give the lines of the tables of a Result for a mail, no wider than 76 columns."""
    lines = []
    for subject in judged:
        against = result.subjects[subject].against
        lines += [*textwrap.wrap(f"{result.machine}: {subject}, against {against}", 76), "",
                  f"  {'case':<30} {'baseline(std%)':>17}  {'compare%(std%)':>16}  verdict"]
        for metric, base, other, *_, verdict in rows(result, judged, subject)[1:]:
            base, other = (text_.replace(" (", "(") for text_ in (base, other))
            lines.append(f"  {metric:<30} {base:>17}  {other:>16}  "
                         + verdict.partition(" (")[0].replace(stats.NONE, "-"))
        lines.append("")
    return lines


def cost_mail(result):
    """The same for bench-cost: instructions, and changes without their intervals."""
    lines = []
    for base in (name for name, what in result.subjects.items() if what.against is None):
        others = [name for name, what in result.subjects.items() if what.against == base]
        if not others:
            continue
        names = ", ".join(f"({i}) {name}" for i, name in enumerate(others, 1))
        lines += [*textwrap.wrap(f"{result.machine}, {base}, and against it: {names}", 76), "",
                  f"  {'':<22} {base[:11]:>11}" + "".join(f" {f'({i})':>8}" for i in
                                                            range(1, len(others) + 1))]
        for metric in result.metrics:
            values = result.values[base].get(metric)
            if not values or metric.endswith("+ticks"):
                continue
            cells = []
            for name in others:
                found = result.values[name].get(metric)
                change = stats.change(values, found) if found else None
                cells.append("-" if change is None else f"{100 * change.value:+.2f}%")
            lines.append(f"  {metric:<22} {report.number(stats.median(values)):>11}"
                         + "".join(f" {cell:>8}" for cell in cells))
        lines.append("")
    return lines


# ---- the page ----

def load(directory):
    """Give {file: Result} of all results below a directory; Error if there are none."""
    found = {path: results.load(path) for path in sorted(Path(directory).glob("*/*.json"))}
    if not found:
        raise Error(f"no results in {directory}: make bench-cost or bench-host, and FROM= names "
                    "the directory that they are in")
    return found


def write(directory, base=None):
    """Write the page, the plots and the tables for mails; give the files."""
    directory = Path(directory)
    files = load(directory)
    if base and not any(base in result.kernels for result in files.values()):
        raise Error(f"BASE={base}: no results of that kernel in {directory}")
    guide = "docs/measuring.md"
    if directory.resolve().is_relative_to(ROOT):
        guide = f"[{guide}]({os.path.relpath(ROOT / guide, directory.resolve())})"
    page = ["# Results", "",
            f"Made by `make report` from the files beside this one. How to read it: {guide}.", ""]
    letter, written = [], []
    for machine in dict.fromkeys(path.parent for path in files):
        page += [f"## {machine.name}", ""]
        here = {path: result for path, result in files.items() if path.parent == machine}
        for path, result in here.items():
            if result.instrument == "cost":
                page += _cost(path, directory, result, written)
                letter += cost_mail(result)
                continue
            if result.instrument.startswith(SIM):
                continue
            judged = judge(result)
            page += _about(path, result)
            page += _judged(path.with_suffix(".svg"), directory, result, judged, written)
            letter += mail(result, judged)
        sims = {path: result for path, result in here.items() if result.instrument.startswith(SIM)}
        for number, (whole, together) in enumerate(simulated(sims)):
            judged = judge(whole)
            page += _about_simulated(together)
            page += _judged(machine / f"sim-{number}.svg", directory, whole, judged, written)
            letter += mail(whole, judged)
        runs = [result for result in here.values() if result.instrument == "host"]
        # On a host that has none of the base each kernel is compared with the usual one.
        known = any(base in run.kernels for run in runs)
        whole = across(runs, base if known else None) if runs else None
        if whole:
            judged = judge(whole)
            page += ["### Kernels compared", "", *_boots(whole),
                     *(f"- {line}" for line in differences(runs)), ""]
            page += _judged(machine / "boots.svg", directory, whole, judged, written)
            letter += mail(whole, judged)
    for name, lines in ((PAGE, page), (MAIL, letter)):
        (directory / name).write_text("\n".join(lines).rstrip("\n") + "\n")
        written.append(directory / name)
    return written


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


def _judged(plot, directory, result, judged, written):
    """Give the part of the page that says what was found, and draw it."""
    if not judged:
        return ["There are too few values to compare, or nothing to compare with.", "",
                *report.markdown(medians(result)), ""]
    # Here, as the tables do without matplotlib.
    from kit.bench import plots
    plots.intervals(plot, judged)
    written.append(plot)
    lines = [*(f"- {line}" for line in sums(judged)), "",
             f"![intervals]({plot.relative_to(directory)})", ""]
    for subject in judged:
        lines += [f"**{subject}** against {result.subjects[subject].against}", "",
                  *report.markdown(rows(result, judged, subject)), ""]
    commands = result.repeat.get("commands", {})
    shown = [metric for metric in result.metrics if metric in commands]
    if shown:
        lines += ["To run one again:", "", "```"]
        lines += dict.fromkeys(commands[metric] for metric in shown)
        lines += ["```", ""]
    return lines


def _cost(path, directory, result, written):
    """The part of the page for bench-cost, which has tables of its own: its figures repeat
    exactly."""
    from kit.bench import cost, plots
    changes = {}
    for subject, what in result.subjects.items():
        base = result.values.get(what.against, {})
        for metric, values in result.values[subject].items():
            change = stats.change(base[metric], values) if metric in base else None
            if change and change.half is not None and not metric.endswith("+ticks"):
                verdict = (stats.NONE if abs(change.value) <= change.half + stats.FLOOR else
                           stats.GAIN if change.value < 0 else stats.LOSS)
                changes.setdefault(subject, {})[metric] = stats.Comparison(
                    -change.value, -change.value - change.half, change.half - change.value,
                    math.nan, None, verdict)
    lines = _about(path, result)
    if changes:
        plot = path.with_suffix(".svg")
        plots.intervals(plot, changes)
        written.append(plot)
        lines += [f"![intervals]({plot.relative_to(directory)})", ""]
    for heading, table in cost.tables(result):
        if len(table) > 1:
            lines += [f"**{heading}**", "", *report.markdown(table), ""]
    return lines


def _boots(whole):
    """Say how many boots of each kernel there are."""
    count = {}
    for subject, what in whole.subjects.items():
        most = max(len(values) for values in whole.values[subject].values())
        count[what.kernel] = max(count.get(what.kernel, 0), most)
    return [f"- {kernel}: {number} boot{'s' if number > 1 else ''}"
            for kernel, number in count.items()]


def command(_args=None):
    """make report: write the page of the results in FROM=, by default those in results/; 0."""
    directory = Path(os.environ.get("FROM") or ROOT / "results")
    for path in write(directory, os.environ.get("BASE") or None):
        say(str(path))
    return 0
