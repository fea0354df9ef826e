"""Our dialects against other projects' own protocol code, where it is installed; no server and no model of theirs.

It comes from wheels without their dependencies: `pip install --no-deps NAME`. Their packages load models and kernels as
they are imported; here the packages on the way to a module are empty, and only the module, and what it asks for, is
theirs.
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
from websockets.exceptions import ConnectionClosed

from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.dialects.dialect import Cut
from harness.live.endpoints.dialects.events import Audio, Done, Failure, SpeechStarted, Started, Text
from harness.live.endpoints.target import TargetParams
from tests.live.scripted import PIECES, Peer, play, spoken, table

starlette = pytest.importorskip("starlette.websockets", reason="their servers are made with it")

URL = "ws://localhost:8000/v1/realtime"
TURN = spoken().sessions[0].turns[0]
CUT = Cut("resp_1", "item_1", 1.2345)
SERVE = "sglang_omni.serve", "sglang_omni.serve.realtime"
EMPTY = *SERVE, "sglang_omni.audio", "sglang_omni.profiler"
PCM = bytes(3840)
"""80 ms at 24 kHz."""


def own_code(distribution: str, module: str, *empty: str) -> Any:
    """`module` of a package that is installed, with packages `empty` on the way to it; skips where it is not."""
    spec = importlib.machinery.PathFinder.find_spec(distribution)
    if spec is None or spec.origin is None:
        pytest.skip(f"needs pip install --no-deps {distribution.replace('_', '-')}")
    root = Path(spec.origin).parent
    for name in (distribution, *empty):
        if name not in sys.modules:
            package = types.ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
            sys.modules[name] = package
    return importlib.import_module(module)


def dialect(name: str, **target: Any):
    return dialect_of(TargetParams.model_validate({"url": URL, "dialect": name, **target}))


class Starlette:
    """A peer's socket as a server of theirs has it."""

    application_state = client_state = starlette.WebSocketState.CONNECTED

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def receive(self) -> dict[str, Any]:
        try:
            text = await self._peer.socket.recv()
        except ConnectionClosed:
            return {"type": "websocket.disconnect", "code": 1000}
        self._peer.call.received.append(json.loads(text))
        return {"type": "websocket.receive", "text": text}

    async def send_text(self, text: str) -> None:
        await self._peer.socket.send(text)

    async def send_json(self, event: dict[str, Any]) -> None:
        await self.send_text(json.dumps(event))

    async def close(self, *_: Any, **__: Any) -> None:
        await self._peer.socket.close()


def sent(name: str, **target: Any) -> Iterator[dict[str, Any]]:
    """Everything that a dialect may say in a session of spoken turns."""
    spoken = dialect(name, **target)
    write, piece = spoken.writer(), spoken.append(bytes(640))
    interruption = spoken.interrupt(CUT)
    assert not isinstance(interruption, str)
    messages = [*spoken.hello(), *spoken.begin_of_turn(), piece, *spoken.end_of_turn(TURN)]
    for message in [*messages, *spoken.ack(CUT, playing=True), *interruption]:
        yield json.loads(write(message) if write else message)


def test_vllm_omni_s_own_parser_takes_what_we_say():
    theirs = own_code(
        "vllm_omni", "vllm_omni.engine.duplex.realtime_commands", "vllm_omni.engine", "vllm_omni.engine.duplex"
    )
    commands = [theirs.translate_realtime_command(event) for event in sent("vllm_omni", model="m")]
    names = [type(command).__name__ for command in commands]
    assert names == ["UpdateSession", "AppendAudio", "Commit", "AckPlayback", "AckPlayback", "CancelResponse"]
    append, commit, ack = commands[1], commands[2], commands[3]
    assert (len(append.audio) // 4, append.format, append.sample_rate_hz) == (320, "pcm_f32le", 16_000)
    assert commit.final and commit.create_response
    assert (ack.played_ms, ack.response_id, ack.item_id) == (1234, "resp_1", "item_1")


def test_what_vllm_omni_s_own_events_mean():
    theirs = own_code("vllm_omni", "vllm_omni.protocol.realtime.events")
    ours = dialect("vllm_omni")
    about = {"response_id": "r", "item_id": "i"}

    def read(event: Any):
        return ours.reader()(json.dumps(event.to_realtime()).encode())

    assert read(theirs.ResponseCreated(response={"id": "r"})) == Started("r")
    audio = read(theirs.AudioDelta(**about, delta="AAAA"))
    assert isinstance(audio, Audio) and (audio.response, audio.size) == ("r", 3)
    assert read(theirs.TranscriptDelta(**about, delta="word")) == Text("r", 1, 4, "i")
    assert read(theirs.ResponseDone(response={"id": "r", "status": "cancelled"})) == Done("r", "cancelled")
    assert read(theirs.SpeechStarted()) == SpeechStarted()
    assert isinstance(read(theirs.ErrorEvent(code="c", message="m")), Failure)


async def duplex(peer: Peer) -> None:
    """SGLang-Omni's own negotiated session, whose model answers the first silence after speech."""
    theirs = own_code("sglang_omni", "sglang_omni.serve.realtime.protocol", *EMPTY)
    runtime = own_code("sglang_omni", "sglang_omni.serve.realtime.runtime", *EMPTY)
    types = own_code("sglang_omni", "sglang_omni.serve.realtime.types", *EMPTY)
    output = own_code("sglang_omni", "sglang_omni.serve.realtime.output", *EMPTY)

    class Model(types.InteractionAdapter):
        replies = 0
        heard = False

        async def open(self, session_id: str, config: Any, emit: Any) -> None:
            self.emit = emit

        async def process(self, unit: Any) -> int:
            speech = any(unit.pcm)
            if self.heard and not speech:
                reply, item = f"resp_{self.replies}", f"item_{self.replies}"
                self.replies += 1
                await self.emit(output.ResponseStarted(reply))
                for _ in range(3):
                    await self.emit(output.TextDelta(reply, item, "word "))
                    await self.emit(output.AudioDelta(reply, item, PCM))
                await self.emit(output.ResponseFinished(reply, item, "word word word", True, "completed", "stop"))
            self.heard = speech
            return unit.real_samples

        async def close(self) -> None:
            pass

    able = types.Capabilities(
        output_modalities=("audio", "text"), output_sample_rate_hz=24_000, native_unit_ms=80, tail_policy="pad"
    )
    session = runtime.SessionRuntime("m", able, Model, types.RuntimeLimits())
    await theirs.SharedRealtimeSession(Starlette(peer), session).run()


def test_a_call_with_sglang_omni_s_own_negotiated_session():
    own_code("sglang_omni", "sglang_omni.serve.realtime.protocol", *EMPTY)
    out = play(spoken(turns=2), duplex, dialect="sglang_duplex", turn_detection="server")
    assert out.failures.empty, out.failures
    assert table(out)["status"].tolist() == ["completed"] * 2
    assert out.values("audio") == [0.08] * 6, "at the rate that was granted"
    [call] = out.calls
    numbers = [event["sglang"]["seq"] for event in call.of("input_audio_buffer.append")]
    assert numbers == list(range(len(numbers))) and len(numbers) > 2 * PIECES
