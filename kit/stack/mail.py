# SPDX-License-Identifier: GPL-2.0-only
"""A series as mails in a directory, for a person to look at and to send. Nothing here sends."""

import email
import email.policy
import re
import shutil

from kit.process import Error, git, lock, say, sh
from kit.stack import base, patches

# get_maintainer.pl of the kernel: the tree has no history to ask for names.
MAINTAINERS = ("--no-git", "--no-git-fallback", "--no-fixes", "--no-rolestats")
ROLES = {"To": ("--m", "--no-r", "--no-l"), "Cc": ("--no-m", "--r", "--l")}


def recipients(series, files) -> dict:
    """Who gets the series: {"To": maintainers, "Cc": reviewers, lists, and the lines of the series'
    file `cc`}, each address once. files: the patches, as paths."""
    found, seen = {}, set()
    for role, options in ROLES.items():
        out = sh(["perl", "scripts/get_maintainer.pl", *MAINTAINERS, *options, *files],
                 cwd=series.linux, capture=True).out
        found[role] = list(dict.fromkeys(line.strip() for line in out.splitlines() if line.strip()))
    extra = series.patches / "cc"
    if extra.exists():
        found["Cc"] += [line for line in extra.read_text().splitlines()
                        if line and not line.startswith("#")]
    # A line may end with the person's role, and a person may be in both lists.
    for role, lines in found.items():
        keep = []
        for line in lines:
            line = re.sub(r"\s*\([^()]*\)$", "", line)
            address = re.search(r"[^\s<>]+@[^\s<>]+", line)
            if not address:
                raise Error(f"{series.name}: no address in the line: {line}")
            if address[0].lower() not in seen:
                seen.add(address[0].lower())
                keep.append(line)
        found[role] = keep
    if not found["To"]:
        raise Error(f"get_maintainer.pl names no maintainer for {series.name}")
    return found


def write(series, sender, out, version=1, sign=False) -> list:
    """Write the cover letter and the patches of a series to the directory `out`, threaded; the paths of
    the mails. A single patch has no cover letter: the text of that stands below its `---`. Patches of other
    series are not written.

    sender: "Name <address>"; sign: whether to add its Signed-off-by, the sender's certificate of origin.
    Error for a series without patches or cover letter, and for a tree that is not as the patches.
    """
    names, cover = patches.own(series), series.patches / "cover-letter.txt"
    if not names or not cover.exists():
        raise Error(f"{series.name} is not to be sent: it has no patches, or no cover-letter.txt")
    series = patches.in_base(series)
    if series.tree_of:
        commits, branch = patches.applied(series)[0], "mails"
        git(series.linux, "branch", "-f", branch, commits[-1])
    else:
        patches.tree(series)
        branch = "stack"
    who = recipients(series, [series.patches / name for name in names])
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    name, _, address = sender.rstrip(">").partition(" <")
    identity = {f"GIT_COMMITTER_{key}": value for key, value in (("NAME", name), ("EMAIL", address))}
    with lock(series.work / "tree.lock"):
        # git takes subject and text of the cover letter from here.
        text = cover.read_text()
        subject, _, body = text.removeprefix("Subject: ").partition("\n")
        git(series.linux, "config", f"branch.{branch}.description", f"{subject}\n\n{body.strip()}\n")
        git(series.linux, "notes", "add", "-f", "-m", body.strip(), branch, env=base.IDENTITY)
        git(series.linux, "format-patch", "-q", "-o", out, f"--from={sender}",
            *(["--cover-letter", "--cover-from-description=subject", "--thread=shallow"] if len(names) > 1
              else ["--notes"]),
            "--no-renames", "--diff-algorithm=myers",
            *([f"--reroll-count={version}"] if version > 1 else []),
            *(["--rfc"] if patches.is_rfc(series.name) else []),
            *(["--signoff"] if sign else []),
            *(f"--{role.lower()}={line}" for role, lines in who.items() for line in lines),
            f"{branch}~{len(names)}..{branch}", env=identity)
    return sorted(out.glob("*.patch"))


def command(settings) -> int:
    """make mail: write the mails, and print who gets them and what a person does next."""
    sender = settings["SENDER"]
    if not sender:
        raise Error("SENDER='Name <address>' is missing: mails are written in the name of a person,"
                    " who reads, signs and sends them")
    out = settings.series.work / "mails"
    mails = write(settings.series, sender, out, version=settings["VERSION"], sign=settings["SIGN"])
    for mail in mails:
        say(str(mail))
    message = email.message_from_bytes(mails[0].read_bytes(), policy=email.policy.default)
    for role in ROLES:
        say(f"{role}: {message[role]}")
    if not settings["SIGN"]:
        say("without Signed-off-by: SIGN=1 adds yours, which certifies the origin of the patches")
    say(f"nothing was sent. docs/submitting.md says what to check; then: git send-email"
        f" --suppress-cc=author --suppress-cc=body {out}/*.patch")
    return 0
