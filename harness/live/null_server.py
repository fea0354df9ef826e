"""A server that only keeps time: what a client measures beyond its truth is the client's own error.

``voice`` speaks the realtime events over WebSocket: ``response.create`` is answered by a first audio packet after
exactly ``first_s`` and one more each ``interval_s``, for the seconds that the request's hint asks, else ``packets`` of
them. With ``echo`` each appended piece of audio is answered by an audio packet that belongs to no response: a session
then receives at least as many messages as it sends. ``text`` streams chat completions over HTTP: a first token
``first_s`` after the request has been read and one more each ``interval_s``, as many as asked, else ``packets``.

All messages are made before they are needed, and nothing is parsed that need not be. When each request was read and
answered is kept on CLOCK_MONOTONIC, which all processes of a machine share, and written at the end.

    python -m harness.live.null_server voice --core 1 --truth truth.parquet
"""

import argparse
import asyncio
import base64
import gc
import json
import os
import re
import resource
import signal
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import aiofastnet
import numpy as np
import picows
import pyarrow as pa
import pyarrow.parquet as pq
from picows import WSMsgType

from harness import clock

RATE = 24_000  # samples/s, what the protocol says where a session does not
TIMING = {"voice": (0.2, 0.1, 20), "text": (0.02, 0.01, 32)}  # first_s, interval_s, packets [chosen]
TRUTH = ("read_s", "first_s", "last_s", "packets")


class Truth:
    """What was read and written, and when."""

    def __init__(self) -> None:
        self._rows, self._late = array("d"), array("d")
        self.messages_in = 0

    def packet(self, late_s: float) -> None:
        self._late.append(late_s)

    def answered(self, *row: float) -> None:
        """``row`` as ``TRUTH``."""
        self._rows.extend(row)

    def table(self) -> pa.Table:
        """One row per answered request. read_s: it had been read whole; first_s, last_s: its first and last packet were
        handed to the kernel; all in s of CLOCK_MONOTONIC. packets: how many."""
        rows = np.array(self._rows).reshape(-1, len(TRUTH))
        return pa.table({name: rows[:, i] for i, name in enumerate(TRUTH)})

    def summary(self) -> dict[str, Any]:
        """The server's own quality: how late its packets were (s; None without any), and what it cost (CPU s)."""
        late, usage = np.array(self._late), resource.getrusage(resource.RUSAGE_SELF)
        return {
            "requests": len(self._rows) // len(TRUTH),
            "messages_in": self.messages_in,
            "packets": len(late),
            "late_p50_s": float(np.percentile(late, 50)) if len(late) else None,
            "late_p99_s": float(np.percentile(late, 99)) if len(late) else None,
            "cpu_s": usage.ru_utime + usage.ru_stime,
        }


class _Answer:
    """One answer's packets, each at its absolute time after ``read_s``. ``write(k)`` sends packet k of ``packets``."""

    def __init__(self, server: "_Server", read_s: float, packets: int, write: Callable[[int], None]) -> None:
        self._server, self._read_s, self._packets, self._write = server, read_s, packets, write
        self._sent = 0
        self._due_s = read_s + server.first_s
        self._timer = server.loop.call_at(self._due_s, self._fire)

    @property
    def over(self) -> bool:
        return self._sent == self._packets

    def _fire(self) -> None:
        server, now, k = self._server, self._server.loop.time(), self._sent
        self._write(k)
        server.truth.packet(now - self._due_s)
        if k == 0:
            self._first_s = now
        self._sent = k + 1
        if k + 1 < self._packets:
            self._due_s += server.interval_s
            self._timer = server.loop.call_at(self._due_s, self._fire)
        else:
            server.truth.answered(self._read_s, self._first_s, now, self._packets)

    def cancel(self) -> None:
        """Send no more; what was sent is the truth."""
        self._timer.cancel()
        if self._sent and not self.over:
            self._server.truth.answered(self._read_s, self._first_s, self._due_s, self._sent)
        self._packets = self._sent


class _Server:
    """What both kinds share."""

    def __init__(self, kind: str, first_s: float, interval_s: float, packets: int, echo: bool) -> None:
        self.first_s, self.interval_s, self.packets = first_s, interval_s, packets
        self.loop = asyncio.get_running_loop()
        self.truth = Truth()
        self._kind = kind
        self.delta = base64.b64encode(bytes(2 * round(interval_s * RATE)))
        self.echo = _audio_delta("resp_echo", self.delta) if echo else None

    async def listen(self, host: str, port: int) -> tuple[asyncio.AbstractServer, str]:
        """Returns the listening server and its URL."""
        if self._kind == "voice":
            make = picows.ws_create_server(lambda _: _Voice(self), host, port, backlog=4096)
            server, form = await make, "ws://{}:{}/v1/realtime"
        else:
            serve: Any = aiofastnet.create_server
            server = await serve(self.loop, lambda: _Text(self), host, port, backlog=4096)
            form = "http://{}:{}/v1/chat/completions"
        return server, form.format(*server.sockets[0].getsockname()[:2])


def _event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def _audio_delta(response: str, base64_pcm: bytes) -> bytes:
    head = _event("response.output_audio.delta", response_id=response, item_id=f"item_{response}")
    return b'%s,"output_index":0,"content_index":0,"delta":"%s"}' % (head[:-1], base64_pcm)


_SESSION = {
    "type": "realtime",
    "id": "sess_null",
    "object": "realtime.session",
    "model": "null",
    "audio": {"output": {"format": {"type": "audio/pcm", "rate": RATE}}},
    "rehearsal": {"version": 1, "serves": "turns", "engine": "null", "device": "none"},
}
_HELLO = _event("session.created", event_id="event_hello", session=_SESSION)
_UPDATED = _event("session.updated", event_id="event_updated", session=_SESSION)
_COMMITTED = _event("input_audio_buffer.committed", event_id="event_committed", item_id="item_user")


class _Voice(picows.WSListener):
    """One realtime session. Its responses follow one another."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._answer: _Answer | None = None
        self._responses = 0

    def on_ws_connected(self, transport: picows.WSTransport) -> None:
        self._transport = transport
        self._send(_HELLO)

    def on_ws_disconnected(self, transport: picows.WSTransport) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        read_s = self._server.loop.time()
        self._server.truth.messages_in += 1
        data = frame.get_payload_as_bytes()
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        elif b'"input_audio_buffer.append"' in data:
            if self._server.echo is not None:
                self._send(self._server.echo)
        elif b'"response.create"' in data:
            self._respond(read_s, data)
        elif b'"session.update"' in data:
            self._send(_UPDATED)
        elif b'"input_audio_buffer.commit"' in data:
            self._send(_COMMITTED)
        elif b'"response.cancel"' in data and self._answer is not None and not self._answer.over:
            self._answer.cancel()
            self._done("cancelled")

    def _respond(self, read_s: float, request: bytes) -> None:
        self._responses += 1
        server, self._response = self._server, f"resp_{id(self)}_{self._responses}"
        packets = max(
            1, round(_asked_seconds(request, server.packets * server.interval_s) / server.interval_s)
        )
        delta = _audio_delta(self._response, server.delta)

        def write(k: int) -> None:
            self._send(delta)
            if k + 1 == packets:
                self._send(_event("response.output_audio.done", response_id=self._response))
                self._done("completed")

        self._answer = _Answer(server, read_s, packets, write)
        self._send(_event("response.created", response={"id": self._response, "status": "in_progress"}))

    def _done(self, status: str) -> None:
        details = {"text_tokens": 0, "audio_tokens": 0}
        usage = {"total_tokens": 0, "input_tokens": 0, "output_tokens": 0, "output_token_details": details}
        self._send(_event("response.done", response={"id": self._response, "status": status, "usage": usage}))

    def _send(self, message: bytes) -> None:
        self._transport.send(WSMsgType.TEXT, message)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


def _asked_seconds(request: bytes, otherwise: float) -> float:
    """Seconds of audio that the hint in a ``response.create`` asks for."""
    metadata = (json.loads(request).get("response") or {}).get("metadata") or {}
    hint = json.loads(metadata.get("rehearsal", "{}"))
    return hint.get("reply_audio_s") or otherwise


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


class _Text(asyncio.Protocol):
    """One HTTP connection, one request at a time."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._received = b""
        self._answer: _Answer | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def data_received(self, data: bytes) -> None:
        read_s = self._server.loop.time()
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or len(body) < (size := int(length[1]) if length else 0):
            return
        self._received = body[size:]
        self._server.truth.messages_in += 1
        if b"/chat/completions" in head[:100]:
            self._stream(read_s, body)
        else:
            self._transport.write(_OTHER)

    def _stream(self, read_s: float, body: bytes) -> None:
        asked = _TOKENS.search(body)
        tokens = int(asked[1]) if asked else self._server.packets
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

        self._answer = _Answer(self._server, read_s, tokens, token)


class NullServer:
    """A null server in a process of its own, ready when made: ``url``. ``stop`` ends it and returns its truth."""

    def __init__(self, kind: str, folder: Path, *args: str, core: int | None = None) -> None:
        self._truth = folder / f"truth-{kind}.parquet"
        command = [sys.executable, "-m", "harness.live.null_server", kind, "--truth", str(self._truth), *args]
        command += [] if core is None else ["--core", str(core)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url: str = json.loads(self._line())["url"]
        self.pid = self._process.pid

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the null server ended with status {self._process.wait()}")
        return line

    def stop(self) -> tuple[pa.Table, dict[str, Any]]:
        """Returns ``Truth.table`` and ``Truth.summary``."""
        self._process.terminate()
        summary = json.loads(self._line())
        self._process.wait()
        return pq.read_table(self._truth), summary

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


async def _serve(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, clock.WallClockLoop)
    loop.restart(0.0)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    null = _Server(args.kind, args.first_s, args.interval_s, args.packets, args.echo)
    listening, url = await null.listen(args.host, args.port)
    gc.collect()
    gc.freeze()
    gc.disable()
    print(json.dumps({"url": url}), flush=True)
    await stopped.wait()
    listening.close()
    if args.truth:
        pq.write_table(null.truth.table(), args.truth)
    print(json.dumps(null.truth.summary()), flush=True)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.live.null_server", description=__doc__)
    parser.add_argument("kind", choices=list(TIMING))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--core", type=int, help="run on this core only")
    parser.add_argument("--first-s", type=float)
    parser.add_argument("--interval-s", type=float)
    parser.add_argument("--packets", type=int)
    parser.add_argument(
        "--echo", action="store_true", help="answer each appended piece of audio with a packet"
    )
    parser.add_argument("--truth", type=Path, help="write what happened to this Parquet file at the end")
    args = parser.parse_args(argv)
    for name, value in zip(("first_s", "interval_s", "packets"), TIMING[args.kind], strict=True):
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    clock.run(_serve(args), virtual=False)


if __name__ == "__main__":
    main()
