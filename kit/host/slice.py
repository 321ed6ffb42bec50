# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit.host.slice NANOSECONDS COMMAND...: run a command with a slice of its own, which
its children take over, as `chrt --other --sched-runtime` does from util-linux 2.41 on."""

import ctypes
import os
import sys

SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}


class Attr(ctypes.Structure):
    """struct sched_attr, as far as its first version goes."""
    _fields_ = [("size", ctypes.c_uint32), ("policy", ctypes.c_uint32),
                ("flags", ctypes.c_uint64), ("nice", ctypes.c_int32),
                ("priority", ctypes.c_uint32), ("runtime", ctypes.c_uint64),
                ("deadline", ctypes.c_uint64), ("period", ctypes.c_uint64)]


def main(argv):
    """Set the slice and become the command; give 1 with a line on stderr if that fails."""
    if len(argv) < 2 or not argv[0].isdigit():
        print("usage: python3 -m kit.host.slice NANOSECONDS COMMAND...", file=sys.stderr)
        return 1
    number = SYS_SCHED_SETATTR.get(os.uname().machine)
    if number is None:
        print(f"slice: not known how to on {os.uname().machine}", file=sys.stderr)
        return 1
    # It sets the nice value too, and only root may lower that.
    attr = Attr(size=ctypes.sizeof(Attr), nice=os.getpriority(os.PRIO_PROCESS, 0), runtime=int(argv[0]))
    if ctypes.CDLL(None, use_errno=True).syscall(number, 0, ctypes.byref(attr), 0):
        print(f"slice: sched_setattr: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        return 1
    try:
        os.execvp(argv[1], argv[1:])
    except OSError as error:
        print(f"slice: {argv[1]}: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
