"""Fig. 12: LiveServe against the offloading baseline under Poisson and bursty arrivals, c = 8: 32 requests as in the
paper, and enough for a rate."""

from typing import Any

import numpy as np

from reports.claims.bands import of_mean, of_percentile
from reports.claims.claim import Claim, Untold
from reports.claims.quantities import of, ratio, value
from reports.claims.stated import claim, level, merged, times
from reports.figures.forms import bars, figure
from reports.papers.liveserve.chosen_testbeds import on_testbeds, over_testbeds
from reports.papers.liveserve.common import (
    AT_8,
    AWAITED,
    BURSTS,
    PAIR,
    SPREAD_OUT,
    TAIL,
    TTFP_SIGMA,
    experiment,
    over_limits,
)
from reports.runs.measured import Measured

TITLE = "Fig. 12: TTFP and throughput under Poisson and BurstGPT arrivals, c = 8"

REQUESTS, ENOUGH = 32, 128
"""The paper's number of requests, and ours: sixteen for each slot, which give a rate."""
_LOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "Poisson": ("sharegpt", {**AT_8, "rate": 4.0}),
    "BurstGPT": ("burstgpt_fit", {**BURSTS, "c": 8, "peak_rate": 4.0, "peak_window_s": 5.0}),
}


def _panel(arrivals: str, requests: int) -> str:
    return arrivals if requests == REQUESTS else f"{arrivals}, {requests} requests"


EXPERIMENTS = {
    _panel(arrivals, requests): experiment(
        "fig12", PAIR, workload, {**load, "requests": requests, "p": 0}, timeout_s=300
    )
    for requests in (REQUESTS, ENOUGH)
    for arrivals, (workload, load) in _LOADS.items()
} | on_testbeds("p = 0", [8])

PAPER = {  # metric -> arrivals -> engine -> s or 1/s
    "audio_ttfp_p90": {
        "Poisson": {"vllm_omni": 1.13, "liveserve": 0.68},
        "BurstGPT": {"vllm_omni": 1.63, "liveserve": 1.20},
    },
    "effective_rps": {
        "Poisson": {"vllm_omni": 0.82, "liveserve": 1.18},
        "BurstGPT": {"vllm_omni": 0.96, "liveserve": 1.12},
    },
}


def effective_in_run(point: Measured) -> float | None:
    """Replies without a pause above 100 ms, per second from the first arrival to the last completion: 32 requests in 8
    slots have no steady window that is long enough for a rate."""
    turns = point.all_requests
    lasts_s = np.max(turns["completion_s"]) - np.min(turns["turn_start_s"])
    return float(turns["continuous"].sum() / lasts_s) if lasts_s > 0 else None


_REMARK = (
    "the paper does not define effective RPS; ours has no TTFP limit, because its only stated SLO is continuity, and "
    "is over the whole run"
)
_UNBROKEN = (
    "no reply breaks under either system, so effective requests are completed ones, and these keep a slot for as long "
    "under both"
)
_LENGTH = (
    "our replies, of 65.9 s in the median, keep a slot for 16 s; the paper's 0.82 requests/s from 8 slots mean 9.8 s, "
    "and it does not state their length"
)
_SHORT = {"baseline": "vllm_omni", "liveserve": "liveserve"}
_P90 = of_percentile(0.9, REQUESTS, TTFP_SIGMA, 0.01)
_RATE = of_mean(REQUESTS, printed=0.01)


def _over(arrivals: str, metric: str) -> Untold | None:
    """LiveServe's number over the baseline's on the testbeds, whose loads keep every slot busy, as Poisson arrivals do
    here; bursts were not measured with LiveServe there."""
    if arrivals != "Poisson":
        return None
    return over_testbeds("p = 0", 8, lambda ours, baseline: ratio(metric, ours, to=baseline))


def _of(arrivals: str, metric: str, engine: str) -> Untold | None:
    """The number of one engine there."""
    if arrivals != "Poisson":
        return None
    return over_testbeds("p = 0", 8, lambda ours, baseline: value(metric, ours if engine == "liveserve" else baseline))


def _claims(arrivals: str) -> dict[str, Claim]:
    fact = f"Section 7.2, Fig. 12: P90 TTFP and effective RPS under {arrivals} arrivals"
    short, baseline, ours = arrivals.lower(), of(arrivals, "vllm_omni"), of(arrivals, "liveserve")
    wait, rate = PAPER["audio_ttfp_p90"][arrivals], PAPER["effective_rps"][arrivals]
    more = {engine: of(_panel(arrivals, ENOUGH), engine) for engine in PAIR}
    return {
        f"fig12-{short}-p90": claim(
            f"{arrivals}: P90 TTFP falls from {wait['vllm_omni']:.2f} to {wait['liveserve']:.2f} s",
            times(wait["liveserve"] / wait["vllm_omni"], within=_P90),
            ratio("audio_ttfp_p90", ours, to=baseline),
            TAIL,
            fact=fact,
            untold=_over(arrivals, "audio_ttfp_p90"),
            chosen=AWAITED,
        ),
        f"fig12-{short}-rps": claim(
            f"{arrivals}: effective RPS rises from {rate['vllm_omni']:.2f} to {rate['liveserve']:.2f}",
            times(rate["liveserve"] / rate["vllm_omni"], within=_RATE),
            ratio(effective_in_run, ours, to=baseline),
            _UNBROKEN,
            fact=fact,
            untold=_over(arrivals, "effective_rps"),
            remark=_REMARK,
        ),
        **{
            f"fig12-{short}-{name}": claim(
                f"{arrivals}: effective RPS of {engine}",
                level(rate[engine], "1/s", within=_RATE),
                value(effective_in_run, of(arrivals, engine)),
                _LENGTH,
                fact=fact,
                untold=_of(arrivals, "effective_rps", engine),
                remark=_REMARK,
            )
            for name, engine in _SHORT.items()
        },
        **{
            f"fig12-{short}-{name}-p90": claim(
                f"{arrivals}: P90 TTFP of {engine}",
                level(wait[engine], "s", within=_P90),
                value("audio_ttfp_p90", of(arrivals, engine)),
                SPREAD_OUT,
                fact=fact,
                untold=_of(arrivals, "audio_ttfp_p90", engine),
                chosen=AWAITED if engine == "liveserve" else "",
            )
            for name, engine in _SHORT.items()
        },
        f"fig12-{short}-enough-p90": claim(
            f"(ours) {arrivals}, {ENOUGH} requests: P90 TTFP of LiveServe over the baseline's",
            times(wait["liveserve"] / wait["vllm_omni"], within=_P90),
            ratio("audio_ttfp_p90", more["liveserve"], to=more["vllm_omni"]),
            TAIL,
        ),
        f"fig12-{short}-enough-rps": claim(
            f"(ours) {arrivals}, {ENOUGH} requests: effective RPS of LiveServe over the baseline's",
            times(rate["liveserve"] / rate["vllm_omni"], within=_RATE),
            ratio("effective_rps", more["liveserve"], to=more["vllm_omni"]),
            _UNBROKEN,
        ),
    }


CLAIMS = merged(map(_claims, _LOADS))

_GROUPS = {_panel(a, n): a for n in (REQUESTS, ENOUGH) for a in _LOADS}
_MARKS = {e: {panel: PAPER["audio_ttfp_p90"][a][e] for panel, a in _GROUPS.items()} for e in PAIR}
draw = figure(
    TITLE,
    bars("audio_ttfp_p90", {e: {p: of(p, e) for p in _GROUPS} for e in PAIR}, marks=_MARKS, tilted=True),
    *(
        over_limits(
            {e: of(_panel(a, ENOUGH), e) for e in PAIR},
            PAPER["effective_rps"][a],
            title=f"effective RPS, {a}, {ENOUGH} requests",
        )
        for a in _LOADS
    ),
    paper="paper (32 requests; RPS: limit not stated)",
    caption="Single turns, 32 as in the paper and 128; bursts have 4 requests/s in their busiest 5 s. Effective RPS "
    "counts replies without a pause above 100 ms that began within the limit, per second of the steady window, which "
    "32 requests do not have: their claims take the whole run. The paper names no limit, so the claims use the right "
    "end.",
)
