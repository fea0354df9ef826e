"""Fig. 10: throughput against the tail of the time to first audio, over concurrency, for three workloads.

The paper has Ming-Flash-Omni 2.0 as well. No public run holds its step times, and the paper prints no number of its
baseline.
"""

from typing import Any

from reports.claims.bands import of_mean, of_percentile
from reports.claims.quantities import Measure, Setting, average, change, largest, of, quotient, ratio, value
from reports.claims.stated import claim, level, moves, times
from reports.figures.forms import Plot, figure, lines
from reports.figures.style import engine_looks
from reports.papers.liveserve.common import (
    AWAITED,
    BASELINES,
    CURRENT_TURN,
    FEW_IN_FLIGHT,
    INTERACTIVE,
    MIXED,
    PAIR,
    RPS,
    SHAREGPT,
    SHORTER,
    SPOKEN_P90,
    TAIL,
    TYPED_P90,
    N,
    experiment,
    spoken_rps,
)

TITLE = "Fig. 10: completed requests and P90 TTFP, c = 2 to 16"

CS = [2, 4, 8, 12, 16]
CS_OF = {"ShareGPT": CS, "interactive": CS, "mixed": [2, 8, 16]}
WORKLOADS: dict[str, tuple[str, dict[str, Any], list[str], dict[str, Any]]] = {
    "ShareGPT": ("sharegpt", SHAREGPT, PAIR[:1], {}),
    "interactive": ("interactive", INTERACTIVE, BASELINES, CURRENT_TURN),
    "mixed": ("omni_mix", MIXED, BASELINES, CURRENT_TURN),
}
"""Workloads with their baselines and LiveServe's additional settings. Single turns have one baseline, as they leave
no KV behind."""


def _panel(workload: str, engine: str) -> str:
    return workload + (", liveserve" if engine == "liveserve" else "")


EXPERIMENTS = {
    _panel(name, engines[0]): experiment(
        f"fig10-{name.lower()}",
        engines,
        workload,
        {**settings, **engine_settings, "p": 0},
        timeout_s=900,
        c=CS_OF[name],
    )
    for name, (workload, settings, baselines, more) in WORKLOADS.items()
    for engines, engine_settings in ((baselines, {}), (["liveserve"], more))
}
QUICK = {"c": "8,16", "requests": "96", "stop_after_s": "120"}


def _at(workload: str, engine: str, c: int) -> Setting:
    return of(_panel(workload, engine), engine, c=c)


def _pair(workload: str, c: int) -> tuple[Setting, Setting]:
    """LiveServe and the offloading baseline."""
    return _at(workload, "liveserve", c), _at(workload, "vllm_omni", c)


def _peak(workload: str, engine: str) -> Measure:
    """Largest completed RPS over c."""
    return largest(*(value(spoken_rps, _at(workload, engine, c)) for c in CS))


_EVERYWHERE = [_pair(workload, c) for workload in WORKLOADS for c in CS_OF[workload]]
_SPEEDUPS = [ratio("audio_ttfp_p90", baseline, to=ours) for ours, baseline in _EVERYWHERE]
"""Ratios of the offloading baseline's P90 TTFP to LiveServe's."""

_ALL = 30 * N
"""Requests of the paper's means over Fig. 10: two models, three workloads, five c."""
_FIRST = (
    "videos, which every policy has to prefill, set the P90 of the mixed workload, and at a small c first packets "
    "compete with few others"
)
_SHAREGPT = "Section 7.2, Fig. 10: ShareGPT, about half the P90 TTFP at a comparable or higher peak throughput"
_PEAK = "Section 7.2, Fig. 10 and abstract: interactive, peak throughput 56 to 78 % over the baselines"
_MODERATE = "Section 7.2, Fig. 10: interactive at moderate c, 28.5 % more requests and 39.8 % less P90 TTFP"
_ABSTRACT = "Abstract: P90 TTFP 1.55 times lower on average, 2.21 times at most"

CLAIMS = {
    "fig10-sharegpt-p90-qwen": claim(
        "ShareGPT: LiveServe about halves the P90 TTFP at high concurrency (c = 16)",
        times(0.5, within=TYPED_P90, words="about 1/2"),
        ratio("audio_ttfp_p90", *_pair("ShareGPT", 16)),
        TAIL,
        fact=_SHAREGPT,
        chosen=AWAITED,
        remark="the paper states it for Qwen3-Omni and Ming; for c = 8 see Fig. 11",
    ),
    "fig10-sharegpt-peak": claim(
        "ShareGPT: peak RPS comparable or higher",
        level((0.95, 100), "×", words="comparable or higher"),
        quotient(_peak("ShareGPT", "liveserve"), _peak("ShareGPT", "vllm_omni")),
        SHORTER,
        fact=_SHAREGPT,
        remark="a twentieth less is comparable",
    ),
    **{
        f"fig10-interactive-peak-{baseline}": claim(
            f"interactive: peak RPS over c against {baseline}",
            times(paper, within=RPS),
            quotient(_peak("interactive", "liveserve"), _peak("interactive", baseline)),
            SHORTER,
            fact=_PEAK,
            remark="the text gives 56 to 78 % over the baselines, the abstract at most 56 %",
        )
        for baseline, paper in (("vllm_omni", 1.56), ("vllm_omni_wo", 1.78))
    },
    "fig10-interactive-rps-c8": claim(
        "interactive, moderate c (8): more RPS than with offload",
        moves(0.285, within=RPS),
        change(spoken_rps, *_pair("interactive", 8)),
        SHORTER,
        fact=_MODERATE,
        remark="the paper quotes the same pair (28.5 %, 39.8 %) for Fig. 14 with barge-in; both rows are shown",
    ),
    "fig10-interactive-p90-c8": claim(
        "interactive, moderate c (8): lower P90 TTFP than with offload",
        moves(-0.398, within=SPOKEN_P90),
        change("audio_ttfp_p90", *_pair("interactive", 8)),
        FEW_IN_FLIGHT,
        fact=_MODERATE,
        chosen=AWAITED,
        remark="the same pair as in Fig. 14",
    ),
    "fig10-mixed-rps": claim(
        "mixed, largest c: more RPS than the best baseline",
        moves((0.12, 0.16), within=RPS),
        change(spoken_rps, *_pair("mixed", 16)),
        SHORTER,
    ),
    "headline-p90-average": claim(
        "P90 TTFP: speedup over offload, mean over workloads and c",
        times(1.55, within=of_percentile(0.9, _ALL)),
        average(*_SPEEDUPS),
        _FIRST,
        fact=_ABSTRACT,
        chosen=AWAITED,
    ),
    "headline-p90-largest": claim(
        "P90 TTFP: largest speedup over offload",
        times(2.21, within=SPOKEN_P90),
        largest(*_SPEEDUPS),
        _FIRST,
        fact=_ABSTRACT,
        chosen=AWAITED,
    ),
    "headline-rps-average": claim(
        "completed RPS over offload, mean over workloads and c",
        times(1.15, within=of_mean(_ALL)),
        average(*(ratio(spoken_rps, *pair) for pair in _EVERYWHERE)),
        SHORTER,
    ),
}


def _curves(workload: str) -> Plot:
    series = {e: {c: _at(workload, e, c) for c in CS_OF[workload]} for e in (*WORKLOADS[workload][2], "liveserve")}
    style = engine_looks(*BASELINES, "liveserve")
    return lines(
        spoken_rps, series, against="audio_ttfp_p90", style=style, title=workload, ylabel="completed requests, 1/s"
    )


draw = figure(
    TITLE,
    *map(_curves, WORKLOADS),
    height_in=3.4,
    caption="Up and left is better. A curve joins the medians at c = 2, 4, 8, 12 and 16 (mixed: 2, 8 and 16); its "
    "first point is c = 2. The paper gives no single values for these curves.",
)
