"""Seconds outside the GPUs: the times of a reply show each of them."""

from pathlib import Path

import pandas as pd
import pytest

from tests.builders import turn, typed_turn
from tests.engines.replays import replay
from workloads.trace import Trace, Turn


def served(folder: Path, turns: list[Turn], like: str, **overheads: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Serve `turns` on a deployment with these overheads; returns events and steps."""
    path = folder / f"{len(list(folder.iterdir()))}.yaml"  # a deployment is read once
    lines = [f"  {name}: {{value: {value}, source: test}}" for name, value in overheads.items()]
    path.write_text("\n".join([f"like: {like}", "title: mine", "overheads:", *lines]) + "\n")
    server = {"deployment": str(path), "step_noise_cv": 0.0}
    run = replay("vllm_omni", {}, server, {}, Trace.from_turns(turns), 0)
    return run.events.to_pandas(), run.steps.to_pandas()


def test_every_packet_takes_the_time_of_its_delivery(tmp_path: Path) -> None:
    before, after = (
        served(tmp_path, [turn()], "qwen3_omni_2gpu", fetch_s=0.0, deliver_s=seconds)[0] for seconds in (0.0, 0.02)
    )
    late = [events.loc[events["kind"] == "audio", "t"].to_numpy() for events in (before, after)]
    assert late[1] - late[0] == pytest.approx(0.02)


@pytest.mark.parametrize(("chunk", "tokens"), [(1, 1), (2, 2), (5, 5), (60, 60), (61, 60)])
def test_the_talker_begins_with_the_first_chunk_of_text(tmp_path: Path, chunk: int, tokens: int) -> None:
    """A reply of 60 tokens."""
    _, steps = served(tmp_path, [turn()], "qwen3_omni_2gpu", fetch_s=0.0, hop_s=0.0, first_text_tokens=chunk)
    begin_s = steps.loc[steps["stage"] == "talker", "t_s"].min()
    thinker = steps.query("stage == 'thinker' and tokens > 0")
    assert ((thinker["t_s"] + thinker["dt_s"]).round(9) <= round(begin_s, 9)).sum() == tokens


def test_a_request_waits_for_the_process_that_sends_the_tokens_of_replies_in_progress(tmp_path: Path) -> None:
    """Three replies are in progress when the fourth request arrives: 3 x 10 ms."""
    together = [typed_turn(i, arrival_s=1.0 + i / 1000, output_tokens=400) for i in range(3)]
    turns = [*together, typed_turn(3, arrival_s=2.0)]
    events, _ = served(tmp_path, turns, "llama_8b_h100", preprocess_s_per_reply=0.01)
    sent, begun = (events[events["kind"] == kind].set_index("session")["t"] for kind in ("turn_end", "arrive"))
    waits = begun - sent
    assert (waits - waits[0]).to_dict() == pytest.approx({0: 0, 1: 0, 2: 0, 3: 0.03})
