"""Chat completions over HTTP, streamed, as the clients of `harness.client.session` see them.

A turn is a request that carries the whole conversation. Its user's words are drawn before the run, and the body of a
later turn is made as soon as the reply before it has ended, so that no request is encoded when it is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from harness.live.client.http_endpoint import HttpEndpoint, Requests
from harness.live.client.prompts import words
from harness.live.target import TargetParams
from harness.live.transport.http import HttpPool
from harness.metrics.stages import ENTRY
from workloads.columns.jobs import OWN, links
from workloads.trace import Session, Turn


class TextEndpoint(HttpEndpoint["Chat"]):
    """Chat completions."""

    def _pool_of(self, target: TargetParams) -> HttpPool:
        return pool_of(target)

    def open(self, session: int, listener: Any) -> None:
        super().open(session, listener)
        self._asking[session].begin()

    def said_in(self, session: int) -> list[_Message]:
        """A conversation up to its last reply; nothing of one that is not open."""
        chat = self._asking.get(session)
        return [] if chat is None else chat.said

    def _make(self, session: Session) -> Chat:
        return Chat(self, session)


class Chat(Requests):
    """One session's conversation."""

    def __init__(self, endpoint: TextEndpoint, session: Session) -> None:
        super().__init__(endpoint, session)
        self._said_in = endpoint.said_in
        self._turns = session.turns
        self._next = 0
        self.said: list[_Message] = []
        """The conversation up to the last reply."""
        self._asked: list[_Message] = []
        """The messages of the request that was made last."""
        self._body = b""
        first = session.turns[0]
        if first.prefix is None and first.history_tokens:
            self.said = [_Message.of("user", self._words(first, first.history_tokens, "history"))]
        if first.prefix != OWN:
            self._prepare()

    def begin(self) -> None:
        """Make the first request where that begins with what another session has said by now."""
        if self._turns[0].prefix == OWN:
            self._prepare()

    def _begin(self, turn: Turn) -> bytes:
        self._rest, self._words_said, self._usage, self._ended = b"", list[str](), None, False
        return self._body

    def _read(self, chunk: bytes, at_s: float) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), at_s)

    def _lacks(self) -> str:
        return "" if self._ended else "cut short"

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
        turn = self._turn
        if self._usage is not None:
            self._endpoint.log.event(at_s, "finish", turn.session, turn.turn, ENTRY, self._usage)
        super()._end(at_s)
        self._next += 1
        self.said = [*self._asked, _Message.of("assistant", "".join(self._words_said))]
        if self._next < len(self._turns):
            self._prepare()

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
        source = self.said if turn.turn else self._said_in(turn.session + links(turn.waits)[0][0])
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
