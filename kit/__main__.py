# SPDX-License-Identifier: GPL-2.0-only
"""The command line behind the Makefile: python3 -m kit COMMAND."""

import argparse
import importlib
import os
import signal
import sys

from kit.paths import BUILDS
from kit.run import Error

# Command, the module whose command(args) runs it, the groups of options it takes, help.
COMMANDS = (
    ("base", "kit.base", "", "fetch and import the base kernel"),
    ("tree", "kit.stack", "", "apply the patches to the base, one commit a patch"),
    ("export", "kit.stack", "", "write the tree's commits back to patches/"),
    ("refresh", "kit.stack", "", "move the stack to a newer base, reporting patch by patch"),
    ("kernel", "kit.kernel", "build", "configure and build a kernel"),
    ("boot", "kit.page", "build machine", "boot it, toggle every feature, show what moved"),
    ("shell", "kit.guest", "build machine", "a prompt in the guest"),
    ("selftest", "kit.guest", "build machine", "the stack's kernel selftests in the guest"),
    ("stress", "kit.guest", "build machine", "toggle the features under load and hotplug"),
    ("soak", "kit.guest", "build machine", "compare workloads with and without gathering"),
    ("checks", "kit.checks", "", "the checks of each patch"),
    ("litmus", "kit.litmus", "", "the litmus tests, with herd7"),
    ("bench-cost", "kit.bench.cost", "machine", "what the stack costs, against the base"),
    ("bench-host", "kit.bench.host", "", "benchmarks on this host, features off and on by turns"),
    ("bench-host-dir", "kit.bench.pack", "", "a directory with what measures, to copy to a host"),
    ("report", "kit.bench.summary", "", "all saved results on one page"),
    ("sim", "kit.bench.sim", "machine", "a workload on a simulated machine"),
    ("sim-validate", "kit.bench.validate", "", "the simulation against real machines"),
)


def parser():
    """The argument parser, for all commands."""
    top = argparse.ArgumentParser(prog="kit", description=__doc__)
    sub = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module, options, text in COMMANDS:
        command = sub.add_parser(name, help=text, description=text)
        command.set_defaults(module=module)
        if "build" in options:
            command.add_argument("--build", default=os.environ.get("BUILD") or "stack",
                                 help=f"one of {', '.join(BUILDS)} (default: stack)")
        if "machine" in options:
            command.add_argument("--machine", default=os.environ.get("MACHINE") or "two-ccx",
                                 help="a name from machines/ or a file (default: two-ccx)")
    return top


def stop(number, frame):
    """End on a signal by way of an exception: the default action would end python at once, and
    leave the programs that it started running."""
    # It may come more than once, and what cleans up must not be interrupted.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main(argv=None):
    """Run one command; its exit status. Errors of the user come out as text, status 1."""
    args = parser().parse_args(argv)
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, stop)
    try:
        if getattr(args, "build", "stack") not in BUILDS:
            raise Error(f"no such BUILD: {args.build} (there are: {', '.join(BUILDS)})")
        # Only the command that is asked for is imported: the others may need what is not there.
        return importlib.import_module(args.module).command(args)
    except (Error, PermissionError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
