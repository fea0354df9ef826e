"""The live client's HTTP pool: shared connections, answers in any pieces, and one end for each answer."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from harness.live.endpoints.transport.http import HttpPool
from tests.live.receivers import Stream
from tests.waiting import in_a_loop, until

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n7\r\n second\r\n0\r\n\r\n"


Answer = Sequence[bytes | None]


class Scripted:
    """An HTTP server with a script for each connection, the last one for further connections too. A script has an
    answer for each request: pieces of bytes; None: it closes. `left`: connections that the client has closed."""

    def __init__(self, *connections: Sequence[Answer]) -> None:
        self.requests: list[bytes] = []
        self.connections = self.left = 0
        self._scripts = connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            for answer in script:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                for piece in filter(None, answer):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)
                if None in answer:
                    return writer.close()
            await reader.read()
            self.left += 1
        writer.close()

    @asynccontextmanager
    async def pool(self, headers: dict[str, str] | None = None) -> AsyncIterator[HttpPool]:
        """A client's, of connections to this server."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = HttpPool(f"http://127.0.0.1:{port}/v1/chat/completions?x=1", headers)
        try:
            yield pool
        finally:
            await pool.aclose()
            server.close()


async def ask(pool: HttpPool, body: bytes = b"{}") -> Stream:
    stream = Stream()
    pool.post(body, stream)
    await asyncio.wait_for(stream.ended.wait(), 10)
    return stream


@in_a_loop
async def test_requests_use_open_connections_at_once():
    server = Scripted([[CHUNKED], [CHUNKED], [CHUNKED]])
    async with server.pool(headers={"Authorization": "Bearer abc"}) as pool:
        await pool.open(2)
        assert pool.idle == 2
        stream = Stream()
        exchange = pool.post(b'{"a":1}', stream)
        assert exchange.sent_s is not None
        await stream.ended.wait()
        again = [await ask(pool) for _ in range(2)]
        assert [(s.code, s.body, s.ends) for s in (stream, *again)] == [(200, b"first second", ["done"])] * 3
        assert (server.connections, pool.idle) == (2, 2)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    assert head.startswith(b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer abc\r\n" in head


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ([b"HTTP/1.1 500 no\r\nContent-Length: 3\r\n\r\nsad"], (500, b"sad", ["done"])),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", CHUNKED], (200, b"first second", ["done"])),
        ([b"HTTP/1.1 200 OK\r\n\r\nuntil the end", None], (200, b"until the end", ["done"])),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", None], (200, b"half", ["closed"])),
        ([CHUNKED[:-5], None], (200, b"first second", ["closed"])),
        ([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"], (200, b"ok", ["done"])),
    ],
)
@in_a_loop
async def test_every_answer_ends_once(answer: Answer, expected: tuple[int, bytes, list[str]]):
    async with Scripted([answer]).pool() as pool:
        stream = await ask(pool)
        await asyncio.sleep(0.005)
    assert (stream.code, stream.body, stream.ends) == expected


@pytest.mark.parametrize(
    ("answers", "had_s", "ends", "connections"),
    [
        ([[[None]], [[CHUNKED]]], 60.0, ["done"], 2),
        ([[[None]]], 60.0, ["closed"], 2),
        ([[[None]], [[CHUNKED]]], 0.0, ["closed"], 1),
    ],
    ids=["on a new one", "but only once", "not after a while"],
)
@in_a_loop
async def test_a_server_that_closed_an_idle_connection_gets_the_request_again(
    monkeypatch: pytest.MonkeyPatch, answers: list[list[Answer]], had_s: float, ends: list[str], connections: int
):
    monkeypatch.setattr("harness.live.endpoints.transport.http.REPEAT_S", had_s)
    server = Scripted(*answers)
    async with server.pool() as pool:
        await pool.open(1)
        assert (await ask(pool)).ends == ends
    assert server.connections == connections


@in_a_loop
async def test_idle_connections_that_the_server_closes_leave_the_pool():
    async with Scripted([[CHUNKED, None]], [[CHUNKED]]).pool() as pool:
        await pool.open(1)
        assert (await ask(pool)).ends == ["done"]
        await until(lambda: pool.idle == 0)
        assert (await ask(pool)).ends == ["done"]


@in_a_loop
async def test_abort_closes_the_connection_and_reports_nothing():
    server, stream, waiting = Scripted([[CHUNKED[:60]]], [[CHUNKED]]), Stream(), Stream()
    async with server.pool() as pool:
        await pool.open(1)
        exchange = pool.post(b"{}", stream)
        await until(lambda: stream.body)
        exchange.abort()
        exchange.abort()
        await until(lambda: server.left == 1)
        pool.post(b"{}", waiting).abort()  # before it has a connection
        await until(lambda: pool.idle == 1)
    assert (stream.ends, waiting.ends) == ([], [])


@in_a_loop
async def test_an_unreachable_server_fails_the_pool_and_its_requests():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        pool = HttpPool(f"http://127.0.0.1:{closed.getsockname()[1]}/")
        with pytest.raises(OSError):
            await pool.open(1)
        (reason,) = (await ask(pool)).ends
    assert reason.startswith("connect: ")


@pytest.mark.parametrize(
    ("url", "headers"), [("ftp://x/", {}), ("http:///v1", {}), ("http://x/", {"A": "b\r\nInjected: c"})]
)
def test_a_pool_takes_no_other_scheme_no_empty_host_and_no_header_with_a_line_end(url: str, headers: dict[str, str]):
    with pytest.raises(ValueError):
        HttpPool(url, headers)
