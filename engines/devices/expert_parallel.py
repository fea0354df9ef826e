"""How long the routed experts of a step take on a group of dies that wait for each other in every layer.

Each die serves its own requests and hosts some experts of every layer: tokens go to the dies of their experts, are
multiplied there, and come back. The layer is over when the last die is, so its time grows with the imbalance of tokens
between dies (OmniInfer specification 2.3). Attention, shared experts and dense layers are not in here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rehearsal.engines.devices.expert_load import ExpertLoad
from rehearsal.engines.devices.hardware import Gpu
from rehearsal.engines.models import Decoder

ALL_TO_ALL_S = 90e-6
"""[chosen] latency of an all-to-all one way, of the 60 to 120 us that are known of such groups."""


class ExpertMap:
    """Which experts stand on which die, slot by slot: (L, D, S) ids of experts, -1 for an empty slot.

    An expert in several slots gets its tokens in equal parts. ValueError where one has no slot at all.
    """

    def __init__(self, slots: np.ndarray, experts: int) -> None:
        self.slots, self.experts = slots, experts
        layers = len(slots)
        self._at = np.where(slots >= 0, slots, experts) + (np.arange(layers) * (experts + 1))[:, None, None]
        counts = np.bincount(self._at.ravel(), minlength=layers * (experts + 1))
        self.replicas = counts.reshape(layers, experts + 1)[:, :experts]
        if not self.replicas.all():
            layer, expert = np.argwhere(self.replicas == 0)[0]
            raise ValueError(f"expert {expert} of layer {layer} stands nowhere")
        self._parts = np.zeros((layers, experts + 1))

    def per_slot(self, load: np.ndarray) -> np.ndarray:
        """(L, D, S) tokens of each slot from those of each expert, (L, E)."""
        np.divide(load, self.replicas, out=self._parts[:, : self.experts])
        return self._parts.ravel()[self._at]

    def per_die(self, load: np.ndarray) -> np.ndarray:
        """(L, D) tokens of each die."""
        return self.per_slot(load).sum(axis=2)


@dataclass(frozen=True)
class ExpertParallel:
    """A group's constants. Bytes, bytes/s, FLOP/s, s.

    `expert_bytes`, `flops_per_token`: of one expert. `dispatch_bytes`, `combine_bytes`: what a token's copy for one
    expert is on its way there and back. `bandwidth`, `flops`: of one die, as its kernels reach them. `link_bandwidth`,
    `latency_s`: of an all-to-all, one way. `launch_s`: of a layer's kernels.
    """

    expert_bytes: float
    flops_per_token: float
    dispatch_bytes: float
    combine_bytes: float
    bandwidth: float
    flops: float
    link_bandwidth: float
    latency_s: float
    launch_s: float = 0.0

    def layers_s(self, slots: np.ndarray, sent: float = 0.0, link_share: float = 1.0) -> np.ndarray:
        """Seconds of each layer, (L,), from the tokens of each slot, (L, D, S).

        `sent`: expert tokens that leave the die with most of them; `link_share`: what is left of the links.
        """
        return self.seconds(np.count_nonzero(slots, axis=2), slots.sum(axis=2), sent, link_share)

    def seconds(
        self, active: np.ndarray, tokens: np.ndarray, sent: float = 0.0, link_share: float = 1.0
    ) -> np.ndarray:
        """The same from the experts that each die reads, and its tokens: both (L, D)."""
        read_s = active * (self.expert_bytes / self.bandwidth)
        compute_s = np.maximum(read_s, tokens * (self.flops_per_token / self.flops)).max(axis=1)
        moved = np.maximum(tokens.max(axis=1), sent)
        link_s = moved * ((self.dispatch_bytes + self.combine_bytes) / (self.link_bandwidth * link_share))
        return 2 * self.latency_s + link_s + compute_s + self.launch_s


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
        latency_s=ALL_TO_ALL_S,
    )


class BalancedExperts:
    """As if every die got as many tokens as any other: `engines.devices.lockstep.ExpertsTime`."""

    def __init__(self, decoder: Decoder, gpu: Gpu, dies: int) -> None:
        self._group = group_of(decoder, gpu)
        self._layers = decoder.layers - decoder.dense_layers
        self._per_die = decoder.experts / dies
        self._per_token = decoder.experts_per_token
        self._miss = 1 - decoder.experts_per_token / decoder.experts

    def __call__(self, tokens_of_each_die: Sequence[int]) -> float:
        tokens = sum(tokens_of_each_die)
        active = self._per_die * (1 - self._miss**tokens)
        copies = tokens * self._per_token / len(tokens_of_each_die)
        sent = max(tokens_of_each_die) * self._per_token
        layer_s = self._group.seconds(np.array([[active]]), np.array([[copies]]), sent)
        return self._layers * float(layer_s[0])


class Placement(Protocol):
    """Where experts stand as time goes by, told of what they get."""

    def at(self, now_s: float) -> ExpertMap:
        """The map of a step that begins now."""
        ...

    def observe(self, now_s: float, load: np.ndarray) -> None:
        """(L, E) tokens of that step."""
        ...

    @property
    def link_share(self) -> float:
        """What moving weights leaves of the links in that step."""
        ...


class FixedPlacement:
    """Experts stand where they stood at first."""

    link_share = 1.0

    def __init__(self, map: ExpertMap) -> None:
        self.map = map

    def at(self, now_s: float) -> ExpertMap:
        return self.map

    def observe(self, now_s: float, load: np.ndarray) -> None:
        pass


class ExpertSteps:
    """The routed experts of a lock-step group, asked once for each of its steps.

    `clock`: seconds, as the event loop's. `every`: for so many steps one drawn load holds, scaled to their tokens: a
    draw costs more than the rest. `imbalance`: of the last step, mean over layers of the fullest die's tokens over the
    mean die's.
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
        """Seconds of all MoE layers of a step with these tokens on the dies, (D,); 0.0 for none at all."""
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
