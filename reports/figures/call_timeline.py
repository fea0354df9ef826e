"""One call with both channels: who speaks when, as waveforms if the sound was kept, and the server's events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from harness.records.saved_calls import CALL, session_of
from harness.request_tables.turn_taking_table import SAYS
from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture, at, line_handle, patch_handle
from reports.figures.style import BROKEN, INK, MUTED, SPEECH, looks
from reports.runs.measured import Measured, Run
from reports.tables.labels import setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "call_timeline"
LONGEST_S = 40.0
"""Longest part of a call that is drawn, so that a backchannel can be seen. [chosen]"""
MOST = 4
"""Variants that are drawn. [chosen]"""
ENVELOPE_S = 0.02
USER, AGENT = 1.0, 0.0
"""Heights of the channels."""
_HALF = 0.36
_BESIDE = {"backchannel": "#e69f00", "side_speech": "#56b4e9", "background_speech": "#cc79a7", "noise": "#a08a5b"}
_TOLD = {"committed": ("v", INK), "stopped": ("X", BROKEN)}


def draw(run: Run) -> Picture | LeftOut:
    title = "One call, both channels"
    finished = [run.at(variant, **at(run, (), c=run.top)) for variant in run.variants[:MOST]]
    points = [next((point for point in runs if point.error is None), None) for runs in finished]
    shown = [point for point in points if point is not None]
    spoken = [point.kinds("user_speech") for point in shown]
    if not shown or any(one.empty for one in spoken):
        return LeftOut(NAME, title, "no finished point has a log of speech")
    kept = {session_of(path) for point in shown for path in saved_calls(point)}
    session = _chosen(spoken, kept)
    figure, axes = sheet(len(shown), title, 2.0, 1, sharex=True, sharey=True)
    colours = looks(run.variants)
    drawn: set[str] = set()
    for point, panel in zip(shown, axes, strict=True):
        drawn |= _call(panel, point, session, colours[point.variant].colour)
        panel.set_title(point.variant.label, color=colours[point.variant].colour, weight="bold")
    axes[-1].set_xlabel("time since the user began to speak, s")
    legend(figure, *_legend(drawn), ncols=5)
    caption = (
        "Above: the user's microphone; below: the agent as heard; red: the agent sounds while the "
        "user speaks to it. Triangle: the server reports the end of a turn; cross: it cuts its reply. "
        + ("Waveforms are of the sound that was kept. " if "waveform" in drawn else "")
        + f"Of {'the kept calls' if kept else 'the calls of all variants'} it is the first one with the "
        f"most kinds of events within {LONGEST_S:g} s: session {session}, "
        f"{setting(at(run, (), c=run.top))}, seed {shown[0].seed}; n = 1."
    )
    return Picture(NAME, title, figure, caption)


def saved_calls(point: Measured) -> list[Path]:
    """The sound of its calls that was kept, in the order of their sessions."""
    return sorted(point.record.folder.glob(f"{CALL}*.flac"), key=session_of)


def _chosen(spoken: Sequence[pd.DataFrame], kept: set[int]) -> int:
    """The session with the most kinds of the user's sounds within the drawn time, summed over variants; one that was
    kept, where any was."""
    kinds: dict[int, int] = {}
    for events in spoken:
        session, label = events["session"].to_numpy(), events["stage"].astype(str).to_numpy()
        begins = events["t"].to_numpy(float) - events["value"].to_numpy(float)
        for one in kept.intersection(session.tolist()) or np.unique(session).tolist():
            of_session = session == one
            early = of_session & (begins < begins[of_session].min() + LONGEST_S)
            kinds[one] = kinds.get(one, 0) + len(set(label[early].tolist()))
    return max(sorted(kinds), key=lambda session: kinds[session])


def _call(panel: Axes, point: Measured, session: int, colour: str) -> set[str]:
    """Draw the call and return the labels to explain."""
    events = point.events(session)
    kind, label = events["kind"].astype(str), events["stage"].astype(str)
    ends, lengths = events["t"].to_numpy(float), events["value"].to_numpy(float)
    user, agent = (kind == "user_speech").to_numpy(), (kind == "agent_speech").to_numpy()
    origin = float((ends - lengths)[user].min())
    begins, ends = ends - lengths - origin, ends - origin
    spans = list(zip(begins.tolist(), ends.tolist(), strict=True))
    drawn: set[str] = set()
    sound = saved_call(point, session, float(begins[user].min()))
    for row in np.flatnonzero(user):
        name = label.iloc[row]
        bar_colour = SPEECH if name in SAYS else _BESIDE.get(name, MUTED)
        _bar(panel, USER, *spans[row], color=bar_colour, alpha=0.35 if sound else 1.0)
        drawn.add("turn" if name in SAYS else name)
    turns = user & label.isin(SAYS).to_numpy()
    for row in np.flatnonzero(agent):
        _bar(panel, AGENT, *spans[row], color=colour, alpha=0.35 if sound else 1.0)
        for other in np.flatnonzero(turns):
            low, high = max(begins[row], begins[other]), min(ends[row], ends[other])
            if low < high:
                panel.fill_between([low, high], AGENT - _HALF, USER + _HALF, color=BROKEN, alpha=0.45, lw=0, zorder=1)
                drawn.add("talk-over")
    for at_s, waves in sound or ():
        for side, waveform in zip((USER, AGENT), waves, strict=True):
            panel.fill_between(at_s, side - _HALF * waveform, side + _HALF * waveform, color=INK, lw=0.2, zorder=4)
        drawn.add("waveform")
    for name, (marker, mark) in _TOLD.items():
        times = ends[(kind == "told").to_numpy() & (label == name).to_numpy()]
        height = USER - 0.5 if name == "committed" else AGENT - 0.5
        panel.plot(times, np.full(times.size, height), marker, color=mark, ms=5, ls="none", zorder=5)
        drawn |= {name} if times.size else set()
    panel.set_yticks([AGENT, USER], ["agent", "user"])
    panel.set_ylim(AGENT - 0.7, USER + 0.55)
    panel.set_xlim(-0.5, min(LONGEST_S, float(np.nanmax(ends[user | agent]))) + 0.3)
    panel.grid(axis="y", visible=False)
    return drawn


def saved_call(point: Measured, session: int, first_s: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Times in s and the loudest of each 20 ms of both sides, from 0 to 1, where the call was kept.

    The file's clock is set by the user's first sound, which is where the log has it.
    """
    path = next((path for path in saved_calls(point) if session_of(path) == session), None)
    if path is None:
        return []
    import soundfile

    samples, rate = soundfile.read(path, always_2d=True)
    size = round(ENVELOPE_S * rate)
    frames = np.abs(samples[: len(samples) // size * size]).reshape(-1, size, samples.shape[1]).max(axis=1)
    loud = frames[:, 0] > 0.05 * frames[:, 0].max(initial=0)
    if samples.shape[1] != 2 or not loud.any():
        return []
    times_s = ENVELOPE_S * (np.arange(len(frames)) - int(np.argmax(loud))) + first_s
    return [(times_s, (frames / np.maximum(frames.max(axis=0), 1e-9)).T)]


def _bar(panel: Axes, height: float, begin: float, end: float, **style: Any) -> None:
    panel.barh(height, max(end - begin, 0.02), left=begin, height=2 * _HALF, lw=0, zorder=2, **style)


def _legend(drawn: set[str]) -> list[Any]:
    colours = {"turn": SPEECH, **_BESIDE}
    handles: list[Any] = [
        patch_handle(color=colour, label="user's turn" if name == "turn" else name.replace("_", " "))
        for name, colour in colours.items()
        if name in drawn
    ]
    if "talk-over" in drawn:
        handles.append(patch_handle(color=BROKEN, alpha=0.45, label="both at once"))
    return handles + [
        line_handle(marker=marker, color=mark, ms=5, ls="none", label=f"told: {name}")
        for name, (marker, mark) in _TOLD.items()
        if name in drawn
    ]
