"""What LiveServe's cards share: its deployments, how its concurrency is read, and the one choice that was calibrated.

The paper does not say whether c counts sessions or requests, for the whole server or for each replica, nor of what its
requests per second are. Of six readings (docs/papers/liveserve.md has them beside one another) the one whose *baseline*
has most of the numbers that the paper prints is: c requests under way at one pair of thinker and talker, and the
requests per second of that pair. With a first packet of 25 codec frames (the default of vLLM-Omni at that time) its
median TTFP in Fig. 11 left is 0.83 s (0.86 s there) and its effective RPS in Fig. 12 0.87 (0.82). Both were chosen on
baselines alone and hold in every card; nothing was fitted to a result of LiveServe.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.experiment import Experiment
from harness.metrics.rates import effective_rps
from harness.metrics.requests import COMPLETED
from harness.metrics.stats import Spread, across_seeds
from reports.claims import Quantity, Setting, of, over_points
from reports.figures.reply import ReplyLog
from reports.figures.shared_turns import TurnLog
from reports.measured import Measured, Variant
from reports.style import Look, looks

SYSTEMS = ["vllm_omni_wo", "vllm_omni", "liveserve"]
"""The paper's two baselines, without and with KV offload, and its system."""

PAIR = ["vllm_omni", "liveserve"]
"""Where the paper compares with the offloading baseline alone."""

SEEDS = [0, 1, 2, 3, 4]

CALIBRATED = (
    "how c is counted and the length of the first packet were chosen by this number and others; see common.py"
)

QWEN, MING = "qwen3_omni_2gpu", "ming_flash_omni_4gpu"
"""The smallest parts of the paper's servers that have their proportions of thinkers to talkers."""

SERVED: dict[str, Any] = {
    "deployment": QWEN,
    "first_chunk_frames": 25,
    "c_scope": "replica",
    "c_counts": "request",
}

SHAREGPT: dict[str, Any] = {
    **SERVED,
    "modality": "text",
    "max_prompt_tokens": 2048,
    "requests": 128,
    "rate": 20.0,
}
"""Single turns, typed and answered in speech, offered faster than c lets them in; workload `sharegpt`."""

BURSTS: dict[str, Any] = {
    **{name: value for name, value in SHAREGPT.items() if name != "rate"},
    "prompt_tokens": 20,
    "prompt_sigma": 1.69,
}
"""The same users with the arrivals of BurstGPT, at a `rate` or `peak_rate` to be set; workload `burstgpt_fit`, whose
own prompts give way to ShareGPT's."""

LONG_TOKENS = 235
"""Text of a reply that lasts for the 65.9 s of Fig. 15 right at the median pace."""

LONG_REPLY: dict[str, Any] = {
    **SERVED,
    "modality": "text",
    "requests": 1,
    "reply_tokens": LONG_TOKENS,
    "reply_sigma": 0,
    "c": 1,
    "p": 0,
}
"""One reply, served alone; workload `sharegpt`."""

PACED = (
    "a reply whose lead is capped is generated at the pace of playback and holds one of the c slots until it is "
    "complete, so a closed loop of requests turns over more slowly; without the cap (u2_mode=budgeted) less so"
)
"""Why LiveServe completes fewer requests here."""

_NO_CAP = "no lead cap"
VARIANTS = {
    "vllm_omni": "vllm_omni",
    "liveserve": "liveserve",
    f"liveserve, {_NO_CAP}": "liveserve",
}
"""Label -> engine, where throughput is the point: LiveServe as everywhere, and with well-buffered replies let run."""


def with_uncapped(panel: str, experiment: Experiment) -> dict[str, Experiment]:
    """The experiment as a panel, and another in which LiveServe has no lead cap."""
    alone = {"engines": ["liveserve"], "set": {**experiment.set, "u2_mode": "budgeted"}}
    return {panel: experiment, f"{panel}, {_NO_CAP}": experiment.model_copy(update=alone)}


def variant(panel: str, label: str, **params: Any) -> Setting:
    """The points of one of VARIANTS in a panel of `with_uncapped`."""
    return of(f"{panel}, {_NO_CAP}" if label.endswith(_NO_CAP) else panel, VARIANTS[label], **params)


def variant_looks() -> dict[str, Look]:
    """How VARIANTS are drawn."""
    own = looks([Variant(engine, ((label, ""),)) for label, engine in VARIANTS.items()])
    return dict(zip(VARIANTS, own.values(), strict=True))


INTERACTIVE: dict[str, Any] = {
    **SERVED,
    "modality": "audio",
    "reply": "speech",
    "sessions": 48,
    "rate": 2.0,
    "rounds": 3,
    "rounds_shape": 100,
    "opening_tokens": 16000,
    "kv_pool_blocks": 24_576,
}
"""Spoken sessions that come with 16,000 tokens of context; workload `interactive`. 48 of about 1,040 blocks share a
thinker's pool of 24,576: a pressure ratio (context of all over pool) of 2.0."""

MIXED: dict[str, Any] = {**SERVED, "sessions": 24, "rate": 2.0, "kv_pool_blocks": 24_576}
"""Viewers of videos and voice sessions, half of each; workload `omni_mix`."""


def experiment(
    name: str,
    engines: Sequence[str],
    workload: str,
    settings: Mapping[str, Any],
    timeout_s: float = 600,
    **axes: Any,
) -> Experiment:
    """People who speak in turns, over the seeds that all cards have; `axes` are what it varies."""
    return Experiment(
        name=name,
        engines=list(engines),
        workload=workload,
        set=dict(settings),
        grid=axes,
        seeds=SEEDS,
        timeout_s=timeout_s,
    )


def reply_log(point: Measured) -> ReplyLog | None:
    """The reply of a point with one request, in s since the end of the user's turn; None unless heard to its end."""
    row = point.requests.iloc[0].to_dict()
    if row["status"] != COMPLETED:
        return None
    return ReplyLog(TurnLog(point.events(row["session"]), row["turn_end_s"]), row)


def effective_within(ttfp_s: float) -> Callable[[Measured], float | None]:
    """`effective_rps` of the turns that began within `ttfp_s` seconds, 1/s."""

    def quantity(point: Measured) -> float | None:
        numbers = ("spoken", "turn_end_s", "completion_s", "audio_ttfp_s", "max_gap_s")
        turns = {name: point.requests[name].to_numpy(float, na_value=np.nan) for name in numbers}
        return effective_rps(turns | {"status": point.requests["status"].to_numpy()}, ttfp_s)[0]

    return quantity


LIMITS_S = np.linspace(0.25, 2.5, 46)
"""Limits of the TTFP over which effective RPS is drawn: the paper names none."""


def over_limits(axes: Any, points: Sequence[Measured], look: Look, label: str) -> None:
    """Effective RPS over the limit of the TTFP, medians over the seeds."""
    known = {limit: spread(points, effective_within(limit)).median for limit in LIMITS_S}
    shown = {limit: rate for limit, rate in known.items() if rate is not None}
    axes.plot(list(shown), list(shown.values()), **look.stroke, label=label)


def second_turn(point: Measured, session: int, column: str) -> float | None:
    """A column of the request table at the turn with which this session comes back; None where it is missing."""
    requests = point.requests
    found = requests.loc[(requests["session"] == session) & (requests["turn"] == 1), column]
    return float(found.iloc[0]) if len(found) and found.notna().all() else None


def returning(column: str, percentile: float) -> Quantity:
    """A percentile of a column of the request table over turns that are not their session's first.

    First turns bring a session's context, which every system prefills; what KV management does shows in the others.
    """

    def quantity(point: Measured) -> float | None:
        values = point.requests.loc[point.requests["turn"] > 0, column].dropna()
        return float(np.percentile(values, percentile)) if len(values) else None

    return quantity


def spread(points: Iterable[Measured], quantity: Quantity) -> Spread:
    """A quantity over the seeds of points that differ in nothing else."""
    return across_seeds(over_points(quantity, points))
