"""What a target speaks, from its first words; and whether it can be reached at all."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import msgspec

from rehearsal.harness.live.dialects import DIALECTS, dialect_of
from rehearsal.harness.live.target import TargetParams
from rehearsal.harness.live.transport.websocket import ConnectFailed, connect
from rehearsal.workloads.errors import UserError

HELLO_S = 1.5
"""A server that has said nothing for so long waits for the client's session.update. [chosen]"""


class _Hello(msgspec.Struct):
    type: str = ""
    session: dict | None = None


class _FirstMessage:
    """Keeps a connection's first message, or what ended it."""

    def __init__(self) -> None:
        self.first: asyncio.Future[bytes | int] = asyncio.get_running_loop().create_future()

    def message(self, data: bytes, at_s: float) -> None:
        self._keep(data)

    def closed(self, code: int, reason: str, at_s: float) -> None:
        self._keep(code)

    def _keep(self, what: bytes | int) -> None:
        if not self.first.done():
            self.first.set_result(what)


async def resolve(target: TargetParams) -> TargetParams:
    """`target` with its dialect for auto, after one connection that says nothing.

    UserError when the target cannot be reached, refuses the token, or greets like no server that is known.
    """
    if target.is_text:
        return target.model_copy(update={"dialect": "text"})
    if target.dialect == "auto" and (urlsplit(target.url).hostname or "").endswith("openai.com"):
        target = target.model_copy(update={"dialect": "openai"})
    if target.dialect in DIALECTS:
        dialect = dialect_of(target)
        url, headers = dialect.url(), dialect.headers()
    else:
        token = target.token("auto")
        url, headers = target.url, {} if token is None else {"Authorization": f"Bearer {token}"}
    receiver = _FirstMessage()
    try:
        socket = await connect(url, receiver, headers=headers, timeout_s=target.connect_timeout_s)
    except ConnectFailed as failed:
        raise UserError(_unreachable(target, failed)) from None
    if target.dialect != "auto":
        socket.abort()
        return target
    try:
        async with asyncio.timeout(HELLO_S):
            first = await receiver.first
    except TimeoutError:
        first = None
    socket.abort()
    return target.model_copy(update={"dialect": _spoken(target, first)})


def _spoken(target: TargetParams, first: bytes | int | None) -> str:
    if first is None:
        return "vllm_omni"
    if isinstance(first, int):
        raise UserError(f"url {target.url} closes new connections with code {first}; see the server's log.")
    try:
        hello = msgspec.json.decode(first, type=_Hello)
    except (msgspec.DecodeError, UnicodeDecodeError):
        hello = _Hello()
    if hello.type != "session.created":
        raise UserError(
            f"dialect=auto: url {target.url} greets with {hello.type or 'no event'!r} and not session.created; name "
            "its dialect with --dialect."
        )
    if hello.session is None:
        return "vllm"
    return "rehearsal" if "rehearsal" in hello.session else "openai"


def refused_token(status: int) -> str:
    """What is to be said of a url that answers with HTTP status 401 or 403."""
    return (
        f"refuses the token (HTTP status {status}); put the right one into the environment variable that token_env "
        "names."
    )


def _unreachable(target: TargetParams, failed: ConnectFailed) -> str:
    if failed.status in (401, 403):
        return f"url {target.url} {refused_token(failed.status)}"
    if failed.status == 404:
        return f"url {target.url} has no WebSocket there (HTTP status 404); correct its path, often /v1/realtime."
    return f"url {target.url} does not answer: {failed.reason}; start the server, or correct the url."
