"""Hand-written logs of open calls: who sounds from when to when, and what the server told."""

from __future__ import annotations

import pandas as pd

from harness.metrics.turn_taking import turn_taking_table


class OpenCalls:
    """Collects stretches; every call returns the log, so that lines can be chained."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, str, int, int, str, float]] = []
        self.planned: list[tuple[int, int, str, float, float]] = []

    def turn(self, turn=0, *stretches, says="turn", event="", session=0, network_s=0.0) -> OpenCalls:
        """The user speaks from each begin to each end; two stretches: with a hesitation."""
        (begin, _), *_ = stretches
        self.planned.append((session, turn, event, 0.5 if len(stretches) > 1 else float("nan"), network_s))
        self.rows.append((begin, "turn_start", session, turn, "", float("nan")))
        for begin, end in stretches:
            self.rows.append((end, "user_speech", session, turn, says, end - begin))
        return self

    def beside(self, kind, begin, end, turn=0, session=0) -> OpenCalls:
        self.rows.append((end, "user_speech", session, turn, kind, end - begin))
        return self

    def agent(self, begin, end, reply=0, turn=0, session=0, done=True) -> OpenCalls:
        self.rows.append((end, "agent_speech", session, turn, str(reply), end - begin))
        return self.event("reply_done", end, turn, session) if done else self

    def event(self, kind, t, turn=0, session=0, stage="") -> OpenCalls:
        self.rows.append((t, kind, session, turn, stage, float("nan")))
        return self

    def told(self, label, t, reply=None, session=0) -> OpenCalls:
        self.rows.append((t, "told", session, 0, label, float("nan") if reply is None else float(reply)))
        return self

    @property
    def events(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows, columns=["t", "kind", "session", "turn", "stage", "value"]).astype(
            {"kind": "category", "stage": "category"}
        )

    @property
    def turns(self) -> pd.DataFrame:
        return pd.DataFrame(self.planned, columns=["session", "turn", "event", "pause_s", "network_s"])

    def table(self) -> pd.DataFrame:
        return turn_taking_table(self.events, self.turns)
