"""Chat completions over HTTP, streamed, as the clients of `harness.client.session` see them.

A turn is a request that carries the whole conversation. The user says the text of the trace's data (workload
`conversations`), else words that are drawn before the run; the history has the server's own replies. The body of a
later turn is made as soon as the reply before it has ended, so that no request is encoded when it is due.

A reply ends with its finish reason or its end marker. What comes later, such as usage, is read, but no user waits for
it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import msgspec

from harness.live.endpoints.dialects.chat import ChatReply
from harness.live.endpoints.http_endpoint import HttpEndpoint, Requests
from harness.live.endpoints.prompts import words
from harness.live.endpoints.request_shape import shaped
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.http import Exchange, HttpPool
from harness.live.endpoints.transport.limits import MOST_HEAD
from harness.request_tables.stages import ENTRY
from workloads.columns.jobs import OWN, links
from workloads.files.sharegpt_file import ChatExchange, plain_text
from workloads.generators.conversations import texts_of
from workloads.trace import Session, Turn

TAIL_S = 5.0
"""Time limit for the rest of a stream after a complete reply, s. [chosen]"""


@dataclass(eq=False)
class TextEndpoint(HttpEndpoint["Chat"]):
    """An endpoint of chat completions."""

    tails: dict[Tail, None] = field(init=False, default_factory=dict)
    """Complete replies whose body has not ended, in order."""
    texts: Mapping[int, ChatExchange] = field(init=False)
    """The data's own text, by the content of turns; empty where the trace has none."""

    def __post_init__(self) -> None:
        self.texts = texts_of(self.trace)

    async def aclose(self) -> None:
        until_s = self._loop.time() + TAIL_S
        while not all(tail.noted for tail in self.tails) and self._loop.time() < until_s:
            await asyncio.sleep(0.01)
        await super().aclose()

    def _pool_of(self, target: TargetParams) -> HttpPool:
        return pool_of(target)

    def open(self, session: int, listener: Any) -> None:
        super().open(session, listener)
        self._asking[session].begin()

    def history_in(self, session: int) -> list[_Message]:
        """Return a conversation up to its last reply; nothing where it is not open."""
        chat = self._asking.get(session)
        return [] if chat is None else chat.history

    def _make(self, session: Session) -> Chat:
        return Chat(self, session)


class Chat(Requests):
    """The conversation of one session."""

    def __init__(self, endpoint: TextEndpoint, session: Session) -> None:
        super().__init__(endpoint, session)
        self._chats = endpoint
        self._turns = session.turns
        self._next = 0
        self.history: list[_Message] = []
        """The conversation up to the last reply."""
        self._asked: list[_Message] = []
        """The messages of the request that was made last."""
        self._body = b""
        first = session.turns[0]
        if first.job.prefix is None and first.history_tokens:
            self.history = [_Message.of("user", self._words(first, first.history_tokens, "history"))]
        if first.job.prefix != OWN:
            self._prepare()

    def begin(self) -> None:
        """Make the first request, which may begin with what another session has said by now."""
        if self._turns[0].job.prefix == OWN:
            self._prepare()

    def _begin(self, turn: Turn) -> bytes:
        self._reply, self._answered = ChatReply(self._facts), False
        return self._body

    def _read(self, chunk: bytes, at_s: float) -> None:
        reply, turn = self._reply, self._turn.turn
        for tokens in reply.read(chunk):
            self.listener.text(turn, tokens, at_s)
        if reply.reasons and reply.answers and not self._answered:
            self._answered = True
            self._endpoint.log.event(at_s, "first_answer", self._turn.session, turn)
        if reply.over is not None:
            self._settle(at_s)

    def _read_end(self, at_s: float, cut: str) -> None:
        self._facts.lost = cut
        for tokens in self._reply.end():
            self.listener.text(self._turn.turn, tokens, at_s)

    def _missing(self) -> str:
        return "finish reason and no [DONE]" if self._facts.output else "token"

    def _end(self, exchange: Exchange, at_s: float) -> None:
        exchange.receiver = Tail(self._chats, self._turn, self._reply, exchange, at_s)
        super()._end(exchange, at_s)
        self._next += 1
        recorded = self._recorded(self._turns[self._next - 1])
        self.history = [*self._asked, _Message.of("assistant", recorded or self._reply.content)]
        if self._next < len(self._turns):
            self._prepare()

    def _prepare(self) -> None:
        turn = self._turns[self._next]
        context = self.history
        if turn.job.prefix is not None:
            context = self._stated(turn, turn.job.prefix, turn.history_tokens or 0)
        self._asked = [*context, *self._said(turn)]
        encoded = [each.encoded for each in self._asked]
        self._body = request_body(encoded, turn.output_tokens, self._endpoint.target, turn.request.slo.priority)

    def _stated(self, turn: Turn, prefix: int, tokens: int) -> list[_Message]:
        """Return a context of this number of tokens, a word for each: the begin of what `prefix` says, and the rest."""
        if prefix != OWN:
            return [_Message.of("user", words(self._endpoint.trace.header.seed, prefix, 0, tokens, "shared"))]
        source, kept = self.history, []
        if not turn.turn:
            source = self._chats.history_in(turn.session + links(turn.job.waits)[0][0])
        for each in source:
            parts = plain_text(each.content).split()
            if parts and tokens:
                kept += [each if len(parts) <= tokens else _Message.of(each.role, " ".join(parts[:tokens]))]
                tokens = max(0, tokens - len(parts))
        return [*kept, _Message.of("user", self._words(turn, tokens, "history"))] if tokens else kept

    def _said(self, turn: Turn) -> list[_Message]:
        """Return what the user says in `turn`: the data's own text, else as many words as it has tokens."""
        exchange = self._exchange_of(turn)
        if exchange is None:
            return [_Message.of("user", self._words(turn, turn.input_tokens, "prompt"))]
        return [_Message.of(role, content) for role, content in exchange.said]

    def _recorded(self, turn: Turn) -> Any:
        """Return the recorded reply, where it is to be the history; else None."""
        exchange = self._exchange_of(turn)
        return exchange.reply if exchange and self._endpoint.target.chat_history == "recorded" else None

    def _exchange_of(self, turn: Turn) -> ChatExchange | None:
        return None if turn.content is None else self._chats.texts.get(turn.content)

    def _words(self, turn: Turn, count: int, purpose: str) -> str:
        return words(self._endpoint.trace.header.seed, turn.session, turn.turn, count, purpose)


class Tail:
    """The rest of a stream after a complete reply. Implements `harness.live.endpoints.transport.http.StreamReceiver`.
    `noted`: its tokens are logged, as of the time when the reply ended."""

    def __init__(
        self, endpoint: TextEndpoint, turn: Turn, reply: ChatReply, exchange: Exchange, ended_s: float
    ) -> None:
        self.ended_s, self.noted, self._ignored = ended_s, False, 0
        self._endpoint, self._turn, self._reply, self._exchange = endpoint, turn, reply, exchange
        while (first := next(iter(endpoint.tails), None)) is not None and first.ended_s < ended_s - TAIL_S:
            first.stop()
        if exchange.over or reply.done:
            self._note()
        if not exchange.over:
            endpoint.tails[self] = None

    def stop(self) -> None:
        """Stop waiting."""
        self._exchange.abort()
        self._close()

    def status(self, code: int, at_s: float) -> None:
        """Ignore the status, which came before."""

    def data(self, chunk: bytes, at_s: float) -> None:
        if self.noted:
            self._ignored += len(chunk)
            if self._ignored > MOST_HEAD:  # the end of such a stream is not waited for
                self.stop()
            return
        self._reply.read(chunk)
        if self._reply.over:
            self._endpoint.fail(self._turn, self._reply.over, at_s)
            self._endpoint.log.event(at_s, "turn_failed", self._turn.session, self._turn.turn)
        if self._reply.over or self._reply.done:
            self._note()

    def done(self, at_s: float) -> None:
        if not self.noted:
            self._reply.end()
        self._close()

    def failed(self, reason: str, at_s: float) -> None:
        self._close()

    def _close(self) -> None:
        del self._endpoint.tails[self]
        if not self.noted:
            self._note()

    def _note(self) -> None:
        reply, turn = self._reply, self._turn
        self.noted = True
        stated = {
            "finish": reply.produced,
            "usage": reply.delivered,
            "prompt": reply.prompt,
            "prompt_cached": reply.cached,
        }
        for kind, tokens in stated.items():
            if tokens is not None:
                self._endpoint.log.event(self.ended_s, kind, turn.session, turn.turn, ENTRY, tokens)


class _Message(NamedTuple):
    role: str
    content: Any
    """Text, or content parts."""
    encoded: bytes

    @classmethod
    def of(cls, role: str, content: Any) -> _Message:
        return cls(role, content, message(role, content))


_encode = msgspec.json.Encoder().encode


def pool_of(target: TargetParams) -> HttpPool:
    """Return connections to its chat completions."""
    headers = {"Accept": "text/event-stream", **target.request_headers()}
    return HttpPool(completions_url(target.url), headers, target.route())


def message(role: str, content: Any) -> bytes:
    """Return the message as JSON."""
    return _encode({"role": role, "content": content})


def request_body(messages: Sequence[bytes], tokens: int, target: TargetParams, priority: int = 0) -> bytes:
    """Return the request of a reply of at most this number of `tokens` to a conversation of `message`s.

    `priority` is sent as vLLM's extension of the protocol, unless it is 0, its default there: other servers know no
    such field.
    """
    options: dict[str, Any] = {"max_tokens": tokens, "stream": True, "stream_options": {"include_usage": True}}
    if target.model is not None:
        options["model"] = target.model
    if target.ignore_eos:
        options["ignore_eos"] = True
    if priority:
        options["priority"] = priority
    options = shaped(options, target.body_names, target.extra_body)
    return b'{"messages":[%s],%s' % (b",".join(messages), _encode(options)[1:])


def completions_url(url: str) -> str:
    """Return the address of chat completions: of a server, of its /v1, also below a gateway's path, or as it stands."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/") or "/v1"
    if re.search(r"/v\d+$", path):
        path += "/chat/completions"
    return urlunsplit(parts._replace(path=path))
