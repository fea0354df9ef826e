"""A server that only keeps time: what a client measures beyond its truth is the client's own error.

`voice` speaks the realtime events over WebSocket: `response.create` is answered by a first audio packet after
exactly `first_s` and one more each `interval_s`, for the seconds that the request's hint asks, else `packets` of
them. With `echo` each appended piece of audio is answered by an audio packet that belongs to no response: a session
then receives at least as many messages as it sends. With `frame_s` each so much audio is answered by one event.
`text` streams chat completions over HTTP: a first token `first_s` after the request has been read and one more each
`interval_s`, as many as asked, else `packets`.

All messages are made before they are needed, and nothing is parsed that need not be. When each request was read and
answered is kept on CLOCK_MONOTONIC, which all processes of a machine share, and written at the end.

    python -m harness.null_server voice --core 1 --truth truth.parquet
"""

import argparse
import asyncio
import gc
import json
import os
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
from harness.null_server.pace import Pace
from harness.null_server.text import Text
from harness.null_server.voice import Voice, packet_of

TIMING = {"voice": (0.2, 0.1, 20), "text": (0.02, 0.01, 32)}  # first_s, interval_s, packets [chosen]
_BACKLOG = 4096  # connections that may come at once [chosen]


async def listen(
    kind: str, pace: Pace, host: str, port: int, echo: bool = False, frame_s: float | None = None
) -> tuple[asyncio.AbstractServer, str]:
    """Returns the listening server and its URL."""
    if kind == "voice":
        packet = packet_of(pace.interval_s)
        server = await picows.ws_create_server(
            lambda _: Voice(pace, packet, echo, frame_s), host, port, backlog=_BACKLOG
        )
        form = "ws://{}:{}/v1/realtime"
    else:
        make: Any = aiofastnet.create_server
        server = await make(pace.loop, lambda: Text(pace), host, port, backlog=_BACKLOG)
        form = "http://{}:{}/v1/chat/completions"
    return server, form.format(*server.sockets[0].getsockname()[:2])


class NullServer:
    """A null server in a process of its own, ready when made: `url`. `stop` ends it and returns its truth."""

    def __init__(self, kind: str, folder: Path, *args: str, core: int | None = None) -> None:
        self._truth = folder / f"truth-{kind}.parquet"
        command = [
            sys.executable,
            "-P",
            "-m",
            "harness.null_server",
            kind,
            "--truth",
            str(self._truth),
            *args,
        ]
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
        """Returns `Truth.table` and `Truth.summary`."""
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
    parser = argparse.ArgumentParser(prog="python -m harness.null_server", description=__doc__)
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
    parser.add_argument("--frame-s", type=float, help="answer frames of audio of this length, not turns")
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
