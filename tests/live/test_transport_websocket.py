"""The live client's WebSocket against another library's server: messages, their times, and one end."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from harness.live.endpoints.transport.websocket import ConnectFailed, WebSocket, connect
from tests.live.receivers import Receiver
from tests.waiting import in_a_loop

Handler = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler, **options: Any) -> AsyncIterator[str]:
    """The url of a WebSocket server of another library."""

    async def handle(peer: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            await handler(peer)

    async with serve(handle, "127.0.0.1", 0, **options) as server:
        yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/v1/realtime?model=m"


@asynccontextmanager
async def connected(
    handler: Handler, receiver: Receiver | None = None, headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[WebSocket, Receiver]]:
    """A WebSocket to such a server, and its receiver."""
    receiver = receiver or Receiver()
    async with serving(handler, **options) as url:
        yield await connect(url, receiver, headers=headers, timeout_s=5), receiver


async def echo(peer: ServerConnection) -> None:
    async for message in peer:
        await peer.send(message)


@in_a_loop
async def test_messages_go_both_ways_whole_and_in_order_and_headers_arrive():
    async def handler(peer: ServerConnection) -> None:
        assert peer.request is not None
        await peer.send([peer.request.path, " of ", peer.request.headers["Authorization"]])
        async with asyncio.timeout(5):
            await (await peer.ping())
        await echo(peer)

    async with connected(handler, headers={"Authorization": "Bearer abc"}) as (ws, receiver):
        sent = [b"x" * n for n in (0, 1, 125, 126, 65_535, 65_536, 300_000)]
        for message in sent:
            ws.send(message)
        assert await receiver.has(1 + len(sent)) == [b"/v1/realtime?model=m of Bearer abc", *sent]
        assert receiver.stamps == sorted(receiver.stamps)
        ws.close()
        await receiver.ended.wait()
    assert receiver.ends == [(1000, "")]


@in_a_loop
async def test_messages_of_one_read_have_the_time_of_that_read():
    class Slow(Receiver):
        def message(self, data: bytes, at_s: float) -> None:
            super().message(data, at_s)
            end = asyncio.get_running_loop().time() + 0.002
            while asyncio.get_running_loop().time() < end:
                pass

    async def handler(peer: ServerConnection) -> None:
        await peer.recv()
        # Pings between and behind the messages
        peer.transport.write(b"\x81\x01a\x89\x00\x81\x01b\x81\x01c\x89\x00")
        await peer.recv()
        await peer.send("d")
        await peer.wait_closed()

    async with connected(handler, Slow()) as (ws, receiver):
        ws.send(b"go")
        await receiver.has(3)
        before = asyncio.get_running_loop().time()
        ws.send(b"go")
        await receiver.has(4)
    stamps = receiver.stamps
    assert stamps[0] == stamps[1] == stamps[2] < before < stamps[3]


@pytest.mark.parametrize(("code", "reason"), [(1000, ""), (1013, "try again later"), (4001, "enough")])
@in_a_loop
async def test_the_server_s_close_code_and_reason_are_reported_once(code: int, reason: str):
    async def handler(peer: ServerConnection) -> None:
        await peer.send("hello")
        await peer.close(code, reason)

    async with connected(handler) as (ws, receiver):
        await receiver.ended.wait()
        ws.send(b"into nothing")
        ws.close()
        ws.abort()
        await asyncio.sleep(0.01)
    assert (receiver.messages, receiver.ends) == ([b"hello"], [(code, reason)])


@in_a_loop
async def test_a_rejected_handshake_has_its_status_and_a_redirect_is_not_followed():
    def refuse(connection: ServerConnection, request: Request) -> Response:
        status = int(request.path.rpartition("/")[2].partition("?")[0])
        response = connection.respond(status, "no\n")
        if status == 302:
            response.headers["Location"] = "/v1/realtime"
        return response

    async with serving(echo, process_request=refuse) as url:
        for status in (401, 503, 302):
            with pytest.raises(ConnectFailed) as caught:
                await connect(url.replace("realtime", str(status)), Receiver(), timeout_s=5)
            assert (caught.value.status, caught.value.reason) == (status, f"HTTP status {status}")


@in_a_loop
async def test_no_server_and_no_answer_are_failed_connections():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectFailed, match="Connect call failed") as refused:
            await connect(f"ws://127.0.0.1:{closed.getsockname()[1]}/", Receiver(), timeout_s=5)
    assert refused.value.status is None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(ConnectFailed, match=r"no connection within 0\.05 s"):
            await connect(url, Receiver(), timeout_s=0.05)
