"""Speech synthesis as a target, over HTTP and WebSockets: servers scripted from vLLM-Omni's and SGLang-Omni's."""

import asyncio
from typing import Any

import pytest

from harness.clocks import clock
from harness.live.endpoints.dialects.audio_format import AudioFormat
from harness.live.endpoints.dialects.events import Audio, Done, Failure, Garbage, Other
from harness.live.endpoints.dialects.synthesis import Synthesis
from harness.live.endpoints.prompts import spoken_words
from harness.live.endpoints.target import TargetParams
from harness.live.kinds import named
from harness.live.run.preflight import ask_one_word
from harness.metrics.live import summarise_live
from tests.live.scripted import (
    HEAD,
    Answer,
    Outcome,
    Peer,
    chunked,
    over_http,
    play,
    played,
    spoken,
    table,
    tone,
    typed,
    wav,
)
from workloads.errors import UserError

TENTH = tone(0.1)
"""0.1 s at 24 kHz."""


async def three_tenths(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    """0.3 s of sound in pieces that end within a sample."""
    writer.write(HEAD % 200)
    sound = TENTH * 3
    for piece in (sound[:4801], sound[4801:9000], sound[9000:]):
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(0.01)
    writer.write(b"0\r\n\r\n")


async def refuses(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD % 404 + chunked([b'{"error": {"message": "The model `nobody` does not exist."}}']))


async def mute(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD % 200 + chunked([]))


PATH = "/v1/audio/speech"


def synthesise(answer: Answer = three_tenths, trace: Any = None, **target: Any) -> Outcome:
    trace = trace or spoken(turns=2)
    named("turns").check_target(TargetParams(url=f"http://h{PATH}", **target), trace, None)
    return played(trace, lambda use: over_http(answer, use, PATH), **target)


def test_words_of_the_reply_become_sound():
    out = synthesise(model="m", voice="v")
    assert [call.path for call in out.calls] == ["POST /v1/audio/speech HTTP/1.1"] * 2
    for call, turn in zip(out.calls, out.trace.sessions[0].turns, strict=True):
        [asked] = call.received
        assert asked["input"] == spoken_words(out.trace.header.seed, turn)
        assert len(asked["input"].split()) == turn.output_tokens
        about = {"model": "m", "voice": "v", "response_format": "pcm", "stream": True, "stream_format": "audio"}
        assert {name: asked[name] for name in about} == about
    done = table(out)
    assert done["status"].tolist() == ["completed"] * 2
    assert done["audio_s"].tolist() == pytest.approx([0.3, 0.3]), "no sample is lost between pieces"
    assert min(done["audio_ttfp_s"]) > 0 and min(done["rtf"]) > 0 and done["packets"].tolist() == [3, 3]
    assert set(out.sends["kind"]) == {"request"}, "nobody listens there"


def test_vllm_omni_s_benchmark_would_say_the_same_of_it():
    """Its formulas over the packets (vllm_omni 0.30.0, benchmarks/patch/patch.py, benchmarks/audio_continuity.py)."""

    async def stalls(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD % 200)
        for _ in range(3):
            writer.write(b"%x\r\n%s\r\n" % (len(TENTH), TENTH))
            await writer.drain()
            await asyncio.sleep(0.25)
        writer.write(b"0\r\n\r\n")

    out = synthesise(stalls, spoken())
    rows = table(out)
    metrics = summarise_live(out.events, rows, out.sends, out.failures, {}, late_s=1.0)
    [sent_s] = rows["turn_end_s"] + rows["send_delay_s"]
    arrived_s = out.events.loc[out.events["kind"] == "audio", "t"].to_numpy(float)
    late_s = (arrived_s - arrived_s[0] - [0.0, 0.1, 0.2]).max()
    expected = {"audio_ttfp": arrived_s[0] - sent_s, "audio_rtf": (arrived_s[-1] - sent_s) / 0.3}
    for name, value in (expected | {"audio_underrun": late_s}).items():
        assert metrics[f"vllm_omni_{name}_p50"].value == pytest.approx(value), name
    assert late_s > 0, "the player waited"


def test_another_rate_is_asked_for_and_counted_with():
    out = synthesise(trace=spoken(), sample_rate=48_000)
    assert out.calls[0].received[0]["sample_rate"] == 48_000
    assert table(out)["audio_s"].tolist() == pytest.approx([0.15])


def answering(sound: bytes, *headers: str, piece: int = 1000) -> Answer:
    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        lines = "".join(f"{header}\r\n" for header in headers)
        writer.write(f"HTTP/1.1 200 X\r\n{lines}Transfer-Encoding: chunked\r\n\r\n".encode())
        writer.write(chunked([sound[i : i + piece] for i in range(0, len(sound), piece)]))

    return answer


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (answering(bytes(16_000), "Content-Type: audio/pcm;rate=16000"), 0.5),
        (answering(bytes(16_000), "content-type: audio/L16; rate=8000; channels=2"), 0.5),
        (answering(bytes(16_000), "Content-Type: audio/PCMU"), 2.0),
        (answering(bytes(16_000), "Content-Type: audio/pcm", "X-Sample-Rate: 32000"), 0.25),
        (answering(wav(bytes(16_000), 16_000), "Content-Type: audio/wav"), 0.5),
        (answering(wav(bytes(16_000), 16_000, size=0), piece=7), 0.5),
        (answering(wav(bytes(16_000), 16_000, size=16_000) + b"LIST\4\0\0\0INFO"), 0.5),
        (answering(wav(bytes(16_000), 8000, bits=8, tag=7), "Content-Type: audio/wav"), 2.0),
    ],
)
def test_the_answer_says_what_its_sound_is(answer: Answer, seconds: float):
    assert table(synthesise(answer, spoken()))["audio_s"].tolist() == pytest.approx([seconds])


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (answering(b"\xff\xfb" + bytes(900), "Content-Type: audio/mpeg"), "mpeg"),
        (answering(b"OggS" + bytes(900)), "ogg"),
        (answering(b"ID3" + bytes(900)), "mp3"),
        (answering(wav(bytes(900), 24_000, bits=32, tag=3)), "WAV of 32-bit floats"),
    ],
)
def test_sound_that_is_no_pcm_is_refused_and_never_measured(answer: Answer, name: str):
    out = synthesise(answer, spoken())
    assert out.failures["reason"].tolist() == [f"audio as {name}, which is not read"] and not out.values("audio")

    async def use(url: str) -> None:
        with pytest.raises(UserError, match=f"response_format=pcm and answers with audio as {name}, which is not read"):
            await ask_one_word(TargetParams(url=url))

    clock.run(over_http(answer, use, PATH), virtual=False)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (refuses, "has no speech synthesis there .HTTP status 404: The model"),
        (mute, "with no audio"),
        (answering(b"<html>hello</html>", "Content-Type: text/html"), "with text/html and not audio; give the"),
    ],
)
def test_an_address_without_speech_is_told_before_the_run(answer: Answer, sentence: str):
    async def use(url: str) -> None:
        with pytest.raises(UserError, match=sentence):
            await ask_one_word(TargetParams(url=url))

    assert clock.run(over_http(answer, use, PATH), virtual=False)[0].received[0]["input"] == "word"


def test_readers_are_no_listeners():
    with pytest.raises(UserError, match="makes speech, and the replies of workload 'poisson' are read"):
        synthesise(trace=typed())


async def streams(peer: Peer, configured: bool = False) -> None:
    """vLLM-Omni does not answer the configuration, SGLang-Omni does."""
    await peer.expect("session.config")
    if configured:
        await peer.say("session.configured", session_id="s", response_format="pcm", stream_audio=True)
    utterance = 0
    while True:
        await peer.expect("input.done")
        about = {"utterance_index": utterance, "sentence_index": 0}
        await peer.say("audio.start", format="pcm", sentence_text="...", **about)
        for _ in range(3):
            await peer.socket.send(TENTH)
        await peer.say("audio.done", **about)
        await peer.say("session.done", utterance_index=utterance, total_sentences=1)
        utterance += 1


@pytest.mark.parametrize("configured", [False, True])
def test_utterances_over_one_connection(configured: bool):
    async def script(peer: Peer) -> None:
        await streams(peer, configured)

    out = play(spoken(turns=2), script, path="/v1/audio/speech/stream", model="m")
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("audio") == [0.1] * 6
    [call] = out.calls
    assert call.path == "/v1/audio/speech/stream"
    text = "".join(event["text"] for event in call.of("input.text"))
    wanted = [spoken_words(out.trace.header.seed, turn) + "." for turn in out.trace.sessions[0].turns]
    assert text == "".join(wanted)


def test_a_stream_says_what_its_sound_is():
    async def script(peer: Peer) -> None:
        await peer.expect("input.done")
        await peer.say("audio.start", format="pcm", sample_rate=16_000)
        await peer.socket.send(bytes(3200))
        await peer.say("audio.start", format="wav")
        await peer.socket.send(wav(bytes(3200), 8000, size=3200))
        await peer.socket.send(bytes(1600))
        await peer.say("session.done")
        await peer.drain()

    out = play(spoken(), script, path="/v1/audio/speech/stream")
    assert out.values("audio") == [0.1, 0.2, 0.1]


def test_words_come_as_a_model_writes_them():
    out = play(spoken(), streams, path="/v1/audio/speech/stream", words_per_s=50.0)
    due = out.sends.loc[out.sends["kind"] == "text", "due_s"]
    assert due.diff().dropna().tolist() == pytest.approx([0.02] * 6)
    assert [event["type"] for event in out.calls[0].received] == ["session.config", *7 * ["input.text"], "input.done"]


def test_sound_is_told_from_words():
    read = Synthesis(TargetParams(url="ws://h/v1/audio/speech/stream", sample_rate=16_000)).reader()
    sound = b"{" + bytes(319)
    assert read(sound) == Audio(None, None, 320, AudioFormat("pcm", 16_000), sound)
    assert read(b'{"type":"session.done","total_sentences":1}') == Done(None, "completed")
    assert read(b'{"type":"audio.start"}') == Other()
    assert read(b"{}") == Garbage("text and not audio")
    assert read(b'{"type":"error","message":"full"}') == Failure("unknown", "full")
    nested = read(b'{"type":"error","error":{"code":"bad_request","message":"no"}}')
    assert nested == Failure("bad_request", "no")


def test_a_dialect_of_synthesis_needs_its_address():
    with pytest.raises(ValueError, match="dialect=synthesis needs a url that ends with"):
        TargetParams(url="ws://h/v1/realtime", dialect="synthesis")
