"""The changes of vLLM's releases and their effect: the same users before the schedulers of three releases."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from harness.metrics.stats import across_seeds
from reports.claims.quantities import Measure, Panels, Quantity, Values, each, of, quotient, value
from reports.claims.stated import claim, level
from reports.figures.forms import Series, every, figure, lines
from reports.papers.conserve.loads import PATIENT, SYNTHETIC
from reports.papers.experiment import experiment
from reports.papers.metronome.calls import DAY_2, QWEN
from reports.runs.measured import Measured, Run

TITLE = "The same workloads on the schedulers of vLLM 0.31, 0.32 and 0.33"

RELEASES = ["0.31.0", "0.32.0", "0.33.0"]
VOICE, TEXT, CALLS, BESIDE = "voice", "text at saturation", "calls", "co-serving"
_PANELS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    VOICE: (
        ["vllm_omni", "liveserve"],
        "voice",
        {"deployment": "qwen3_omni_2gpu", "c": 16, "p": 0.3, "sessions": 32, "kv_pool_blocks": 192},
    ),
    # More than the pool holds: history is evicted, and running requests are preempted.
    TEXT: (
        ["vllm_omni_wo", "vllm_omni"],
        "interactive",
        {
            "deployment": "llama_8b_1gpu",
            "rate": 8.0,
            "sessions": 64,
            "turns": 2,
            "turns_shape": 1,
            "opening_tokens": 2000,
            "think_s": 2.0,
            "think_s_per_token": 0,
            "reply_tokens": 400,
            "playback": "none",
            "kv_pool_blocks": 3000,
            "host_kv_gb": 16.0,
            "turn_timeout_s": 600.0,
        },
    ),
    # Until the pool is full, and beyond.
    CALLS: (
        ["vllm_realtime", "vllm_realtime_pr49439", "metronome"],
        "metronome",
        {"deployment": QWEN, **DAY_2, "duration_s": 120.0, "sessions": 96, "kv_pool_blocks": 13000},
    ),
    BESIDE: (
        ["sarathi_p", "conserve"],
        "co_serving",
        {
            **SYNTHETIC,
            "requests": 80,
            "backlog": 48,
            "kv_pool_blocks": 6000,
            **PATIENT,
            "ttft_slo_s": 0.15,
            "tbt_slo_s": 0.1,
        },
    ),
}
EXPERIMENTS = {
    panel: experiment(f"vllm-releases-{panel.replace(' ', '-')}", engines, workload, settings, vllm=RELEASES)
    for panel, (engines, workload, settings) in _PANELS.items()
}
QUICK = {"requests": "30"}


def _prompts(point: Measured) -> float:
    return float(point.record.table("steps", columns=["prefill_tokens"])["prefill_tokens"].to_numpy(float).sum())


def _steps(point: Measured) -> float:
    return float(len(point.record.table("steps", columns=["t_s"])))


_ANSWERS = {VOICE: "ttft_p90", TEXT: "ttft_p90", CALLS: "frame_latency_p99", BESIDE: "online.ttft_p90"}
"""P90 of the time to a request's first token; of calls, P99 of the latency of a frame's answer."""
ANSWER = "first answer, ms"
QUANTITIES: dict[str, Quantity] = {"preemptions": "preemptions", "prompt tokens computed": _prompts, "steps": _steps}
"""Quantities over all stages. If the beginning of a prompt is a prefix hit, fewer of its tokens are computed."""


def scaled(factor: float, name: str, panel: str, engine: str, release: str) -> Measure:
    """Return a quantity on a release, multiplied; the first answer is in ms."""
    measure = value(QUANTITIES.get(name, _ANSWERS[panel]), of(panel, engine, vllm=release))
    factor *= 1000 if name == ANSWER else 1
    return each(measure, lambda number: factor * number)


def same(panel: str, engine: str, release: str, before: str) -> Measure:
    """1 for a seed in which two releases gave the same events, requests and steps to the byte, 0 for one in which they
    did not."""

    def sums(point: Measured) -> list[str]:
        files = point.record.manifest["files"]
        return [files[f"{name}.parquet"]["sha256"] for name in ("events", "requests", "steps")]

    def measure(panels: Panels) -> Values:
        now, then = ({p.seed: p for p in of(panel, engine, vllm=vllm).points(panels)} for vllm in (release, before))
        return {
            seed: None
            if now[seed].error is not None or then[seed].error is not None
            else float(sums(now[seed]) == sums(then[seed]))
            for seed in now.keys() & then.keys()
        }

    return measure


_HOST = (
    "offloading to host memory and eviction from it: a preempted request offers all its chunks again, "
    "and while one runs its chunks age together, the last tokens first (docs/vllm-releases.md)"
)
EXPLAINED = {(TEXT, "vllm_omni", "0.33.0"): _HOST, (BESIDE, "conserve", "0.33.0"): _HOST}
"""Explanations of the releases that serve otherwise: the change, found by taking single changes back."""

CLAIMS = {
    f"{panel.replace(' ', '-')}-{engine}-{new}": claim(
        f"{panel}, {engine}: {new} serves as {old} did, event for event and step for step",
        level(1.0, "%", words="every run"),
        same(panel, engine, new, old),
        why=EXPLAINED.get((panel, engine, new), ""),
    )
    for panel, (engines, _, _) in _PANELS.items()
    for engine in engines
    for old, new in pairwise(RELEASES)
}


def table(panels: Mapping[str, Run]) -> list[list[str]]:
    """A workload and an engine a line, under a heading: of each quantity the median over the seeds, once where all
    releases agree; and in how many runs a release did to the byte what the one before it did."""
    lines = [["workload", "engine", ANSWER, *QUANTITIES, "same bytes"]]
    for panel, run in panels.items():
        releases = run.values("vllm")
        for engine in run.experiment.engines:
            cells = []
            for name in (ANSWER, *QUANTITIES):
                values = [scaled(1, name, panel, engine, release)(panels) for release in releases]
                medians = [across_seeds(each).median for each in values]
                texts = ["–" if median is None else f"{median:,.0f}" for median in medians]
                cells.append(texts[0] if len(set(texts)) == 1 else " · ".join(texts))
            checks = [same(panel, engine, new, old)(panels).values() for old, new in pairwise(releases)]
            cells.append(" · ".join(f"{sum(each == 1 for each in one)} of {len(one)}" for one in checks))
            lines.append([panel, engine, *cells])
    return lines


def _of_several(panels: Panels) -> list[Measured]:
    """Return all points if they are of two releases or more."""
    used = every(panels)
    return used if len({point.params["vllm"] for point in used if point.error is None}) > 1 else []


def _shares(name: str) -> Callable[[Panels], Series]:
    """In per cent of the first release with the same seed, without seeds where that is 0."""

    def share(panel: str, engine: str, release: str, first: str) -> Measure:
        return quotient(scaled(100, name, panel, engine, release), scaled(1, name, panel, engine, first))

    return lambda panels: {
        f"{panel}, {engine}": {
            release: share(panel, engine, release, run.values("vllm")[0]) for release in run.values("vllm")
        }
        for panel, run in panels.items()
        for engine in run.experiment.engines
    }


draw = figure(
    TITLE,
    *(
        lines(
            None,
            _shares(name),
            title=name.removesuffix(", ms"),
            ylabel="per cent of the first release",
            ylim=(None, None),
        )
        for name in (ANSWER, *QUANTITIES)
    ),
    columns=2,
    height_in=2.4,
    sharex=True,
    points=_of_several,
    caption="Each seed in per cent of its value on the first release; values of 0 there are left out.",
)
