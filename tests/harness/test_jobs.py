"""Replayed jobs of agents: the order of their turns, and the parts of the time of a job."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.metrics.jobs import of_jobs
from harness.records.log_to_trace import recorded
from harness.request_tables.request_table import request_table
from tests.harness.servers import Answering, played
from tests.workloads import agent_files
from tests.workloads.agent_files import RECORDED_S, STEPS, STEPS_OF
from workloads.errors import UserError
from workloads.registry import make_trace
from workloads.trace import Trace, Turn
from workloads.transforms.transform import loop

TOOK_S = {reply: end_s - begin_s for steps in STEPS_OF.values() for begin_s, end_s, _, reply in steps}
"""As the record has it, by the tokens of the reply."""


def play(trace: Trace, lasts: Callable[[Turn], float | None], **params) -> tuple[Any, dict, Answering]:
    """The request table, the metrics of jobs, and the server, which everybody has left."""
    events, server = played(trace, lambda: Answering(lasts), **params)
    assert not server.listeners
    turns = pd.DataFrame(trace.columns())
    requests = request_table(events, turns)
    return requests, {name: metric.value for name, metric in of_jobs(requests, turns).items()}, server


@pytest.fixture(params=["tracelab", "weka", "otel"])
def trace(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    path = agent_files.write(tmp_path, request.param)
    return make_trace(request.param, {"path": path, "network_ms": 0}, 0)


def test_a_server_as_fast_as_the_recorded_one_takes_as_long(trace: Trace) -> None:
    requests, metrics, _ = play(trace, lambda turn: TOOK_S[turn.output_tokens])
    begins = sorted(begin_s for steps in STEPS_OF.values() for begin_s, *_ in steps)
    assert sorted(requests["turn_start_s"]) == begins
    assert metrics["job_time_p50"] == metrics["job_recorded_p50"] == RECORDED_S
    assert metrics["job_slowdown_mean"] == 1 and metrics["job_steps_mean"] == STEPS and metrics["jobs"] == 1
    assert metrics["job_tool_time_mean"] + metrics["job_model_time_mean"] == RECORDED_S
    assert metrics["job_model_time_mean"] == 20 + 10 + 20 + 10 + 10  # without Q, which ends before P


def test_the_path_leads_through_the_agent_that_is_waited_for_longest(trace: Trace) -> None:
    """Q takes 100 s now: it is asked 15 s after the call, and both gaps behind are as before."""
    slow = {**TOOK_S, 10: 100}
    _, metrics, _ = play(trace, lambda turn: slow[turn.output_tokens])
    assert metrics["job_time_mean"] == 20 + 15 + 100 + 10 + 10 + 40 + 10
    assert metrics["job_tool_time_mean"] == 15 + 10 + 40


def test_an_agent_stops_when_the_agent_that_it_waits_for_fails(trace: Trace) -> None:
    requests, metrics, _ = play(trace, lambda turn: None if turn.output_tokens == 10 else 1.0, turn_timeout_s=5.0)
    assert sorted(requests["status"]) == ["completed"] * 3 + ["failed"]  # the main agent's first, and both of P
    assert metrics["jobs"] == 0 and metrics["job_time_p50"] is None


def test_a_closed_loop_counts_jobs(trace: Trace) -> None:
    """Two at a time, each with its three sessions."""
    many = loop(trace, 6, 1.0)
    requests, metrics, server = play(many, lambda turn: TOOK_S[turn.output_tokens], c=2)
    assert len(requests) == 6 * STEPS and server.most == 6
    assert metrics["jobs"] == 6 and metrics["job_time_p50"] == RECORDED_S
    assert requests["turn_end_s"].max() == 1 + 2 * RECORDED_S + 140  # the second came a second later


def test_a_run_of_agents_is_not_turned_into_times(trace: Trace) -> None:
    with pytest.raises(UserError, match="agents wait for one another"):
        recorded(trace, pd.DataFrame({"kind": [], "session": [], "turn": [], "t": [], "value": []}))
