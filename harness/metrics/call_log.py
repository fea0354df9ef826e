"""The log of an open call: stretches of sound of both sides, and the server's messages.

A stretch is logged at its end, with its length: `user_speech` with the user's act, `agent_speech` (as it was played)
and `server_speech` (as it arrived) with the number of the reply. `told` names the server's message.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
import pandas as pd

from harness.metrics.stages import TALKER, VOCODER
from workloads.columns.duplex_events import TAKES_FLOOR

SAYS = ("turn", *TAKES_FLOOR)
"""Labels of speech to the agent; all others are other sounds."""
_KINDS = (
    "turn_start", "user_speech", "agent_speech", "server_speech", "told", "reply_done", "arrive", "start", "token",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sound from `begin_s` to `end_s`; `label` is what the user did, or the number of the agent's reply."""

    begin_s: float
    end_s: float
    turn: int
    label: str


@dataclass(slots=True)
class Call:
    """The log of one session, in order of time."""

    begins_s: dict[int, float] = field(default_factory=dict)
    said: dict[int, list[Stretch]] = field(default_factory=dict)
    beside: dict[int, Stretch] = field(default_factory=dict)
    agent: list[Stretch] = field(default_factory=list)
    sent_s: dict[str, float] = field(default_factory=dict)
    told: list[tuple[float, str, float]] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    served: list[tuple[float, str]] = field(default_factory=list)
    """Times (s) and kinds of requests at the first stage: arrived, started, produced."""

    def replies(self) -> dict[str, Stretch]:
        """Yield each reply from its first sound to its last."""
        spans: dict[str, Stretch] = {}
        for one in self.agent:
            first = spans.get(one.label, one)
            spans[one.label] = Stretch(
                min(first.begin_s, one.begin_s), max(first.end_s, one.end_s), first.turn, one.label
            )
        return spans

    def told_s(
        self, label: str, reply: str | None = None, since_s: float = -inf, by_s: float = inf
    ) -> list[float]:
        """Return when the server reported it, of that reply where one is named."""
        return [
            t
            for t, said, value in self.told
            if said == label
            and since_s <= t <= by_s
            and (reply is None or (value == value and str(int(value)) == reply))
        ]


def calls(events: pd.DataFrame) -> dict[int, Call]:
    kinds = events["kind"].astype(str).to_numpy()
    rows = events.loc[np.isin(kinds, _KINDS)]
    columns = [rows[name].astype(str) if name in ("kind", "stage") else rows[name] for name in rows.columns]
    found: dict[int, Call] = {}
    for each in sorted(zip(*(column.tolist() for column in columns), strict=True), key=lambda row: row[0]):
        event = dict(zip(rows.columns, each, strict=True))
        if event["session"] >= 0:
            _note(found.setdefault(event["session"], Call()), **event)
    return found


def _note(call: Call, t: float, kind: str, session: int, turn: int, stage: str, value: float) -> None:
    stretch = Stretch(t - value, t, turn, stage)
    if kind == "turn_start":
        call.begins_s[turn] = t
    elif kind == "user_speech" and stage in SAYS:
        call.said.setdefault(turn, []).append(stretch)
    elif kind == "user_speech":
        call.beside[turn] = stretch
    elif kind == "agent_speech":
        call.agent.append(stretch)
    elif kind == "server_speech":
        call.sent_s[stage] = t
    elif kind == "told":
        call.told.append((t, stage, value))
    elif kind == "reply_done":
        call.done.add(turn)
    elif stage not in (TALKER, VOCODER):
        call.served.append((t, kind))


def overlap_s(ones: Iterable[Stretch], others: Sequence[Stretch]) -> float:
    """Return how long both sides sound at once, s. Stretches of one side do not overlap."""
    return sum(max(0.0, min(a.end_s, b.end_s) - max(a.begin_s, b.begin_s)) for a in ones for b in others)
