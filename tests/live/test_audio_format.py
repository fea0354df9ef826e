"""Audio in the formats that servers state, and in base64 of all its forms."""

import base64
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.live.endpoints.dialects.audio_format import NOTHING, AudioFormat, stated
from harness.live.endpoints.dialects.events import Audio
from tests.live.test_dialects import PCM, delta, dialect, message

PCMU, PCMA = AudioFormat("u-law"), AudioFormat("A-law")


@pytest.mark.parametrize(
    ("about", "format"),
    [
        ({"output_audio_format": "pcm16", "input_audio_format": "g711_ulaw"}, AudioFormat("pcm")),
        ({"output_audio_format": "g711_ulaw"}, PCMU),
        ({"output_audio_format": "g711_alaw"}, PCMA),
        ({"output_audio_format": "pcm16", "output_audio_sample_rate": 48_000}, AudioFormat("pcm", 48_000)),
        ({"output_audio_format": "pcm16_16000hz"}, AudioFormat("pcm", 16_000)),
        ({"audio": {"output": {"format": {"type": "audio/pcmu"}}}}, PCMU),
        ({"audio": {"output": {"format": {"type": "audio/pcma", "rate": 16_000}}}}, AudioFormat("A-law", 16_000)),
        ({"audio": {"output": {"format": "pcm16", "sampleRate": "8000"}}}, AudioFormat("pcm", 8000)),
        ({"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}}, NOTHING),
        (
            {"audio": {"output": {"format": {"type": "audio/pcm", "rate": 24_000, "bits": 32}}}},
            AudioFormat("32-bit PCM", 24_000),
        ),
        ({"encoding": "LINEAR16", "sample_rate": 22_050.0}, AudioFormat("pcm", 22_050)),
        ("audio/pcm;rate=16000;channels=2", AudioFormat("pcm", 16_000, 2)),
        ("audio/x-mulaw", PCMU),
        ("ulaw_8000", AudioFormat("u-law", 8000)),
        ("audio/ogg; codecs=opus", AudioFormat("opus")),
        ("audio/mpeg", AudioFormat("mpeg")),
        ("application/octet-stream", NOTHING),
        (7, NOTHING),
    ],
)
def test_a_format_is_read_wherever_a_server_states_it(about: Any, format: AudioFormat):
    assert stated(about) == format
    rates = {"pcm": 2 * (format.rate or 24_000), "u-law": format.rate or 8000, "A-law": format.rate or 8000}
    assert format.unread or format.bytes_per_s == rates[format.encoding or "pcm"] * (format.channels or 1)


def test_the_format_of_a_wav_counts_before_the_event_the_response_and_the_session():
    read = dialect("openai").reader()

    def seconds(**fields: Any) -> float:
        event = read(delta("output_audio", **{"response_id": "r", "delta": PCM, **fields}))
        assert isinstance(event, Audio)
        return event.seconds

    assert seconds() == 0.02
    read(message("session.created", session={"output_audio_format": "g711_ulaw"}))
    assert seconds() == 0.12
    read(message("session.updated", session={"audio": {"output": {"format": {"type": "audio/pcm", "rate": 48_000}}}}))
    assert seconds() == 0.01
    read(message("response.created", response={"id": "r", "output_audio_format": "g711_alaw"}))
    assert seconds() == 0.12 and seconds(response_id="other") == 0.01
    assert seconds(sample_rate=16_000) == 0.06 and seconds(format={"type": "audio/pcm", "rate": 8000}) == 0.06
    header = b"RIFF\xff\xff\xff\xffWAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16_000, 2, 16)
    whole = base64.b64encode(header + b"data\xff\xff\xff\xff" + bytes(960)).decode()
    assert seconds(delta=whole) == seconds() == 0.06


def test_g711_is_decoded_by_the_tables_of_itu_t():
    codes = bytes([0x00, 0x7F, 0x80, 0xFF, 0xD5, 0x55])
    ulaw, alaw = (np.frombuffer(each.pcm(codes), "<i2").tolist() for each in (PCMU, PCMA))
    assert ulaw == [-32124, 0, 32124, 0, 716, -716] and alaw == [-5504, -848, 5504, 848, 8, -8]
    assert AudioFormat("pcm", None, 2).pcm(b"\1\2\3\4\5\6\7\0") == b"\1\2\5\6"


@given(st.binary(max_size=300), st.integers(1, 80), st.booleans(), st.booleans(), st.sampled_from(["\n", "\r\n", " "]))
def test_base64_is_measured_as_data_in_all_its_forms(pcm: bytes, line: int, web: bool, padded: bool, end: str):
    text = (base64.urlsafe_b64encode if web else base64.b64encode)(pcm).decode()
    text = text if padded else text.rstrip("=")
    for form in (text, "".join(text[i : i + line] + end for i in range(0, len(text), line)), text + text * padded):
        event = dialect("openai").reader()(message("response.output_audio.delta", delta=form))
        assert isinstance(event, Audio)
        assert event.size == len(event.bytes()) == len(pcm) * (2 if form == text + text and padded and pcm else 1)
