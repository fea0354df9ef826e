"""The talker's prompt: all turns of the user, and with `talker_history` the frames of its replies too."""

from pathlib import Path

import pytest

from tests.builders import turn
from tests.engines.replays import run, voice_trace
from workloads.trace import Trace

HEADER = 9
"""Tokens in front of a reply (`talker_prompt_extra_tokens` of Qwen3-Omni)."""
TURN, FRAMES = 26 + 7, 100
"""Tokens of 2 s of speech with those of the chat template around it, and codec frames of 8 s."""


def prompts(**server: object) -> list[int]:
    """Tokens of its prompt that the talker computes in each of three turns."""
    trace = Trace.from_turns(turn(index=i, reply_audio_s=0.08 * FRAMES) for i in range(3))
    steps = run(trace, server={"deployment": "qwen3_omni_2gpu", **server}).steps.to_pandas()
    tokens = steps.loc[steps["stage"] == "talker", "prefill_tokens"]
    return tokens[tokens > 0].tolist()


@pytest.mark.parametrize(("most", "turns"), [(None, [1, 2, 3]), (2, [1, 2, 2])])
def test_the_prompt_has_all_or_the_last_turns_of_the_user_and_one_header(
    tmp_path: Path, most: int | None, turns: list[int]
):
    file = tmp_path / "own.yaml"
    limit = "" if most is None else f"talker_user_turns: {{value: {most}, source: chosen}}\n"
    file.write_text(f"like: qwen3_omni_2gpu\ntitle: own\n{limit}")
    assert prompts(deployment=str(file)) == [count * TURN + HEADER for count in turns]


def test_with_a_history_a_turn_computes_only_new_tokens():
    """Before the second turn 42 tokens and 99 frames have KV, as the last frame is never computed: 8 full blocks of 16.
    Before the third, 84 and 199: 17 blocks."""
    said = TURN + HEADER
    second, third = 2 * said + FRAMES - 8 * 16, 3 * said + 2 * FRAMES - 17 * 16
    assert prompts(talker_history=True) == [said, second, third]


def test_frames_beyond_an_interruption_are_truncated():
    """Blocks beyond an interruption are freed."""
    trace = voice_trace(sessions=5, p=1.0)
    history = run(trace, server={"talker_history": True})
    assert history.counters["talker.truncated_blocks"] > 0
    assert run(trace).counters.get("talker.truncated_blocks", 0) == 0


def test_its_pool_overflows_to_the_host_and_what_is_needed_next_comes_back_early():
    trace = voice_trace(sessions=6, turns=3.0, p=0.0)
    server = {"talker_history": True, "talker_pool_blocks": 140}
    counters = run(trace, "liveserve", server=server).counters
    assert counters["talker.evict_blocks"] > 0
    assert counters["talker.preload_issued"] > 0
    lru = run(trace, "liveserve", server=server, preload=False, eviction="off").counters
    assert "talker.preload_issued" not in lru
