"""How busy stages are and what they decode together; how long sessions take."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.metrics.metric import Metric
from harness.metrics.turns import summarise
from harness.metrics.vocabulary import definition
from harness.request_tables.request_table import request_table
from tests.metrics.event_log import EventLog

COLUMNS = ("stage", "replica", "t_s", "dt_s", "tokens", "prefill_tokens")
OTHER = {"kv_used": 0, "kv_blocks": 0}


def steps(*rows: tuple[str, int, float, float, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).assign(**OTHER)


def use(table: pd.DataFrame, begin_s: float, end_s: float) -> dict[str, Metric]:
    """The metrics of a run from the first turn's start on."""
    log = EventLog().start(at=begin_s)
    return summarise(request_table(log.events, log.trace), table, end_s)


def test_a_stage_is_busy_while_a_replica_of_it_runs_a_step():
    table = steps(
        ("vision", 0, 0.0, 4.0, 1600, 1600),
        ("entry", 0, 1.0, 2.0, 1700, 1699),
        ("entry", 1, 8.0, 4.0, 3, 0),
        ("entry", 1, 12.0, 1.0, 600, 600),
    )
    found = use(table, 2.0, 10.0)
    # What is before the first turn and after the run does not count.
    assert found["busy_vision"] == Metric(2 / 8, "1", 1, 0)
    assert found["busy_entry"] == Metric((1 + 2) / 16, "1", 3, 0)
    assert found["busy_talker"] == Metric(None, "1", 0, 0)
    assert found["decode_batch_entry_mean"] == Metric(2.0, "1", 2, 0)
    assert found["decode_batch_entry_peak"] == Metric(3.0, "1", 2, 0)
    assert found["decode_batch_vision_mean"] == Metric(None, "1", 0, 0)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20), st.integers(1, 3))
def test_no_stage_is_busier_than_all_the_time(gaps: list[tuple[float, float]], replicas: int):
    rows, t = [], 0.0
    for idle_s, dt_s in gaps:
        rows += [("decode", replica, t + idle_s, dt_s, 1, 0) for replica in range(replicas)]
        t += idle_s + dt_s
    busy = use(steps(*rows), 0.0, t)["busy_decode"].value
    total = sum(dt_s for _, dt_s in gaps)
    assert busy is None if t == 0 else busy == pytest.approx(total / t, abs=1e-9)


def test_stages_of_any_name_have_metrics_with_a_meaning():
    log = EventLog().spoken_turn()
    metrics = summarise(request_table(log.events, log.trace), steps(("vision", 0, 0.0, 1.0, 9, 9)), 20.0)
    assert list(metrics)[-3:] == ["busy_vision", "decode_batch_vision_mean", "decode_batch_vision_peak"]
    assert metrics["busy_vision"].value == pytest.approx(1 / 20)
    assert "of the vision" in definition("busy_vision").definition
    assert definition("decode_batch_vision_peak").unit == "1"
    for unknown in ("busy", "busy_", "decode_batch_vision", "idle_vision"):
        with pytest.raises(KeyError):
            definition(unknown)


def episodes() -> EventLog:
    """Session 0: two turns from 0 s; session 1: two of three; session 2: a single one."""
    log = EventLog()
    for session, turns in ((0, 2), (1, 2), (2, 1)):
        for turn in range(turns):
            log.spoken_turn(session, turn, at=10.0 * turn + session)
    return log


def test_an_episode_lasts_from_its_first_turn_to_the_end_of_its_last():
    log = episodes()
    table = request_table(log.events, log.trace)
    planned = np.array([0, 0, 1, 1, 1, 2])
    metrics = summarise(table, steps(), 40.0, planned_sessions=planned)
    own = table.set_index(["session", "turn"])
    first_s = own.loc[(0, 1), "completion_s"] - own.loc[(0, 0), "turn_start_s"]
    alone_s = own.loc[(2, 0), "completion_s"] - own.loc[(2, 0), "turn_start_s"]
    time = metrics["session_time_mean"]
    assert (time.n, time.missing) == (2, 1)  # of session 1 a turn never came
    assert time.value == pytest.approx((first_s + alone_s) / 2)
    assert metrics["session_pace_mean"].value == pytest.approx((120 / first_s + 60 / alone_s) / 2)
    assert metrics["session_time_p90"].unit == "s" and metrics["session_pace_p50"].unit == "1/min"


def test_sessions_of_single_turns_are_requests():
    log = EventLog().spoken_turn(0).spoken_turn(1, at=3.0)
    metrics = summarise(request_table(log.events, log.trace), steps(), 40.0)
    assert (metrics["session_time_p50"].value, metrics["session_time_p50"].n) == (None, 0)


def test_a_failed_turn_leaves_its_session_without_a_time():
    log = episodes()
    log.start(0, 2, at=30.0)
    log.add(31.0, "turn_failed", 0, 2)
    time = summarise(request_table(log.events, log.trace), steps(), 40.0)["session_time_p50"]
    assert (time.n, time.missing) == (2, 1)
