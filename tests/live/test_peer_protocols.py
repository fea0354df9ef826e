"""Our vLLM-Omni dialect against the protocol code of vLLM-Omni, without its server and its models.

The wheel is installed without its dependencies: `pip install --no-deps vllm-omni`. Its packages load models and kernels
when they are imported, so the packages above the tested module are empty here.
"""

import importlib
import importlib.machinery
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.dialects.dialect import Cut, Dialect
from harness.live.endpoints.dialects.events import Audio, Done, Event, Failure, SpeechStarted, Started, Text
from harness.live.endpoints.target import TargetParams
from tests.live.scripted import spoken

URL = "ws://localhost:8000/v1/realtime"
CUT = Cut("resp_1", "item_1", 1.2345)


def own_code(module: str, *empty: str) -> Any:
    """`module` of their package, with packages `empty` on the way to it; skips where it is not installed."""
    spec = importlib.machinery.PathFinder.find_spec("vllm_omni")
    if spec is None or spec.origin is None:
        pytest.skip("needs pip install --no-deps vllm-omni")
    root = Path(spec.origin).parent
    for name in ("vllm_omni", *empty):
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
            sys.modules[name] = package
    return importlib.import_module(module)


@pytest.fixture
def ours() -> Dialect:
    return dialect_of(TargetParams.model_validate({"url": URL, "dialect": "vllm_omni", "model": "m"}))


def sent(ours: Dialect) -> Iterator[dict[str, Any]]:
    """Everything that a dialect may say in a session of spoken turns."""
    interruption = ours.interrupt(CUT)
    assert not isinstance(interruption, str)
    turn = ours.end_of_turn(spoken().sessions[0].turns[0])
    messages = [*ours.hello(), *ours.begin_of_turn(), ours.append(bytes(640)), *turn]
    for message in [*messages, *ours.ack(CUT, playing=True), *interruption]:
        yield json.loads(message)


def test_vllm_omni_s_parser_reads_our_messages(ours: Dialect):
    engine = "vllm_omni.engine"
    theirs = own_code(f"{engine}.duplex.realtime_commands", engine, f"{engine}.duplex")
    commands = [theirs.translate_realtime_command(event) for event in sent(ours)]
    names = [type(command).__name__ for command in commands]
    assert names == ["UpdateSession", "AppendAudio", "Commit", "AckPlayback", "AckPlayback", "CancelResponse"]
    _, append, commit, ack, *_ = commands
    assert (len(append.audio) // 4, append.format, append.sample_rate_hz) == (320, "pcm_f32le", 16_000)
    assert commit.final and commit.create_response
    assert (ack.played_ms, ack.response_id, ack.item_id) == (1234, "resp_1", "item_1")


def test_our_reader_reads_vllm_omni_s_events(ours: Dialect):
    theirs = own_code("vllm_omni.protocol.realtime.events")
    about = {"response_id": "r", "item_id": "i"}

    def read(event: Any) -> Event:
        return ours.reader()(json.dumps(event.to_realtime()).encode())

    assert read(theirs.ResponseCreated(response={"id": "r"})) == Started("r")
    audio = read(theirs.AudioDelta(**about, delta="AAAA"))
    assert isinstance(audio, Audio) and (audio.response, audio.size) == ("r", 3)
    assert read(theirs.TranscriptDelta(**about, delta="word")) == Text("r", 1, 4, "i")
    assert read(theirs.ResponseDone(response={"id": "r", "status": "cancelled"})) == Done("r", "cancelled")
    assert read(theirs.SpeechStarted()) == SpeechStarted()
    assert isinstance(read(theirs.ErrorEvent(code="c", message="m")), Failure)
