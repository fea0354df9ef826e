"""Fig. 4a: bursts of 90 s at growing concurrency do not reach the capacity under either policy."""

from typing import Any

from reports.claims.quantities import Panels, largest, of, tally, value
from reports.claims.stated import claim, level
from reports.figures.forms import every, figure, grid, lines
from reports.figures.frames import finished, latency_axes
from reports.papers.metronome.calls import PAIR, SEEDS, calls
from reports.papers.metronome.measures import BURST, FEW_MS, STEP_CALL

TITLE = "Fig. 4a: 90 s bursts, a fresh worker for each N: latency is flat for both policies"

NS = [32, 64, 96, 128, 160]
_PANEL = "90 s"
EXPERIMENTS = {_PANEL: calls("fig4a", PAIR, {"sessions": NS}, duration_s=90.0, seeds=SEEDS[:3])}
QUICK = {"sessions": "32,160", "duration_s": "40"}

CLAIMS = {
    "fig4a-flat": claim(
        "median latency hundreds of times under the 2 s budget up to N = 160 (largest over N and policies)",
        level(FEW_MS, "ms", words="hundreds of times under"),
        largest(*(value("frame_latency_p50", of(_PANEL, engine, sessions=n)) for engine in PAIR for n in NS)),
        fitted=STEP_CALL,
        fact=BURST,
    ),
    "fig4a-walls": claim(
        "no run of either policy walls within 90 s",
        level(0.0, "%", words="none"),
        tally("wall", *(of(_PANEL, engine, sessions=n) for engine in PAIR for n in NS)),
        "at these N the pool outlasts 90 s only if a frame adds few enough tokens",
        fact=BURST,
    ),
}


def _budget(axes: Any, panels: Panels) -> None:
    latency_axes(axes, finished(every(panels))[0])


_OVER_N = grid(_PANEL, PAIR, sessions=NS)
draw = figure(
    TITLE,
    *(
        lines(metric, _OVER_N, title=name, extra=_budget, ylabel="frame latency, ms")
        for metric, name in (("frame_latency_p50", "P50"), ("steady_latency_p99", "P99 of the last half"))
    ),
    sharey=True,
    caption="Frame latency without sessions' first frames (log scale), a run of 90 s for each marker. Right: "
    "without the ramp-up, in which each new session delays the whole Step. At every N the pool would "
    "fill after the end of the run.",
)
