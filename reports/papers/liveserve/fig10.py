"""Fig. 10: throughput against the tail of the time to first audio, over concurrency: two models, three workloads."""

from collections.abc import Mapping
from typing import Any

from reports.claims import Claim, Measure, Setting, average, change, largest, of, quotient, ratio, value
from reports.figures.drawing import legend, sheet
from reports.figures.picture import LeftOut, Picture, made_from
from reports.measured import Measured, Run, over_seeds
from reports.papers.liveserve.common import (
    INTERACTIVE,
    MING,
    MIXED,
    PAIR,
    QWEN,
    SHAREGPT,
    SYSTEMS,
    experiment,
)
from reports.stated import claim, level, moves, times
from reports.style import Look, engine_looks

TITLE = "Fig. 10: completed requests and P90 TTFP, c = 2 to 16"

CS = [2, 4, 8, 12, 16]
CS_OF = {"ShareGPT": CS, "interactive": CS, "mixed": [2, 8, 16]}
MODELS = {"Qwen3-Omni": QWEN, "Ming-Flash-Omni 2.0": MING}

WORKLOADS = {
    "ShareGPT": ("sharegpt", SHAREGPT, PAIR),
    "interactive": ("interactive", INTERACTIVE, SYSTEMS),
    "mixed": ("omni_mix", MIXED, SYSTEMS),
}
"""With engines: single turns leave no KV behind, so that both baselines are one."""


def _panel(model: str, workload: str) -> str:
    return f"{model}, {workload}"


EXPERIMENTS = {
    _panel(model, name): experiment(
        f"fig10-{name.lower()}",
        engines,
        workload,
        {**settings, "deployment": deployment, "p": 0},
        timeout_s=900,
        c=CS_OF[name],
    )
    for model, deployment in MODELS.items()
    for name, (workload, settings, engines) in WORKLOADS.items()
}
QUICK = {"c": "2,16", "requests": "64", "sessions": "16"}

PAPER: dict[str, Any] = {}

_QWEN, _MING = MODELS
_HELD = (
    "a reply that is paced to playback holds its slot for longer, and with c slots fewer requests come; "
    "where c does not bind, requests follow from how long people speak and listen"
)


def _at(model: str, workload: str, engine: str, c: int) -> Setting:
    return of(_panel(model, workload), engine, c=c)


def _pair(model: str, workload: str, c: int) -> tuple[Setting, Setting]:
    """LiveServe and the offloading baseline."""
    return _at(model, workload, "liveserve", c), _at(model, workload, "vllm_omni", c)


def _peak(model: str, workload: str, engine: str) -> Measure:
    """Largest completed RPS over c."""
    return largest(*(value("completed_rps", _at(model, workload, engine, c)) for c in CS))


_EVERYWHERE = [
    _pair(model, workload, c) for model in MODELS for workload in WORKLOADS for c in CS_OF[workload]
]
_SPEEDUPS = [ratio("audio_ttfp_p90", baseline, to=ours) for ours, baseline in _EVERYWHERE]
"""How many times shorter the P90 TTFP is than with the offloading baseline."""

_SEGMENTS = (
    "Ming's talker serves whole segments, first come, first served, and at this load the baseline's first segments "
    "wait behind the later ones of others; its times are from a public table and swept, not calibrated"
)


def _halved(model: str, name: str, why: str) -> Claim:
    return claim(
        f"fig10-sharegpt-p90-{name}",
        f"{model}, ShareGPT: LiveServe about halves the P90 TTFP at high concurrency (c = 16)",
        times(0.5, within=0.15, words="about ½"),
        ratio("audio_ttfp_p90", *_pair(model, "ShareGPT", 16)),
        why,
    )


def _peak_claim(baseline: str, paper: float) -> Claim:
    return claim(
        f"fig10-interactive-peak-{baseline}",
        f"Qwen3-Omni, interactive: peak RPS over c against {baseline}",
        times(paper, within=0.15),
        quotient(_peak(_QWEN, "interactive", "liveserve"), _peak(_QWEN, "interactive", baseline)),
        _HELD,
        remark="the text gives 56 to 78 % over the baselines, the abstract at most 56 %",
    )


CLAIMS = [
    _halved(_QWEN, "qwen", "here × {ours:.2f}: the gain grows with the load on the talkers, which c sets"),
    _halved(_MING, "ming", "here × {ours:.2f}: " + _SEGMENTS),
    claim(
        "fig10-sharegpt-peak",
        "Qwen3-Omni, ShareGPT: peak RPS comparable or higher",
        level((1.0, 1.2), "×", within=0.05, words="≥ 1"),
        quotient(_peak(_QWEN, "ShareGPT", "liveserve"), _peak(_QWEN, "ShareGPT", "vllm_omni")),
        _HELD,
    ),
    _peak_claim("vllm_omni", 1.56),
    _peak_claim("vllm_omni_wo", 1.78),
    claim(
        "fig10-interactive-rps-c8",
        "Qwen3-Omni, interactive, moderate c (8): more RPS than with offload",
        moves(0.285, within=0.07),
        change("completed_rps", *_pair(_QWEN, "interactive", 8)),
        _HELD,
        remark="the paper quotes the same pair (28.5 %, 39.8 %) for Fig. 14 with barge-in; both rows are shown",
    ),
    claim(
        "fig10-interactive-p90-c8",
        "Qwen3-Omni, interactive, moderate c (8): lower P90 TTFP than with offload",
        moves(-0.398, within=0.1),
        change("audio_ttfp_p90", *_pair(_QWEN, "interactive", 8)),
        "P90 is set here by first turns, whose 16,000 tokens of context every system has to prefill",
        remark="the same pair as in Fig. 14",
    ),
    claim(
        "fig10-mixed-rps",
        "Qwen3-Omni, mixed, largest c: more RPS than the best baseline",
        moves((0.12, 0.16), within=0.04),
        change("completed_rps", *_pair(_QWEN, "mixed", 16)),
        _HELD,
    ),
    claim(
        "fig10-mixed-p90-ming",
        "Ming-Flash-Omni 2.0, mixed, largest c: lower P90 TTFP",
        moves(-0.42, within=0.1),
        change("audio_ttfp_p90", *_pair(_MING, "mixed", 16)),
        "P90 is set here by the prefill of a minute of video, which no scheduling shortens",
    ),
    claim(
        "headline-p90-average",
        "P90 TTFP: speedup over offload, mean over models, workloads and c",
        times(1.55, within=0.25),
        average(*_SPEEDUPS),
        "here × {ours:.2f}: most of it is Ming on ShareGPT, whose talker serves whole segments; the others "
        "gain little, as first turns and videos have to be prefilled under any policy",
    ),
    claim(
        "headline-p90-largest",
        "P90 TTFP: largest speedup over offload",
        times(2.21, within=0.4),
        largest(*_SPEEDUPS),
        "here × {ours:.2f}: " + _SEGMENTS,
    ),
    claim(
        "headline-rps-average",
        "completed RPS over offload, mean over models, workloads and c",
        times(1.15, within=0.08),
        average(*(ratio("completed_rps", *pair) for pair in _EVERYWHERE)),
        _HELD,
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """A row for each model, a column for each workload; a curve joins the values of c."""
    looks = engine_looks(*SYSTEMS)
    figure, axes = sheet(len(MODELS), len(WORKLOADS), TITLE, 2.9)
    points: list[Measured] = []
    for own, panel in zip(axes, EXPERIMENTS, strict=True):
        run = panels[panel]
        points += run.points
        for engine, look in looks.items():
            _frontier(own, run, engine, look)
        own.set_title(panel)
        own.set_xlim(0, 1.06 * own.get_xlim()[1])
        own.set_ylim(0, 1.06 * own.get_ylim()[1])
    if not any(point.error is None for point in points):
        return LeftOut("fig10", TITLE, "no point of it is finished")
    for own in axes[-len(WORKLOADS) :]:
        own.set_xlabel("P90 TTFP, s")
    for own in axes[:: len(WORKLOADS)]:
        own.set_ylabel("completed requests, 1/s")
    legend(figure, axes[1])
    caption = (
        "Up and left is better. A curve joins the medians at c = 2, 4, 8, 12 and 16 (mixed: 2, 8 and 16); its first "
        "point is c = 2. The paper gives no single values for these curves. With few slots a reply that is paced to "
        "playback keeps others out. "
        f"{made_from(points)}"
    )
    return Picture("fig10", TITLE, figure, caption)


def _frontier(axes: Any, run: Run, engine: str, look: Look) -> None:
    found = []
    for c in CS:
        points = [point for point in run.points if point.point.engine == engine and point.params["c"] == c]
        where = over_seeds(points, "audio_ttfp_p90").median, over_seeds(points, "completed_rps").median
        if None not in where:
            found.append(where)
    if found:
        x, y = zip(*found, strict=True)
        axes.plot(x, y, **look.joined, label=engine)
