"""Modelled dies that step together: attention of each over its own requests, experts over everybody's tokens.

A step is as long as its slowest die in every part (OmniInfer specification 2.3): attention and what every token passes,
by the roofline of one die, then the routed experts of all MoE layers, whose seconds `experts_s` tells.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engines.core.device import Row
from engines.core.request import StageRequest
from engines.devices.hardware import Gpu
from engines.devices.roofline import Work
from engines.models import Decoder

ExpertsTime = Callable[[Sequence[int]], float]
"""Tokens of each die -> seconds of the routed experts of all MoE layers of the step, dispatch and combination included.
Asked once a step."""

ALL_TO_ALL_S = 90e-6
"""[chosen] latency of an all-to-all one way, of the 60 to 120 us that are known of such groups."""


class LockstepDies:
    """See `engines.core.lockstep.GroupDevice`. Weights of routed experts are divided among the dies, all others are on
    each. `noise_cv`: as `VirtualStage`'s, of a step of all."""

    def __init__(
        self,
        decoder: Decoder,
        gpu: Gpu,
        experts_s: ExpertsTime,
        noise_cv: float,
        rng: np.random.Generator,
        reach: int | None = None,
        reach_share: float = 1.0,
    ) -> None:
        self.decoder = decoder
        self.reach, self.reach_share = reach, reach_share
        self.experts_s = experts_s
        self._loop = asyncio.get_running_loop()
        self._sigma = float(np.sqrt(np.log1p(noise_cv**2)))
        self._rng = rng
        each_bytes, gain = decoder.layer_dtype_bytes, gpu.fp8_gain if decoder.layer_dtype_bytes == 1 else 1.0

        def product(params: float) -> tuple[float, float]:
            """Seconds to read so many weights, and to multiply a token by them."""
            return params * each_bytes / gpu.bandwidth, 2 * params / (gpu.flops * gain)

        moe = decoder.layers - decoder.dense_layers
        self._products = [
            (decoder.layers, *product(decoder.attention_params)),
            (moe, *product(decoder.shared_params)),
            (decoder.dense_layers, *product(3 * decoder.hidden * decoder.ffn)),
        ]
        self._kv_s = decoder.kv_bytes_per_token / (gpu.bandwidth * gpu.kv_share)
        self._pair_s = decoder.layers * decoder.pair_flops / gpu.flops
        head = decoder.vocab * decoder.hidden
        self._head = head * decoder.dtype_bytes / gpu.bandwidth, 2 * head / gpu.flops

    async def execute(
        self, rows: Sequence[Sequence[Row]], requests: Sequence[Mapping[str, StageRequest]]
    ) -> list[list[list[int]]]:
        seconds = self.step_s(rows)
        if self._sigma:
            seconds *= round(float(self._rng.lognormal(-0.5 * self._sigma**2, self._sigma)), 6)
        await asyncio.sleep(seconds)
        vocab = self.decoder.vocab
        return [
            [
                [((request := own[row.request_id]).first_token_id + request.produced) % vocab]
                if row.samples
                else []
                for row in each
            ]
            for each, own in zip(rows, requests, strict=True)
        ]

    def step_s(self, rows: Sequence[Sequence[Row]]) -> float:
        """Seconds of a step in which each die computes its own rows."""
        works = [Work.of(each, self.reach, self.reach_share) for each in rows if each]
        decoder = self.decoder
        seconds = decoder.host_s + decoder.host_s_per_request * max(work.requests for work in works)
        seconds += max(self.attention_s(work) for work in works)
        most = max(work.tokens for work in works)
        for layers, read_s, token_s in self._products:
            seconds += layers * max(read_s, token_s * most)
        samples = max(work.samples for work in works)
        seconds += max(self._head[0], self._head[1] * samples) if samples else 0.0
        return seconds + self.experts_s([sum([row.tokens for row in each]) for each in rows])

    def attention_s(self, work: Work) -> float:
        """Seconds of one die's attention over its requests' KV, in all layers. What a decode multiplies more over
        compressed KV is in the share of the bandwidth that it reaches."""
        return max(self._kv_s * work.kv_tokens, self._pair_s * work.attention_pairs)


class BalancedExperts:
    """As if every die got as many tokens as any other: `ExpertsTime`."""

    def __init__(self, decoder: Decoder, gpu: Gpu, dies: int) -> None:
        self._layers = decoder.layers - decoder.dense_layers
        self._per_die = decoder.experts / dies
        self._per_token = decoder.experts_per_token
        self._miss = 1 - decoder.experts_per_token / decoder.experts
        self._read_s = decoder.expert_params * decoder.layer_dtype_bytes / gpu.bandwidth
        gain = gpu.fp8_gain if decoder.layer_dtype_bytes == 1 else 1.0
        self._token_s = 2 * decoder.expert_params / (gpu.flops * gain)
        # A token's copies leave in the weights' numbers and come back in the activations'.
        copy_bytes = decoder.hidden * (decoder.layer_dtype_bytes + decoder.dtype_bytes)
        self._copy_s = copy_bytes / gpu.nvlink_bandwidth

    def __call__(self, tokens_of_each_die: Sequence[int]) -> float:
        tokens = sum(tokens_of_each_die)
        read_s = self._per_die * (1 - self._miss**tokens) * self._read_s
        copies = tokens * self._per_token / len(tokens_of_each_die)
        link_s = max(copies, max(tokens_of_each_die) * self._per_token) * self._copy_s
        return self._layers * (max(read_s, copies * self._token_s) + link_s + 2 * ALL_TO_ALL_S)
