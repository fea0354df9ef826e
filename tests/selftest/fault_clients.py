"""Clients that misbehave in every way we know, and bursts of connections, in a process apart from measured clients.

    python -m tests.selftest.fault_clients URL SECONDS BURST_SIZE BURSTS

`AT_ONCE` clients, of one kind after the other. It prints lines of JSON: {"burst": [begin, end], "answers": {...}} for
each burst, times on CLOCK_MONOTONIC, and at the end {"faults": {kind: {answer: count}}}. An answer is the close code,
`error` where the server only said so and went on, or `dropped` for a socket that ended without a close frame.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import random
import resource
import socket
import struct
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from harness.clocks.clock import WallClockLoop

AT_ONCE = 16
"""[chosen] half as many as healthy sessions."""
PATIENCE_S = 60.0
"""For the server to do what it should: [chosen] longer than any of its limits in a churn."""
RATE = 24_000
DROPPED = "dropped"


class FaultClient:
    """A WebSocket client that may do anything with its socket. `shakes`: it finishes its handshake."""

    def __init__(self, url: str, receive_bytes: int = 0, shakes: bool = True) -> None:
        self._url, self._receive_bytes, self._shakes = url, receive_bytes, shakes
        self._ws = ClientProtocol(parse_uri(url))
        self._kinds: set[str] = set()
        self.errors = 0

    async def __aenter__(self) -> Self:
        where = urlsplit(self._url)
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if self._receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        await asyncio.get_running_loop().sock_connect(self.socket, (where.hostname, where.port or 80))
        if self._shakes:
            self._ws.send_request(self._ws.connect())
            await self.flush()
            await self._read_until(lambda: self._ws.state is not State.CONNECTING)
        if self._ws.handshake_exc is not None:
            raise self._ws.handshake_exc
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.close()

    def reset(self) -> str:
        """Break the connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
        return DROPPED

    async def raw(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def flush(self) -> None:
        for data in self._ws.data_to_send():
            if data:
                await self.raw(data)

    async def say(self, kind: str, **fields: Any) -> None:
        await self.text(json.dumps({"type": kind, **fields}).encode())

    async def text(self, data: bytes) -> None:
        self._ws.send_text(data)
        await self.flush()

    async def speak(self, seconds: float, *, real_time: bool = False) -> None:
        """Noise, in messages of 0.1 s."""
        for _ in range(round(seconds * 10)):
            audio = base64.b64encode(random.randbytes(RATE // 10 * 2)).decode()
            await self.say("input_audio_buffer.append", audio=audio)
            if real_time:
                await asyncio.sleep(0.1)

    async def manual(self) -> None:
        """Turns end when this client says so."""
        audio = {"input": {"turn_detection": None}}
        await self.say("session.update", session={"type": "realtime", "audio": audio})

    async def wait_for(self, kind: str) -> None:
        """Read until the server has sent an event of this kind; ConnectionError when it will not."""
        await self._read_until(lambda: kind in self._kinds)
        if kind not in self._kinds:
            raise ConnectionResetError

    async def part(self) -> str:
        """Close in all politeness; what the server answered."""
        self._ws.send_close(1000)
        await self.flush()
        answer = await self.closed()
        return "error" if self.errors and answer == "1000" else answer

    async def closed(self) -> str:
        """Read until the server ends it; its close code."""
        with contextlib.suppress(ConnectionError):
            await self._read_until(lambda: self._ws.state is State.CLOSED or self._ws.close_rcvd is not None)
        code = self._ws.close_rcvd
        return str(code.code) if code is not None else DROPPED

    async def ended(self, sending: Awaitable[None]) -> str:
        """Send until the server has had enough; what it said."""
        sent = asyncio.ensure_future(sending)
        try:
            return await self.closed()
        finally:
            sent.cancel()
            await asyncio.gather(sent, return_exceptions=True)

    async def _read_until(self, true: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while not true():
            data = await loop.sock_recv(self.socket, 65536)
            if not data:
                return
            self._ws.receive_data(data)
            for event in self._ws.events_received():
                if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
                    kind = json.loads(bytes(event.data))["type"]
                    self._kinds.add(kind)
                    self.errors += kind == "error"
            with contextlib.suppress(OSError):  # it has closed already, and what it said is still to be read
                await self.flush()


async def stalls(client: FaultClient) -> str:
    """It sends nothing, reads nothing and answers no ping."""
    await client.speak(0.5)
    await asyncio.sleep(20)
    return await client.closed()


async def vanishes_speaking(client: FaultClient) -> str:
    await client.speak(1.0, real_time=True)
    return client.reset()


async def vanishes_listening(client: FaultClient) -> str:
    await client.manual()
    await client.speak(0.5)
    await client.say("input_audio_buffer.commit")
    await client.say("response.create")
    await client.wait_for("response.output_audio.delta")
    return client.reset()


GARBAGE = (
    b"",
    b"[1, 2",
    b"null",
    b'{"type": 7}',
    b'{"type": "no.such.event"}',
    b'{"type": "input_audio_buffer.append", "audio": "%%%"}',
    b'{"type": "session.update", "session": "no"}',
    b'{"type": "response.create", "response": {"metadata": {"rehearsal": "{"}}}',
    b'{"type": "x", "deep": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
)


async def garbage(client: FaultClient) -> str:
    """Messages that are no JSON, no object, of no known type, or with fields of the wrong type."""
    for text in GARBAGE:
        await client.text(text)
    await client.wait_for("error")
    return await client.part()


async def reuses_ids(client: FaultClient) -> str:
    """The same item, event and response over and over, and what is not its own."""
    await client.manual()
    item = {"id": "mine", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    for _ in range(3):
        await client.say("conversation.item.create", event_id="same", item=item)
    for _ in range(3):
        await client.say("response.create", event_id="same")
    await client.say("response.cancel", response_id="of_another")
    await client.wait_for("error")
    await client.wait_for("response.created")
    for _ in range(3):
        await client.say("response.cancel", event_id="same")
    return await client.part()


async def sends(client: FaultClient, data: bytes) -> str:
    await client.raw(data)
    return await client.closed()


async def never_reads(client: FaultClient) -> str:
    """It asks for one reply after the other."""
    asked = {"metadata": {"rehearsal": json.dumps({"output_tokens": 120, "reply_audio_s": 40.0})}}
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "talk"}]}
    await client.manual()
    for _ in range(4):
        await client.say("conversation.item.create", item=item)
        await client.say("response.create", response=asked)
        await asyncio.sleep(5)
    return await client.closed()


OVERSIZE = b'{"type": "' + b"x" * 4_000_000 + b'"}'
BINARY = Frame(Opcode.BINARY, random.randbytes(1920)).serialize(mask=True) * 10
FLOOD = Frame(Opcode.TEXT, b"{}").serialize(mask=True) * 20_000
BAD_FRAMES = [b"\xff" * 64, b"\x81\x05hello", b"\x80\x80\x00\x00\x00\x00"]
HALF = b"GET /v1/realtime HTTP/1.1\r\nHost: here\r\n"

FAULTS: dict[str, tuple[Callable[[FaultClient], Awaitable[str]], tuple[str, ...]]] = {
    "stalls in mid-utterance": (stalls, ("1011", "1008", DROPPED)),
    "idles": (FaultClient.closed, ("1008",)),
    "vanishes while speaking": (vanishes_speaking, (DROPPED,)),
    "vanishes while listening": (vanishes_listening, (DROPPED,)),
    "sends garbage": (garbage, ("error",)),
    "reuses ids": (reuses_ids, ("error",)),
    "sends oversize messages": (lambda client: client.ended(client.text(OVERSIZE)), ("1009",)),
    "sends binary frames": (lambda client: sends(client, BINARY), ("1003",)),
    "sends bad frames": (lambda client: sends(client, random.choice(BAD_FRAMES)), ("1002",)),
    "floods with messages": (lambda client: client.ended(client.raw(FLOOD)), ("1008",)),
    "rushes with audio": (lambda client: client.ended(client.speak(120)), ("1008",)),  # seconds at once
    "never reads": (never_reads, ("1008", DROPPED)),
    "never finishes its request": (lambda client: sends(client, HALF), (DROPPED,)),
}
"""Each kind with its right answers. By RFC 6455, section 7.4.1: 1002 breaks the protocol, 1003 sends unwanted data,
1008 breaks a rule, 1009 says too much at once; 1011 where the server gave up. The connection of a client that does not
read may be reset."""
OPTIONS: dict[str, dict[str, Any]] = {
    "never reads": {"receive_bytes": 8192},
    "never finishes its request": {"shakes": False},
}


async def play(url: str, kind: str) -> str:
    """Let one client misbehave; return how it was answered."""
    async with FaultClient(url, **OPTIONS.get(kind, {})) as client:
        return await FAULTS[kind][0](client)


async def burst(url: str, size: int) -> dict[str, int]:
    """Open `size` connections at once and return the number of each answer: hello, a close code, or dropped. Accepted
    clients stay until everybody has been answered."""
    everybody = asyncio.Event()
    answers: Counter[str] = Counter()

    async def come() -> None:
        try:
            async with FaultClient(url) as one:
                hello = asyncio.ensure_future(one.wait_for("session.created"))
                await asyncio.wait({hello}, timeout=PATIENCE_S)
                inside = hello.done() and hello.exception() is None
                hello.cancel()
                answers["hello" if inside else await one.closed()] += 1
                if inside:
                    if answers.total() < size:
                        await everybody.wait()
                    await one.part()
        except OSError as error:
            answers[type(error).__name__] += 1
        if answers.total() >= size:
            everybody.set()

    await asyncio.gather(*(come() for _ in range(size)))
    return dict(answers)


async def misbehave(url: str, seconds: float, burst_size: int, bursts: int) -> dict[str, dict[str, int]]:
    """Let clients misbehave, with bursts alone evenly in between; return the answers by kind."""
    loop = asyncio.get_running_loop()
    begin_s, tally = loop.time(), defaultdict[str, Counter[str]](Counter)
    order = itertools.cycle(FAULTS)
    breaks = [begin_s + seconds * (n + 1) / (bursts + 1) for n in range(bursts)] + [begin_s + seconds]

    async def one_after_the_other(until_s: float) -> None:
        while loop.time() < until_s:
            kind = next(order)
            try:
                answer = await asyncio.wait_for(play(url, kind), PATIENCE_S)
            except TimeoutError:
                answer = "nothing"
            except OSError:
                answer = DROPPED
            tally[kind][answer] += 1

    for number, until_s in enumerate(breaks):
        await asyncio.gather(*(one_after_the_other(until_s) for _ in range(AT_ONCE)))
        if number < bursts:
            from_s = time.monotonic()
            answers = await burst(url, burst_size)
            print(json.dumps({"burst": [from_s, time.monotonic()], "answers": answers}), flush=True)
    return {kind: dict(counts) for kind, counts in tally.items()}


def main() -> None:
    url, seconds, size, bursts = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with asyncio.Runner(loop_factory=WallClockLoop) as runner:
        faults = runner.run(misbehave(url, float(seconds), int(size), int(bursts)))
    print(json.dumps({"faults": faults}), flush=True)


if __name__ == "__main__":
    main()
