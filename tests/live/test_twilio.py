"""The telephone: what a network sends, plays and reports, in calls with agents of Twilio's and Telnyx's protocols."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from harness.clocks import clock
from harness.live.endpoints.conformance import check_dialect
from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.dialects.audio_format import ULAW, as_ulaw
from harness.live.endpoints.dialects.events import Audio, Done, Event, Garbage, Mark, Other
from harness.live.endpoints.playout import Playout
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.limits import MOST_REPLIES, Violation
from tests.live.open_microphone import ARRIVAL_S, SPEECH_S, Agent, open_call
from tests.live.open_microphone import play as play_openly
from tests.live.scripted import Peer, play, spoken, table, tone

URL = "ws://127.0.0.1:9/twilio"
EXACT_S = 0.011  # windows of the energy


def say(event: str, **fields: Any) -> bytes:
    return json.dumps({"event": event, "streamSid": "MZ1", **fields}).encode()


def media(pcm: bytes) -> bytes:
    return say("media", media={"payload": b64encode(as_ulaw(pcm)).decode()})


class Telephone:
    """An agent's messages. Implements `harness.live.endpoints.conformance.Server`."""

    rate = 8000

    def ready(self) -> list[bytes]:
        return []

    def begin(self, reply: int) -> list[bytes]:
        return []

    def audio(self, reply: int, pcm: bytes) -> list[bytes]:
        return [media(pcm), say("mark", mark={"name": f"reply {reply}"})]

    text = end = begin

    def cut(self, reply: int) -> list[bytes]:
        return [say("clear")]

    def error(self) -> list[bytes]:
        return []


@pytest.mark.parametrize("name", ["twilio", "telnyx"])
def test_the_telephone_keeps_the_promises_of_a_dialect(name: str) -> None:
    check_dialect(TargetParams(url=URL, dialect=name), Telephone())


def test_each_code_of_g711_is_its_own() -> None:
    codes = bytes(code for code in range(256) if code != 0x7F)  # of the two zeros one is written
    assert as_ulaw(ULAW.samples(codes).astype("<i2").tobytes()) == codes
    samples = np.arange(-32768, 32768, dtype="<i2")
    error = np.abs(ULAW.samples(as_ulaw(samples.tobytes())).astype(int) - samples)
    assert (error <= np.maximum(np.abs(samples.astype(int)) / 15, 4))[np.abs(samples.astype(int)) <= 32124].all()


def sent(name: str, **target: Any) -> list[dict[str, Any]]:
    """A call of two frames and a mark."""
    dialect = dialect_of(TargetParams(url=URL, dialect=name, **target))
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
    assert [(each["media"]["chunk"], each["media"]["timestamp"]) for each in (first, second)] == [
        ("1", "0"),
        ("2", "20"),
    ]
    assert b64decode(first["media"]["payload"]) == b"\xff" * 160
    assert len(b64decode(second["media"]["payload"])) == 160, "the rest of a frame is silence"
    assert mark["mark"] == {"name": "m"}


def test_a_call_of_telnyx_has_other_names() -> None:
    _, start, first, _, _, stop = sent("telnyx", session={"tier": "gold"})
    assert start["start"]["custom_parameters"] == {"tier": "gold"}
    assert start["start"]["call_control_id"] == stop["stop"]["call_control_id"]
    assert start["stream_id"] == first["stream_id"] and first["sequence_number"] == "2"


def test_two_calls_have_two_streams() -> None:
    assert sent("twilio")[1]["streamSid"] != sent("twilio")[1]["streamSid"]


def test_what_an_agent_says() -> None:
    read = dialect_of(TargetParams(url=URL, dialect="twilio")).reader()
    audio = read(media(bytes(320)))
    assert isinstance(audio, Audio) and audio.seconds == 0.02 and audio.bytes() == b"\xff" * 160
    assert read(say("mark", mark={"name": "m"})) == Mark("m")
    assert read(say("clear")) == Done(None, "cancelled")
    assert read(say("dtmf")) == Other() and read(b"[]") == read(b"{}") == Garbage()


def played(script: Callable[[Playout], Awaitable[None]]) -> list[tuple[str, float]]:
    """What a network reports, and when (s)."""
    told: list[tuple[str, float]] = []

    async def run() -> None:
        begin_s = asyncio.get_running_loop().time()

        def ends(event: Event, at_s: float) -> None:
            told.append(("end", round(at_s - begin_s, 3)))

        playout = Playout(1.0, ends, lambda mark, due_s: told.append((mark.name, round(due_s - begin_s, 3))))
        await script(playout)
        playout.close()

    clock.run(run(), virtual=True)
    return told


def packet(pcm: bytes) -> Audio:
    return Audio(None, None, len(pcm) // 2, ULAW, as_ulaw(pcm))


SOUND, SILENCE = packet(tone(0.3, 8000)), packet(bytes(1600))


def test_a_mark_comes_back_when_its_audio_has_been_played() -> None:
    async def script(playout: Playout) -> None:
        now = asyncio.get_running_loop().time
        for event in (SOUND, Mark("first"), SOUND, SOUND, Mark("last")):
            playout.takes(event, now())
        await asyncio.sleep(3)
        playout.takes(Mark("alone"), now())
        await asyncio.sleep(1)

    assert played(script) == [("first", 0.3), ("last", 0.9), ("end", 1.9), ("alone", 3.0)]


def test_clear_drops_what_is_not_played_and_returns_its_marks() -> None:
    async def script(playout: Playout) -> None:
        now = asyncio.get_running_loop().time
        for event in (SOUND, Mark("first"), SOUND, SOUND, Mark("last")):
            playout.takes(event, now())
        await asyncio.sleep(0.5)
        assert playout.takes(Done(None, "cancelled"), now())
        playout.takes(SOUND, now())
        await asyncio.sleep(5)

    assert played(script) == [("first", 0.3), ("last", 0.5), ("end", 1.8)]


def test_silence_neither_begins_a_reply_nor_prolongs_it() -> None:
    async def script(playout: Playout) -> None:
        now = asyncio.get_running_loop().time
        assert not playout.takes(SILENCE, now())
        await asyncio.sleep(0.1)
        assert playout.takes(SOUND, now())
        for _ in range(10):
            assert playout.takes(SILENCE, now())
        await asyncio.sleep(5)

    assert played(script) == [("end", 1.4)]


def test_a_network_refuses_what_is_no_sound_and_endless_marks() -> None:
    async def script(playout: Playout) -> None:
        with pytest.raises(Violation, match="garbage"):
            playout.takes(Audio(None, None, 9, ULAW, "!!!!"), 0.0)
        with pytest.raises(Violation, match="marks that wait"):
            for _ in range(MOST_REPLIES + 1):
                playout.takes(Mark("m"), 1e9)

    assert played(script) == []


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


def test_a_call_over_a_socket() -> None:
    out = play(spoken(turns=2), agent, dialect="twilio", path="/twilio")
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("audio") == [0.1] * 6 and not out.values("silent_reply")
    [call] = out.calls
    kinds = [kind for kind in call.kinds if kind != "media"]
    assert kinds == ["connected", "start", "mark", "mark", "stop"]
    assert {len(event["media"]["payload"]) for event in call.of("media")} == {216}, "frames of 20 ms"


class PhoneAgent(Agent):
    """An agent of Twilio's, which keeps a script."""

    async def greet(self) -> None:
        pass

    async def says(self, at_s: float, *messages: bytes) -> None:
        await self.at(at_s)
        for message in messages:
            await self.peer.socket.send(message.decode())

    async def _hear(self) -> None:
        with suppress(ConnectionError):
            while True:
                message = json.loads(await self.peer.socket.recv())
                self.peer.call.received.append({"type": message["event"], **message})
                self.peer.call.at_s.append(self._loop.time())


def test_an_interruption_ends_with_clear_and_with_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    end_s = ARRIVAL_S + SPEECH_S
    words_s = end_s + 0.5 + 0.6
    mark = say("mark", mark={"name": "all"})

    async def script(agent: Any) -> None:
        await agent.says(end_s + 0.5, *[media(tone(0.5, 8000))] * 6, mark)
        await agent.says(words_s + 0.2, say("clear"))
        await agent.says(words_s + SPEECH_S + 0.4, media(tone(0.5, 8000)), mark)

    turns = open_call({"event": "interruption", "event_after_s": 0.6, "event_s": SPEECH_S}, {})
    heard = play_openly(monkeypatch, turns, script, agents=PhoneAgent, dialect="twilio")
    assert heard.failures.empty
    first, second = heard.turns
    assert first["end_of_turn_delay_s"] == pytest.approx(0.5, abs=EXACT_S)
    assert first["stop_report_s"] == pytest.approx(0.2, abs=EXACT_S)
    assert first["stop_s"] == pytest.approx(0.2, abs=EXACT_S)
    assert second["end_of_turn_delay_s"] == pytest.approx(0.4, abs=EXACT_S)
    marks = [at_s for event, at_s in zip(heard.call.received, heard.call.at_s, strict=True) if event["type"] == "mark"]
    assert marks == pytest.approx([words_s + 0.2, words_s + SPEECH_S + 0.9], abs=EXACT_S)
