"""Turn taking, turn by turn: from the stretches of sound in the log to one row per turn of an open microphone.

Times of sound decide. The server's messages divide a delay into parts, and say whether a reply that fell silent was cut
or over, which no sound can. What public benchmarks call the same things stands in docs/turn-taking.md.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, nan

import numpy as np
import pandas as pd

from harness.request_tables.stages import TALKER, VOCODER
from workloads.columns.duplex_events import EVENTS, TAKES_FLOOR

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
    """The log of one session, in order of time: stretches of both sides' sound, and the server's messages."""

    begins_s: dict[int, float] = field(default_factory=dict)
    utterances: dict[int, list[Stretch]] = field(default_factory=dict)
    beside: dict[int, Stretch] = field(default_factory=dict)
    agent: list[Stretch] = field(default_factory=list)
    sent_s: dict[str, float] = field(default_factory=dict)
    messages: list[tuple[float, str, float]] = field(default_factory=list)
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

    def reported_s(self, label: str, reply: str | None = None, since_s: float = -inf, by_s: float = inf) -> list[float]:
        """Return when the server reported it, of that reply where one is named."""
        return [
            t
            for t, event, value in self.messages
            if event == label
            and since_s <= t <= by_s
            and (reply is None or (value == value and str(int(value)) == reply))
        ]


def calls(events: pd.DataFrame) -> dict[int, Call]:
    kinds = events["kind"].astype(str).to_numpy()
    rows = events.loc[np.isin(kinds, _KINDS) & (events["session"] >= 0).to_numpy()]
    rows = rows.astype({"kind": str, "stage": str}).sort_values("t", kind="stable")
    by_session: dict[int, Call] = {}
    for event in rows.to_dict("records"):
        _note(by_session.setdefault(event["session"], Call()), **event)
    return by_session


def _note(call: Call, t: float, kind: str, session: int, turn: int, stage: str, value: float) -> None:
    stretch = Stretch(t - value, t, turn, stage)
    if kind == "turn_start":
        call.begins_s[turn] = t
    elif kind == "user_speech" and stage in SAYS:
        call.utterances.setdefault(turn, []).append(stretch)
    elif kind == "user_speech":
        call.beside[turn] = stretch
    elif kind == "agent_speech":
        call.agent.append(stretch)
    elif kind == "server_speech":
        call.sent_s[stage] = t
    elif kind == "told":
        call.messages.append((t, stage, value))
    elif kind == "reply_done":
        call.done.add(turn)
    elif stage not in (TALKER, VOCODER):
        call.served.append((t, kind))


def overlap_s(ones: Iterable[Stretch], others: Sequence[Stretch]) -> float:
    """Return how long both sides sound at once, s. Stretches of one side do not overlap."""
    return sum(max(0.0, min(a.end_s, b.end_s) - max(a.begin_s, b.begin_s)) for a in ones for b in others)


REACTION_S = 2.0
"""An agent that falls silent within so much of an event has done so because of it, and one that goes on within so much
has resumed. [chosen]"""
PARTS = ("endpointing_s", "network_s", "server_s", "playout_s")
"""Parts of the end-of-turn delay; they sum to it."""
SERVER_PARTS = ("queue_s", "prefill_s", "first_packet_s")
"""Parts of `server_s`, where the server's own log is at hand; they sum to it."""
COLUMNS = (
    "session", "turn", "said", "event", "user_end_s", "end_of_turn_delay_s", *PARTS, *SERVER_PARTS,
    "takeover", "cut_in", "happened", "interrupted", "gave_way", "stop_s", "stop_server_s",
    "stop_report_s", "resumed",
    "user_speech_s", "talk_over_s",
)  # fmt: skip
"""Columns of the table. NaN: does not apply to the turn, or is not known.

said             turn, interruption or correction: how the user came to speak
event            of the trace, "" where it has none; `happened`: 1 if it was heard while the agent had the floor
takeover         1 if a reply began to sound in the turn's pause or in the rest of the turn; of turns with a pause
cut_in           1 if one began to sound during the turn; of turns without
interrupted      1 if the agent's reply was cut and its sound over within 2 s of the event's begin
gave_way         of corrections: 1 if none began to sound during it, and one that did before was interrupted
end_of_turn_delay_s  infinite where no reply began before the user's next turn, NaN where one sounds at the turn's end
stop_s           begin of the event to the end of the cut reply's sound, at the listener; stop_server_s: as it arrived;
                 stop_report_s: to the server's message that cuts the reply; infinite where the reply was not cut
resumed          of false interruptions: 1 if the agent sounded again within 2 s, before the user's next turn
talk_over_s      both sounded, while the user spoke to the agent for `user_speech_s`
"""


def turn_taking_table(events: pd.DataFrame, turns: pd.DataFrame) -> pd.DataFrame:
    """One row for each turn that a user began, with `COLUMNS`, by session and turn.

    events  t (end of a stretch), kind, session, turn, stage (label), value (its length), times in s
    turns   session, turn, event, pause_s, network_s of the trace
    """
    names = ("session", "turn", "event", "pause_s", "network_s")
    planned = {(row[0], row[1]): row[2:] for row in zip(*(turns[name].tolist() for name in names), strict=True)}
    rows = [
        _row(session, turn, call, call.replies(), *planned[session, turn])
        for session, call in sorted(calls(events).items())
        for turn in sorted(call.begins_s)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _row(
    session: int, turn: int, call: Call, replies: dict[str, Stretch], event: str, pause_s: float, network_s: float
) -> dict[str, object]:
    stretches = call.utterances.get(turn, [])
    whole = len(stretches) == (2 if pause_s > 0 else 1)
    begin_s, next_s = call.begins_s[turn], call.begins_s.get(turn + 1, inf)
    row: dict[str, object] = dict.fromkeys(COLUMNS, nan)
    row |= {"session": session, "turn": turn, "said": stretches[0].label if stretches else "", "event": event}
    row["talk_over_s"] = overlap_s(stretches, call.agent)
    row["user_speech_s"] = sum(one.end_s - one.begin_s for one in stretches)
    answer = None
    if whole:
        end_s = stretches[-1].end_s
        row["user_end_s"] = end_s
        began = [one.begin_s for one in replies.values() if one.begin_s < end_s]
        if pause_s > 0:
            row["takeover"] = float(any(at >= stretches[0].end_s for at in began))
        elif row["said"] != "correction":
            row["cut_in"] = float(any(at >= begin_s for at in began))
        answer = min(
            (one for one in replies.values() if end_s <= one.begin_s < next_s),
            key=lambda one: one.begin_s,
            default=None,
        )
        if answer is not None:
            row["end_of_turn_delay_s"] = answer.begin_s - end_s
            row |= _parts(call, answer, begin_s, end_s, network_s)
        elif not any(one.begin_s < end_s < one.end_s for one in replies.values()):
            row["end_of_turn_delay_s"] = inf
    if event in EVENTS:
        row |= _reaction(call, replies, answer, turn, event, next_s)
    return row


def _parts(call: Call, answer: Stretch, begin_s: float, end_s: float, network_s: float) -> dict[str, float]:
    """Return the parts of the delay to an answer, s; {} unless the server has reported when it took this turn as
    over."""
    packets_s = call.reported_s("first_packet", answer.label)
    begun_s = min(call.reported_s("reply_begun", answer.label), default=packets_s[0] if packets_s else nan)
    committed_s = max(call.reported_s("committed", since_s=begin_s, by_s=begun_s), default=nan)
    if not packets_s or committed_s != committed_s:
        return {}
    first_s = packets_s[0]
    parts = {"server_s": first_s - committed_s, "playout_s": answer.begin_s - first_s}
    seen = [at for at in call.served if at[0] <= first_s]
    arrive_s = max((t for t, kind in seen if kind == "arrive"), default=nan)
    start_s = min((t for t, kind in seen if kind == "start" and t >= arrive_s), default=nan)
    token_s = min((t for t, kind in seen if kind == "token" and t >= start_s), default=nan)
    if token_s == token_s:  # on the server's clock, which is the client's; the way there and back is known
        parts |= {"queue_s": start_s - arrive_s, "prefill_s": token_s - start_s, "network_s": 2 * network_s}
        parts["first_packet_s"] = parts["server_s"] - parts["queue_s"] - parts["prefill_s"]
    return parts | {"endpointing_s": committed_s - end_s - parts.get("network_s", 0.0)}


def _reaction(
    call: Call, replies: dict[str, Stretch], answer: Stretch | None, turn: int, event: str, next_s: float
) -> dict[str, float]:
    words = [one for one in call.utterances.get(turn + 1, []) if one.label == event]
    heard = words[0] if words else call.beside.get(turn) if event not in TAKES_FLOOR else None
    if heard is None:
        return {"happened": 0.0}
    at_s = heard.begin_s
    reply = next((one for one in replies.values() if one.begin_s <= at_s < one.end_s), None)
    reaction = {"happened": float(reply is not None)}
    if reply is not None:
        reported_s = call.reported_s("stopped", reply.label, since_s=at_s)
        cut = bool(reported_s) or (reply == answer and turn not in call.done)
        stop_s = reply.end_s - at_s
        reaction["interrupted"] = float(cut and stop_s <= REACTION_S)
        reaction |= {"stop_s": inf, "stop_server_s": inf, "stop_report_s": inf}
        if cut:
            reaction["stop_s"] = stop_s
            reaction["stop_server_s"] = max(call.sent_s.get(reply.label, nan) - at_s, 0.0)
            reaction["stop_report_s"] = next(iter(reported_s), nan) - at_s
        if event not in TAKES_FLOOR and reaction["interrupted"]:
            by_s = min(reply.end_s + REACTION_S, next_s)
            reaction["resumed"] = float(any(reply.end_s < one.begin_s <= by_s for one in call.agent))
    if event == "correction":
        began = any(at_s <= one.begin_s < words[-1].end_s for one in replies.values())
        reaction["gave_way"] = float(not began and reaction.get("interrupted", 1.0) > 0)
    return reaction
