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
        self._sums = (0.0,) * 14
        self._coefficients = (0.0,) * 4

    def add(self, work: StepWork, seconds: float) -> None:
        """A step that computed `work` took `seconds`."""
        self._steps += 1
        n, p, c = work
        one, nn, n1, pp, p1, pn, cc, c1, cn, cp, s, sn, sp, sc = self._sums
        # Each step pays for this, so it is written out: products of (1, n, p, c) among themselves and with the seconds.
        self._sums = (
            FORGET * one + 1.0,
            FORGET * nn + n * n,
            FORGET * n1 + n,
            FORGET * pp + p * p,
            FORGET * p1 + p,
            FORGET * pn + p * n,
            FORGET * cc + c * c,
            FORGET * c1 + c,
            FORGET * cn + c * n,
            FORGET * cp + c * p,
            FORGET * s + seconds,
            FORGET * sn + n * seconds,
            FORGET * sp + p * seconds,
            FORGET * sc + c * seconds,
        )
        if self._steps >= MIN_STEPS and self._steps % REFIT == 0:
            self._fit()

    def predict(self, work: StepWork) -> float | None:
        """Expected seconds of a step that computes `work`; None before 16 steps. Never less for more work."""
        if self._steps < MIN_STEPS:
            return None
        constant, each, token, context = self._coefficients
        return constant + each * work.requests + token * work.prompt + context * work.context

    def _fit(self) -> None:
        one, nn, n1, pp, p1, pn, cc, c1, cn, cp, s, sn, sp, sc = self._sums
        constant, each, token, context = self._coefficients
        for _ in range(SWEEPS):
            constant = max(0.0, (s - (n1 * each + p1 * token + c1 * context)) / one)
            if nn > 0.0:
                each = max(0.0, (sn - (n1 * constant + pn * token + cn * context)) / nn)
            if pp > 0.0:
                token = max(0.0, (sp - (p1 * constant + pn * each + cp * context)) / pp)
            if cc > 0.0:
                context = max(0.0, (sc - (c1 * constant + cn * each + cp * token)) / cc)
        self._coefficients = (constant, each, token, context)
