"""Session updates: each field that a client sets is confirmed with its value, or rejected by name."""

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.endpoint.protocol import Refusal
from engines.endpoint.served_fields import BETA, MODEL_FIELDS
from engines.endpoint.settings import KEPT, Settings
from engines.endpoint.turn_detection import ServerVad
from tests.live.strategies import some

BEFORE = Settings(True, "tiny", "audio", vad=ServerVad())

SCALAR = st.none() | st.booleans() | st.integers(-2, 2000) | st.sampled_from([0.5, 1.0, 1e308, "pcm16", "text", "inf"])
FORMAT = some(type=st.sampled_from(["audio/pcm", "audio/pcmu"]), rate=st.sampled_from([24_000, 16_000, 8_000]))
DETECTION = some(
    type=st.sampled_from(["server_vad", "semantic_vad"]),
    threshold=st.sampled_from([0.2, 0.9, 3.0]),
    silence_duration_ms=st.sampled_from([200, 1e308, 20_000, None]),
    eagerness=st.sampled_from(["low", "soon"]),
    idle_timeout_ms=st.sampled_from([None, 5_000]),
    create_response=st.booleans(),
)
INPUT = some(
    format=FORMAT | SCALAR,
    turn_detection=st.none() | DETECTION,
    noise_reduction=st.none() | st.just({"type": "near_field"}),
    transcription=st.none() | st.just({"model": "whisper-1"}),
)
OUTPUT = some(format=FORMAT, voice=st.sampled_from(["marin", None]), speed=st.sampled_from([1.0, 1.5]))
SESSION = some(
    type=st.sampled_from(["realtime", "transcription"]),
    model=st.just("other"),
    instructions=st.just("be brief"),
    output_modalities=st.lists(st.sampled_from(["audio", "text"]), max_size=2),
    max_output_tokens=st.sampled_from([0, 12, "inf", None]),
    audio=some(input=INPUT, output=OUTPUT, turn_detection=SCALAR),
    **{name: SCALAR | DETECTION for name in BETA},
    anything=SCALAR,
)


def leaves(value: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The values of an object that are no objects, by their path."""
    if isinstance(value, dict):
        return {path: leaf for name, each in value.items() for path, leaf in leaves(each, (*at, name)).items()}
    return {at: value}


@given(SESSION)
@settings(suppress_health_check=[HealthCheck.too_slow])  # which is of the machine
def test_each_field_of_an_update_is_confirmed_or_the_update_is_rejected_by_name(session: dict[str, Any]) -> None:
    try:
        after = BEFORE.updated(session)
    except Refusal as refusal:
        assert (refusal.param or "").split(".")[0] in ("session", "output_modalities", "max_output_tokens")
        return
    stated = leaves(msgspec.to_builtins(after.session_object("sess_0", {})))
    for path, value in leaves(session).items():
        if path[0] in MODEL_FIELDS or (value is None and path[-1] != "turn_detection"):
            continue
        assert stated[path] == value, path


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("turn_detection", None, ("beta form", "set session.audio.input.turn_detection")),
        ("modalities", ["text"], ("beta form", "set session.output_modalities")),
        ("input_audio_transcription", None, ("beta form", "leave it out")),
        ("audio.input.transcription", {"model": "whisper-1"}, ("is not served", "format, turn_detection")),
        ("audio.input.turn_detection.idle_timeout_ms", 6000, ("is not served", "silence_duration_ms")),
        ("audio.turn_detection", 3, ("input, output",)),
        ("audio.output.speed", 1.5, ("1.5",)),
    ],
)
def test_a_rejected_field_is_named_with_what_is_served(field: str, value: Any, words: tuple[str, ...]) -> None:
    session = value
    for name in reversed(field.split(".")):
        session = {name: session}
    with pytest.raises(Refusal) as excinfo:
        BEFORE.updated(session)
    message = str(excinfo.value)
    assert excinfo.value.param == f"session.{field}" and message.endswith(KEPT)
    assert [word for word in words if word not in message] == [], message
