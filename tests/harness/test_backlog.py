"""A backlog: a fixed number of background sessions under way for as long as there are users."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.request_tables.request_table import ABORTED, COMPLETED, request_table
from tests.builders import typed_turn
from tests.harness.servers import Answering, played
from workloads.trace import Trace, Turn

TURN = typed_turn(arrival_s=1.0, input_tokens=10, output_tokens=10, network_s=0.25)


def document(session: int, **changes) -> Turn:
    return TURN.changed(session=session, arrival_s=0.0, request_class="batch", backlog=2, **changes)


EIGHT = [document(session) for session in range(1, 9)]


def play(turns: list[Turn], lasts: Mapping[int, float], **params) -> tuple[Any, Any, Answering]:
    """`lasts`: how long the answers to a session take, s; those to others take 2 s."""
    trace = Trace.from_turns(turns)
    events, server = played(trace, lambda: Answering(lambda turn: lasts.get(turn.session, 2.0)), **params)
    return events, request_table(events, pd.DataFrame(trace.columns())), server


def test_as_one_ends_the_next_begins_and_all_end_with_the_last_user():
    """A user from 1 s to 6.5 s, documents of 2.5 s with the network, two at a time from 0 s."""
    events, requests, server = play([TURN, *EIGHT], {0: 5.0})
    starts = events.query("kind == 'turn_start' and session > 0")["t"].tolist()
    assert starts == pytest.approx([0, 0, 2.75, 2.75, 5.5, 5.5])
    assert requests["status"].tolist() == [COMPLETED] * 5 + [ABORTED] * 2
    aborted = events.query("kind == 'turn_aborted'")
    [(_, user_gone_s)] = events.query("kind == 'session_end' and session == 0")[["session", "t"]].to_numpy()
    assert (aborted["t"] >= user_gone_s).all() and aborted["t"].max() <= user_gone_s + 0.25
    assert set(server.closed) == {0, 1, 2, 3, 4, 5, 6}  # those that never began are never seen
    assert "backlog_dry" not in set(events["kind"])


def test_a_backlog_that_the_trace_cannot_keep_full_says_so():
    events, requests, _ = play([TURN, document(1), document(2), document(3)], {0: 20.0})
    assert requests["status"].tolist() == [COMPLETED] * 4
    dry = events.query("kind == 'backlog_dry'")
    assert dry["session"].tolist() == [3, 3]
    assert dry["t"].tolist() == pytest.approx([2.75, 5.5]) and dry["value"].tolist() == [1, 0]


def test_a_document_may_take_longer_than_the_patience_of_users():
    for lasts, turn_timeout_s, status in (({0: 30, 1: 25}, 40, COMPLETED), ({0: 8, 1: 50}, 9, ABORTED)):
        _, requests, _ = play([TURN, document(1)], lasts, turn_timeout_s=turn_timeout_s)
        assert requests["status"].tolist() == [COMPLETED, status]


def test_a_document_comes_when_it_arrives_and_one_that_would_come_later_than_the_users_go_does_not():
    later = [replace(document(session), arrival_s=at) for session, at in ((1, 3.0), (2, 50.0))]
    events, requests, _ = play([TURN, *later], {0: 5.0})
    assert events.query("kind == 'turn_start' and session == 1")["t"].tolist() == [3.0]
    assert requests["session"].tolist() == [0, 1]
    assert events["t"].max() < 10


@settings(max_examples=40)
@given(
    users=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=4),
    lasts=st.lists(st.integers(1, 40), min_size=1, max_size=20),
    backlog=st.integers(1, 4),
)
def test_a_backlog_is_full_until_it_is_dry_or_the_users_have_gone(users, lasts, backlog):
    n = len(users)
    turns = [TURN.changed(session=i, arrival_s=at / 8, network_s=0.0) for i, (at, _) in enumerate(users)]
    turns += [document(n + i, network_s=0.0).changed(backlog=backlog) for i in range(len(lasts))]
    long = {i: last / 8 for i, last in enumerate([*(last for _, last in users), *lasts])}
    events, requests, server = play(turns, long)
    gone_s = events.loc[(events["kind"] == "session_end") & (events["session"] < n), "t"].max()
    dry = events.loc[events["kind"] == "backlog_dry", "t"]
    of_backlog = events[events["session"] >= n]
    begun, ended = (of_backlog.loc[of_backlog["kind"] == f"turn_{kind}", "t"] for kind in ("start", "done"))
    aborted = of_backlog.loc[of_backlog["kind"] == "turn_aborted", "t"]
    for t in sorted({0.0, *events["t"]}):
        under_way = (begun <= t).sum() - (ended <= t).sum() - (aborted <= t).sum()
        assert under_way <= backlog
        if t < gone_s and not (dry <= t).any():
            assert under_way == backlog
    assert (aborted == gone_s).all() and len(begun) == len(ended) + len(aborted)
    assert set(server.closed) == set(requests["session"])
