"""The servers that workers are forked from: they end with the command, however that ends, and leave Ctrl-C to it.

There is one for the vLLM that is installed, and one for each other release of it that points run on.

`multiprocessing` ends one when a pipe closes that the command holds, but it looks at that pipe only once all is
imported, which takes vLLM ten seconds. So a server imports this module before anything else of ours.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

from harness.clocks.parent import end_with_parent

_COMMAND = "REHEARSAL_COMMAND"
"""Environment variable that tells the server the command's pid."""
PRELOAD = "harness.replays.worker.preload"
"""The module that imports vLLM."""
_usual: Any = vars(forkserver)["_forkserver"]
_servers: dict[Path | None, Any] = {None: _usual}


@contextmanager
def server_of(folder: Path | None, environment: Mapping[str, str]) -> Iterator[None]:
    """Let `multiprocessing` fork from the server whose path begins with `folder`, for the time of this context, in
    which the server runs. `environment`: variables for the server at its start, that path included. Without a folder it
    is the usual server."""
    if folder is None:
        _ensure_running(_usual)
        yield
        return
    server = _servers.setdefault(folder, forkserver.ForkServer())
    server.set_forkserver_preload(_usual._preload_modules)
    path, variables = list(sys.path), dict(os.environ)
    sys.path.insert(0, str(folder))  # which workers are given,
    os.environ.update(environment)  # and this the server
    connect = forkserver.connect_to_new_process
    forkserver.connect_to_new_process = server.connect_to_new_process
    try:
        _ensure_running(server)
        yield
    finally:
        forkserver.connect_to_new_process = connect
        sys.path[:] = path
        for name in environment:
            if name in variables:
                os.environ[name] = variables[name]
            else:
                del os.environ[name]


def prepare(preload: Sequence[str]) -> None:
    """Set what the usual server imports when it starts: this module, then `preload`."""
    # The order of sets of strings depends on the hash seed; no result may, not even by accident.
    os.environ["PYTHONHASHSEED"] = "0"
    forkserver.set_forkserver_preload([__name__, "harness.replays.worker.isolation", *preload])


def start() -> None:
    """Start the usual server before a worker is needed: it imports vLLM for seconds while the command goes on."""
    prepare((PRELOAD,))
    _ensure_running(_usual)


def _ensure_running(server: Any) -> None:
    """Start it unless it runs. Ctrl-C reaches the whole terminal group and must not end it half imported."""
    resource_tracker.ensure_running()  # it would lift the mask
    os.environ[_COMMAND] = str(os.getpid())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        server.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        del os.environ[_COMMAND]


def end() -> None:
    """End the servers, and with them their workers. One that still imports keeps whoever waits for a worker."""
    for server in _servers.values():
        if server._forkserver_pid is not None:
            os.kill(server._forkserver_pid, signal.SIGKILL)


def was_lost() -> bool:
    """Return whether a started server has ended since, with everything forked from it."""
    return any(
        os.waitid(os.P_PID, server._forkserver_pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        for server in _servers.values()
        if server._forkserver_pid is not None
    )


if _COMMAND in os.environ:  # in the server
    end_with_parent(int(os.environ.pop(_COMMAND)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
