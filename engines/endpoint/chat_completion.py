"""One chat completion: a session of a single typed turn, told as OpenAI's chunks or as one answer."""

import time
from typing import Any, Protocol

from engines.endpoint.base_session import SessionContext
from engines.endpoint.chat_request import ChatRequest
from engines.endpoint.detokenizer import CONTEXT
from engines.endpoint.lengths import Hint, ReplyLengths
from engines.endpoint.protocol import encode
from engines.speaking.gateway import Gateway
from workloads.trace import Turn


class Stream(Protocol):
    """The way to the client of one completion: events and their end, or one answer."""

    def event(self, data: bytes) -> None: ...

    def finish(self) -> None:
        """Nothing more comes."""
        ...

    def answer(self, body: bytes) -> None: ...


class ChatCompletion:
    """Also the gateway's listener: `text`, `audio` and `reply_done` are what it calls.

    A modelled device cannot know how long a reply would be: it has as many tokens as the client allows, or, where it
    says nothing, as many as are drawn.
    """

    def __init__(
        self, context: SessionContext, number: int, stream: Stream, gateway: Gateway, asked: ChatRequest
    ) -> None:
        self._context, self._number, self._stream, self._gateway = context, number, stream, gateway
        self._asked = asked
        self._said = 0
        self._begun_s = context.loop.time()
        self._text_sent_s: float | None = None
        self._whole: list[str] = []
        self._over = False
        kind = "chat.completion.chunk" if asked.stream else "chat.completion"
        head = {"id": f"chatcmpl-{number}", "object": kind, "created": int(time.time())}
        self._head = {**head, "model": context.deployment.model.name}

    def begin(self) -> None:
        context, number = self._context, self._number
        lengths = ReplyLengths(context.seed, number, context.deployment)
        tokens, _ = lengths.of(Hint(output_tokens=self._asked.limit), False, None)
        turn = Turn(
            session=number,
            turn=0,
            arrival_s=self._begun_s,
            modality="text",
            input_tokens=self._asked.prompt_tokens,
            audio_s=None,
            output_tokens=tokens,
            reply_audio_s=None,
            think_s=None,
            barge_in_after_s=None,
            history_tokens=None,
            network_s=0.0,
            priority=self._asked.priority,
        )
        self._gateway.open(number, self)
        context.stats.follow(number, 0)
        self._gateway.commit(turn, self._begun_s)

    def end(self) -> None:
        """The client has gone, or has been told everything."""
        number, stats = self._number, self._context.stats
        if not self._over:
            self._over = True
            cut = self._gateway.barge_in(number, 0.0)

            def ended() -> None:
                stats.cut(stats.settle(number, 0, "lost"), cut.text)

            stats.when_ended(number, 0, ended)
        self._gateway.close(number)

    # What the gateway calls.

    def text(self, turn: int, tokens: int) -> None:
        reply = self._gateway.reply(self._number)
        assert reply is not None
        begin, self._said = self._said, self._said + tokens
        stats, now = self._context.stats, self._context.loop.time()
        self._text_sent_s = stats.text_sent(self._begun_s, self._text_sent_s, now)
        ids = reply.text_ids[max(0, begin - CONTEXT) : begin + tokens]
        text = self._context.detokenizer.text(self._number, begin, ids, tokens)
        if self._asked.stream:
            self._chunk({"content": text} if begin else {"role": "assistant", "content": text})
        else:
            self._whole.append(text)

    def audio(self, turn: int, audio_s: float) -> None:
        """A typed turn's reply is not spoken."""

    def reply_done(self, turn: int) -> None:
        self._context.stats.when_ended(self._number, 0, self._completed)

    def _completed(self) -> None:
        reply, self._over = self._gateway.reply(self._number), True
        assert reply is not None
        stats = self._context.stats
        prompt, said = len(reply.prompt), stats.settle(self._number, 0, "completed")[stats.stages[0]]
        usage = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
        finish = "length" if said == self._asked.limit else "stop"
        if not self._asked.stream:
            message = {"role": "assistant", "content": "".join(self._whole)}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            self._stream.answer(encode({**self._head, "choices": [choice], "usage": usage}))
            return
        self._chunk({}, finish)
        if self._asked.usage:
            self._stream.event(encode({**self._head, "choices": [], "usage": usage}))
        self._stream.event(b"[DONE]")
        self._stream.finish()

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._stream.event(encode({**self._head, "choices": [choice]}))
