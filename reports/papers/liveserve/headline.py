"""Sections 1 and 7.1: the load that each system sustains at the same TTFP, in an open loop of arrivals."""

from collections.abc import Mapping

import numpy as np

from harness.metrics.stats import across_seeds
from reports.claims.quantities import Measure, Panels, Values, each, largest, of, quotient, value
from reports.claims.stated import claim, times
from reports.figures.forms import figure, grid, lines
from reports.papers.liveserve.common import AWAITED, OPEN_LOOP, PAIR, RPS, experiment

TITLE = "Sections 1 and 7.1: sustained load at the same TTFP (open loop, ShareGPT)"

RATES = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0]
TARGETS_S = {"LiveServe's": 0.84, "the baseline's": 1.38}
"""P90 TTFP that both systems have to keep: what the paper has in Fig. 11 left."""
SHOWN_S = [0.4, 0.5, 0.6, 0.7, 0.84, 1.0, 1.2, 1.38, 1.6, 1.8, 2.0]
"""Range of the picture of the sustained load."""
CONTINUITY = 0.95
"""Share of continuous replies that makes a load useful (the paper names no level). [chosen]"""

EXPERIMENTS = {"open loop": experiment("headline", PAIR, "sharegpt", {**OPEN_LOOP, "p": 0}, rate=RATES)}
QUICK = {"rate": "1,4,8", "stop_after_s": "45"}


def _sustained(engine: str, target_s: float) -> Measure:
    """The rate (1/s) at which P90 TTFP or continuity leaves its target, between the measured rates on a straight line.

    Missing where the smallest rate is too much already, or the largest still is not.
    """

    def used(rate: float) -> Measure:
        """The larger of the shares that are used of both targets."""
        at = of("open loop", engine, rate=rate)
        ttfp = each(value("audio_ttfp_p90", at), lambda ttfp_s: ttfp_s / target_s)
        broken = each(value("continuity", at), lambda share: (1 - share) / (1 - CONTINUITY))
        return largest(ttfp, broken)

    def measure(panels: Panels) -> Values:
        by_rate = {rate: used(rate)(panels) for rate in RATES}
        seeds = sorted({seed for values in by_rate.values() for seed in values})
        return {seed: _crossing({rate: by_rate[rate].get(seed) for rate in RATES}) for seed in seeds}

    return measure


def _crossing(used: Mapping[float, float | None]) -> float | None:
    """Return the first rate at which the larger share reaches 1."""
    points = [(rate, share) for rate, share in used.items() if share is not None]
    over = next((i for i, (_, share) in enumerate(points) if share > 1), None)
    rates, shares = zip(*points[over - 1 : over + 1], strict=True) if over else ((), ())
    return float(np.interp(1, shares, rates)) if over else None


_CAPACITY = largest(*(value("completed_rps", of("open loop", "vllm_omni", rate=rate)) for rate in RATES[-3:]))
"""The highest rate of replies that the baseline completes under any of the three largest loads, regardless of TTFP and
playback: LiveServe completes fewer, and a longer run is needed to measure it there."""

CLAIMS = {
    f"headline-sustained{'' if whose.startswith('Live') else '-baseline'}": claim(
        f"sustained load at the same TTFP (P90 ≤ {target_s:g} s, {whose} in Fig. 11; continuity ≥ 95 %), "
        "LiveServe over offload",
        times(1.55, within=RPS),
        quotient(_sustained("liveserve", target_s), _sustained("vllm_omni", target_s)),
        "the gain is in TTFP, so it is larger at smaller limits (picture); the "
        "paper gives neither the TTFP nor the workload of its comparison",
        fact="Section 1: up to 55 % more sustained load at the same TTFP",
        chosen=AWAITED,
        remark="the abstract has × 1.56 for the largest gain in completed requests, section 1 55 % at the same TTFP",
    )
    for whose, target_s in TARGETS_S.items()
}


def _caption(panels: Panels) -> str:
    bounds = {s: quotient(_CAPACITY, _sustained("vllm_omni", s))(panels) for s in TARGETS_S.values()}
    medians = {target_s: across_seeds(bound).median for target_s, bound in bounds.items()}
    limits = ", ".join(f"× {bound:.2f} at {at_s:g} s" for at_s, bound in medians.items() if bound is not None)
    return (
        "Dotted: the targets of a sustained load; right: over the target of the P90 TTFP, where loads "
        "below and above it were measured. No policy can gain more than the line over the baseline: "
        f"{limits}. Eight GPUs; arrivals are Poisson and do not wait for replies, so both systems get "
        "the same requests."
    )


_OVER_RATE = grid("open loop", PAIR, rate=RATES)
_LIMITS = {engine: {limit_s: _sustained(engine, limit_s) for limit_s in SHOWN_S} for engine in PAIR}
_MOST = dict.fromkeys((0.0, SHOWN_S[0], SHOWN_S[-1]), _CAPACITY)
draw = figure(
    TITLE,
    lines("audio_ttfp_p90", _OVER_RATE, across={1000 * s: "" for s in TARGETS_S.values()}, ylim=(0, 6000)),
    lines("continuity", _OVER_RATE, across={CONTINUITY: ""}),
    lines(
        None,
        _LIMITS | {"the talker's capacity": _MOST},
        upright=dict.fromkeys(TARGETS_S.values(), ""),
        xlim=(0, None),
        xlabel="limit of the P90 TTFP, s",
        ylabel="sustained requests, 1/s",
    ),
    caption=_caption,
)
