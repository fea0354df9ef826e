"""ConServe's scheduler of one stage replica: tokens by predicted time (section 4.2, Algorithm 1), and room within a
running step for online requests that arrive (Algorithm 2)."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from engines.co_serving import phases
from engines.co_serving.phases import Step
from engines.co_serving.profiler import Measured, Profile, measured, profile
from engines.core.device import Row
from engines.core.policy import Plan, RequestView, Shape, StageView
from engines.core.stage import ENTRY, HostCopies, Safepoints, Stage
from engines.devices.step_fit import design_of
from engines.devices.step_time import CONSERVE, terms, totals
from engines.systems.conserve.conserve_params import KvParams, OrderParams, QueueParams, SchedulerParams
from workloads.errors import UserError


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


EFFICIENT = 0.95
"""Share of the best tokens per second that the smallest sufficient step of offline mode reaches: [chosen]."""

PREFETCH_FREE = 0.05
"""Share of the pool that has to be free for evicted KV to come back ahead of its turn: [chosen]."""

COUNTED = ("rounds", "offline_rounds", *phases.COUNTED, "interrupted", "guard_ppm")


class ConServePolicy:
    """Implements three protocols of `engines.core.policy`: `Policy`, `ProfiledPolicy` and `ReactingPolicy`.

    `counters`: rounds; rounds without online requests (offline_rounds); `phases.COUNTED`; arrivals that made offline
    requests leave the step under way (interrupted); `Profile.counters`.
    """

    def __init__(self, params: OrderParams, prefetch: bool) -> None:
        self.params = params
        self.prefetch = prefetch
        self.model: LatencyModel | None = None
        self._profile: Profile | None = None
        self.counters: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self._limit_s = math.inf
        self._guard = self.params.guard or 0.0
        self._offline: set[str] = set()
        self._preempted: set[str] = set()
        self._queued: list[tuple[int, int]] = []

    def profile(self, measure: Callable[[Shape], float], token_budget: int) -> None:
        """Fit the model. UserError when t_TBT is too short for any step."""
        self._profile = fitted = profile(measure, token_budget, features)
        self.model = LatencyModel(*fitted.coefficients)
        dict.update(self.counters, fitted.counters())
        limit_s = self.params.tbt_slo_s
        if limit_s is None:
            return
        self._limit(limit_s)
        shortest_s = self.model.seconds([(1, 0)])
        if limit_s * (1 - self._guard) < shortest_s:
            raise UserError(
                f"tbt_slo_s={limit_s:g} less the guard of {100 * self._guard:.0f} % is shorter than a step of a single "
                f"token, {shortest_s:.4f} s; raise it, or set guard=0."
            )

    def plan(self, view: StageView[RequestView]) -> Plan:
        """Plan by Algorithm 1: online requests as far as their time limit allows, then offline ones in the rest."""
        self.counters["rounds"] += 1
        online = [request for request in view.requests if not self._is_offline(request)]
        offline = [request for request in view.requests if self._is_offline(request)]
        online.sort(key=phases.online_order)
        offline.sort(key=self._offline_order)
        self._offline = {request.id for request in offline}
        self._preempted &= self._offline
        if self._profile is None:
            self.model = _as_model(measured(view.step_s))
        model = self.model
        limit_s, most = self._limits(view, model, online, offline)
        time = None if model is None else StepTime(model, limit_s)
        step = Step(view, time, most, self.params.admit == "chunk")
        victims = phases.add_online(step, online, offline, self.counters)
        remaining = [request for request in offline if request.id not in victims]
        if time is not None and limit_s < math.inf:
            time.left_s = self._for_offline(time.left_s, limit_s, online, step, view.now)
        reserve = math.ceil(self.params.online_reserve * view.allocatable_blocks)
        stuck = phases.add_offline(step, remaining, reserve, self.counters)
        remaining = [request for request in remaining if request.id not in stuck]
        victims |= stuck
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

    def arrived(self, request: RequestView, step: Shape, ids: Sequence[str], elapsed_s: float) -> Collection[str]:
        """Return, by Algorithm 2, the requests that leave the step under way because it would make an online request
        late.

        The next step is taken to last as long as its online prompts alone, as in the paper. Predictions are lengthened
        by the share of time that Algorithm 1 leaves free.
        """
        if self._is_offline(request):
            return ()
        self._queued.append((request.tokens, 0))
        offline = [id for id in ids if id in self._offline]
        limit_s = self._ttft_s(request)
        if not (offline and self.params.layer_preemption and limit_s and self.model):
            return ()
        longer = 1.0 / (1.0 - self._guard)
        remaining_s = max(0.0, longer * self.model.seconds(step) - elapsed_s)
        next_s = longer * self.model.seconds(self._queued)
        if remaining_s + next_s <= limit_s:
            return ()
        self.counters["interrupted"] += 1
        return offline

    def _for_offline(self, left_s: float, limit_s: float, online: list[RequestView], step: Step, now: float) -> float:
        """Return the seconds that offline tokens may add to a step whose online tokens leave `left_s` of `limit_s`.

        The step lasts until t_TBT at most, and [derived] until the first token of a prompt that ends in it is due: the
        paper wants both SLOs kept (section 4.2), and Algorithm 1 writes t_TBT alone. Offline tokens leave the guard
        free; online ones last as long in Online-Only, which sets the limits.
        """
        until_s = limit_s
        if self.params.ttft_fill:
            for request in online:
                ends = step.given.get(request.id) == request.new and not phases.decodes(request)
                if ends and (ttft_s := self._ttft_s(request)):
                    until_s = min(until_s, request.ready_s + ttft_s - now)
        return left_s - limit_s + (1.0 - self._guard) * until_s

    def _ttft_s(self, request: RequestView) -> float | None:
        return self.params.ttft_slo_s or request.slo.ttft_deadline_s

    def _is_offline(self, request: RequestView) -> bool:
        return request.slo.priority >= self.params.offline_priority

    def _offline_order(self, request: RequestView) -> tuple[bool, bool, bool, float, str]:
        """Return the sort key of an offline request: running ones first, then requests with returned KV, then requests
        preempted before. Otherwise two requests that do not fit into the pool together would take it from each other
        for ever."""
        waits = not request.running
        return waits, not request.blocks, request.id not in self._preempted, request.ready_s, request.id

    def _limits(
        self, view: StageView, model: LatencyModel | None, online: list[RequestView], offline: list[RequestView]
    ) -> tuple[float, int]:
        """Return the most seconds and tokens of the step."""
        params = self.params
        if not params.slo_scheduler or model is None:
            return math.inf, view.token_budget
        if online:
            promised = [r.slo.tbt_deadline_s for r in online if r.slo.tbt_deadline_s is not None]
            self._limit(params.tbt_slo_s or min(promised, default=math.inf))
        elif params.offline_mode:
            self.counters["offline_rounds"] += 1
            return math.inf, _efficient(model, offline, view.token_budget)
        limit_s = self._limit_s if online else max(self._limit_s, 2 * model.constant)
        return limit_s, view.token_budget

    def _limit(self, limit_s: float) -> None:
        """Set t_TBT from now on, and its part that offline tokens leave free."""
        if limit_s == self._limit_s:
            return
        self._limit_s = limit_s
        if self.params.guard is None and self._profile is not None:
            self._guard = self._profile.guard(limit_s) if limit_s < math.inf else 0.0
        self.counters["guard_ppm"] = round(1e6 * self._guard)

    def _ahead(self, step: Step, offline: list[RequestView], view: StageView) -> list[str]:
        """Return preempted requests whose KV may return although there is no time to compute for them.

        Requests whose KV has come are left out: vLLM looks at them before any other waiting request, and would stop
        there.
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

    def _remember(self, online: list[RequestView], step: Step) -> None:
        """Remember the tokens that online prompts still have to compute after this step, for requests that arrive
        during it."""
        self._queued = []
        for request in online:
            given = step.given.get(request.id, 0)
            if given < request.new:
                self._queued.append((request.new - given, request.computed + given))


def _efficient(model: LatencyModel, offline: list[RequestView], most: int) -> int:
    """Return the smallest of the steps, by powers of two, with almost as many tokens per second as the best."""
    context = sum(request.computed for request in offline) // max(1, len(offline))
    sizes = [2**power for power in range(6, 20) if 2**power <= most] or [most]
    rates = [tokens / model.seconds([(tokens, context)]) for tokens in sizes]
    return next(tokens for tokens, rate in zip(sizes, rates, strict=True) if rate >= EFFICIENT * max(rates))


def _as_model(seen: Measured | None) -> LatencyModel | None:
    """Return a straight line for a stage that was not profiled."""
    if seen is None:
        return None
    return LatencyModel(max(seen.prompt, seen.request / 1024), 0.0, seen.context, seen.constant + seen.request)


def policy(stage: str, params: SchedulerParams) -> ConServePolicy | None:
    """Return the policy of the entry stage; None for later stages, which are first come, first served."""
    return ConServePolicy(params, params.resume == "ic_prefetch") if stage == ENTRY else None


class NonPreemptive:
    """ConServe's baseline Non-Preemptive, an `engines.core.policy.Policy`: online requests pass offline ones in the
    queue, and no admitted request loses its place (section 6.1)."""

    def __init__(self, params: QueueParams) -> None:
        self.params = params
        self.counters: Counter[str] = Counter()

    def plan(self, view: StageView[RequestView]) -> Plan:
        """Put running requests first, in the order of their arrival."""
        offline = self.params.offline_priority
        running = [request.id for request in view.requests if request.running]
        waiting = [request for request in view.requests if not request.running]
        waiting.sort(key=lambda request: (request.slo.priority >= offline, request.ready_s, request.id))
        return Plan([*running, *(request.id for request in waiting)])


def non_preemptive(stage: str, params: QueueParams) -> NonPreemptive | None:
    """Return the policy of the entry stage; None for later stages."""
    return NonPreemptive(params) if stage == ENTRY else None


def as_scheduled(stage: Stage, params: OrderParams) -> Stage:
    """Return the stage with safepoints, if its steps can be interrupted; they cost their time even if no request
    leaves."""
    stage = replace(stage, admit=params.admit)
    if not params.layer_preemption:
        return stage
    seconds = params.safepoint_s if stage.split == 1 else params.safepoint_split_s
    return stage.extended(Safepoints(params.safepoint_layers, seconds))


def with_copies(stage: Stage, params: KvParams) -> Stage:
    """Return the stage with its times of copies to and from the host. Only offline requests give way to later ones, so
    only their KV is copied."""
    if params.resume == "recompute":
        return replace(stage, prefix_caching=False)
    stores = "preempted" if params.resume == "swap" else "computed"
    loads = "beside" if params.resume == "ic_prefetch" else "before"
    return stage.extended(HostCopies(stores, loads, params.offline_priority))
