"""One chat completion, sent as OpenAI's chunks or as one answer."""

import time
from typing import Any

from engines.endpoint.base_session import SessionContext
from engines.endpoint.chat_request import ChatRequest
from engines.endpoint.detokenizer import CONTEXT
from engines.endpoint.http_reply import HttpReply
from engines.endpoint.http_socket import HttpSocket
from engines.endpoint.lengths import Hint, ReplyLengths
from engines.endpoint.protocol import encode
from engines.turns.gateway import Gateway


class ChatCompletion(HttpReply):
    """One chat completion. A modelled device cannot know the length of a reply: it is the client's limit, or without
    one a draw."""

    def __init__(
        self, context: SessionContext, number: int, stream: HttpSocket, gateway: Gateway, request: ChatRequest
    ) -> None:
        super().__init__(context, number, stream, gateway)
        self._request = request
        self._sent_tokens = 0
        self._text_sent_s: float | None = None
        self._texts: list[str] = []
        kind = "chat.completion.chunk" if request.stream else "chat.completion"
        head = {"id": f"chatcmpl-{number}", "object": kind, "created": int(time.time())}
        self._head = {**head, "model": context.deployment.model.name}

    def begin(self) -> None:
        context, request = self._context, self._request
        lengths = ReplyLengths(context.seed, self._number, context.deployment)
        tokens, _ = lengths.of(Hint(output_tokens=request.limit), False, None)
        self._commit(request.prompt_tokens, tokens, priority=request.priority)

    # Called by the gateway.

    def text(self, turn: int, tokens: int) -> None:
        reply = self._gateway.reply(self._number)
        assert reply is not None
        begin, self._sent_tokens = self._sent_tokens, self._sent_tokens + tokens
        stats, now = self._context.stats, self._context.loop.time()
        self._text_sent_s = stats.text_sent(self._begun_s, self._text_sent_s, now)
        ids = reply.text_ids[max(0, begin - CONTEXT) : begin + tokens]
        text = self._context.detokenizer.text(self._number, begin, ids, tokens)
        if self._request.stream:
            self._chunk({"content": text} if begin else {"role": "assistant", "content": text})
        else:
            self._texts.append(text)

    def _completed(self) -> None:
        reply, self._over = self._gateway.reply(self._number), True
        assert reply is not None
        stats = self._context.stats
        prompt, completion = len(reply.prompt), stats.settle(self._number, 0, "completed")[stats.stages[0]]
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        longest = completion == self._request.limit or prompt + completion == self._context.most_tokens + 1
        finish = "length" if longest else "stop"
        if not self._request.stream:
            message = {"role": "assistant", "content": "".join(self._texts)}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            self._stream.answer(encode({**self._head, "choices": [choice], "usage": usage}))
            return
        self._chunk({}, finish)
        if self._request.usage:
            self._stream.event(encode({**self._head, "choices": [], "usage": usage}))
        self._stream.event(b"[DONE]")
        self._stream.finish()

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._stream.event(encode({**self._head, "choices": [choice]}))
