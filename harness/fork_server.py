"""The server that workers are forked from: it ends with the command, however that ends, and leaves Ctrl-C to it.

`multiprocessing` ends it when a pipe closes that the command holds, but it looks at that pipe only once all is
imported, which takes vLLM ten seconds. So the server imports this module before anything else of ours.
"""

import os
import signal
from multiprocessing import forkserver, resource_tracker

from rehearsal.harness.parent import end_with_parent

_COMMAND = "REHEARSAL_COMMAND"
"""Environment variable that tells the server the command's pid."""


def ensure_running() -> None:
    """Start the server, unless it runs. Ctrl-C reaches the whole terminal group, and is not to end it half imported."""
    resource_tracker.ensure_running()  # it would lift the mask
    os.environ[_COMMAND] = str(os.getpid())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        del os.environ[_COMMAND]


def was_lost() -> bool:
    """Whether the server that was started has ended since, with all that it had forked."""
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    return pid is not None and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


if _COMMAND in os.environ:  # in the server
    end_with_parent(int(os.environ.pop(_COMMAND)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
