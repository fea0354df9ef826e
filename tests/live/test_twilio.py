"""Telephone calls by the media-stream protocols of Twilio and Telnyx: messages, playback and calls."""

import asyncio
import json
from base64 import b64decode, b64encode
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.live.endpoints.conformance import check_dialect
from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.dialects.audio_format import ULAW, as_ulaw
from harness.live.endpoints.dialects.events import Audio, Done, Event, Garbage, Mark, Other
from harness.live.endpoints.playout import Playout
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.limits import MOST_REPLIES, Violation
from tests.live.scripted import Peer, play, spoken, table, tone
from tests.waiting import in_virtual_time

URL = "ws://127.0.0.1:9/twilio"


def say(event: str, **fields: Any) -> bytes:
    return json.dumps({"event": event, "streamSid": "MZ1", **fields}).encode()


def media(pcm: bytes) -> bytes:
    return say("media", media={"payload": b64encode(as_ulaw(pcm)).decode()})


def nothing(*about: object) -> list[bytes]:
    return []


TELEPHONE: Any = SimpleNamespace(
    rate=8000,
    **dict.fromkeys(("ready", "begin", "text", "end", "error"), nothing),
    audio=lambda reply, pcm: [media(pcm), say("mark", mark={"name": f"reply {reply}"})],
    cut=lambda reply: [say("clear")],
)
"""An agent's messages, as `harness.live.endpoints.conformance.Server` has them."""


@pytest.mark.parametrize("name", ["twilio", "telnyx"])
def test_both_telephone_dialects_pass_the_conformance_check(name: str) -> None:
    check_dialect(TargetParams.model_validate({"url": URL, "dialect": name}), TELEPHONE)


def test_u_law_encodes_each_code_to_itself_and_each_sample_to_its_nearest() -> None:
    codes = bytes(code for code in range(256) if code != 0x7F)  # of the two zeros one is written
    assert as_ulaw(ULAW.samples(codes).astype("<i2").tobytes()) == codes
    samples = np.arange(-32768, 32768, dtype="<i2")
    size, error = np.abs(samples.astype(int)), np.abs(ULAW.samples(as_ulaw(samples.tobytes())).astype(int) - samples)
    in_range = size <= 32124  # the largest level of G.711
    assert (error <= np.maximum(size / 15, 4))[in_range].all()


def sent(name: str, **target: Any) -> list[dict[str, Any]]:
    """A call of two frames and a mark."""
    dialect = dialect_of(TargetParams.model_validate({"url": URL, "dialect": name, **target}))
    write = dialect.writer()
    assert write is not None
    frames = [dialect.append(bytes(320)), dialect.append(tone(0.005, 8000))]
    messages = [*dialect.opening(), *frames, *dialect.answer(Mark("m")), *dialect.goodbye()]
    return [json.loads(write(message)) for message in messages]


def test_a_call_of_twilio_has_the_messages_of_its_reference() -> None:
    connected, start, first, second, mark, stop = sent("twilio", session={"tier": "gold"})
    assert connected == {"event": "connected", "protocol": "Call", "version": "1.0.0"}
    about, stream = start["start"], start["streamSid"]
    assert about["streamSid"] == stream and about["callSid"] == stop["stop"]["callSid"]
    assert about["customParameters"] == {"tier": "gold"}
    assert about["mediaFormat"] == {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    numbered = [start, first, second, mark, stop]
    assert [message["sequenceNumber"] for message in numbered] == ["1", "2", "3", "4", "5"]
    assert {message["streamSid"] for message in numbered} == {stream}
    places = [(each["media"]["chunk"], each["media"]["timestamp"]) for each in (first, second)]
    assert places == [("1", "0"), ("2", "20")]
    assert b64decode(first["media"]["payload"]) == b"\xff" * 160
    assert len(b64decode(second["media"]["payload"])) == 160, "the rest of a frame is silence"
    assert mark["mark"] == {"name": "m"}
    assert stream != sent("twilio")[1]["streamSid"], "another call has another stream"


def test_a_call_of_telnyx_has_other_names() -> None:
    _, start, first, _, _, stop = sent("telnyx", session={"tier": "gold"})
    assert start["start"]["custom_parameters"] == {"tier": "gold"}
    assert start["start"]["call_control_id"] == stop["stop"]["call_control_id"]
    assert start["stream_id"] == first["stream_id"] and first["sequence_number"] == "2"


def test_an_agent_s_messages_are_read() -> None:
    read = dialect_of(TargetParams.model_validate({"url": URL, "dialect": "twilio"})).reader()
    audio = read(media(bytes(320)))
    assert isinstance(audio, Audio) and audio.seconds == 0.02 and audio.bytes() == b"\xff" * 160
    assert read(say("mark", mark={"name": "m"})) == Mark("m")
    assert read(say("clear")) == Done(None, "cancelled")
    assert read(say("dtmf")) == Other() and read(b"[]") == read(b"{}") == Garbage()


def packet(pcm: bytes) -> Audio:
    return Audio(None, None, len(pcm) // 2, ULAW, as_ulaw(pcm))


SOUND, SILENCE, CLEAR = packet(tone(0.3, 8000)), packet(bytes(1600)), Done(None, "cancelled")
MARKED = (SOUND, Mark("first"), SOUND, SOUND, Mark("last"))


@pytest.mark.parametrize(
    ("steps", "reports"),
    [
        pytest.param(
            [*MARKED, 3.0, Mark("alone"), 1.0],
            [("first", 0.3), ("last", 0.9), ("end", 1.9), ("alone", 3.0)],
            id="a mark comes back when its audio has been played",
        ),
        pytest.param(
            [*MARKED, 0.5, CLEAR, SOUND, 5.0],
            [("first", 0.3), ("last", 0.5), ("end", 1.8)],
            id="clear drops what is not played and returns its marks",
        ),
        pytest.param(
            [SILENCE, 0.1, SOUND, *10 * [SILENCE], 5.0],
            [("no reply", 0.0), ("end", 1.4)],
            id="silence neither begins a reply nor prolongs it",
        ),
    ],
)
@in_virtual_time
async def test_marks_and_the_end_of_a_reply_are_reported_when_its_audio_has_played(
    steps: list[Event | float], reports: list[tuple[str, float]]
) -> None:
    """A step is an event or a wait (s). `SOUND` lasts 0.3 s, and a reply ends 1 s after its last sound."""
    now = asyncio.get_running_loop().time
    begin_s, seen = now(), []

    def report(what: str, at_s: float) -> None:
        seen.append((what, round(at_s - begin_s, 3)))

    playout = Playout(1.0, lambda event, at_s: report("end", at_s), lambda mark, due_s: report(mark.name, due_s))
    for step in steps:
        if isinstance(step, int | float):
            await asyncio.sleep(step)
        elif not playout.takes(step, now()) and isinstance(step, Audio):
            report("no reply", now())
    playout.close()
    assert seen == reports


async def agent(peer: Peer) -> None:
    """Hears until two frames of silence, and answers in three packets and a mark, sent at once."""
    speaking = False
    while True:
        message = json.loads(await peer.socket.recv())
        peer.call.received.append({"type": message["event"], **message})
        if message["event"] != "media":
            continue
        speech = any(each != 0xFF for each in b64decode(message["media"]["payload"]))
        if speaking and not speech:
            for _ in range(3):
                await peer.socket.send(media(tone(0.1, 8000)).decode())
            await peer.socket.send(say("mark", mark={"name": "over"}).decode())
        speaking = speech


def test_a_call_of_two_turns_over_a_socket() -> None:
    out = play(spoken(turns=2), agent, dialect="twilio", path="/twilio")
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("audio") == [0.1] * 6 and not out.values("silent_reply")
    [call] = out.calls
    kinds = [kind for kind in call.kinds if kind != "media"]
    assert kinds == ["connected", "start", "mark", "mark", "stop"]
    assert {len(event["media"]["payload"]) for event in call.of("media")} == {216}, "frames of 20 ms"


@in_virtual_time
async def test_a_network_refuses_what_is_no_sound_and_endless_marks() -> None:
    playout = Playout(1.0, lambda event, at_s: None, lambda mark, due_s: None)
    with pytest.raises(Violation, match="garbage"):
        playout.takes(Audio(None, None, 9, ULAW, "!!!!"), 0.0)
    for _ in range(MOST_REPLIES):
        playout.takes(Mark("m"), 1e9)
    with pytest.raises(Violation, match="marks that wait"):
        playout.takes(Mark("m"), 1e9)
    playout.close()
