"""What `rehearse live` says of a server that breaks some of its replies: a table of verdicts, over real sockets.

The server breaks a share of its replies, evenly spread, at a stage (before the first packet, in the middle, after the
last one) and in a way (an error event, a closed connection, silence, half of the length). Otherwise it is fast. A
verdict must never be PASS where the share of failed turns is above its target. Half of the length is no failure.

    python -m tests.selftest.broken_replies [--protocol text,speech,realtime] [--jobs 2] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

SHARES = (0.0, 0.01, 0.02, 0.1, 0.4)
STAGES = ("before", "in", "after")
WAYS = ("error", "close", "silence", "half")
PIECES = 8
FIRST_S, PIECE_S, AUDIO_S = 0.05, 0.02, 0.06
RATE = 24_000
_SAMPLES = range(int(RATE * AUDIO_S))
TONE = struct.pack(f"<{len(_SAMPLES)}h", *(int(9000 * math.sin(2 * math.pi * 220 * i / RATE)) for i in _SAMPLES))


class Broken(Exception):
    """The reply breaks here."""


class Case(NamedTuple):
    """A server: its protocol, and the replies that it breaks."""

    protocol: str
    share: float
    stage: str
    way: str

    def breaks(self, n: int) -> bool:
        """Return whether reply `n`, from 1 on, is broken."""
        return math.floor(n * self.share) > math.floor((n - 1) * self.share)

    def pieces(self, n: int) -> Iterator[int]:
        """Yield the numbers of the pieces of reply `n`. Broken where it breaks."""
        broken = self.breaks(n)
        if broken and self.stage == "before" and self.way != "half":
            raise Broken
        for piece in range(PIECES // 2 if broken and self.way == "half" else PIECES):
            if broken and self.way != "half" and self.stage == "in" and piece == PIECES // 2:
                raise Broken
            yield piece
        if broken and self.way != "half" and self.stage == "after":
            raise Broken


async def http(case: Case, port: asyncio.Future[int]) -> None:
    """Serve chat completions, or speech."""
    count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                size = next(
                    (int(line.split(":")[1]) for line in head.lower().split("\r\n") if "content-length" in line), 0
                )
                body = await reader.readexactly(size)
                if head.startswith("GET"):
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                await reply(json.loads(body), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def reply(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        chat = case.protocol == "text"

        async def put(data: bytes) -> None:
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()

        async def event(**fields: Any) -> None:
            await put(b"data: " + json.dumps({"id": "x", **fields}).encode() + b"\n\n")

        kind = b"text/event-stream" if chat else b"audio/pcm"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % kind)
        sent = 0
        try:
            await asyncio.sleep(FIRST_S)
            for piece in case.pieces(count):
                await asyncio.sleep(PIECE_S if piece else 0)
                if chat:
                    await event(choices=[{"index": 0, "delta": {"content": f"w{piece} "}, "finish_reason": None}])
                else:
                    await put(TONE)
                sent += 1
        except Broken:
            if case.way == "silence":
                await asyncio.sleep(3600)
            if case.way == "error":
                error = {"error": {"message": "engine died", "type": "server_error", "code": 500}}
                await (event(**error) if chat else put(json.dumps(error).encode()))
            if case.way == "error" and chat:
                await put(b"data: [DONE]\n\n")
                await put(b"")
                return
            raise ConnectionResetError from None
        if chat:
            await event(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
            await event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": sent})
            await put(b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port.set_result(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def realtime(case: Case, port: asyncio.Future[int]) -> None:
    """Serve OpenAI's realtime protocol."""
    count = 0
    session = {"type": "realtime", "audio": {"output": {"format": {"type": "audio/pcm", "rate": RATE}}}}

    async def call(socket: ServerConnection) -> None:
        tasks: list[asyncio.Task[None]] = []

        async def say(kind: str, **fields: Any) -> None:
            await socket.send(json.dumps({"type": kind, **fields}))

        async def reply(n: int) -> None:
            at = {"response_id": f"r{n}", "item_id": f"i{n}"}
            try:
                await say("response.created", response={"id": f"r{n}"})
                await asyncio.sleep(FIRST_S)
                for piece in case.pieces(n):
                    await asyncio.sleep(PIECE_S if piece else 0)
                    await say("response.output_audio.delta", delta=base64.b64encode(TONE).decode(), **at)
                await say("response.done", response={"id": f"r{n}", "status": "completed"})
            except Broken:
                if case.way == "error":
                    await say("error", error={"type": "server_error", "code": "engine_died", "message": "died"})
                elif case.way == "close":
                    await socket.close(1011)
            except ConnectionClosed:
                pass

        nonlocal count
        await say("session.created", session=session)
        try:
            async for data in socket:
                kind = json.loads(data)["type"]
                if kind == "session.update":
                    await say("session.updated", session=session)
                elif kind == "response.create":
                    count += 1
                    tasks.append(asyncio.create_task(reply(count)))
        except ConnectionClosed:
            pass
        for task in tasks:
            task.cancel()

    async with serve(call, "127.0.0.1", 0) as server:
        port.set_result(next(iter(server.sockets)).getsockname()[1])
        await asyncio.Future()


def serve_case(case: Case) -> None:
    """Serve for ever; the port goes to standard output."""

    async def main() -> None:
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        port.add_done_callback(lambda found: print(found.result(), flush=True))
        await (realtime if case.protocol == "realtime" else http)(case, port)

    asyncio.run(main())


PATHS = {
    "text": "http://127.0.0.1:{}/v1",
    "speech": "http://127.0.0.1:{}/v1/audio/speech",
    "realtime": "ws://127.0.0.1:{}/v1/realtime",
}
SHORT = {
    "text": [f"reply_tokens={PIECES}", f"max_reply_tokens={PIECES}", "prompt_tokens=8", "max_prompt_tokens=16"],
    "speech": ["turns=1", "max_reply_tokens=4"],
    "realtime": ["turns=1", "max_reply_tokens=4"],
}


def judged(case: Case, seconds: float) -> dict[str, Any]:
    """Return the verdict of a run against such a server, as its file has it."""
    command = [sys.executable, "-m", "tests.selftest.broken_replies", "--serve", json.dumps(case)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, tempfile.TemporaryDirectory() as name:
        try:
            assert server.stdout is not None
            url = PATHS[case.protocol].format(server.stdout.readline().strip())
            words = [
                "live",
                url,
                "--seed",
                "0",
                "--sessions",
                "16",
                "--duration",
                f"{seconds:g}",
                "--out",
                f"{name}/run",
            ]
            settings = [*SHORT[case.protocol], "turn_timeout_s=2", "send_delay_limit_ms=5000"]
            words += [word for each in settings for word in ("--set", each)]
            dialect = ["--dialect", "openai"] if case.protocol == "realtime" else []
            program = [sys.executable, "-c", "from reports.cli import main; main()"]
            ran = subprocess.run([*program, *words, *dialect], capture_output=True, text=True)
        finally:
            server.kill()
        path = Path(name, "run", "verdict.json")
        if not path.is_file():
            return {"verdict": f"status {ran.returncode}", "sentence": ran.stderr.strip()[-300:], "failed": None}
        verdict = json.loads(path.read_text())
        ((load,)) = (verdict["loads"],)
        failed = next(each for each in load[0]["targets"] if each["metric"] == "failed_share")
        return {**verdict, "status": ran.returncode, "failed": failed["value"], "n": failed["n"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--protocol", default="text,speech,realtime")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="shares 1 and 40 % alone")
    chosen = parser.parse_args()
    if chosen.serve:
        serve_case(Case(*json.loads(chosen.serve)))
        return
    shares = (0.01, 0.4) if chosen.quick else SHARES
    cases = [
        Case(protocol, share, stage, way)
        for protocol, share, stage, way in product(chosen.protocol.split(","), shares, STAGES, WAYS)
        if (share or (stage, way) == (STAGES[0], WAYS[0])) and (way != "half" or stage == STAGES[0])
    ]
    found = []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for verdict in pool.map(lambda case: judged(case, chosen.seconds), cases):
            found.append(verdict)
            print(f"{len(found)} of {len(cases)}: {verdict['verdict']}", file=sys.stderr, flush=True)
    table = Table("protocol", "broken", "stage", "way", "failed", "n", "status", "first line")
    wrong = 0
    for case, verdict in zip(cases, found, strict=True):
        failed = verdict["failed"]
        wrong += verdict["verdict"] == "PASS" and (failed is None or failed > 0.01)
        shown = "–" if failed in (None, "inf") else f"{100 * failed:.1f} %"
        words = (case.protocol, f"{100 * case.share:g} %", case.stage, case.way, shown, str(verdict.get("n", "")))
        table.add_row(*words, str(verdict.get("status", "")), verdict["sentence"])
    Console(width=240).print(table)
    print(f"{wrong} of {len(cases)} say PASS with a share of failed turns above 1 %")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
