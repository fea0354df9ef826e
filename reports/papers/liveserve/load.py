"""(ours) The default against the baseline, from an idle talker to twice its capacity, without and with barge-in.

What the baseline can do is the paper's useful RPS (section 7.1): the largest load at which playback stays continuous,
here in 95 % of the replies. Up to there no first packet may come later than in the baseline, and at any load no reply
may break that would not there.
"""

from typing import Any

from reports.claims.quantities import Measure, Panels, Setting, Values, difference, largest, of, ratio, smallest, spread
from reports.claims.stated import claim, level
from reports.figures.forms import figure, lines
from reports.papers.liveserve.common import OPEN_LOOP, experiment

TITLE = "Load from idle to saturation and beyond (open loop, ShareGPT)"

BASELINE, KEPT_UP, DEFAULT = "vllm_omni", "keep_up", "liveserve"
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    BASELINE: ("vllm_omni", {}),
    "Algorithm 1 alone": ("liveserve", {"u2_mode": "work_conserving", "pacing": "never"}),
    "share rule": ("liveserve", {"u2_mode": "yielding"}),
    KEPT_UP: ("liveserve", {"keep_up": True}),
    DEFAULT: ("liveserve", {}),
}

RATES = {0.0: [2.0, 6.0, 10.0, 16.0], 0.7: [2.0, 6.0, 10.0, 16.0]}
"""p -> requests a second of the whole server."""
OPTIONS_AT = [6.0, 10.0]
"""[chosen] Rates at which the options are measured, requests a second: below and near the baseline's capacity."""
USEFUL = 0.95
"""Share of continuous replies up to which a load is useful to the baseline. [chosen]"""


def _rates(variant: str, p: float) -> list[float]:
    return RATES[p] if variant in (BASELINE, DEFAULT) else OPTIONS_AT


def _panel(variant: str, p: float) -> str:
    return f"{variant}, p = {p:g}"


EXPERIMENTS = {
    _panel(variant, p): experiment(
        "load", [engine], "sharegpt", {**OPEN_LOOP, "stop_after_s": 60.0, "p": p, **switches}, rate=_rates(variant, p)
    )
    for p in RATES
    for variant, (engine, switches) in VARIANTS.items()
}
QUICK = {"rate": "2,10", "stop_after_s": "30"}

METRICS: dict[str, dict[str, Any]] = {
    "continuity": {},
    "audio_ttfp_p90": {},
    "wasted_token_ratio": {"percent": (0, 0.5)},
}


def _at(variant: str, rate: float, p: float) -> Setting:
    return of(_panel(variant, p), rate=rate)


def _least_gain(variant: str) -> Measure:
    """The smallest gain in continuity over the baseline, over all loads, with and without barge-in."""
    return smallest(
        *(
            difference("continuity", _at(variant, rate, p), less=_at(BASELINE, rate, p))
            for p in RATES
            for rate in _rates(variant, p)
        )
    )


def _in_any_seed(measure: Measure) -> Measure:
    """The smallest value of all seeds, as that of each that has one."""

    def least(panels: Panels) -> Values:
        values = measure(panels)
        minimum = min([value for value in values.values() if value is not None], default=None)
        return {seed: None if value is None else minimum for seed, value in values.items()}

    return least


def _longest(p: float) -> Measure:
    """The largest P90 TTFP over the baseline's, of the loads that are useful to the baseline (median over the
    seeds)."""

    def measure(panels: Panels) -> Values:
        useful = [
            rate
            for rate in RATES[p]
            if (spread(_at(BASELINE, rate, p).points(panels), "continuity").median or 0) >= USEFUL
        ]
        ratios = (ratio("audio_ttfp_p90", _at(DEFAULT, rate, p), to=_at(BASELINE, rate, p)) for rate in useful)
        return largest(*ratios)(panels)

    return measure


_NOT_BELOW = "nowhere below"
_STARTS = "the few replies that break began when other players were out of audio"

CLAIMS = {
    "load-default": claim(
        "(ours) the default's continuity minus the baseline's, at the load with the smallest difference",
        level((-0.01, 1.0), "%", words=_NOT_BELOW),
        _least_gain(DEFAULT),
        _STARTS,
    ),
    "load-default-any": claim(
        "(ours) the same in the seed with the smallest difference",
        level((-0.01, 1.0), "%", words=_NOT_BELOW),
        _in_any_seed(_least_gain(DEFAULT)),
        _STARTS,
    ),
    "load-keep-up": claim(
        "(ours) the same with keep_up", level((-0.01, 1.0), "%", words=_NOT_BELOW), _least_gain(KEPT_UP), _STARTS
    ),
    **{
        f"load-ttfp-p{p:g}": claim(
            f"(ours) p = {p:g}: the default's P90 TTFP over the baseline's, largest over the loads "
            "useful to the baseline",
            level((0.2, 1.0), "×", words="nowhere above"),
            _longest(p),
        )
        for p in RATES
    },
    "load-waste": claim(
        "(ours) p = 0.7: wasted tokens, the default over the baseline, largest over the loads",
        level((0.1, 1.0), "×", words="everywhere less"),
        largest(
            *(ratio("wasted_token_ratio", _at(DEFAULT, rate, 0.7), to=_at(BASELINE, rate, 0.7)) for rate in RATES[0.7])
        ),
    ),
}

draw = figure(
    TITLE,
    *(
        lines(
            metric,
            {variant: {rate: _at(variant, rate, p) for rate in _rates(variant, p)} for variant in VARIANTS},
            title=f"p = {p:g}",
            xlabel="offered requests, 1/s",
            xlim=(0, None),
            **axes,
        )
        for p in RATES
        for metric, axes in METRICS.items()
    ),
    columns=len(METRICS),
    height_in=2.6,
    caption="Eight GPUs; arrivals are Poisson and do not wait, so every system gets the same requests. "
    "keep_up delays replies that the talker could not generate in time.",
)
