"""Chat completions over HTTP, streamed, as the clients of `harness.client.session` see them.

A turn is a request that carries the whole conversation. Its user's words are drawn before the run, and the body of a
later turn is made as soon as the reply before it has ended, so that no request is encoded when it is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from rehearsal.harness.client.params import ClientParams
from rehearsal.harness.live.client.base_endpoint import BaseEndpoint
from rehearsal.harness.live.client.failure_log import FailureLog
from rehearsal.harness.live.client.prompts import words
from rehearsal.harness.live.client.send_log import SendLog
from rehearsal.harness.live.dialects.detect import resolve
from rehearsal.harness.live.target import TargetParams
from rehearsal.harness.live.transport.http import Exchange, HttpPool
from rehearsal.harness.metrics.stages import ENTRY
from rehearsal.harness.records.log import EventLog
from rehearsal.workloads.columns.jobs import OWN, links
from rehearsal.workloads.errors import UserError
from rehearsal.workloads.trace import Session, Trace, Turn

OPENED = 64
"""Connections that are open before the run; more are opened as they are needed. [chosen]"""
FULL = (429, 503)
"""HTTP statuses of a server that takes nobody more. [config: RFC 9110, RFC 6585]"""


class TextEndpoint(BaseEndpoint):
    """Implements `harness.client.session.Server`. Nothing that a client calls blocks or raises."""

    def __init__(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> None:
        super().__init__(trace, target, log, sends, failures)
        self._sessions = {session.id: session for session in trace.sessions}
        self._chats: dict[int, Chat] = {}
        self._ready: dict[int, Chat] = {}
        self._pool: HttpPool

    async def prepare(self) -> None:
        """Before time 0: open connections and make all first requests. UserError where nobody answers."""
        await self.connect(self.trace.sessions)
        for session in self.trace.sessions:
            self._ready[session.id] = Chat(self, session)

    async def connect(self, sessions: Sequence[Session]) -> None:
        """Open connections for so many. UserError where nobody answers."""
        self.target = await resolve(self.target)
        self._pool = pool_of(self.target)
        await open_pool(self._pool, self.target, min(OPENED, len(sessions)))

    def expect(self, params: ClientParams) -> None:
        """Connections are open already, and belong to no session."""

    def open(self, session: int, listener: Any) -> None:
        chat = self._chats[session] = self._ready.pop(session)
        chat.listener = listener
        chat.begin()

    def close(self, session: int) -> None:
        self._chats.pop(session).stop()

    def said_in(self, session: int) -> list[_Message]:
        """A conversation up to its last reply; nothing of one that is not open."""
        chat = self._chats.get(session)
        return [] if chat is None else chat.said

    def speech_start(self, turn: Turn) -> None:
        """What is said goes out as text, when it has been said."""

    def commit(self, turn: Turn, end_s: float) -> None:
        self._chats[turn.session].ask(turn, end_s, self._pool)

    def lost(self, session: int) -> None:
        """A turn of it has failed."""

    def reports(self, session: int, turn: int, source: object) -> bool:
        return False

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        """Nothing is played."""
        return 0.0

    def playback_done(self, session: int, turn: int) -> None:
        """Nothing is played."""

    def barge_in(self, session: int, played_s: float) -> None:
        """A reply that nobody listens to is not spoken over; whoever does hangs up."""
        self._chats[session].stop()

    async def aclose(self) -> None:
        await self._pool.aclose()


class Chat:
    """One session's conversation and the request under way. The receiver of its answer."""

    def __init__(self, endpoint: TextEndpoint, session: Session) -> None:
        self._endpoint = endpoint
        self._turns = session.turns
        self._next = 0
        self.said: list[_Message] = []
        """The conversation up to the last reply."""
        self._asked: list[_Message] = []
        """The messages of the request that was made last."""
        self._body = b""
        self._exchange: Exchange | None = None
        self._turn: Turn
        self._status = 0
        self._rest = b""
        self._words_said: list[str] = []
        self._usage: int | None = None
        self._ended = False
        self.listener: Any = None
        first = session.turns[0]
        if first.prefix is None and first.history_tokens:
            self.said = [_Message.of("user", self._words(first, first.history_tokens, "history"))]
        if first.prefix != OWN:
            self._prepare()

    def begin(self) -> None:
        """Make the first request where that begins with what another session has said by now."""
        if self._turns[0].prefix == OWN:
            self._prepare()

    def ask(self, turn: Turn, end_s: float, pool: HttpPool) -> None:
        """Send the request of `turn`, the next one, which was to end at `end_s`."""
        self._turn = turn
        self._status, self._rest, self._words_said, self._usage, self._ended = 0, b"", [], None, False
        self._due_s: float | None = end_s + self.listener.network_s
        self._exchange = pool.post(self._body, self)
        self._note_sent()

    def stop(self) -> None:
        """Want no more of the answer under way."""
        if self._exchange is not None:
            self._exchange.abort()
            self._exchange = None

    def status(self, code: int, at_s: float) -> None:
        self._note_sent()
        self._status = code

    def data(self, chunk: bytes, at_s: float) -> None:
        if self._status != 200:
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), at_s)

    def done(self, at_s: float) -> None:
        if self._exchange is None:
            return
        if self._status != 200:
            self._lose(f"http {self._status}", at_s, refused=self._status in FULL and self._next == 0)
        elif not self._ended:
            self._lose("cut short", at_s)
        else:
            self._end(at_s)

    def failed(self, reason: str, at_s: float) -> None:
        self._lose(reason, at_s)

    def _note_sent(self) -> None:
        """Write down once when the request went out; one that had to wait for a connection is known by its answer."""
        sent_s = None if self._exchange is None else self._exchange.sent_s
        if self._due_s is not None and sent_s is not None:
            self._endpoint.sends.add("request", self._turn.session, self._due_s, sent_s)
            self._due_s = None

    def _event(self, data: bytes, at_s: float) -> None:
        if data == b"[DONE]":
            self._ended = True
            return
        try:
            event = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._lose("garbage", at_s)
            return
        if event.error is not None:
            error = event.error if isinstance(event.error, _Error) else _Error()
            self._lose(f"error: {error.code or error.type or 'unknown'}", at_s)
            return
        if event.usage is not None:
            self._usage = event.usage.completion_tokens
        for choice in event.choices:
            text = choice.delta.content or choice.delta.reasoning_content or choice.delta.reasoning
            if text and self._exchange is not None:
                self._words_said.append(choice.delta.content or "")
                self.listener.text(self._turn.turn, 1, at_s)

    def _end(self, at_s: float) -> None:
        turn, self._exchange = self._turn, None
        if self._usage is not None:
            self._endpoint.log.event(at_s, "finish", turn.session, turn.turn, ENTRY, self._usage)
        self.listener.reply_done(turn.turn, at_s)
        self._next += 1
        self.said = [*self._asked, _Message.of("assistant", "".join(self._words_said))]
        if self._next < len(self._turns):
            self._prepare()

    def _lose(self, reason: str, at_s: float, refused: bool = False) -> None:
        if self._exchange is None:
            return
        self.stop()
        self._endpoint.failures.add(at_s, self._turn.session, self._turn.turn, reason)
        self._endpoint.lost(self._turn.session)
        if refused:
            self.listener.rejected(at_s)
        else:
            self.listener.failed(reason, at_s)

    def _prepare(self) -> None:
        """Make the next request's body."""
        turn = self._turns[self._next]
        context = self.said
        if turn.prefix is not None:
            context = self._stated(turn, turn.prefix, turn.history_tokens or 0)
        self._asked = [*context, _Message.of("user", self._words(turn, turn.input_tokens, "prompt"))]
        encoded = [each.encoded for each in self._asked]
        self._body = request_body(encoded, turn.output_tokens, self._endpoint.target, turn.slo.priority)

    def _stated(self, turn: Turn, prefix: int, tokens: int) -> list[_Message]:
        """The context of so many tokens, a word for each: the begin of what `prefix` says, and what that lacks."""
        if prefix != OWN:
            shared = words(self._endpoint.trace.header.seed, prefix, 0, tokens, "shared")
            return [_Message.of("user", shared)]
        source = self.said if turn.turn else self._endpoint.said_in(turn.session + links(turn.waits)[0][0])
        kept = []
        for each in source:
            said = each.content.split()
            if said and tokens:
                kept.append(each if len(said) <= tokens else _Message.of(each.role, " ".join(said[:tokens])))
                tokens = max(0, tokens - len(said))
        return [*kept, _Message.of("user", self._words(turn, tokens, "history"))] if tokens else kept

    def _words(self, turn: Turn, count: int, purpose: str) -> str:
        return words(self._endpoint.trace.header.seed, turn.session, turn.turn, count, purpose)


class _Message(NamedTuple):
    """Who said what, and the same as JSON."""

    role: str
    content: str
    encoded: bytes

    @classmethod
    def of(cls, role: str, content: str) -> _Message:
        return cls(role, content, message(role, content))


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Tokens(msgspec.Struct):
    completion_tokens: int | None = None


class _Error(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Tokens | None = None
    error: _Error | str | None = None


_decode = msgspec.json.Decoder(_Chunk).decode
_encode = msgspec.json.Encoder().encode


async def open_pool(pool: HttpPool, target: TargetParams, connections: int) -> None:
    """Have so many idle. UserError where nobody answers."""
    try:
        async with asyncio.timeout(target.connect_timeout_s):
            await pool.open(connections)
    except (OSError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or str(error) or "nothing came back"
        raise UserError(
            f"url {target.url} does not answer: {why}; start the server, or correct the url."
        ) from None


def pool_of(target: TargetParams) -> HttpPool:
    """Connections to its chat completions."""
    headers = {"Accept": "text/event-stream"}
    token = target.token("text")
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return HttpPool(completions_url(target.url), headers)


def message(role: str, content: str) -> bytes:
    """Returns the message as JSON."""
    return _encode({"role": role, "content": content})


def request_body(messages: Sequence[bytes], tokens: int, target: TargetParams, priority: int = 0) -> bytes:
    """Asks for a reply of at most so many `tokens` to a conversation of `message`s.

    `priority` goes out as vLLM's extension of the protocol, unless it is 0, which it is there by default: others know
    no such field.
    """
    options: dict[str, Any] = {
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if target.model is not None:
        options["model"] = target.model
    if target.ignore_eos:
        options["ignore_eos"] = True
    if priority:
        options["priority"] = priority
    return b'{"messages":[%s],%s' % (b",".join(messages), _encode(options)[1:])


def completions_url(url: str) -> str:
    """The address of chat completions: of a server, of its /v1, or as it stands."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path in ("", "/v1"):
        path = "/v1/chat/completions"
    return urlunsplit(parts._replace(path=path))
