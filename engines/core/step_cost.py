"""What a stage has measured of its own steps: seconds against what is computed, fitted as it goes.

The form is linear in requests, prompt tokens and context, as in ConServe's profiler (its section on the SLO-aware
scheduler), whose square of the chunk is left out: chunks are bounded by the token budget. Policies read this, never the
cost model.
"""

from collections.abc import Iterable
from typing import NamedTuple

FORGET = 0.995
"""Weight of the past at each new step: about the last 200 steps count."""

MIN_STEPS = 16

REFIT = 16
"""[chosen] steps after which the coefficients are found anew."""

SWEEPS = 24
"""[chosen] of coordinate descent, from the coefficients before."""


class StepWork(NamedTuple):
    """What a step computes, in sums over its requests. `prompt`: new tokens of those that take more than one or do not
    sample yet; `context`: tokens whose KV is read."""

    requests: int = 0
    prompt: int = 0
    context: int = 0

    @classmethod
    def of(cls, requests: Iterable[tuple[int, int]]) -> "StepWork":
        """By (new tokens, context) of each request."""
        count = prompt = context = 0
        for new, before in requests:
            count += 1
            prompt += new if new > 1 else 0
            context += before
        return cls(count, prompt, context)

    def plus(self, new: int, context: int) -> "StepWork":
        """With one request more."""
        return StepWork(self.requests + 1, self.prompt + (new if new > 1 else 0), self.context + context)


class StepCost:
    """Exponentially weighted least squares with coefficients that are not negative.

    In plain arithmetic, one coefficient at a time: a library's solver may differ between machines in the last bit, and
    so then would schedules.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._products = [[0.0] * 4 for _ in range(4)]
        self._targets = [0.0] * 4
        self._coefficients = [0.0] * 4

    def add(self, work: StepWork, seconds: float) -> None:
        """A step that computed `work` took `seconds`."""
        self._steps += 1
        features = (1.0, *work)
        for i, row in enumerate(self._products):
            feature = features[i]
            self._targets[i] = FORGET * self._targets[i] + feature * seconds
            for j in range(i + 1):
                row[j] = FORGET * row[j] + feature * features[j]
        if self._steps >= MIN_STEPS and self._steps % REFIT == 0:
            self._fit()

    def predict(self, work: StepWork) -> float | None:
        """Expected seconds of a step that computes `work`; None before 16 steps. Never less for more work."""
        if self._steps < MIN_STEPS:
            return None
        constant, each, token, context = self._coefficients
        return constant + each * work.requests + token * work.prompt + context * work.context

    def _fit(self) -> None:
        products, targets, found = self._products, self._targets, self._coefficients
        for _ in range(SWEEPS):
            for i in range(4):
                own = products[i][i]
                if own <= 0.0:
                    continue
                others = sum(
                    (products[i][j] if j < i else products[j][i]) * found[j] for j in range(4) if j != i
                )
                found[i] = max(0.0, (targets[i] - others) / own)
