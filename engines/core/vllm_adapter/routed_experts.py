"""Counts the experts that the routers of an executed model choose, step by step."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from vllm.model_executor.layers.fused_moe.router.base_router import BaseRouter

from engines.core.vllm_adapter.execution import ModelExecutor


class RoutedExperts:
    """Counts tokens of each expert from now on. ValueError for a model without routed experts."""

    def __init__(self, executor: ModelExecutor, experts: int) -> None:
        model: torch.nn.Module = executor.runner.model
        attributes = (getattr(module, "router", None) for module in model.modules())
        routers = [router for router in attributes if isinstance(router, BaseRouter)]
        if not routers:
            raise ValueError("the model has no routed experts")
        self._layers, self._experts = len(routers), experts
        self._steps: list[list[np.ndarray]] = []
        for layer, router in enumerate(routers):
            router.set_capture_fn(partial(self._note, layer))

    def _note(self, layer: int, chosen: torch.Tensor) -> None:
        """Note `chosen`: (tokens, experts per token) of one layer in one step; layers come in order."""
        if layer == 0:
            self._steps.append([])
        counts = np.bincount(chosen.flatten().cpu().numpy(), minlength=self._experts)
        self._steps[-1].append(counts)

    def counts(self) -> np.ndarray:
        """Return the tokens of each expert in the steps so far, (S, L, E)."""
        return np.array(self._steps, dtype=np.int64).reshape(-1, self._layers, self._experts)
