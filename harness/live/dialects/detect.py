"""What a target speaks, from its first words; whether it can be reached; and whether it begins a session."""

import asyncio
import re
from urllib.parse import urlsplit

import msgspec

from harness.live.dialects import DIALECTS, dialect_of
from harness.live.dialects.dialect import Dialect
from harness.live.dialects.events import Failure, Ready
from harness.live.dialects.parsing import read
from harness.live.target import TargetParams
from harness.live.transport.stranger import described
from harness.live.transport.websocket import ConnectFailed, connect
from workloads.errors import UserError

HELLO_S = 1.5
"""A server that has said nothing for so long waits for the client's session.update. [chosen]"""


_UNDERSTOOD = {
    "rehearsal": ("rehearsal", "openai"),
    "openai": ("openai", "rehearsal", "vllm_omni"),
    "vllm": ("vllm",),
    "sglang_omni": ("sglang_omni",),
    "sglang_duplex": ("sglang_duplex",),
}
"""Which dialects a server may understand that greets as one of those."""
_MARKS = {"rehearsal": "rehearsal", "sglang": "sglang_duplex", "capabilities": "sglang_omni"}
"""Field of the session in a greeting -> who greets so; other sessions are OpenAI's."""
BEGIN_S = 2.0
"""A server that has begun no session by then is slow, or was not spoken to in its dialect. [chosen]"""
SETTLE_S = 0.5
"""For an error that follows a greeting, in a dialect that says no more when all is well. [chosen]"""
MOST_WORDS = 200
"""Characters of what a server says of an error that are repeated. [chosen]"""
BUSY = (429, 503)
"""HTTP statuses of a server that has no room now. [config: RFC 9110, RFC 6585]"""
OVERLOADED = 1013
"""Close code: try again later. [config: IANA WebSocket close codes]"""
FULL = re.compile(r"overload|capacity|too_many|limit|max_sessions|busy", re.IGNORECASE)
"""Codes of errors with which servers refuse a session before it begins. [chosen]"""


class _Hello(msgspec.Struct):
    type: str = ""
    session: dict | None = None


class _Messages:
    """Keeps a connection's messages, and the close code that ended it."""

    def __init__(self) -> None:
        self.next: asyncio.Queue[bytes | int] = asyncio.Queue()

    def message(self, data: bytes, at_s: float) -> None:
        self.next.put_nowait(data)

    def closed(self, code: int, reason: str, at_s: float) -> None:
        self.next.put_nowait(code)


async def resolve(target: TargetParams) -> TargetParams:
    """`target` with its dialect for auto, after one connection that says nothing.

    UserError when the target cannot be reached, refuses the token, or greets like no server that is known.
    """
    if target.is_text:
        return target.model_copy(update={"dialect": "text"})
    if target.synthesizes:
        return target.model_copy(update={"dialect": "synthesis"})
    if target.dialect == "auto" and (urlsplit(target.url).hostname or "").endswith("openai.com"):
        target = target.model_copy(update={"dialect": "openai"})
    if target.dialect in DIALECTS:
        dialect = dialect_of(target)
        url, headers = dialect.url(), dialect.headers()
    else:
        token = target.token("auto")
        url, headers = target.url, {} if token is None else {"Authorization": f"Bearer {token}"}
    receiver = _Messages()
    try:
        socket = await connect(url, receiver, headers=headers, timeout_s=target.connect_timeout_s)
    except ConnectFailed as failed:
        raise UserError(await _unreachable(target, failed)) from None
    if target.dialect != "auto":
        socket.abort()
        return target
    try:
        async with asyncio.timeout(HELLO_S):
            first = await receiver.next.get()
    except TimeoutError:
        first = None
    socket.abort()
    return target.model_copy(update={"dialect": _spoken(target, first)})


async def begin_session(dialect: Dialect, serves: str) -> None:
    """One session of a run, up to where users would begin. `serves`: turns or frames, which they need.

    UserError when the server refuses it for what the user can mend, or serves the other. One that is full, or takes
    longer than `BEGIN_S`, is not refused: that is what a run measures.
    """
    target, receiver = dialect.target, _Messages()
    try:
        socket = await connect(
            dialect.url(),
            receiver,
            headers=dialect.headers(),
            timeout_s=target.connect_timeout_s,
            binary=dialect.binary,
        )
    except ConnectFailed as failed:
        raise UserError(await _unreachable(target, failed)) from None
    first, ready, read_next = None, False, dialect.reader()
    try:
        for message in dialect.hello():
            socket.send(message)
        async with asyncio.timeout(BEGIN_S) as limit:
            while not ready or not dialect.answers_hello:
                said = await receiver.next.get()
                if isinstance(said, int):
                    if said != OVERLOADED:
                        raise UserError(
                            f"url {target.url} closes a session of dialect {dialect.name} with code {said}; see the "
                            "server's log."
                        )
                    return
                if first is None:
                    first = said
                    _check_greeting(dialect, said, serves)
                event = read_next(said)
                if isinstance(event, Failure):
                    if not FULL.search(event.code):
                        raise UserError(_refused(dialect, event))
                    return
                if isinstance(event, Ready):
                    _check_serves(target, event.serves, serves)
                    ready = True
                    limit.reschedule(asyncio.get_running_loop().time() + SETTLE_S)
    except TimeoutError:
        pass
    finally:
        socket.abort()


def _check_greeting(dialect: Dialect, first: bytes, wanted: str) -> None:
    spoken, url = _known(first), dialect.target.url
    if spoken is not None and dialect.name not in _UNDERSTOOD[spoken]:
        raise UserError(
            f"url {url} speaks dialect {spoken}, not {dialect.name}; leave --dialect out, or give another url."
        )
    hello = read(first, "session.created")
    if isinstance(hello, Ready):
        _check_serves(dialect.target, hello.serves, wanted)


def _check_serves(target: TargetParams, served: str | None, wanted: str) -> None:
    if served in (None, wanted):
        return
    workload = "speech" if served == "turns" else "metronome"
    raise UserError(
        f"the server at {target.url} serves {served}, and the workload is made of {wanted}; take a workload that it "
        f"serves, such as --workload {workload}, or the url of a server of {wanted}."
    )


def _refused(dialect: Dialect, failure: Failure) -> str:
    said = " ".join(failure.message.split()).rstrip(".")[:MOST_WORDS] or failure.code
    mend = (
        "correct what it names, such as model"
        if dialect.target.model
        else "correct what it names, or set model"
    )
    return (
        f"url {dialect.target.url} refuses a session of dialect {dialect.name} ({said}); {mend}, or name another "
        "--dialect."
    )


def _known(first: bytes) -> str | None:
    """The dialect that a greeting is of; None: nobody's that is known, or there was none."""
    try:
        hello = msgspec.json.decode(first, type=_Hello)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if hello.type != "session.created":
        return None
    if hello.session is None:
        return "vllm"
    return next((name for key, name in _MARKS.items() if key in hello.session), "openai")


def _spoken(target: TargetParams, first: bytes | int | None) -> str:
    if first is None:
        return "vllm_omni"
    if isinstance(first, int):
        raise UserError(f"url {target.url} closes new connections with code {first}; see the server's log.")
    spoken = _known(first)
    if spoken is None:
        raise UserError(
            f"dialect=auto: url {target.url} greets with {_type_of(first)!r} and not session.created; name its dialect "
            "with --dialect."
        )
    return spoken


def _type_of(message: bytes) -> str:
    try:
        return msgspec.json.decode(message, type=_Hello).type or "no event"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "no event"


def refused_token(status: int) -> str:
    """What is to be said of a url that answers with HTTP status 401 or 403."""
    return (
        f"refuses the token (HTTP status {status}); put the right one into the environment variable that token_env "
        "names."
    )


async def _unreachable(target: TargetParams, failed: ConnectFailed) -> str:
    if failed.status in (401, 403):
        return f"url {target.url} {refused_token(failed.status)}"
    if failed.status in BUSY:
        return f"url {target.url} turns connections away (HTTP status {failed.status}); see the server's log."
    told = await asyncio.to_thread(described, target.url)
    return (
        f"url {target.url} {told}"
        if told
        else f"url {target.url} does not answer: {failed.reason}; start the server, or correct the url."
    )
