"""Several servers of one kind, each in a process of its own."""

import contextlib
from collections.abc import Iterator

from harness.serving.config import ServeConfig
from harness.serving.process import ServerProcess


@contextlib.contextmanager
def fleet(config: ServeConfig, count: int) -> Iterator[list[ServerProcess]]:
    """Starts `count` servers on ports of their own of this machine for as long as the block lasts: they load side by
    side, and what becomes of one is nothing to the others. Each draws its replies' lengths from a seed of its own.

    UserError when they cannot begin.
    """
    local = {"host": "127.0.0.1", "port": 0}
    servers = [
        ServerProcess(config.model_copy(update={**local, "seed": config.seed + place}))
        for place in range(count)
    ]
    with contextlib.ExitStack() as stack:
        for server in servers:
            server.begin()
            stack.callback(server.end)
        for server in servers:
            server.wait()
        yield servers
