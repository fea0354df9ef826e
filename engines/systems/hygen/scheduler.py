"""HyGen's two-phase scheduler of one stage replica: online requests, then offline ones up to a latency budget. Its
predictor is a straight line in a batch's tokens, their squares, and its requests, by phase."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engines.co_serving import phases
from engines.co_serving.phases import Step
from engines.co_serving.profiler import Measured, measured, profile
from engines.core.policy import Plan, RequestView, Shape, StageView
from engines.core.stage import ENTRY
from engines.systems.hygen.hygen_params import OrderParams
from workloads.errors import UserError


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


Path = tuple[tuple[int, int], ...]
"""The place of a request in the tree: for each fork on its way, (-depth, number of the branch by first arrival), and
for its end. Ascending order is depth first: a request that leaves a common way later comes earlier, then the branch
with the first arrival at a fork."""


class PrefixTree:
    """Prefix sharing maximization: offline requests form a tree by their prefixes, and are served depth first.

    It holds all present offline requests, running ones included, by the hashes of their blocks.

    A hash covers all tokens before its block too, so the hashes are the nodes.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._nodes: dict[str, tuple[bytes, ...]] = {}
        self._first: dict[bytes, int] = {}
        self._through: Counter[bytes] = Counter()
        self._number = 0

    def keep(self, requests: Iterable[RequestView]) -> None:
        """Keep these requests and no others; new ones enter in their order."""
        here = {request.id: request for request in requests}
        for gone in self._paths.keys() - here.keys():
            self._remove(gone)
        new = [request for id, request in here.items() if id not in self._paths]
        for request in sorted(new, key=lambda request: (request.ready_s, request.id)):
            self._add(request)

    def path(self, request: RequestView) -> Path:
        return self._paths[request.id]

    def _add(self, request: RequestView) -> None:
        number, path = self._number, []
        self._number += 1
        nodes = self._nodes[request.id] = tuple(request.hashes)
        for depth, node in enumerate(nodes):
            first = self._first.setdefault(node, number)
            if not path or path[-1][1] != first:
                path.append((-depth, first))
        self._through.update(nodes)
        self._paths[request.id] = (*path, (-len(nodes), number))

    def _remove(self, id: str) -> None:
        del self._paths[id]
        for node in self._nodes.pop(id):
            self._through[node] -= 1
            if not self._through[node]:
                del self._through[node], self._first[node]


COUNTED = ("rounds", *phases.COUNTED)


class HyGenPolicy:
    """Implements two protocols of `engines.core.policy`: `Policy` and `ProfiledPolicy`.

    `counters`: rounds; `phases.COUNTED`; `Profile.counters`.
    """

    def __init__(self, params: OrderParams) -> None:
        self.params = params
        self.predictor: Predictor | None = None
        self.profiled = False
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._tree = PrefixTree()
        self._budget_s = math.inf
        self._let_in = 0

    def profile(self, measure: Callable[[Shape], float], token_budget: int) -> None:
        """Fit the predictor. UserError when the budget is too short for any step."""
        fitted = profile(measure, token_budget, features)
        self.predictor, self.profiled = Predictor(*fitted.coefficients), True
        dict.update(self.counters, fitted.counters())
        shortest_s, budget_s = self.predictor.seconds(Batch.of([(1, 0)])), self.params.latency_budget_s
        if budget_s is not None and budget_s < shortest_s:
            raise UserError(
                f"latency_budget_s={budget_s:g} is shorter than a step of a single token, {shortest_s:.4f} s; raise it."
            )

    def plan(self, view: StageView[RequestView]) -> Plan:
        """Plan a step. The online phase is limited by tokens and memory only; the latency budget binds offline
        requests, whether or not there are online ones."""
        self.counters["rounds"] += 1
        online = [request for request in view.requests if not self._is_offline(request)]
        offline = [request for request in view.requests if self._is_offline(request)]
        online.sort(key=phases.online_order)
        step = Step(view, None, view.token_budget, by_chunk=False)
        victims = phases.add_online(step, online, offline, self.counters)
        step.time = self._time(view, step, online)
        remaining = self.in_order([request for request in offline if request.id not in victims])
        victims |= phases.add_offline(step, remaining, 0, self.counters)
        self._let_in += sum([not request.running and request.id in step.given for request in remaining])
        held = frozenset([request.id for request in view.requests if request.id not in step.given])
        return Plan([*step.given], held, caps=step.given, preempt=list(victims))

    def _is_offline(self, request: RequestView) -> bool:
        return request.slo.priority >= self.params.offline_priority

    def _time(self, view: StageView[RequestView], step: Step, online: list[RequestView]) -> StepTime | None:
        """Return the step's time with the online phase's requests; None before there is a predictor."""
        if not self.profiled:
            self.predictor = _as_predictor(measured(view.step_s))
        promised = [r.slo.tbt_deadline_s for r in online if r.slo.tbt_deadline_s is not None]
        if promised:
            self._budget_s = min(promised)
        if self.predictor is None:
            return None
        time = StepTime(self.predictor, self.params.latency_budget_s or self._budget_s, Batch())
        for request in online:
            if request.id in step.given:
                time.add(request, step.given[request.id])
        return time

    def in_order(self, offline: list[RequestView]) -> list[RequestView]:
        """Return the offline requests in order: the running ones, then the waiting ones. A share `prefix_share` of the
        waiting ones goes by the prefix tree, the others by age."""
        self._tree.keep(offline)
        running = sorted((request for request in offline if request.running), key=phases.arrival)
        waiting = [request for request in offline if not request.running]
        by_prefix = sorted(waiting, key=lambda request: (self._tree.path(request), *phases.arrival(request)))
        oldest = sorted(waiting, key=phases.arrival)
        picked: dict[str, RequestView] = {}
        share, trees = self.params.prefix_share, iter(by_prefix)
        ages = iter(oldest)
        for number in range(self._let_in, self._let_in + len(waiting)):
            queue = trees if math.floor((number + 1) * share) > math.floor(number * share) else ages
            request = next(each for each in queue if each.id not in picked)
            picked[request.id] = request
        return [*running, *picked.values()]


def _as_predictor(seen: Measured | None) -> Predictor | None:
    """Return a predictor without squares for a stage that was not profiled."""
    if seen is None:
        return None
    return Predictor(seen.prompt, seen.context, 0.0, 0.0, seen.request, seen.request, seen.constant)


def policy(stage: str, params: OrderParams) -> HyGenPolicy | None:
    """Return the policy of the entry stage; None for later stages, which are first come, first served."""
    return HyGenPolicy(params) if stage == ENTRY else None
