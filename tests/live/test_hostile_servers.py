"""Servers that send without end, or bytes of no protocol, over real sockets: the turn fails with the limit as its
reason, the other calls go on, and nothing stays open."""

import asyncio
import base64
import hashlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.live.endpoints.transport import limits
from harness.live.endpoints.transport.connect_diagnosis import asked
from harness.live.endpoints.transport.get import Answer, get
from harness.live.endpoints.transport.http import HttpPool
from harness.live.endpoints.transport.limits import MOST_HEAD
from harness.live.endpoints.transport.websocket import ConnectFailed, connect
from tests.builders import refused
from tests.live.receivers import Receiver, Stream
from tests.live.scripted import over_http, played, spoken, table, typed
from tests.live.test_preflight import look
from tests.waiting import in_a_loop, until

KERNEL = 32 * 2**20
"""Bytes that sockets hold at most, of both sides."""
Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each connection by `write`, until the client breaks it. `sent`: bytes, all connections together. `head`:
    of the newest request. `ends`: connections that have ended."""

    def __init__(self, write: Write, websocket: bool = False) -> None:
        self.sent, self.ends, self.head = 0, 0, b""
        self._write, self._websocket = write, websocket

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            self.head = await reader.readuntil(b"\r\n\r\n")
            if self._websocket:
                writer.write(handshake(self.head))
            counted = writer.write

            def write(data: bytes) -> None:
                self.sent += len(data)
                counted(data)

            writer.write = write  # type: ignore[method-assign]
            await self._write(writer)
            while await reader.read(2**16):
                pass
        self.ends += 1
        writer.close()

    @asynccontextmanager
    async def at(self) -> AsyncIterator[str]:
        """Its HOST:PORT."""
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def handshake(head: bytes) -> bytes:
    key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    fields = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept
    return b"HTTP/1.1 101 Switching Protocols\r\n" + fields + b"\r\n\r\n"


def ws_frame(kind: int, payload: bytes = b"", last: bool = True, reserved: int = 0) -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([size])
    else:
        length = struct.pack(">BH", 126, size) if size < 2**16 else struct.pack(">BQ", 127, size)
    return bytes([last << 7 | reserved << 4 | kind]) + length + payload


def forever(begin: bytes, more: Callable[[int], bytes]) -> Write:
    """Sends `begin`, and then `more` of 0, 1, ..."""

    async def write(writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        for k in range(10**9):
            writer.write(more(k))
            await writer.drain()

    return write


def once(*pieces: bytes) -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return write


def then_closed(*pieces: bytes) -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        await once(*pieces)(writer)
        writer.close()

    return write


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
HEADERS = "headers or framing above 64 KiB"
ANSWERS = {
    "headers": forever(OK, lambda k: b"".join(b"X-%d-%d: %s\r\n" % (k, i, b"v" * 50) for i in range(100))),
    "one header": forever(OK + b"X: ", lambda k: b"v" * 10_000),
    "the name of a header": forever(OK, lambda k: b"v" * 10_000),
    "the words of a status": forever(b"HTTP/1.1 200 ", lambda k: b"v" * 10_000),
    "100 Continue": forever(b"", lambda k: b"HTTP/1.1 100 Continue\r\n\r\n" * 400),
    "trailers": forever(CHUNKED + b"1\r\na\r\n0\r\n", lambda k: b"X-%d: y\r\n" % k * 400),
    "chunks of a byte": forever(CHUNKED, lambda k: b"1\r\na\r\n" * 2000),
    "an extension of a chunk": forever(CHUNKED + b"1;", lambda k: b"x" * 10_000),
}


@pytest.mark.parametrize("kind", ANSWERS)
@in_a_loop
async def test_an_answer_without_end_fails_and_the_other_calls_go_on(kind: str) -> None:
    hostile, honest = Server(ANSWERS[kind]), Server(once(OK + b"Content-Length: 4\r\n\r\nfine"))
    async with hostile.at() as bad, honest.at() as good:
        broken, whole = Stream(), Stream()
        pools = [HttpPool(f"http://{address}/v1") for address in (bad, good)]
        exchange = pools[0].post(b"{}", broken)
        pools[1].post(b"{}", whole)
        async with asyncio.timeout(60):
            await broken.ended.wait()
            await whole.ended.wait()
        assert (broken.ends, whole.ends) == ([HEADERS], ["done"])
        assert sum(map(len, (*exchange.headers, *exchange.headers.values()))) < 4 * MOST_HEAD
        await until(lambda: hostile.ends == 1)
        for pool in pools:
            await pool.aclose()
    assert hostile.sent < KERNEL


@in_a_loop
async def test_24_kb_of_headers_and_5000_chunks_are_below_the_limits() -> None:
    head = CHUNKED[:-2] + b"".join(b"X-%d: %s\r\n" % (k, b"v" * 400) for k in range(60)) + b"\r\n"
    chunks = [b"2d\r\n" + b"data: x\n\n" * 5 + b"\r\n"] * 5000  # of 0x2d = 45 bytes
    async with Server(once(head, *chunks, b"0\r\nX-Trailer: y\r\n\r\n")).at() as address:
        pool, stream = HttpPool(f"http://{address}/v1"), Stream()
        pool.post(b"{}", stream)
        await stream.ended.wait()
        await pool.aclose()
    assert stream.ends == ["done"] and stream.body == b"data: x\n\n" * 25_000


BEGIN = ws_frame(1, b'{"type":', last=False)
FRAMES = {
    "a message above 16 MiB": forever(BEGIN, lambda k: ws_frame(0, b"x" * 60_000, last=False)),
    "a message of more than 65,536 fragments": forever(BEGIN, lambda k: ws_frame(0, last=False) * 1000),
    "garbage: a compressed frame or a reserved bit, which was not agreed on": once(
        ws_frame(1, b'{"type":"session.created"}', reserved=4)
    ),
    "garbage: a fragment out of order": once(ws_frame(0, b"x")),
    "garbage: Received frame with invalid opcode=0x3": once(ws_frame(3)),
    "garbage: Received masked frame from server, RFC 6455 section 5.1 forbids this": once(b"\x81\x81abcdx"),
}


@pytest.mark.parametrize("reason", FRAMES)
@in_a_loop
async def test_messages_without_end_and_frames_of_no_meaning_end_the_connection(reason: str) -> None:
    hostile, honest = Server(FRAMES[reason], True), Server(once(ws_frame(1, b"hello")), True)
    async with hostile.at() as bad, honest.at() as good:
        broken, whole = Receiver(), Receiver()
        first = await connect(f"ws://{bad}/", broken, timeout_s=5)
        second = await connect(f"ws://{good}/", whole, timeout_s=5)
        async with asyncio.timeout(60):
            await broken.ended.wait()
            assert await whole.has(1) == [b"hello"]
        assert (broken.ends, broken.messages) == ([(1006, reason)], [])
        await until(lambda: hostile.ends == 1)
        assert whole.ends == []
        first.abort()
        second.close()
        await whole.ended.wait()
    assert hostile.sent < KERNEL


@in_a_loop
async def test_a_frame_may_have_16_mib_and_no_byte_more() -> None:
    for size, expected in ((limits.MOST_MESSAGE, None), (limits.MOST_MESSAGE + 1, "a message above 16 MiB")):
        async with Server(once(ws_frame(2, bytes(size))), True).at() as address:
            receiver = Receiver()
            socket = await connect(f"ws://{address}/", receiver, timeout_s=5)
            if expected is None:
                assert [len(message) for message in await receiver.has(1)] == [size]
                socket.abort()
            await receiver.ended.wait()
        assert receiver.ends == [(1006, expected or "")]


FRAME = st.builds(
    ws_frame,
    st.sampled_from([0, 1, 2, 8, 9, 10, 3, 15]),
    st.binary(max_size=6) | st.just(b"x" * 200) | st.just(struct.pack(">H", 1001)),
    st.booleans() | st.just(True),
    st.sampled_from([0, 0, 0, 4, 1]),
)


@settings(max_examples=60)
@given(st.lists(st.lists(FRAME | st.binary(max_size=5), max_size=6).map(b"".join), max_size=4))
@in_a_loop
async def test_any_frames_are_messages_or_a_named_failure(pieces: list[bytes]) -> None:
    async with Server(then_closed(*pieces), True).at() as address:
        receiver = Receiver()
        with suppress(ConnectFailed):
            await connect(f"ws://{address}/", receiver, timeout_s=5)
            async with asyncio.timeout(30):
                await receiver.ended.wait()
            ((code, reason),) = receiver.ends
            assert reason == "" or code != 1006 or reason.startswith(("garbage: ", "a message"))


async def fetched(*pieces: bytes) -> Answer | str:
    """The answer to a GET, or the name of its failure."""
    async with Server(then_closed(*pieces)).at() as address:
        try:
            return await asyncio.to_thread(get, f"http://{address}/metrics?x=1", timeout_s=10, most_bytes=1000)
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"


BODY = b"x" * 50


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((OK + b"Server: me\r\nContent-Length: 50\r\n\r\n", BODY), (200, "me", BODY, "")),
        ((OK + b"\r\n" + BODY,), (200, "", BODY, "")),
        ((b"HTTP/1.1 100 Continue\r\n\r\n", CHUNKED + b"32\r\n" + BODY + b"\r\n0\r\n\r\n"), (200, "", BODY, "")),
        ((b"HTTP/1.1 204 none\r\n\r\n",), (204, "", b"", "")),
        ((b"HTTP/1.1 302 x\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n",), (302, "", b"", "")),
        ((OK + b"Content-Length: 99\r\n\r\n" + BODY,), (200, "", BODY, "closed")),
        ((CHUNKED + b"32\r\n" + BODY,), (200, "", BODY, "closed")),
        ((OK + b"\r\n" + BODY * 100,), (200, "", BODY * 20, "an answer above 0 KiB")),
        ((OK + b"\r\n" + BODY * 20,), (200, "", BODY * 20, "")),
        ((b"SSH-2.0 x\r\n\r\n",), "ValueError: garbage: Expected HTTP/, RTSP/ or ICE/"),
        ((b"",), "ConnectionError: closed"),
        ((OK + b"X: y\r\n",), "ConnectionError: closed"),
        ((OK, b"X: " + b"y" * 70_000), "ValueError: a head above 64 KiB"),
        ((b"HTTP/1.1 100 Continue\r\n\r\n" * 3000,), "ValueError: a head above 64 KiB"),
    ],
)
@in_a_loop
async def test_a_get_is_answered_in_whole_in_part_or_not_at_all(pieces: tuple[bytes, ...], expected: object) -> None:
    assert await fetched(*pieces) == expected


@pytest.mark.parametrize("before", [OK + b"X: ", OK + b"\r\n", CHUNKED + b"1;", b"HTTP/1.1 200 "])
@in_a_loop
async def test_a_get_that_trickles_ends_at_its_deadline(before: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and so the last one never would."""

    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        while not writer.is_closing():
            writer.write(b"a")
            await asyncio.sleep(0.01)

    def ask(address: str) -> None:
        with suppress(TimeoutError):  # before the head's end
            assert get(f"http://{address}/", timeout_s=0.2, most_bytes=1000).cut == "timeout"
        answer = asked(f"ws://{address}/v1", False)
        assert answer is None or answer.cut == "timeout"

    monkeypatch.setattr("harness.live.endpoints.transport.connect_diagnosis.PATIENCE_S", 0.2)
    async with Server(trickle).at() as address:
        await asyncio.to_thread(ask, address)


@pytest.mark.parametrize(
    ("url", "headers"),
    [("http://h/a b", {}), ("http://h/é", {}), ("http://h/", {"A": "b\r\nInjected: c"}), ("http://h/?\x7f", {})],
)
def test_a_get_with_spaces_or_line_ends_in_it_is_not_sent(url: str, headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="has characters that a request cannot have"):
        get(url, timeout_s=1, most_bytes=10, headers=headers)


def test_a_turn_of_speech_fails_with_the_limit_as_its_reason() -> None:
    async def write(writer: asyncio.StreamWriter) -> None:
        for kind in ("session.created", "session.updated"):
            writer.write(ws_frame(1, json.dumps({"type": kind, "session": {"type": "realtime"}}).encode()))
        await asyncio.sleep(0.2)
        await FRAMES["a message above 16 MiB"](writer)

    async def use(call: Callable[[str], Awaitable[None]]) -> list:
        async with Server(write, True).at() as address:
            await call(f"ws://{address}/v1/realtime")
        return []

    out = played(spoken(), use, {"turn_timeout_s": 20.0}, dialect="openai")
    assert out.failures["reason"].tolist() == ["a message above 16 MiB"]
    assert table(out)["status"].tolist() == ["failed"]


@in_a_loop
async def test_a_probe_of_a_target_names_what_its_server_breaks() -> None:
    async with Server(FRAMES["garbage: a fragment out of order"], True).at() as address:
        url = f"ws://{address}/v1/realtime"
        for dialect in ("auto", "openai"):
            with refused(f"url {url} sends garbage: a fragment out of order; see the server's log."):
                await asyncio.to_thread(look, url, dialect=dialect)


def test_a_stream_that_goes_on_after_its_end_is_cut() -> None:
    events = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'

    async def answer(body: dict, writer: asyncio.StreamWriter) -> None:
        if len(body["messages"]) == 1:
            with suppress(ConnectionError):
                await forever(OK + b"\r\n" + events, lambda k: b": more\n\n" * 1000)(writer)
            cut.set()
        else:  # the next turn, whose reply waits for that
            async with asyncio.timeout(10):
                await cut.wait()
            writer.write(OK + b"Content-Length: %d\r\n\r\n" % len(events) + events)

    async def use(call: Callable[[str], Awaitable[None]]) -> list:
        nonlocal cut
        cut = asyncio.Event()
        return await over_http(answer, call)

    cut: asyncio.Event
    out = played(typed(turns=2), use, {"turn_timeout_s": 20.0})
    assert table(out)["status"].tolist() == ["completed"] * 2 and out.failures.empty


@in_a_loop
async def test_a_receiver_that_fails_is_reported_and_not_swallowed() -> None:
    class Broken(Receiver):
        def message(self, data: bytes, at_s: float) -> None:
            raise ZeroDivisionError("a mistake of ours")

    mistakes: list[BaseException] = []
    async with Server(once(ws_frame(1, b"hello")), True).at() as address:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: mistakes.append(context["exception"]))
        receiver = Broken()
        await connect(f"ws://{address}/", receiver, timeout_s=5)
        await receiver.ended.wait()
        await until(lambda: mistakes)
    assert [type(error) for error in mistakes] == [ZeroDivisionError]


@in_a_loop
async def test_a_connection_that_nobody_waits_for_any_more_is_closed() -> None:
    """Its handshake may still come."""

    async def write(writer: asyncio.StreamWriter) -> None:
        await given_up.wait()
        writer.write(handshake(server.head))

    server, given_up, receiver = Server(write), asyncio.Event(), Receiver()
    async with server.at() as address:
        with pytest.raises(ConnectFailed, match="no connection within"):
            await connect(f"ws://{address}/", receiver, timeout_s=0.05)
        given_up.set()
        await until(lambda: server.ends == 1)
    assert receiver.messages == []
