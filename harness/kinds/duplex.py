"""Duplex: turns on an open microphone, whose ends the server has to find, among sounds that are none.

Systems that serve turns serve it behind `engines.turn_taking.listening`. What their stages log is by reply; a turn's
row in the request table has all that was done for it, whatever it took for its end before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.client.client_params import ClientParams
from harness.client.duplex_user import DuplexUser
from harness.client.turns import serve_turns
from harness.events.log import EventLog
from harness.kinds.turns import TURNS
from harness.metrics.metric import Metric
from harness.metrics.turn_taking import summarise_turn_taking
from harness.request_tables.steady_window import Load, counted
from harness.request_tables.turn_taking_table import turn_taking_table
from workloads.trace import Session, Trace

OF_REPLIES = (
    "arrive",
    "start",
    "token",
    "finish",
    "abort",
    "computed",
    "preempt",
    "heard",
    "load_start",
    "load_end",
    "preloaded",
)
"""Kinds of events that stages and gateway log with the number of a reply."""


class Duplex:
    """The kind of open microphones. Implements `harness.kinds.kind.Answered`."""

    name = "duplex"
    Timing, turn_rows, answered = Load, TURNS.turn_rows, TURNS.answered

    async def play(self, trace: Trace, server: Any, log: EventLog, params: ClientParams, replicas: int) -> None:
        def user(session: Session, server: Any, log: EventLog, params: ClientParams, _: None) -> DuplexUser:
            return DuplexUser(session, server, log, params)

        await serve_turns(trace, server, log, params, replicas, user)

    def requests(self, turns: pd.DataFrame, events: pd.DataFrame, timing: Load) -> pd.DataFrame:
        requests = TURNS.requests(turns, by_turn(events), timing)
        return requests.merge(turn_taking_table(events, turns), on=["session", "turn"])

    def metrics(
        self,
        turns: pd.DataFrame,
        events: pd.DataFrame,
        steps: pd.DataFrame,
        requests: pd.DataFrame,
        end_s: float,
        timing: Load,
    ) -> Mapping[str, Metric]:
        metrics = TURNS.metrics(turns, by_turn(events), steps, requests, end_s, timing)
        return {**metrics, **summarise_turn_taking(counted(requests))}


def by_turn(events: pd.DataFrame) -> pd.DataFrame:
    """Return the log with the events of replies under the turns during which they began. Replies whose begin was not
    reported before the end of the call are left out."""
    rows = events[(events["kind"] == "told").to_numpy() & (events["stage"] == "reply_begun").to_numpy()]
    begun = {
        (session, int(reply)): turn
        for session, reply, turn in zip(rows["session"], rows["value"], rows["turn"], strict=True)
    }
    mine = events["kind"].isin(OF_REPLIES).to_numpy() & (events["session"] >= 0).to_numpy()
    turn = events["turn"].to_numpy(copy=True)
    turn[mine] = [
        begun.get(key, -1) for key in zip(events["session"].to_numpy()[mine], turn[mine].tolist(), strict=True)
    ]
    return events.assign(turn=turn).loc[~mine | (turn >= 0)]


DUPLEX = Duplex()
