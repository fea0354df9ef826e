"""vLLM's own expert-parallel load balancer: its policy, and how it orders transfers between dies."""

from __future__ import annotations

import numpy as np
import torch

from engines.core.vllm_adapter.releases import expert_balancer, migration_batches


def eplb_layout(loads: np.ndarray, dies: int, extra: int, before: np.ndarray | None = None) -> np.ndarray:
    """(L, D, S) ids of experts by vLLM's default policy, for loads (L, E) and `extra` slots a die beyond E / D.

    Over all dies alike, without groups of experts. Two replicas of an expert may stand on one die. `before`: the layout
    in whose slots experts that stay on their die remain.
    """
    layers, experts = loads.shape
    slots = experts + extra * dies
    old = None if before is None else torch.from_numpy(before.reshape(layers, slots).astype(np.int64))
    found = expert_balancer().rebalance_experts(
        torch.from_numpy(loads.astype(np.float64)), slots, 1, 1, dies, old
    )
    return found.numpy().reshape(layers, dies, -1)


def transfer_rounds(before: np.ndarray, after: np.ndarray) -> list[list[tuple[int, int, tuple[int, ...]]]]:
    """Rounds in which each die has one peer at most: (from, to, experts) of each pair; layouts are (D, S)."""
    batches = migration_batches()(before.shape[1], before.ravel(), after.ravel())
    return [[(flow.src_rank, flow.dst_rank, flow.expert_ids) for flow in batch] for batch in batches]
