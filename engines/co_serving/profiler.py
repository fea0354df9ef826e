"""The profile of a stage: steps over a grid are timed before anything is served, and a straight line is fitted to them.

The grid and the repetitions are chosen; ConServe (section 4.2) has less than 20 minutes and an error below 4 %, HyGen
below 2 %. Prompts begin where a step is no longer bound by reading weights: over the bend below, no straight line in
tokens comes near (with chunks of 16 to 256 tokens the error by ConServe's terms is 12 %).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from engines.core.policy import Shape
from engines.core.step_cost import StepWork
from engines.devices.step_fit import least_relative

PROMPTS = (512, 1024, 2048, 4096, 8192)
PROMPT_CONTEXTS = (0, 1024, 4096, 16_384, 40_960)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BATCH_CONTEXTS = (128, 1024, 4096, 16_384)
MIXED_BATCHES = (8, 32)
REPEATS = 5
HELD_OUT = 5
"""Every so manyth step of the grid is left out of the fit whose error is told."""


class Profile(NamedTuple):
    """The fit over the whole grid, in s per unit of each feature; of one without every fifth step, the error on those:
    mean and P99, relative."""

    coefficients: tuple[float, ...]
    steps: int
    error_mean: float
    error_p99: float

    def counters(self) -> dict[str, int]:
        """For the record; errors in millionths."""
        return {
            "profile_steps": self.steps,
            "profile_error_mean_ppm": round(1e6 * self.error_mean),
            "profile_error_p99_ppm": round(1e6 * self.error_p99),
        }


def grid(token_budget: int) -> list[Shape]:
    """Prompts on contexts, decodes, and both in one step, none of more than `token_budget` tokens."""
    steps: list[Shape] = [[(p, c)] for p in PROMPTS for c in PROMPT_CONTEXTS]
    steps += [[(1, c)] * batch for batch in BATCHES for c in BATCH_CONTEXTS]
    for batch in MIXED_BATCHES:
        steps += [[*[(1, c)] * batch, (p, 0)] for c in BATCH_CONTEXTS[1:] for p in PROMPTS]
    return [step for step in steps if sum(tokens for tokens, _ in step) <= token_budget]


def profile(
    measure: Callable[[Shape], float], token_budget: int, features: Callable[[Shape], Sequence[float]]
) -> Profile:
    """Time the grid and fit. `measure`: seconds of a step of this shape; `features`: what its time is linear in."""
    steps = grid(token_budget)
    design = np.array([features(step) for step in steps], dtype=float)
    seconds = np.array([median(measure(step) for _ in range(REPEATS)) for step in steps])
    held = np.arange(len(steps)) % HELD_OUT == HELD_OUT - 1
    seen = least_relative(design[~held], seconds[~held])
    errors = np.abs(design[held] @ seen / seconds[held] - 1.0)
    # The last bits of a solver differ between machines, and so would schedules.
    coefficients = tuple(float(f"{k:.6g}") for k in least_relative(design, seconds))
    return Profile(coefficients, len(steps), float(errors.mean()), float(np.quantile(errors, 0.99)))


class Measured(NamedTuple):
    """Seconds of an empty step, and what a request, a prompt token and a token of context add to it."""

    constant: float
    request: float
    prompt: float
    context: float


def measured(step_s: Callable[[StepWork], float | None]) -> Measured | None:
    """What a stage has seen of its own steps, where nothing was profiled; None until it has seen enough."""
    constant = step_s(StepWork())
    if constant is None:
        return None
    one = (StepWork(1), StepWork(0, 1024), StepWork(0, 0, 1024))
    request, prompt, context = ((step_s(work) or 0.0) - constant for work in one)
    return Measured(constant, request, prompt / 1024, context / 1024)
