"""Ming-flash-omni 2.0: a thinker split over two GPUs, and a talker that speaks whole segments of text."""

from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.models import load_model
from engines.turns.reply import Progress, Reply
from harness.request_tables.request_table import request_table
from tests.engines.replays import run, voice_trace
from tests.engines.test_replay import check_events, events_of, frames_of, lead_s, packets_of, turn, turns_of
from workloads.trace import Trace

MING = {"deployment": "ming_flash_omni_8gpu"}
ENGINES = ["vllm_omni", "liveserve"]


def test_the_thinker_has_its_published_sizes():
    thinker = load_model("ming_flash_omni_2").stages["thinker"]
    embeddings = 2 * thinker.vocab * thinker.hidden
    active = thinker.layers * (thinker.dense_params + thinker.experts_per_token * thinker.expert_params)
    assert active == pytest.approx(4.8e9, rel=0.03)  # model card of Ling-flash-2.0, without embeddings
    assert active + embeddings == pytest.approx(6.1e9, rel=0.03)
    assert thinker.weight_bytes / 2 == pytest.approx(100e9, rel=0.07)
    assert thinker.kv_bytes_per_token == 65_536


@pytest.mark.parametrize("engine", ENGINES)
def test_golden_trace(engine: str):
    """A change of behaviour, ours or vLLM's, shows here first; look at why before pinning the new hash."""
    check_events(f"replay_ming_{engine}", run(voice_trace(), engine, server=MING))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_reply_is_spoken_segment_by_segment_and_in_full(engine: str):
    trace = voice_trace(p=0.0)
    events = events_of(run(trace, engine, {"c": 8}, MING))
    packets = packets_of(events)
    made = events.query("stage == 'talker'").groupby(["kind", "session", "turn"])["value"].sum()
    for key, each in turns_of(trace).items():
        frames, got = frames_of(each), packets[key]
        assert sum(got) == made["token", *key] == made["finish", *key] == frames
        assert len(got) == -(-each.output_tokens // 12)
        # Each whole segment has the frames of its 12 tokens, rounded by one at each end.
        assert all(abs(one - 12 * frames / each.output_tokens) <= 1 for one in got[:-1])


def test_liveserve_holds_segments_back_that_nobody_hears_yet():
    assert lead_s("vllm_omni", MING) > 50.0
    # A segment is let go whole, 3.4 s
    assert lead_s("liveserve", MING) == pytest.approx(10.6 + 3.4, abs=3.4)


def test_first_segments_do_not_wait_behind_audio_that_is_far_ahead():
    """With so little time at the talkers that queues are long, first come first served makes new callers wait."""
    trace = voice_trace(p=0.0, sessions=24, rate=50.0)
    server = {**MING, "scale": "talker.decoder_s_per_frame=3,talker.host_s=3"}

    def ttfp_s(engine: str) -> float:
        replayed = run(trace, engine, {"c": 24}, server)
        rows: Any = request_table(events_of(replayed), pd.DataFrame(trace.columns()))
        return rows["audio_ttfp_s"].quantile(0.9)

    assert ttfp_s("liveserve") < 0.8 * ttfp_s("vllm_omni")


@given(st.integers(1, 500), st.integers(1, 3000))
def test_frames_belong_to_the_text_that_they_voice(text: int, frames: int):
    reply = Reply(turn(), [1], 1, text, frames, 0, Progress(True, 4, text_tokens=text))
    ends = [reply.frames_up_to(tokens) for tokens in range(text + 1)]
    assert (ends[0], ends[-1]) == (0, frames)
    assert all(before <= after for before, after in pairwise(ends))
    assert all(reply.text_heard(end) >= tokens for tokens, end in enumerate(ends))


@pytest.mark.parametrize(("factor", "packets"), [(0.5, 10), (2, 3)])
def test_the_length_of_a_segment_can_be_swept(factor: float, packets: int):
    server = {**MING, "scale": f"segment_tokens={factor}"}
    events = events_of(run(Trace.from_turns([turn(output_tokens=60)]), server=server))
    assert (events["kind"] == "audio").sum() == packets
