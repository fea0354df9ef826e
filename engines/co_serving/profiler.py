"""The profile of a stage: steps over a grid are timed before anything is served, and a straight line is fitted to them.

The grid and the repetitions are chosen; ConServe (section 4.2) has less than 20 minutes and an error below 4 %.
Prompts begin where a step is no longer bound by reading weights: over the bend below, no straight line in tokens comes
near (with chunks of 16 to 256 tokens the error by ConServe's terms is 12 %).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from engines.core.policy import Shape
from engines.core.step_cost import StepWork
from engines.devices.step_fit import least_relative

PROMPTS = (512, 1024, 1536, 2048, 3072, 4096, 5120, 6144, 7168, 8192)
PROMPT_CONTEXTS = (0, 1024, 4096, 16_384, 40_960)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BATCH_CONTEXTS = (128, 1024, 4096, 16_384)
MIXED_BATCHES = (8, 32)
MIXED_PROMPT_CONTEXTS = (0, 16_384)
PAIRED_PROMPTS, PAIRED_DECODES = (1024, 4096), 16
PAIRED_CHUNKS, PAIRED_CONTEXTS = (512, 1024, 2048, 4096), (4096, 16_384)
"""Prompt tokens and contexts of the pairs that matter for co-serving: a prompt, and at the same time a chunk of a
document on top of its context."""
MOST_CONTEXT = 2**19
"""Most context tokens of a step: about what the KV pool of an 80 GB GPU holds, or of four with a model of 70B."""
REPEATS = 5
FOLDS = 5
"""Folds: each step's error is from a fit without its fold; a fold is every `FOLDS`-th step of the grid."""

MOST_GUARD = 0.25
"""[chosen] Bound of the guard. If terms are further off, as five are for a mixture of experts, more room would leave a
batch nothing, and be no better an estimate."""


class Profile(NamedTuple):
    """The fit over the whole grid, in s per unit of each feature; and, for each step, the seconds predicted by a fit
    that has not seen it (steps,) and the seconds of each of its runs (steps, repeats)."""

    coefficients: tuple[float, ...]
    predicted_s: np.ndarray
    runs_s: np.ndarray

    @property
    def error_mean(self) -> float:
        """Return the mean error relative to the median run."""
        return float(self._errors().mean())

    @property
    def error_p99(self) -> float:
        return float(np.quantile(self._errors(), 0.99))

    def _errors(self) -> np.ndarray:
        return np.abs(self.predicted_s / np.median(self.runs_s, axis=1) - 1.0)

    def guard(self, limit_s: float) -> float:
        """Return the share of a time limit to leave free, so that the run which exceeded its prediction most would
        still keep the limit. It counts steps predicted between half of the limit and all of it; at most `MOST_GUARD`, 0
        without such steps."""
        near = (self.predicted_s >= limit_s / 2) & (self.predicted_s <= limit_s)
        if not near.any():
            return 0.0
        longer = float((self.runs_s[near] / self.predicted_s[near, None]).max())
        return float(f"{min(MOST_GUARD, max(0.0, 1.0 - 1.0 / longer)):.6g}")

    def counters(self) -> dict[str, int]:
        """Return the counters for the record; errors in millionths."""
        return {
            "profile_steps": len(self.predicted_s),
            "profile_error_mean_ppm": round(1e6 * self.error_mean),
            "profile_error_p99_ppm": round(1e6 * self.error_p99),
        }


def grid(token_budget: int) -> list[Shape]:
    """Return prompts on contexts, decodes, and both in one step, none of more than `token_budget` tokens or
    `MOST_CONTEXT`."""
    steps: list[Shape] = [[(p, c)] for p in PROMPTS for c in PROMPT_CONTEXTS]
    steps += [[(1, c)] * batch for batch in BATCHES for c in BATCH_CONTEXTS]
    for batch in MIXED_BATCHES:
        steps += [
            [*[(1, c)] * batch, (p, before)]
            for c in BATCH_CONTEXTS[1:]
            for p in PROMPTS
            for before in MIXED_PROMPT_CONTEXTS
        ]
    steps += [
        [*[(1, 4096)] * PAIRED_DECODES, (prompt, 0), (chunk, before)]
        for prompt in PAIRED_PROMPTS
        for chunk in PAIRED_CHUNKS
        for before in PAIRED_CONTEXTS
    ]
    return [
        step
        for step in steps
        if sum(tokens for tokens, _ in step) <= token_budget and sum(c for _, c in step) <= MOST_CONTEXT
    ]


def profile(
    measure: Callable[[Shape], float], token_budget: int, features: Callable[[Shape], Sequence[float]]
) -> Profile:
    """Time the grid and fit. `measure`: seconds of a step of this shape; `features`: the terms in which its time is
    linear."""
    steps = grid(token_budget)
    design = np.array([features(step) for step in steps], dtype=float)
    runs_s = np.array([[measure(step) for _ in range(REPEATS)] for step in steps])
    seconds = np.median(runs_s, axis=1)
    predicted_s = np.empty(len(steps))
    for fold in range(FOLDS):
        held = np.arange(len(steps)) % FOLDS == fold
        predicted_s[held] = design[held] @ least_relative(design[~held], seconds[~held])
    # The last bits of a solver differ between machines, and so would schedules.
    coefficients = tuple(float(f"{k:.6g}") for k in least_relative(design, seconds))
    return Profile(coefficients, predicted_s, runs_s)


class Measured(NamedTuple):
    """Seconds of an empty step, and the seconds that a request, a prompt token and a token of context add to it."""

    constant: float
    request: float
    prompt: float
    context: float


def measured(step_s: Callable[[StepWork], float | None]) -> Measured | None:
    """Return the model of a stage's own steps, for a stage that was not profiled; None until it has run enough
    steps."""
    constant = step_s(StepWork())
    if constant is None:
        return None
    one = (StepWork(1), StepWork(0, 1024), StepWork(0, 0, 1024))
    request, prompt, context = ((step_s(work) or 0.0) - constant for work in one)
    return Measured(constant, request, prompt / 1024, context / 1024)
