"""The null server's text: chat completions, streamed."""

import asyncio
import json
import re
from typing import Any

from harness.null_server.pace import Answer, Pace


def _sse(data: bytes) -> bytes:
    return b"%x\r\ndata: %s\n\n\r\n" % (len(data) + 8, data)


def _chunk(delta: dict[str, str] | None, finish: str | None = None, **fields: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "chatcmpl-null", "object": "chat.completion.chunk", "created": 0, "model": "null"}
    return _sse(json.dumps({**head, "choices": choices, **fields}, separators=(",", ":")).encode())


_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_FIRST = _STREAM + _chunk({"role": "assistant", "content": "word"})
_NEXT = _chunk({"content": " word"})
_LAST = _chunk({"content": " word"}, "length")
_END = _sse(b"[DONE]") + b"0\r\n\r\n"
_MODELS = b'{"object":"list","data":[{"id":"null","object":"model"}]}'
_OTHER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(_MODELS),
    _MODELS,
)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": *(\d+)')


class Text(asyncio.Protocol):
    """One HTTP connection, one request at a time."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._received = b""
        self._answer: Answer | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def data_received(self, data: bytes) -> None:
        read_s = self._pace.loop.time()
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(body) < (size := int(length[1]) if length else 0):
            return
        self._received = body[size:]
        self._pace.truth.messages_in += 1
        if b"/chat/completions" in head[:100]:
            self._stream(read_s, body)
        else:
            self._transport.write(_OTHER)

    def _stream(self, read_s: float, body: bytes) -> None:
        asked = _TOKENS.search(body)
        tokens = int(asked[1]) if asked else self._pace.packets
        end = _END
        if b'"include_usage"' in body:
            usage = {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens}
            end = _chunk(None, usage=usage) + end
        write = self._transport.write

        def token(k: int) -> None:
            message = _NEXT if k else _FIRST
            if k + 1 == tokens:
                message = (_LAST if k else _FIRST) + end
            write(message)

        self._answer = Answer(self._pace, read_s, tokens, token)
