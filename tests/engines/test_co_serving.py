"""Users and a backlog of documents on stock vLLM."""

from functools import cache
from typing import Any

import pandas as pd
import pytest

from harness.replays.worker.replay import Replay
from tests.engines.replays import measured, replay
from workloads.registry import make_trace
from workloads.trace import Trace

USERS = {"requests": 25, "rate": 2.0, "input_tokens": 2000, "output_tokens": 100, "cv": 0.5}
SERVER = {"deployment": "llama_8b_h100"}


def run(workload: dict[str, Any], **engine: Any) -> tuple[Trace, Replay]:
    trace = make_trace("co_serving", USERS | workload, 3)
    return trace, replay("vllm_omni_wo", engine, SERVER, {}, trace, 3)


@cache
def beside(order: str) -> tuple[Trace, Replay]:
    """Users beside four documents."""
    return run({"backlog": 4}, scheduler=order)


@pytest.mark.parametrize("order", ["fcfs", "priority"])
def test_the_throughputs_of_both_classes_add_up_to_the_tokens_of_the_steps(order: str) -> None:
    """Nothing is preempted and no prompt is shared, so what the classes got is what the steps computed."""
    trace, found = beside(order)
    requests, metrics = measured(trace, found, "vllm_omni_wo", SERVER)
    counts = requests.groupby("request_class")["status"].value_counts()
    assert counts["online", "completed"] == 25 and counts["batch", "aborted"] == 4
    assert counts["batch", "completed"] > 4 and not metrics["preemptions"].value
    assert metrics["batch.backlog_dry_s"].value == 0.0
    first_s, last_s = (metrics[name].value for name in ("steady_begin", "steady_end"))
    steps = found.steps.to_pandas()
    inside = steps.loc[(steps["t_s"] >= first_s) & (steps["t_s"] + steps["dt_s"] <= last_s), "tokens"].sum()
    said = sum(metrics[f"{name}.tps"].value or 0 for name in ("online", "batch")) * (last_s - first_s)
    # What was half read when the window opened counts whole, what is when it closes not at all, nor do steps across.
    assert said == pytest.approx(inside, abs=32_768 + 2 * 2048)
    assert inside > 150_000


def test_a_run_ends_with_its_last_user_and_aborts_the_documents() -> None:
    trace, found = beside("priority")
    requests, _ = measured(trace, found, "vllm_omni_wo", SERVER)
    last_s = requests.loc[requests["request_class"] == "online", "completion_s"].max()
    assert found.run_end_s < last_s + 1.0
    aborted = set(requests.loc[requests["status"] == "aborted", "session"])
    events = found.events.to_pandas()
    told = events.loc[events["kind"] == "computed"].set_index("session")["value"]
    inputs = pd.Series({session.id: session.turns[0].input_tokens for session in trace.sessions})
    assert set(told.index) == aborted and (told <= inputs[told.index]).all()
    assert told.sum() > 0 and found.counters["truncated_prompts"] == 0
