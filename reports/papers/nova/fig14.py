"""Fig. 14: passes of vision and decode while screenshots pile up."""

from typing import Any

import numpy as np
from scipy.stats import spearmanr

from reports.claims.quantities import Panels, value
from reports.claims.stated import claim, level
from reports.figures.forms import picture
from reports.figures.frames import finished
from reports.figures.style import MUTED, STAGES
from reports.papers.nova.common import OURS, SERVED, at, gui, steps
from reports.runs.measured import Measured

TITLE = "Fig. 14: passes of vision and decode as screenshots queue up and are processed"

RATE, DRAWN = 0.7, 0.6
"""[chosen] Rate of the claim, and rate of the picture, requests/s: the paper names none. At 0.7 some request always
waits."""
EXPERIMENTS = {SERVED: gui("served", [OURS], [DRAWN, RATE])}
QUICK = {"requests": "120"}

WINDOW_S = 60.0
"""Time that the picture shows before and after the peak of pending requests, s. [chosen]"""
ALIKE_S = 1e-9
"""Within which the clock rounds."""


def pending_at(point: Measured, t_s: Any) -> Any:
    """Requests in vision or prefill, waiting or in a pass, at each of these times."""
    prefill = steps(point, "prefill")
    arrived, prefilled = point.kinds("arrive")["t"], prefill["t_s"] + prefill["dt_s"]
    before, behind = (np.searchsorted(np.sort(each), t_s + ALIKE_S, "right") for each in (arrived, prefilled))
    return before - behind


def quickens(point: Measured) -> float | None:
    """Return the rank correlation of the seconds of a vision pass during decode with the requests pending at its
    begin."""
    vision, prefill = (steps(point, stage) for stage in ("vision", "prefill"))
    moments = point.kinds("finish")["t"], prefill["t_s"] + prefill["dt_s"]
    finished, prefilled = (np.searchsorted(np.sort(each), vision["t_s"] + ALIKE_S, "right") for each in moments)
    beside = prefilled > finished
    correlation: Any = spearmanr(
        vision["dt_s"].to_numpy()[beside], np.asarray(pending_at(point, vision["t_s"]))[beside]
    )
    return float(correlation.statistic)


CLAIMS = {
    "fig14-quickens": claim(
        "vision gets quicker as requests queue up (rank correlation of passes during decode, at 0.7)",
        level((-1.0, -0.3), words="falls", neutral=0),
        value(quickens, at(RATE)),
    )
}


@picture(TITLE, 3, 1.7, 1, points=lambda panels: finished(at(DRAWN).points(panels))[:1], sharex=True)
def draw(panels: Panels, *axes: Any) -> str:
    """Draw three panels: pending requests, each pass's time over its stage's longest, and each pass's SMs."""
    point = finished(at(DRAWN).points(panels))[0]
    vision, decode = steps(point, "vision"), steps(point, "decode")
    pending = np.asarray(pending_at(point, vision["t_s"]))
    peak_s = float(vision["t_s"].iloc[int(np.argmax(pending))])
    every = np.arange(max(0.0, peak_s - WINDOW_S), peak_s + WINDOW_S, 0.05)
    axes[0].fill_between(every, pending_at(point, every), step="post", color=MUTED, alpha=0.35, lw=0)
    for name, passes, colour in (("vision", vision, STAGES[0]), ("decode", decode, STAGES[1])):
        near = passes.loc[(passes["t_s"] >= every[0]) & (passes["t_s"] <= every[-1])]
        how = {"color": colour, "marker": "o" if name == "vision" else ".", "ms": 3.5, "lw": 0.8}
        axes[1].plot(near["t_s"], near["dt_s"] / near["dt_s"].max(), **how, label=f"passes of {name}")
        axes[2].plot(near["t_s"], near["sms"], **how)
    labels = ("requests pending", "time of a pass,\nover its longest", "SMs that it has")
    for ax, label in zip(axes, labels, strict=True):
        ax.set(ylim=(0, None), ylabel=label)
    axes[2].set(xlabel="elapsed time, s", xlim=(every[0], every[-1]))
    return f"{DRAWN} requests/s. Pending: in vision or prefill. Without decode, vision has all SMs."
