"""Common parts of Metronome's cards: calls, the two days of Fig. 4b, and numbers before and after a wall.

The paper does not say how many tokens a frame adds. They follow from its own numbers: a pool of 520,000 tokens that
128 sessions fill in 148 s takes 55 a frame, 32 sessions at 74 % after 300 s take 80.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.experiments.experiment import Experiment
from harness.request_tables.frame_table import BUCKET_S, DELIVERED
from reports.claims.quantities import Quantity
from reports.figures.frames import latency
from reports.papers.experiment import experiment
from reports.runs.measured import Measured

BASELINE, OURS = "vllm_realtime", "metronome"
RECYCLING, PR = "recycling", "vllm_realtime_pr49439"
PAIR = [BASELINE, OURS]
"""The paper's baseline and its system."""

SEEDS = [0, 1, 2, 3, 4]

QWEN, MINICPM = "qwen3_omni_pro6000", "minicpm_o_pro6000"
QWEN_SMALL, MOSHI = "qwen2_5_omni_pro6000", "moshi_pro6000"

A_FEW = 7.0
"""Tokens said in a frame, "a few" by Fig. 2: 55 minus those of audio and text [derived]."""
DAY_1: dict[str, Any] = {"template_tokens": 0, "tokens_per_frame": 8.0}
DAY_2: dict[str, Any] = {"template_tokens": 21, "tokens_per_frame": A_FEW}
DAYS = {"day 1": DAY_1, "day 2": DAY_2}
"""The batches of Fig. 4b: a day on which 4 of 10 unbounded runs walled, and one on which all did.

Day 2 has the 55 tokens that fill the pool in 148 s (Fig. 6a) [derived]: 28 of audio, 21 of text around it (layout of
Table 2: a user's opening, the instruction and the assistant's, 5 + 11 + 5), 7 said; the last one is dropped. Day 1
has 35, so that 40 % of the run factors fill the pool within 300 s at N = 96 [calibrated to 2 of 5].
"""

MINICPM_CALL: dict[str, Any] = {
    "deployment": MINICPM,
    "duration_s": 600.0,
    "frame_s": 1.0,
    "sessions": 128,
    "template_tokens": 14,
    "tokens_per_frame": A_FEW,
}
"""Section 5.5. N is not stated; with 128 sessions the wall at 114 s takes about 31 tokens a frame [derived]."""

DEAR_FEED_S = 8e-5
"""Worker time to feed a chunk at which recycling is as slow as in Fig. 10 [calibrated]; four times that of Table 1."""

HALF = {"duration_s": "150", "kv_pool_blocks": "16250"}
"""Half the time and half the pool: it fills at the same share of the call, and a window takes twice its share of it. A
smaller window would be one for the baseline, too, which understands it as well."""

NO_MISS = (
    "the wait of a Step ends at 0.8 of a period, so by construction no frame can miss when the pool is full"
)
"""Reason why deadline misses are not a finding."""

CAPPED = "a Step waits at most 0.8 of a period of 2 s, so every wall is at 1.60 s"
"""Reason why the height of the wall is not a finding."""

BELOW_THE_POOL = "a bounded call keeps about 65 blocks, and all calls together fewer than the pool's 32,500"
"""Reason why a bounded run without a wall is not a finding."""

STEP_CALL = "the cost of a Step call was fitted to the 2 to 5 ms of Table 1; its constancy was not"
"""Constant that sets every latency of a healthy run."""


def calls(
    name: str,
    engines: Sequence[str],
    grid: Mapping[str, Any] | None = None,
    seeds: Iterable[int] = SEEDS,
    **changes: Any,
) -> Experiment:
    """Return five-minute calls to Qwen3-Omni with the tokens of day 2 unless set otherwise."""
    fixed = {"deployment": QWEN, "duration_s": 300.0, **DAY_2, **changes}
    return experiment(name, engines, "metronome", fixed, seeds, **(grid or {}))


def _walled(point: Measured) -> np.ndarray:
    """Return the frames dispatched after the wall; none without a wall."""
    wall_s = point.value("wall_s")
    return point.requests["dispatch_s"].to_numpy() >= (np.inf if wall_s is None else wall_s)


def _latency(point: Measured, among: np.ndarray, percentile: float) -> float | None:
    """A percentile of the latency in s of these frames, without sessions' first ones."""
    frames = point.requests
    latency_s = frames["latency_s"].to_numpy()[among & ~frames["first"].to_numpy()]
    latency_s = latency_s[~np.isnan(latency_s)]
    return float(np.percentile(latency_s, percentile)) if latency_s.size else None


def latency_median(after_wall: bool) -> Quantity:
    """Median frame latency in s after or before the wall."""
    return lambda point: _latency(point, _walled(point) == after_wall, 50)


def latency_percentile(percentile: float, since: float = 0.0, until: float = 1.0) -> Quantity:
    """A percentile of the frame latency in s over a part of the run's time, given as shares of it."""

    def quantity(point: Measured) -> float | None:
        share = point.requests["dispatch_s"].to_numpy() / point.params["duration_s"]
        return _latency(point, (share >= since) & (share <= until), percentile)

    return quantity


def speech_after_wall(point: Measured) -> float | None:
    """Return the share of frames with speech among the frames due after the wall."""
    frames, wall_s = point.requests, point.value("wall_s")
    if wall_s is None:
        return None
    status = frames.loc[frames["judged"] & (frames["due_s"] >= wall_s), "status"]
    return float(np.mean(status == DELIVERED)) if len(status) else None


def worst_bucket(point: Measured) -> float | None:
    """The highest 10 s bucket median of the frame latency in s, without the first bucket.

    All calls begin in it. It holds a few Steps, and those wait for the model's work: the first, and in some runs the
    next, as a call that said a single token has nothing to return yet.
    """
    medians = latency(point).loc[BUCKET_S:].to_numpy()
    return float(medians.max()) if len(medians) else None
