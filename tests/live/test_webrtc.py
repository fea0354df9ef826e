"""WebRTC: the jitter buffer and the simulated loss on the virtual clock, and calls with aiortc peers over sockets."""

import asyncio
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiortc", reason="needs the extra webrtc")


from harness.clocks import clock
from harness.live.endpoints.conformance import check_dialect
from harness.live.endpoints.dialects import dialect_of, known_at
from harness.live.endpoints.dialects.events import Audio, Done, Other
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport import rtp
from harness.live.endpoints.transport.webrtc import codec
from harness.live.null_server.pace import Pace
from tests.live.scripted import PIECES, Call, Outcome, Serving, Use, over_http, played, spoken, table, tone
from tests.live.webrtc_bots import Bot, encoded, listen
from workloads.errors import UserError, validate

FRAME = 960
"""Ticks and samples of 20 ms."""


def heard(*packets: tuple[int, int, float]) -> list[tuple[int, int]]:
    """Number and time (ms) of each packet that a buffer of 60 ms plays. `packets`: number, ticks, arrival (s)."""
    out: list[tuple[int, int]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()

        def play(payload: bytes, at_s: float) -> None:
            out.append((int(payload), round(1e3 * (at_s - begun_s))))

        buffer = rtp.JitterBuffer(0.06, play)
        for number, ticks, at_s in packets:
            add = buffer.add, number % 2**16, ticks % 2**32, str(number).encode(), begun_s + at_s
            loop.call_at(begun_s + at_s, *add)
        await asyncio.sleep(5)

    clock.run(run(), virtual=True)
    return out


LATE_S = (0.0, 0.02, 0.005, 0.06, 0.0)
STALLED = [(k, k * FRAME, 0.5) for k in (1, 2)]


@pytest.mark.parametrize(
    ("packets", "played"),
    [
        pytest.param(
            [(k, k * FRAME, 0.1 + 0.02 * k + late_s) for k, late_s in enumerate(LATE_S)],
            [(k, 160 + 20 * k) for k in range(5)],
            id="whenever they come",
        ),
        pytest.param([(k, k * FRAME, 0.02 * k) for k in (0, 1, 3)], [(0, 60), (1, 80), (3, 120)], id="one is lost"),
        pytest.param(
            [(0, 0, 0.0), (2, 2 * FRAME, 0.04), (2, 2 * FRAME, 0.05), (1, FRAME, 0.15)],
            [(0, 60), (2, 100)],
            id="a second copy, and one after its successor",
        ),
        pytest.param([(0, 0, 0.0), *STALLED], [(0, 60), (1, 500), (2, 520)], id="a stall is heard"),
        pytest.param([(0, 0, 0.0), *STALLED, (3, 3 * FRAME, 0.06)], [(0, 60), (3, 120)], id="overtaken in a stall"),
        pytest.param(
            [(2**16 - 1 + k, 2**32 - FRAME + k * FRAME, 0.02 * k) for k in range(3)],
            [(2**16 - 1 + k, 60 + 20 * k) for k in range(3)],
            id="numbers and timestamps begin again",
        ),
    ],
)
def test_the_jitter_buffer_plays_each_packet_at_its_time_or_drops_it(
    packets: list[tuple[int, int, float]], played: list[tuple[int, int]]
) -> None:
    assert heard(*packets) == played


PATH, PACKETS = rtp.Path(seed=1, way="to", loss=0.1, jitter_s=0.02), 5000


def delays_s(path: rtp.Path) -> np.ndarray:
    """The delay (s) of each packet; NaN: it is lost."""
    return np.array([path.delay_s(number) for number in range(PACKETS)], float)


def five_deviations(share: float) -> float:
    """Five standard deviations of the share of packets with a property that each has with this probability."""
    return 5 * (share * (1 - share) / PACKETS) ** 0.5


def test_the_delay_of_a_packet_does_not_depend_on_the_packets_before_it() -> None:
    backwards = np.array([PATH.delay_s(number) for number in reversed(range(PACKETS))], float)
    np.testing.assert_array_equal(backwards[::-1], delays_s(PATH))


@pytest.mark.parametrize("other", [PATH._replace(seed=2), PATH._replace(way="from")])
def test_another_seed_or_way_loses_other_packets(other: rtp.Path) -> None:
    lost_on_both = np.isnan(delays_s(PATH)) & np.isnan(delays_s(other))
    independent = 0.1 * 0.1
    assert lost_on_both.mean() == pytest.approx(independent, abs=five_deviations(independent))


def test_packets_are_lost_at_the_given_rate_and_delayed_evenly_up_to_the_jitter() -> None:
    found_s = delays_s(PATH)
    assert np.isnan(found_s).mean() == pytest.approx(0.1, abs=five_deviations(0.1))
    arrived_s = found_s[~np.isnan(found_s)]
    assert arrived_s.min() >= 0 and arrived_s.max() < 0.02
    deviation_s = 0.02 / 12**0.5  # of a uniform draw from 0 to 0.02 s
    assert arrived_s.mean() == pytest.approx(0.01, abs=5 * deviation_s / PACKETS**0.5)


def rtvi(kind: str) -> bytes:
    data = {"text": "word", "error": "gone", "fatal": True}
    return json.dumps({"label": "rtvi-ai", "type": kind, "data": data}).encode()


def event(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def ended(reply: int, status: str = "completed", way: str = "stopped") -> list[bytes]:
    """OpenAI's messages: the reply has been made, and its sound has been sent."""
    done = event("response.done", response={"id": f"r{reply}", "status": status})
    return [done, event(f"output_audio_buffer.{way}", response_id=f"r{reply}")]


SILENCE = rtp.AUDIO + bytes(2 * FRAME)
BOT = SimpleNamespace(
    rate=rtp.RATE,
    ready=lambda: [rtvi("bot-ready")],
    begin=lambda reply: [SILENCE, rtvi("bot-llm-started"), SILENCE],
    audio=lambda reply, pcm: [rtp.AUDIO + pcm],
    text=lambda reply: [rtvi("bot-llm-text")],
    end=lambda reply: [rtvi("bot-stopped-speaking"), SILENCE],
    cut=lambda reply: [rtvi("bot-interrupted")],
    error=lambda: [rtvi("error")],
)
REALTIME = SimpleNamespace(
    rate=rtp.RATE,
    ready=lambda: [event("session.created", session={}), event("session.updated", session={})],
    begin=lambda reply: [
        event("response.created", response={"id": f"r{reply}"}),
        event("output_audio_buffer.started", response_id=f"r{reply}"),
    ],
    audio=BOT.audio,
    text=lambda reply: [event("response.output_audio_transcript.delta", response_id=f"r{reply}", delta="word")],
    end=ended,
    cut=lambda reply: ended(reply, "cancelled", "cleared"),
    error=lambda: [event("error", error={"code": "server_error", "message": "gone"})],
)
"""Servers' messages, as `harness.live.endpoints.conformance.Server` has them."""


def target(name: str, url: str = "http://h/") -> TargetParams:
    return TargetParams.model_validate({"url": url, "dialect": name})


@pytest.mark.parametrize(("name", "server"), [("rtvi_webrtc", BOT), ("openai_webrtc", REALTIME)])
def test_both_webrtc_dialects_pass_the_conformance_check(name: str, server: Any) -> None:
    check_dialect(target(name), server)


def test_an_openai_reply_ends_with_its_sound_and_not_with_response_done() -> None:
    read, sound = dialect_of(target("openai_webrtc")).reader(), rtp.AUDIO + tone(0.02, rtp.RATE)
    for message in REALTIME.begin(0):
        read(message)
    assert read(SILENCE) == Other(), "the reply has not begun to sound"
    for packet in (sound, SILENCE):  # a pause within the reply is audio too
        audio = read(packet)
        assert isinstance(audio, Audio) and (audio.seconds, audio.response) == (0.02, "r0")
    made, sent = ended(0)
    assert read(made) == Other() and isinstance(read(SILENCE), Audio)
    assert read(sent) == Done("r0", "completed") and read(SILENCE) == Other()


def test_an_openai_reply_that_is_made_and_then_cut_is_cancelled() -> None:
    read, (made, cut) = dialect_of(target("openai_webrtc")).reader(), ended(0, way="cleared")
    assert [read(message) for message in [*REALTIME.begin(0), made, cut]][-1] == Done("r0", "cancelled")


def bots(packets: int = 10) -> Serving:
    """Bots that answer after 50 ms with this many frames of tone."""

    async def serving(use: Use) -> list[Call]:
        server, url = await listen(Pace(0.05, 0.02, packets))
        await use(url)
        server.close()
        return []

    return serving


def counted(out: Outcome, kind: str) -> float:
    return sum(out.events["value"][out.events["kind"] == kind].tolist())


def test_a_call_with_a_pipecat_bot_hears_every_packet() -> None:
    out = played(spoken(turns=2), bots(), dialect="rtvi_webrtc")
    assert not len(out.failures) and table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("audio") == [0.02] * 20
    assert counted(out, "rtp_packets") == 20 and counted(out, "rtp_lost") == 0
    assert len(out.values("rtp_buffered")) == 1


def test_speech_during_a_reply_cuts_it() -> None:
    cut = {"barge_in_after_s": [0.06, float("nan")], "reply_audio_s": 0.6}
    out = played(spoken(turns=2, **cut), bots(100), dialect="rtvi_webrtc")
    assert not len(out.failures) and table(out)["status"].tolist() == ["barged_in", "completed"]
    first, second = table(out)["audio_s"]
    assert 0.06 <= first < second == pytest.approx(2.0)


def test_simulated_loss_is_counted_and_leaves_gaps() -> None:
    out = played(spoken(sessions=4, turns=4), bots(), dialect="rtvi_webrtc", packet_loss=0.3, packet_jitter_ms=20)
    lost, n = counted(out, "rtp_lost"), counted(out, "rtp_packets")
    assert abs(lost / n - 0.3) < 5 * (0.3 * 0.7 / n) ** 0.5, "within five standard deviations"
    assert counted(out, "audio") <= 0.02 * (n - lost) + 1e-6
    assert max(table(out)["max_gap_s"].dropna()) > 0.019


def noted(heard: Callable[..., Any], came: dict[object, set[int]]) -> Callable[..., Any]:
    """`heard`, a method that takes a packet or its number first; each object's numbers go to `came`."""

    def wrapped(self: object, packet: Any, *args: Any, **fields: Any) -> Any:
        number = getattr(packet, "sequence_number", packet)
        if number < PIECES:
            came.setdefault(self, set()).add(number)
        return heard(self, packet, *args, **fields)

    return wrapped


def test_a_call_loses_the_same_packets_alone_and_in_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    came: dict[object, set[int]] = {}
    monkeypatch.setattr("aiortc.rtcrtpsender.random16", lambda: 0)
    monkeypatch.setattr(rtp.JitterBuffer, "add", noted(rtp.JitterBuffer.add, came))
    monkeypatch.setattr(Bot, "_hear", noted(Bot._hear, came))

    def numbers(sessions: int) -> set[frozenset[int]]:
        came.clear()
        played(spoken(sessions), bots(100), dialect="rtvi_webrtc", packet_loss=0.3, packet_jitter_ms=5)
        return set(map(frozenset, came.values()))

    alone, crowd = numbers(1), numbers(3)
    assert len(alone) == 2 and len(crowd) == 6, "each way of each call loses others"
    assert alone < crowd


class RealtimeBot(Bot):
    """A bot that speaks OpenAI's messages on its data channel."""

    def _opened(self, channel: Any) -> None:
        super()._opened(channel)
        assert channel.label == "oai-events"
        self._send(event("session.created", session={}))

    def _read(self, text: str) -> None:
        assert json.loads(text)["type"] == "session.update"
        self._send(event("session.updated", session={}))

    def _say(self, k: int) -> None:
        if k == 0:
            self._send(*REALTIME.begin(0))
        self._voice.say(self._tones[k])
        if k + 1 == self._pace.packets:
            self._send(*REALTIME.end(0))

    def _send(self, *messages: bytes) -> None:
        for message in messages:
            self._channel.send(message.decode())


def test_a_call_with_an_openai_server_hears_every_packet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.live.webrtc_bots.SILENT", 40)  # at 24 kHz zeros take 32 bytes, and a voice 44 or more

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert head.startswith("POST /v1/realtime/calls?model=m ") and "application/sdp" in head
        offer = await reader.readexactly(int(head.lower().partition("content-length: ")[2].split()[0]))
        bot = RealtimeBot(Pace(0.05, 0.02, 10), encoded(codec("w", rtp.RATE), tone(1.0, rtp.RATE)))
        answer = json.loads(await bot.answer({"sdp": offer.decode(), "type": "offer"}))["sdp"].encode()
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)

    async def serving(use: Use) -> list[Call]:
        async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
            await use(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/realtime/calls")
        return []

    out = played(spoken(), serving, model="m", dialect="openai_webrtc")
    assert not len(out.failures) and table(out)["status"].tolist() == ["completed"]
    assert out.values("audio") == [0.02] * 10
    assert out.times("audio")[-1] <= out.times("reply_done")[0]


def test_a_server_that_takes_no_offer_is_a_usage_error() -> None:
    async def refuse(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")

    with pytest.raises(UserError, match=r"takes no offer \(HTTP status 404\)"):
        played(spoken(), lambda use: over_http(refuse, use, "/api/offer"))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"url": "ws://h/", "dialect": "rtvi_webrtc"}, r"needs an http\(s\):// url, which takes offers"),
        ({"url": "ws://h/", "packet_loss": 0.01}, "packet_loss is for WebRTC"),
        ({"url": "http://h/api/offer", "packet_loss": 2}, "packet_loss"),
    ],
)
def test_a_target_that_contradicts_webrtc_is_a_usage_error(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        validate(TargetParams, fields, "the target")


def test_without_the_extra_one_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiortc", None)
    with pytest.raises(UserError, match=r"package aiortc, which is not installed; run .*\[webrtc\]"):
        asyncio.run(dialect_of(target("rtvi_webrtc")).connect(None))  # type: ignore[arg-type]


def test_the_url_selects_the_dialect() -> None:
    assert known_at("https://h/api/offer") == "rtvi_webrtc"
    assert known_at("https://api.openai.com/v1/realtime/calls?model=m") == "openai_webrtc"
    assert known_at("wss://api.openai.com/v1/realtime") == "openai"
