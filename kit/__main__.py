# SPDX-License-Identifier: GPL-2.0-only
"""The commands behind the Makefile: python3 -m kit COMMAND [NAME=VALUE]..."""

import argparse
import importlib
import os
import signal
import sys

from kit import settings
from kit.process import Error, missing

# Command, the module whose command(args) runs it, help.
COMMANDS = (
    ("base", "kit.stack.base", "fetch and import the base kernel"),
    ("tree", "kit.stack.patches", "apply the patches to the base, one commit a patch"),
    ("export", "kit.stack.patches", "write the tree's commits back to patches/"),
    ("refresh", "kit.stack.patches", "move the series to a newer base, reporting patch by patch"),
    ("bundle", "kit.stack.bundle", "one tarball with the patches, for people without this repository"),
    ("kernel", "kit.vm.kernel", "configure and build a kernel"),
    ("deb", "kit.vm.deb", "Debian packages of the patched kernel, for hosts"),
    ("deb-test", "kit.vm.deb", "install those packages in a Debian, boot it, and remove them again"),
    ("boot", "kit.vm.demo", "boot the kernel, toggle every feature, show what each one changes"),
    ("shell", "kit.vm.guest", "a prompt in the guest"),
    ("selftest", "kit.vm.guest", "the series' kernel selftests in the guest"),
    ("stress", "kit.vm.guest", "toggle the features under load and CPU hotplug"),
    ("torture", "kit.trials.torture", "all at once that could break the scheduler, with random numbers"),
    ("races", "kit.trials.races", "each known race, with the protection against it and without"),
    ("abuse", "kit.trials.abuse", "what an unprivileged user can do to the wakeups of others"),
    ("irqsoff", "kit.trials.irqsoff", "the longest sections with interrupts off, without the patches and with them"),
    ("soak", "kit.vm.guest", "compare workloads with and without aggregation"),
    ("checks", "kit.vm.checks", "the checks of each patch and of the whole series"),
    ("each-patch", "kit.stack.each", "build and boot each patch with the selftests that exist by then"),
    ("mail", "kit.stack.mail", "the series as mails in a directory, for a person to send"),
    ("litmus", "kit.stack.litmus", "the litmus tests, with herd7"),
    ("bench-cost", "kit.cost.measure", "instructions and memory that the patches cost"),
    ("bench-host", "kit.host.measure", "benchmarks on this host, features off and on in turn"),
    ("bench-host-dir", "kit.host.portable", "a directory with bench-host, to copy to a host"),
    ("calibrate", "kit.host.calibrate", "measure this host's caches, for the simulation"),
    ("report", "kit.pages.report", "all saved results on one page"),
    ("sim", "kit.sim.simulate", "a workload on a simulated machine"),
    ("sim-all", "kit.sim.experiments", "all declared experiments on simulated machines"),
    ("sim-validate", "kit.sim.validate", "compare the simulation with published results"),
    ("test", "kit.tests", "all tests but the long ones: fast ones first, then patches, then guests"),
    ("test-fast", "kit.tests", "the tests that need this host only"),
    ("test-patches", "kit.tests", "the tests of each patch and of other configurations"),
    ("test-boot", "kit.tests", "the tests that boot guests"),
    ("test-long", "kit.tests", "soak and validation of the simulation"),
    ("settings", "kit.settings", "list all settings and the commands that take them"),
)


def parser():
    """The argument parser, for all commands."""
    top = argparse.ArgumentParser(prog="kit", description=__doc__)
    sub = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module, text in COMMANDS:
        command = sub.add_parser(
            name, help=text, description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="\n".join(["settings:", *settings.text(settings.of(name))]))
        command.set_defaults(module=module)
        command.add_argument("settings", nargs="*", metavar="NAME=VALUE",
                             help="a setting; the environment is read too")
    return top


def take(args):
    """Put the settings behind the command into the environment, and check all of them. Error for
    what is no setting of the command."""
    names = settings.given(os.environ.get("MAKEFLAGS", ""))
    for text in args.settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise Error(f"{text}: a setting is NAME=VALUE; python3 -m kit {args.command} --help"
                        " lists them")
        names.append(name)
        os.environ[name] = value
    settings.check(args.command, names)


def stop(number, frame):
    """End on a signal by way of an exception: the default action would end python at once, and
    leave the programs that it started running."""
    # The signal may come more than once, and the cleanup must not be interrupted.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def main(argv=None):
    """Run one command; its exit status. Errors of the user come out as text, status 1."""
    args = parser().parse_args(argv)
    for sig in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, stop)
    try:
        take(args)
        # Only the command's own module is imported: other modules may need packages that are not
        # installed. And paths.py reads settings when it is imported.
        return importlib.import_module(args.module).command(args)
    except ModuleNotFoundError as error:
        if (error.name or "kit").partition(".")[0] == "kit":
            raise
        print(f"error: {missing(error.name.partition('.')[0])}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the output, such as head, has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Error, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
