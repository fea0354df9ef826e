"""Section 6.5: time until a batch leaves a step, and the cost of safepoints, Llama-3.1-70B on four GPUs."""

from typing import Any

import numpy as np

from reports.claims.bands import of_digits
from reports.claims.quantities import change, difference, ratio, value
from reports.claims.stated import claim, level, times
from reports.figures.forms import figure, lines
from reports.figures.frames import finished
from reports.papers.conserve.loads import BOTH, at, both
from reports.papers.conserve.measures import online_requests
from reports.papers.conserve.systems import OURS
from reports.runs.measured import Measured

TITLE = "Safepoints: time until a batch leaves the step, and their cost, Llama-3.1-70B on four H100"

EVERY = (1, 2, 4, 8, 20, 80)
_LIMITS = (0.05, 0.145)
"""[chosen] a t_TTFT that every step under way would exceed, and Online-Only's P99 TBT."""
_LOAD: dict[str, Any] = {
    "deployment": "llama_70b_4xh100",
    "cv": 0.5,
    "rate": 0.1,
    "requests": 40,
    "input_tokens": 2048,
    "output_tokens": 8,
}
"""[chosen] A request now and then, so that most meet a step of documents alone."""
_FULL = 2048
"""Tokens of a step with documents only, next to its decodes."""
EXPERIMENTS = {
    f"interrupted: {BOTH}": both(
        "safepoints", _LIMITS, 1.0, engines=[OURS], grid={"safepoint_layers": [*EVERY]}, **_LOAD
    ),
    f"free: {BOTH}": both("safepoints free", _LIMITS, 1.0, engines=[OURS], safepoint_split_s=0.0, **_LOAD),
}
QUICK = {"requests": "6"}

PAPER = {"added_s": 0.003, "share": 0.011, "preempted_s": 0.013, "step_s": 0.262}


def left_s(point: Measured) -> float | None:
    """Return the longest time from an online arrival to the end of the running step, for steps without online
    requests."""
    rows = online_requests(point)
    arrivals = point.kinds("arrive")
    arrivals = arrivals.loc[arrivals["session"].isin(rows["session"])].set_index("session")["t"]
    steps = point.record.table("steps")
    begins, ends = steps["t_s"].to_numpy(), (steps["t_s"] + steps["dt_s"]).to_numpy()
    at_s = arrivals.to_numpy()
    alone = [
        not ((rows["turn_start_s"] < came) & (rows["completion_s"] >= came) & (rows["session"] != session)).any()
        for session, came in arrivals.items()
    ]
    step = np.searchsorted(begins, at_s, side="right") - 1
    inside = np.array(alone) & (step >= 0) & (ends[step] > at_s)
    return max(ends[step][inside] - at_s[inside], default=None)


def step_s(point: Measured) -> float | None:
    """Mean time of the full steps before anybody online came."""
    times_s, _ = _full(point)
    return float(times_s.mean()) if times_s.size else None


def token_s(point: Measured) -> float | None:
    """Their time for a token: when safepoints cost more, steps become larger."""
    times_s, tokens = _full(point)
    return float(times_s.sum() / tokens.sum()) if times_s.size else None


def _full(point: Measured) -> tuple[np.ndarray, np.ndarray]:
    steps, first_s = point.record.table("steps"), online_requests(point)["turn_start_s"].to_numpy().min()
    full = steps.loc[(steps["t_s"] + steps["dt_s"] < first_s) & (steps["tokens"] >= _FULL)]
    return full["dt_s"].to_numpy(), full["tokens"].to_numpy()


_OVER = {every: at("interrupted", OURS, safepoint_layers=every) for every in EVERY}
_FOUR, _FREE = _OVER[4], at("free", OURS)

_OVERHEAD = "Sec. 6.5: safepoints add 3.0 ms, 1.1 % of a step"
CLAIMS = {
    "safepoints-step": claim(
        "a step takes 262 ms on average",
        level(0.262, "ms", within=of_digits(0.001)),
        value(step_s, _FREE),
        "{ms:.0f} ms: steps of documents alone are the smallest that reach 95 % of the best rate",
    ),
    "safepoints-preempted": claim(
        "with one every 4 layers the running batch is preempted within 13 ms (longest)",
        level((0.0, 0.013), "ms", within=of_digits(0.001)),
        value(left_s, _FOUR),
        "{ms:.1f} ms: a twentieth of the longest step",
    ),
    "safepoints-added": claim(
        "a step becomes 3.0 ms longer",
        level(0.003, "ms", within=of_digits(0.0001), neutral=0),
        difference(step_s, _FOUR, _FREE),
        "{ms:.1f} ms: 19 times the 167.2 µs that one takes by the paper are 3.2 ms; 18 times are 3.0",
        fact=_OVERHEAD,
        check="the cost of one safepoint is the paper's, and 20 runs of layers have 19 between them",
    ),
    "safepoints-share": claim(
        "1.1 % of the step",
        times(1.011, within=of_digits(0.001)),
        ratio(step_s, _FOUR, _FREE),
        "{ours:.3f}: the same time in a shorter step",
        fact=_OVERHEAD,
    ),
}


_AXES: dict[str, Any] = {"doubling": EVERY, "xlabel": "layers between two safepoints"}
draw = figure(
    TITLE,
    lines(
        left_s,
        {OURS: _OVER},
        across={1000 * PAPER["preempted_s"]: ""},
        ylabel="until the batch has left, longest, ms",
        **_AXES,
    ),
    lines(
        None,
        {OURS: {every: change(token_s, setting, _FREE) for every, setting in _OVER.items()}},
        across={100 * PAPER["share"]: ""},
        ylabel="time added to a token, %",
        **_AXES,
    ),
    points=lambda panels: [point for setting in _OVER.values() for point in finished(setting.points(panels))],
    caption="Dotted: the paper, with a safepoint every 4 of 80 layers. At 80 a batch never leaves a step "
    "before its end; at 1 a step has twice the tokens, which then pays off.",
)
