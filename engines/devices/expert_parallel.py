"""The time of a step's routed experts on a group of dies that wait for each other in every layer.

Each die serves its own requests and hosts some experts of every layer: tokens go to the dies of their experts, are
multiplied there, and come back. The layer is over when the last die is, so its time grows with the imbalance of tokens
between dies (OmniInfer specification 2.3). Attention, shared experts and dense layers are not included.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engines.devices.hardware import Gpu
from engines.models import Decoder

FEW_S, DOUBLED_S, FEW = 47.0e-6, 6.7e-6, 8
"""[derived] latency of an all-to-all one way among `FEW` dies, and the seconds that each doubling of their number adds.

CloudMatrix384 (arXiv 2506.12708) measured dispatch and combination of 128 tokens a die: 116 and 118 us among 8 dies,
152 and 149 us among 256. The bytes take 140 us of both sums, by the link's bandwidth in `hardware.yaml`.
"""


def all_to_all_s(dies: int) -> float:
    """Return the latency of an all-to-all one way, s."""
    return FEW_S + DOUBLED_S * max(0.0, math.log2(dies / FEW))


@dataclass(frozen=True)
class ExpertParallel:
    """A group's constants. Bytes, bytes/s, FLOP/s, s.

    `expert_bytes`, `flops_per_token`: of one expert. `dispatch_bytes`, `combine_bytes`: of a token's copy for one
    expert on its way there and back. `bandwidth`, `flops`: of one die, as its kernels reach them. `link_bandwidth`,
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
        """Return the seconds of each layer, (L,), from the tokens of each slot, (L, D, S).

        `sent`: expert tokens that leave the die with most of them; `link_share`: the available share of the links.
        """
        return self.seconds(np.count_nonzero(slots, axis=2), slots.sum(axis=2), sent, link_share)

    def seconds(self, active: np.ndarray, tokens: np.ndarray, sent: float = 0.0, link_share: float = 1.0) -> np.ndarray:
        """Return the seconds of each layer from the experts that each die reads, and its tokens: both (L, D)."""
        read_s = active * (self.expert_bytes / self.bandwidth)
        compute_s = np.maximum(read_s, tokens * (self.flops_per_token / self.flops)).max(axis=1)
        moved = np.maximum(tokens.max(axis=1), sent)
        link_s = moved * ((self.dispatch_bytes + self.combine_bytes) / (self.link_bandwidth * link_share))
        return 2 * self.latency_s + link_s + compute_s + self.launch_s


def group_of(decoder: Decoder, gpu: Gpu, dies: int) -> ExpertParallel:
    """Return the constants of a group of such dies: tokens go out in the weights' precision and come back in the
    activations'."""
    gain = gpu.fp8_gain if decoder.layer_dtype_bytes == 1 else 1.0
    return ExpertParallel(
        expert_bytes=decoder.expert_params * decoder.layer_dtype_bytes,
        flops_per_token=2 * decoder.expert_params,
        dispatch_bytes=decoder.hidden * decoder.layer_dtype_bytes,
        combine_bytes=decoder.hidden * decoder.dtype_bytes,
        bandwidth=gpu.bandwidth,
        flops=gpu.flops * gain,
        link_bandwidth=gpu.nvlink_bandwidth,
        latency_s=all_to_all_s(dies),
    )


class BalancedExperts:
    """Gives every die the same number of tokens: `engines.devices.lockstep.ExpertsTime`."""

    def __init__(self, decoder: Decoder, gpu: Gpu, dies: int) -> None:
        self._group = group_of(decoder, gpu, dies)
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
