"""Step times that a stage has measured of its own steps: seconds against a step's work, fitted as the stage runs.

The form is linear in requests, prompt tokens and context, as in ConServe's profiler (its section on the SLO-aware
scheduler). The square of the chunk is left out: chunks are bounded by the token budget. Policies read these times,
never the cost model.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from engines.core.device import NO_ROWS, Row, SummedRows

FORGET = 0.995
"""Weight of the past at each new step: about the last 200 steps count."""

REFIT = 16
"""[chosen] steps between two fits of the coefficients; nothing is predicted before the first."""

SWEEPS = 24
"""[chosen] sweeps of coordinate descent, from the last coefficients."""


class StepWork(NamedTuple):
    """The work of a step, in sums over its requests. `prompt`: new tokens of the requests that take more than one or do
    not sample yet. `context`: tokens whose KV is read."""

    requests: int = 0
    prompt: int = 0
    context: int = 0

    @classmethod
    def of_rows(cls, rows: Sequence[Row], summed: SummedRows = NO_ROWS) -> "StepWork":
        prompt, context = 0, summed.context
        for row in rows:
            tokens = row.tokens
            context += row.context
            if tokens > 1 or not row.samples:
                prompt += tokens
        return cls(len(rows) + summed.requests, prompt, context)

    @classmethod
    def of(cls, requests: Iterable[tuple[int, int]]) -> "StepWork":
        """Sum the work of requests that take (new tokens, context) and then sample."""
        count = prompt = context = 0
        for new, before in requests:
            count += 1
            prompt += new if new > 1 else 0
            context += before
        return cls(count, prompt, context)

    def plus(self, new: int, context: int) -> "StepWork":
        return StepWork(self.requests + 1, self.prompt + (new if new > 1 else 0), self.context + context)


class StepCost:
    """Exponentially weighted least squares with coefficients that are not negative.

    In plain arithmetic, one coefficient at a time: a library's solver may differ between machines in the last bit, and
    so then would schedules.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._seen: list[tuple[StepWork, float]] = []
        self._sums = (0.0,) * 14
        self._coefficients = (0.0,) * 4

    def add(self, work: StepWork, seconds: float) -> None:
        """Add a step that computed `work` in `seconds`."""
        self._steps += 1
        self._seen.append((work, seconds))
        if self._steps % REFIT == 0:
            self._sum()
            self._fit()

    def predict(self, work: StepWork) -> float | None:
        """Return the expected seconds of a step that computes `work`; None before 16 steps. Never less for more
        work."""
        if self._steps < REFIT:
            return None
        constant, request, token, context = self._coefficients
        return constant + request * work.requests + token * work.prompt + context * work.context

    def _sum(self) -> None:
        """Add the steps since the last fit: products of (1, n, p, c) among themselves and with the seconds.

        Written out, because every step of a stage with a policy pays for it.
        """
        one, nn, n1, pp, p1, pn, cc, c1, cn, cp, s, sn, sp, sc = self._sums
        for (n, p, c), seconds in self._seen:
            one = FORGET * one + 1.0
            nn = FORGET * nn + n * n
            n1 = FORGET * n1 + n
            pp = FORGET * pp + p * p
            p1 = FORGET * p1 + p
            pn = FORGET * pn + p * n
            cc = FORGET * cc + c * c
            c1 = FORGET * c1 + c
            cn = FORGET * cn + c * n
            cp = FORGET * cp + c * p
            s = FORGET * s + seconds
            sn = FORGET * sn + n * seconds
            sp = FORGET * sp + p * seconds
            sc = FORGET * sc + c * seconds
        self._sums = (one, nn, n1, pp, p1, pn, cc, c1, cn, cp, s, sn, sp, sc)
        self._seen.clear()

    def _fit(self) -> None:
        one, nn, n1, pp, p1, pn, cc, c1, cn, cp, s, sn, sp, sc = self._sums
        constant, request, token, context = self._coefficients
        for _ in range(SWEEPS):
            best = (s - (n1 * request + p1 * token + c1 * context)) / one
            constant = best if best > 0.0 else 0.0
            if nn > 0.0:
                best = (sn - (n1 * constant + pn * token + cn * context)) / nn
                request = best if best > 0.0 else 0.0
            if pp > 0.0:
                best = (sp - (p1 * constant + pn * request + cp * context)) / pp
                token = best if best > 0.0 else 0.0
            if cc > 0.0:
                best = (sc - (c1 * constant + cn * request + cp * token)) / cc
                context = best if best > 0.0 else 0.0
        self._coefficients = (constant, request, token, context)
