"""Modelled dies that step together: attention of each over its own requests, experts over everybody's tokens.

A step is as long as its slowest die in every part (OmniInfer specification 2.3): attention and the parts that every
token passes, by the roofline of one die, then the routed experts of all MoE layers, by `experts_s`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from engines.core.device import Row, SummedRows
from engines.core.request import StageRequest
from engines.devices.hardware import Gpu
from engines.devices.noise import NO_NOISE, Noise
from engines.devices.roofline import Work
from engines.models import Decoder

ExpertsTime = Callable[[Sequence[int]], float]
"""Tokens of each die -> seconds of the routed experts of all MoE layers of the step, including dispatch and
combination. Called once a step."""


class LockstepDies:
    """Implements `engines.core.lockstep.GroupDevice`. Weights of routed experts are divided among the dies, all others
    are on each. `noise`: as `VirtualStage`'s, of a step of all."""

    def __init__(
        self,
        decoder: Decoder,
        gpu: Gpu,
        experts_s: ExpertsTime,
        noise: Noise = NO_NOISE,
        reach: int | None = None,
        reach_share: float = 1.0,
    ) -> None:
        self.decoder = decoder
        self.reach, self.reach_share = reach, reach_share
        self.experts_s = experts_s
        self._loop = asyncio.get_running_loop()
        self._noise = noise
        each_bytes, gain = decoder.layer_dtype_bytes, gpu.fp8_gain if decoder.layer_dtype_bytes == 1 else 1.0

        def product(params: float) -> tuple[float, float]:
            """Return the seconds to read `params` weights, and to multiply a token by them."""
            return params * each_bytes / gpu.bandwidth, 2 * params / (gpu.flops * gain)

        moe = decoder.layers - decoder.dense_layers
        self._products = [
            (decoder.layers, *product(decoder.attention_params)),
            (moe, *product(decoder.shared_params)),
            (decoder.dense_layers, *product(3 * decoder.hidden * decoder.ffn)),
        ]
        self._kv_s = max(
            decoder.kv_bytes_per_token / gpu.bandwidth, decoder.layers * decoder.latent_pair_flops / gpu.latent_flops
        )
        self._pair_s = decoder.layers * decoder.pair_flops / gpu.flops
        head = decoder.vocab * decoder.hidden
        self._head = head * decoder.dtype_bytes / gpu.bandwidth, 2 * head / gpu.flops

    async def execute(
        self,
        rows: Sequence[Sequence[Row]],
        summed: Sequence[SummedRows],
        requests: Sequence[Mapping[str, StageRequest]],
    ) -> list[list[list[int]]]:
        seconds = self.step_s(rows, summed) * self._noise.next()
        await asyncio.sleep(seconds + self._noise.next_stall_s())
        vocab = self.decoder.vocab
        return [
            [[die_requests[row.request_id].fake_token_id(vocab)] if row.samples else [] for row in die_rows]
            for die_rows, die_requests in zip(rows, requests, strict=True)
        ]

    def step_s(self, rows: Sequence[Sequence[Row]], summed: Sequence[SummedRows]) -> float:
        """Return the seconds of a step in which each die computes its own rows."""
        dies = [
            Work.of(die_rows, self.reach, self.reach_share, die_sums)
            for die_rows, die_sums in zip(rows, summed, strict=True)
        ]
        works = [work for work in dies if work.requests]
        decoder = self.decoder
        seconds = decoder.host_s + decoder.host_s_per_request * max(work.requests for work in works)
        seconds += max(self.attention_s(work) for work in works)
        most = max(work.tokens for work in works)
        for layers, read_s, token_s in self._products:
            seconds += layers * max(read_s, token_s * most)
        samples = max(work.samples for work in works)
        seconds += max(self._head[0], self._head[1] * samples) if samples else 0.0
        return seconds + self.experts_s([work.tokens for work in dies])

    def attention_s(self, work: Work) -> float:
        """Return the seconds of one die's attention over its requests' KV, in all layers: reads, or operations over
        compressed KV if these take longer, as on an Ascend 910C."""
        return max(self._kv_s * work.kv_tokens, self._pair_s * work.attention_pairs)
