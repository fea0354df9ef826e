"""The steady window: in it the load is the planned one, and metrics are over the turns that were asked in it."""

from heapq import heappop, heappush
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.kinds.turns import load_of
from harness.live.kinds.turns import TURNS
from harness.metrics.live import LIVE_DEFINITIONS, summarise_live
from harness.request_tables.steady_window import (
    STEADY,
    WHOLE,
    Load,
    Window,
    on_line_mean,
    phases,
    sessions_rps,
    steady_window,
)
from harness.slo.targets import judged_value
from tests.live.scripted import typed
from tests.metrics.event_log import steps as no_steps

RAMP_S = 1.0


def table(rows: list[tuple[int, int, float, float, float]]) -> tuple[Any, Any]:
    """A request table and the trace of these turns: session, turn, begin, end of the user's turn, end, s."""
    columns = ["session", "turn", "turn_start_s", "turn_end_s", "ended_s"]
    requests = pd.DataFrame(rows, columns=columns).assign(status="completed")
    return requests, requests[["session", "turn"]]


def one_a_second(count: int, lasting_s: float = 0.5) -> tuple[Any, Any]:
    """Users of one turn each."""
    return table([(k, 0, float(k), float(k), k + lasting_s) for k in range(count)])


def called(calls_s: list[list[float]], c: int) -> tuple[Any, Any]:
    """Calls that come within `RAMP_S`, of which c at once are on line; each number is the length of a turn, s."""
    rows, free_s = [], [0.0] * c
    for session, turns_s in enumerate(calls_s):
        t = max(RAMP_S * (session + 1) / len(calls_s), heappop(free_s))
        for turn, seconds in enumerate(turns_s):
            rows.append((session, turn, t, t, t + seconds))
            t += seconds
        heappush(free_s, t)
    return table(rows)


@given(st.lists(st.lists(st.floats(RAMP_S, 20), min_size=1, max_size=4), min_size=1, max_size=30), st.integers(1, 8))
def test_a_closed_loop_is_steady_while_every_slot_is_taken_and_one_turn_of_each_has_ended(calls_s, c):
    requests, turns = called(calls_s, c)
    places = min(c, len(calls_s))
    window = steady_window(requests, turns, Load(slots=c))
    if window == WHOLE:  # nothing was asked after the first turns and before the first call that nobody replaces
        ends_s = np.sort(requests["ended_s"])
        last_s = requests["turn_start_s"].loc[requests["turn"] == 0].max()
        leaves_s = requests.groupby("session")["ended_s"].max()
        end_s = leaves_s[leaves_s > last_s].min()
        asked_s = requests["turn_end_s"]
        assert len(requests) <= places or not asked_s.between(ends_s[places - 1], end_s).any()
        return
    assert (requests["ended_s"] <= window.begin_s).sum() >= places > (requests["ended_s"] < window.begin_s).sum()
    calls = requests.groupby("session").agg(came=("turn_start_s", "min"), left=("ended_s", "max"))
    edges = np.unique([*calls["came"], *calls["left"], window.begin_s, window.end_s])
    for t in (edges[1:] + edges[:-1]) / 2:
        on_line = ((calls["came"] < t) & (calls["left"] > t)).sum()
        if window.begin_s < t < window.end_s:
            assert on_line == places
        elif t > window.end_s:
            assert on_line < places


def test_where_c_counts_requests_as_many_of_them_must_have_ended_as_there_are_slots():
    # Two slots; a reply that lasts for 100 s, or a request that hangs, does not take the window from the others.
    for end_s in (100.0, np.nan):
        others = [(k, 0, 2.0 * (k - 1), 2.0 * (k - 1), 2.0 * k) for k in range(1, 20)]
        requests, turns = table([(0, 0, 0.0, 0.0, end_s), *others])
        window = steady_window(requests, turns, Load(slots=2))
        assert window == Window(4.0, 38.0)
        assert (phases(requests, window) == STEADY).sum() == 17


def test_an_open_loop_is_counted_from_its_first_user_however_slow_the_server_is():
    for lasting_s in (0.5, 2.5, 50.0):
        requests, turns = one_a_second(20, lasting_s)
        window = steady_window(requests, turns, Load())
        assert window == Window(0.0, 19.0) and (phases(requests, window) == STEADY).all()
    assert steady_window(requests, turns, Load(stop_after_s=10.0)) == Window(0.0, 10.0)


def test_without_a_turn_after_the_first_ones_a_run_is_measured_whole():
    ended = [(k, 0, 0.0, 0.0, 2.0 + k) for k in range(5)]
    hang = [(k, 0, 0.0, 0.0, np.nan) for k in range(5)]
    for rows, slots in ((ended, 5), (ended, 8), ([*hang, (5, 0, 1.0, 1.0, 2.0)], 5)):
        requests, turns = table(rows)
        assert steady_window(requests, turns, Load(slots=slots)) == WHOLE
        assert (phases(requests, WHOLE) == STEADY).all()


def test_a_backlog_and_agents_that_are_called_are_no_users():
    requests, turns = one_a_second(6)
    backlog = [np.nan, 2.0, np.nan, 2.0, np.nan, np.nan]
    assert steady_window(requests, turns.assign(backlog=backlog), Load(slots=1)).begin_s == 0.5
    assert steady_window(requests, turns.assign(backlog=backlog), Load(slots=2)).begin_s == 2.5
    waits = ["", "0:0", "", "0:0", "", ""]
    assert steady_window(requests, turns.assign(waits=waits), Load(slots=2)).begin_s == 2.5


def test_the_judged_turns_are_the_first_to_begin_in_it():
    requests, turns = table([(k, 0, float(k), k + 0.2, k + 0.5) for k in range(20)])
    window = steady_window(requests, turns, Load(slots=1, judged=5))
    assert (phases(requests, window) == STEADY).sum() == 5 and window.by_begin and window.end_s == 5.0


def test_who_waits_for_a_slot_has_not_left():
    # Two users of three turns share one slot; the second waits 50 s for it after its first turn.
    requests, turns = table(
        [(0, 0, 0.0, 0.0, 2.0), (1, 0, 0.0, 2.0, 4.0), (0, 1, 4.0, 4.0, 54.0), (0, 2, 54.0, 54.0, 60.0)]
    )
    planned = pd.concat([turns, pd.DataFrame({"session": [1, 1], "turn": [1, 2]})])
    assert steady_window(requests, planned, Load(slots=1)) == Window(2.0, 60.0)
    failed = requests.assign(status=["completed", "failed", "completed", "completed"])
    assert steady_window(failed, planned, Load(slots=1)) == Window(2.0, 4.0)


def test_the_load_on_line_is_over_the_window():
    log = EventLog()
    for session, (came_s, left_s) in enumerate([(0.0, 10.0), (2.0, 6.0), (6.0, 12.0)]):
        log.event(came_s, "session_start", session, 0)
        log.event(left_s, "session_end", session, 0)
    events = log.events().to_pandas()
    assert on_line_mean(events, Window(4.0, 8.0)) == 2.0 and sessions_rps(events, Window(4.0, 8.0)) == 1 / 4
    assert on_line_mean(events, WHOLE) is None and sessions_rps(events, Window(5.0, 5.0)) is None


def test_a_turn_belongs_where_its_user_s_turn_ends():
    window = Window(2.0, 10.0)
    turns = pd.DataFrame({"turn_start_s": [0.0, 1.0, 9.0, 9.5, 1.5], "turn_end_s": [1.9, 2.0, 10.0, 10.1, np.nan]})
    assert phases(turns, window).tolist() == ["ramp", "steady", "steady", "drain", "ramp"]


ENDS_S = (1.0, 3.0, 5.0, 8.0)
WAITS_S = (9.0, 0.1, 0.3, 7.0)
"""Of four users; the first is asked in the ramp, the last in the drain."""


def asked() -> pd.DataFrame:
    log = EventLog()
    for session, (end_s, wait_s) in enumerate(zip(ENDS_S, WAITS_S, strict=True)):
        for kind in ("session_start", "turn_start", "turn_end"):
            log.event(end_s, kind, session, 0, value=0.0)
        for kind in ("turn_failed",) if session == 2 else ("first_text", "reply_done", "turn_done"):
            log.event(end_s + wait_s, kind, session, 0, value=1)
        log.event(end_s + wait_s, "session_end", session, 0)
    return log.events().to_pandas()


def test_metrics_are_over_the_steady_window_and_the_whole_run_is_kept():
    trace, events = typed(sessions=4), asked()
    turns, steps = pd.DataFrame(trace.columns()), no_steps()
    load = Load(slots=1, stop_after_s=6.0)
    requests = TURNS.requests(turns, events, load)
    metrics = TURNS.metrics(turns, events, steps, requests, 15.0, load)
    # The second user is answered first, at 3.1 s.
    assert requests["phase"].tolist() == ["ramp", "ramp", "steady", "drain"]
    assert (metrics["started"].value, metrics["completed"].value, metrics["failed"].value) == (4, 3, 1)
    assert (metrics["ttft_p50"].value, metrics["ttft_p50"].n, metrics["ttft_p50"].missing) == (np.inf, 1, 0)
    assert (metrics["ttft_whole_p50"].n, metrics["turns_in_ramp"].value) == (4, 2)
    assert (metrics["steady_begin"].value, metrics["steady_end"].value) == (3.1, 6.0)

    sends = pd.DataFrame({"kind": ["request"], "send_delay_s": [0.001]})
    failures = pd.DataFrame({"session": [2], "reason": ["http 500"]})
    window = steady_window(requests, turns, load)
    live = summarise_live(events, requests, sends, failures, {}, late_s=0.02, window=window)
    assert list(live) == list(LIVE_DEFINITIONS)
    assert (live["failed_share"].value, live["failed_share"].n) == (1 / 4, 4)

    # A search for a capacity judges the same value.
    as_stored = {name: metric.as_dict() for name, metric in metrics.items()}
    assert judged_value("ttft_p90", as_stored, requests) == np.inf
    whole = judged_value("ttft_whole_p50", {**as_stored, "ttft_whole_p50": {"value": 0, "missing": 1}}, requests)
    assert whole == pytest.approx(8.0)  # of 0.1, 7, 9 s and the one that failed


def test_the_load_of_requests_comes_as_fast_as_requests_may_end():
    """Else the places of a closed loop stay empty until the next one comes."""
    unbounded = FieldInfo(annotation=int)
    for c in (8, 64):
        _, fixed = TURNS.load("sharegpt", {"rate": unbounded, "requests": unbounded}, c, None, 20.0)
        assert fixed["requests"] / fixed["rate"] <= 20.0 + 1.0
        _, fixed = TURNS.load("voice", {"rate": unbounded, "sessions": unbounded}, c, None, 20.0)
        assert fixed["rate"] == max(c / 2.0, 10.0)


def test_clients_have_the_window_of_their_parameters():
    load = TURNS.target_timing(typed(sessions=4), ClientParams.model_validate({"c": 2, "stop_after_s": 6.0}), 7)
    assert load == Load(slots=2, stop_after_s=6.0, judged=7)
    every_replica = ClientParams.model_validate({"c": 4, "c_scope": "replica", "c_counts": "reply"})
    assert load_of(every_replica, replicas=3).slots == 12
    assert load_of(ClientParams.model_validate({})).slots is None
