"""Speech synthesis as a target, over HTTP and WebSockets: servers scripted from vLLM-Omni's and SGLang-Omni's."""

import asyncio
from functools import partial
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
from tests.builders import refused
from tests.live.scripted import Answer, Outcome, Peer, over_http, play, played, spoken, table, tone, typed, wav

TENTH = tone(0.1)
"""0.1 s at 24 kHz."""
SOUND = TENTH * 3
PATH = "/v1/audio/speech"


def answering(*pieces: bytes, type: str = "", status: int = 200, pause_s: float = 0.0) -> Answer:
    """Sends these pieces of a body, with a pause after each."""

    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        line = f"Content-Type: {type}\r\n" if type else ""
        writer.write(f"HTTP/1.1 {status} X\r\n{line}Transfer-Encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(pause_s)
        writer.write(b"0\r\n\r\n")

    return answer


THREE_TENTHS = answering(SOUND[:4801], SOUND[4801:9000], SOUND[9000:], pause_s=0.01)
"""0.3 s of sound in pieces that end within a sample."""


def synthesise(answer: Answer = THREE_TENTHS, trace: Any = None, **target: Any) -> Outcome:
    trace = trace or spoken(turns=2)
    named("turns").check_target(TargetParams.model_validate({"url": f"http://h{PATH}", **target}), trace, None)
    return played(trace, lambda use: over_http(answer, use, PATH), **target)


def test_the_reply_s_words_are_sent_and_their_sound_is_measured():
    out = synthesise(model="m", voice="v", sample_rate=48_000)
    assert [call.path for call in out.calls] == ["POST /v1/audio/speech HTTP/1.1"] * 2
    for call, turn in zip(out.calls, out.trace.sessions[0].turns, strict=True):
        [asked] = call.received
        assert asked["input"] == spoken_words(out.trace.header.seed, turn)
        assert len(asked["input"].split()) == turn.output_tokens
        about = {"model": "m", "voice": "v", "response_format": "pcm", "stream": True, "stream_format": "audio"}
        assert {name: asked[name] for name in about} == about and asked["sample_rate"] == 48_000
    done = table(out)
    assert done["status"].tolist() == ["completed"] * 2
    assert done["audio_s"].tolist() == pytest.approx([0.15, 0.15])  # 14,400 bytes; no sample is lost between pieces
    assert min(done["audio_ttfp_s"]) > 0 and min(done["rtf"]) > 0 and done["packets"].tolist() == [3, 3]
    assert set(out.sends["kind"]) == {"request"}


def test_the_metrics_are_those_of_vllm_omni_s_benchmark():
    """Its formulas over the packets (vllm_omni 0.30.0, benchmarks/patch/patch.py, benchmarks/audio_continuity.py)."""
    out = synthesise(answering(*3 * [TENTH], pause_s=0.25), spoken())
    rows = table(out)
    metrics = summarise_live(out.events, rows, out.sends, out.failures, {}, late_s=1.0)
    [sent_s] = rows["turn_end_s"] + rows["send_delay_s"]
    arrived_s = out.events.loc[out.events["kind"] == "audio", "t"].to_numpy(float)
    late_s = (arrived_s - arrived_s[0] - [0.0, 0.1, 0.2]).max()
    expected = {"audio_ttfp": arrived_s[0] - sent_s, "audio_rtf": (arrived_s[-1] - sent_s) / 0.3}
    for name, value in (expected | {"audio_underrun": late_s}).items():
        assert metrics[f"vllm_omni_{name}_p50"].value == pytest.approx(value), name
    assert late_s > 0, "the player waited"


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (answering(b"\xff\xfb" + bytes(900), type="audio/mpeg"), "mpeg"),
        (answering(b"OggS" + bytes(900)), "ogg"),
        (answering(b"ID3" + bytes(900)), "mp3"),
        (answering(wav(bytes(900), 24_000, bits=32, tag=3)), "WAV of 32-bit floats"),
    ],
)
def test_compressed_sound_is_rejected_and_not_measured(answer: Answer, name: str):
    out = synthesise(answer, spoken())
    assert out.failures["reason"].tolist() == [f"audio as {name}, which is not read"] and not out.values("audio")
    probe(answer, f"response_format=pcm and answers with audio as {name}, which is not read")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            answering(b'{"error": {"message": "The model `x` does not exist."}}', status=404),
            "has no speech synthesis there (HTTP status 404: The model",
        ),
        (answering(), "with no audio"),
        (answering(b"<html>hello</html>", type="text/html"), "with text/html and not audio; give the"),
    ],
)
def test_a_url_without_speech_synthesis_is_a_usage_error(answer: Answer, sentence: str):
    assert probe(answer, sentence) == "word"


def probe(answer: Answer, sentence: str) -> str:
    """The input that a server of speech is asked for before a run, which is refused."""

    async def use(url: str) -> None:
        with refused(sentence):
            await ask_one_word(TargetParams.model_validate({"url": url}))

    return clock.run(over_http(answer, use, PATH), virtual=False)[0].received[0]["input"]


def test_a_workload_of_read_replies_is_rejected():
    with refused("makes speech, and the replies of workload 'poisson' are read"):
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
def test_a_call_s_utterances_share_one_websocket(configured: bool):
    out = play(spoken(turns=2), partial(streams, configured=configured), path=f"{PATH}/stream", model="m")
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("audio") == [0.1] * 6
    [call] = out.calls
    assert call.path == f"{PATH}/stream"
    wanted = [spoken_words(out.trace.header.seed, turn) + "." for turn in out.trace.sessions[0].turns]
    assert "".join(event["text"] for event in call.of("input.text")) == "".join(wanted)


def test_words_per_s_sends_each_word_when_it_is_due():
    out = play(spoken(), streams, path=f"{PATH}/stream", words_per_s=50.0)
    due = out.sends.loc[out.sends["kind"] == "text", "due_s"]
    assert due.diff().dropna().tolist() == pytest.approx([0.02] * 6)
    assert [event["type"] for event in out.calls[0].received] == ["session.config", *7 * ["input.text"], "input.done"]


def test_messages_of_synthesis_are_sound_or_events():
    read = Synthesis(
        TargetParams.model_validate({"url": "ws://h/v1/audio/speech/stream", "sample_rate": 16_000})
    ).reader()
    sound = b"{" + bytes(319)
    assert read(sound) == Audio(None, None, 320, AudioFormat("pcm", 16_000), sound)
    assert read(b'{"type":"session.done","total_sentences":1}') == Done(None, "completed")
    assert read(b'{"type":"audio.start"}') == Other()
    assert read(b"{}") == Garbage("text and not audio")
    assert read(b'{"type":"error","message":"full"}') == Failure("unknown", "full")
    nested = read(b'{"type":"error","error":{"code":"bad_request","message":"no"}}')
    assert nested == Failure("bad_request", "no")
