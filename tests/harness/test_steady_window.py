"""The steady window, in which the load is the planned one: its bounds, and the metrics over its turns."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.client.client_params import ClientParams
from harness.events.log import EventLog
from harness.kinds.turns import load_of
from harness.live.kinds.turns import TURNS
from harness.metrics.live import summarise_live
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
from tests.metrics.event_log import are
from tests.metrics.event_log import steps as no_steps


def table(rows: list[tuple[int, int, float, float, float]]) -> tuple[Any, Any]:
    """A request table and the trace of these turns: session, turn, begin, end of the user's turn, end, s."""
    columns = ["session", "turn", "turn_start_s", "turn_end_s", "ended_s"]
    requests = pd.DataFrame(rows, columns=columns).assign(status="completed")
    return requests, requests[["session", "turn"]]


def one_a_second(count: int, lasting_s: float = 0.5) -> tuple[Any, Any]:
    """Users of one turn each."""
    return table([(k, 0, float(k), float(k), k + lasting_s) for k in range(count)])


def test_a_closed_loop_is_steady_from_its_last_first_reply_to_the_first_user_whom_nobody_replaces():
    """Two slots. Replies of the first two users end at 4 and 6 s; the last user comes at 6 s, and one leaves at 8 s."""
    calls = [(0, 0.0, 4.0), (1, 0.0, 6.0), (2, 4.0, 10.0), (3, 6.0, 8.0)]
    requests, turns = table([(session, 0, begin_s, begin_s, end_s) for session, begin_s, end_s in calls])
    assert steady_window(requests, turns, Load(slots=2)) == Window(6.0, 8.0)


@pytest.mark.parametrize("first_ends_s", [100.0, np.nan])
def test_a_request_that_hangs_delays_the_window_no_longer_than_others_fill_the_slots(first_ends_s: float):
    """Two slots. The first request keeps one; the others end at 2, 4, ... 38 s, so two have ended at 4 s."""
    others = [(k, 0, 2.0 * (k - 1), 2.0 * (k - 1), 2.0 * k) for k in range(1, 20)]
    requests, turns = table([(0, 0, 0.0, 0.0, first_ends_s), *others])
    window = steady_window(requests, turns, Load(slots=2))
    assert window == Window(4.0, 38.0)
    assert (phases(requests, window) == STEADY).sum() == 17


@pytest.mark.parametrize(
    ("lasting_s", "stop_after_s", "end_s"), [(0.5, np.inf, 19.0), (50.0, np.inf, 19.0), (0.5, 10.0, 10.0)]
)
def test_an_open_loop_is_steady_from_its_first_user_to_its_last(lasting_s: float, stop_after_s: float, end_s: float):
    """Twenty users come, one a second, from 0 to 19 s."""
    requests, turns = one_a_second(20, lasting_s)
    assert steady_window(requests, turns, Load(stop_after_s=stop_after_s)) == Window(0.0, end_s)


@pytest.mark.parametrize(("ends_s", "slots"), [([2, 3, 4, 5, 6], 5), ([2, 3, 4, 5, 6], 8), ([np.nan] * 5, 5)])
def test_a_run_that_is_over_with_the_first_turns_is_measured_whole(ends_s: list[float], slots: int):
    requests, turns = table([(k, 0, 0.0, 0.0, end_s) for k, end_s in enumerate(ends_s)])
    assert steady_window(requests, turns, Load(slots=slots)) == WHOLE
    assert (phases(requests, WHOLE) == STEADY).all()


@pytest.mark.parametrize(
    ("column", "slots", "begin_s"),
    [
        ({"backlog": [np.nan, 2.0, np.nan, 2.0, np.nan, np.nan]}, 1, 0.5),
        ({"backlog": [np.nan, 2.0, np.nan, 2.0, np.nan, np.nan]}, 2, 2.5),
        ({"waits": ["", "0:0", "", "0:0", "", ""]}, 2, 2.5),
    ],
)
def test_a_backlog_and_agents_that_are_called_are_no_users(column: dict, slots: int, begin_s: float):
    """Six sessions come, one a second, and last for 0.5 s. The second and the fourth are none of users."""
    requests, turns = one_a_second(6)
    assert steady_window(requests, turns.assign(**column), Load(slots=slots)).begin_s == begin_s


def test_the_judged_turns_are_the_first_to_begin_in_it():
    requests, turns = table([(k, 0, float(k), k + 0.2, k + 0.5) for k in range(20)])
    window = steady_window(requests, turns, Load(slots=1, judged=5))
    assert (phases(requests, window) == STEADY).sum() == 5 and window.by_begin and window.end_s == 5.0


@pytest.mark.parametrize(("status", "end_s"), [("completed", 60.0), ("failed", 4.0)])
def test_a_user_who_waits_for_a_slot_is_on_line_and_one_whose_turn_failed_is_not(status: str, end_s: float):
    """Two users of three turns share one slot; the second waits for it from 4 s on."""
    requests, turns = table(
        [(0, 0, 0.0, 0.0, 2.0), (1, 0, 0.0, 2.0, 4.0), (0, 1, 4.0, 4.0, 54.0), (0, 2, 54.0, 54.0, 60.0)]
    )
    planned = pd.concat([turns, pd.DataFrame({"session": [1, 1], "turn": [1, 2]})])
    requests.loc[1, "status"] = status
    assert steady_window(requests, planned, Load(slots=1)) == Window(2.0, end_s)


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


def asked() -> pd.DataFrame:
    """Four users, asked in the ramp, twice in the window and in the drain; the third fails."""
    log = EventLog()
    for session, (end_s, wait_s) in enumerate([(1.0, 9.0), (3.0, 0.1), (5.0, 0.3), (8.0, 7.0)]):
        for kind in ("session_start", "turn_start", "turn_end"):
            log.event(end_s, kind, session, 0, value=0.0)
        for kind in ("turn_failed",) if session == 2 else ("first_text", "reply_done", "turn_done"):
            log.event(end_s + wait_s, kind, session, 0, value=1)
        log.event(end_s + wait_s, "session_end", session, 0)
    return log.events().to_pandas()


def test_metrics_are_over_the_steady_window_and_the_whole_run_is_kept():
    """The window is from 3.1 s, when the first reply is complete, to 6 s."""
    events, turns, load = asked(), pd.DataFrame(typed(sessions=4).columns()), Load(slots=1, stop_after_s=6.0)
    requests = TURNS.requests(turns, events, load)
    metrics = TURNS.metrics(turns, events, no_steps(), requests, 15.0, load)
    assert requests["phase"].tolist() == ["ramp", "ramp", "steady", "drain"]
    are(metrics, steady_begin=(3.1, 4, 0), steady_end=(6, 4, 0), turns_in_ramp=(2, 4, 0))
    are(metrics, started=(4, 4, 0), completed=(3, 4, 0), failed=(1, 4, 0))
    are(metrics, ttft_p50=(np.inf, 1, 0), ttft_whole_p50=(8.0, 4, 0))  # of 0.1, 7 and 9 s, and one that failed
    assert judged_value("ttft_p90", {name: metric.as_dict() for name, metric in metrics.items()}, requests) == np.inf


def test_failures_of_a_live_run_are_of_all_turns_also_outside_the_window():
    events, turns, load = asked(), pd.DataFrame(typed(sessions=4).columns()), Load(slots=1, stop_after_s=6.0)
    requests = TURNS.requests(turns, events, load)
    sends = pd.DataFrame({"kind": ["request"], "send_delay_s": [0.001]})
    failures = pd.DataFrame({"session": [2], "reason": ["http 500"]})
    window = steady_window(requests, turns, load)
    are(summarise_live(events, requests, sends, failures, {}, late_s=0.02, window=window), failed_share=(1 / 4, 4, 0))


def test_a_load_has_the_slots_of_every_replica_and_the_limits_of_its_clients():
    load = TURNS.target_timing(typed(sessions=4), ClientParams.model_validate({"c": 2, "stop_after_s": 6.0}), 7)
    assert load == Load(slots=2, stop_after_s=6.0, judged=7)
    every_replica = ClientParams.model_validate({"c": 4, "c_scope": "replica", "c_counts": "reply"})
    assert load_of(every_replica, replicas=3).slots == 12
    assert load_of(ClientParams.model_validate({})).slots is None
