"""The time of a step by ConServe's model (section 4.2), and the further work that fits into a step with a time
limit."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engines.core.device import Row
from engines.core.policy import RequestView, Shape
from engines.devices.step_fit import design_of
from engines.devices.step_time import CONSERVE, terms, totals


@dataclass(frozen=True)
class LatencyModel:
    """T = (k1 + k3) P + k2 A + k4 V + k5, in seconds, over a step's requests of n new tokens on top of a context of c:
    P = sum n, A = sum n (n + c), V = sum (n + c).

    The paper writes one P and C for a batch. Attention is a request's own, so its two terms are summed request by
    request. `token` is k1 + k3: computing and tensor-parallel communication both count tokens, and one degree of
    parallelism cannot separate them.
    """

    token: float
    pair: float
    visible: float
    constant: float

    def seconds(self, shape: Iterable[tuple[int, int]]) -> float:
        """Return the predicted seconds of a step whose requests take (new tokens, context)."""
        return self.constant + sum(self.added(tokens, context) for tokens, context in shape)

    def added(self, tokens: int, context: int) -> float:
        """Return the seconds that one request adds to a step."""
        seen = tokens + context
        return self.token * tokens + self.pair * tokens * seen + self.visible * seen

    def most(self, left_s: float, context: int, need: int) -> int:
        """can_schedule: return the most tokens, at most `need`, that one request adds to a step in `left_s` seconds; 0:
        none.

        The larger root of k2 n^2 + (k1 + k3 + k2 c + k4) n + k4 c = left_s.
        """
        if self.added(need, context) <= left_s:
            return need
        rest = left_s - self.visible * context
        slope = self.token + self.pair * context + self.visible
        if rest <= 0.0:
            return 0
        if self.pair * need * need < 1e-12 * slope * need:
            most = rest / slope if slope > 0.0 else need
        else:
            most = (math.sqrt(slope * slope + 4.0 * self.pair * rest) - slope) / (2.0 * self.pair)
        tokens = min(need, int(most))
        while tokens < need and self.added(tokens + 1, context) <= left_s:  # the root's last bit
            tokens += 1
        while tokens and self.added(tokens, context) > left_s:
            tokens -= 1
        return tokens


def features(shape: Shape) -> Sequence[float]:
    """Return the terms in which the model is linear, in the order of its coefficients."""
    return design_of([totals(Row("", n, c, True) for n, c in shape)], terms(CONSERVE))[0]


class StepTime:
    """Implements `engines.co_serving.phases`: a request's added time does not depend on the others."""

    def __init__(self, model: LatencyModel, limit_s: float) -> None:
        self.model = model
        self.left_s = limit_s - model.constant

    def most(self, request: RequestView, need: int) -> int:
        return self.model.most(self.left_s, request.computed, need)

    def add(self, request: RequestView, tokens: int) -> None:
        self.left_s -= self.model.added(tokens, request.computed)
