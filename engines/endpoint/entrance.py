"""A server's sockets share this: its limits and counts, the answers to plain requests, and the rejection of sessions.

Requests are answered a few at a time, while timers run in between, because the engines share this loop.
"""

import asyncio
import hmac
from collections import Counter, deque
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from time import monotonic
from typing import Any, NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from engines.endpoint.base_session import BaseSession
from engines.endpoint.host_names import is_own
from engines.endpoint.limits import Limits
from engines.endpoint.protocol import GOING, Outbox, encode, error_body

REALTIME_PATH, METRICS_PATH, HEALTH_PATH = "/v1/realtime", "/metrics", "/health"
MODELS_PATH = "/v1/models"
PAGES = METRICS_PATH, HEALTH_PATH, MODELS_PATH
READING = "GET", "HEAD"
"""Methods that ask for pages."""
POST = "POST"
JSON = "application/json"

BATCH, PAUSE_S = 4, 0.008
"""Connections accepted, and requests answered, before the engines go on, and for how long: [chosen] 4 from beginning to
end take 1.5 ms [measured], so a burst costs a fifth of the loop's time while it lasts, and one of 2,000 is answered in
5 s. The pause is real time: model time that is behind would have none."""

EARLY_S = 0.0005
"""Added to the rest of a pause: [chosen] so that the next look comes after its end, and looks do not repeat for
ever."""

READ_BYTES = 65_536
"""Read of a socket at once: [chosen] a second of speech in base64."""

MOST_SOCKETS = 4096
"""Sockets beyond sessions, such as rejected clients that have yet to hang up; further ones are reset: [chosen]."""


class Answer(Protocol):
    """The answer to a request: an `http_reply.HttpReply`, or a replacement."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Posted(NamedTuple):
    """The handling of requests with bodies. `read(body)`: parses the request, which has a field `stream`; raises
    Refusal. `begin(client, asked)`: begins the answer through an `HttpSocket`, which counts as a session.
    `content_type`: of a streamed answer. `only`: True if nothing else is served."""

    path: str
    content_type: str
    read: Callable[[bytes], Any]
    begin: Callable[[Any, Any], Answer]
    only: bool = False


class Socket(asyncio.BufferedProtocol):
    """One client's connection. `busy`: a reply is under way, or has yet to be taken; `idle`: nothing is asked or under
    way."""

    _transport: asyncio.Transport

    def __init__(self, server: "Entrance") -> None:
        self._server = server
        self._limits = server.limits
        self._loop = asyncio.get_running_loop()
        self._closed_s: float | None = None

    @property
    def busy(self) -> bool:
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        raise NotImplementedError

    @property
    def queued_bytes(self) -> int:
        """Bytes that the kernel has not taken."""
        return self._transport.get_write_buffer_size()

    def close(self, code: int, reason: str) -> None:
        """Close the connection; a reply under way is cut."""
        raise NotImplementedError

    def check(self, now: float) -> None:
        """Close the connection if it has been silent or open for too long; called regularly."""
        raise NotImplementedError

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the one buffer of all sockets: it is emptied before the next is read. A new one each time would
        fragment the heap."""
        return self._server.buffer


class Entrance:
    """The server as its sockets see it. `connect(outbox)`: makes a client's session. `token`: clients must show it;
    None: none. `render_metrics(server)`: text of `/metrics` and its content type. `posted`: answers requests with
    bodies; None: nothing does. `model`: the served model, as OpenAI's API has it.

    `buffer`: the buffer that sockets are read into. `draining`: no session begins any more. `sessions`: connected;
    `begun`: so far; `refused`: connections by reason; `closed`: sessions by close code, 1006 without one.
    """

    def __init__(
        self,
        connect: Callable[[Outbox], BaseSession],
        limits: Limits,
        token: str | None,
        render_metrics: Callable[[Self], tuple[bytes, str]],
        posted: Posted | None = None,
        model: dict[str, Any] | None = None,
    ) -> None:
        self.limits = limits
        self.posted = posted
        self.buffer = bytearray(READ_BYTES)
        self.draining = False
        self.sessions = 0
        self.begun = 0
        self.refused: Counter[str] = Counter()
        self.closed: Counter[int] = Counter()
        self.connect = connect
        self._token = token
        self._render_metrics = render_metrics
        self._models = [model] if model is not None else []
        self._sockets: set[Socket] = set()
        self._only_local = False
        self._pending: deque[Callable[[], None]] = deque()
        self._batch_left = BATCH
        self._pausing = False
        self._batch_at = -inf
        self._loop = asyncio.get_running_loop()

    @property
    def busy(self) -> int:
        """Return the number of clients with a reply under way."""
        return sum(client.busy for client in self._sockets)

    @property
    def full(self) -> bool:
        return self.sessions >= self.limits.max_sessions

    @property
    def sockets(self) -> int:
        return len(self._sockets)

    @property
    def queued_bytes(self) -> list[int]:
        """Return the bytes that each client has yet to take."""
        return [client.queued_bytes for client in self._sockets]

    def respond(self, request: Request) -> Response | None:
        """Return the answer to a plain request, or to a rejected one; None: a session may begin."""
        hosts = [host.lower() for host in request.headers.get_all("Host")]
        try:
            path = urlsplit(request.path).path
            origins = [urlsplit(origin).netloc.lower() for origin in request.headers.get_all("Origin")]
        except ValueError as error:
            return self._refuse("request", HTTPStatus.BAD_REQUEST, f"Path or Origin is no URL: {error}.")
        if len(hosts) != 1 and request.protocol == "HTTP/1.1":
            return self._refuse("request", HTTPStatus.BAD_REQUEST, f"{len(hosts)} Host headers, not one.")
        if path in PAGES and request.method not in READING:
            return self._refuse("method", HTTPStatus.METHOD_NOT_ALLOWED, f"{path} can only be read.")
        if path == HEALTH_PATH:
            status = HTTPStatus.SERVICE_UNAVAILABLE if self.draining else HTTPStatus.OK
            return _response(status, b"draining\n" if self.draining else b"ok\n")
        if not self._authorized(request.headers):
            why = "Authorization: Bearer TOKEN is missing or wrong."
            return self._refuse("token", HTTPStatus.UNAUTHORIZED, why)
        if self._token is None and self._only_local and not all(map(is_own, hosts)):
            why = "Host is another site's name; call this server localhost, or give it a token."
            return self._refuse("host", HTTPStatus.FORBIDDEN, why)
        if path == METRICS_PATH:
            body, kind = self._render_metrics(self)
            return _response(HTTPStatus.OK, body, kind)
        if path == MODELS_PATH:
            return _response(HTTPStatus.OK, encode({"object": "list", "data": self._models}), JSON)
        posted = self.posted
        entrances = ([] if posted and posted.only else [REALTIME_PATH]) + ([posted.path] if posted else [])
        if path not in entrances:
            known = f"{', '.join((*entrances, MODELS_PATH, METRICS_PATH))} and {HEALTH_PATH}"
            return self._refuse("path", HTTPStatus.NOT_FOUND, f"There is {known}.")
        if (request.method == POST) != (path != REALTIME_PATH):
            allow = "GET" if path == REALTIME_PATH else POST
            why = f"{path} is asked with {allow}."
            return self._refuse("method", HTTPStatus.METHOD_NOT_ALLOWED, why, allow)
        # A page without an address, such as a file's, has the origin `null`.
        if self._token is None and any(not origin or [origin] != hosts for origin in origins):
            return self._refuse("origin", HTTPStatus.FORBIDDEN, "Pages of other sites need a token.")
        if self.draining:
            return self._refuse("closing", HTTPStatus.SERVICE_UNAVAILABLE, f"{GOING.capitalize()}.")
        return None

    def session_began(self) -> None:
        self.sessions += 1
        self.begun += 1

    def session_ended(self, code: int) -> None:
        """Count a session that is over."""
        self.sessions -= 1
        self.closed[code] += 1

    def connected(self, client: Socket) -> bool:
        """Add a connection; False if there is no room for it."""
        self._sockets.add(client)
        return len(self._sockets) <= self.limits.max_sessions + MOST_SOCKETS

    def disconnected(self, client: Socket) -> None:
        self._sockets.discard(client)

    def schedule(self, work: Callable[[], None]) -> None:
        """Do `work` now, or after all earlier clients have been served."""
        self._pending.append(work)
        if not self._pausing:
            self._work()

    def _work(self) -> None:
        """Do a batch of the waiting work; the next one follows after a pause."""
        while self._pending and self._batch_left:
            self._batch_left -= 1
            self._pending.popleft()()
        if not self._pausing:
            self._pausing = True
            self._batch_at = monotonic()
            self._loop.call_later(PAUSE_S, self._resume)

    def _resume(self) -> None:
        early_s = self._batch_at + PAUSE_S - monotonic()
        if early_s > 0:
            self._loop.call_later(early_s + EARLY_S, self._resume)
            return
        self._pausing = False
        self._batch_left = BATCH
        if self._pending:
            self._work()

    def _authorized(self, headers: Headers) -> bool:
        if self._token is None:
            return True
        scheme, _, shown = ", ".join(headers.get_all("Authorization")).partition(" ")
        known = hmac.compare_digest(shown.strip(" ").encode(), self._token.encode())
        return known and scheme.lower() == "bearer"

    def _refuse(self, reason: str, status: HTTPStatus, why: str, allow: str = ", ".join(READING)) -> Response:
        self.refused[reason] += 1
        return _response(status, error_body(status, why, reason), JSON, allow)


def _response(
    status: HTTPStatus,
    content: bytes,
    kind: str = "text/plain; charset=utf-8",
    allow: str = ", ".join(READING),
) -> Response:
    headers = Headers({"Connection": "close", "Content-Length": str(len(content)), "Content-Type": kind})
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    elif status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = allow
    return Response(status.value, status.phrase, headers, content)
