"""The live client's sockets: what is sent arrives, what arrives is stamped at its read, and every end is told once."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import pytest
import websockets
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clock import run
from harness.live.client.send_log import SendLog
from harness.live.transport.http import HttpPool
from harness.live.transport.websocket import ConnectFailed, connect


class Receiver:
    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.stamps: list[float] = []
        self.ends: list[tuple[int, str]] = []
        self.ended = asyncio.Event()

    def message(self, data: bytes, at_s: float) -> None:
        self.messages.append(data)
        self.stamps.append(at_s)

    def closed(self, code: int, reason: str, at_s: float) -> None:
        self.ends.append((code, reason))
        self.ended.set()

    async def has(self, n: int) -> list[bytes]:
        async with asyncio.timeout(10):
            while len(self.messages) < n:
                await asyncio.sleep(0.001)
        return self.messages


def with_server(handler, client, **options):
    """Run `client(url)` against a WebSocket server of another library."""

    async def main():
        async def handle(peer):
            with suppress(websockets.ConnectionClosed):
                await handler(peer)

        async with websockets.serve(handle, "127.0.0.1", 0, **options) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            return await client(f"ws://127.0.0.1:{port}/v1/realtime?model=m")

    return run(main(), virtual=False)


async def echo(peer):
    async for message in peer:
        await peer.send(message)


def test_messages_come_back_whole_and_in_order_and_headers_arrive():
    seen: dict[str, Any] = {}

    async def handler(peer):
        seen.update(path=peer.request.path, authorization=peer.request.headers["Authorization"])
        await echo(peer)

    async def client(url):
        receiver = Receiver()
        ws = await connect(url, receiver, headers={"Authorization": "Bearer abc"}, timeout_s=5)
        sent = [b"x" * n for n in (0, 1, 125, 126, 65_535, 65_536, 300_000)]
        for message in sent:
            ws.send(message)
        assert await receiver.has(len(sent)) == sent
        assert receiver.stamps == sorted(receiver.stamps)
        ws.close()
        await receiver.ended.wait()
        return receiver.ends

    assert with_server(handler, client) == [(1000, "")]
    assert seen == {"path": "/v1/realtime?model=m", "authorization": "Bearer abc"}


def test_pieces_of_one_message_are_one_message_and_pings_are_answered():
    async def handler(peer):
        await peer.send(["one ", "whole ", "message"])
        async with asyncio.timeout(5):
            await (await peer.ping())
        await peer.send("the ping came back")
        await peer.wait_closed()

    async def client(url):
        receiver = Receiver()
        await connect(url, receiver, timeout_s=5)
        return await receiver.has(2)

    assert with_server(handler, client) == [b"one whole message", b"the ping came back"]


def test_what_one_read_brought_has_one_time_however_slowly_it_is_taken():
    class Slow(Receiver):
        def message(self, data: bytes, at_s: float) -> None:
            super().message(data, at_s)
            end = asyncio.get_running_loop().time() + 0.002
            while asyncio.get_running_loop().time() < end:
                pass

    async def handler(peer):
        await peer.recv()
        peer.transport.write(
            b"\x81\x01a\x89\x00\x81\x01b\x81\x01c\x89\x00"
        )  # pings between and behind the messages
        await peer.recv()
        await peer.send("d")
        await peer.wait_closed()

    async def client(url):
        receiver = Slow()
        ws = await connect(url, receiver, timeout_s=5)
        ws.send(b"go")
        await receiver.has(3)
        before = asyncio.get_running_loop().time()
        ws.send(b"go")
        await receiver.has(4)
        return receiver.stamps, before

    stamps, before = with_server(handler, client)
    assert stamps[0] == stamps[1] == stamps[2] < before < stamps[3]


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1013, "try again later"), (4001, "enough")])
def test_the_servers_goodbye_is_told_with_its_code(code, reason):
    async def client(url):
        receiver = Receiver()
        ws = await connect(url, receiver, timeout_s=5)
        await receiver.ended.wait()
        ws.send(b"into nothing")
        ws.close()
        ws.abort()
        await asyncio.sleep(0.01)
        return receiver.messages, receiver.ends

    async def handler(peer):
        await peer.send("hello")
        await peer.close(code, reason)

    assert with_server(handler, client) == ([b"hello"], [(code, reason)])


def test_a_connection_that_breaks_is_closed_with_1006():
    async def client(url):
        receiver = Receiver()
        await connect(url, receiver, timeout_s=5)
        await receiver.ended.wait()
        return receiver.ends

    async def handler(peer):
        peer.transport.abort()

    assert with_server(handler, client) == [(1006, "")]


def test_a_peer_that_never_says_goodbye_is_left(monkeypatch):
    monkeypatch.setattr("harness.live.transport.websocket.CLOSE_GRACE_S", 0.02)

    async def client(url):
        receiver = Receiver()
        ws = await connect(url, receiver, timeout_s=5)
        ws.close()
        await asyncio.wait_for(receiver.ended.wait(), 5)
        return receiver.ends

    async def handler(peer):
        peer.transport.pause_reading()
        await asyncio.sleep(0.2)

    assert with_server(handler, client, close_timeout=0.01) == [(1006, "")]


def test_sending_to_a_peer_that_does_not_read_is_buffered_and_returns():
    async def client(url):
        ws = await connect(url, Receiver(), timeout_s=5)
        ws.send(b"x")
        assert ws.buffered == 0
        for _ in range(200):
            ws.send(b"x" * 100_000)
        held = ws.buffered
        ws.abort()
        return held

    async def handler(peer):
        peer.transport.pause_reading()
        await asyncio.sleep(0.2)

    assert 0 < with_server(handler, client, close_timeout=0.1) < 200 * 100_100


def test_a_refused_handshake_says_its_status_and_a_redirect_is_not_followed():
    def refuse(connection, request):
        status = int(request.path.rpartition("/")[2].partition("?")[0])
        response = connection.respond(status, "no\n")
        if status == 302:
            response.headers["Location"] = "/v1/realtime"
        return response

    async def client(url):
        seen = []
        for status in (401, 503, 302):
            with pytest.raises(ConnectFailed) as caught:
                await connect(url.replace("realtime", str(status)), Receiver(), timeout_s=5)
            seen.append((caught.value.status, caught.value.reason))
        return seen

    answers = with_server(echo, client, process_request=refuse)
    assert answers == [(401, "HTTP status 401"), (503, "HTTP status 503"), (302, "HTTP status 302")]


def test_no_server_no_name_no_answer_and_no_url_are_all_connections_that_failed():
    async def main():
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
            with pytest.raises(ConnectFailed, match="Connect call failed") as refused:
                await connect(f"ws://127.0.0.1:{port}/", Receiver(), timeout_s=5)
        with (
            socket.create_server(("127.0.0.1", 0)) as silent,
            pytest.raises(ConnectFailed, match=r"no connection within 0\.05 s"),
        ):
            await connect(f"ws://127.0.0.1:{silent.getsockname()[1]}/", Receiver(), timeout_s=0.05)
        with pytest.raises(ConnectFailed):
            await connect("ws:nowhere", Receiver(), timeout_s=5)
        return refused.value.status

    assert run(main(), virtual=False) is None


class Stream:
    """Receives one HTTP answer."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.body = b""
        self.stamps: list[float] = []
        self.ends: list[str] = []
        self.ended = asyncio.Event()

    def status(self, code: int, at_s: float) -> None:
        assert self.code is None
        self.code = code

    def data(self, chunk: bytes, at_s: float) -> None:
        assert not self.ends
        self.body += chunk
        self.stamps.append(at_s)

    def done(self, at_s: float) -> None:
        self._end("done")

    def failed(self, reason: str, at_s: float) -> None:
        self._end(reason)

    def _end(self, how: str) -> None:
        self.ends.append(how)
        self.ended.set()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n7\r\n second\r\n0\r\n\r\n"


class Scripted:
    """An HTTP server that answers the requests of each connection as told: pieces of bytes; None: it closes."""

    def __init__(self, *connections: list[list[bytes | None]]) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._scripts = list(connections)

    async def _serve(self, reader, writer) -> None:
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        try:
            for answer in script:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(size))
                for piece in answer:
                    if piece is None:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def __call__(self, client, **options):
        async def main():
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            pool = HttpPool(f"http://127.0.0.1:{port}/v1/chat/completions?x=1", **options)
            try:
                return await client(pool)
            finally:
                await pool.aclose()
                server.close()

        return run(main(), virtual=False)


async def ask(pool: HttpPool, body: bytes = b"{}") -> Stream:
    stream = Stream()
    pool.post(body, stream)
    await asyncio.wait_for(stream.ended.wait(), 10)
    return stream


def test_requests_share_the_connections_that_are_open_and_send_at_once():
    server = Scripted([[CHUNKED], [CHUNKED], [CHUNKED]])

    async def client(pool):
        await pool.open(2)
        assert pool.idle == 2
        stream = Stream()
        exchange = pool.post(b'{"a":1}', stream)
        assert exchange.sent_s is not None
        await stream.ended.wait()
        again = [await ask(pool) for _ in range(2)]
        return [(s.code, s.body, s.ends) for s in (stream, *again)], pool.idle

    answers, idle = server(client, headers={"Authorization": "Bearer abc"})
    assert answers == [(200, b"first second", ["done"])] * 3
    assert (server.connections, idle) == (2, 2)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert body == b'{"a":1}'
    assert head.startswith(b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer abc\r\n" in head


def test_without_an_idle_connection_one_is_made():
    async def client(pool):
        streams = [Stream() for _ in range(3)]
        exchanges = [pool.post(b"{}", stream) for stream in streams]
        assert [exchange.sent_s for exchange in exchanges] == [None] * 3
        for stream in streams:
            await stream.ended.wait()
        return [stream.ends for stream in streams], pool.idle, all(e.sent_s for e in exchanges)

    assert Scripted([[CHUNKED]])(client) == ([["done"]] * 3, 3, True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, len(CHUNKED) - 1), max_size=6, unique=True).map(sorted))
def test_an_answer_may_be_cut_anywhere(cuts: list[int]):
    pieces: list[bytes | None] = [
        CHUNKED[a:b] for a, b in zip([0, *cuts], [*cuts, len(CHUNKED)], strict=True)
    ]

    async def client(pool):
        stream = await ask(pool)
        return stream.code, stream.body, stream.ends, stream.stamps == sorted(stream.stamps)

    assert Scripted([pieces])(client) == (200, b"first second", ["done"], True)


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
def test_every_answer_ends_once(answer, expected):
    async def client(pool):
        stream = await ask(pool)
        await asyncio.sleep(0.005)
        return stream.code, stream.body, stream.ends

    assert Scripted([answer])(client) == expected


def test_garbage_is_a_failure():
    async def client(pool):
        return (await ask(pool)).ends

    (reason,) = Scripted([[b"SSH-2.0 hello\r\n\r\n"]])(client)
    assert reason.startswith("garbage")


def test_a_server_that_closed_an_idle_connection_gets_the_request_on_a_new_one_but_only_once():
    async def client(pool):
        await pool.open(1)
        return (await ask(pool)).ends

    server = Scripted([[None]], [[CHUNKED]])
    assert server(client) == ["done"]
    assert server.connections == 2
    always = Scripted([[None]])
    assert always(client) == ["closed"]
    assert always.connections == 2


def test_idle_connections_that_the_server_closes_leave_the_pool():
    async def client(pool):
        await pool.open(1)
        first = await ask(pool)
        for _ in range(1000):
            if pool.idle == 0:
                break
            await asyncio.sleep(0.001)
        return first.ends, pool.idle, (await ask(pool)).ends

    server = Scripted([[CHUNKED, None]], [[CHUNKED]])  # type: ignore[list-item]
    assert server(client) == (["done"], 0, ["done"])


def test_aborting_closes_the_connection_and_tells_nothing_more():
    closed: list[bool] = []

    async def main():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(CHUNKED[:60])
            closed.append(await reader.read() == b"{}" or True)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        pool = HttpPool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await pool.open(1)
        stream = Stream()
        exchange = pool.post(b"{}", stream)
        while not stream.body:
            await asyncio.sleep(0.001)
        exchange.abort()
        exchange.abort()
        while not closed:
            await asyncio.sleep(0.001)
        waiting = Stream()
        pool.post(b"{}", waiting).abort()  # before it has a connection
        await asyncio.sleep(0.01)
        idle = pool.idle
        await pool.aclose()
        server.close()
        return stream.ends, waiting.ends, idle

    assert run(main(), virtual=False) == ([], [], 1)


def test_an_unreachable_server_and_wrong_addresses_say_so():
    async def main():
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            pool = HttpPool(f"http://127.0.0.1:{closed.getsockname()[1]}/")
            with pytest.raises(OSError):
                await pool.open(1)
            stream = await ask(pool)
        for url, headers in (("ftp://x/", {}), ("http:///v1", {}), ("http://x/", {"A": "b\r\nInjected: c"})):
            with pytest.raises(ValueError):
                HttpPool(url, headers)
        return stream.ends

    (reason,) = run(main(), virtual=False)
    assert reason.startswith("connect: ")


def test_sends_are_kept_with_their_slip():
    log = SendLog()
    log.add("audio", 3, 1.0, 1.25)
    log.add("commit", 3, 2.0, 2.0)
    assert log.recent().tolist() == [0.25, 0.0]
    log.add("goodbye", 4, -1.0, 0.5)
    assert log.recent().tolist() == [1.5]
    assert log.recent().size == 0
    assert len(log) == 3
    assert log.table().to_pydict() == {
        "kind": ["audio", "commit", "goodbye"],
        "session": [3, 3, 4],
        "due_s": [1.0, 2.0, -1.0],
        "slip_s": [0.25, 0.0, 1.5],
    }
    assert log.table(2).to_pydict()["kind"] == ["goodbye"]
    assert SendLog().table().num_rows == 0 and SendLog().table()["slip_s"].type == "double"
