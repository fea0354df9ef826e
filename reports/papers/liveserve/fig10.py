"""Fig. 10: throughput against the tail of the time to first audio, over concurrency, for three workloads.

The paper has Ming-Flash-Omni 2.0 as well. No public run holds its step times, and the paper prints no number of its
baseline.
"""

from typing import Any

from reports.claims.quantities import Measure, Setting, average, change, largest, of, quotient, ratio, value
from reports.claims.stated import claim, level, moves, times
from reports.figures.forms import Plot, figure, lines
from reports.figures.style import engine_looks
from reports.papers.liveserve.common import (
    AWAITED,
    BASELINES,
    CURRENT_TURN,
    INTERACTIVE,
    MIXED,
    PAIR,
    SHAREGPT,
    SHORTER,
    experiment,
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
QUICK = {"c": "2,16", "requests": "64", "sessions": "16"}


def _at(workload: str, engine: str, c: int) -> Setting:
    return of(_panel(workload, engine), engine, c=c)


def _pair(workload: str, c: int) -> tuple[Setting, Setting]:
    """LiveServe and the offloading baseline."""
    return _at(workload, "liveserve", c), _at(workload, "vllm_omni", c)


def _peak(workload: str, engine: str) -> Measure:
    """Largest completed RPS over c."""
    return largest(*(value("completed_rps", _at(workload, engine, c)) for c in CS))


_EVERYWHERE = [_pair(workload, c) for workload in WORKLOADS for c in CS_OF[workload]]
_SPEEDUPS = [ratio("audio_ttfp_p90", baseline, to=ours) for ours, baseline in _EVERYWHERE]
"""Ratios of the offloading baseline's P90 TTFP to LiveServe's."""

CLAIMS = {
    "fig10-sharegpt-p90-qwen": claim(
        "ShareGPT: LiveServe about halves the P90 TTFP at high concurrency (c = 16)",
        times(0.5, within=0.15, words="about ½"),
        ratio("audio_ttfp_p90", *_pair("ShareGPT", 16)),
        "here × {ours:.2f}: the slowest first packets wait for prompts of up to 16,000 tokens, which the thinker "
        "computes one after the other under both systems",
        chosen=AWAITED,
        remark="the paper states it for Qwen3-Omni and Ming; for c = 8 see Fig. 11",
    ),
    "fig10-sharegpt-peak": claim(
        "ShareGPT: peak RPS comparable or higher",
        level((1.0, 1.2), "×", words="≥ 1"),
        quotient(_peak("ShareGPT", "liveserve"), _peak("ShareGPT", "vllm_omni")),
        "here × {ours:.2f}: " + SHORTER,
    ),
    **{
        f"fig10-interactive-peak-{baseline}": claim(
            f"interactive: peak RPS over c against {baseline}",
            times(paper, within=0.15),
            quotient(_peak("interactive", "liveserve"), _peak("interactive", baseline)),
            "here × {ours:.2f}: " + SHORTER,
            remark="the text gives 56 to 78 % over the baselines, the abstract at most 56 %",
        )
        for baseline, paper in (("vllm_omni", 1.56), ("vllm_omni_wo", 1.78))
    },
    "fig10-interactive-rps-c8": claim(
        "interactive, moderate c (8): more RPS than with offload",
        moves(0.285, within=0.07),
        change("completed_rps", *_pair("interactive", 8)),
        "here {percent:.1f} %: " + SHORTER,
        remark="the paper quotes the same pair (28.5 %, 39.8 %) for Fig. 14 with barge-in; both rows are shown",
    ),
    "fig10-interactive-p90-c8": claim(
        "interactive, moderate c (8): lower P90 TTFP than with offload",
        moves(-0.398, within=0.1),
        change("audio_ttfp_p90", *_pair("interactive", 8)),
        "first turns set our P90, and every system has to prefill their 16,000 tokens of context",
        chosen=AWAITED,
        remark="the same pair as in Fig. 14",
    ),
    "fig10-mixed-rps": claim(
        "mixed, largest c: more RPS than the best baseline",
        moves((0.12, 0.16), within=0.04),
        change("completed_rps", *_pair("mixed", 16)),
        "here {percent:.1f} %: " + SHORTER,
    ),
    "headline-p90-average": claim(
        "P90 TTFP: speedup over offload, mean over workloads and c",
        times(1.55, within=0.25),
        average(*_SPEEDUPS),
        "here × {ours:.2f}: every policy has to prefill first turns and videos",
        chosen=AWAITED,
    ),
    "headline-p90-largest": claim(
        "P90 TTFP: largest speedup over offload",
        times(2.21, within=0.4),
        largest(*_SPEEDUPS),
        "here × {ours:.2f}",
        chosen=AWAITED,
    ),
    "headline-rps-average": claim(
        "completed RPS over offload, mean over workloads and c",
        times(1.15, within=0.075),
        average(*(ratio("completed_rps", *pair) for pair in _EVERYWHERE)),
        "here × {ours:.2f}: " + SHORTER,
    ),
}


def _curves(workload: str) -> Plot:
    series = {
        e: {c: _at(workload, e, c) for c in CS_OF[workload]} for e in (*WORKLOADS[workload][2], "liveserve")
    }
    style = engine_looks(*BASELINES, "liveserve")
    return lines("completed_rps", series, against="audio_ttfp_p90", style=style, title=workload)


draw = figure(
    TITLE,
    *map(_curves, WORKLOADS),
    height_in=3.4,
    caption="Up and left is better. A curve joins the medians at c = 2, 4, 8, 12 and 16 (mixed: 2, 8 and 16); its "
    "first point is c = 2. The paper gives no single values for these curves.",
)
