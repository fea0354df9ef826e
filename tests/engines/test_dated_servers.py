"""Releases of the server by month: when the talker has its text, and the cost of handing a prompt over."""

from pathlib import Path

import pytest

from engines.deployments import load_deployment
from tests.builders import turn
from tests.engines.replays import run
from workloads.trace import Trace

TEXT, FRAMES = 40, 100
AUGUST, JULY, JUNE, MAY, APRIL = (f"qwen3_omni_2gpu{month}" for month in ("", "_july", "_june", "_may", "_april"))


def replayed(callers: int, deployment: str):
    """`callers` send a prompt at once; each reply has 40 text tokens and 100 frames of speech."""
    said = {"modality": "text", "audio_s": None, "input_tokens": 50, "output_tokens": TEXT}
    turns = [turn(session=each, reply_audio_s=0.08 * FRAMES, **said) for each in range(callers)]
    done = run(Trace.from_turns(turns), server={"deployment": deployment}, client={"playback": "none"})
    return done.events.to_pandas().astype({"kind": str, "stage": str})


def steps_to_the_end_of_text(events) -> float:
    """Steps of the talker from a request's first frame until its text has ended, on average a frame."""
    frames = events.query("stage == 'talker' and kind == 'token'")
    first, last = frames.loc[frames["session"] == 0, "t"].iloc[[0, TEXT - 1]]
    return frames.loc[(first < frames["t"]) & (frames["t"] <= last), "t"].nunique() / (TEXT - 1)


@pytest.mark.parametrize(("deployment", "steps"), [(APRIL, 1.0), (JUNE, 2.0), (AUGUST, 2.0)])
def test_a_request_sits_out_a_step_while_its_text_is_fetched(deployment: str, steps: float):
    """One caller takes every step. With six, since June, a request takes every second step until its text has ended."""
    assert steps_to_the_end_of_text(replayed(1, deployment)) == 1
    assert steps_to_the_end_of_text(replayed(6, deployment)) == pytest.approx(steps, abs=0.15)


def test_without_async_chunks_a_stage_starts_when_the_one_before_has_ended():
    events = replayed(2, MAY).query("session == 0")
    text, frames, sound = (
        events.query("stage == @stage and kind == 'token'")["t"] for stage in ("thinker", "talker", "vocoder")
    )
    assert (len(text), len(frames), len(sound)) == (TEXT, FRAMES, 1)
    assert text.max() < frames.min() and frames.max() < sound.min()


def test_a_deployment_like_another_has_its_release_its_own_chunks_and_no_known_error(tmp_path: Path):
    """Its first chunk is as long as a setting says."""
    path = tmp_path / "mine.yaml"
    chunks = {"initial_codec_chunk_frames": 5, "codec_chunk_frames": 10, "codec_left_context_frames": 4}
    stated = "".join(f"  {name}: {{value: {frames}, source: mine}}\n" for name, frames in chunks.items())
    path.write_text(f"like: {AUGUST}\ntitle: mine\ncodec:\n{stated}")
    mine = load_deployment(str(path))
    assert (mine.title, mine.known_error) == ("mine; vLLM-Omni 0.26.0, August 2026", "")
    for more, first in ({}, 5), ({"first_chunk_frames": 3}, 3):
        spoken = Trace.from_turns([turn(reply_audio_s=0.08 * (first + 22))])
        steps = run(spoken, server={"deployment": str(path), **more}).steps.to_pandas()
        decoded = steps.query("stage == 'vocoder' and tokens > 0")["tokens"].tolist()
        assert decoded == [first, min(first, 4) + 10, 14, 6]
