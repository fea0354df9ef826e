"""Fig. 13: throughput and time to first audio over the probability that users interrupt, c = 8."""

from collections.abc import Mapping
from typing import Any

from reports.claims import Claim, Measure, Quantity, ratio, smallest
from reports.figures.drawing import legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from
from reports.measured import Measured, Run, over_seeds
from reports.papers.liveserve.common import (
    PACED,
    PAIR,
    SHAREGPT,
    experiment,
    over_limits,
    variant,
    variant_looks,
    with_uncapped,
)
from reports.stated import claim, times

TITLE = "Fig. 13: throughput and TTFP as more users interrupt, ShareGPT in speech, c = 8"

PS = [0.0, 0.25, 0.5, 0.75, 1.0]
_PANEL = "c = 8"

EXPERIMENTS = with_uncapped(_PANEL, experiment("fig13", PAIR, "sharegpt", {**SHAREGPT, "c": 8}, p=PS))
QUICK = {"requests": "64", "p": "0,0.5"}

PAPER = {0.5: 2.6, 0.75: 2.0}  # p -> LiveServe's effective RPS over the baseline's

_UNCAPPED = "liveserve, no lead cap"
_REMARK = (
    "section 7.1 says that p is 0, 0.3, 0.7 or 1; this figure quotes 0.5 and 0.75. No limit of the TTFP is stated, and "
    "a limit between the two systems' TTFP gives any ratio: see the picture"
)


def _gain(quantity: Quantity, p: float, label: str = "liveserve") -> Measure:
    return ratio(quantity, variant(_PANEL, label, p=p), to=variant(_PANEL, "vllm_omni", p=p))


def _more(p: float, short: str, text: str, label: str, why: str) -> Claim:
    return claim(
        f"fig13-rps-{p:g}-{short}",
        f"p = {p:g}: effective RPS × {PAPER[p]:g}{text}",
        times(PAPER[p], within=0.25 * (PAPER[p] - 1)),
        _gain("effective_rps", p, label),
        "× {ours:.2f}: " + why,
        remark=_REMARK,
    )


def _below_half(p: float) -> Claim:
    return claim(
        f"fig13-p90-{p:g}",
        f"p = {p:g}: P90 TTFP cut by more than half",
        times((0.3, 0.5), words="below ½"),
        _gain("audio_ttfp_p90", p),
        "× {ours:.2f}: LiveServe's P90 is near the 0.35 s of an idle server already, and the baseline has the "
        "paper's median, but not its P90, which is higher",
        remark=_REMARK,
    )


_NO_LOSS = (
    "all requests of both are effective, and together they need the same talker steps; a baseline that loses half of "
    "its requests to gaps or late answers, as 2.6 × would take, does not occur at this load"
)

CLAIMS = [
    *(_more(p, "paced", "", "liveserve", PACED) for p in PAPER),
    *(_more(p, "uncapped", ", LiveServe without the lead cap", _UNCAPPED, _NO_LOSS) for p in PAPER),
    claim(
        "fig13-rps-everywhere",
        "effective RPS is higher at every p (smallest ratio)",
        times((1.05, 2.6), words="above 1"),
        smallest(*(_gain("effective_rps", p) for p in PS)),
        "× {ours:.2f}: " + PACED,
    ),
    *map(_below_half, PAPER),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Effective RPS and P90 TTFP over p, and at p = 0.5 effective RPS over the limit of the TTFP."""
    figure, axes = sheet(1, 3, TITLE)
    used: list[Measured] = []
    for name, look in variant_looks().items():
        points = {p: variant(_PANEL, name, p=p).points(panels) for p in PS}
        used += [point for found in points.values() for point in found]
        for own, metric in zip(axes, ("effective_rps", "audio_ttfp_p90"), strict=False):
            line(own, {p: over_seeds(found, metric) for p, found in points.items()}, look, name)
        over_limits(axes[2], points[0.5], look, name)
    if all(point.error is not None for point in used):
        return LeftOut("fig13", TITLE, "no point of it is finished")
    for own, label in zip(
        axes, ("effective requests, 1/s", "P90 TTFP, s", "effective requests, 1/s"), strict=True
    ):
        own.set_ylim(bottom=0)
        own.set_ylabel(label)
    for own in axes[:2]:
        own.set_xticks(PS)
        own.set_xlabel("probability of a barge-in, p")
    axes[2].set_title("p = 0.5")
    axes[2].set_xlabel("limit of the TTFP, s")
    legend(figure, axes[0])
    ratios = ", ".join(f"{factor:g} × at p = {p:g}" for p, factor in paper.items())
    caption = (
        "Left, higher is better: turns without a pause above 100 ms before they ended or were cut short, of any "
        f"TTFP, per second of the steady window; the paper's LiveServe has {ratios}. Middle, lower is better; the "
        "paper's LiveServe has less than half at both. Right: the same rate of those that began within a limit, of "
        f"which the paper names none. {made_from(used, bars=True)}"
    )
    return Picture("fig13", TITLE, figure, caption)
