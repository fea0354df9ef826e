"""HyGen's latency predictor: a straight line in a batch's tokens, their squares, and its requests, by phase."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.core.policy import RequestView, Shape


class Batch(NamedTuple):
    """The predictor's features of one batch: S_p, S_d, N_p and N_d.

    `decode` counts the whole contexts of requests that decode: their new tokens alone would be N_d again.
    """

    prompt: int = 0
    decode: int = 0
    prompts: int = 0
    decodes: int = 0

    def plus(self, tokens: int, context: int, decodes: bool) -> Batch:
        if decodes:
            return self._replace(decode=self.decode + tokens + context, decodes=self.decodes + 1)
        return self._replace(prompt=self.prompt + tokens, prompts=self.prompts + 1)

    @classmethod
    def of(cls, shape: Shape) -> Batch:
        """Return the batch of a shape. A request of one new token decodes."""
        batch = cls()
        for tokens, context in shape:
            batch = batch.plus(tokens, context, tokens == 1)
        return batch


@dataclass(frozen=True)
class Predictor:
    """T_batch = f(S_p, S_d, S_p^2, S_d^2, N_p, N_d), in seconds, and a constant. No coefficient is negative, so that a
    larger batch is never predicted to be shorter."""

    prompt: float
    decode: float
    prompt_squared: float
    decode_squared: float
    prompts: float
    decodes: float
    constant: float

    def seconds(self, batch: Batch) -> float:
        prompt, decode, prompts, decodes = batch
        return (
            self.constant
            + (self.prompt + self.prompt_squared * prompt) * prompt
            + (self.decode + self.decode_squared * decode) * decode
            + self.prompts * prompts
            + self.decodes * decodes
        )


def features(shape: Shape) -> Sequence[float]:
    """Return the features in the order of the predictor's coefficients."""
    prompt, decode, prompts, decodes = Batch.of(shape)
    return prompt, decode, prompt**2, decode**2, prompts, decodes, 1


class StepTime:
    """Implements `engines.co_serving.phases`. `batch`: the requests in the step already."""

    def __init__(self, predictor: Predictor, budget_s: float, batch: Batch) -> None:
        self.predictor = predictor
        self.budget_s = budget_s
        self.batch = batch

    @property
    def left_s(self) -> float:
        return self.budget_s - self.predictor.seconds(self.batch)

    def most(self, request: RequestView, need: int) -> int:
        """Return the most tokens for the request. An empty step takes one request, however short the budget is."""

        def seconds(tokens: int) -> float:
            return self.predictor.seconds(self._with(request, tokens))

        most = bisect_right(range(1, need + 1), self.budget_s, key=seconds)
        return most if most or self.batch != Batch() else 1

    def add(self, request: RequestView, tokens: int) -> None:
        self.batch = self._with(request, tokens)

    def _with(self, request: RequestView, tokens: int) -> Batch:
        return self.batch.plus(tokens, request.computed, request.new == 1)
