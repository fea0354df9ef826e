"""ConServe's scheduler of one stage replica: tokens by predicted time (Algorithm 1), and room within a step for online
requests that come while it runs (Algorithm 2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from engines.core.policy import Plan, RequestView, Shape, StageView
from engines.core.step_cost import StepWork
from engines.systems.conserve import profiler
from engines.systems.conserve.latency import LatencyModel
from engines.systems.conserve.params import OrderParams
from workloads.errors import UserError

EFFICIENT = 0.95
"""Share of the best tokens per second that the smallest sufficient step of offline mode reaches: [chosen]."""

PREFETCH_FREE = 0.05
"""Share of the pool that has to be free for evicted KV to come back ahead of its turn: [chosen]."""

COUNTED = ("rounds", "offline_rounds", "slo_limited", "reclaimed", "online_preempted", "stuck", "interrupted")


class _Step:
    """The step that is being put together: who takes how many tokens, and what is left of its limits."""

    def __init__(
        self, view: StageView, model: LatencyModel | None, limit_s: float, tokens: int, by_chunk: bool
    ) -> None:
        self.by_chunk = by_chunk
        self.model = model
        self.tokens = min(tokens, view.token_budget)
        self.left_s = math.inf if model is None else limit_s - model.constant
        self.free = view.free_blocks
        self.seats = view.seat_budget - sum([request.running for request in view.requests])
        self.size = view.block_size
        self.given: dict[str, int] = {}

    def most(self, request: RequestView) -> int:
        """Tokens that it can take by time and budget."""
        need = min(request.new, self.tokens)
        return (
            need if self.model is None or not need else self.model.most(self.left_s, request.computed, need)
        )

    def blocks(self, request: RequestView, tokens: int) -> int:
        """What it needs besides what it holds; a waiting one may have to find room for all of its prompt."""
        until = request.computed + tokens if request.running or self.by_chunk else request.tokens
        return max(0, -(-until // self.size) - request.blocks)

    def within(self, request: RequestView, tokens: int, free: int) -> int:
        """Tokens, of so many, for which `free` blocks suffice."""
        if request.running or self.by_chunk:
            return min(tokens, (request.blocks + max(0, free)) * self.size - request.computed)
        return tokens if self.blocks(request, tokens) <= free else 0

    def add(self, request: RequestView, tokens: int) -> None:
        self.given[request.id] = tokens
        self.tokens -= tokens
        self.free -= self.blocks(request, tokens)
        self.seats -= not request.running
        if self.model is not None:
            self.left_s -= self.model.added(tokens, request.computed)

    def take_back(self, victim: RequestView) -> None:
        """The victim's blocks and seat are free."""
        self.free += victim.blocks
        self.seats += victim.running


class ConServePolicy:
    """See `engines.core.policy`: `Policy`, `ProfiledPolicy` and `ReactingPolicy`.

    `counters`: rounds; those without online requests (offline_rounds); online prompts that the time limit cut or put
    off (slo_limited); offline requests preempted for online ones (reclaimed) and for other offline ones (stuck), online
    ones for earlier ones (online_preempted); arrivals that made offline requests leave the step under way
    (interrupted). Of the profile: its steps, and its mean and P99 relative error on steps it has not seen, in
    millionths (profile_error_mean_ppm, profile_error_p99_ppm).
    """

    def __init__(self, params: OrderParams, prefetch: bool) -> None:
        self.params = params
        self.prefetch = prefetch
        self.model: LatencyModel | None = None
        self._profiled = False
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._limit_s = math.inf
        self._offline: set[str] = set()
        self._preempted: set[str] = set()
        self._queued: list[tuple[int, int]] = []
        self._oldest_s: float | None = None

    def profile(self, measure: Callable[[Shape], float], token_budget: int) -> None:
        """Fit the model. UserError when t_TBT is too short for any step."""
        fitted = profiler.profile(measure, token_budget)
        self.model, self._profiled = fitted.model, True
        self.counters["profile_steps"] = fitted.steps
        self.counters["profile_error_mean_ppm"] = round(1e6 * fitted.error_mean)
        self.counters["profile_error_p99_ppm"] = round(1e6 * fitted.error_p99)
        shortest_s, limit_s = self.model.seconds([(1, 0)]), self.params.tbt_slo_s
        if limit_s is not None and limit_s * (1 - self.params.guard) < shortest_s:
            raise UserError(
                f"tbt_slo_s={limit_s:g} is shorter than a step of a single token, {shortest_s:.4f} s; raise it."
            )

    def plan(self, view: StageView[Any]) -> Plan:
        """Algorithm 1: online requests as far as their time limit allows, then offline ones in what is left."""
        self.counters["rounds"] += 1
        online = [request for request in view.requests if not self._is_offline(request)]
        offline = [request for request in view.requests if self._is_offline(request)]
        online.sort(key=_online_order)
        offline.sort(key=self._offline_order)
        self._offline = {request.id for request in offline}
        self._preempted &= self._offline
        if not self._profiled:
            self.model = _measured(view.step_s)
        model = self.model
        limit_s, most = self._limits(view, model, online, offline)
        step = _Step(view, model, limit_s, most, self.params.admit == "chunk")
        victims = self._add_online(step, online, offline)
        remaining = [request for request in offline if request.id not in victims]
        reserve = math.ceil(self.params.online_reserve * view.allocatable_blocks)
        self._add_offline(step, remaining, reserve)
        while not step.given and remaining:
            # Nobody can go on without blocks that are kept free, or that another one holds.
            self._add_offline(step, remaining, 0)
            holders = [request for request in remaining if request.blocks]
            if step.given or not holders:
                break
            victim = max(holders, key=_arrival)
            self.counters["stuck"] += 1
            step.take_back(victim)
            victims[victim.id] = None
            remaining.remove(victim)
        self._remember(online, step)
        caps = dict(step.given)
        order = [*caps]
        if self.prefetch:
            ahead = self._ahead(step, remaining, view)
            order += ahead
            caps |= dict.fromkeys(ahead, 0)
        self._preempted |= victims.keys()
        held = frozenset([request.id for request in view.requests if request.id not in caps])
        return Plan(order, held, caps=caps, preempt=list(victims))

    def arrived(
        self, request: RequestView, step: Shape, ids: Sequence[str], elapsed_s: float
    ) -> Collection[str]:
        """Algorithm 2: whether the step under way would make an online request late, and so who leaves it."""
        if self._is_offline(request):
            return ()
        self._queued.append((request.tokens, 0))
        oldest_s = self._oldest_s = request.ready_s if self._oldest_s is None else self._oldest_s
        offline = [id for id in ids if id in self._offline]
        limit_s = self.params.ttft_slo_s or request.slo.ttft_deadline_s
        if not (offline and self.params.layer_preemption and limit_s and self.model):
            return ()
        if self.params.deadline_mode == "slack":
            limit_s -= request.ready_s - oldest_s
        remaining_s = max(0.0, self.model.seconds(step) - elapsed_s)
        if remaining_s + self.model.seconds(self._queued) <= limit_s:
            return ()
        self.counters["interrupted"] += 1
        return offline

    def _is_offline(self, request: RequestView) -> bool:
        return request.slo.priority >= self.params.offline_priority

    def _offline_order(self, request: RequestView) -> tuple[bool, bool, float, str]:
        """Who runs, then who did, then who never has."""
        return not request.running, request.id not in self._preempted, request.ready_s, request.id

    def _limits(
        self,
        view: StageView,
        model: LatencyModel | None,
        online: list[RequestView],
        offline: list[RequestView],
    ) -> tuple[float, int]:
        """Seconds and tokens of the step at most."""
        params = self.params
        if not params.slo_scheduler or model is None:
            return math.inf, params.chunk_tokens
        if online:
            promised = [r.slo.tbt_deadline_s for r in online if r.slo.tbt_deadline_s is not None]
            limit_s = params.tbt_slo_s or min(promised, default=math.inf)
            self._limit_s = limit_s * (1.0 - params.guard)
        elif params.offline_mode:
            self.counters["offline_rounds"] += 1
            return math.inf, _efficient(model, offline, view.token_budget)
        limit_s = self._limit_s if online else max(self._limit_s, 2 * model.constant)
        return limit_s, view.token_budget if limit_s < math.inf else params.chunk_tokens

    def _add_online(
        self, step: _Step, online: list[RequestView], offline: list[RequestView]
    ) -> dict[str, None]:
        """Phase 1, first come, first served. Returns who has to give blocks back, in this order: offline requests for
        online ones, then the latest online request for one that runs."""
        victims: dict[str, None] = {}
        holders = sorted((request for request in offline if request.blocks), key=_arrival)
        later = sorted((request for request in online if request.blocks), key=_arrival)
        for request in online:
            if request.id in victims:
                continue
            tokens = step.most(request)
            if tokens < min(request.new, step.tokens):
                self.counters["slo_limited"] += 1
            if not tokens and step.tokens and (_decodes(request) or not step.given):
                # Nothing makes the tokens of those who are being answered cheaper, and somebody has to go on.
                tokens = min(request.new, step.size, step.tokens)
            if not tokens:
                break
            while step.blocks(request, tokens) > step.free or (not request.running and step.seats < 1):
                if holders:
                    victim = holders.pop()
                    self.counters["reclaimed"] += 1
                elif (
                    request.running and later and later[-1] is not request and later[-1].id not in step.given
                ):
                    victim = later.pop()
                    self.counters["online_preempted"] += 1
                else:
                    break
                step.take_back(victim)
                victims[victim.id] = None
            tokens = step.within(request, tokens, step.free)
            if request.running and not tokens:
                continue  # it lacks a block, others may not
            if not tokens or (not request.running and step.seats < 1):
                break
            step.add(request, tokens)
        return victims

    def _add_offline(self, step: _Step, offline: list[RequestView], reserve: int) -> None:
        """Phase 2: they take what is left, and never what another one holds."""
        for request in offline:
            if request.id in step.given:
                continue
            tokens = step.within(request, step.most(request), step.free - reserve)
            if not tokens or (not request.running and step.seats < 1):
                if request.running and step.tokens and step.left_s > 0.0:
                    continue  # it lacks a block, others may not
                break
            step.add(request, tokens)

    def _ahead(self, step: _Step, offline: list[RequestView], view: StageView) -> list[str]:
        """Preempted requests whose KV may come back although there is no time to compute for them.

        Not those whose KV has come: vLLM looks at them before anybody else that waits, and would stop there.
        """
        free, ahead = step.free - math.ceil(PREFETCH_FREE * view.allocatable_blocks), []
        for request in offline:
            if request.running or request.blocks or request.id in step.given:
                continue
            free -= step.blocks(request, request.new)
            if request.id not in self._preempted or free < 0:
                break
            ahead.append(request.id)
        return ahead

    def _remember(self, online: list[RequestView], step: _Step) -> None:
        """What online prompts still have to compute after this step, for who arrives during it."""
        self._queued, self._oldest_s = [], None
        for request in online:
            given = step.given.get(request.id, 0)
            if given < request.new:
                self._queued.append((request.new - given, request.computed + given))
                first_s = request.ready_s
                self._oldest_s = first_s if self._oldest_s is None else min(first_s, self._oldest_s)


def _decodes(request: RequestView) -> bool:
    return request.running and request.new == 1


def _online_order(request: RequestView) -> tuple[int, float, str]:
    """Decodes, then prompts that have begun, then who waits."""
    return 0 if _decodes(request) else 1 if request.running else 2, request.ready_s, request.id


def _arrival(request: RequestView) -> tuple[float, str]:
    return request.ready_s, request.id


def _efficient(model: LatencyModel, offline: list[RequestView], most: int) -> int:
    """The smallest of the steps, by powers of two, with almost as many tokens per second as the best."""
    context = sum(request.computed for request in offline) // max(1, len(offline))
    sizes = [2**power for power in range(6, 20) if 2**power <= most] or [most]
    rates = [tokens / model.seconds([(tokens, context)]) for tokens in sizes]
    return next(tokens for tokens, rate in zip(sizes, rates, strict=True) if rate >= EFFICIENT * max(rates))


def _measured(step_s: Callable[[StepWork], float | None]) -> LatencyModel | None:
    """The model by what the stage has measured of its own steps, where nothing was profiled: a straight line."""
    constant = step_s(StepWork())
    if constant is None:
        return None
    request, prompt, context = (
        (step_s(work) or 0.0) - constant for work in (StepWork(1), StepWork(0, 1024), StepWork(0, 0, 1024))
    )
    return LatencyModel(max(prompt / 1024, request / 1024), 0.0, context / 1024, constant + request)


def policy(stage: str, params: Any) -> ConServePolicy | None:
    """Of the thinker; what comes after it is first come, first served."""
    prefetch = getattr(params, "resume", None) == "ic_prefetch"
    return ConServePolicy(params, prefetch) if stage == "thinker" else None
