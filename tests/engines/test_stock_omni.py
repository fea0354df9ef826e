"""Our parts for vLLM-Omni, without it: leads in frames, a GPU that processes share, lengths, signals, parameters."""

import time
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from engines.models import load_model
from engines.server import ServerParams, check_runtime
from engines.stock.omni.duplex_signals import SessionSignals
from engines.stock.omni.lengths import Lengths
from engines.stock.omni.omni_params import OmniParams
from engines.stock.omni.shared_gpu import SharedGpu
from engines.stock.scheduler import Scheduler
from engines.turns.signals import Signal
from tests.engines.stage import step
from tests.engines.stock_scheduler import add, make, signal
from workloads.errors import UserError

HELD_BY_LEAD = {"engine_params": {"thinker_alpha": 1.0, "pacing": "always"}}


@pytest.mark.usefixtures("vllm_s_own_engine_process")
@pytest.mark.parametrize(("per_frame", "cap_s", "written"), [(True, 10.6, 200), (True, 1.0, 200), (False, 10.6, 46)])
def test_text_is_never_held_that_the_talker_needs_for_its_next_chunk(per_frame: bool, cap_s: float, written: int):
    """A talker that takes a token with each frame, and hands over 4 frames and then 25 at a time."""
    params = {**HELD_BY_LEAD["engine_params"], "lead_cap_s": cap_s}
    scheduler = make(Scheduler, {"token_per_frame": per_frame, "engine_params": params})
    request = add(scheduler, "a", output=200, session="a")
    signal(scheduler, "turn_committed", "a", turn=0)
    sent = 0
    for _ in range(400):
        step(scheduler)
        chunk = 25 if sent else 4
        if request.num_output_tokens > sent + chunk:  # it begins with the second token
            sent += chunk
            signal(scheduler, "audio_sent", "a", turn=0, seconds=chunk * 0.08)
            signal(scheduler, "playback_ack", "a", turn=0, seconds=sent * 0.08)
    assert request.num_output_tokens == written


def _take_steps(path: Path, ends: Any) -> None:
    gpu = SharedGpu(path)
    for _ in range(20):
        ends.put(gpu.ends_s(time.monotonic(), 0.5))


def test_steps_of_processes_on_one_gpu_follow_one_another(tmp_path: Path):
    context = get_context("fork")
    ends: Any = context.SimpleQueue()
    stages = [context.Process(target=_take_steps, args=(tmp_path / "gpu0", ends)) for _ in range(2)]
    for stage in stages:
        stage.start()
    seen = sorted(ends.get() for _ in range(40))
    for stage in stages:
        stage.join()
    assert [after - before for before, after in pairwise(seen)] == pytest.approx([0.5] * 39)


def test_a_reply_has_the_same_length_at_every_stage_and_a_frame_a_token():
    model = load_model("qwen3_omni_30b_a3b")
    thinker, talker = Lengths(0, model), Lengths(0, model)
    lengths = [thinker.of(f"r{i}") for i in range(50)]
    assert lengths == [talker.of(f"r{i}") for i in range(50)]
    assert len(set(lengths)) > 30 and all(frames >= text >= 1 for text, frames in lengths)


def test_a_client_sets_the_lengths_of_its_session_s_next_reply():
    lengths = Lengths(0, load_model("qwen3_omni_30b_a3b"))
    lengths.tell("caller", 20, 6.0)
    assert lengths.of("first", "caller") == (20, 75)
    lengths.tell("caller", 30, None)
    assert lengths.of("second", "caller") == (30, 30)
    assert lengths.of("first", "caller") == (20, 75)


def test_a_text_to_speak_has_the_frames_of_its_tokens():
    lengths = Lengths(0, load_model("qwen3_tts_1_7b"))
    lengths.speak("text", "word" * 20)
    assert lengths.of("text") == (20, 70)


class Command:
    """What a session's client says."""

    def __init__(self, wire_type: str, **fields: Any) -> None:
        self.wire_type, self.final, self.event_id = wire_type, True, None
        vars(self).update(fields)


def test_a_duplex_session_sends_signals_of_turns_and_playback():
    told: list[tuple[Any, ...]] = []
    session = SessionSignals("caller", lambda *call: told.append(call))
    for _ in range(3):
        session.command(Command("input_audio_buffer.append"))
    session.command(Command("input_audio_buffer.commit", event_id='{"output_tokens": 20, "reply_audio_s": 2.3}'))
    session.event({"type": "response.output_audio.delta", "audio_duration_ms": 2300})
    session.event({"type": "response.done", "status": "completed"})
    session.command(Command("playback.ack", played_ms=1500))
    session.command(Command("playback.ack", played_ms=2300))
    session.command(Command("response.cancel"))
    lengths = [call[1:] for call in told if call[0] == "rehearsal_lengths"]
    signals = [call[1] for call in told if call[0] == "rehearsal_signal"]
    assert lengths == [("caller", 20, 2.3)]
    assert [(s["verb"], s.get("seconds"), s.get("playing")) for s in signals] == [
        ("speech_start", None, None),
        ("turn_committed", None, None),
        ("audio_sent", 2.3, None),
        ("playback_ack", 1.5, True),
        ("playback_ack", 2.3, False),
        ("playback_done", None, None),
        ("barge_in", None, None),
    ]
    assert all(Signal.of(values) for values in signals)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"deployment": "llama_8b_1gpu"}, "serves Qwen3-Omni's thinker, talker and vocoder, or Qwen3-TTS's"),
        ({"deployment": "qwen3_tts_2gpu", "gpu": True}, "only Qwen3-Omni runs on a GPU here"),
        ({"deployment": "qwen3_tts_2gpu", "engine": "conserve"}, "engine conserve keeps vLLM's own order"),
        ({"deployment": "qwen3_omni_8gpu"}, "models a stage on one GPU"),
        ({"deployment": "qwen3_omni_2gpu_may"}, "sends text and frames in chunks, and this one sends them whole"),
    ],
)
def test_what_vllm_omni_cannot_serve_is_refused_before_anything_starts(values: dict[str, Any], said: str):
    with pytest.raises(UserError, match=said):
        OmniParams.model_validate(values).check()


@pytest.mark.parametrize(
    ("values", "device", "said"),
    [
        ({"runtime": "vllm-omni"}, "virtual", "which no virtual time drives; give --device sockets"),
        ({"runtime": "vllm-omni", "first_chunk_frames": 1}, "sockets", "first_chunk_frames=1 is not for runtime"),
        ({"active_stream_window": 4}, "sockets", "active_stream_window is of runtime vllm-omni"),
        ({"slower": 4}, "virtual", "slower=4 is for a clock on the wall; leave slower out on device virtual"),
    ],
)
def test_a_setting_of_another_runtime_is_refused(values: dict[str, Any], device: str, said: str):
    with pytest.raises(UserError, match=said):
        check_runtime(ServerParams.model_validate(values), device)
