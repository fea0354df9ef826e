"""vLLM's own expert-parallel load balancer: its policy, and its order of transfers between dies."""

from __future__ import annotations

import numpy as np
import torch

from engines.core.vllm_adapter.releases import expert_balancer, migration_batches


def eplb_layout(loads: np.ndarray, dies: int, extra: int, before: np.ndarray | None = None) -> np.ndarray:
    """Return the ids of experts, (L, D, S), by vLLM's default policy, for loads (L, E) and `extra` slots a die beyond E
    / D.

    Over all dies alike, without groups of experts. Two replicas of an expert may be on one die. `before`: the last
    layout; experts that stay on their die keep its slots.
    """
    layers, experts = loads.shape
    slots = experts + extra * dies
    old = None if before is None else torch.from_numpy(before.reshape(layers, slots).astype(np.int64))
    layout = expert_balancer().rebalance_experts(torch.from_numpy(loads.astype(np.float64)), slots, 1, 1, dies, old)
    return layout.numpy().reshape(layers, dies, -1)


def transfer_rounds(before: np.ndarray, after: np.ndarray) -> list[list[tuple[int, int, tuple[int, ...]]]]:
    """Return rounds in which each die has one peer at most: (from, to, experts) of each pair; layouts are (D, S)."""
    batches = migration_batches()(before.shape[1], before.ravel(), after.ravel())
    return [[(flow.src_rank, flow.dst_rank, flow.expert_ids) for flow in batch] for batch in batches]
