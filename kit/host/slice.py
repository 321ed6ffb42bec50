# SPDX-License-Identifier: GPL-2.0-only
"""python3 -m kit.host.slice NANOSECONDS COMMAND...: run a command with a slice of its own, which
its children take over, as `chrt --other --sched-runtime` does from util-linux 2.41 on."""

import ctypes
import os
import struct
import sys

SYS_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}

if __name__ == "__main__":
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period. It sets the nice
    # value too, and only root may lower that.
    attr = struct.pack("=IIQiIQQQ", 48, 0, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, int(sys.argv[1]), 0, 0)
    number = SYS_SCHED_SETATTR.get(os.uname().machine) or sys.exit("slice: not for this processor")
    if ctypes.CDLL(None, use_errno=True).syscall(number, 0, attr, 0):
        sys.exit(f"slice: sched_setattr: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[2], sys.argv[2:])
