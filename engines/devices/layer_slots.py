"""Layers whose weights come and go: K slots on the GPU for N layers, the others wait in pinned host memory (Nova,
section III-E).

When a layer has run, the copy engine loads the layer K further on, counted around the end, into its slot; a layer waits
until its own weights are there. So the first K are loaded again when the next pass begins. A layer's slot changes from
pass to pass if K does not divide N, so it is looked up by the layer.
"""

from collections.abc import Callable

from engines.core.stage import Stage
from engines.devices.extensions import VisionSlots

EVENT_S = 27e-6
"""[calibrated] the 8.6 ms that a pass takes longer at K = 5 (Nova, Table VI), over 63 layers that look at five events
each. A bare call takes some 5 us; the paper's is made from Python."""


def slots_of(stage: Stage) -> int | None:
    """Return the layers of the stage's vision encoder that are on the GPU at once; None: all."""
    slots = stage.extension(VisionSlots)
    return None if slots is None else slots.layers


def sync_s(slots: int) -> float:
    """Return the seconds for which each layer synchronises computing with copying: it checks a CUDA event for every
    slot before it runs. The paper (section V-D) has the cost grow with K as there is an event for each slot; it does
    not state by which law, so the proportion is ours."""
    return slots * EVENT_S


class LayerSlots:
    """The slots of one encoder. `copy(bytes, not_before)` queues a transfer and returns its arrival (s), as
    `CopyEngine.copy`.

    ValueError for no slots, or as many as layers: then nothing has to come and go.
    """

    def __init__(self, layers: int, slots: int, layer_bytes: float, copy: Callable[[float, float], float]) -> None:
        if not 1 <= slots < layers:
            raise ValueError(f"{slots} slots for {layers} layers; give from 1 to {layers - 1}")
        self.layers, self.slots = layers, slots
        self.slot_of = {layer: layer for layer in range(slots)}
        """The slots of layers that are on the GPU, or on their way to it."""
        self.loads = 0
        self._ready_s = dict.fromkeys(range(slots), 0.0)
        self._layer_bytes = layer_bytes
        self._copy = copy

    def ready_s(self, layer: int) -> float:
        """Return the time when the layer's weights are there, s. KeyError for a layer whose turn it is not."""
        return self._ready_s[layer]

    def executed(self, layer: int, now: float) -> None:
        """Note that the layer has run: equation (7), next(i) = (i + K) mod N."""
        following = (layer + self.slots) % self.layers
        self.slot_of[following] = self.slot_of.pop(layer)
        del self._ready_s[layer]
        self._ready_s[following] = self._copy(self._layer_bytes, now)
        self.loads += 1


def pass_s(layers: int, slots: int, layer_s: float, load_s: float) -> float:
    """Return the seconds of one pass that begins with its first layers loaded: exec(i) begins at max(end of exec(i -
    1), end of load(i)), load(i) at max(end of load(i - 1), end of exec(i - K))."""
    free_s = 0.0

    def copy(size: float, not_before: float) -> float:
        nonlocal free_s
        free_s = max(free_s, not_before) + load_s
        return free_s

    weights, now = LayerSlots(layers, slots, 1.0, copy), 0.0
    for layer in range(layers):
        now = max(now, weights.ready_s(layer)) + layer_s
        weights.executed(layer, now)
    return now
