"""The sound that one user sends, where a detector hears speech in it, and where the user interrupts."""

from collections.abc import Sequence

import numpy as np

from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import BROKEN, SPEECH
from reports.traces.trace_figures import OURS, Shown
from workloads.audio.vad import RATE, segments_of
from workloads.columns.duplex_events import TAKES_FLOOR
from workloads.errors import UserError
from workloads.generators.content import event_pcm, pcm_for
from workloads.statistics.describe import SYNTHETIC_SPEECH
from workloads.trace import Columns, Trace, Turn
from workloads.transforms.nominal import Timeline, nominal

NAME, TITLE = "waveform", "What one user sends"
LONGEST_S = 40.0
"""Longest part of a session that is drawn, so that single words can be seen."""
ENVELOPE_S = 0.01


def draw(traces: Sequence[Shown]) -> Picture | LeftOut:
    """The microphone of one session over the nominal timeline; LeftOut for a trace without sound."""
    trace = traces[0].trace
    columns, timeline = trace.columns(), nominal(trace)
    if not (columns["audio_s"] > 0).any():
        return LeftOut(NAME, TITLE, "its users type")
    rows = _session(columns, timeline)
    try:
        sound = [_sound(trace, turn) for turn in _turns(trace, columns, rows)]
        heard = [segments_of(pcm) for pcm in sound]
        beside = [_beside(trace, turn) for turn in _turns(trace, columns, rows)]
    except UserError as error:
        return LeftOut(NAME, TITLE, str(error).rstrip("."))
    origin = timeline.start_s[rows[0]]
    figure, (panel,) = sheet(1, TITLE, 2.6, 1)
    peak = max(float(np.abs(pcm.astype(float)).max()) for pcm in sound) or 1.0
    for row, pcm, stretches, event in zip(rows, sound, heard, beside, strict=True):
        begin, speech_end, end = (float(t[row] - origin) for t in (timeline.start_s, timeline.said_s, timeline.end_s))
        low, high = _envelope(pcm / peak)
        at = begin + ENVELOPE_S * np.arange(len(low))
        panel.fill_between(at, low, high, color=SPEECH, lw=0.4, label="user's sound")
        if event is not None:
            low, high = _envelope(event / peak)
            at = speech_end + columns["event_after_s"][row] + ENVELOPE_S * np.arange(len(low))
            panel.fill_between(at, low, high, color="#e69f00", lw=0.4, label="outside turns")
        for stretch in stretches:
            span = [begin + stretch.start_s, begin + stretch.end_s]
            panel.plot(span, [1.18, 1.18], color="#009e73", lw=4, solid_capstyle="butt", label="speech (webrtcvad)")
        panel.barh(-1.22, end - speech_end, left=speech_end, height=0.16, color=OURS, alpha=0.55, label="reply plays")
        if timeline.interrupted[row]:
            panel.axvline(end, color=BROKEN, lw=1.4, ls=(0, (4, 2)), label="user interrupts")
    panel.set(xlabel="time since the session began, s", ylabel="amplitude", ylim=(-1.4, 1.35))
    panel.set(xlim=(-0.2, float(timeline.end_s[rows[-1]] - origin) + 0.2), yticks=[])
    legend(figure)
    return Picture(NAME, TITLE, figure, _caption(trace, columns, rows))


def _session(columns: Columns, timeline: Timeline) -> np.ndarray:
    """Rows of the first session that is interrupted within the drawn time, else of the first that speaks."""
    first_row = np.flatnonzero(columns["turn"] == 0)[np.cumsum(columns["turn"] == 0) - 1]
    since = timeline.end_s - timeline.start_s[first_row]
    fits = since <= LONGEST_S
    followed = np.r_[first_row[1:] == first_row[:-1], False]
    for wanted in (timeline.interrupted & fits & followed & np.roll(fits, -1), timeline.interrupted & fits, fits):
        chosen = np.flatnonzero(wanted & (columns["audio_s"] > 0))
        if len(chosen):
            rows = np.flatnonzero((first_row == first_row[chosen[0]]) & (columns["audio_s"] > 0))
            return rows[fits[rows]]
    return np.flatnonzero(columns["audio_s"] > 0)[:1]


def _turns(trace: Trace, columns: Columns, rows: np.ndarray) -> list[Turn]:
    """The turns at these rows, which are all of one session."""
    session = next(one for one in trace.sessions if one.id == columns["session"][rows[0]])
    return [session.turns[index] for index in columns["turn"][rows].tolist()]


def _sound(trace: Trace, turn: Turn) -> np.ndarray:
    """int16 at `RATE` of one turn."""
    return np.frombuffer(b"".join(pcm_for(trace, turn, RATE)), "<i2")


def _beside(trace: Trace, turn: Turn) -> np.ndarray | None:
    """Return the same for the sounds over its reply."""
    if turn.microphone.event is None or turn.microphone.event in TAKES_FLOOR:
        return None
    return np.frombuffer(b"".join(event_pcm(trace, turn, RATE)), "<i2")


def _envelope(sound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest sample in steps of `ENVELOPE_S`."""
    step = round(ENVELOPE_S * RATE)
    frames = np.pad(sound, (0, -len(sound) % step)).reshape(-1, step)
    return frames.min(axis=1), frames.max(axis=1)


def _caption(trace: Trace, columns: Columns, rows: np.ndarray) -> str:
    voice = next((note for note in trace.header.notes if SYNTHETIC_SPEECH in note.lower()), "recorded speech")
    session, first, last = columns["session"][rows[0]], columns["turn"][rows[0]], columns["turn"][rows[-1]]
    return (
        f"Session {session}, turns {first} to {last}, as its user's microphone sends them on the "
        "nominal timeline (the server answers at once). Above: speech found by the detector; below: "
        f"the reply while it plays. {voice[0].upper()}{voice[1:].rstrip('.')}."
    )
