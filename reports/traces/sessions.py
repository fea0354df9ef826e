"""The first sessions as their users would live through them if the server answered at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reports.figures.drawing import legend, plain, sheet
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import BROKEN, SPEECH
from reports.traces.trace_figures import OURS, Shown
from workloads.transforms.nominal import nominal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME, TITLE = "sessions", "The first sessions"
SESSIONS = 20
_HEIGHT = 0.62


def draw(traces: Sequence[Shown]) -> Picture | LeftOut:
    """A lane per session: speech, replies and interruptions on the nominal timeline."""
    trace = traces[0].trace
    columns, timeline = trace.columns(), nominal(trace)
    lanes = np.cumsum(columns["turn"] == 0) - 1  # sessions in order of their arrival
    rows = np.flatnonzero(lanes < SESSIONS)
    count = int(lanes[rows].max()) + 1
    if timeline.end_s[rows].max() == timeline.start_s[rows].min():
        return LeftOut(NAME, TITLE, "its first sessions are typed and sent at one instant")
    figure, (panel,) = sheet(1, TITLE, 0.6 + 0.19 * max(count, 6), 1)
    spoken, voiced = columns["audio_s"][rows] > 0, columns["reply_audio_s"][rows] > 0
    start, speech_end, end = (values[rows] for values in (timeline.start_s, timeline.said_s, timeline.end_s))
    cut, lane = timeline.interrupted[rows], lanes[rows]
    _bars(panel, lane[spoken], start[spoken], speech_end[spoken], color=SPEECH)
    _bars(panel, lane[voiced], speech_end[voiced], end[voiced], color=OURS, alpha=0.55)
    panel.plot(start[~spoken], lane[~spoken], "o", ms=4, mfc="white", mec=SPEECH, mew=1.4)
    panel.plot(end[cut], lane[cut], marker="|", ms=9, mew=2, ls="none", color=BROKEN)
    plain(panel.xaxis)
    panel.set_yticks(range(count), [str(id) for id in dict.fromkeys(columns["session"][rows].tolist())])
    panel.set(ylim=(count - 0.4, -0.6), xlabel="time since the start of the trace, s", ylabel="session")
    edge = _edge(start, end, columns["turn"][rows] == 0)
    beyond = int(np.sum(start > edge))
    margin = 0.01 * (edge - start.min())
    panel.set_xlim(start.min() - margin, edge + margin)
    panel.grid(axis="y", visible=False)
    legend(figure, *_legend(spoken, voiced, cut))
    caption = (
        f"The {count} sessions that arrive first, on the nominal timeline: the server answers at once, and a "
        "reply takes as long as it plays. Real replies come later, and with them what follows by a pause. "
        "Interruptions drawn beyond the end of their reply come too late and are not shown. "
        f"n = {len(rows)} turns{f', {beyond} of them beyond the right edge' if beyond else ''}."
    )
    return Picture(NAME, TITLE, figure, caption)


def _edge(start: np.ndarray, end: np.ndarray, opening: np.ndarray) -> float:
    """Return the right end of the picture: a session that comes back days later must not squeeze the others."""
    last = np.append(np.flatnonzero(opening)[1:], len(opening)) - 1
    usual = 5 * float(np.percentile(end[last] - start[opening], 75))
    return min(float(end.max()), float(start[opening].max()) + max(usual, 1.0))


def _bars(panel: Axes, lane: np.ndarray, begin: np.ndarray, end: np.ndarray, **style: Any) -> None:
    panel.barh(lane, end - begin, left=begin, height=_HEIGHT, **style)


def _legend(spoken: np.ndarray, voiced: np.ndarray, cut: np.ndarray) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    if spoken.any():
        handles.append(Patch(color=SPEECH, label="user speaks"))
    if not spoken.all():
        handles.append(Line2D([], [], marker="o", ls="none", mfc="white", mec=SPEECH, mew=1.4, label="user types"))
    if voiced.any():
        handles.append(Patch(color=OURS, alpha=0.55, label="reply plays"))
    if cut.any():
        handles.append(Line2D([], [], marker="|", ls="none", ms=9, mew=2, color=BROKEN, label="user interrupts"))
    return handles
