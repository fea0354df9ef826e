"""The capacity of a prefill instance: how one number was fitted to Table 1's first tokens, and its effect.

The paper gives no time of a prefill step. Its proxy's code expects batches of one to four prompts to take 220, 280, 330
and 380 ms before it has measured any, by which an instance would compute 15.7 prompts a second. The published TTFTs
show less: over the rate of requests an instance they lie on one curve, wait / (capacity − rate), as waiting in front of
a server does. The deployment multiplies its step times by the one capacity over the other (`step_scale`).

A reader decides with it whether the TTFTs of Tables 1 and 2 tell anything. The fit leaves out the row of Table 1 that
Table 2 repeats, so no TTFT of Table 2 was an input, and of Table 1 only the capacity was taken, not the level: the
curve's other number, the wait, is not used. The steps by the code's start values are the same without any fit.
"""

from typing import Any

import numpy as np

from harness.experiments.experiment import Experiment
from harness.metrics.rates import within
from reports.claims.quantities import Panels, of, value
from reports.claims.stated import claim, level
from reports.figures.forms import figure, lines
from reports.papers.experiment import experiment
from reports.papers.omniinfer.cluster import ENGINE, INPUT, OMNIPROXY
from reports.papers.omniinfer.table1 import PAPER as TABLE_1
from reports.runs.measured import Measured

TITLE = "Prefill instances: TTFT over the load, and the constant fitted to the paper's"

SHAPE, INSTANCES = "6p8_1d32", 6
RATES = (20, 30, 40, 44, 47, 49, 51)
"""[chosen] requests a second of six instances, prompts alone: the last is 8.5 an instance."""
TOO_MANY = 90
"""[chosen] more than they can do, by either time of a step."""
START = 0.170, 0.050 / 3500, 30_000
"""Start values of the deployment: s of an empty batch and of a token, by the proxy's code, and tokens of a batch."""

FITTED, STARTING, FULL = "fitted", "start-values", "too-many"


REPEATED = "6p8_1d32-48"
"""The row of Table 1 that is Table 2's whole system, too."""


def rates() -> np.ndarray:
    """Requests a second of an instance in each row of Table 1; QPM is of two nodes."""
    prefill = np.array([int(row.shape[0]) for row in TABLE_1])
    nodes = np.array([int(row.shape[0]) + (8 if row.shape.endswith("d64") else 4) for row in TABLE_1])
    return np.array([row.qpm for row in TABLE_1]) * nodes / 2 / 60 / prefill


def fitted() -> tuple[float, float]:
    """Capacity of an instance (1/s) and wait of Table 1's TTFT = wait / (capacity − rate), by least squares of its
    logarithm, without the row that Table 2 repeats."""
    others = np.array([row.panel != REPEATED for row in TABLE_1])
    rate, ttft = rates()[others], np.array([row.ttft_s for row in TABLE_1])[others]
    capacities = np.arange(np.ceil(100 * rate.max()) + 1, 1201) / 100
    waits = np.log(ttft * (capacities[:, None] - rate))
    best = int(waits.var(axis=1).argmin())
    return float(capacities[best]), float(np.exp(waits[best].mean()))


def started() -> float:
    """Capacity of an instance by the start values of the proxy's code, 1/s."""
    empty_s, token_s, tokens = START
    return tokens / INPUT / (empty_s + token_s * tokens)


def _open(suffix: str, rate: list[int], **settings: Any) -> Experiment:
    load = {
        "deployment": f"deepseek_r1_{SHAPE}",
        "requests": 6000,
        "input_mean": INPUT,
        "output_mean": 2,  # decode has nothing to do
        "playback": "none",
        "turn_timeout_s": 900,
        **OMNIPROXY,
    }
    return experiment(f"omniinfer-prefill-{suffix}", [ENGINE], "novel", load | settings, rate=rate)


UNSCALED = f"thinker.prefill.step_scale={1 / 1.83:.4f}"
EXPERIMENTS = {
    FITTED: _open(FITTED, list(RATES)),
    STARTING: _open(STARTING, list(RATES), scale=UNSCALED),
    FULL: _open(FULL, [TOO_MANY]),
}
QUICK = {"requests": "3000"}


def ttft_s(point: Measured) -> float | None:
    """Return the mean TTFT in the steady window."""
    return float(np.nanmean(point.requests["ttft_s"].to_numpy(float)))


def capacity(point: Measured) -> float | None:
    """Prompts that an instance computes in a second of the steady window where more come than it can do."""
    if point.span is None:
        return None
    begin_s, end_s = point.span
    first_s = (point.all_requests["turn_start_s"] + point.all_requests["ttft_s"]).to_numpy(float)
    return float(within(first_s, point.span).sum() / (end_s - begin_s) / INSTANCES)


CLAIMS = {
    "prefill-capacity": claim(
        "(ours) a prefill instance takes as many prompts a second as Table 1's TTFT over QPM says",
        level(fitted()[0], "1/s", within=0.05 * fitted()[0]),
        value(capacity, of(FULL, ENGINE)),
        fitted="the time of a prefill step was scaled to this",
    )
}


def _paper(axes: Any, panels: Panels) -> None:
    """The paper's rows, and the curve through them."""
    limit, wait = fitted()
    along = np.linspace(min(RATES) / INSTANCES, limit - wait / 4, 200)
    axes.plot(along, wait / (limit - along), color="#d55e00", ls="--", lw=1, label="curve through the paper's")
    dots = {"color": "#d55e00", "mfc": "none", "label": "paper, Table 1"}
    axes.plot(rates(), [row.ttft_s for row in TABLE_1], "D", **dots)


_SERIES = {"here, step time fitted": FITTED, "here, by the code's start values": STARTING}
draw = figure(
    TITLE,
    lines(
        ttft_s,
        {name: {rate / INSTANCES: of(panel, ENGINE, rate=rate) for rate in RATES} for name, panel in _SERIES.items()},
        extra=_paper,
        xlabel="requests/s an instance",
        ylabel="mean TTFT, s",
        ylim=(0, 4),
    ),
    caption="Modelled: six prefill instances of 16 dies behind OmniProxy, prompts alone. The curve is "
    f"{fitted()[1]:.2f} / ({fitted()[0]:.2f} − rate); by the code's start values an instance can do {started():.2f} a "
    "second.",
)
