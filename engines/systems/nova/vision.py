"""Separate passes of the vision encoder, layer by layer if their weights come and go (Nova, section III-E)."""

import asyncio

from engines.core.stage import Stage
from engines.devices.layer_slots import LayerSlots, slots_of, sync_s
from engines.devices.sharing import Part, SharedCompute, SharedStep
from engines.devices.stage import VirtualStage


class VisionPasses:
    """The vision passes of one `worker`. Each pass takes the share of the SMs that holds when the pass, or a layer of
    it, begins."""

    def __init__(self, worker: VirtualStage, stage: Stage) -> None:
        encoder, slots = stage.decoder.vision_encoder, slots_of(stage)
        self.worker = worker
        self._weights: LayerSlots | None = None
        if encoder is not None and slots is not None:
            self._weights = LayerSlots(encoder.layers, slots, encoder.layer_bytes, worker.gpu.to_device.copy)

    async def encode(self, tokens: int) -> None:
        """Take one image of `tokens` tokens through the encoder."""
        worker, weights, loop = self.worker, self._weights, asyncio.get_running_loop()
        compute = worker.gpu.compute
        assert isinstance(compute, SharedCompute)
        step = worker.roofline.image_step(tokens, worker.next_noise())
        stall_s = worker.next_stall_s()
        if stall_s:
            await asyncio.sleep(stall_s)
        if weights is None:
            await compute.submit(step, worker.sms)
            return
        events = Part(fixed_s=sync_s(weights.slots))
        for layer in range(step.layers):
            wait_s = weights.ready_s(layer) - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            last = layer == step.layers - 1
            await compute.submit(SharedStep((events,), step.layer, 1, step.after if last else ()), worker.sms)
            weights.executed(layer, loop.time())


def least_bandwidth(weight_bytes: float, pass_seconds: float, layers: int, slots: int) -> float:
    """Return equation (8): bytes/s above which no layer of a pass ever waits, the most of (M / T) (i - K) / (i - 2)
    over K < i <= N.

    Infinite for one slot, whose layers always wait. M are the bytes of all layers, T the seconds of a pass.
    """
    if slots == 1:
        return float("inf")
    return max(weight_bytes / pass_seconds * (i - slots) / (i - 2) for i in range(slots + 1, layers + 1) if i > 2)
