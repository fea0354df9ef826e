"""A server of ours over real sockets, in the test's own loop."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

from engines.core import vllm_adapter
from engines.endpoint.limits import Limits
from engines.endpoint.metrics import LoopLag, Metrics
from engines.endpoint.server_sessions import Sessions, build_sessions
from engines.endpoint.websocket_server import WebSocketServer
from engines.registry import ENGINES
from engines.server import ResolvedServer, ServerParams
from tests.waiting import WITHIN_S
from workloads.trace import Turn


@dataclass
class Server:
    """`turns`: what the engine was asked."""

    sockets: WebSocketServer
    sessions: Sessions
    port: int
    turns: list[Turn]

    def client(self, key: str = "none") -> AsyncOpenAI:
        where = f"127.0.0.1:{self.port}/v1"
        return AsyncOpenAI(api_key=key, base_url=f"http://{where}", websocket_base_url=f"ws://{where}", max_retries=0)

    async def post(self, body: bytes, head: str = "") -> tuple[int, dict[str, Any]]:
        """Status and body of the answer to a request that is refused."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        lines = f"POST /v1/chat/completions HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n{head}\r\n"
        writer.write(lines.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        content = json.loads(await reader.readexactly(length))
        writer.close()
        return int(answer.split()[1]), content


@asynccontextmanager
async def served(
    engine: str = "vllm_omni_wo", token: str | None = None, limits: Limits | None = None, **chosen: Any
) -> AsyncIterator[Server]:
    """A server of `engine`; `chosen`: parameters of the engine and of the server."""
    vllm_adapter.use_clock(asyncio.get_running_loop().time)
    fields = ENGINES[engine].fields({})
    params = {name: value for name, value in chosen.items() if name in fields}
    rest = {"deployment": "llama_8b_1gpu", **{name: chosen[name] for name in chosen.keys() - params.keys()}}
    sessions = build_sessions(
        engine, ENGINES[engine].read(params), ResolvedServer.of(ServerParams.model_validate(rest)), 7
    )
    gateway, turns = sessions.server.gateway, []
    if sessions.posted is not None:
        commit = gateway.commit
        gateway.commit = lambda turn, end_s: (turns.append(turn), commit(turn, end_s))
    lag = LoopLag()
    render = Metrics(sessions.stats, lag).render
    sockets = WebSocketServer(
        sessions.connect, limits or Limits.model_validate({}), token, render, sessions.posted, sessions.model
    )
    listener = socket.create_server(("127.0.0.1", 0))
    sockets.listen(listener)
    tasks = sessions.server.start()
    yield Server(sockets, sessions, listener.getsockname()[1], turns)
    await sockets.close()
    lag.stop()
    assert sockets.sessions == 0 and sockets.begun == sum(sockets.closed.values())
    await asyncio.wait_for(sessions.server.settle(), WITHIN_S)
    assert sessions.stats.replies == 0  # nothing is followed for ever
    for task in tasks:
        task.cancel()
