"""Fig. 16 left: generated tokens that are never heard, over the share of interruptions, the length of replies and the
lead."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

from harness.metrics.stats import across_seeds
from reports.claims.bands import of_share
from reports.claims.quantities import Panels, average, change, largest, of, value
from reports.claims.stated import claim, level, moves
from reports.figures.forms import bars, figure, grid, lines
from reports.figures.style import engine_looks
from reports.papers.liveserve.chosen_testbeds import on_testbeds, over_testbeds
from reports.papers.liveserve.common import AT_8, LONG_TOKENS, PACED, PAIR, N, experiment

TITLE = "Fig. 16 left: generated tokens that are never heard, ShareGPT in speech, c = 8"

PS = [0.0, 0.3, 0.7, 1.0]
LENGTHS = [30, 60, 120, LONG_TOKENS]
"""Median text tokens of a reply: 60 last 17 s, and 235, as in the other cards, the 65.9 s of Fig. 15 right."""
CAPS = [2.0, 4.0, 6.0, 10.6]
_P, _LENGTH, _CAP = "over p", "over the length of replies", "over the lead cap"

EXPERIMENTS = {
    _P: experiment("fig16-left", PAIR, "sharegpt", AT_8, p=PS),
    _LENGTH: experiment("fig16-left-length", PAIR, "sharegpt", {**AT_8, "p": 1.0}, reply_tokens=LENGTHS),
    _CAP: experiment("fig16-left-cap", ["liveserve"], "sharegpt", {**AT_8, "p": 1.0}, lead_cap_s=CAPS),
    **on_testbeds("p = 1", [8]),
}
QUICK = {"requests": "64", "p": "0,1", "reply_tokens": "60,235", "lead_cap_s": "4,10.6"}

PAPER = {"vllm_omni": 0.4406, "liveserve": 0.1238}  # largest over p

_METRIC = "wasted_token_ratio"
BOTH, FRAMES = "liveserve, both", "liveserve, frames"
PARTS = {BOTH: "", FRAMES: "_talker", "liveserve, text": "_entry"}
"""Tokens that count -> suffix of the metric: both stages together, and each alone."""


def _largest(engine: str) -> Any:
    return largest(*(value(_METRIC, of(_P, engine, p=p)) for p in PS))


def _cut(p: float) -> Any:
    return change(_METRIC, of(_P, "liveserve", p=p), since=of(_P, "vllm_omni", p=p))


_LEAD = (
    "an interruption wastes the lead, 10.6 s as in Fig. 15; with a lead of 2 s 14 % are wasted (right). Text cannot be "
    "paced: until the text ends the talker needs one text token for each frame of 80 ms, which is 3.5 times the speed "
    "of speech"
)
_WASTE = {engine: of_share(share, N) for engine, share in PAPER.items()}
_LESS = _WASTE["liveserve"].over(PAPER["liveserve"])
_FACT = "Section 7.3, Fig. 16 left: waste falls from 44.06 % to at most 12.38 %"
_CUT = PAPER["liveserve"] / PAPER["vllm_omni"] - 1
_TWO = "computed from the two largest values; the paper does not say whether they are at the same p"

CLAIMS = {
    "fig16-left-none": claim(
        "without interruptions nothing is wasted (larger of both)",
        level(0.0, "%", within=0.001, words="none"),
        largest(*(value(_METRIC, of(_P, engine, p=0.0)) for engine in PAIR)),
        "replies are cut short without interruptions: some turns have failed",
        check="without interruptions every reply is heard to its end",
    ),
    "fig16-left-baseline": claim(
        "largest waste of the baseline",
        level(PAPER["vllm_omni"], "%", within=_WASTE["vllm_omni"]),
        _largest("vllm_omni"),
        "the baseline's waste follows from the distribution of reply lengths; the paper does not publish it",
        fact=_FACT,
        untold=over_testbeds("p = 1", 8, lambda ours, base: value(_METRIC, base)),
    ),
    "fig16-left-liveserve": claim(
        "largest waste of LiveServe",
        level(PAPER["liveserve"], "%", within=_WASTE["liveserve"]),
        _largest("liveserve"),
        _LEAD,
        fact=_FACT,
        untold=over_testbeds("p = 1", 8, lambda ours, base: value(_METRIC, ours)),
        chosen=PACED,
    ),
    "fig16-left-cut": claim(
        "LiveServe wastes less (mean change over p = 0.3, 0.7 and 1)",
        moves((-0.78, -0.72), within=_LESS),
        average(*(_cut(p) for p in PS[1:])),
        _LEAD,
        chosen=PACED,
    ),
    "fig16-left-everybody": claim(
        "LiveServe wastes less when every reply is interrupted (p = 1)",
        moves(_CUT, within=_LESS),
        _cut(1.0),
        _LEAD,
        fact=_FACT,
        untold=over_testbeds("p = 1", 8, lambda ours, base: change(_METRIC, ours, since=base)),
        chosen=PACED,
        remark=_TWO,
    ),
}

ALL_INTERRUPT = {_P: EXPERIMENTS[_P].model_copy(update={"grid": {"p": [1.0]}})}
"""The experiments that the last claim alone needs."""

_LOOK = engine_looks(*PAIR)["liveserve"]


_CAPS = {
    label: {cap: value(f"{_METRIC}{part}", of(_CAP, lead_cap_s=cap)) for cap in CAPS} for label, part in PARTS.items()
}
"""Waste over the lead cap, by which tokens count."""


def _crossing(panels: Panels, label: str) -> str:
    """Return the place of the paper's waste on the straight line between two measured caps, as text."""
    wanted, waste = PAPER["liveserve"], _CAPS[label]
    medians = {cap: across_seeds(measure(panels)).median for cap, measure in waste.items()}
    caps = [(cap, median) for cap, median in medians.items() if median is not None]
    for (low, less), (high, more) in pairwise(caps):
        if less <= wanted <= more:
            return f"a cap of about {low + (wanted - less) / (more - less) * (high - low):.1f} s"
    if not caps:
        return "a cap that was not measured"
    end, (cap, share) = (
        ("less than the smallest", caps[0]) if caps[0][1] > wanted else ("more than the largest", caps[-1])
    )
    return f"{end} cap here, {cap:g} s with {100 * share:.1f} %"


_lines = partial(lines, _METRIC, percent=(0, 0.5), xlim=(0, None))
draw = figure(
    TITLE,
    bars(
        _METRIC,
        {engine: {f"{p:g}": of(_P, engine, p=p) for p in PS} for engine in PAIR},
        marks={engine: {"0": 0.0, "1": PAPER[engine]} for engine in PAIR},
        percent=(0, 0.5),
        xlabel="probability of a barge-in, p",
    ),
    _lines(grid(_LENGTH, PAIR, reply_tokens=LENGTHS), xlabel="text tokens of a reply, median, p = 1"),
    _lines(
        _CAPS,
        style={label: replace(_LOOK, line=line) for label, line in zip(PARTS, ("-", "--", ":"), strict=True)},
        across={PAPER["liveserve"]: "paper's LiveServe, 12.38 %"},
        xlabel="lead cap, s, p = 1",
    ),
    sharey=True,
    paper="paper: at p = 0, and its largest",
    caption=lambda panels: (
        "Text tokens and codec frames that were generated and not heard, over all generated ones. The "
        "paper states its largest values, drawn at p = 1, but not the length of replies. Middle: over "
        f"their length. Left and right: {LONG_TOKENS} tokens, the 65.9 s of Fig. 15 right. Right: "
        "LiveServe over how far generation may run ahead of playback; 10.6 s is the cap in Fig. 15 "
        f"right. The paper's 12.38 % would need {_crossing(panels, BOTH)}. For frames alone it would "
        f"need {_crossing(panels, FRAMES)}."
    ),
)
