"""Serve until somebody says stop."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from rehearsal.engines.devices.profile import as_profile
from rehearsal.harness.clock import WallClockLoop
from rehearsal.harness.metrics.histogram import quantile
from rehearsal.harness.model_clock import ModelClockLoop
from rehearsal.harness.serving.config import ServeConfig, check, parameters, profile, token
from rehearsal.harness.serving.listening import address_of, allow_descriptors, bound, interruptible
from rehearsal.harness.serving.starting import starting

if TYPE_CHECKING:
    from rehearsal.engines.endpoint.metrics import LoopLag
    from rehearsal.engines.endpoint.server_stats import ServerStats
    from rehearsal.engines.endpoint.sessions import Sessions
    from rehearsal.engines.endpoint.websocket_server import WebSocketServer

STATUS_S = 5.0
"""[chosen] between two lines of what the server does."""

LEAVE_S = 10.0
"""Given to engines to end what they do when the server stops: [chosen] longer than any step."""


class Ready(NamedTuple):
    """The server listens. `url`: of its realtime endpoint; `metrics_url`: of its Prometheus metrics."""

    url: str
    metrics_url: str


class Status(NamedTuple):
    """What a server does now. `turns`, `ttfp_p50_s`: replies ended and their median since the status before, the
    latter interpolated in a histogram; None: there were none. `refused`: connections, since it began."""

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
) -> int:
    """Serve until SIGTERM or SIGINT; `ready` is called once clients can connect, `status` every few seconds. `loading`
    is called before, with the address where everybody is answered that the server starts.

    On the first signal nobody is let in any more and everybody is told (close code 1001); a second one does not wait
    for that. Returns the exit status: after SIGTERM 143, as of every process that it ends, and 0 after SIGINT, which is
    how whoever sees the server ends it. Must be called in the main thread. UserError when it cannot begin: everything
    that `check` says, or the port is taken.
    """
    check(config)
    if config.device == "virtual":  # what vLLM finds missing while it loads is modelled
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    allow_descriptors()
    asked: list[int] = []
    loop_factory = ModelClockLoop if config.device == "virtual" else WallClockLoop
    with (
        bound(config.host, config.port) as listener,
        contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError),
        interruptible(asked),
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        runner.run(_serve(config, listener, ready, status, loading, asked))
    return 128 + signal.SIGTERM if asked[:1] == [signal.SIGTERM] else 0


async def _serve(
    config: ServeConfig,
    listener: socket.socket,
    ready: Callable[[Ready], None],
    status: Callable[[Status], None] | None,
    loading: Callable[[str], None] | None,
    asked: list[int],
) -> None:
    with starting(listener):
        if loading is not None:
            loading(f"http://{address_of(listener)}")
        from rehearsal.engines.endpoint import metrics, websocket_server

        sessions = _loaded(config)
    loop, server = asyncio.get_running_loop(), sessions.server
    await asyncio.sleep(0.001)  # model time catches up with what loading took
    lag = metrics.LoopLag()
    render = metrics.Metrics(sessions.stats, lag).render
    endpoint = websocket_server.WebSocketServer(
        sessions.connect, config.limits, token(config.token_env), render, sessions.complete
    )
    stop = asyncio.Event()
    main = asyncio.current_task()
    assert main is not None

    def asked_to_stop(number: int) -> None:
        asked.append(number)
        if stop.is_set():
            main.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop, number)
    engines = server.start()
    extra = [loop.create_task(_tell(status, sessions.stats, endpoint, lag), name="status")] if status else []
    waiting = loop.create_task(stop.wait(), name="stop")
    try:
        endpoint.listen(listener)
        address = address_of(listener)
        ready(
            Ready(
                f"ws://{address}{websocket_server.REALTIME_PATH}",
                f"http://{address}{websocket_server.METRICS_PATH}",
            )
        )
        done, _ = await asyncio.wait({waiting, *engines, *extra}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # engines serve for ever, so one that is done has failed
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
    """Engines, warm, and the sessions that clients will have of them."""
    from rehearsal.engines.core import vllm_adapter
    from rehearsal.engines.endpoint.build import build_sessions

    vllm_adapter.use_clock(asyncio.get_running_loop().time)
    engine_params, server_params = parameters(config)
    replayed = profile(config, server_params)
    sessions = build_sessions(
        config.engine,
        engine_params,
        server_params,
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
    """A status every few seconds, for ever."""
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
