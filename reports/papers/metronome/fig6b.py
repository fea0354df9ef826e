"""Fig. 6b: the windowed plateau is linear in N, and extrapolates to a ceiling of memory."""

import math
from statistics import linear_regression
from typing import Any

import numpy as np

from reports.claims.bands import of_digits
from reports.claims.quantities import Panels, Values, of, ratio
from reports.claims.stated import claim, level, same
from reports.figures.forms import figure, lines
from reports.figures.frames import finished
from reports.figures.style import INK, MUTED, engine_looks
from reports.papers.metronome.calls import OURS, SEEDS, STILL, calls

TITLE = "Fig. 6b: the plateau of windowed KV over N, W = 1024"

NS = [32, 64, 96, 128, 160, 192]
_PANEL, _STILL = "W = 1024", "W = 1024, steps without spread"
EXPERIMENTS = {
    _PANEL: calls("fig6b", [OURS], {"sessions": NS}, duration_s=120.0, seeds=SEEDS[:3]),
    _STILL: calls("fig6b", [OURS], sessions=128, duration_s=120.0, **STILL),
}
QUICK = {"sessions": "32,96", "duration_s": "90"}

PAPER = {"slope": 0.002, "ceiling": 500}


def fitted(panels: Panels) -> dict[int, tuple[float, float]]:
    """Slope and intercept of the plateau over N, by seed; a seed needs two N."""
    plateaus: dict[int, dict[int, float]] = {}
    for point in finished(panels[_PANEL].points if _PANEL in panels else []):
        if (plateau := point.value("pool_plateau")) is not None:
            plateaus.setdefault(point.seed, {})[point.params["sessions"]] = plateau
    return {
        seed: linear_regression(list(by_n), list(by_n.values())) for seed, by_n in plateaus.items() if len(by_n) > 1
    }


def _ceiling(panels: Panels) -> Values:
    return {seed: (1 - start) / slope if slope else math.inf for seed, (slope, start) in fitted(panels).items()}


_POOL = "the pool's 32,500 blocks were derived from the paper's shares; each session holds 64 to 66 of them"

CLAIMS = {
    "fig6b-ceiling": claim(
        "sessions at which memory would end",
        level(500.0, within=of_digits(100.0), words="about 500"),
        _ceiling,
        fitted=_POOL,
    ),
    "fig6b-spread": claim(
        "(ours) the plateau of 128 sessions is the same if steps have no spread (over that with 0.7 %)",
        same(0.01),
        ratio("pool_plateau", of(_STILL, OURS), to=of(_PANEL, OURS, sessions=128)),
        "windows fill with tokens and not with time",
    ),
}


def _fits(axes: Any, panels: Panels) -> None:
    """The straight line through the plateaus, and the paper's."""
    for slope, start in [np.median(list(by_seed.values()), axis=0)] if (by_seed := fitted(panels)) else []:
        reach = (1 - start) / slope
        through = {"color": INK, "ls": (0, (1, 2)), "label": "straight line through them"}
        axes.plot([0, reach], [start, 1], lw=1, **through)
        text = f"ceiling: {reach:.0f} sessions"
        axes.annotate(text, (reach, 1), (-4, -62), textcoords="offset points", ha="right", color=INK)
    published = {"color": MUTED, "ls": (0, (5, 2)), "label": "paper: 0.2 % a session"}
    axes.plot([0, 1 / PAPER["slope"]], [0, 1], lw=1, **published)


draw = figure(
    TITLE,
    lines(
        "pool_plateau",
        {"plateau": {n: of(_PANEL, OURS, sessions=n) for n in NS}},
        style={"plateau": engine_looks("vllm_realtime", OURS)[OURS]},
        extra=_fits,
        across={1: ""},
        percent=(0, 1.04),
        xlim=(0, None),
        xlabel="sessions N",
        ylabel="KV pool in use, last third of the run",
    ),
    caption="Each session keeps at most its window, so the pool in use settles at N times a fixed share; the "
    "line shows the number of sessions that memory alone would carry.",
)
