"""A deployment without a thinker: the talker gets the text whole, with the request."""

from typing import Any

import pytest

from engines.deployments import load_deployment
from engines.deployments.available import check_said
from engines.registry import ENGINES
from engines.server import ServerParams, resolve
from harness.client.client_params import ClientParams
from harness.replays.kinds import kind_of
from tests.builders import turn, typed_turn
from tests.engines.replays import measured, replay, run
from workloads.errors import UserError
from workloads.trace import Trace, Turn

TTS = {"deployment": "qwen3_tts_2gpu"}
TEXT, FRAMES, FRAME_S = 20, 60, 0.08
TURN: dict[str, Any] = {"modality": "text", "audio_s": None, "output_tokens": TEXT, "reply_audio_s": FRAMES * FRAME_S}
CLONED = turn(**TURN, reference_s=5.0)
MODEL = load_deployment("qwen3_tts_2gpu").model


def texts(users: int, turns: int = 1, **more: Any) -> Trace:
    """`users` users at once."""
    each = [turn(session=user, index=k, **TURN | more) for user in range(users) for k in range(turns)]
    return Trace.from_turns(each)


def events_of(trace: Trace, engine: str = "vllm_omni_wo", **client: Any):
    done = run(trace, engine, server=TTS, client=client)
    return done, done.events.to_pandas().astype({"kind": str, "stage": str})


@pytest.mark.parametrize(
    ("server", "fields", "tokens"),
    [
        (TTS, {"reply_audio_s": 150 * FRAME_S}, [1, 26, 51, 76, 97, 97, 96]),
        ({"deployment": "qwen3_tts_1gpu"}, {"reference_s": 8.0}, [73, 25, 25, 9]),
    ],
    ids=["the frames that its window reaches", "with state a recording once and no frame again"],
)
def test_the_vocoder_decodes_a_chunk_with(server: dict[str, str], fields: dict[str, Any], tokens: list[int]):
    done = run(texts(1, **fields), server=server, client={"playback": "none"})
    chunks = done.steps.to_pandas().query("stage == 'vocoder' and tokens > 0")["tokens"]
    assert chunks.tolist() == tokens


BASE = "qwen3_tts_base_2gpu"
RECORDED = 100
"""Frames of a recording of 8 s."""


def test_a_cloned_voice_is_encoded_once_and_its_last_72_frames_are_decoded_with_each_chunk():
    """Two users, one after the other, clone the voice of the same recording."""
    turns = [turn(session=k, arrival_s=30.0 * k, **TURN, reference_s=RECORDED * FRAME_S, voice=1) for k in range(2)]
    steps = run(Trace.from_turns(turns), server={"deployment": BASE, "step_noise_cv": 0.0}).steps.to_pandas()
    prompts = steps.query("prefill_tokens > 0 and stage == 'talker'")
    assert prompts["prefill_tokens"].tolist() == [RECORDED + MODEL.talker_prompt_extra_tokens] * 2
    first_s, second_s = prompts["dt_s"]
    assert first_s - second_s == pytest.approx(load_deployment(BASE).stages["talker"].decoder.encoder_s)
    decoded = steps.query("stage == 'vocoder' and tokens > 0")["tokens"]
    # The recording's frames, those of the reply's earlier chunks, and the chunk's own: 60 frames as 1, 25, 25, 9
    assert decoded.tolist() == [72 + 0 + 1, 72 + 1 + 25, 72 + 26 + 25, 72 + 51 + 9] * 2


def test_a_talker_has_audio_metrics_and_no_text_metrics():
    trace = texts(4)
    requests, metrics = measured(trace, run(trace, server=TTS), "vllm_omni", TTS)
    assert requests["generated_talker"].tolist() == [FRAMES + 1] * 4
    assert requests["generated_entry"].isna().all() and requests["ttft_s"].isna().all()
    assert metrics["audio_ttfp_p50"].value > 0 and metrics["kv_occupancy_talker_mean"].value > 0
    assert metrics["ttft_p50"].value is None


WHOLE = [name for name in sorted(ENGINES) if ENGINES[name].kind == "turns" and name != "distserve_p"]
"""Systems for turns that do not divide their replicas."""


@pytest.mark.parametrize("engine", WHOLE)
def test_every_system_speaks_and_stops_when_it_is_interrupted(engine: str):
    trace = texts(12, turns=2, barge_in_after_s=1.0)
    done = replay(engine, {}, TTS, {}, trace, seed=7)
    events = done.events.to_pandas().astype({"kind": str, "stage": str})
    heard = events.query("kind == 'heard'")
    assert len(heard) == 24 and set(heard["stage"]) == {"talker"} and heard["value"].between(1, 13).all()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (typed_turn(), "only speaks, but the workload has replies in text; set reply=speech"),
        (CLONED, "clones no voice, .* leave reference_s out, or set deployment to one of: qwen3_tts_1gpu"),
        (turn(), "takes text, but the workload's users speak; set modality=text"),
    ],
)
def test_a_workload_that_it_cannot_serve_is_refused(asked: Turn, says: str):
    trace = Trace.from_turns([asked])
    kind = kind_of(trace)
    with pytest.raises(UserError, match=says):
        kind.check(ENGINES["vllm_omni"].read({}), ClientParams.model_validate({}), resolve(ServerParams.of(TTS)), trace)


def test_recordings_of_voices_are_for_replays():
    with pytest.raises(UserError, match="reference_s is for replays, and clients of device sockets send no"):
        check_said("sockets", load_deployment("qwen3_tts_1gpu"), Trace.from_turns([CLONED]))


@pytest.mark.parametrize(
    ("engine", "given", "says"),
    [
        ("vllm_omni_wo", {"prefill": 1, "decode": 1}, "prefill=.* deployment 'qwen3_tts_2gpu' only speaks"),
        ("vllm_omni_wo", {"window": 64}, "window=.* deployment 'qwen3_tts_2gpu' only speaks"),
        ("vllm_omni_wo", {"system_tokens": 9}, "system_tokens=.* deployment 'qwen3_tts_2gpu' only speaks"),
        ("metronome", {}, "'qwen3_tts_2gpu' only speaks, and calls are answered in text"),
    ],
)
def test_a_system_or_setting_for_conversations_is_refused(engine: str, given: dict[str, int], says: str):
    system, deployment = ENGINES[engine], resolve(ServerParams.of(TTS))
    with pytest.raises(UserError, match=says):
        system.check_deployment(system.read(given), deployment)
    with pytest.raises(UserError, match="has one that speaks each text by itself"):
        resolve(ServerParams.of(TTS | {"talker_history": True}))
