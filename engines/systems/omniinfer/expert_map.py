"""Which experts stand on which die of a group, and what each die gets of their tokens."""

import numpy as np


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
