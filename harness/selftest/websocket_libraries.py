"""Which WebSocket library the client is built on: each one with sessions that send and receive, on one core.

Every session sends a message of 20 ms of speech, encoded before, every 20 ms, and receives an audio packet for each
from the null server. aiohttp is compared where it is installed (vLLM brings it); nothing else here uses it.

    python -m rehearsal.harness.selftest.websocket_libraries --sessions 64,128,256,512
"""

import argparse
import asyncio
import base64
import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from rehearsal.harness import clock
from rehearsal.harness.null_server.server import NullServer

CHUNK_S = 0.02  # of speech in a message, TargetParams' default
MESSAGE = b'{"type":"input_audio_buffer.append","audio":"%s"}' % base64.b64encode(
    bytes(960)
)  # 24 kHz, 16 bits
Read = Callable[[], None]
Sender = Callable[[], Awaitable[Any]]


async def _picows(url: str, read: Read) -> Callable[[], None]:
    from rehearsal.harness.live.transport.websocket import connect

    class Receiver:
        def message(self, data: bytes, at_s: float) -> None:
            read()

        def closed(self, code: int, reason: str, at_s: float) -> None:
            pass

    socket = await connect(url, Receiver(), timeout_s=30)
    return lambda: socket.send(MESSAGE)


async def _websockets(url: str, read: Read) -> Sender:
    import websockets

    socket = await websockets.connect(url, compression=None, ping_interval=None, max_queue=None)

    async def receive() -> None:
        while True:
            await socket.recv(decode=False)
            read()

    _keep(receive())
    return lambda: socket.send(MESSAGE, text=True)


async def _aiohttp(url: str, read: Read) -> Sender:
    import aiohttp

    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    socket = await session.ws_connect(url, compress=0, max_msg_size=0)

    async def receive() -> None:
        while True:
            await socket.receive()
            read()

    _keep(receive())
    return lambda: socket.send_frame(MESSAGE, aiohttp.WSMsgType.TEXT)


LIBRARIES: dict[str, Callable[[str, Read], Awaitable[Any]]] = {
    "picows": _picows,
    "websockets": _websockets,
    "aiohttp": _aiohttp,
}
_kept: set[asyncio.Task[None]] = set()


def _keep(receiver: Any) -> None:
    _kept.add(asyncio.create_task(receiver))


async def _measure(library: str, url: str, sessions: int, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    received, slips = 0, []

    def read() -> None:
        nonlocal received
        received += 1

    senders = [await LIBRARIES[library](url, read) for _ in range(sessions)]
    rounds = round(seconds / CHUNK_S)
    begin_s = loop.time() + 0.5

    async def pace(index: int, send: Sender) -> None:
        for k in range(rounds):
            due_s = begin_s + CHUNK_S * (k + index / sessions)
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await send()
            slips.append(loop.time() - due_s)

    def step(send: Callable[[], None], due_s: float, left: int) -> None:
        send()
        slips.append(loop.time() - due_s)
        if left:
            loop.call_at(due_s + CHUNK_S, step, send, due_s + CHUNK_S, left - 1)

    gc.collect()
    gc.freeze()
    gc.disable()
    cpu_s = time.process_time()
    if library == "picows":
        for index, send in enumerate(senders):
            due_s = begin_s + CHUNK_S * index / sessions
            loop.call_at(due_s, step, send, due_s, rounds - 1)
    else:
        for index, send in enumerate(senders):
            _keep(pace(index, send))
    wait_s = begin_s - loop.time() + 3 * seconds
    end_s = loop.time() + wait_s
    while len(slips) < sessions * rounds and loop.time() < end_s:
        await asyncio.sleep(0.02)
    wall_s, cpu_s = loop.time() - begin_s, time.process_time() - cpu_s
    await asyncio.sleep(0.1)
    p50, p99, p999 = (float(np.percentile(slips, p)) for p in (50, 99, 99.9))
    return {
        "library": library,
        "sessions": sessions,
        "sent": len(slips),
        "received": received,
        "slip_p50_s": p50,
        "slip_p99_s": p99,
        "slip_p999_s": p999,
        "cpu_share": cpu_s / wall_s,
        "cpu_us_per_message": 1e6 * cpu_s / len(slips),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal.harness.selftest.websocket_libraries", description=__doc__
    )
    parser.add_argument("--sessions", default="64,128,256,512")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--one", nargs=3, metavar=("LIBRARY", "URL", "N"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        library, url, sessions = chosen.one
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(
            json.dumps(clock.run(_measure(library, url, int(sessions), chosen.seconds), virtual=False)),
            flush=True,
        )
        os._exit(0)  # hundreds of connections, nothing to say to them
    console = Console()
    if not console.is_terminal:
        console.width = 110
    table = Table(
        "library", "sessions", "sent", "received", "slip P50 ms", "P99 ms", "P99.9 ms", "CPU", "µs/message"
    )
    server_core = max(os.sched_getaffinity(0))
    for sessions in chosen.sessions.split(","):
        for library in LIBRARIES:
            if importlib.util.find_spec(library) is None:
                continue
            with (
                tempfile.TemporaryDirectory() as folder,
                NullServer(
                    "voice", Path(folder), "--echo", "--interval-s", str(CHUNK_S), core=server_core
                ) as server,
            ):
                command = [sys.executable, "-m", "rehearsal.harness.selftest.websocket_libraries"]
                out = subprocess.run(
                    [*command, "--seconds", str(chosen.seconds), "--one", library, server.url, sessions],
                    stdout=subprocess.PIPE,
                    check=True,
                )
            row = json.loads(out.stdout)
            milliseconds = (f"{1e3 * row[name]:.2f}" for name in ("slip_p50_s", "slip_p99_s", "slip_p999_s"))
            table.add_row(
                library,
                sessions,
                str(row["sent"]),
                str(row["received"]),
                *milliseconds,
                f"{row['cpu_share']:.0%}",
                f"{row['cpu_us_per_message']:.0f}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
