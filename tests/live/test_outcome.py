"""The outcome of a reply, complete or failed and why: one rule for every protocol, split, compression and ending."""

import asyncio
import base64
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import brotli
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clocks import clock
from harness.live.endpoints import base_endpoint
from harness.live.endpoints.dialects.audio_format import as_ulaw
from harness.live.endpoints.dialects.speech_body import SpeechBody
from harness.live.endpoints.outcome import COMPLETE, Facts, outcome
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport.content_encoding import PIECE, Decoder
from harness.live.run.preflight import ask_one_token, ask_one_word
from harness.metrics.replies import failure_metrics
from tests.builders import refused
from tests.live import open_microphone
from tests.live.in_process import Call, Request, Side, Utterances, calling, chat, speech
from tests.live.scripted import (
    DONE,
    HEAD,
    Peer,
    chunked,
    event,
    greet,
    over_http,
    play,
    played,
    reply,
    spoken,
    table,
    tone,
    typed,
    wav,
)
from workloads.trace import Trace

ERROR = {"error": {"message": "out of memory", "type": "InternalServerError", "code": 500}}
SOUND = tone(0.3)


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


WORDS = chunk(role="assistant", content="") + chunk(content="a") + chunk(content=" b")


ENCODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "none": ("", bytes),
    "identity": ("identity", bytes),
    "gzip": ("gzip", gzip.compress),
    "x-gzip of two members": ("X-GZIP", lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", lambda data: zlib.compress(data, wbits=-15)),
    "br": ("br", brotli.compress),
    "two": ("deflate, gzip", lambda data: gzip.compress(zlib.compress(data))),
}


def http(body: bytes, type: str, encoding: str, whole: bool = True, sized: bool = False) -> bytes:
    """An answer with status 200. `whole`: it does not end before its body does; `sized`: it states its length."""
    name, encode = ENCODINGS[encoding]
    data = encode(body)
    lines = [b"HTTP/1.1 200 OK", b"Content-Type: " + type.encode(), b"Content-Encoding: " + name.encode()]
    if sized:
        return b"\r\n".join([*lines, b"Content-Length: %d" % (len(data) + (not whole)), b"", data])
    data = chunked([data] if data else [])
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", data if whole else data[:-5]])


def cut(draw: Any, data: bytes) -> list[bytes]:
    """The data in any pieces."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[a:b] for a, b in pairwise([0, *cuts, len(data)]) if a < b]


def over(request: Request, draw: Any, body: bytes, type: str, whole: bool) -> Side:
    encoding, sized = draw(st.sampled_from([*ENCODINGS])), draw(st.booleans())
    request.answers(*cut(draw, http(body, type, encoding, whole, sized)))
    if not whole:
        request.ends()
    return request


def as_chat(draw: Any, ending: str) -> Side:
    end = chunk("stop") + draw(st.sampled_from([DONE, b""]))
    bodies = {
        "whole": WORDS + end,
        "error": draw(st.sampled_from([json.dumps(ERROR).encode(), event(ERROR)])),
        "error after output": WORDS + event(ERROR) + draw(st.sampled_from([DONE, end, b""])),
        "nothing": draw(st.sampled_from([b"", chunk(role="assistant") + end, DONE])),
        "lost": WORDS,
    }
    return over(chat(), draw, bodies[ending], "text/event-stream", ending != "lost")


def as_speech(draw: Any, ending: str) -> Side:
    bodies = {
        "whole": SOUND,
        "error": json.dumps(ERROR, indent=draw(st.none() | st.just(1))).encode(),
        "error after output": SOUND + json.dumps(ERROR).encode() + draw(st.sampled_from([b"", b"\n"])),
        "nothing": b"",
        "lost": SOUND,
    }
    types = ["audio/pcm", "application/octet-stream", ""] + ["application/json", "text/html"] * (ending == "error")
    return over(speech(), draw, bodies[ending], draw(st.sampled_from(types)), ending != "lost")


def finish(call: Call, draw: Any, ending: str, done: str, **fields: Any) -> Side:
    """End a reply over a WebSocket. `done`: the event that ends a whole one."""
    if "error" in ending:
        call.message(json.dumps(draw(st.sampled_from([ERROR, {"type": "error", **ERROR}]))).encode())
    elif ending == "lost":
        call.ends(draw(st.sampled_from([1000, 1001, 1005, 1006, 1011])))
    else:
        call.says(done, **fields)
    return call


def as_utterance(draw: Any, ending: str) -> Side:
    call = Utterances()
    call.asks(0)
    for piece in [] if ending in ("error", "nothing") else cut(draw, SOUND):
        call.message(piece)
    return finish(call, draw, ending, "session.done")


def as_response(draw: Any, ending: str) -> Side:
    call, ids = Call(), draw(st.sampled_from([{}, {"response_id": "r"}, {"response_id": "r", "item_id": "i"}]))
    call.asks(0)
    for piece in [] if ending in ("error", "nothing") else cut(draw, SOUND):
        call.sound(piece, **ids)
    return finish(call, draw, ending, "response.done", response={"id": "r", "status": "completed"})


ENDINGS = {
    "whole": "",
    "error": "error: 500",
    "error after output": "error: 500",
    "nothing": "no output",
    "lost": r"closed( \d+)?",
}


@settings(deadline=None, max_examples=150)
@given(st.sampled_from([*ENDINGS]), st.data())
@calling
def test_a_reply_has_one_outcome_in_every_protocol(ending: str, data: st.DataObject):
    for protocol in (as_chat, as_speech, as_utterance, as_response):
        side = protocol(data.draw, ending)
        assert side.heard.outcome is not None and re.fullmatch(ENDINGS[ending], side.heard.outcome)
        assert len(side.failures) == (ending != "whole"), protocol.__name__
        if ending == "whole":
            assert side.heard.tokens == 2 * (protocol is as_chat)
            assert sum(side.heard.seconds.values()) == pytest.approx(0.3 * (protocol is not as_chat))
            assert not side.events("silent_reply")


# The rule


@pytest.mark.parametrize(
    ("noted", "expected"),
    [
        ({"output": True}, None),
        ({"output": True, "ended": True}, ""),
        ({"ended": True}, "no output"),
        ({"output": True, "lost": "closed 1006"}, "closed 1006"),
        ({"output": True, "ended": True, "lost": "closed 1006"}, ""),
        *(({"output": True, "ended": True, "finish": finish}, "") for finish in sorted(COMPLETE)),
        ({"output": True, "ended": True, "finish": "response incomplete: max_tokens"}, ""),
        ({"output": True, "ended": True, "finish": "response failed: gpu"}, "response failed: gpu"),
        ({"output": True, "ended": True, "finish": "abort"}, "finish reason: abort"),
        ({"finish": "abort", "error": "error: 500"}, "error: 500"),
        ({"error": "error: 500", "unread": "audio as opus, which is not read"}, "audio as opus, which is not read"),
        ({"status": 404, "unread": "audio as opus, which is not read"}, "http 404"),
        *(({"status": status, "output": True, "ended": True}, "") for status in (200, 299)),
        *(({"status": status, "output": True, "ended": True}, f"http {status}") for status in (199, 300)),
    ],
)
def test_the_first_fact_that_applies_decides_the_outcome(noted: dict[str, Any], expected: str | None):
    facts = Facts()
    for name, value in noted.items():
        setattr(facts, name, value)
    assert outcome(facts) == expected


# Errors in place of sound


ERRORS_AS_TEXT = [
    (json.dumps(ERROR).encode(), "application/json", "error: 500"),
    (b'{"detail":"Voice not found"}', "application/json", "error: Voice not found"),
    (SOUND, "application/vnd.api+json; x=y", "application/vnd.api+json and not audio"),
    (b'{"audio":"AAAA"}\n{"audio":"AAAA"}\n', "application/x-ndjson", "application/x-ndjson and not audio"),
    (b'{"audio":"AAAA"}\n{"error":"gone"}\n', "application/octet-stream", "error: gone"),
    (b"<html><body>\xe2\x9c\x97 502</body></html>", "audio/pcm", "text and not audio"),
    (b"upstream connect error", "text/plain", "error: upstream connect error"),
    (b"upstream connect error", "", "error: upstream connect error"),
    (SOUND, "text/html; charset=utf-8", "text/html and not audio"),
    (b"\n\n\n   " + json.dumps(ERROR).encode(), "audio/wav", "error: 500"),
    (SOUND + json.dumps(ERROR).encode() + b"\n", "audio/pcm", "error: 500"),
    (SOUND + b"<html>502</html>\n", "audio/pcm", "text/html after the audio"),
]


@pytest.mark.parametrize(("body", "type", "reason"), ERRORS_AS_TEXT)
@settings(max_examples=20)
@given(st.data())
@calling
def test_a_text_in_place_of_sound_fails_and_is_not_heard(body: bytes, type: str, reason: str, data: st.DataObject):
    request = over(speech(), data.draw, body, type, whole=True)
    assert request.heard.reasons == [reason]
    if not body.startswith(SOUND):
        assert request.heard.seconds == {}


@given(
    st.lists(st.integers(-32768, 32767), min_size=40, max_size=200),
    st.sampled_from(["audio/pcm", "audio/L16; rate=8000", "application/ogg", "binary/octet-stream", ""]),
    st.data(),
)
def test_samples_are_never_taken_for_text(samples: list[int], type: str, data: st.DataObject):
    body = np.array([0, -1, *samples], "<i2").tobytes()
    reader = SpeechBody(type)
    assert b"".join(reader.sound(piece) for piece in cut(data.draw, body)) == body and reader.error == ""


# Loudness


def quiet(level: float, seconds: float = 0.5, rate: int = 24_000, channels: int = 1) -> np.ndarray:
    """A tone with this RMS, dBFS; zeros for -inf."""
    at = np.arange(round(seconds * rate) * channels) // channels / rate
    size = 32768 * 2**0.5 * 10 ** (level / 20)
    return np.round(size * np.sin(2 * np.pi * 500 * at)).astype("<i2")


FORMS: dict[str, tuple[str, Callable[[float], bytes]]] = {
    "pcm": ("audio/pcm", lambda level: quiet(level).tobytes()),
    "16 kHz": ("audio/pcm;rate=16000", lambda level: quiet(level, rate=16_000).tobytes()),
    "stereo": ("audio/pcm;rate=8000;channels=2", lambda level: quiet(level, rate=8000, channels=2).tobytes()),
    "u-law": ("audio/PCMU", lambda level: as_ulaw(quiet(level, rate=8000).tobytes())),
    "wav": ("audio/wav", lambda level: wav(quiet(level).tobytes())),
}
LEVELS = st.sampled_from([-np.inf, -80.0, -60.5, -59.5, -6.0])  # silent below -60 dBFS


def check_level(side: Side, level: float) -> None:
    """Fails unless a complete reply of 0.5 s at this level was logged as what it is."""
    assert side.heard.outcome == "" and side.heard.seconds == {0: pytest.approx(0.5)}
    levels = [row["value"] for row in side.events("silent_reply")]
    assert levels == ([] if level >= -60 else [pytest.approx(max(level, -120.0), abs=1.0)])


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([*FORMS]), LEVELS, st.data())
@calling
def test_a_silent_reply_is_logged_in_every_format_and_protocol(form: str, level: float, data: st.DataObject):
    type, make = FORMS[form]
    if form == "u-law" and level == -80.0:
        level = -np.inf  # its smallest step is louder
    body = make(level)
    check_level(over(speech(), data.draw, body, type, True), level)
    call = Call()
    call.asks(0)
    for piece in [body] if form == "wav" else cut(data.draw, body):  # its header comes with the first samples
        call.sound(piece, response_id="r", mime_type=type)
    call.completes("r")
    check_level(call, level)
    stream = Utterances()
    stream.asks(0)
    stream.says("audio.start", mime_type=type)
    for piece in cut(data.draw, body):
        stream.message(piece)
    stream.says("session.done")
    check_level(stream, level)


def test_a_silent_reply_is_complete_and_logged_also_where_the_user_cuts_it():
    """Three replies of zeros: the user cuts the first after 1.5 s of sound and the second after 0.5 s."""

    async def zeros(peer: Peer) -> None:
        await greet(peer)
        for response, sound_s, status in (("a", 1.5, "cancelled"), ("b", 0.5, "cancelled"), ("c", 0.1, "completed")):
            await peer.expect("response.create")
            await peer.say("response.created", response={"id": response})
            await peer.audio(response, delta=base64.b64encode(bytes(round(48_000 * sound_s))).decode())
            if status == "cancelled":
                await peer.expect("response.cancel")
            await peer.done(response, status)
        await peer.drain()

    out = play(spoken(turns=3, barge_in_after_s=[0.1, 0.1, np.nan]), zeros, dialect="openai")
    assert out.failures.empty and table(out)["status"].tolist() == ["barged_in", "barged_in", "completed"]
    silent = out.events.loc[out.events["kind"] == "silent_reply", ["session", "turn", "stage", "value"]]
    # The second may be the pause before speech, which is at most 1 s
    assert silent.to_numpy().tolist() == [[0, 0, "", -120.0], [0, 2, "", -120.0]]


def test_the_failed_share_counts_failed_silent_and_soundless_replies():
    replies = [
        ("completed", True, 3.0),
        ("completed", True, 3.0),  # its zeros were logged
        ("completed", True, 0.0),
        ("completed", False, 0.0),  # a typed turn needs no sound
        ("failed", True, 0.0),
        ("unfinished", True, 1.0),
    ]
    requests = pd.DataFrame(replies, columns=["status", "spoken", "packets"]).assign(session=range(6), turn=0)
    events = pd.DataFrame({"kind": ["silent_reply"], "session": [1], "turn": [0]})
    metrics = failure_metrics(events, requests)
    assert metrics["silent_replies"] == (2.0, 6, 0)
    assert metrics["failed_share"][0] == pytest.approx(4 / 6)


@pytest.mark.parametrize(("seconds", "levels"), [(0.9, []), (1.0, []), (1.1, [-120.0])])
@calling
def test_a_reply_that_the_user_cuts_is_silent_above_one_second_of_zeros(seconds: float, levels: list[float]):
    request = speech()
    request.answers(http(bytes(round(48_000 * seconds)), "audio/pcm", "none", whole=False))
    request.requests.cut(0.0)
    assert [row["value"] for row in request.events("silent_reply")] == levels


# Compression


@settings(deadline=None)
@given(st.binary(max_size=3000), st.sampled_from([*ENCODINGS]), st.data())
def test_a_body_is_decoded_however_it_is_cut(body: bytes, encoding: str, data: st.DataObject):
    name, encode = ENCODINGS[encoding]
    decoder, coded = Decoder(name), encode(body)
    assert b"".join(part for piece in cut(data.draw, coded) for part in decoder.feed(piece)) == body
    assert decoder.cut == ""
    if name not in ("", "identity", "X-GZIP") and body:  # after its first member a stream may end
        shorter = Decoder(name)
        half = b"".join(shorter.feed(coded[: data.draw(st.integers(1, len(coded) - 1))]))
        assert body.startswith(half) and shorter.cut.endswith("cut short")


def test_a_small_body_that_decodes_to_a_large_one_comes_in_bounded_pieces():
    for name, encode in (("gzip", gzip.compress), ("br", brotli.compress)):
        sizes = [len(piece) for piece in Decoder(name).feed(encode(bytes(10**7)))]
        assert sum(sizes) == 10**7 and max(sizes) <= 2 * PIECE


@pytest.mark.parametrize("name", ["gzip", "deflate"])
@calling
def test_each_flushed_event_of_a_compressed_stream_is_read_at_once(name: str):
    """Each event of a compressed stream reaches the user with the bytes that end it, and the stream needs no end."""
    made = zlib.compressobj(6, zlib.DEFLATED, 31 if name == "gzip" else 15)
    request, seen = chat(), []
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {name}\r\nTransfer-Encoding: chunked\r\n\r\n"
    request.answers(head.encode())
    for part in (chunk(content="a"), chunk(content="b"), chunk("stop") + DONE):
        data = made.compress(part) + made.flush(zlib.Z_SYNC_FLUSH)
        request.answers(b"%x\r\n%s\r\n" % (len(data), data))
        seen.append((request.heard.tokens, request.heard.outcome))
    assert seen == [(1, None), (2, None), (2, "")]
    request.answers(b"0\r\n\r\n")
    assert request.heard.outcome == "" and len(request.failures) == 0


@pytest.mark.parametrize("make", [chat, speech])
@calling
def test_a_cut_or_broken_compressed_stream_is_a_failure(make: Callable[[], Request]):
    body = gzip.compress(WORDS if make is chat else SOUND)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    for data, reason in ((body[:-9], "gzip cut short"), (b"data: no gzip", "garbage: no gzip")):
        request = make()
        request.answers(head + chunked([data]))
        assert request.heard.reasons == [reason]


@pytest.mark.parametrize("name", ["zstd", "br"])
def test_an_encoding_that_is_not_read_is_named(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "brotli", None)

    async def answer(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {name}\r\nContent-Length: 4\r\n\r\n"
        writer.write(head.encode() + b"\x28\xb5\x2f\xfd")

    async def probe(url: str) -> None:
        with refused(f"a body compressed with {name}, which is not read; turn compression off at the server"):
            await (ask_one_word if "speech" in url else ask_one_token)(TargetParams.model_validate({"url": url}))

    for path in ("/v1", "/v1/audio/speech"):
        clock.run(over_http(answer, probe, path), virtual=False)
    out = played(typed(), lambda use: over_http(answer, use))
    assert out.failures["reason"].tolist() == [f"compressed with {name}, which is not read"]
    assert out.calls[0].headers["Accept-Encoding"] == "identity"


# Ends of connections


def closing(*codes: int | None, sound_s: float = 0.3) -> Any:
    """Answers one turn a connection, and closes it with the code: 1006 by dropping the line, None with no code."""
    coming = iter(codes)

    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.expect("response.create")
        await peer.say("response.created", response={"id": "r"})
        await peer.audio("r", sound_s)
        await peer.done("r")
        code = next(coming)
        if code == 1006:
            peer.socket.transport.abort()
        elif code is None:
            peer.socket.transport.write(b"\x88\x00")
            await peer.drain()
        else:
            await peer.socket.close(code)

    return script


@pytest.mark.parametrize("code", [1000, 1001, None])
def test_a_server_that_closes_normally_after_each_reply_is_called_again(code: int | None):
    out = play(spoken(turns=2), closing(code, code), dialect="openai")
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert len(out.calls) == 2 and len(out.values("connected")) == 2
    assert table(out)["heard_s"].tolist() == pytest.approx([0.3, 0.3]), "each was heard to its end"


@pytest.mark.parametrize("code", [1011, 1006, 4000])
def test_an_abnormal_close_after_a_complete_reply_fails_the_next_turn_alone(code: int):
    out = play(spoken(turns=2), closing(code), dialect="openai")
    assert table(out)["status"].tolist() == ["completed", "failed"]
    assert out.failures[["turn", "reason"]].to_numpy().tolist() == [[1, f"closed {code}"]]


def test_a_complete_reply_longer_than_the_turn_timeout_is_heard_out():
    out = play(spoken(reply_audio_s=0.1), closing(1000, sound_s=1.0), {"turn_timeout_s": 0.4}, dialect="openai")
    assert out.failures.empty and table(out)["heard_s"].tolist() == pytest.approx([1.0])


# Events that do not come


def test_a_call_on_an_open_microphone_keeps_its_complete_reply(monkeypatch: pytest.MonkeyPatch):
    async def script(agent: open_microphone.Agent) -> None:
        await agent.reply("r", 1.6, 0.4, at_once=True)
        await agent.peer.done("r")
        await agent.peer.socket.close()

    heard = open_microphone.play(monkeypatch, open_microphone.open_call({}, {}), script)
    kinds = [kind for kind in heard.events["kind"] if kind in ("turn_done", "turn_failed")]
    assert kinds == ["turn_done", "turn_failed"] and heard.failures["reason"].tolist() == ["closed 1000"]


def never(*events: tuple[str, dict[str, Any]]) -> Any:
    """Answers a turn with these events and nothing more."""

    async def script(peer: Peer) -> None:
        await greet(peer)
        await peer.expect("response.create")
        for kind, fields in events:
            await peer.say(kind, **fields)
        await peer.drain()

    return script


CREATED = ("response.created", {"response": {"id": "r"}})
BRIEF = spoken(reply_audio_s=0.01)
DELTA = ("response.output_audio.delta", {"delta": base64.b64encode(SOUND).decode()})


@pytest.mark.parametrize(
    ("events", "missing"),
    [
        ([], "response.created"),
        ([CREATED], "response.output_audio.delta"),
        ([CREATED, DELTA], "response.done"),
        ([DELTA, ("response.output_audio.done", {})], "response.done"),
    ],
)
def test_the_timeout_of_a_realtime_reply_names_the_missing_event(events: Any, missing: str):
    out = play(BRIEF, never(*events), {"turn_timeout_s": 0.3}, dialect="openai")
    assert out.calls[0].closed == 1000
    assert out.failures[["session", "turn", "reason"]].to_numpy().tolist() == [[0, 0, f"timeout: no {missing}"]]


@pytest.mark.parametrize(
    ("trace", "begun", "reason"),
    [
        (typed(), None, "timeout: no HTTP answer"),
        (typed(), [], "timeout: no token"),
        (typed(), [WORDS], "timeout: no finish reason and no [DONE]"),
        (BRIEF, [], "timeout: no audio"),
        (BRIEF, [SOUND], "timeout: no end of the audio"),
        (BRIEF, [b'{"error":"oh"}'], "error: oh"),
    ],
)
def test_the_timeout_of_an_http_answer_names_what_is_missing(trace: Trace, begun: list[bytes] | None, reason: str):
    async def answer(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if begun is not None:
            writer.write(HEAD % 200 + chunked(begun).removesuffix(b"0\r\n\r\n"))

    path = "/v1/audio/speech" if trace is BRIEF else "/v1"
    out = played(trace, lambda use: over_http(answer, use, path), {"turn_timeout_s": 0.3})
    assert out.failures["reason"].tolist() == [reason]


def test_the_timeout_of_speech_synthesis_over_a_websocket_names_the_missing_event():
    async def script(peer: Peer) -> None:
        await peer.expect("input.done")
        await peer.socket.send(SOUND)
        await peer.drain()

    out = play(BRIEF, script, {"turn_timeout_s": 0.3}, path="/v1/audio/speech/stream")
    assert out.failures["reason"].tolist() == ["timeout: no session.done"]


def test_a_session_that_is_never_confirmed_begins_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(base_endpoint, "UNCONFIRMED_S", 0.1)

    async def script(peer: Peer) -> None:
        await peer.say("session.created", session={"type": "realtime"})
        for response in "ab":
            await peer.expect("response.create")
            await reply(peer, response)
        await peer.drain()

    out = play(spoken(turns=2), script, dialect="openai")
    assert out.failures.empty and table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("unconfirmed") == [0.1] and len(out.values("connected")) == 1
    late = play(spoken(), script, dialect="rehearsal", connect_timeout_s=0.3)
    assert late.failures["reason"].tolist() == ["timeout: no session.updated"], "a server of ours confirms"


@pytest.mark.parametrize(
    ("status", "header", "expected"),
    [
        ("200 OK", f"Content-Length: {len(SOUND) + 1}", "closed"),
        ("201 Created", "Content-Type: audio/pcm", ""),
        ("204 No Content", "Content-Type: audio/pcm", "no output"),
        ("206 Partial Content", "Content-Type: audio/pcm", ""),
        ("206 Partial Content", f"Content-Range: bytes 0-{len(SOUND) - 1}/{len(SOUND)}", ""),
        ("206 Partial Content", f"Content-Range: bytes 0-{len(SOUND) - 1}/90000", "http 206, a part of the answer"),
        ("302 Found", "Location: /other", "http 302"),
        ("500 No", "Content-Encoding: br", "http 500"),
    ],
)
@calling
def test_a_body_is_read_by_its_status(status: str, header: str, expected: str):
    body = b"" if status.startswith("204") else SOUND
    size = "" if "Length" in header else f"Content-Length: {len(body)}\r\n"
    request = speech()
    request.answers(f"HTTP/1.1 {status}\r\n{header}\r\n{size}\r\n".encode() + body)
    request.ends()
    assert request.heard.outcome == expected
