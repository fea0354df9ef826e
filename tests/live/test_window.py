"""The steady window: in it the load is the planned one, and metrics are over the turns that were asked in it."""

from heapq import heappop, heappush

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.live.kinds.turns import TURNS
from harness.metrics.live import LIVE_DEFINITIONS, summarise_live
from harness.metrics.turns import summarise
from harness.request_tables.live_window import (
    WHOLE,
    Window,
    on_line_mean,
    phases,
    sessions_rps,
    steady_window,
)
from harness.request_tables.request_table import request_table
from harness.slo.targets import judged_value
from tests.live.scripted import typed
from tests.metrics.event_log import steps as no_steps

RAMP_S = 1.0


def called(lasting_s: list[float], c: int, stop_s: float) -> pd.DataFrame:
    """Calls that all come within `RAMP_S`, of which c at once are on line and none begins after `stop_s`."""
    log, free_s = EventLog(), [0.0] * c
    for session, seconds in enumerate(lasting_s):
        begin_s = max(RAMP_S * (session + 1) / len(lasting_s), heappop(free_s))
        heappush(free_s, begin_s + seconds)
        if begin_s <= stop_s:
            log.event(begin_s, "session_start", session, 0)
            log.event(begin_s + seconds, "session_end", session, 0)
    return log.events().to_pandas().sort_values("t", kind="stable")


def on_line(events: pd.DataFrame, t_s: float) -> int:
    change = events["kind"].map({"session_start": 1, "session_end": -1}).astype(int)
    return int(change[(events["t"] <= t_s).to_numpy()].sum())


@given(st.lists(st.floats(RAMP_S, 20), min_size=1, max_size=30), st.integers(1, 8), st.floats(2 * RAMP_S, 40))
def test_all_places_are_taken_throughout_and_not_for_longer(lasting_s: list[float], c: int, stop_s: float):
    events = called(lasting_s, c, stop_s)
    places, run_end_s = min(c, len(lasting_s)), float(events["t"].max())
    window = steady_window(
        events, run_end_s, c=c, c_counts="session", stop_after_s=stop_s, sessions=len(lasting_s)
    )
    assert window.begin_s <= RAMP_S < window.end_s <= min(stop_s, run_end_s)
    edges = np.unique([*events["t"], window.begin_s, window.end_s])
    middles = (edges[1:] + edges[:-1]) / 2
    inside = (middles > window.begin_s) & (middles < window.end_s)
    full = np.array([on_line(events, t) for t in middles]) == places
    assert full[inside].all() and not full[middles < window.begin_s].any()
    if window.end_s < min(stop_s, run_end_s):
        assert not full[middles > window.end_s].any()
    assert on_line_mean(events, window) == pytest.approx(places)
    came_s = events.loc[(events["kind"] == "session_start").to_numpy(), "t"]
    assert sessions_rps(events, window) == pytest.approx(
        came_s.between(window.begin_s, window.end_s).sum() / (window.end_s - window.begin_s)
    )


def test_users_that_never_were_all_there_have_no_window():
    events = called([5.0] * 10, 10, stop_s=0.75)  # the last three do not come any more
    window = steady_window(events, 6.0, c=10, c_counts="session", stop_after_s=0.75, sessions=10)
    assert window.begin_s == np.inf and on_line_mean(events, window) is None
    assert sessions_rps(events, window) is None


def test_where_c_counts_replies_their_turns_must_have_been_sent():
    log = EventLog()
    for session in range(3):
        log.event(0.0, "session_start", session, 0)
        log.event(1.0, "turn_start", session, 0)
        log.event(3.0 + session, "turn_end", session, 0)
    window = steady_window(
        log.events().to_pandas(), 30.0, c=2, c_counts="reply", stop_after_s=25.0, sessions=3
    )
    assert window == Window(4.0, 25.0)


def test_where_c_counts_requests_they_are_what_must_have_been_there():
    log = EventLog()
    for session in range(5):
        log.event(0.0, "session_start", session, 0)
        log.event(1.0 + session, "turn_start", session, 0)
        log.event(20.0 + session, "session_end", session, 0)
    window = steady_window(
        log.events().to_pandas(), 30.0, c=3, c_counts="request", stop_after_s=25.0, sessions=5
    )
    assert window == Window(3.0, 22.0)  # the third request, and the third call that ends of five


def test_an_open_loop_is_counted_from_its_start_to_its_last_turn():
    events = called([5.0] * 3, 3, stop_s=9.0)
    about = {"c": None, "c_counts": "session", "sessions": 3}
    assert steady_window(events, 7.0, stop_after_s=None, **about) == Window(0.0, 7.0)
    assert steady_window(events, 7.0, stop_after_s=2.0, **about) == Window(0.0, 2.0)


def test_a_turn_belongs_where_its_user_s_turn_ends():
    window = Window(2.0, 10.0)
    turns = pd.DataFrame(
        {"turn_start_s": [0.0, 1.0, 9.0, 9.5, 1.5], "turn_end_s": [1.9, 2.0, 10.0, 10.1, np.nan]}
    )
    assert phases(turns, window).tolist() == ["ramp", "steady", "steady", "drain", "ramp"]


ENDS_S = (1.0, 3.0, 5.0, 8.0)
WAITS_S = (9.0, 0.1, 0.3, 7.0)
"""Of four users; the first is asked in the ramp, the last in the drain."""


def asked() -> pd.DataFrame:
    log = EventLog()
    for session, (end_s, wait_s) in enumerate(zip(ENDS_S, WAITS_S, strict=True)):
        for kind in ("session_start", "turn_start", "turn_end"):
            log.event(end_s, kind, session, 0, value=0.0)
        if session == 2:
            log.event(end_s + wait_s, "turn_failed", session, 0)
        else:
            log.event(end_s + wait_s, "first_text", session, 0, value=1)
            log.event(end_s + wait_s, "reply_done", session, 0)
            log.event(end_s + wait_s, "turn_done", session, 0)
        log.event(end_s + wait_s, "session_end", session, 0)
    return log.events().to_pandas()


def test_metrics_are_over_the_steady_window_and_the_others_are_told_and_kept():
    trace, events = typed(sessions=4), asked()
    turns, steps = pd.DataFrame(trace.columns()), no_steps()
    window = Window(2.0, 6.0)
    requests = TURNS.requests(turns, events, window)
    metrics = TURNS.metrics(turns, events, steps, requests, 15.0, window)
    assert requests["phase"].tolist() == ["ramp", "steady", "steady", "drain"]
    assert (metrics["started"].value, metrics["started"].missing) == (2, 0)
    assert (metrics["completed"].value, metrics["failed"].value) == (1, 1)
    # One of the two was never answered: infinitely late, and the median between them with it.
    assert (metrics["ttft_p50"].value, metrics["ttft_p50"].n, metrics["ttft_p50"].missing) == (np.inf, 2, 0)
    # From the first turn that counts to the window's end
    assert metrics["makespan"].value == pytest.approx(3.0)

    sends = pd.DataFrame({"kind": ["request"], "send_delay_s": [0.001]})
    failures = pd.DataFrame({"session": [2], "reason": ["http 500"]})
    live = summarise_live(events, requests, sends, failures, {}, late_s=0.02, window=window)
    assert list(live) == list(LIVE_DEFINITIONS)
    values = {
        name: live[name].value for name in ("steady_begin", "steady_end", "turns_in_ramp", "turns_in_drain")
    }
    assert values == {"steady_begin": 2, "steady_end": 6, "turns_in_ramp": 1, "turns_in_drain": 1}

    # A search for a capacity judges the same value.
    as_stored = {name: metric.as_dict() for name, metric in metrics.items()}
    assert judged_value("ttft_p90", as_stored, requests) == np.inf
    assert (live["failed_share"].value, live["failed_share"].n) == (0.5, 2)


def test_without_a_window_everything_is_counted_as_in_virtual_time():
    trace, events = typed(sessions=4), asked()
    turns, steps = pd.DataFrame(trace.columns()), no_steps()
    requests = TURNS.requests(turns, events, WHOLE)
    metrics = TURNS.metrics(turns, events, steps, requests, 15.0, WHOLE)
    pd.testing.assert_frame_equal(requests, request_table(events, turns))
    assert metrics == summarise(requests, steps, 15.0, planned_turns=4)


UNBOUNDED = FieldInfo(annotation=int)
"""Of a parameter that may be any number."""


def test_the_load_of_requests_comes_as_fast_as_requests_may_end():
    """Else the places of a closed loop stay empty until the next one comes."""
    for c in (8, 64):
        _, fixed = TURNS.load("sharegpt", {"rate": UNBOUNDED, "requests": UNBOUNDED}, c, None, 20.0)
        assert fixed["requests"] / fixed["rate"] <= 20.0 + 1.0
        _, fixed = TURNS.load("voice", {"rate": UNBOUNDED, "sessions": UNBOUNDED}, c, None, 20.0)
        assert fixed["rate"] == max(c / 2.0, 10.0)


def test_offline_clients_have_the_window_of_their_parameters():
    trace = typed(sessions=4)
    client = ClientParams(c=2, stop_after_s=6.0)
    window = TURNS.target_timing(trace, client, asked(), 15.0)
    assert window == Window(3.0, 6.0)
