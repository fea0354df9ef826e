"""Seconds outside the GPUs: what one reply shows of each."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.builders import turn, typed_turn
from tests.engines.replays import replay
from workloads.trace import Trace

Served = Callable[..., tuple[pd.DataFrame, pd.DataFrame]]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """Serves one spoken turn. Returns events and steps. Keywords: overheads."""

    def served(**overheads: float) -> tuple[pd.DataFrame, pd.DataFrame]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"  # a deployment is read once
        lines = [f"  {name}: {{value: {value}, source: test}}" for name, value in overheads.items()]
        path.write_text("\n".join(["like: qwen3_omni_2gpu", "title: mine", "overheads:", *lines]) + "\n")
        server = {"deployment": str(path), "step_noise_cv": 0.0}
        run = replay("vllm_omni", {}, server, {}, Trace.from_turns([turn()]), 0)
        return run.events.to_pandas(), run.steps.to_pandas()

    return served


def test_every_packet_takes_the_time_of_its_delivery(served: Served) -> None:
    before, after = (served(fetch_s=0.0, deliver_s=seconds)[0] for seconds in (0.0, 0.02))
    late = [events.loc[events["kind"] == "audio", "t"].to_numpy() for events in (before, after)]
    assert late[1] - late[0] == pytest.approx(0.02)


def test_the_talker_begins_with_the_first_chunk_of_text(served: Served) -> None:
    for tokens, chunk in ((1, 1), (2, 2), (5, 5), (60, 1000)):  # a reply of 60 tokens
        _, steps = served(fetch_s=0.0, hop_s=0.0, first_text_tokens=chunk)
        begin_s = steps.loc[steps["stage"] == "talker", "t_s"].min()
        thinker = steps.query("stage == 'thinker' and tokens > 0")
        assert ((thinker["t_s"] + thinker["dt_s"]).round(9) <= round(begin_s, 9)).sum() == tokens


def test_a_request_waits_for_the_process_that_sends_the_tokens_of_replies_in_progress(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "like: llama_8b_h100\ntitle: mine\noverheads:\n  preprocess_s_per_reply: {value: 0.01, source: test}\n"
    )
    together = [typed_turn(i, arrival_s=1.0 + i / 1000, output_tokens=400) for i in range(3)]
    trace = Trace.from_turns([*together, typed_turn(3, arrival_s=2.0)])
    events = replay("vllm_omni", {}, {"deployment": str(path)}, {}, trace, 0).events.to_pandas()
    sent, begun = (events[events["kind"] == kind].set_index("session")["t"] for kind in ("turn_end", "arrive"))
    waits = begun - sent
    assert (waits - waits[0]).to_dict() == pytest.approx({0: 0, 1: 0, 2: 0, 3: 0.03})
