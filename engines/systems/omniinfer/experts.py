"""The routed experts of a decode group, put together from their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from engines.core.vllm_adapter.expert_balance import eplb_layout, transfer_rounds
from engines.devices.expert_load import ExpertLoad, RecordedLoad, SampledLoad, read_routing
from engines.devices.expert_parallel import (
    ExpertMap,
    ExpertParallel,
    ExpertSteps,
    FixedPlacement,
    Placement,
)
from engines.devices.hardware import Gpu
from engines.models import Decoder
from engines.systems.omniinfer.placement import budget, sequential, static_placement
from engines.systems.omniinfer.placement_params import LoadParams, PlacementParams
from engines.systems.omniinfer.rebalancing import (
    DynamicPlacement,
    Planner,
    Rebalancing,
    few_moves,
    replanned,
)
from workloads.errors import UserError

HOST_DIES = 16
"""Of an Ascend 910C node: 8 chips of 2 dies."""


def group_of(decoder: Decoder, gpu: Gpu) -> ExpertParallel:
    """Constants of a group of such dies: tokens go out in the weights' precision and come back in the activations'."""
    gain = gpu.fp8_gain if decoder.layer_dtype_bytes == 1 else 1.0
    return ExpertParallel(
        expert_bytes=decoder.expert_params * decoder.layer_dtype_bytes,
        flops_per_token=2 * decoder.expert_params,
        dispatch_bytes=decoder.hidden * decoder.layer_dtype_bytes,
        combine_bytes=decoder.hidden * decoder.dtype_bytes,
        bandwidth=gpu.bandwidth,
        flops=gpu.flops * gain,
        link_bandwidth=gpu.nvlink_bandwidth,
        latency_s=gpu.allreduce_s,
    )


def load_of(params: LoadParams, layers: int, experts: int, per_token: int, seed: int) -> ExpertLoad:
    """Recorded where a trace is named, else sampled. UserError as `read_routing`."""
    if params.routing_trace is not None:
        return RecordedLoad(read_routing(params.routing_trace, layers, experts), per_token, seed)
    return SampledLoad(
        layers,
        experts,
        per_token,
        params.expert_skew,
        seed,
        params.expert_drift_s,
        params.expert_drift_share,
    )


def expert_steps(
    params: PlacementParams,
    group: ExpertParallel,
    layers: int,
    experts: int,
    per_token: int,
    dies: int,
    seed: int,
    clock: Callable[[], float],
    per_host: int = HOST_DIES,
) -> ExpertSteps:
    """What a lock-step group of `dies` asks for the time of its `layers` MoE layers.

    UserError where the experts cannot be divided evenly, and as `load_of`.
    """
    if experts % dies:
        raise UserError(
            f"{experts} experts do not stand evenly on {dies} dies; choose a number of dies that divides it."
        )
    load = load_of(params, layers, experts, per_token, seed)
    placement = placement_of(params, load, group, dies, min(per_host, dies))
    return ExpertSteps(group, load, placement, per_token, clock, params.load_every)


def placement_of(
    params: PlacementParams, load: ExpertLoad, group: ExpertParallel, dies: int, per_host: int
) -> Placement:
    """As the parameters say, from the load's history. UserError for slots that cannot be given."""
    layers, experts = load.shape
    if params.placement == "sequential":
        return FixedPlacement(ExpertMap(np.tile(sequential(experts, dies), (layers, 1, 1)), experts))
    units = layers if params.redundant_slots is None else params.redundant_slots
    most = -(-units // layers)
    if dies == 1 or most > experts - experts // dies:
        raise UserError(
            f"redundant_slots {units} leaves no {experts} different experts to fill {dies} dies with; take fewer slots "
            "or more dies."
        )
    history = load.history().astype(float)
    mode = params.placement_mode
    if params.placement == "eplb":
        if units % layers:
            raise UserError(
                f"redundant_slots {units}: placement eplb gives all {layers} layers as many; take a multiple."
            )
        layouts = eplb_layout(history, dies, most)
        planner = vllms(dies, most)
    else:
        extra = budget(history, dies, units, most, mode)
        layouts = static_placement(history, dies, extra, per_host, mode)
        planner = replanned(extra, per_host) if mode == "paper" else few_moves(extra)
    if not params.rebalance:
        return FixedPlacement(ExpertMap(layouts, experts))
    settings = Rebalancing(
        every_s=params.rebalance_every_s,
        window=params.rebalance_window,
        keep=params.rebalance_keep,
        predict=params.forecast or ("linear" if mode == "paper" else "ema"),
        trigger=params.rebalance_trigger,
        margin=params.rebalance_margin,
        link_share=1 - params.copy_share,
    )
    if params.placement == "eplb":  # vLLM moves whatever its policy says, by what it has counted last
        settings = replace(settings, predict="last", trigger=0.0, margin=-math.inf)
    return DynamicPlacement(
        layouts,
        experts,
        planner,
        transfer_rounds,
        group.expert_bytes,
        group.link_bandwidth,
        settings,
    )


def vllms(dies: int, extra: int) -> Planner:
    """vLLM's policy, in `extra` slots a die beyond E / D in each layer."""

    def plan(layers: np.ndarray, loads: np.ndarray, layouts: np.ndarray) -> np.ndarray:
        return eplb_layout(loads, dies, extra, layouts)

    return plan
