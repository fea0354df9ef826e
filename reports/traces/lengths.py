"""Lengths of prompts, replies, speech, pauses and conversations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from reports.figures.drawing import legend, plain_log, sheet
from reports.figures.picture import LeftOut, Picture
from reports.traces.numbers import short
from reports.traces.trace_figures import Shown
from workloads.statistics.describe import quantities

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME, TITLE = "lengths", "Lengths"
LABELS = {
    "input_tokens": "new tokens of a turn",
    "visual_tokens": "of these images and video",
    "context_tokens": "tokens of context before a turn",
    "output_tokens": "tokens of a reply",
    "turns_per_session": "turns of a session",
    "audio_s": "user's speech in a turn, s",
    "reply_audio_s": "spoken reply, s",
    "think_s": "pause before a turn, s",
    "barge_in_after_s": "drawn interruption after first audio, s",
    "network_s": "one-way network delay, s",
}
BINS = (10, 36)
"""Fewest and most bins; more for more values."""
LINEAR = 60
"""Number of turns up to which sessions are drawn on a linear axis."""


def draw(traces: Sequence[Shown]) -> Picture | LeftOut:
    """A histogram per quantity over a logarithmic axis, with median and P99."""
    values = [{name: v[v > 0] for name, v in quantities(one.trace).items()} for one in traces]
    candidates = [name for name in LABELS if len(values[0][name])]
    names = [name for name in candidates if len(np.unique(np.concatenate([one[name] for one in values]))) > 1]
    same = [f"{LABELS[name]} {short(float(values[0][name][0]))}" for name in candidates if name not in names]
    if not names:
        return LeftOut(NAME, TITLE, f"nothing differs: {'; '.join(same)}")
    figure, panels = sheet(len(names), TITLE, 2.15, 3)
    for name, panel in zip(names, panels, strict=True):
        _histogram(panel, [one[name] for one in values], traces, name)
        panel.set_xlabel(LABELS[name])
    for panel in panels[::3]:
        panel.set_ylabel("share, %")
    if len(traces) > 1:
        from matplotlib.patches import Patch

        handles = [Patch(color=one.colour, label=one.label) for one in traces]
        legend(figure, *handles, ncols=2)
    caption = (
        "Share of turns (of sessions for their turns; of turns that have one, for speech, pauses and "
        "interruptions) in bins of equal width on a logarithmic axis; values of 0 are left out. "
        "Lines: median and, dotted, P99."
    )
    if same:
        caption += f" The same everywhere: {'; '.join(same)}."
    return Picture(NAME, TITLE, figure, caption)


def _histogram(panel: Axes, samples: Sequence[np.ndarray], traces: Sequence[Shown], name: str) -> None:
    pooled = np.concatenate(samples)
    edges, width = _bins(pooled, len(samples[0]), name)
    for index, (one, sample) in enumerate(zip(traces, samples, strict=True)):
        if not len(sample):
            continue
        share = 100 * width * np.histogram(sample, edges)[0] / len(sample)
        panel.stairs(share, edges, color=one.colour, fill=index == 0, alpha=0.45 if index == 0 else 1, lw=1.4)
        for quantile, dashes in ((50, (0, ())), (99, (0, (2, 2)))):
            panel.axvline(float(np.percentile(sample, quantile)), color=one.colour, lw=1.1, ls=dashes)
    if name != "turns_per_session" or pooled.max() > LINEAR:
        panel.set_xscale("log")
        plain_log(panel.xaxis)
    median, tail = np.percentile(samples[0], (50, 99)).tolist()
    panel.set_title(f"P50 {short(median)}, P99 {short(tail)}", fontsize=9)
    panel.set_ylim(bottom=0)


def _bins(values: np.ndarray, n: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Edges, and the factor that makes bins of whole numbers as wide as the others."""
    low, high = values.min(), values.max()
    count = int(np.clip(2 * n ** (1 / 3), *BINS))
    edges = np.geomspace(low * 0.97, high * 1.03, count + 1)
    if name == "turns_per_session" and high <= LINEAR:
        return np.arange(1, int(high) + 2) - 0.5, np.ones(int(high))
    if not name.endswith("_s"):
        wide = np.log(edges[1] / edges[0])
        edges = np.unique(np.r_[np.rint(edges), np.rint(high) + 1]) - 0.5
        return edges, wide / np.diff(np.log(edges))
    return edges, np.ones(count)
