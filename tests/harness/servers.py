"""Servers that clients call in virtual or real time, without an engine."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from harness.client.client_params import ClientParams
from harness.clocks.clock import run
from harness.events.log import EventLog
from tests.population import serve_population
from workloads.trace import Trace, Turn

Server = TypeVar("Server")


class Answering:
    """Answers a turn in full after what `lasts` has for it, s, with its text halfway; None: never.

    `closed`: when each session left, s. `most`: sessions that were on line at once.
    """

    def __init__(self, lasts: Callable[[Turn], float | None] = lambda turn: 0.0) -> None:
        self.lasts = lasts
        self.listeners: dict[int, Any] = {}
        self.closed: dict[int, float] = {}
        self.most = 0

    def open(self, session: int, listener: Any) -> None:
        self.listeners[session] = listener
        self.most = max(self.most, len(self.listeners))

    def close(self, session: int) -> None:
        del self.listeners[session]
        self.closed[session] = asyncio.get_running_loop().time()

    def commit(self, turn: Turn, end_s: float) -> None:
        lasts_s = self.lasts(turn)
        if lasts_s is None:
            return
        listener, loop = self.listeners[turn.session], asyncio.get_running_loop()
        if turn.reply_audio_s:
            loop.call_later(lasts_s / 2, listener.audio, turn.turn, turn.reply_audio_s)
        else:
            loop.call_later(lasts_s / 2, listener.text, turn.turn, turn.output_tokens)
        loop.call_later(lasts_s, listener.reply_done, turn.turn)

    def _nothing(self, *_: Any) -> None:
        """What users say besides changes nothing."""

    speech_start = reports = playback_ack = playback_done = barge_in = _nothing


def played(
    trace: Trace,
    make: Callable[[], Server],
    *,
    virtual: bool = True,
    replicas: int = 1,
    held_s: tuple[float, float] | None = None,
    **client: Any,
) -> tuple[Any, Server]:
    """The events of the users of `trace` at the server that `make` gives, and that server. `held_s`: when something
    else holds their thread, and for how long, s."""
    log = EventLog()

    async def main() -> Server:
        if held_s is not None:
            asyncio.get_running_loop().call_later(held_s[0], time.sleep, held_s[1])
        server = make()
        await serve_population(trace, server, log, ClientParams(**client), replicas)
        if (ticks := getattr(server, "ticks", None)) is not None:
            ticks.cancel()
        return server

    server = run(main(), virtual=virtual)
    return log.events().to_pandas().astype({"kind": str}), server
