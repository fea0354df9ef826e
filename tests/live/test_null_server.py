"""The null server, against which the floor is measured: it answers at set times and writes down when it did."""

import asyncio
import json

import pytest

from harness.clocks.clock import run
from harness.live.endpoints.transport.http import HttpPool
from harness.live.endpoints.transport.websocket import connect
from harness.live.null_server.null_server import NullServer
from tests.live.receivers import Receiver, Stream

FIVE_PACKETS = '{"reply_audio_s": 0.05}'  # of 0.01 s
MESSAGES = (
    {"type": "session.update", "session": {}},
    {"type": "input_audio_buffer.append", "audio": "AAAA"},
    {"type": "input_audio_buffer.commit"},
    {"type": "response.create", "response": {"metadata": {"rehearsal": FIVE_PACKETS}}},
)
DELTA = "response.output_audio.delta"


def reply_of(packets: int) -> list[str]:
    return ["response.created", *[DELTA] * packets, "response.output_audio.done", "response.done"]


async def talk(url: str) -> Receiver:
    """Ask for a reply of five packets and one of the server's own length; returns what the server sent."""
    asyncio.get_running_loop().restart(0.0)  # type: ignore[attr-defined]
    session = Receiver()
    socket = await connect(url, session, timeout_s=10)
    for message in MESSAGES:
        socket.send(json.dumps(message).encode())
    await session.until("response.done")
    socket.send(b'{"type":"response.create"}')
    await session.until("response.done", 2)
    socket.close()
    await asyncio.wait_for(session.ended.wait(), 10)
    return session


def test_a_voice_reply_has_the_packets_asked_for_at_the_intervals_set(tmp_path):
    with NullServer("voice", tmp_path, "--first-s", "0.03", "--interval-s", "0.01", "--packets", "3") as server:
        session: Receiver = run(talk(server.url), virtual=False)
        truth, summary = server.stop()
    hello = ["session.created", "session.updated", "input_audio_buffer.committed"]
    assert session.kinds() == hello + reply_of(5) + reply_of(3)
    assert (summary["requests"], summary["packets"]) == (2, 5 + 3)
    assert summary["messages_in"] == len(MESSAGES) + 2  # the second request, and the close frame
    heard_s = [at_s for kind, _, at_s in session.events() if kind == DELTA]
    for row, packets, first_heard_s in zip(truth.to_pylist(), (5, 3), (heard_s[0], heard_s[5]), strict=True):
        assert row["packets"] == packets
        assert row["read_s"] + 0.03 <= row["first_s"] < first_heard_s
        assert row["last_s"] - row["read_s"] >= 0.03 + 0.01 * (packets - 1)


async def post(url: str, *bodies: bytes) -> list[Stream]:
    """The answers to requests, one after the other."""
    asyncio.get_running_loop().restart(0.0)  # type: ignore[attr-defined]
    pool, answers = HttpPool(url), []
    for body in bodies:
        answers.append(Stream())
        pool.post(body, answers[-1])
        await asyncio.wait_for(answers[-1].ended.wait(), 20)
    await pool.aclose()
    return answers


def test_a_text_reply_has_the_tokens_asked_for_at_the_intervals_set(tmp_path):
    usage = b'{"stream":true,"max_completion_tokens":1,"stream_options":{"include_usage":true}}'
    with NullServer("text", tmp_path, "--packets", "6", "--first-s", "0.02", "--interval-s", "0.005") as server:
        bodies = (b'{"stream":true,"max_tokens": 4}', b'{"stream":true}', usage)
        answers: list[Stream] = run(post(server.url, *bodies), virtual=False)
        truth, summary = server.stop()
    assert [answer.body.count(b'"content"') for answer in answers] == truth["packets"].to_pylist() == [4, 6, 1]
    assert b'"usage":{"prompt_tokens":0,"completion_tokens":1' in answers[2].body and b'"usage"' not in answers[1].body
    assert all(answer.body.endswith(b"data: [DONE]\n\n") for answer in answers)
    assert summary["requests"] == 3
    for row, answer in zip(truth.to_pylist(), answers, strict=True):
        assert row["read_s"] + 0.02 <= row["first_s"] < answer.stamps[0]
        assert row["last_s"] >= row["read_s"] + 0.02 + 0.005 * (row["packets"] - 1)


def test_a_server_that_cannot_start_raises_its_exit_status(tmp_path):
    with pytest.raises(RuntimeError, match="status 2"):
        NullServer("voice", tmp_path, "--packets", "many")
