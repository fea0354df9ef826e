"""Prompts beyond max_model_len: refused as by vLLM's API server, unless cutting is asked for."""

import pandas as pd
import pytest

from engines.server import ServerParams, shortened
from engines.turns.gateway import TOO_LONG
from harness.replays.worker.measure import refusals
from harness.request_tables.request_table import request_table
from tests.builders import turn, typed_turn
from tests.engines.replays import replay
from workloads.trace import Trace, Turn

TINY = {"deployment": "llama_tiny", "kv_pool_blocks": 64, "block_size": 16}
LENGTH = 63 * 16


def served(turns: list[Turn], engine: str = "vllm_omni_wo", **server):
    trace = Trace.from_turns(turns)
    done = replay(engine, {}, TINY | server, {}, trace, seed=0)
    table = request_table(done.events.to_pandas(), pd.DataFrame(trace.columns()))
    return done, table


@pytest.mark.parametrize(
    ("prompt", "reply", "status", "tokens"),
    [
        (LENGTH - 1, 1, "completed", 1),
        (LENGTH, 1, "failed", 0),
        (LENGTH - 10, 100, "completed", 10),
        (LENGTH - 100, LENGTH, "completed", 100),
        (LENGTH - 100, 100, "completed", 100),
        (10, LENGTH + 1, "failed", 0),
    ],
)
def test_it_is_refused_as_vllm_does_and_a_reply_gets_what_is_left(prompt, reply, status, tokens):
    done, table = served([typed_turn(input_tokens=prompt, output_tokens=reply)])
    assert table[["status", "generated_entry"]].fillna(0).values.tolist() == [[status, tokens]]
    counts = (done.counters.get("refused_prompts", 0), done.counters["truncated_replies"])
    assert counts == (int(status == "failed"), int(0 < tokens < reply))
    failures = refusals(done.log.event_pieces()).to_pylist()
    assert [each["reason"] for each in failures] == [TOO_LONG] * counts[0]


def test_a_refused_turn_ends_its_session_as_a_live_one_does_and_no_other():
    long = [typed_turn(index=i, input_tokens=400, output_tokens=10) for i in range(4)]
    done, table = served([*long, typed_turn(session=1, input_tokens=400, output_tokens=10)])
    assert table["status"].tolist() == ["completed"] * 2 + ["failed", "completed"]
    events = done.events.to_pandas()
    refused, failed = (events[events["kind"] == kind].iloc[0] for kind in ("refused", "turn_failed"))
    assert (refused["value"], refused["stage"]) == (3 * 400 + 2 * 10, "thinker")
    assert failed["t"] == pytest.approx(refused["t"] + 0.005)  # the answer travels


def test_truncate_prompts_cuts_a_prompt_to_leave_room_for_its_reply():
    long = typed_turn(input_tokens=3000, output_tokens=50)
    done, table = served([long], truncate_prompts=True)
    assert table["status"].tolist() == ["completed"] and done.counters["truncated_prompts"] == 1
    assert done.steps.to_pandas()["prefill_tokens"].sum() == LENGTH - 50


def test_a_spoken_reply_is_cut_with_its_text():
    server = {"deployment": "qwen3_omni_2gpu", "kv_pool_blocks": 64, "block_size": 16}
    said = turn(modality="text", audio_s=None, input_tokens=LENGTH - 30, output_tokens=60, reply_audio_s=16.0)
    _, table = served([said], "vllm_omni", **server)
    assert table[["status", "generated_entry", "generated_talker"]].values.tolist() == [["completed", 30, 100]]


def test_shortened_names_the_stages_whose_pool_limits_the_length():
    assert shortened(ServerParams.of(TINY)) == {"thinker": (64, LENGTH, 4096)}
    assert shortened(ServerParams.of({})) == {}
