# SPDX-License-Identifier: GPL-2.0-only
"""The commands behind the Makefile: python3 -m kit COMMAND [NAME=VALUE]..."""

import argparse
import importlib
import os
import signal
import sys

from kit import settings
from kit.commands import COMMANDS
from kit.process import Error, missing


def parser():
    """The argument parser, for all commands."""
    top = argparse.ArgumentParser(prog="kit", description=__doc__)
    sub = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for one in COMMANDS.values():
        if not one.module:
            continue
        command = sub.add_parser(
            one.name, help=one.help, description=one.help,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="\n".join(["settings:", *settings.text(settings.of(one.name))]))
        command.set_defaults(module=one.module)
        command.add_argument("settings", nargs="*", metavar="NAME=VALUE",
                             help="a setting; the environment is read too")
    return top


def take(args):
    """The Settings of the command, of the words behind it and of the environment. Error for what is no
    setting of the command."""
    names, env = settings.given(os.environ.get("MAKEFLAGS", "")), dict(os.environ)
    for text in args.settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise Error(f"{text}: a setting is NAME=VALUE; python3 -m kit {args.command} --help"
                        " lists them")
        names.append(name)
        env[name] = value
    settings.check(args.command, names)
    return settings.read(args.command, env)


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
        given = take(args)
        # Only the command's own module is imported: other modules may need packages that are not
        # installed.
        return importlib.import_module(args.module).command(given)
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
