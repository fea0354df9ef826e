"""(ours) The default against the baseline from an idle talker to twice what it can do: pacing has to give way.

A reply that is paced to playback spends a lead which the baseline still has when more listeners come than the talker
can serve. So the default lets nobody wait whose lead would end before the talker could make up for it.
"""

from collections.abc import Mapping
from typing import Any

from reports.claims import Measure, difference, of, ratio, smallest
from reports.figures.drawing import in_per_cent, legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from
from reports.measured import Run, Variant, over_seeds
from reports.papers.liveserve.common import SHAREGPT, experiment
from reports.stated import claim, level, times
from reports.style import INK, looks

TITLE = "Load from idle to twice saturation: does pacing give way? (open loop, ShareGPT, one talker)"

BASELINE, LETTER, ALWAYS, DEFAULT = "vllm_omni", "Algorithm 1 alone", "paced at any load", "liveserve"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    BASELINE: ("vllm_omni", {}),
    LETTER: ("liveserve", {"u2_mode": "work_conserving"}),
    ALWAYS: ("liveserve", {"u2_mode": "utility_gate"}),
    DEFAULT: ("liveserve", {}),
}

SATURATED = 1.6
"""Requests a second that keep the talker busy: 64 replies in a step of 174 ms make 29 s of audio a second, and a reply
is about 18 s long, of which three in ten are interrupted halfway."""
RATES = [round(share * SATURATED, 2) for share in (0.125, 0.375, 0.625, 0.875, 1.125, 1.5, 2.0)]

_OPEN = {name: value for name, value in SHAREGPT.items() if name not in ("c_scope", "c_counts", "rate")}

EXPERIMENTS = {
    variant: experiment(
        "load",
        [engine],
        "sharegpt",
        {**_OPEN, "deployment": "qwen3_omni_2gpu", "p": 0.3, **switches},
        rate=RATES,
    )
    for variant, (engine, switches) in VARIANTS.items()
}
QUICK = {"rate": "0.6,3.2", "requests": "64"}

PAPER: dict[str, Any] = {}

METRICS = {
    "continuity": "continuous replies",
    "audio_ttfp_p90": "P90 TTFP, s",
    "wasted_token_ratio": "wasted tokens",
}


def _at(variant: str, rate: float) -> Any:
    return of(variant, VARIANTS[variant][0], rate=rate)


def _least_gain(variant: str) -> Measure:
    """The smallest gain in continuity over the baseline, over all loads."""
    return smallest(
        *(difference("continuity", _at(variant, rate), less=_at(BASELINE, rate)) for rate in RATES)
    )


def _in_any_seed(measure: Measure) -> Measure:
    """The smallest value of all seeds, as that of each that has one."""

    def least(panels: Mapping[str, Run]) -> dict[int, float | None]:
        values = measure(panels)
        found = min([value for value in values.values() if value is not None], default=None)
        return {seed: None if value is None else found for seed, value in values.items()}

    return least


_NOT_BELOW = "nowhere below"

CLAIMS = [
    claim(
        "load-default",
        "(ours) the default's continuity less the baseline's, at the load where that is least",
        level((-0.03, 1.0), "%", words=_NOT_BELOW),
        _least_gain(DEFAULT),
        "{percent:.0f} points: near saturation a few breaks of some hundredths of a second decide",
        remark="three points are less than the seeds differ by",
    ),
    claim(
        "load-default-any",
        "(ours) the same in the seed where that is least",
        level((-0.03, 1.0), "%", words=_NOT_BELOW),
        _in_any_seed(_least_gain(DEFAULT)),
        "{percent:.0f} points: paced in a quiet spell, and then more came than the talker can serve: the leads that it "
        "had not made were missing",
    ),
    claim(
        "load-always",
        "(ours) the same where replies are paced at any load",
        level((-0.03, 1.0), "%", words=_NOT_BELOW),
        _least_gain(ALWAYS),
        "{percent:.0f} points: its leads are spent when more listeners come than the talker can serve",
    ),
    claim(
        "load-ttfp",
        f"(ours) P90 TTFP at {RATES[1]:g}/s, the default over the baseline",
        times((0.2, 0.95), words="less"),
        ratio("audio_ttfp_p90", _at(DEFAULT, RATES[1]), to=_at(BASELINE, RATES[1])),
        "here × {ours:.2f}",
    ),
    claim(
        "load-waste",
        f"(ours) wasted tokens at {RATES[1]:g}/s, the default over the baseline",
        times((0.1, 0.95), words="less"),
        ratio("wasted_token_ratio", _at(DEFAULT, RATES[1]), to=_at(BASELINE, RATES[1])),
        "here × {ours:.2f}",
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Continuity, P90 TTFP and waste over the offered load."""
    points = [point for run in panels.values() for point in run.points]
    if not any(point.error is None for point in points):
        return LeftOut("load", TITLE, "no point of it is finished")
    figure, axes = sheet(1, len(METRICS), TITLE)
    own = looks([Variant("vllm_omni"), Variant("letter"), Variant("always"), Variant("liveserve")]).values()
    for panel, (metric, label) in zip(axes, METRICS.items(), strict=True):
        for variant, look in zip(VARIANTS, own, strict=True):
            at = {rate: over_seeds(_at(variant, rate).points(panels), metric) for rate in RATES}
            line(panel, at, look, variant)
        panel.axvline(SATURATED, color=INK, lw=0.7, ls=(0, (2, 3)), zorder=1)
        panel.set_xlabel("offered requests, 1/s")
        panel.set_ylabel(label)
        panel.set_xlim(left=0)
    axes[1].set_yscale("log")
    for panel in (axes[0], axes[2]):
        in_per_cent(panel)
    legend(figure, axes[0])
    caption = (
        "One thinker and one talker; arrivals are Poisson and do not wait for replies, three in ten of which are "
        f"interrupted. Dotted: about the load at which the talker never rests. {made_from(points, bars=True)}"
    )
    return Picture("load", TITLE, figure, caption)
