"""Fig. 12: LiveServe against the offloading baseline under Poisson and bursty arrivals, 32 requests, c = 8."""

from collections.abc import Mapping
from typing import Any

from harness.experiment import Experiment
from reports.claims import Claim, Measure, Quantity, ratio, value
from reports.figures.drawing import bars, legend, sheet
from reports.figures.picture import LeftOut, Picture, made_from, paper_handle, paper_marker
from reports.measured import Measured, Run
from reports.papers.liveserve.common import (
    BURSTS,
    CALIBRATED,
    LIMITS_S,
    PACED,
    PAIR,
    SHAREGPT,
    VARIANTS,
    experiment,
    over_limits,
    spread,
    variant,
    variant_looks,
    with_uncapped,
)
from reports.stated import claim, level, times

TITLE = "Fig. 12: TTFP and throughput under Poisson and BurstGPT arrivals, 32 requests, c = 8"


def _arriving(workload: str, settings: Mapping[str, Any]) -> Experiment:
    return experiment("fig12", PAIR, workload, {**settings, "requests": 32, "c": 8, "p": 0}, timeout_s=300)


ARRIVALS = {
    "Poisson": _arriving("sharegpt", {**SHAREGPT, "rate": 4.0}),
    "BurstGPT": _arriving("burstgpt_fit", {**BURSTS, "peak_rate": 4.0, "peak_window_s": 5.0}),
}
EXPERIMENTS = {
    panel: each for arrivals, own in ARRIVALS.items() for panel, each in with_uncapped(arrivals, own).items()
}
QUICK: dict[str, str] = {}

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

_REMARK = "the paper does not define effective RPS; ours has no limit of the TTFP, as its only stated SLO is continuity"


def _gain(quantity: Quantity, arrivals: str, label: str = "liveserve") -> Measure:
    return ratio(quantity, variant(arrivals, label), to=variant(arrivals, "vllm_omni"))


def _claims(arrivals: str) -> list[Claim]:
    short = arrivals.lower()
    wait, rate = PAPER["audio_ttfp_p90"][arrivals], PAPER["effective_rps"][arrivals]
    faster = times(rate["liveserve"] / rate["vllm_omni"], within=0.08)
    baseline = variant(arrivals, "vllm_omni")
    return [
        claim(
            f"fig12-{short}-p90",
            f"{arrivals}: P90 TTFP falls from {wait['vllm_omni']:.2f} to {wait['liveserve']:.2f} s",
            times(wait["liveserve"] / wait["vllm_omni"], within=0.08),
            _gain("audio_ttfp_p90", arrivals),
            "here × {ours:.2f}: LiveServe's P90 is near that of an idle server (0.35 s)",
        ),
        claim(
            f"fig12-{short}-rps",
            f"{arrivals}: effective RPS rises from {rate['vllm_omni']:.2f} to {rate['liveserve']:.2f}",
            faster,
            _gain("effective_rps", arrivals),
            "× {ours:.2f}: " + PACED,
            remark=_REMARK,
        ),
        claim(
            f"fig12-{short}-rps-uncapped",
            f"{arrivals}: the same, LiveServe without the lead cap",
            faster,
            _gain("effective_rps", arrivals, "liveserve, no lead cap"),
            "× {ours:.2f}: every reply of both is continuous, and together they need the same talker steps",
            remark=_REMARK,
        ),
        claim(
            f"fig12-{short}-baseline",
            f"{arrivals}: effective RPS of the baseline",
            level(rate["vllm_omni"], "1/s", within=0.2),
            value("effective_rps", baseline),
            calibrated=CALIBRATED,
        ),
        claim(
            f"fig12-{short}-baseline-p90",
            f"{arrivals}: P90 TTFP of the baseline",
            level(wait["vllm_omni"], "s", within=0.2 * wait["vllm_omni"]),
            value("audio_ttfp_p90", baseline),
            "{ours:.2f} s, hardly above the median: a slot that falls free is taken at once, so that all first packets "
            "are made in steps of about the same length",
        ),
    ]


CLAIMS = [each for arrivals in ARRIVALS for each in _claims(arrivals)]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Bars of P90 TTFP by arrivals; effective RPS over the limit of the TTFP, a panel for each."""
    figure, axes = sheet(1, 1 + len(ARRIVALS), TITLE)
    own_looks = variant_looks()
    used: list[Measured] = [p for a in ARRIVALS for v in VARIANTS for p in variant(a, v).points(panels)]
    if all(point.error is not None for point in used):
        return LeftOut("fig12", TITLE, "no point of it is finished")
    series = {
        name: ([spread(variant(a, name).points(panels), "audio_ttfp_p90") for a in ARRIVALS], look)
        for name, look in own_looks.items()
    }
    numbers = {name: [paper["audio_ttfp_p90"][a].get(name) for a in ARRIVALS] for name in VARIANTS}
    bars(axes[0], list(ARRIVALS), series, numbers)
    axes[0].set_title("P90 TTFP, s")
    for own, arrivals in zip(axes[1:], ARRIVALS, strict=True):
        for name, look in own_looks.items():
            over_limits(own, variant(arrivals, name).points(panels), look, name)
            if name in paper["effective_rps"][arrivals]:
                paper_marker(own, LIMITS_S[-1], paper["effective_rps"][arrivals][name], look)
        own.set_title(f"effective RPS, {arrivals}")
        own.set_xlabel("limit of the TTFP, s")
    for own in axes:
        own.set_ylim(bottom=0)
    legend(figure, axes[0], paper_handle("paper (RPS: limit not stated)"))
    caption = (
        "32 single turns; bursts have 4 requests/s in their busiest 5 s. Effective are replies without a pause above "
        "100 ms that began within the limit, per second of the steady window; the claims have no limit, as the paper "
        f"names none, and so read the right end. {made_from(used, bars=True)}"
    )
    return Picture("fig12", TITLE, figure, caption)
