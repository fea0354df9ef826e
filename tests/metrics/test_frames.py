"""The frame table: due by schedule, answered by the Step that fed it, judged by what came back."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.request_tables.frame_table import COLUMNS, DELIVERED, FAILED, UNANSWERED, Beat, frame_table
from tests.metrics.frame_log import BEAT, FAST_S, NETWORK_S, B, add, events_of, table_of, trace_of


def without(events: pd.DataFrame, kind: str, keep) -> pd.DataFrame:
    """The log without the events of a kind for which `keep` is false."""
    own = events["kind"] == kind
    return events.loc[~own | keep(events)].reset_index(drop=True)


def test_a_frame_is_due_when_its_audio_ends_and_fed_at_the_next_tick() -> None:
    table = table_of(3, 5)
    assert list(table) == list(COLUMNS) and len(table) == 15
    assert set(table["status"]) == {DELIVERED}
    assert np.allclose(table["due_s"], table["session"] / 64 + 1 / 128 + B * (table["frame"] + 1))
    assert np.all(table["beat_s"] == table["dispatch_s"])
    assert np.all((table["beat_s"] - table["due_s"]).between(NETWORK_S, B))
    assert table["tick"].tolist() == [2, 3, 4, 5, 6] * 3
    assert np.allclose(table["latency_s"], FAST_S)
    assert np.allclose(table["arrive_s"], table["return_s"] + NETWORK_S)
    assert table["first"].tolist() == [True, False, False, False, False] * 3
    assert table["judged"].tolist() == [False, False, True, True, True] * 3


def test_a_last_frame_is_not_judged_when_the_user_hung_up_first_and_others_are() -> None:
    trace = trace_of(1, 6)
    events = without(events_of(trace), "frame_out", lambda log: ~log["turn"].isin([3, 5]))
    events = without(events, "fed", lambda log: log["turn"] != 5)
    table = frame_table(events, trace, BEAT)
    # Frame 4's Step covers frame 3, which nothing else answered; nobody answered frame 5.
    assert table["status"].tolist() == [DELIVERED] * 5 + [UNANSWERED]
    assert table["judged"].tolist() == [False, False, True, True, True, False]
    assert np.isnan(table["dispatch_s"].iloc[5]) and pd.isna(table["tick"].iloc[5])
    silent = without(events, "frame_out", lambda log: log["turn"] < 3)
    table = frame_table(silent, trace, BEAT)
    assert table["status"].tolist() == [DELIVERED] * 3 + [UNANSWERED] * 3
    assert table["judged"].tolist() == [False, False, True, True, True, False]
    assert table["dispatch_s"].notna().tolist() == [True] * 5 + [False]


def test_a_failed_session_owes_its_frames_to_the_end() -> None:
    trace = trace_of(2, 8)
    events = events_of(trace)
    gone = (events["session"] == 1) & (events["t"] > 9.0)
    events = add(events.loc[~gone], (9.0, "session_failed", 1, 0, np.nan))
    table = frame_table(events, trace, BEAT)
    lost = table.loc[table["session"] == 1]
    assert len(table) == 16 and lost["status"].tolist()[-4:] == [FAILED] * 4
    assert lost["judged"].sum() == 6
    assert set(table[table["session"] == 0]["status"]) == {DELIVERED}


@settings(max_examples=60)
@given(
    session=st.integers(0, 300),
    at_us=st.integers(0, 10**8),
    slots=st.integers(1, 5),
    budget_s=st.sampled_from([0.08, 1.0, 2.0]),
)
def test_the_next_tick_of_a_session(session: int, at_us: int, slots: int, budget_s: float) -> None:
    at_s = at_us / 1e6
    beat = Beat(budget_s, 0.8 * budget_s, 0.3 * budget_s, slots)
    found = beat.next_s(np.array([session]), np.array([at_s]))[0]
    number = round(found / (budget_s / slots))
    assert found == pytest.approx(number * budget_s / slots) and number % slots == session % slots
    assert -1e-6 <= found - at_s < budget_s + 1e-6


def test_ticks_of_replicas_are_told_apart() -> None:
    """Two replicas tick at the same instant, as 2 * beat and 2 * beat + 1, and session i is with replica i % 2."""
    trace = trace_of(4, 3)
    events = events_of(trace)
    ticks = events["kind"] == "tick"
    turns = 2 * events.loc[ticks, "turn"]
    twice = pd.concat([events.loc[ticks].assign(turn=turns + place) for place in (1, 0)] + [events.loc[~ticks]])
    table = frame_table(twice.reset_index(drop=True), trace, Beat(B, 1.6, 0.6, replicas=2))
    assert np.all(table["tick"] == 2 * (table["frame"] + 2) + table["session"] % 2)
