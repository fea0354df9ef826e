"""The input and output of a scheduling policy. Nothing here knows vLLM, the cost model, the client or the trace."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, runtime_checkable

from engines.core.request import NO_SLO
from engines.core.step_cost import StepWork
from workloads.columns.classes import Slo


@dataclass(slots=True)
class RequestView:
    """One request of one stage at the beginning of a round.

    `ready_s`: when it became runnable at this stage; `due_s`: when its next token is due, None: at no time; both s on
    the run's clock. `slo`: its deadlines. `prompt_tokens`: of its prompt. `max_tokens`: tokens that it asks for, as in
    vLLM's `Request`; a replayed request ends there, so that a policy which orders by it knows the length of the answer.
    `tenant`: its client; "" where the trace names none. `predicted_tokens`: the trace's prediction of its tokens, in
    the entry stage; None without one. A library of systems adds further fields.

    From vLLM's scheduler: `tokens`: prompt and output tokens so far; `computed`: tokens whose KV exists; `blocks`: KV
    blocks held; `hashes`: of its full blocks (empty without prefix caching). A hash covers all tokens before its block
    too, so that requests with a common prefix can share its blocks in the pool.
    """

    id: str
    ready_s: float
    due_s: float | None = None
    slo: Slo = NO_SLO
    running: bool = False
    tokens: int = 0
    computed: int = 0
    blocks: int = 0
    hashes: Sequence[bytes] = ()
    prompt_tokens: int = 0
    max_tokens: int = 0
    tenant: str = ""
    predicted_tokens: int | None = None

    @property
    def new(self) -> int:
        """Tokens that it would compute in a step without limits."""
        return self.tokens - self.computed


View_co = TypeVar("View_co", bound=RequestView, covariant=True)


@dataclass(slots=True)
class StageView(Generic[View_co]):
    """One stage replica at the beginning of a round: requests that could make progress, and the round's budgets.

    `requests`: running ones, then waiting ones, each in the order of vLLM's queue: that of arrival until a plan's
    `order` changes it. `ready_s` keeps the order of arrival. `parked`: requests that keep their slot and KV, but whose
    next input has not come. `step_s` predicts a step's seconds from its work, by this stage's own measurements; None
    until there are enough.
    """

    stage: str
    now: float
    requests: Sequence[View_co]
    token_budget: int
    slot_budget: int
    free_blocks: int
    allocatable_blocks: int
    block_size: int
    step_s: Callable[[StepWork], float | None]
    parked: Sequence[View_co] = ()


@dataclass(slots=True)
class Plan:
    """A policy's answer. An empty field means: as stock vLLM would.

    order: request ids, most urgent first, over running and waiting ones alike. held: ids that must not run in this
    step; running ones keep their KV. step_budget: tokens of this step at most. caps: tokens of one request at most.
    preempt: ids, running or not, that give up their blocks before the step; their KV stays cached until it is
    overwritten. wake_s: when to look again if nothing has happened. urgent_short: an urgent request cannot get blocks,
    so background loads have to give way.
    """

    order: Sequence[str] = ()
    held: frozenset[str] = frozenset()
    step_budget: int | None = None
    caps: Mapping[str, int] = field(default_factory=dict)
    preempt: Sequence[str] = ()
    wake_s: float | None = None
    urgent_short: bool = False


DEFAULT_PLAN = Plan()
"""The plan that leaves everything to vLLM; test for it with `plan is DEFAULT_PLAN`."""


class Policy(Protocol):
    """A scheduling policy of one stage replica. The record keeps its `counters`."""

    counters: Counter[str]

    def plan(self, view: StageView) -> Plan: ...


Shape = Sequence[tuple[int, int]]
"""A step's requests as (new tokens, context)."""


@runtime_checkable
class ProfiledPolicy(Protocol):
    """A policy that measures step times before the first request."""

    def profile(self, measure: Callable[[Shape], float], token_budget: int) -> None:
        """Measure steps. `measure` runs a step of this shape and returns its seconds; `token_budget`: most tokens of a
        step."""


@runtime_checkable
class FollowingPolicy(Protocol):
    """A policy that also learns what each step produced."""

    def produced(self, request: str, tokens: int, finished: bool) -> None:
        """Note output tokens that a step gave a request, by id. `finished`: its last, at a prefill replica its first.

        Called at the end of a step and before the next plan, for each request that got a token, in the step's order. A
        request that leaves without it was aborted.
        """
        ...


@runtime_checkable
class ReactingPolicy(Protocol):
    """A policy that also reacts to a new request during a step."""

    def arrived(self, request: RequestView, step: Shape, ids: Sequence[str], elapsed_s: float) -> Collection[str]:
        """Return the `ids` that leave the step under way at its next safepoint, now that `request` has come.

        `step`: their shapes in it, in their order; it has run for `elapsed_s`.
        """
        ...
