"""A proxy between sockets: its clients, and servers that answer as a script says."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from harness.proxy import ProxyConfig
from harness.proxy.proxy_server import running
from harness.serving.listener import bound
from tests.waiting import until

SSE = {"Content-Type": "text/event-stream"}
Answer = Callable[["Scripted", web.Request], Awaitable[web.StreamResponse]]


class Scripted:
    """A server that answers as `answer` says. `bodies`: of the requests that have come."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[Any] = []
        self.step = asyncio.Semaphore(0)
        self.left = asyncio.Event()
        self.runner: web.AppRunner
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        async def post(request: web.Request) -> web.StreamResponse:
            self.bodies.append(await request.json())
            try:
                return await self.answer(self, request)
            except asyncio.CancelledError:
                self.left.set()
                raise

        async def health(_: web.Request) -> web.StreamResponse:
            return web.Response(text="ok")

        async def models(_: web.Request) -> web.StreamResponse:
            return web.json_response({"data": [{"id": "shared"}, {"id": f"only-{self.port}"}]})

        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", post), web.post("/v1/completions", post)])
        app.add_routes([web.get("/health", health), web.get("/v1/models", models)])
        app.add_routes([web.get("/v1/realtime", echo)])
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self.runner.addresses[0][1]


async def echo(request: web.Request) -> web.StreamResponse:
    """A session that says what it hears and obeys two words."""
    ws = web.WebSocketResponse(protocols=["realtime"])
    await ws.prepare(request)
    async for message in ws:
        if message.data == "die":
            request.transport.abort()  # type: ignore[union-attr]
        elif message.data == "go":
            await ws.close(code=1013, message=b"full")
        else:
            await ws.send_str(f"{request.headers.get('Authorization')} {message.data}")
    return ws


async def whole(_: Scripted, request: web.Request) -> web.StreamResponse:
    return web.json_response({"said": await request.json()})


async def stepwise(server: Scripted, request: web.Request) -> web.StreamResponse:
    """A piece of the stream for every time that `step` is released, three in all."""
    out = web.StreamResponse(headers=SSE)
    await out.prepare(request)
    for n in range(3):
        await server.step.acquire()
        await out.write(f"data: {n}\n\n".encode())
    return out


async def status_503(_: Scripted, request: web.Request) -> web.StreamResponse:
    return web.Response(status=503, text="full")


async def hangs_up(_: Scripted, request: web.Request) -> web.StreamResponse:
    """After the head of its answer and before anything of the body."""
    out = web.StreamResponse(headers=SSE)
    await out.prepare(request)
    request.transport.abort()  # type: ignore[union-attr]
    return out


def breaks_off(headers: dict[str, str]) -> Answer:
    async def answer(_: Scripted, request: web.Request) -> web.StreamResponse:
        out = web.StreamResponse(headers=headers)
        await out.prepare(request)
        await out.write(b'data: {"half": ')
        request.transport.close()  # type: ignore[union-attr]  (what is written goes out)
        return out

    return answer


class Proxied:
    """A proxy before scripted servers, and a client."""

    def __init__(self, url: str, servers: list[Scripted], client: aiohttp.ClientSession) -> None:
        self.url = url
        self.servers = servers
        self.client = client

    def post(self, content: str = "hello", headers: dict[str, str] | None = None, **more: Any) -> Any:
        body = {"messages": [{"role": "user", "content": content}], **more}
        return self.client.post(f"{self.url}/v1/chat/completions", json=body, headers=headers)

    async def status(self, path: str = "", headers: dict[str, str] | None = None) -> int:
        """Of the answer to what is got at `path`, without one to a `post`."""
        asked = self.client.get(f"{self.url}{path}") if path else self.post(headers=headers)
        async with asked as answer:
            return answer.status

    async def measured(self) -> dict[str, float]:
        """Its metrics, labels as they stand there."""
        return await measured(self.client, self.url)

    async def settled(self) -> dict[tuple[int, str], int]:
        """Requests by the server's place and outcome, once nothing is in flight any more."""
        places = {server.url: place for place, server in enumerate(self.servers)}
        counted = await settled(self.client, self.url)
        return {(places[server], outcome): count for (server, outcome), count in counted.items()}


async def measured(client: aiohttp.ClientSession, url: str) -> dict[str, float]:
    async with client.get(f"{url}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    return {name: float(value) for name, value in (each.rsplit(" ", 1) for each in lines if each[0] != "#")}


async def settled(client: aiohttp.ClientSession, url: str) -> dict[tuple[str, str], int]:
    """Requests by the server's url and outcome, once nothing is in flight any more."""

    async def quiet() -> dict[str, float] | None:
        now = await measured(client, url)
        return None if any(value for name, value in now.items() if "_in_flight" in name) else now

    now = await until(quiet)
    shape = re.compile(r'rehearsal_proxy_requests_total\{outcome="(\w+)",server="([^"]+)"\}')
    return {
        (found[2], found[1]): int(value)
        for name, value in now.items()
        if value and (found := shape.fullmatch(name))
    }


@asynccontextmanager
async def proxied(*answers: Answer, router: str = "round_robin", **config: Any) -> AsyncIterator[Proxied]:
    servers = [Scripted(answer) for answer in answers]
    for server in servers:
        await server.start()
    urls = tuple(server.url for server in servers)
    with bound("127.0.0.1", 0) as listener:
        async with (
            running(ProxyConfig(urls=urls, router=router, **config), listener),
            aiohttp.ClientSession() as client,
        ):
            yield Proxied(f"http://127.0.0.1:{listener.getsockname()[1]}", servers, client)
    for server in servers:
        await server.runner.cleanup()
