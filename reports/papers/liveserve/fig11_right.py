"""Fig. 11 right: how many replies play without a break, over concurrency."""

from collections.abc import Callable, Mapping
from typing import Any

from reports.claims import Claim, Measure, difference, of, value
from reports.figures.drawing import in_per_cent, legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from, paper_handle, paper_marker
from reports.measured import Measured, Run, over_seeds
from reports.papers.liveserve.common import PAIR, SHAREGPT, experiment
from reports.stated import claim, level, moves
from reports.style import engine_looks

TITLE = "Fig. 11 right: replies heard without a pause above 100 ms, c = 8 to 16"

CS = [8, 12, 16]
FRAMES = {"first packet of 25 frames": 25, "first packet of 12 frames": 12}

EXPERIMENTS = {
    panel: experiment(
        "fig11-right", PAIR, "sharegpt", {**SHAREGPT, "p": 0, "first_chunk_frames": frames}, c=CS
    )
    for panel, frames in FRAMES.items()
}
QUICK = {"requests": "64", "c": "16"}

PAPER = {12: {"vllm_omni": 0.813, "liveserve": 0.918}, 16: {"vllm_omni": 0.703, "liveserve": 0.875}}
"""c -> engine -> share. At c = 16 the two baselines have 76.6 and 70.3 %, and the text does not say which has which;
single turns leave no KV behind, so that here they are one."""

_LONG, _SHORT = FRAMES


def _gain(panel: str, c: int) -> Measure:
    return difference("continuity", of(panel, "liveserve", c=c), less=of(panel, "vllm_omni", c=c))


def _claims(panel: str, short: str, why: str | Callable[[float], str]) -> list[Claim]:
    return [
        claim(
            f"fig11-right-c12-{short}",
            f"{panel}, c = 12: LiveServe's continuity above that of the offloading baseline (81.3 to 91.8 %)",
            moves(0.105, within=0.025),
            _gain(panel, 12),
            why,
        ),
        claim(
            f"fig11-right-c16-{short}",
            f"{panel}, c = 16: LiveServe's continuity above that of the baselines (76.6 and 70.3 to 87.5 %)",
            moves((0.109, 0.172), within=0.035),
            _gain(panel, 16),
            why,
            remark="the text leaves open which of the two baselines has 76.6 % and which 70.3 %",
        ),
    ]


def _of_short(gain: float) -> str:
    if gain > 0.01:
        return (
            f"{100 * gain:.0f} points: with 16 replies on a talker, 25 steps of the baseline take longer than the "
            "first packet of 0.96 s plays, and as all talkers are loaded alike, most replies break at the same c"
        )
    return "both are unbroken: the baseline still makes the second packet while the first one plays"


CLAIMS = [
    *_claims(
        _LONG,
        "25",
        "both are unbroken: the first packet alone plays for 2.0 s, in which the baseline makes the next one even at "
        "16 replies a talker",
    ),
    *_claims(_SHORT, "12", _of_short),
    claim(
        "fig11-right-liveserve",
        "first packet of 12 frames, c = 16: LiveServe's continuity",
        level(PAPER[16]["liveserve"], "%", within=0.06),
        value("continuity", of(_SHORT, "liveserve", c=16)),
        "the next packet of a reply that plays comes before all other work, and here there is time for all",
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Continuity over c, a panel for each length of the first packet."""
    figure, axes = sheet(1, len(FRAMES), TITLE, sharey=True)
    used: list[Measured] = []
    for own, panel in zip(axes, FRAMES, strict=True):
        for engine, look in engine_looks(*PAIR).items():
            points = {c: of(panel, engine, c=c).points(panels) for c in CS}
            used += [point for found in points.values() for point in found]
            line(own, {c: over_seeds(found, "continuity") for c, found in points.items()}, look, engine)
            for c, values in paper.items():
                if engine in values:
                    paper_marker(own, c, values[engine], look)
        own.set_title(panel)
        own.set_xlabel("requests under way, c")
        own.set_xticks(CS)
    if all(point.error is not None for point in used):
        return LeftOut("fig11_right", TITLE, "no point of it is finished")
    in_per_cent(axes[0])
    axes[0].set_ylabel("continuous replies")
    legend(figure, axes[0], paper_handle("paper"))
    caption = (
        "Higher is better. A reply is continuous if its player, which waits for late packets, never pauses for more "
        "than 100 ms. Left with the first packet of all other figures, 2.0 s of audio; right with one of 0.96 s, "
        f"before whose end the second has to come. Curves may lie on one another. {made_from(used, bars=True)}"
    )
    return Picture("fig11_right", TITLE, figure, caption)
