"""Fig. 12: LiveServe against the offloading baseline under Poisson and bursty arrivals, 32 requests, c = 8."""

from collections.abc import Mapping
from typing import Any

from harness.experiment import Experiment
from reports.claims import Claim, Measure, Quantity, ratio, value
from reports.figures.drawing import bars, legend, sheet
from reports.figures.picture import LeftOut, Picture, made_from, paper_handle
from reports.measured import Measured, Run
from reports.papers.liveserve.common import (
    BURSTS,
    PAIR,
    SHAREGPT,
    VARIANTS,
    effective_until_received,
    experiment,
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


def _gain(quantity: Quantity, arrivals: str, label: str = "liveserve") -> Measure:
    return ratio(quantity, variant(arrivals, label), to=variant(arrivals, "vllm_omni"))


def _claims(arrivals: str) -> list[Claim]:
    short = arrivals.lower()
    wait, rate = PAPER["audio_ttfp_p90"][arrivals], PAPER["effective_rps"][arrivals]
    faster = times(rate["liveserve"] / rate["vllm_omni"], within=0.08)
    return [
        claim(
            f"fig12-{short}-p90",
            f"{arrivals}: P90 TTFP falls from {wait['vllm_omni']:.2f} to {wait['liveserve']:.2f} s",
            times(wait["liveserve"] / wait["vllm_omni"], within=0.08),
            _gain("audio_ttfp_p90", arrivals),
            "here × {ours:.2f}: LiveServe's P90 is near that of an idle server (0.35 s), and the baseline's is "
            "below the paper's, as 32 requests at this rate leave each of four talkers with few replies at once",
        ),
        claim(
            f"fig12-{short}-rps",
            f"{arrivals}: effective RPS rises from {rate['vllm_omni']:.2f} to {rate['liveserve']:.2f}",
            faster,
            _gain("effective_rps", arrivals),
            "× {ours:.2f}: every reply of both is continuous and within 2 s, and the run ends when the longest "
            "reply has been heard, which takes as long under any server",
            remark="the paper does not define effective RPS; ours is per second until the last word is heard",
        ),
        claim(
            f"fig12-{short}-rps-received",
            f"{arrivals}: the same per second until the last reply is received",
            faster,
            _gain(effective_until_received, arrivals),
            "× {ours:.2f}: a paced reply is received in full only 10 s before it has been heard, so this measure "
            "counts the pacing of the longest reply as a loss",
        ),
        claim(
            f"fig12-{short}-rps-uncapped",
            f"{arrivals}: the same, LiveServe without the lead cap",
            faster,
            _gain(effective_until_received, arrivals, "liveserve, no lead cap"),
            "× {ours:.2f}: the last reply received is about the longest one, and towards its end it has its "
            "talker to itself under both",
        ),
        claim(
            f"fig12-{short}-baseline",
            f"{arrivals}: effective RPS of the baseline, until the last reply is received",
            level(rate["vllm_omni"], "1/s", within=0.2),
            value(effective_until_received, variant(arrivals, "vllm_omni")),
            "{ours:.2f}: 32 requests over the time in which the longest of their replies is generated, and the "
            "paper does not say how long its replies are",
        ),
    ]


CLAIMS = [each for arrivals in ARRIVALS for each in _claims(arrivals)]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Bars of P90 TTFP and of effective RPS by arrivals; the latter in both forms."""
    shown: list[tuple[str, Quantity, str]] = [
        ("P90 TTFP, s", "audio_ttfp_p90", "audio_ttfp_p90"),
        ("effective RPS, to the last word", "effective_rps", "effective_rps"),
        ("effective RPS, to the last packet", effective_until_received, "effective_rps"),
    ]
    figure, axes = sheet(1, len(shown), TITLE)
    own_looks = variant_looks()
    used: list[Measured] = [p for a in ARRIVALS for v in VARIANTS for p in variant(a, v).points(panels)]
    if all(point.error is not None for point in used):
        return LeftOut("fig12", TITLE, "no point of it is finished")
    for own, (label, quantity, published) in zip(axes, shown, strict=True):
        series = {
            name: ([spread(variant(a, name).points(panels), quantity) for a in ARRIVALS], look)
            for name, look in own_looks.items()
        }
        numbers = {name: [paper[published][a].get(name) for a in ARRIVALS] for name in VARIANTS}
        bars(own, list(ARRIVALS), series, numbers)
        own.set_title(label)
        own.set_ylim(bottom=0)
    legend(figure, axes[0], paper_handle("paper"))
    caption = (
        "32 single turns; bursts have 4 requests/s in their busiest 5 s. A request is effective when its reply is "
        "continuous and begins within 2 s; its rate is per second of the run, which ends when the last reply has been "
        "heard (middle) or received (right), as the paper does not define it. c = 8 for each of four talkers never "
        f"binds. {made_from(used, bars=True)}"
    )
    return Picture("fig12", TITLE, figure, caption)
