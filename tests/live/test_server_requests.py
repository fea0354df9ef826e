"""HTTP requests to our server before a session begins: each gets an answer, and none an internal error."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from engines.endpoint.server_stats import Pool
from tests.live.sockets import Running, fetch, on_each_loop, opened
from tests.waiting import in_a_loop

KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = ("Host: here", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", KEY)
PATIENCE_S = 600.0
"""Time for a request to be complete: far beyond what a slow machine takes."""
BODY = ("Host: here", "Content-Length: 5")


def request(
    path: str = "/health", *headers: str, method: str = "GET", version: str = "HTTP/1.1", behind: bytes = b""
) -> bytes:
    lines = "".join(f"{line}\r\n" for line in (f"{method} {path} {version}", *(headers or ("Host: here",))))
    return lines.encode() + b"\r\n" + behind


def handshake(*more: str, path: str = "/v1/realtime", behind: bytes = b"") -> bytes:
    return request(path, *UPGRADE, *more, behind=behind)


def frame(opcode: Opcode, data: bytes = b"", mask: bool = True) -> bytes:
    return Frame(opcode, data).serialize(mask=mask)


async def answers(running: Running, text: bytes, half_closed: bool = True) -> bytes:
    """All that the server says to `text`."""
    reader, writer = await running.raw(text)
    if half_closed:
        writer.write_eof()
    async with asyncio.timeout(20):
        data = await reader.read()
    writer.close()
    return data


ANSWERED: dict[str, tuple[bytes, int]] = {
    "a path that is no URL": (request("http://[bad"), 400),
    "a whole URL": (request("http://elsewhere/health"), 200),
    "a path out of the tree": (request("/../../etc/passwd"), 404),
    "a path that is not ASCII": (request("/gesundheit/ü"), 400),
    "a name that a site has": (request("/metrics", "Host: evil.example:80", "Origin: http://evil.example:80"), 403),
    "an address": (request("/v1/models", "Host: 127.0.0.1:80"), 200),
    "an address of IPv6": (request("/v1/models", "Host: [::1]:80"), 200),
    "a name below localhost": (request("/v1/models", "Host: a.localhost"), 200),
    "an Origin of another site": (handshake("Origin: https://elsewhere.example"), 403),
    "an Origin of nowhere": (handshake("Origin: null"), 403),
    "two Origins": (handshake("Origin: http://here", "Origin: http://elsewhere"), 403),
    "no Host": (request("/health", "X: y"), 400),
    "HTTP/1.0, which has no Host": (request("/health", "X: y", version="HTTP/1.0"), 200),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "HEAD": (request(method="HEAD"), 200),
    "what is served": (request("/v1/models"), 200),
    "OPTIONS": (request(method="OPTIONS"), 405),
    "a session with a body": (request("/v1/realtime", *BODY, method="POST", behind=b"{"), 405),
    "a length that is none": (request("/health", "Host: here", "Content-Length: -1"), 400),
    "chunks": (request("/health", "Host: here", "Transfer-Encoding: chunked", behind=b"zz\r\n"), 400),
    "a header without a colon": (request("/health", "Host: here", "nonsense"), 400),
    "a long path": (request("/" + "a" * 9000), 414),
    "too much of everything": (request("/health", *(f"X{n}: {'y' * 1000}" for n in range(40))), 431),
    "a line without an end": (b"h" * 100_000, 431),
    "half a request": (b"GET /health HTTP/1.1\r\nHost: here\r\n", 400),
    "no upgrade": (request("/v1/realtime"), 426),
    "a key that is none": (request("/v1/realtime", *UPGRADE[:-1], "Sec-WebSocket-Key: ü"), 400),
    "a sub-protocol that nobody knows": (handshake("Sec-WebSocket-Protocol: graphql-ws"), 101),
    "a session of this site": (handshake("Origin: http://HERE"), 101),
    "a goodbye behind the handshake": (handshake(behind=frame(Opcode.CLOSE)), 101),
    "nonsense behind the handshake": (handshake(behind=frame(Opcode.TEXT, b"bare", mask=False)), 101),
}


@on_each_loop
async def test_each_request_gets_its_status_also_from_a_client_that_sends_nothing_more():
    async with opened(handshake_timeout_s=PATIENCE_S) as running:
        for name, (text, status) in ANSWERED.items():
            head, _, body = (await answers(running, text)).partition(b"\r\n\r\n")
            assert int(head.split()[1]) == status, name
            assert not (text.startswith(b"HEAD") and body), name
            if status != 101 and not name.startswith("half"):  # pages are complete without the client's end
                reply = await answers(running, text, half_closed=False)
                assert int(reply.split()[1]) == status, name


@in_a_loop
async def test_frames_sent_with_the_handshake_are_answered_after_it():
    async with opened() as running:
        frames = frame(Opcode.PING, b"?") + frame(Opcode.TEXT, b"four")
        reply = await answers(running, handshake(behind=frames))
        messages = (Opcode.TEXT, b"hello"), (Opcode.PONG, b"?"), (Opcode.TEXT, b"4")
        assert reply.startswith(b"HTTP/1.1 101")
        expected = b"".join(Frame(*each).serialize(mask=False) for each in messages)
        assert reply.partition(b"\r\n\r\n")[2] == expected
        assert running.server.closed == {1006: 1}


@pytest.mark.parametrize("text", [b"", b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\n"])
@in_a_loop
async def test_a_request_that_is_never_complete_gets_408(text: bytes):
    async with opened(handshake_timeout_s=0.1) as running:
        data = await answers(running, text, half_closed=False)
        assert data.startswith(b"HTTP/1.1 408 ") and data.endswith(b"No request was complete after 0.1 s.\n")
        assert running.server.refused == {"no request": 1}


PIECES = [
    *(f"{line}\r\n".encode() for line in UPGRADE),
    *(b"GET /v1/realtime HTTP/1.1\r\n", b"GET http://[ HTTP/1.1\r\n", b"POST /health HTTP/1.0\r\n"),
    *(b"Origin: http://[\r\n", b"Authorization: \xff\r\n", b"Content-Length: 3\r\n", b"\r\n", b"\n"),
    *(frame(Opcode.PING), frame(Opcode.CLOSE)),
]
LINES = st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), min_size=1, max_size=12)


@settings(max_examples=100)
@given(LINES, st.booleans())
@in_a_loop
async def test_any_bytes_get_an_http_answer_or_end_a_session_and_the_next_client_is_served(
    pieces: list[bytes], in_a_session: bool
):
    async with opened(close_timeout_s=0.05, handshake_timeout_s=PATIENCE_S) as running:
        if in_a_session:
            async with connect(running.url) as client:
                for piece in pieces:
                    client.transport.write(piece)
                client.transport.abort()
        elif text := b"".join(pieces):
            assert (await answers(running, text)).startswith(b"HTTP/1.1 ")
        async with connect(running.url) as client:
            assert await client.recv() == "hello"


@in_a_loop
async def test_a_metrics_page_that_fails_is_a_500_and_health_still_answers():
    async with opened() as running:
        running.stats.pools["thinker", 0] = Pool(used=1, blocks=0)
        statuses = await asyncio.gather(*(fetch(running, path) for path in ("/metrics", "/health") * 5))
        assert [status for status, _ in statuses] == [500, 200] * 5
        assert running.mistakes == ["ZeroDivisionError('division by zero')"] * 5
        running.mistakes.clear()


@in_a_loop
async def test_sessions_and_metrics_need_the_token_and_health_does_not():
    async with opened("s3cret") as running:
        for shown in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}):
            with pytest.raises(InvalidStatus) as refused:
                await connect(running.url, additional_headers=shown)
            assert refused.value.response.status_code == 401
        for shown in ("Bearer s3cret", "BEARER  s3cret"):
            async with connect(running.url, additional_headers={"Authorization": shown}) as client:
                assert await client.recv() == "hello"
        for headers in ([], ["Bearer s3cret", "Bearer s3cret"], ["Bear", "er s3cret"], ["Basic s3cret"], ["Bearer"]):
            assert (await fetch(running, "/metrics", *(f"Authorization: {each}" for each in headers)))[0] == 401
        status, page = await fetch(running, "/metrics", "Authorization: Bearer s3cret")
        assert status == 200 and "s3cret" not in page
        assert (await fetch(running, "/health"))[0] == 200
