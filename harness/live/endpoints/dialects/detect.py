"""Detection of a target's dialect from its first words, of whether it can be reached, and of whether it begins a
session."""

import asyncio
import os
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from harness.live.endpoints.dialects import dialect_of, dialects, greeted_by, known_at
from harness.live.endpoints.dialects.chat import any_json
from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.events import Failure, Ready
from harness.live.endpoints.dialects.parsing import Reader, first_event
from harness.live.endpoints.target import OFFERS, OPENAI_TOKEN_ENV, TOKEN_ENV, TargetParams
from harness.live.endpoints.transport.connect_diagnosis import PLAIN, Answer, asked, described
from harness.live.endpoints.transport.limits import MOST_MESSAGE
from harness.live.endpoints.transport.websocket import ABNORMAL, ConnectFailed, WebSocket
from workloads.errors import UserError, printable

HELLO_S = 1.5
"""A server that has said nothing for so long waits for the client's session.update. [chosen]"""
BEGIN_S = 2.0
"""A server that has begun no session by then is slow, or was not spoken to in its dialect. [chosen]"""
SETTLE_S = 0.5
"""For an error that follows a greeting, in a dialect that says no more when all is well. [chosen]"""
MOST_MODELS = 8
"""Models that are named where one is missing. [chosen]"""
_KEY = re.compile(r"invalid_api_key|api key|unauthorized|authentication", re.IGNORECASE)
"""In the code or words of an error about the key."""
MOST_WORDS = 200
"""Characters of what a server says of an error that are repeated. [chosen]"""
BUSY = (429, 503)
"""HTTP statuses of a server that has no room now. [config: RFC 9110, RFC 6585]"""
OVERLOADED = 1013
"""Close code: try again later. [config: IANA WebSocket close codes]"""
FULL = re.compile(r"overload|capacity|too_many|limit|max_sessions|busy", re.IGNORECASE)
"""Codes of errors with which servers refuse a session before it begins. [chosen]"""


_COST = 128
"""Bytes that a message takes besides its own. [chosen]"""


class _End(NamedTuple):
    """The end of a connection: its close code and what the server says of it, and the fault for which the client has
    ended it; "" for none."""

    code: int
    said: str
    fault: str

    def words(self, what: str) -> str:
        """Return what the server does, as the rest of a sentence. `what`: what it closes."""
        said = f" ({printable(self.said, MOST_WORDS)})" if self.said else ""
        done = f"sends {self.fault}" if self.fault else f"closes {what} with code {self.code}{said}"
        return f"{done}; see the server's log."


class _Messages:
    """Keeps a connection's messages, and its end. What comes above `MOST_MESSAGE` in all is not kept."""

    seed = 0

    def __init__(self) -> None:
        self.next: asyncio.Queue[bytes | _End] = asyncio.Queue()
        self._kept = 0

    def message(self, data: bytes, at_s: float) -> None:
        self._kept += len(data) + _COST
        if self._kept <= MOST_MESSAGE:
            self.next.put_nowait(data)

    def closed(self, code: int, reason: str, at_s: float) -> None:
        self.next.put_nowait(_End(code, *(("", reason) if code == ABNORMAL else (reason, ""))))


async def resolve(target: TargetParams) -> TargetParams:
    """Return `target` with its dialect for auto, after one silent connection. UserError when the target cannot be
    reached, rejects the token, or greets like no known server."""
    if target.is_text:
        return target.model_copy(update={"dialect": "text"})
    if target.synthesizes:
        return target.model_copy(update={"dialect": "synthesis"})
    if target.dialect == "auto":
        target = target.model_copy(update={"dialect": known_at(target.url) or "auto"})
    dialect = Dialect(target) if target.dialect == "auto" else dialect_of(target)
    receiver = _Messages()
    try:
        socket = await dialect.connect(receiver)
    except ConnectFailed as failed:
        raise UserError(await _unreachable(target, failed)) from None
    if target.dialect != "auto":
        socket.abort()
        return await _with_model(target)
    try:
        async with asyncio.timeout(HELLO_S):
            first = await receiver.next.get()
    except TimeoutError:
        first = None
    socket.abort()
    spoken = await _tried(target) if first is None else _spoken(target, first)
    return await _with_model(target.model_copy(update={"dialect": spoken}))


async def _with_model(target: TargetParams) -> TargetParams:
    """Return `target` with the server's only model, where the dialect needs one and none is named."""
    if not dialects()[target.dialect].needs_model or target.model is not None:
        return target
    names = await asyncio.to_thread(models, target)
    return target.model_copy(update={"model": names[0]}) if len(names) == 1 else target


async def _tried(target: TargetParams) -> str:
    """Return the dialect of a server that waits for the client's first words. UserError, which names the tried
    dialects."""
    tried = []
    waiting = [name for name, cls in dialects().items() if cls.waits]
    for name in waiting:
        receiver = _Messages()
        dialect = dialect_of(target.model_copy(update={"dialect": name}))
        try:
            socket, heard = await _begun(dialect, receiver), "nothing"
        except ConnectFailed as failed:
            tried.append(f"{name} ({failed.reason})")
            continue
        read_next = dialect.reader()
        try:
            async with asyncio.timeout(BEGIN_S):
                while not isinstance(message := await receiver.next.get(), _End):
                    event = read_next(message)
                    if isinstance(event, Ready):
                        return name
                    heard = _words(event) if isinstance(event, Failure) else heard
                heard = message.fault or f"close code {message.code}"
        except TimeoutError:
            pass
        finally:
            socket.abort()
        tried.append(f"{name} ({heard})")
    names = ", ".join(name for name in dialects() if name not in (*waiting, *OFFERS))
    raise UserError(
        f"dialect=auto: url {target.url} says nothing by itself for {HELLO_S:g} s, and begins no session when it is "
        f"spoken to in {' or '.join(tried)}; name its dialect with --dialect ({names}), or correct the path."
    )


async def _begun(dialect: Dialect, receiver: _Messages) -> WebSocket:
    """Return a connection on which the client has said its first words. ConnectFailed where there is none."""
    socket, write = await dialect.connect(receiver), dialect.writer()
    for message in dialect.opening():
        socket.send(message if write is None else write(message))
    return socket


async def begin_session(dialect: Dialect, serves: str) -> None:
    """Begin one session of a run, up to where users would begin. `serves`: turns or frames, which they need.

    UserError when the server rejects it for a reason that the user can correct, or serves the other. A server that is
    full, or takes longer than `BEGIN_S`, is accepted: a run measures that.
    """
    target, receiver = dialect.target, _Messages()
    try:
        socket = await _begun(dialect, receiver)
    except ConnectFailed as failed:
        raise UserError(await _unreachable(target, failed)) from None
    first, ready, read_next = None, False, dialect.reader()
    try:
        async with asyncio.timeout(BEGIN_S) as limit:
            while not ready or not dialect.answers_hello:
                message = await receiver.next.get()
                if isinstance(message, _End):
                    if message.code != OVERLOADED:
                        what = f"a session of dialect {dialect.name}"
                        raise UserError(f"url {target.url} {message.words(what)}")
                    return
                if first is None:
                    first = message
                    _check_greeting(dialect, message, serves)
                event = read_next(message)
                if isinstance(event, Failure):
                    if not FULL.search(event.code):
                        raise UserError(await _refused(dialect, event))
                    return
                if isinstance(event, Ready):
                    _check_serves(target, event.serves, serves)
                    if target.modalities == "audio" and event.format.unread is not None:
                        raise UserError(
                            f"url {target.url} sends {event.format.unread}; set the output audio format of its "
                            "sessions to 16-bit PCM or G.711, or take --set modalities=text."
                        )
                    ready = True
                    limit.reschedule(asyncio.get_running_loop().time() + SETTLE_S)
    except TimeoutError:
        pass
    finally:
        socket.abort()


def _check_greeting(dialect: Dialect, first: bytes, wanted: str) -> None:
    spoken, url = greeted_by(first), dialect.target.url
    if spoken not in (None, dialect.name) and dialect.name not in dialects()[spoken].understands:
        raise UserError(
            f"url {url} speaks dialect {spoken}, not {dialect.name}; leave --dialect out, or give another url."
        )
    hello = Reader("session.created")(first)
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


async def _refused(dialect: Dialect, failure: Failure) -> str:
    target, words = dialect.target, _words(failure)
    url = f"url {target.url} refuses"
    if _KEY.search(f"{failure.code} {words}"):
        return f"{url} the session ({words}); {_key(target)}"
    remedy = "correct what it names, such as model" if target.model else "correct what it names, or set model"
    if "model" in f"{failure.code} {words}".lower():
        remedy = await asyncio.to_thread(model_remedy, target)
    return f"{url} a session of dialect {dialect.name} ({words}); {remedy}, or name another --dialect."


def _words(failure: Failure) -> str:
    return " ".join(failure.message.split()).rstrip(".")[:MOST_WORDS] or failure.code


def _spoken(target: TargetParams, first: bytes | _End) -> str:
    if isinstance(first, _End):
        raise UserError(f"url {target.url} {first.words('new connections')}")
    spoken = greeted_by(first)
    if spoken is None:
        hello = first_event(first)
        kind = hello.type if hello is not None and hello.type else "no event"
        raise UserError(
            f"dialect=auto: url {target.url} greets with {kind!r} and not session.created; name its dialect with "
            "--dialect."
        )
    return spoken


def refused_token(target: TargetParams, status: int) -> str:
    """Return the end of the sentence about a url that answers with HTTP status 401 or 403."""
    sent = target.token_name()
    what = "wants a token or key, and none is sent" if sent is None else f"refuses the token in {sent}"
    return f"{what} (HTTP status {status}); {_key(target)}"


def _key(target: TargetParams) -> str:
    name = target.token_name()
    if name is not None:
        return f"put the right one into {name}, or name another environment variable with --token-env."
    if os.environ.get(OPENAI_TOKEN_ENV):
        return f"if {OPENAI_TOKEN_ENV} is meant for it, say so with --token-env {OPENAI_TOKEN_ENV}."
    return f"put it into an environment variable and name that with --token-env, or export it as {TOKEN_ENV}."


def models_path(target: TargetParams) -> str:
    """Return the path where OpenAI-compatible servers list their models, next to the path of the url."""
    path = urlsplit(target.url).path.rstrip("/")
    base = re.sub(r"/(chat/completions|completions|audio/speech(/stream)?|realtime)$", "", path)
    return f"{base}/models" if base.rpartition("/")[2].startswith("v") else "/v1/models"


def _listed(target: TargetParams) -> Answer | None:
    """Return the answer at `models_path`; None without one. A token goes only to a certified host."""
    token = target.request_headers()
    return asked(target.url, urlsplit(target.url).scheme in PLAIN, models_path(target), token, target.route())


def models(target: TargetParams) -> list[str]:
    """Return the models that the server lists; empty where it lists none."""
    answer = _listed(target)
    listed = any_json(answer.body) if answer is not None else None
    data = listed.get("data") if isinstance(listed, dict) else None
    models = [each.get("id") for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    return [name for name in models if isinstance(name, str)]


def model_remedy(target: TargetParams) -> str:
    """Return the advice for a server that does not have the model, or needs one to be named."""
    names = models(target)
    has = f"; the server has {', '.join(names[:MOST_MODELS])}" if names else ""
    more = f" and {len(names) - MOST_MODELS} more" if len(names) > MOST_MODELS else ""
    return f"{'correct model' if target.model else 'name one with --set model=NAME'}{has}{more}"


async def _forbidden(target: TargetParams) -> str:
    """Return the error of a WebSocket rejected with HTTP status 403: for the wrong token, or a wrong path, as FastAPI
    does."""
    path = urlsplit(target.url).path or "/"
    sent, elsewhere = target.token_name(), await asyncio.to_thread(_listed, target)
    route = f"has no WebSocket at the path {path} (HTTP status 403, as FastAPI's servers answer to every wrong path)"
    if elsewhere is not None and elsewhere.status == 200:
        opens = "without a token" if sent is None else f"with the token in {sent}"
        return f"{route}: {models_path(target)} answers {opens}; correct the path, often /v1/realtime or /ws."
    if elsewhere is not None and elsewhere.status in (401, 403):
        return refused_token(target, 403)
    remedy = "correct the path, often /v1/realtime or /ws"
    if sent is None:
        return f"{route}, or wants a token; {remedy}, or name the token's environment variable with --token-env."
    return f"{route}, or refuses the token in {sent}; {remedy}, or put the right one into {sent}."


async def _unreachable(target: TargetParams, failed: ConnectFailed) -> str:
    if failed.status == 401:
        return f"url {target.url} {refused_token(target, 401)}"
    if failed.status == 403:
        return f"url {target.url} {await _forbidden(target)}"
    if failed.status in BUSY:
        return f"url {target.url} turns connections away (HTTP status {failed.status}); see the server's log."
    if target.is_webrtc and failed.status is not None:
        return f"url {target.url} takes no offer ({failed.reason}); correct the path, often /api/offer."
    fault = await asyncio.to_thread(described, target.url, target.route())
    return (
        f"url {target.url} {fault}"
        if fault
        else f"url {target.url} does not answer: {failed.reason}; start the server, or correct the url."
    )
