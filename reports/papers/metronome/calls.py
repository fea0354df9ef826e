"""Calls of Metronome's cards, and the two days of Fig. 4b.

The paper does not say how many tokens a frame adds. They follow from its own numbers: a pool of 520,000 tokens that
128 sessions fill in 148 s takes 55 a frame, 32 sessions at 74 % after 300 s take 80.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.experiments.experiment import Experiment
from reports.papers.experiment import experiment

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

STILL: dict[str, Any] = {"step_noise_cv": 0.0, "seeds": SEEDS[:3]}
"""Steps without spread. By default a step's time has a coefficient of variation of 0.7 %; public measurements of steps
have 0.6 to 0.9 % and no stalls (docs/fidelity.md)."""

HALF = {"duration_s": "150", "kv_pool_blocks": "16250"}
"""Half the time and half the pool: it fills at the same share of the call, and a window takes twice its share of it. A
smaller window would be one for the baseline, too, which understands it as well."""


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
