"""A server that only keeps time: what a client measures beyond its truth is the client's own error.

`voice` speaks the realtime events over WebSocket: `response.create` is answered by a first audio packet after
exactly `first_s` and one more each `interval_s`, for the seconds that the request's hint asks, else `packets` of
them. With `echo` each appended piece of audio is answered by an audio packet that belongs to no response: a session
then receives at least as many messages as it sends. With `frame_s` each so much audio is answered by one event.
`telephone` is an agent of Twilio's protocol, whose answers have `packets` packets.
`text` streams chat completions over HTTP: a first token `first_s` after the request has been read and one more each
`interval_s`, as many as asked, else `packets`.

All messages are made before they are needed, and nothing is parsed that need not be. When each request was read and
answered is kept on CLOCK_MONOTONIC, which all processes of a machine share, and written at the end.

    python -m harness.live.null_server voice --core 1 --truth truth.parquet
"""

import argparse
import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import aiofastnet
import picows
import pyarrow as pa
import pyarrow.parquet as pq

from harness.clocks import clock
from harness.clocks.parent import end_with_parent
from harness.live.null_server.null_telephone import Telephone
from harness.live.null_server.null_voice import Voice, packet_of
from harness.live.null_server.pace import Answer, Pace

# first_s, interval_s, packets [chosen]
TIMING = {"voice": (0.2, 0.1, 20), "telephone": (0.2, 0.1, 10), "text": (0.02, 0.01, 32)}
_BACKLOG = 4096  # connections that may come at once [chosen]


async def listen(
    kind: str, pace: Pace, host: str, port: int, echo: bool = False, frame_s: float | None = None
) -> tuple[asyncio.AbstractServer, str]:
    """Return the listening server and its URL."""
    if kind != "text":
        packet = packet_of(pace.interval_s)

        def called(_: object) -> picows.WSListener:
            return Telephone(pace, echo) if kind == "telephone" else Voice(pace, packet, echo, frame_s)

        server = await picows.ws_create_server(called, host, port, backlog=_BACKLOG)
        form = "ws://{}:{}/v1/realtime"
    else:
        make: Any = aiofastnet.create_server
        server = await make(pace.loop, lambda: Text(pace), host, port, backlog=_BACKLOG)
        form = "http://{}:{}/v1/chat/completions"
    return server, form.format(*server.sockets[0].getsockname()[:2])


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
_OTHER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_MODELS), _MODELS)
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
        head, separator, body = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not separator or len(body) < (size := int(length[1]) if length else 0):
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


class NullServer:
    """A null server in a process of its own, ready when made: `url`. `stop` ends it and returns its log; it also ends
    with this process. Ctrl-C at a terminal reaches this process alone."""

    def __init__(self, kind: str, folder: Path, *args: str, core: int | None = None) -> None:
        self._truth = folder / f"truth-{kind}.parquet"
        command = [
            sys.executable,
            "-P",
            "-m",
            "harness.live.null_server",
            kind,
            "--truth",
            str(self._truth),
            "--parent",
            str(os.getpid()),
            *args,
        ]
        command += [] if core is None else ["--core", str(core)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.pid = self._process.pid
        try:
            self.url: str = json.loads(self._line())["url"]
        except BaseException:
            self.__exit__()
            raise

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the null server ended with status {self._process.wait()}")
        return line

    def stop(self) -> tuple[pa.Table, dict[str, Any]]:
        """Stop it. Return `Truth.table` and `Truth.summary`."""
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
    pace = Pace(args.first_s, args.interval_s, args.packets)
    listening, url = await listen(args.kind, pace, args.host, args.port, args.echo, args.frame_s)
    gc.collect()
    gc.freeze()
    gc.disable()
    print(json.dumps({"url": url}), flush=True)
    await stopped.wait()
    listening.close()
    if args.truth:
        pq.write_table(pace.truth.table(), args.truth)
    print(json.dumps(pace.truth.summary()), flush=True)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m harness.live.null_server", description=__doc__)
    parser.add_argument("kind", choices=list(TIMING))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--core", type=int, help="run on this core only")
    parser.add_argument("--parent", type=int, metavar="PID", help="end with the process that has started it")
    parser.add_argument("--first-s", type=float)
    parser.add_argument("--interval-s", type=float)
    parser.add_argument("--packets", type=int)
    parser.add_argument("--echo", action="store_true", help="answer each appended piece of audio with a packet")
    parser.add_argument("--frame-s", type=float, help="answer frames of audio of this length, not turns")
    parser.add_argument("--truth", type=Path, help="write what happened to this Parquet file at the end")
    args = parser.parse_args(argv)
    if args.parent is not None:
        end_with_parent(args.parent)
    for name, value in zip(("first_s", "interval_s", "packets"), TIMING[args.kind], strict=True):
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    try:
        clock.run(_serve(args), virtual=False)
    except BrokenPipeError:  # its starter has gone, interrupted before this server listened
        os._exit(1)  # Python would warn that it cannot flush the same pipe


if __name__ == "__main__":
    main()
