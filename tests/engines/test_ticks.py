"""The tick gateway: what a Step waits for, its cap, skipped ticks and admission."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engines.core.admission import FrameLatency
from tests.engines import frames as calls
from tests.engines.frames import frames

serve: Callable[..., Any] = calls.serve
"""Pandas' stubs do not know which columns of a run hold numbers."""
FREE = {"feed_s": 0.0, "step_rpc_s": 0.0}
"""Steps whose call costs nothing, so that times are exact."""


def starve(server: Any) -> None:
    """Session 0 says nothing any more after three frames: the engine loses what it is fed."""
    [engine] = (batcher.engine for batcher in server.gateway.batchers)
    append = engine.append
    engine.append = lambda request, chunk: append(request, chunk) if chunk.turn.session or chunk.turn.turn < 3 else None


def test_a_step_returns_the_tokens_since_the_last_step():
    """Finding 4: a frame's answer needs 0.1 s of work, and is collected by the next Step within milliseconds."""
    run = serve(frames(4, 20, outputs=lambda session, frame: 20 + frame), **FREE)
    for session in range(4):
        out = run.returned(session)
        assert out["frame"].tolist() == list(range(20))
        assert 1 <= out["tokens"].iloc[0] < 20
        assert out["tokens"].iloc[:2].sum() == 20, "nothing of the first answer was lost"
        assert out["tokens"].iloc[2:].tolist() == [20 + frame for frame in range(1, 19)]
    latency = run.ticks["latency"].to_numpy()
    assert latency[0] > 0.004, "the first frame waits for real work"
    assert latency[1:].max() == 0.0


def test_the_first_step_ends_with_the_first_token_of_the_last_session():
    run = serve(frames(8, 3), **FREE)
    end_s = run.ticks["t"].iloc[0] + run.ticks["latency"].iloc[0]
    steps = run.steps[run.steps["t_s"] < end_s]
    assert (steps["t_s"] + steps["dt_s"]).iloc[-1] == pytest.approx(end_s)


@pytest.mark.parametrize(
    ("frame_s", "cap_s", "scope"), [(2.0, 1.6, "batch"), (1.0, 0.8, "batch"), (2.0, 1.6, "session")]
)
def test_one_starved_session_holds_up_the_whole_tick_until_the_cap_or_only_itself(
    frame_s: float, cap_s: float, scope: str
):
    run = serve(frames(6, 12, frame_s=frame_s), arrange=starve, wait_scope=scope, **FREE)
    ticks = run.ticks.iloc[4:-1]  # the last Step ends when its sessions hang up
    assert len(ticks) > 5
    if scope == "batch":
        assert ticks["latency"].to_numpy() == pytest.approx(cap_s)
        assert (ticks["cut"] == 1).all()
    assert scope == "batch" or run.counters["tick_overruns"] == 0
    for session in range(6):
        out = run.returned(session).iloc[5:]  # the first Step that is cut has the answers of two frames
        waits = scope == "batch" or session == 0
        assert out["latency"].to_numpy() == pytest.approx(cap_s if waits else 0.0)
        assert (out["tokens"] == (5 if session else 0)).all()


def test_a_tick_is_skipped_and_counted_while_the_step_before_is_out():
    """Feeding takes longer than B here; the audio of skipped ticks goes with the next one."""
    run = serve(frames(4, 20), feed_s=0.6, step_rpc_s=0.0)
    skipped = run.kind("tick_skipped")
    assert run.counters["tick_overruns"] == len(skipped) > 3
    assert run.counters["ticks"] == len(run.ticks) < 19
    begun, ended = run.ticks["t"].to_numpy(), (run.ticks["t"] + run.ticks["latency"]).to_numpy()
    assert (begun[1:] >= ended[:-1]).all(), "two Steps of a worker never overlap"
    fed = run.kind("fed").query("session == 0")
    assert fed["turn"].tolist() == list(range(len(fed)))
    assert (fed.groupby("t").size() == 2).any()


class Cap:
    """Admits two sessions, and notes the latencies that it receives."""

    def __init__(self):
        self.cap = 2
        self.counters = Counter()
        self.told: list[tuple[list[FrameLatency], int]] = []

    def admits(self, admitted: int) -> bool:
        return admitted < self.cap

    def tick(self, latencies: Sequence[FrameLatency], admitted: int) -> None:
        self.told.append((list(latencies), admitted))


def test_admission_hears_the_latency_of_each_frame_and_who_is_turned_away_costs_nothing():
    cap = Cap()
    run = serve(frames(5, 6), arrange=lambda server: setattr(server.gateway, "admission", cap), **FREE)
    assert run.kind("admitted")["session"].tolist() == [0, 1]
    assert run.kind("shed")["session"].tolist() == [2, 3, 4]
    assert (run.counters["admitted"], run.counters["shed"]) == (2, 3)
    assert set(run.kind("fed")["session"]) == {0, 1}
    assert run.kind("cap")["turn"].tolist() == run.ticks.index.tolist()
    first, later = cap.told[0], cap.told[1:-1]
    assert [(each.session, each.first) for each in first[0]] == [(0, True), (1, True)]
    assert all(each.latency_s == pytest.approx(run.ticks["latency"].iloc[0]) for each in first[0])
    assert all(not each.first for latencies, _ in later for each in latencies)
    assert {admitted for _, admitted in [first, *later]} == {2}
