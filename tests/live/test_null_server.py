"""The null server, against which the floor is measured: it answers at set times and writes down when it did."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from harness.clocks.clock import run
from harness.live.endpoints.transport.http import HttpPool
from harness.live.endpoints.transport.websocket import WebSocket, connect
from harness.live.null_server.null_server import NullServer
from tests.live.receivers import Receiver, Stream

APPEND = b'{"type":"input_audio_buffer.append","audio":"AAAA"}'
COMMIT = b'{"type":"input_audio_buffer.commit"}'
DELTA = "response.output_audio.delta"
Conversation = Callable[[WebSocket, Receiver], Awaitable[None]]


def create(seconds: float | None = None) -> bytes:
    event: dict[str, Any] = {"type": "response.create"}
    if seconds is not None:
        event["response"] = {"metadata": {"rehearsal": json.dumps({"reply_audio_s": seconds})}}
    return json.dumps(event).encode()


def talked(folder: Path, conversation: Conversation, *options: str, kind: str = "voice"):
    """The client's end, and the truth and the summary of a server with these options."""

    async def main(url: str) -> Receiver:
        asyncio.get_running_loop().restart(0.0)  # type: ignore[attr-defined]
        session = Receiver()
        socket = await connect(url, session, timeout_s=10)
        await conversation(socket, session)
        socket.close()
        await asyncio.wait_for(session.ended.wait(), 10)
        return session

    with NullServer(kind, folder, *options) as server:
        session: Receiver = run(main(server.url), virtual=False)
        return session, *server.stop()


def of(session: Receiver, kind: str) -> list[dict[str, Any]]:
    return [event for each, event, _ in session.events() if each == kind]


def reply_of(packets: int) -> list[str]:
    return ["response.created", *[DELTA] * packets, "response.output_audio.done", "response.done"]


def test_a_voice_reply_has_the_packets_asked_for_at_the_intervals_set(tmp_path):
    async def conversation(socket: WebSocket, session: Receiver) -> None:
        for message in (b'{"type":"session.update","session":{}}', APPEND, COMMIT, create(0.05)):
            socket.send(message)
        await session.until("response.done")
        socket.send(create())
        await session.until("response.done", 2)

    options = ("--first-s", "0.03", "--interval-s", "0.01", "--packets", "3")
    session, truth, summary = talked(tmp_path, conversation, *options)
    hello = ["session.created", "session.updated", "input_audio_buffer.committed"]
    assert session.kinds() == hello + reply_of(5) + reply_of(3)  # 0.05 s are 5 packets; 3 is the default
    assert of(session, "session.created")[0]["session"]["rehearsal"]["serves"] == "turns"
    first, second = (event["response"]["id"] for event in of(session, "response.created"))
    assert [event["response_id"] for event in of(session, DELTA)] == [first] * 5 + [second] * 3
    assert (summary["requests"], summary["packets"], summary["messages_in"]) == (2, 8, 6)  # 5 and the close frame
    assert truth["packets"].to_pylist() == [5, 3]
    heard_s = [at_s for kind, _, at_s in session.events() if kind == DELTA]
    for row, first_heard_s in zip(truth.to_pylist(), (heard_s[0], heard_s[5]), strict=True):
        assert row["read_s"] + 0.03 <= row["first_s"] < first_heard_s
        assert row["last_s"] - row["read_s"] >= 0.03 + 0.01 * (row["packets"] - 1)


def test_a_frame_is_answered_once_all_its_samples_have_come(tmp_path):
    def append(samples: int) -> bytes:
        pcm = base64.b64encode(bytes(2 * samples)).decode()
        return b'{"type":"input_audio_buffer.append","audio":"%s"}' % pcm.encode()

    async def conversation(socket: WebSocket, session: Receiver) -> None:
        for samples in (320, 320, 159):  # of a frame of 800
            socket.send(append(samples))
        socket.send(COMMIT)
        await session.until("input_audio_buffer.committed")
        assert "rehearsal.frame.done" not in session.kinds()
        for samples in (1, 320, 480):
            socket.send(append(samples))
        await session.until("rehearsal.frame.done", 2)

    session, truth, _ = talked(tmp_path, conversation, "--frame-s", "0.05", "--first-s", "0.01")
    assert of(session, "session.created")[0]["session"]["rehearsal"]["serves"] == "frames"
    assert [event["frame"] for event in of(session, "rehearsal.frame.done")] == [0, 1]
    assert truth["packets"].to_pylist() == [1, 1]


def test_a_cancelled_reply_stops_and_its_row_counts_the_packets_sent(tmp_path):
    cancel = b'{"type":"response.cancel"}'

    async def conversation(socket: WebSocket, session: Receiver) -> None:
        socket.send(create(100.0))
        await session.until(DELTA, 2)
        socket.send(cancel)
        await session.until("response.done")
        socket.send(create(0.01))
        await session.until("response.done", 2)
        socket.send(cancel)  # of nothing
        socket.send(COMMIT)
        await session.until("input_audio_buffer.committed")

    session, truth, _ = talked(tmp_path, conversation, "--first-s", "0.01", "--interval-s", "0.01")
    assert [event["response"]["status"] for event in of(session, "response.done")] == ["cancelled", "completed"]
    assert truth["packets"].to_pylist() == [len(of(session, DELTA)) - 1, 1]


def post(url: str, *bodies: bytes) -> list[Stream]:
    async def main():
        asyncio.get_running_loop().restart(0.0)  # type: ignore[attr-defined]
        pool = HttpPool(url)
        answers = []
        for body in bodies:
            answers.append(Stream())
            pool.post(body, answers[-1])
            await asyncio.wait_for(answers[-1].ended.wait(), 20)
            assert answers[-1].ends == ["done"]
        await pool.aclose()
        return answers

    return run(main(), virtual=False)


def contents(answer: Stream) -> list[str]:
    lines = [line[6:] for line in answer.body.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [
        choice["delta"]["content"] for line in lines[:-1] for choice in json.loads(line)["choices"] if choice["delta"]
    ]


def test_a_text_reply_has_the_tokens_asked_for_at_the_intervals_set(tmp_path):
    usage = b'{"stream":true,"max_completion_tokens":1,"stream_options":{"include_usage":true}}'
    with NullServer("text", tmp_path, "--packets", "6", "--first-s", "0.02", "--interval-s", "0.005") as server:
        asked, default, one = post(server.url, b'{"stream":true,"max_tokens": 4}', b'{"stream":true}', usage)
        (models,) = post(server.url.replace("chat/completions", "models"), b"{}")
        truth, summary = server.stop()
    assert [len(contents(answer)) for answer in (asked, default, one)] == [4, 6, 1]
    assert b'"usage":{"prompt_tokens":0,"completion_tokens":1' in one.body and b'"usage"' not in default.body
    assert json.loads(models.body)["data"][0]["id"] == "null"
    assert truth["packets"].to_pylist() == [4, 6, 1]
    assert summary["requests"] == 3 and summary["messages_in"] == 4
    for row, answer in zip(truth.to_pylist(), (asked, default, one), strict=True):
        assert row["read_s"] + 0.02 <= row["first_s"] < answer.stamps[0]
        assert row["last_s"] >= row["read_s"] + 0.02 + 0.005 * (row["packets"] - 1)
