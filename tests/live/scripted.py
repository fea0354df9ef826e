"""Servers of each dialect, small enough to read, over real sockets; and users who say what is recorded."""

import asyncio
import base64
import json
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from harness.client.client_params import ClientParams
from harness.clocks import clock
from harness.events.log import EventLog
from harness.live.endpoints.duplex_endpoint import DuplexEndpoint
from harness.live.endpoints.logs import FailureLog, SendLog
from harness.live.endpoints.target import TargetParams
from harness.live.kinds import kind_of
from harness.request_tables.request_table import request_table
from tests.population import serve_population
from workloads.audio.synth import synthetic_clips
from workloads.audio.utterances import Utterance
from workloads.generators.content import note
from workloads.trace import Trace

SPEECH_S = 0.33  # no whole number of pieces
PIECES = 17  # of 20 ms in an utterance of 0.33 s
PACKET_S = 0.1


def spoken(sessions: int = 1, turns: int = 1, gap_s: float = 0.0, **columns: Any) -> Trace:
    """Users who each say `turns` short utterances; `columns` as of a trace, one value or one for each turn."""
    clips = synthetic_clips()
    utterances = [Utterance(clip, 0.0, SPEECH_S) for clip in clips[:3]]
    rows = sessions * turns
    values: dict[str, Any] = {
        "session": [i // turns for i in range(rows)],
        "turn": [i % turns for i in range(rows)],
        "arrival_s": [0.05 + gap_s * (i // turns) if i % turns == 0 else float("nan") for i in range(rows)],
        "modality": "audio",
        "input_tokens": 5,
        "audio_s": SPEECH_S,
        "output_tokens": 7,
        "reply_audio_s": 0.3,
        "think_s": [float("nan") if i % turns == 0 else 0.05 for i in range(rows)],
        "network_s": 0.0,
    }
    return Trace.from_columns(
        {**values, **columns}, generator="speech", params={"path": None}, notes=[note(u) for u in utterances]
    )


def typed(sessions: int = 1, turns: int = 1, **columns: Any) -> Trace:
    """Users who type."""
    trace = spoken(sessions, turns).columns()
    names = ("session", "turn", "arrival_s", "think_s")
    values = {name: trace[name] for name in names}
    rest = {"modality": "text", "input_tokens": 5, "output_tokens": 4, "network_s": 0.0}
    return Trace.from_columns({**values, **rest, **columns}, generator="poisson")


@cache
def tone(seconds: float, rate: int = 24_000, size: float = 8000) -> bytes:
    """A sound of 400 Hz, 16 bit; `size`: its amplitude of 32,768."""
    at = np.arange(round(seconds * rate)) / rate
    return (size * np.sin(2 * np.pi * 400 * at)).astype("<i2").tobytes()


@dataclass
class Call:
    """One connection as the server saw it."""

    path: str
    headers: dict[str, str]
    received: list[dict[str, Any]] = field(default_factory=list)
    at_s: list[float] = field(default_factory=list)
    closed: int | None = None

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.received if event["type"] == kind]

    @property
    def kinds(self) -> list[str]:
        """Types of the received events in order, repetitions once."""
        kinds = [event["type"] for event in self.received]
        return [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]

    @property
    def pcm(self) -> list[bytes]:
        return [base64.b64decode(event["audio"]) for event in self.of("input_audio_buffer.append")]


class Peer:
    """The server's end of one connection, for a script."""

    def __init__(self, socket: ServerConnection, call: Call) -> None:
        self.socket, self.call = socket, call

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def expect(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of these types."""
        while True:
            event = json.loads(await self.socket.recv())
            self.call.received.append(event)
            self.call.at_s.append(asyncio.get_running_loop().time())
            if event["type"] in kinds:
                return event

    async def pieces(self, count: int) -> None:
        """Hear `count` more pieces of audio."""
        for _ in range(count):
            await self.expect("input_audio_buffer.append")

    async def audio(self, response: str, seconds: float = PACKET_S, rate: int = 24_000, **fields: Any) -> None:
        pcm = base64.b64encode(tone(seconds, rate)).decode()
        more = {"response_id": response, "item_id": f"item_{response}", "delta": pcm}
        await self.say("response.output_audio.delta", **{**more, **fields})

    async def text(self, response: str, delta: str = "word ") -> None:
        await self.say(
            "response.output_audio_transcript.delta", response_id=response, item_id=f"item_{response}", delta=delta
        )

    async def done(
        self, response: str, status: str = "completed", text: int = 10, audio: int = 40, **fields: Any
    ) -> None:
        usage = {
            "total_tokens": text + audio,
            "output_tokens": text + audio,
            "output_token_details": {"text_tokens": text, "audio_tokens": audio},
        }
        about = {"id": response, "status": status, "usage": usage, **fields}
        await self.say("response.done", response=about)

    async def drain(self) -> None:
        """Hear until the client hangs up."""
        await self.expect("")


Script = Callable[[Peer], Awaitable[None]]

SESSION = {"type": "realtime", "audio": {"output": {"format": {"type": "audio/pcm", "rate": 24_000}}}}
OURS = {**SESSION, "rehearsal": {"version": 1, "serves": "turns", "engine": "x", "device": "virtual"}}


async def greet(peer: Peer, ours: bool = True) -> None:
    """Of OpenAI's protocol and ours."""
    session = OURS if ours else SESSION
    await peer.say("session.created", session=session)
    await peer.expect("session.update")
    await peer.say("session.updated", session=session)


async def reply(peer: Peer, response: str, packets: int = 3) -> None:
    """An ordinary reply in the events of OpenAI's protocol."""
    await peer.say("response.created", response={"id": response, "status": "in_progress"})
    await peer.say("rate_limits.updated", rate_limits=[])
    await peer.text(response)
    for _ in range(packets):
        await peer.audio(response)
    await peer.say("response.output_audio.done", response_id=response)
    await peer.done(response)


async def openai(peer: Peer) -> None:
    await greet(peer)
    turn = 0
    while True:
        await peer.expect("response.create")
        await reply(peer, f"resp_{turn}")
        turn += 1


@dataclass
class Outcome:
    """What a run left: events (kinds and stages as strings), sends, failures, and each connection."""

    events: pd.DataFrame
    sends: pd.DataFrame
    failures: pd.DataFrame
    calls: list[Call]
    trace: Trace

    def times(self, kind: str, session: int = 0) -> list[float]:
        return self.events.query("kind == @kind and session == @session")["t"].tolist()

    def values(self, kind: str, stage: str = "", session: int = 0) -> list[float]:
        rows = self.events.query("kind == @kind and stage == @stage and session == @session")
        return [round(value, 6) for value in rows["value"]]

    def kinds(self, session: int = 0) -> list[str]:
        """The client's side of a session in order, without what repeats."""
        many = {"audio", "text", "late_audio", "connected"}
        mine = self.events.query("session == @session and stage == ''")["kind"]
        return [kind for kind in mine if kind not in many]


def table(outcome: Any) -> pd.DataFrame:
    return request_table(outcome.events, pd.DataFrame(outcome.trace.columns()))


Use = Callable[[str], Awaitable[None]]
Serving = Callable[[Use], Coroutine[Any, Any, list[Call]]]
"""Runs a server while the coroutine that it is given uses its url; returns the calls that came."""


def played(
    trace: Trace,
    serving: Serving,
    client: dict[str, Any] | None = None,
    virtual: bool = False,
    save: Path | None = None,
    **target: Any,
) -> Outcome:
    """The users of `trace` at the server; `target` as TargetParams. `save`: where recordings of calls are kept."""
    log, sends, failures = EventLog(), SendLog(), FailureLog()

    async def users(url: str) -> None:
        endpoint = kind_of(trace).endpoint(trace, TargetParams(url=url, **target), log, sends, failures)
        await endpoint.prepare()
        loop: Any = asyncio.get_running_loop()
        if not virtual:
            loop.restart()
        async with asyncio.timeout(60):
            params = ClientParams(**{"turn_timeout_s": 5.0, **(client or {})})
            await serve_population(trace, endpoint, log, params)
            await endpoint.aclose()
        if save is not None:
            assert isinstance(endpoint, DuplexEndpoint)
            endpoint.save(save)

    calls = clock.run(serving(users), virtual=virtual)
    events = log.events().to_pandas().astype({"kind": str, "stage": str})
    return Outcome(events, sends.table().to_pandas(), failures.table().to_pandas(), calls, trace)


async def nobody(use: Use) -> list[Call]:
    """Nobody listens at the url."""
    await use("ws://127.0.0.1:9/x")
    return []


def play(
    trace: Trace,
    script: Script,
    client: dict[str, Any] | None = None,
    refuse: Callable[[ServerConnection, Any], Any] | None = None,
    path: str = "/v1/realtime",
    **target: Any,
) -> Outcome:
    """Play `trace` against a WebSocket server that follows `script` on each connection."""

    async def serving(use: Use) -> list[Call]:
        calls: list[Call] = []

        async def handler(socket: ServerConnection) -> None:
            assert socket.request is not None
            call = Call(socket.request.path, dict(socket.request.headers.raw_items()))
            calls.append(call)
            with suppress(ConnectionClosed):
                await script(Peer(socket, call))
            await socket.close()
            call.closed = socket.close_code

        async with serve(handler, "127.0.0.1", 0, process_request=refuse, ping_interval=None) as server:
            await use(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}")
        return calls

    return played(trace, serving, client, **target)


HEAD = b"HTTP/1.1 %d X\r\nContent-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Answer = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


DONE = b"data: [DONE]\n\n"


def event(data: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def wav(samples: bytes, rate: int = 24_000, bits: int = 16, tag: int = 1, size: int = 2**32 - 1) -> bytes:
    """A WAV of one channel; `size`: of its samples, as it says."""
    form = struct.pack("<IHHIIHH", 16, tag, 1, rate, rate * bits // 8, bits // 8, bits)
    return b"RIFF\xff\xff\xff\xffWAVEfmt " + form + b"data" + size.to_bytes(4, "little") + samples


def chunked(parts: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def over_http(answer: Answer, use: Use, path: str = "/v1") -> list[Call]:
    """The requests that came to an HTTP server, each answered by `answer`, while `use` had its url."""
    calls: list[Call] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
                headers = dict(line.split(": ", 1) for line in lines)
                if first.startswith("GET"):  # such as of its models
                    writer.write(HEAD % 404 + chunked([]))
                    continue
                body = json.loads(await reader.readexactly(int(headers["Content-Length"])))
                calls.append(Call(first, headers, [{"type": "request", **body}]))
                await answer(body, writer)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
        await use(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}")
    return calls
