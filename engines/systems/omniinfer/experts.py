"""The routed experts of a decode group, put together from their parameters, and their time in each step."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from engines.core.vllm_adapter.expert_balance import eplb_layout, transfer_rounds
from engines.devices.expert_parallel import ExpertParallel
from engines.systems.omniinfer.expert_load import ExpertLoad, RecordedLoad, SampledLoad, read_routing
from engines.systems.omniinfer.omniinfer_params import LoadParams, PlacementParams, ReplicaParams
from engines.systems.omniinfer.placement import ExpertMap, budget, sequential, static_placement
from engines.systems.omniinfer.rebalancing import DynamicPlacement, Planner, Rebalancing, few_moves, replanned
from workloads.errors import UserError


class Placement(Protocol):
    """The places of experts over time, which may follow their load."""

    def at(self, now_s: float) -> ExpertMap:
        """Return the map of a step that begins now."""
        ...

    def observe(self, now_s: float, load: np.ndarray) -> None:
        """Take the (L, E) tokens of that step."""

    @property
    def link_share(self) -> float:
        """Return the share of the links' bandwidth that moving weights leaves in that step."""
        ...


class FixedPlacement:
    """Keeps experts at their first places."""

    link_share = 1.0

    def __init__(self, map: ExpertMap) -> None:
        self.map = map

    def at(self, now_s: float) -> ExpertMap:
        return self.map

    def observe(self, now_s: float, load: np.ndarray) -> None:
        pass


class ExpertSteps:
    """The routed experts of a lock-step group; `step` is called once for each of its steps.

    `clock`: seconds, as the event loop's. `every`: one drawn load holds for this number of steps, scaled to their
    tokens: a draw costs more than the rest. `imbalance`: of the last step, mean over layers of the fullest die's tokens
    over the mean die's.
    """

    def __init__(
        self,
        group: ExpertParallel,
        load: ExpertLoad,
        placement: Placement,
        per_token: int,
        clock: Callable[[], float],
        every: int = 1,
    ) -> None:
        self.group, self.load, self.placement = group, load, placement
        self.per_token, self.every = per_token, every
        self.steps = 0
        self.imbalance = 1.0
        self._clock = clock
        self._drawn: np.ndarray | None = None
        self._drawn_tokens = 0

    def step(self, tokens_of_each_die: Sequence[int]) -> float:
        """Return the seconds of all MoE layers of a step with these tokens on the dies, (D,); 0.0 for none at all."""
        tokens, now_s = sum(tokens_of_each_die), self._clock()
        if not tokens:
            return 0.0
        map = self.placement.at(now_s)
        load = self._load(now_s, tokens)
        slots = map.per_slot(load)
        self.placement.observe(now_s, load)
        sent = max(tokens_of_each_die) * self.per_token
        seconds = float(self.group.layers_s(slots, sent, self.placement.link_share).sum())
        dies = slots.sum(axis=2)
        self.imbalance = float((dies.max(axis=1) / dies.mean(axis=1)).mean())
        self.steps += 1
        return seconds

    def _load(self, now_s: float, tokens: int) -> np.ndarray:
        if self._drawn is None or self.steps % self.every == 0:
            self._drawn, self._drawn_tokens = self.load.draw(now_s, tokens), tokens
        if tokens == self._drawn_tokens:
            return self._drawn
        return self._drawn * (tokens / self._drawn_tokens)


HOST_DIES = 16
"""Dies of an Ascend 910C node: 8 chips of 2 dies."""


def load_of(params: LoadParams, layers: int, experts: int, per_token: int, seed: int) -> ExpertLoad:
    """Return a recorded load if a trace is named, else a sampled one. UserError as `read_routing`."""
    if params.routing_trace is not None:
        return RecordedLoad(read_routing(params.routing_trace, layers, experts), per_token, seed)
    return SampledLoad(
        layers, experts, per_token, params.expert_skew, seed, params.expert_drift_s, params.expert_drift_share
    )


def expert_steps(
    params: LoadParams,
    group: ExpertParallel,
    layers: int,
    experts: int,
    per_token: int,
    dies: int,
    seed: int,
    clock: Callable[[], float],
) -> ExpertSteps:
    """Return the expert times that a lock-step group of `dies` uses for its `layers` MoE layers.

    `params`: of OmniPlacement, of vLLM's balancer, or of experts in order. UserError if the experts cannot be divided
    evenly, for slots that cannot be given, and as `load_of`.
    """
    if experts % dies:
        raise UserError(
            f"{experts} experts do not stand evenly on {dies} dies; choose a number of dies that divides it."
        )
    load = load_of(params, layers, experts, per_token, seed)
    placement: Placement
    if isinstance(params, PlacementParams):
        placement = omniplacement(params, load, group, dies)
    elif isinstance(params, ReplicaParams):
        placement = eplb(params, load, group, dies)
    else:
        placement = FixedPlacement(ExpertMap(np.tile(sequential(experts, dies), (layers, 1, 1)), experts))
    return ExpertSteps(group, load, placement, per_token, clock, params.load_every)


def omniplacement(params: PlacementParams, load: ExpertLoad, group: ExpertParallel, dies: int) -> Placement:
    """Return a placement by Algorithm 1 from the load's history, and Algorithm 2 in service."""
    mode, per_host = params.placement_mode, min(HOST_DIES, dies)
    units, most = _slots(params, load, dies)
    history = load.history().astype(float)
    extra = budget(history, dies, units, most, mode)
    planner = replanned(extra, per_host) if mode == "paper" else few_moves(extra)
    settings = Rebalancing(
        every_s=params.rebalance_every_s,
        window=params.rebalance_window,
        keep=params.rebalance_keep,
        predict=params.forecast or ("linear" if mode == "paper" else "ema"),
        trigger=params.rebalance_trigger,
        margin=params.rebalance_margin,
        link_share=1 - params.copy_share,
        weigh=params.weigh_copies,
    )
    layouts = static_placement(history, dies, extra, per_host, mode)
    return _followed(params, layouts, load, group, planner, settings)


def eplb(params: ReplicaParams, load: ExpertLoad, group: ExpertParallel, dies: int) -> Placement:
    """Return vLLM's balancer, which gives each layer equally many slots and moves experts as its policy says for its
    last reading."""
    layers, _ = load.shape
    units, most = _slots(params, load, dies)
    if units % layers:
        raise UserError(f"redundant_slots {units}: placement eplb gives all {layers} layers as many; take a multiple.")

    def plan(which: np.ndarray, loads: np.ndarray, layouts: np.ndarray) -> np.ndarray:
        return eplb_layout(loads, dies, most, layouts)

    settings = Rebalancing(
        every_s=params.rebalance_every_s,
        predict="last",
        trigger=0.0,
        margin=-math.inf,
        link_share=1 - params.copy_share,
        weigh=False,
    )
    layouts = eplb_layout(load.history().astype(float), dies, most)
    return _followed(params, layouts, load, group, plan, settings)


def _slots(params: ReplicaParams, load: ExpertLoad, dies: int) -> tuple[int, int]:
    """Return the slots of a die beyond its experts: over all layers, and in one layer at most."""
    layers, experts = load.shape
    units = layers if params.redundant_slots is None else params.redundant_slots
    most = -(-units // layers)
    if dies == 1 or most > experts - experts // dies:
        raise UserError(
            f"redundant_slots {units} leaves no {experts} different experts to fill {dies} dies with; take fewer slots "
            "or more dies."
        )
    return units, most


def _followed(
    params: ReplicaParams,
    layouts: np.ndarray,
    load: ExpertLoad,
    group: ExpertParallel,
    planner: Planner,
    settings: Rebalancing,
) -> Placement:
    _, experts = load.shape
    if not params.rebalance:
        return FixedPlacement(ExpertMap(layouts, experts))

    def layers_time(slots: np.ndarray, link_share: float) -> np.ndarray:
        return group.layers_s(slots, link_share=link_share)

    return DynamicPlacement(
        layouts, experts, planner, transfer_rounds, layers_time, group.expert_bytes, group.link_bandwidth, settings
    )
