"""Serve until somebody says stop."""

import asyncio
import atexit
import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from engines.devices.profile import as_profile
from engines.server import ResolvedServer
from harness.clocks.clock import WallClockLoop
from harness.clocks.model_clock import ModelClockLoop
from harness.metrics.histogram import quantile
from harness.serving.listener import address_of, asked_to_stop, run_until_stopped
from harness.serving.serve_config import ServeConfig, check, parameters, profile, token
from harness.serving.starting import starting

if TYPE_CHECKING:
    from engines.endpoint.metrics import LoopLag
    from engines.endpoint.server_sessions import Sessions
    from engines.endpoint.server_stats import ServerStats
    from engines.endpoint.websocket_server import WebSocketServer

STATUS_S = 5.0
"""[chosen] between two lines of what the server does."""

LEAVE_S = 10.0
"""Given to engines to end what they do when the server stops: [chosen] longer than any step."""


class Ready(NamedTuple):
    """The server listens. `url`: where clients call; `metrics_url`: of its Prometheus metrics."""

    url: str
    metrics_url: str


class Status(NamedTuple):
    """The present state of a server. `turns`, `ttfp_p50_s`: replies ended and their median since the last status,
    the latter interpolated in a histogram; None: there were none. `refused`: connections rejected since the server
    began."""

    sessions: int
    turns: int
    refused: int
    ttfp_p50_s: float | None
    loop_lag_ms: float


def serve(
    config: ServeConfig,
    ready: Callable[[Ready], None],
    status: Callable[[Status], None] | None = None,
    loading: Callable[[str], None] | None = None,
    draining: Callable[[int, float], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; `ready` is called once clients can connect, `status` every few seconds. `loading`
    is called before, with the address that answers clients while the server starts; `draining` after SIGTERM, with
    the number of running replies and their time limit, s: 0 when that is over.

    After SIGTERM new clients are rejected, running replies get up to `config.drain_s`, and all sessions are closed
    (code 1001). After SIGINT all sessions are closed at once. A second signal waits for nothing. Returns the exit
    status: 0, or after a second signal 128 and its number. Must be called in the main thread. UserError when it cannot
    begin: everything that `check` says, or the port is taken.
    """
    check(config)
    if config.device == "virtual":  # what vLLM finds missing while it loads is modelled
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    slower = parameters(config)[1].slower
    loop_factory = partial(ModelClockLoop, slower) if config.device == "virtual" else WallClockLoop
    main = partial(_serve, config, ready, status, loading, draining)
    return run_until_stopped(config.host, config.port, loop_factory, main)


def leave(status: int) -> NoReturn:
    """End this process, which has served, without the interpreter's final pass over all objects: vLLM has made
    millions, and that takes 4 s of a core, or a minute of a busy one."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # nobody reads on
            stream.flush()
    os._exit(status)


async def _serve(
    config: ServeConfig,
    ready: Callable[[Ready], None],
    status: Callable[[Status], None] | None,
    loading: Callable[[str], None] | None,
    draining: Callable[[int, float], None] | None,
    listener: socket.socket,
    asked: list[int],
) -> None:
    with starting(listener):
        if loading is not None:
            loading(f"http://{address_of(listener)}")
        from engines.endpoint import entrance, metrics, websocket_server

        sessions = _loaded(config)
    loop, server = asyncio.get_running_loop(), sessions.server
    await asyncio.sleep(0.001)  # model time catches up with what loading took
    lag = metrics.LoopLag(parameters(config)[1].slower)
    render = metrics.Metrics(sessions.stats, lag).render
    endpoint = websocket_server.WebSocketServer(
        sessions.connect, config.limits, token(config.token_env), render, sessions.posted, sessions.model
    )
    stop = asked_to_stop(asked)
    engines = server.start()
    extra = [loop.create_task(_tell(status, sessions.stats, endpoint, lag), name="status")] if status else []
    waiting = loop.create_task(stop.wait(), name="stop")
    try:
        endpoint.listen(listener)
        address, posted = address_of(listener), endpoint.posted
        url = f"ws://{address}{entrance.REALTIME_PATH}"
        if posted is not None and posted.only:
            url = f"http://{address}{posted.path}"
        ready(Ready(url, f"http://{address}{entrance.METRICS_PATH}"))
        done, _ = await asyncio.wait({waiting, *engines, *extra}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # engines serve for ever, so one that is done has failed
        if asked[0] == signal.SIGTERM:
            if draining is not None and endpoint.busy:
                draining(endpoint.busy, config.drain_s)
            left = await endpoint.drain(config.drain_s)
            if draining is not None and left:
                draining(left, 0.0)
        await endpoint.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.settle(), LEAVE_S)
    finally:
        for task in (waiting, *engines, *extra):
            task.cancel()
        lag.stop()
        await asyncio.gather(waiting, *engines, *extra, return_exceptions=True)
        server.close()
        gc.unfreeze()


def _loaded(config: ServeConfig) -> "Sessions":
    """Return warm engines, and the sessions that clients will have of them."""
    from engines.core import vllm_adapter
    from engines.endpoint.server_sessions import build_sessions

    vllm_adapter.use_clock(asyncio.get_running_loop().time)
    engine_params, server_params = parameters(config)
    served = ResolvedServer.of(server_params)
    replayed = profile(config, server_params, served.deployment)
    sessions = build_sessions(
        config.engine,
        engine_params,
        served,
        config.seed,
        config.device,
        as_profile(replayed, "the profile") if replayed is not None else None,
        config.frame_s,
    )
    sessions.server.warm_up()
    gc.collect()
    gc.freeze()  # models and libraries are not looked through again while clients wait
    return sessions


async def _tell(
    status: Callable[[Status], None], stats: "ServerStats", endpoint: "WebSocketServer", lag: "LoopLag"
) -> None:
    """Report a status every few seconds, for ever."""
    ttfp, turns = list(stats.ttfp_s.counts), sum(stats.turns.values())
    while True:
        await asyncio.sleep(STATUS_S)
        now = list(stats.ttfp_s.counts)
        new = [after - before for after, before in zip(now, ttfp, strict=True)]
        ended = sum(stats.turns.values())
        status(
            Status(
                endpoint.sessions,
                ended - turns,
                sum(endpoint.refused.values()),
                quantile(stats.ttfp_s.bounds, new, 0.5),
                1e3 * lag.largest_s(STATUS_S),
            )
        )
        ttfp, turns = now, ended
