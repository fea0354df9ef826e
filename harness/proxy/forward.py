"""A request or a WebSocket session goes to a server and what comes back goes to the client, piece by piece.

Nothing is sent to the client before the server's first piece is there: until then the request can go elsewhere.
"""

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from zlib import crc32

import aiohttp
from aiohttp import web

from engines.core.lifecycle import Lifecycle, Phase
from harness.proxy.backends import Call, NobodyAnswers, Pool, look
from harness.proxy.counters import Counters

HOP_BY_HOP = {
    "connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade",
}  # fmt: skip
"""Headers of one connection, which are not handed on (RFC 9110, section 7.6.1); `Host` names the next server."""

ELSEWHERE = {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
"""With which a server says that it cannot now: another may."""

SESSION = "X-Session-Id"
"""Header by which a client says which of its requests belong together; else the body's `user`, else the connection."""

LOST = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError)
"""Errors of a lost server."""


class Forward:
    """Handlers of the routes that go to servers."""

    def __init__(self, pool: Pool, counters: Counters, client: aiohttp.ClientSession) -> None:
        self._pool = pool
        self._counters = counters
        self._client = client
        self._loop = asyncio.get_running_loop()

    async def completion(self, request: web.Request) -> web.StreamResponse:
        """Handle POST: ask one server after the other, until one has begun to answer."""
        life = Lifecycle(self._loop.time())
        body = await request.read()
        said = _json(body)
        life.enter(Phase.APC_MATCHING, self._loop.time())
        call = Call(_session(request, said), _prompt(said, body), life)
        refusal: web.StreamResponse | None = None
        try:
            while True:
                try:
                    place = await self._pool.acquire(call)
                except NobodyAnswers:
                    if refusal is not None:
                        return refusal
                    self._counters.turned_away()
                    return error(HTTPStatus.SERVICE_UNAVAILABLE, "no server behind the proxy answers")
                answered = await self._ask(request, body, call, place)
                if answered.status not in ELSEWHERE or answered.prepared:
                    return answered
                call.tried.add(place)
                refusal = answered
        finally:
            self._counters.lived(life)

    async def _ask(self, request: web.Request, body: bytes, call: Call, place: int) -> web.StreamResponse:
        """Ask one server. A response that is not `prepared` has one of the statuses of `ELSEWHERE`, or is an error of
        the request's own."""
        backend, outcome = self._pool.backends[place], "left"
        out: web.StreamResponse | None = None
        try:
            call.life.enter(Phase.PREFILLING, self._loop.time())
            url = f"{backend.url}{request.path_qs}"
            async with self._client.post(
                url, data=body, headers=_headers(request.headers), allow_redirects=False
            ) as answer:
                piece = await answer.content.readany()
                if answer.status in ELSEWHERE:
                    outcome = "retried" if self._others(call, place) else "refused"
                    whole = piece + await answer.content.read()
                    return web.Response(status=answer.status, body=whole, headers=_headers(answer.headers))
                for phase in (Phase.DECODE_WAITING, Phase.DECODE_SCHEDULED, Phase.DECODING):
                    call.life.enter(phase, self._loop.time())
                out = web.StreamResponse(status=answer.status, headers=_headers(answer.headers))
                await out.prepare(request)
                while piece:
                    await out.write(piece)
                    piece = await answer.content.readany()
                await out.write_eof()
                outcome = "answered" if answer.status < HTTPStatus.BAD_REQUEST else "refused"
                return out
        except LOST as lost:
            if request.transport is None or request.transport.is_closing():
                raise  # it is the client that is gone
            await look(self._pool, self._client, place)
            if out is None:
                outcome = "retried" if self._others(call, place) else "failed"
                return error(HTTPStatus.BAD_GATEWAY, f"{backend.url} was lost before it answered ({lost!r})")
            outcome = "failed"
            await _broken_off(request, out, f"{backend.url} was lost while it answered")
            return out
        finally:
            self._counters.count(backend, outcome)
            self._pool.release(call, place)

    def _others(self, call: Call, place: int) -> bool:
        """Return whether a live server remains that the call has not tried."""
        tried = {*call.tried, place}
        return any(each.alive for i, each in enumerate(self._pool.backends) if i not in tried)

    async def realtime(self, request: web.Request) -> web.StreamResponse:
        """Keep a WebSocket session with one server; when that is lost, end the session with code 1011."""
        now = self._loop.time()
        life = Lifecycle(now)
        life.enter(Phase.APC_MATCHING, now)
        call = Call(_session(request, {}), b"", life)
        while True:
            try:
                place = await self._pool.acquire(call)
            except NobodyAnswers:
                self._counters.turned_away()
                return error(HTTPStatus.SERVICE_UNAVAILABLE, "no server behind the proxy answers")
            backend, outcome = self._pool.backends[place], "left"
            try:
                upstream = await self._connect(request, place)
                if isinstance(upstream, web.Response):
                    outcome = "refused"
                    return upstream
                if upstream is not None:
                    async with upstream:
                        taken = [upstream.protocol] if upstream.protocol else []
                        client = web.WebSocketResponse(protocols=taken, max_msg_size=0, compress=False)
                        await client.prepare(request)
                        outcome = await _talk(client, upstream)
                        return client
                outcome = "retried" if self._others(call, place) else "failed"
                call.tried.add(place)
            finally:
                self._counters.count(backend, outcome)
                self._pool.release(call, place)

    async def _connect(
        self, request: web.Request, place: int
    ) -> "aiohttp.ClientWebSocketResponse | web.Response | None":
        """Return a session at the server, or its rejection; None where it is lost."""
        offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        url = self._pool.backends[place].url
        try:
            return await self._client.ws_connect(
                f"{url}{request.path_qs}",
                headers=_headers(request.headers),
                protocols=[each for each in offered if each],
                max_msg_size=0,
            )
        except aiohttp.WSServerHandshakeError as refused:
            return error(refused.status, f"{url} refuses: {refused.message}")
        except LOST:
            await look(self._pool, self._client, place)
            return None

    async def models(self, request: web.Request) -> web.StreamResponse:
        """Return the models that the servers list, each model once."""
        found: dict[str, Any] = {}
        status = HTTPStatus.SERVICE_UNAVAILABLE
        for place, backend in enumerate(self._pool.backends):
            if not backend.alive:
                continue
            try:
                asked = self._client.get(f"{backend.url}{request.path}", headers=_headers(request.headers))
                async with asked as answer:
                    status = HTTPStatus(answer.status)
                    if status is HTTPStatus.OK:
                        for model in (await answer.json(content_type=None))["data"]:
                            found.setdefault(model["id"], model)
            except LOST:
                await look(self._pool, self._client, place)
            except (ValueError, TypeError, KeyError):
                status = HTTPStatus.BAD_GATEWAY  # what it said is no list of models
        if found:
            return web.json_response({"object": "list", "data": list(found.values())})
        return error(status, "no server behind the proxy lists its models")


async def _talk(client: web.WebSocketResponse, upstream: aiohttp.ClientWebSocketResponse) -> str:
    """Pass messages both ways until one side closes. Return the outcome."""

    async def hand_on(source: Any, target: Any) -> None:
        async for message in source:
            if message.type is aiohttp.WSMsgType.TEXT:
                await target.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await target.send_bytes(message.data)

    ways = {asyncio.create_task(hand_on(client, upstream)), asyncio.create_task(hand_on(upstream, client))}
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    if client.closed:
        await upstream.close(code=_code(client.close_code), message=b"")
        return "left"
    lost = upstream.close_code in (None, aiohttp.WSCloseCode.ABNORMAL_CLOSURE)
    with suppress(ConnectionError):
        if lost:
            await client.close(code=aiohttp.WSCloseCode.INTERNAL_ERROR, message=b"its server was lost")
        else:
            await client.close(code=_code(upstream.close_code))
    return "failed" if lost else "answered"


def _code(received: int | None) -> int:
    """Return a close code that may be sent: 1005 and 1006 say that there was none."""
    return 1000 if received in (None, 1005, 1006) else received


async def _broken_off(request: web.Request, out: web.StreamResponse, why: str) -> None:
    """Tell the client that the answer ends here: by an error event in a stream of events, else by hanging up."""
    with suppress(ConnectionError):
        if out.content_type == "text/event-stream":
            event = {"error": {"message": f"{why}.", "type": "server_error", "code": HTTPStatus.BAD_GATEWAY}}
            await out.write(b"\n\ndata: " + json.dumps(event).encode() + b"\n\n")
            await out.write_eof()
        elif request.transport is not None:
            request.transport.close()


def error(status: int, why: str) -> web.Response:
    """Return an error in OpenAI's form."""
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    said = {"error": {"message": f"{why}.", "type": kind, "code": int(status)}}
    return web.json_response(said, status=status)


def _headers(headers: Any) -> dict[str, str]:
    """Return the headers to pass on, in either direction. Each connection keeps its own headers of the WebSocket
    handshake."""
    named = {part.strip().lower() for part in headers.get("Connection", "").split(",")}
    return {
        name: value
        for name, value in headers.items()
        if name.lower() not in HOP_BY_HOP | named and not name.lower().startswith("sec-websocket-")
    }


def _json(body: bytes) -> dict[str, Any]:
    """Return the body's fields; none where it is not a JSON object, which its server will report."""
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _prompt(said: dict[str, Any], body: bytes) -> bytes:
    """Return the part of a request that two requests with equally beginning prompts share."""
    prompt = said.get("messages", said.get("prompt"))
    return body if prompt is None else json.dumps(prompt, ensure_ascii=False).encode()


def _session(request: web.Request, said: dict[str, Any]) -> int:
    """Return a number that the requests of a session share."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return crc32(str(request.headers.get(SESSION) or said.get("user") or peer).encode())
