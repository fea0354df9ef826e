"""The same calls, step times and seeds through vLLM-Omni's own runtime and through our pipeline of it.

The runtime is vLLM-Omni 0.30.0 unchanged (`engines/stock/omni`): API server, orchestrator, three stage processes and
chunks through shared memory, on the wall clock. Ours is the pipeline of `engines/turns` in virtual time. Both take
the length of each reply from the trace and the time of each step from the deployment. Ours takes seconds outside the
GPUs from deployment qwen3_omni_2gpu_modelled, which were measured with 4 calls under vllm_omni. The real side needs
the environment of `make omni`, and an otherwise idle machine: its record has the CPU time under `proof.cpu`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from reports.claims.bands import of_model
from reports.claims.quantities import Quantity, difference, of, ratio
from reports.claims.stated import claim, level
from reports.figures.forms import distribution, figure
from reports.figures.style import engine_looks
from reports.papers.experiment import experiment
from reports.runs.measured import Measured

TITLE = "vLLM-Omni's runtime over modelled GPUs, and our pipeline of it"

ENGINES = ["vllm_omni", "liveserve"]
VIRTUAL, REAL = "our pipeline", "vLLM-Omni's runtime"
CALLERS = [1, 4, 16]
SLOWER = 3
"""Real seconds in a second of the runtime, its callers and their players, so that two cores are enough. [chosen]"""
_STAGES = ("thinker", "talker", "vocoder")


_LOAD = {
    "sessions": 32,
    "turns": 8,  # no session ends before the minute is over [chosen]
    "p": 0.3,
    "max_reply_tokens": 64,  # about 18 s of speech: several turns a caller in a minute [chosen]
    "network_ms": 0,
    "stop_after_s": 60,
}
EXPERIMENTS = {
    side: experiment(
        "omni-runtime",
        ENGINES,
        "speech",
        {**_LOAD, **settings},
        seeds=[0, 1, 2],
        timeout_s=600,
        device=device,
        c=CALLERS,
    )
    for side, device, settings in (
        (VIRTUAL, "virtual", {"deployment": "qwen3_omni_2gpu_modelled", "step_noise_cv": 0}),
        (REAL, "sockets", {"deployment": "qwen3_omni_2gpu", "runtime": "vllm-omni", "slower": SLOWER}),
    )
}
QUICK = {"c": "4", "stop_after_s": "20"}


def _steps(point: Measured) -> Any:
    """The steps of all stages in the order in which they began."""
    real = point.has("runtime_steps")
    return point.record.table("runtime_steps" if real else "steps").sort_values("begin_s" if real else "t_s")


def _tokens(stage: str) -> Callable[[Measured], float | None]:
    """Tokens that the steps of a stage computed, for each turn that was asked."""

    def tokens(point: Measured) -> float | None:
        steps = _steps(point)
        return float(steps.loc[steps["stage"] == stage, "tokens"].sum()) / len(point.all_requests)

    return tokens


def _unheard(point: Measured) -> float | None:
    """Share of the audio of all replies that nobody heard."""
    audio_s, heard_s = (float(np.nansum(point.all_requests[column])) for column in ("audio_s", "heard_s"))
    return 1 - heard_s / audio_s if audio_s else None


def _before(stage: str, first: str) -> Callable[[Measured], float | None]:
    """Steps of a stage that began before the first one of another."""

    def before(point: Measured) -> float | None:
        order = _steps(point)["stage"].tolist()
        return float(order[: order.index(first)].count(stage)) if first in order else None

    return before


_QUANTITIES: dict[str, tuple[str, Quantity]] = {
    "audio_ttfp_p50": ("median TTFP", "audio_ttfp_whole_p50"),
    "rtf_p50": ("median RTF", "rtf_whole_p50"),
    "continuity": ("continuity", "continuity_whole"),
    "waste": ("wasted audio", _unheard),
    **{f"{stage}-tokens": (f"tokens of the {stage} per turn", _tokens(stage)) for stage in _STAGES},
}
_WHY = (
    "messages wait for the event loops of API server and orchestrator, chunks for the next poll of the stage that "
    "takes them, and all processes share this machine's cores"
)

_FITTED = {("audio_ttfp_p50", "vllm_omni", 4): "seconds outside the GPUs were measured in this run"}
CLAIMS = {
    f"{engine}-{name}-{callers}": claim(
        f"{label} of {engine} at {callers} calls, real runtime / our pipeline",
        level(1.0, "×", within=of_model(0.05, "[chosen] 5 % between our pipeline and the real one")),
        ratio(quantity, of(REAL, engine, c=callers), to=of(VIRTUAL, engine, c=callers)),
        _WHY,
        fitted=_FITTED.get((name, engine, callers), ""),
    )
    for name, (label, quantity) in _QUANTITIES.items()
    for engine in ENGINES
    for callers in CALLERS
} | {
    f"order-{stage}-{first}": claim(
        f"steps of the {stage} before the first one of the {first}, 1 call, real runtime − our pipeline",
        level(0.0, "", within=1.0),
        difference(_before(stage, first), of(REAL, "vllm_omni", c=1), less=of(VIRTUAL, "vllm_omni", c=1)),
        "a stage plans the next step while one runs",
    )
    for stage, first in (("thinker", "talker"), ("talker", "vocoder"))
}

_SETTINGS = {
    c: {f"{engine}, {side}": of(side, engine, c=c) for engine in ENGINES for side in EXPERIMENTS} for c in CALLERS
}
_LINES = {VIRTUAL: {"line": ":", "width": 3.0}, REAL: {"line": "-", "width": 1.4}}
_STYLE = {
    f"{engine}, {side}": replace(look, **line)
    for engine, look in engine_looks(*ENGINES).items()
    for side, line in _LINES.items()
}
draw = figure(
    TITLE,
    *(
        distribution(column, settings, style=_STYLE, title=f"{c} call{'s' if c > 1 else ''}", xlabel=label)
        for column, label in (("audio_ttfp_s", "TTFP, ms"), ("rtf", "RTF"))
        for c, settings in _SETTINGS.items()
    ),
    columns=len(CALLERS),
    height_in=2.6,
    ncols=2,
    caption="Share of turns with first audio within the time on the horizontal axis; below, with a real-time "
    "factor up to it. Dotted: our pipeline; full: vLLM-Omni's own runtime.",
)
