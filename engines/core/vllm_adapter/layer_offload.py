"""Layers of a real model whose weights come and go: K slots hold them, all of them wait in a buffer of their own.

Which layer goes where, and when, is `engines.devices.layer_slots`. A copying thread loads the slots beside the pass; a
layer waits for its own weights and has none when it has run. On the CPU, where the slots are memory like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from vllm import _custom_ops as ops

from rehearsal.engines.devices.layer_slots import LayerSlots

Weights = dict[str, torch.Tensor]


@contextmanager
def plain_products() -> Iterator[None]:
    """Models built meanwhile keep their weights as loaded: of those of products on the CPU vLLM otherwise has nothing
    left but a packed copy."""
    packs, ops._supports_onednn = ops._supports_onednn, False
    try:
        yield
    finally:
        ops._supports_onednn = packs


class OffloadedLayers:
    """Takes the weights of alike `layers`, run in order, into a buffer, and gives them back on `close`.

    ValueError for layers elsewhere than on the CPU or with packed weights, and where `LayerSlots` has one.
    """

    def __init__(self, layers: torch.nn.ModuleList, slots: int) -> None:
        self._layers = [dict(layer.named_parameters()) for layer in layers]
        if any(weight.device.type != "cpu" for weight in self._layers[0].values()):
            raise ValueError("slots with real copies are for layers on the CPU")
        if not all(weight.numel() for own in self._layers for weight in own.values()):
            raise ValueError("layers without weights of their own; build the model under `plain_products`")
        self.where = LayerSlots(len(layers), slots, 1.0, lambda size, not_before: not_before)
        self.held: list[Weights] = [_copies(own) for own in self._layers]
        self.slots: list[Weights] = [_copies(self._layers[0]) for _ in range(slots)]
        self.loaded: list[int] = []
        """Layers in the order in which they were copied."""
        self._copier = ThreadPoolExecutor(1)
        self._loads: dict[int, Future[None]] = {}
        self._hooks: list[Any] = []
        for number, layer in enumerate(layers):
            self._take(number)
            self._hooks += [
                layer.register_forward_pre_hook(lambda *_, number=number: self._before(number)),
                layer.register_forward_hook(lambda *_, number=number: self._behind(number)),
            ]
        for number in range(slots):
            self._load(number)

    def close(self) -> None:
        """The layers have their weights again."""
        self._copier.shutdown()
        for hook in self._hooks:
            hook.remove()
        for own, held in zip(self._layers, self.held, strict=True):
            for name, weight in own.items():
                weight.data = held[name]

    def _before(self, number: int) -> None:
        self._loads.pop(number).result()
        slot = self.slots[self.where.slot_of[number]]
        for name, weight in self._layers[number].items():
            weight.data = slot[name]

    def _behind(self, number: int) -> None:
        self._take(number)
        self.where.executed(number, 0.0)
        self._load((number + self.where.slots) % self.where.layers)

    def _load(self, number: int) -> None:
        slot = self.slots[self.where.slot_of[number]]

        def copy() -> None:
            for name, weight in self.held[number].items():
                slot[name].copy_(weight)
            self.loaded.append(number)

        self._loads[number] = self._copier.submit(copy)

    def _take(self, number: int) -> None:
        for weight in self._layers[number].values():
            weight.data = weight.data.new_empty(0)


def _copies(weights: dict[str, torch.nn.Parameter]) -> Weights:
    return {name: weight.detach().clone() for name, weight in weights.items()}
