"""A process that ends with its parent, whatever the two do at that moment."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent ends; at once if that has ended already.

    The kernel takes the end of the thread that started the process for the parent's end, so the main thread must start
    it.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)
