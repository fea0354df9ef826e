"""ConServe's profiler (section 4.2): steps over a grid are timed before anything is served, and the model is fitted.

The grid and the repetitions are chosen; the paper has the form, less than 20 minutes and an error below 4 %. Prompts
begin where a step is no longer bound by reading weights: over the bend below, no straight line in P comes near (with
chunks of 16 to 256 tokens the error is 12 %).
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import numpy as np

from engines.core.device import Row
from engines.core.policy import Shape
from engines.devices.step_fit import design_of, least_relative
from engines.devices.step_time import CONSERVE, terms, totals
from engines.systems.conserve.latency import LatencyModel

PROMPTS = (512, 1024, 2048, 4096, 8192)
PROMPT_CONTEXTS = (0, 1024, 4096, 16_384, 40_960)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BATCH_CONTEXTS = (128, 1024, 4096, 16_384)
MIXED_BATCHES = (8, 32)
REPEATS = 5
HELD_OUT = 5
"""Every so manyth step of the grid is left out of the fit whose error is told."""


class Profile(NamedTuple):
    """The fit over the whole grid; of one without every fifth step, the error on those: mean and P99, relative."""

    model: LatencyModel
    steps: int
    error_mean: float
    error_p99: float


def grid(token_budget: int) -> list[Shape]:
    """Prompts on contexts, decodes, and both in one step, none of more than `token_budget` tokens."""
    steps: list[Shape] = [[(p, c)] for p in PROMPTS for c in PROMPT_CONTEXTS]
    steps += [[(1, c)] * batch for batch in BATCHES for c in BATCH_CONTEXTS]
    for batch in MIXED_BATCHES:
        steps += [[*[(1, c)] * batch, (p, 0)] for c in BATCH_CONTEXTS[1:] for p in PROMPTS]
    return [step for step in steps if sum(tokens for tokens, _ in step) <= token_budget]


def profile(measure: Callable[[Shape], float], token_budget: int) -> Profile:
    """Time the grid and fit. `measure`: seconds of a step of this shape."""
    steps = grid(token_budget)
    names = terms(CONSERVE)
    design = design_of([totals(Row("", n, c, True) for n, c in step) for step in steps], names)
    seconds = np.array([median(measure(step) for _ in range(REPEATS)) for step in steps])
    held = np.arange(len(steps)) % HELD_OUT == HELD_OUT - 1
    seen = least_relative(design[~held], seconds[~held])
    errors = np.abs(design[held] @ seen / seconds[held] - 1.0)
    # The last bits of a solver differ between machines, and so would schedules.
    token, pair, visible, constant = (float(f"{k:.6g}") for k in least_relative(design, seconds))
    model = LatencyModel(token, pair, visible, constant)
    return Profile(model, len(steps), float(errors.mean()), float(np.quantile(errors, 0.99)))
