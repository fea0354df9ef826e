"""The WebSocket server over real sockets, with clients that misbehave in each way."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from tests.live.sockets import Running, closed, on_each_loop, opened
from tests.waiting import in_a_loop


@on_each_loop
async def test_messages_of_any_length_go_both_ways_whole():
    async with opened() as running, connect(running.url) as client:
        assert await client.recv() == "hello"
        await client.send("grüße")
        assert await client.recv() == "5"
        await client.send(["in ", "three ", "parts"])
        assert await client.recv() == "14"
        await client.send("y" * 500_000)
        assert await client.recv() == "500000"
        assert running.sessions[0].messages[:2] == ["grüße", "in three parts"]
        await client.close()
        await running.until(lambda: running.server.sessions == 0)
        assert running.server.closed == {1000: 1}


@on_each_loop
async def test_callers_above_max_sessions_are_rejected_and_others_go_on():
    cap, burst = 4, 300

    async def come(running: Running) -> tuple[int, str]:
        async with connect(running.url, open_timeout=30, compression=None) as client:
            return await closed(client)

    async with opened(max_sessions=cap) as running, contextlib.AsyncExitStack() as stack:
        inside = [await stack.enter_async_context(connect(running.url)) for _ in range(cap)]
        for client in inside:
            assert await client.recv() == "hello"
        storm = asyncio.gather(*(come(running) for _ in range(burst)))
        for n in range(50):
            for client in inside:
                await client.send("z" * n)
                assert await client.recv() == str(n)
        assert set(await storm) == {(1013, "try again later")}
        assert running.server.refused == {"full": burst}
        assert running.server.begun == cap
        await inside[0].close()
        await running.until(lambda: running.server.sessions < cap)
        assert await (await stack.enter_async_context(connect(running.url))).recv() == "hello"


Misdeed = Callable[[ClientConnection], Awaitable[object]]


def _times(count: int, does: Misdeed) -> Misdeed:
    async def repeat(client: ClientConnection) -> None:
        for _ in range(count):
            await does(client)

    return repeat


async def _unmasked(client: ClientConnection) -> None:
    client.transport.write(Frame(Opcode.TEXT, b"plain").serialize(mask=False))


MISDEEDS: dict[str, tuple[Misdeed, int]] = {
    "too long a message": (lambda client: client.send("b" * 2_000_000), 1009),
    "too long in parts": (lambda client: client.send(["c" * 600_000, "c" * 600_000]), 1009),
    "too many messages": (_times(5000, lambda client: client.send("quick")), 1008),
    "too many pings": (_times(5000, lambda client: client.ping()), 1008),
    "faster than speech": (_times(100, lambda client: client.send("a" * 100_000)), 1008),
    "binary messages": (_times(4, lambda client: client.send(b"\x00\x01")), 1003),
    "not masked": (_unmasked, 1002),
    "meets an internal error": (lambda client: client.send("break"), 1011),
    "asks to be closed": (lambda client: client.send("leave"), 4000),
}


@pytest.mark.parametrize("misdeed", MISDEEDS)
@in_a_loop
async def test_each_misdeed_has_its_close_code_and_a_neighbour_goes_on(misdeed: str):
    does, code = MISDEEDS[misdeed]
    async with opened() as running, connect(running.url) as neighbour, connect(running.url) as client:
        assert await neighbour.recv() == "hello"
        with contextlib.suppress(ConnectionClosed):
            doing = asyncio.ensure_future(does(client))
            for n in range(20):
                await neighbour.send("n" * n)
                assert await neighbour.recv() == str(n)
            assert (await closed(client))[0] == code
            await doing
        assert running.server.closed == {code: 1}
        assert len(running.mistakes) == (code == 1011)
        running.mistakes.clear()
        await neighbour.send("still here")
        assert await neighbour.recv() == "10"


@in_a_loop
async def test_output_that_a_client_does_not_read_is_bounded():
    async with opened(queue_bytes=1 << 20) as running:
        client = socket.create_connection(("127.0.0.1", running.port))
        client.setblocking(False)
        async with connect(running.url, sock=client) as reader:
            reader.transport.pause_reading()
            await reader.send("flood")
            await running.until(lambda: bool(running.server.closed))
            assert running.server.closed == {1008: 1}
            assert max(running.server.queued_bytes) < (1 << 20) + 200_000
            await running.until(lambda: running.server.sockets == 0)  # it is not waited for
            reader.transport.abort()


@in_a_loop
async def test_a_client_without_pongs_is_closed():
    async with opened(ping_s=0.5, close_timeout_s=0.2) as running, connect(running.url) as alive:
        dead = await connect(running.url)
        dead.transport.pause_reading()  # its pongs stop
        await running.until(lambda: running.server.closed == {1011: 1})
        await alive.send("here")
        assert [await alive.recv(), await alive.recv()] == ["hello", "4"]
        dead.transport.abort()


@in_a_loop
async def test_an_idle_client_is_closed_though_it_answers_pings():
    async with opened(idle_timeout_s=0.5, ping_s=0.1) as running, connect(running.url) as client:
        assert await closed(client) == (1008, "idle for 0.5 s")
