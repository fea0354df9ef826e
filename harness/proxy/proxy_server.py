"""The proxy on its socket, until somebody says stop."""

import asyncio
import contextlib
import hmac
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import aiohttp
import uvloop
from aiohttp import web

from engines.endpoint.host_names import is_own, only_local
from harness.proxy.backends import Backend, Pool, keep_looking
from harness.proxy.counters import Counters
from harness.proxy.forward import Forward, error
from harness.proxy.proxy_config import ProxyConfig, check, rule
from harness.serving.listener import address_of, asked_to_stop, run_until_stopped
from harness.serving.serve_config import token

CONNECT_S = 5.0
"""[chosen] in which a server must take a connection."""

KEPT_S = 2.0
"""[chosen] for which a connection without a request is kept: below the 5 s of most servers, or a request would meet its
end."""

LEAVE_S = 2.0
"""[chosen] in which requests under way may end when the proxy stops."""

DRAIN_S = 0.02
"""[chosen] between two looks whether anything is under way."""

BODY_BYTES = 64 * 2**20
"""[chosen] of a request: images and sound come within."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(
    config: ProxyConfig, ready: Callable[[str], None], draining: Callable[[], None] | None = None
) -> int:
    """Serve until SIGTERM or SIGINT; `ready` gets the address once clients can connect.

    After SIGTERM `draining` is called, no connection is accepted any more, and running requests get up to
    `config.drain_s`; after SIGINT `LEAVE_S`; a second signal waits for nothing. Must be called in the main thread.
    Returns the exit status, as `harness.serving.serve` does. UserError when it cannot begin.
    """
    check(config)

    async def main(listener: socket.socket, asked: list[int]) -> None:
        stop = asked_to_stop(asked)
        async with running(config, listener) as (site, pool):
            ready(f"http://{address_of(listener)}")
            await stop.wait()
            if asked[0] == signal.SIGTERM:
                if draining is not None:
                    draining()
                await site.stop()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(config.drain_s):
                        while pool.busy:
                            await asyncio.sleep(DRAIN_S)

    return run_until_stopped(config.host, config.port, uvloop.new_event_loop, main)


@contextlib.asynccontextmanager
async def running(config: ProxyConfig, listener: socket.socket) -> AsyncIterator[tuple[web.BaseSite, Pool]]:
    """Run a listening proxy for as long as the block lasts. Yields its address."""
    pool = Pool([Backend(url, config.max_in_flight) for url in config.urls], rule(config))
    counters = Counters(pool)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S),
        timeout=timeout,
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept-Encoding", "Accept", "Content-Type"),
    ) as client:
        app = _app(pool, counters, client, token(config.token_env), only_local(listener))
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=LEAVE_S)
        await runner.setup()
        probing = asyncio.create_task(keep_looking(pool, client), name="probe")
        try:
            site = web.SockSite(runner, listener)
            await site.start()
            yield site, pool
        finally:
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
            await runner.cleanup()


def _app(
    pool: Pool, counters: Counters, client: aiohttp.ClientSession, shown: str | None, local: bool
) -> web.Application:
    async def health(_: web.Request) -> web.StreamResponse:
        if any(each.alive for each in pool.backends):
            return web.Response(text="ok\n")
        return web.Response(
            status=HTTPStatus.SERVICE_UNAVAILABLE, text="no server behind the proxy answers\n"
        )

    async def metrics(_: web.Request) -> web.StreamResponse:
        return web.Response(body=counters.render(), headers={"Content-Type": "text/plain; version=0.0.4"})

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject a request without the token, and report any other error in OpenAI's form. Without a token only this
        machine is answered, by its own names."""
        if shown is None and local and not is_own(request.headers.get("Host", "localhost")):
            return error(HTTPStatus.FORBIDDEN, "Host is another site's name; call this proxy localhost")
        if shown is not None and request.path != "/health":
            scheme, _, said = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(said.strip().encode(), shown.encode()):
                return error(HTTPStatus.UNAUTHORIZED, "Authorization: Bearer TOKEN is missing or wrong")
        try:
            return await handler(request)
        except web.HTTPException as refused:
            return error(HTTPStatus(refused.status), f"{request.method} {request.path}: {refused.reason}")

    forward = Forward(pool, counters, client)
    app = web.Application(client_max_size=BODY_BYTES, middlewares=[guarded])
    app.add_routes(
        [
            web.post("/v1/completions", forward.completion),
            web.post("/v1/chat/completions", forward.completion),
            web.get("/v1/realtime", forward.realtime),
            web.get("/v1/models", forward.models),
            web.get("/health", health),
            web.get("/metrics", metrics),
        ]
    )
    return app
