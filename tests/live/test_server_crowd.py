"""A crowd of silent connections, half requests or endless prompts leaves the server open to others."""

import asyncio
import contextlib
import os
import resource
import socket

import pytest
from websockets.asyncio.client import connect

from engines.endpoint import entrance, silent
from tests.live.calls import Caller, called
from tests.live.served import served
from tests.live.sockets import Running, fetch, on_each_loop, opened
from tests.waiting import in_a_loop

HEALTH = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"


def silents(running: Running, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", running.port)) for _ in range(count)]


async def received(client: socket.socket) -> bytes:
    """Return all that the server sends, until it hangs up."""
    client.setblocking(False)
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while more := await asyncio.get_running_loop().sock_recv(client, 65536):
            data += more
    client.close()
    return data


@on_each_loop
async def test_the_oldest_silent_connection_makes_room_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent, "MOST_SILENT", 8)
    async with opened() as running:
        crowd = silents(running, 20)
        for client in crowd[:12]:
            assert (await received(client)).startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert running.server.refused == {"no request": 12} and running.server.sockets == 0
        async with connect(running.url) as caller:
            assert await caller.recv() == "hello"
        crowd[-1].send(HEALTH)
        assert (await received(crowd[-1])).endswith(b"ok\n")
        for client in crowd[12:-1]:
            client.close()


@on_each_loop
async def test_silent_connections_are_dropped_after_the_handshake_timeout() -> None:
    async with opened(handshake_timeout_s=0.3) as running:
        left, kept = silents(running, 5), silents(running, 200)
        for client in left:
            client.close()
        for client in kept:
            assert b"No request was complete after 0.3 s." in await received(client)
        assert running.server.refused == {"no request": 200}
        assert (await fetch(running, "/health"))[0] == 200


@in_a_loop
async def test_a_server_out_of_file_descriptors_drops_silent_connections() -> None:
    async with opened() as running:
        clients = [socket.socket() for _ in range(12)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 3, hard))
        try:
            for client in clients:
                client.connect(("127.0.0.1", running.port))
            clients[-1].send(HEALTH)
            assert (await received(clients[-1])).endswith(b"ok\n")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for client in clients[:-1]:
            client.close()


@in_a_loop
async def test_half_requests_make_room_for_a_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrance, "MOST_SOCKETS", 6)
    async with opened(max_sessions=2) as running, connect(running.url) as inside:
        assert await inside.recv() == "hello"
        halves = silents(running, 10)
        for i, client in enumerate(halves):
            client.send(b"GET /v1/realtime HTTP/1.1\r\n" if i % 2 else b"POST /v1/chat/completions HTTP/1.1\r\n")
            await running.until(lambda i=i: running.server.sockets == min(i + 2, 8))
        async with connect(running.url) as caller:
            assert await caller.recv() == "hello"
        for client in halves[:3]:
            assert await received(client) == b""
        await inside.send("still here")
        assert await inside.recv() == "10"
        for client in halves[3:]:
            client.close()


@in_a_loop
async def test_a_prompt_beyond_the_context_is_rejected_with_vllm_s_error() -> None:
    async with served() as server:
        assert server.sessions.posted is not None and server.sessions.model["max_model_len"] == 32_768
        for letters, status in ((32_767 * 4, 200), (32_767 * 4 + 1, 400), (800_000, 400)):
            body = b'{"max_tokens": 1, "messages": [{"role": "user", "content": "%s"}]}' % (b"x" * letters)
            code, answer = await server.post(body)
            assert code == status
            if status == 400:
                error = answer["error"]
                assert (error["code"], error["type"]) == (400, "BadRequestError")
                assert "length 32768" in error["message"] or error["param"] == "input_tokens"
        assert len(server.turns) == 1 and server.turns[0].input_tokens == 32_767


@called("liveserve")
async def test_typed_items_beyond_the_context_are_rejected(caller: Caller) -> None:
    most = caller.sessions.context.most_tokens
    for tokens in (most + 1, most // 2, most // 2, 2):
        text = {"type": "input_text", "text": "x" * 4 * tokens}
        caller.say("conversation.item.create", item={"type": "message", "role": "user", "content": [text]})
    assert caller.errors() == ["context_length_exceeded"] * 2
