"""What LiveServe's cards share: its deployments, how its concurrency is read, and the one choice that was calibrated.

The paper does not say whether c counts sessions or requests, for the whole server or for each replica. c = 8 requests
under way for each of four talker replicas, with a first packet of 25 codec frames (the default of vLLM-Omni at that
time), is the reading whose *baseline* has the paper's median TTFP in Fig. 11 left (0.84 s here, 0.86 s there). It was
chosen for that number alone and holds in every card; nothing was fitted to a result of LiveServe.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.experiment import Experiment
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

CALIBRATED = "how c is counted and the length of the first packet were chosen for this median; see common.py"

QWEN, MING = "qwen3_omni_8gpu", "ming_flash_omni_8gpu"

SERVED: dict[str, Any] = {
    "deployment": QWEN,
    "first_chunk_frames": 25,
    "c_scope": "replica",
}

SHAREGPT: dict[str, Any] = {
    **SERVED,
    "c_counts": "request",
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

LONG_REPLY: dict[str, Any] = {
    **SERVED,
    "c_counts": "request",
    "modality": "text",
    "requests": 1,
    "reply_tokens": 235,
    "reply_sigma": 0,
    "c": 1,
    "p": 0,
}
"""One reply, served alone: 235 text tokens, at the median pace the 65.9 s of Fig. 15; workload `sharegpt`."""

PACED = (
    "a reply whose lead is capped is generated at the pace of playback and holds one of the c slots until it is "
    "complete, so a closed loop of requests turns over more slowly; without the cap (u2_mode=budgeted) it does not"
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
    "kv_pool_blocks": 6144,
}
"""Spoken sessions that come with 16,000 tokens of context; workload `interactive`. With all 48 on line (c = 12 and
more), 12 of about 1,040 blocks share a replica's pool of 6,144: a pressure ratio (live context over pool) of 2.0, at
c = 8 of 1.35."""

MIXED: dict[str, Any] = {**SERVED, "sessions": 24, "rate": 2.0, "kv_pool_blocks": 6144}
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


def effective_until_received(point: Measured) -> float | None:
    """`effective_rps` over another time: up to the last reply received in full, not to its last word heard.

    Turns a second. What a client measures that downloads replies; listening takes as long under every server.
    """
    turns, rate, makespan_s = point.requests, point.value("effective_rps"), point.value("makespan")
    received_s = float(np.nanmax(turns["completion_s"]) - np.nanmin(turns["turn_start_s"]))
    return rate * makespan_s / received_s if rate and makespan_s and received_s > 0 else None


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
