"""The deadline of a turn is the same for policies and metrics."""

from collections import Counter

import numpy as np
import pytest

from engines.composition import COMPONENTS, Scheduler
from engines.core.policy import DEFAULT_PLAN, Plan, StageView
from engines.core.stage import ENTRY
from tests.engines.replays import measured, replay, voice_trace
from workloads.trace import Trace

DEADLINES_S = (0.25, 0.4, 0.6)
NETWORK_S = (0.0, 0.02, 0.1)


class Watching:
    """Orders nothing; records when the first token of each request is due."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.due_s: dict[tuple[int, int], float | None] = {}

    def plan(self, view: StageView) -> Plan:
        for request in view.requests:
            session, turn, _ = request.id.split(".")
            self.due_s.setdefault((int(session), int(turn)), request.due_s)
        return DEFAULT_PLAN


def promised(trace: Trace) -> Trace:
    """Users with network delays of 0, 20 and 100 ms; every fourth turn has no deadline."""
    return Trace.from_turns(
        turn.changed(
            network_s=NETWORK_S[turn.session % 3],
            ttft_deadline_s=DEADLINES_S[turn.turn % 3] if (turn.session + turn.turn) % 4 else None,
        )
        for session in trace.sessions
        for turn in session.turns
    )


def test_a_policy_sees_the_deadline_that_the_metric_uses(monkeypatch: pytest.MonkeyPatch):
    watching = Watching()
    order = Scheduler("watching", "no order", policy=lambda stage, params: watching if stage == ENTRY else None)
    monkeypatch.setitem(COMPONENTS["scheduler"], "watching", order)
    trace = promised(voice_trace(sessions=16, rate=8.0, p=0.0))
    run = replay("vllm_omni_wo", {"scheduler": "watching"}, {}, {"turn_timeout_s": 60.0}, trace, 7)
    events = run.events.to_pandas()
    requests, metrics = measured(trace, run, "vllm_omni_wo", {})
    keys = list(zip(requests["session"], requests["turn"], strict=True))
    assert watching.due_s.keys() == set(keys) and len(keys) >= 16
    due_s = np.array([watching.due_s[key] for key in keys], float)
    assert 0 < np.isnan(due_s).sum() < len(due_s)
    np.testing.assert_allclose(due_s, requests["turn_end_s"] + requests["ttft_deadline_s"], atol=1e-9)
    first_s = events[events["kind"] == "first_text"].set_index(["session", "turn"])["t"]
    late_s = np.round(first_s[keys].to_numpy() - due_s, 6)
    in_time = late_s[~np.isnan(due_s)] <= 0
    assert metrics["default.ttft_in_deadline"].value == pytest.approx(in_time.mean())
    assert 0 < in_time.mean() < 1, "some are in time and some are late"
