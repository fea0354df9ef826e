"""The socket server with sessions that only note the messages that they get."""

import asyncio
import contextlib
import functools
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from engines.endpoint.limits import Limits
from engines.endpoint.metrics import LoopLag, Metrics
from engines.endpoint.protocol import Outbox
from engines.endpoint.server_stats import ServerStats
from engines.endpoint.websocket_server import WebSocketServer
from harness.clocks.clock import WallClockLoop
from harness.clocks.model_clock import ModelClockLoop
from tests.waiting import run, until


def on_each_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test, run as a coroutine on each kind of loop that serves."""
    parameters = inspect.signature(test).parameters.values()
    loop = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)

    @functools.wraps(test)
    def started(loop: Callable[[], asyncio.AbstractEventLoop], **named: Any) -> None:
        run(test(**named), loop)

    started.__dict__["__signature__"] = inspect.Signature([*parameters, loop])
    return pytest.mark.parametrize("loop", [WallClockLoop, ModelClockLoop])(started)


@dataclass
class Noted:
    """A session: sends hello, answers each message with its length, and floods on demand."""

    outbox: Outbox
    messages: list[str | bytes] = field(default_factory=list)
    ends: int = 0
    busy: bool = False

    def begin(self) -> None:
        self.outbox.send(b"hello")

    def receive(self, message: str | bytes) -> None:
        self.messages.append(message)
        if message == "flood":
            for _ in range(1000):
                self.outbox.send(b"x" * 100_000)
        elif message == "break":
            raise RuntimeError("a mistake of ours")
        elif message == "leave":
            self.outbox.close(4000, "as asked")
        else:
            self.outbox.send(b"%d" % len(message))

    def end(self) -> None:
        self.ends += 1


@dataclass
class Running:
    """`mistakes`: exceptions of ours. A test that causes one on purpose empties the list."""

    server: WebSocketServer
    port: int
    sessions: list[Noted]
    stats: ServerStats
    mistakes: list[str]

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/realtime"

    async def raw(self, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(text)
        return reader, writer

    async def until(self, true: Callable[[], bool]) -> None:
        await until(true)


@contextlib.asynccontextmanager
async def opened(token: str | None = None, **limits: Any) -> AsyncIterator[Running]:
    sessions: list[Noted] = []
    mistakes: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: mistakes.append(repr(context.get("exception", context["message"])))
    )

    def meet(outbox: Outbox) -> Any:  # has what the server uses of a session
        sessions.append(Noted(outbox))
        return sessions[-1]

    lag, stats = LoopLag(), ServerStats("thinker")
    server = WebSocketServer(meet, Limits.model_validate(limits), token, Metrics(stats, lag).render)
    listener = socket.create_server(("127.0.0.1", 0))
    server.listen(listener)
    try:
        yield Running(server, listener.getsockname()[1], sessions, stats, mistakes)
    finally:
        await server.close()
        lag.stop()
        assert server.sessions == 0 and server.sockets == 0
        assert all(session.ends == 1 for session in sessions), "every session ends once"
        assert server.begun == sum(server.closed.values())
        assert mistakes == []


async def closed(client: ClientConnection) -> tuple[int, str]:
    """Read to the end; the code and the reason with which the server closed."""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await client.recv()
    return client.close_code or 0, client.close_reason or ""


async def fetch(running: Running, path: str, *headers: str) -> tuple[int, str]:
    lines = "".join(f"{header}\r\n" for header in ("Host: here", *headers))
    reader, writer = await running.raw(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body
