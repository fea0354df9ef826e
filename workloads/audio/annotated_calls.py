"""Traces of recorded and annotated calls: the output of their loaders as turns and sounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from workloads.audio.excerpts import Excerpt
from workloads.audio.library import Recording
from workloads.columns.duplex_events import Event
from workloads.distributions import arrivals, lengths, speech
from workloads.seeds import Streams
from workloads.trace import Trace
from workloads.workload_params import UserParams

Span = tuple[float, float]
"""Begin and end, in s of the recording."""


class AnnotatedParams(UserParams):
    path: Path = Field(description="folder of the recordings with their annotations")
    sessions: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="number of calls, from the first again where there are fewer; none: each once",
    )
    rate: float = Field(2.0, ge=1e-6, le=1e6, description="arriving calls per second, Poisson")


@dataclass(frozen=True, slots=True)
class HeardTurn:
    """One turn of the user.

    pause          the longest silence in it that is a hesitation
    event          and when it begins after the reply's first sound (a correction: after the turn)
    event_span     its sound; None: it is the next turn's
    reply_s        length of the other's reply; None: none is recorded, and one is drawn
    think_s        from the end of the turn before it, and of the reply to that
    """

    span: Span
    pause: Span | None = None
    event: Event | None = None
    event_after_s: float = 0.0
    event_span: Span | None = None
    reply_s: float | None = None
    think_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HeardCall:
    recording: Recording
    turns: Sequence[HeardTurn]


def annotated_trace(
    calls: Sequence[HeardCall], params: AnnotatedParams, seed: int, generator: str, notes: Sequence[str]
) -> Trace:
    """One session for each call, or as many as are asked for; replies that were not recorded as in workload voice."""
    streams = Streams(seed)
    count = params.sessions or len(calls)
    session_calls = [(session, calls[session % len(calls)]) for session in range(count)]
    rows = [
        (session, at, call, turn) for session, call in session_calls for at, turn in enumerate(call.turns)
    ]
    model = lengths.SPOKEN_REPLY
    tokens = model.sample(streams("replies"), len(rows))
    drawn_s = (
        tokens * speech.speech_rate(streams("reply_speech_rate"), count)[[session for session, *_ in rows]]
    )
    starts = arrivals.poisson(streams("arrivals"), params.rate, count)
    delays = speech.network_delays(streams("jitter"), params.network_ms, count)
    columns: dict[str, list[Any]] = {}
    excerpt_notes: list[str] = []
    for (session, at, call, turn), reply_tokens, reply_s in zip(
        rows, tokens.tolist(), drawn_s.tolist(), strict=True
    ):
        own = Excerpt(call.recording, *map(_ms, turn.span))
        excerpt_notes.append(own.note("turn", session, at))
        event_s = np.nan
        if turn.event is not None:
            span = turn.event_span or call.turns[at + 1].span
            sound = Excerpt(call.recording, *map(_ms, span))
            event_s = sound.seconds
            if turn.event_span:
                excerpt_notes.append(sound.note("event", session, at))
        if turn.reply_s is not None:
            reply_s, reply_tokens = turn.reply_s, max(1, round(turn.reply_s / speech.SPEECH_S_PER_TOKEN))
        pause_begin_s, pause_end_s = turn.pause or (np.nan, np.nan)
        row = {
            "session": session,
            "turn": at,
            "arrival_s": starts[session] if at == 0 else np.nan,
            "modality": "audio",
            "input_tokens": int(speech.audio_tokens(np.array(own.seconds))),
            "audio_s": own.seconds,
            "output_tokens": reply_tokens,
            "reply_audio_s": reply_s,
            "think_s": turn.think_s if at else np.nan,
            "network_s": delays[session],
            "pause_after_s": round(pause_begin_s - own.begin_s, 3),
            "pause_s": round(pause_end_s - pause_begin_s, 3),
            "event": turn.event or "",
            "event_after_s": turn.event_after_s if turn.event else np.nan,
            "event_s": event_s,
        }
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    if any(turn.reply_s is None for call in calls for turn in call.turns):
        notes = [*notes, f"replies that are not recorded: {model}"]
    return Trace.made(generator, params, streams, columns, [*notes, *excerpt_notes])


def _ms(t: float) -> float:
    return round(t, 3)
