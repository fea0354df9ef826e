"""Brings a new placement into force layer by layer, in parallel with the steps (section 4.1, "Pipelined Expert Weight
and Placement Updates").

A layer's new experts are copied into spare buffers of their dies while its old layout serves; when all dies have theirs
the layer is switched at once, with the next step. So in every step each layer has one layout, and a complete one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

Round = Sequence[tuple[int, int, tuple[int, ...]]]
"""(from, to, experts) of pairs of dies that copy at once."""


class Phase(Enum):
    """The state of the migration of one layer's experts."""

    OLD = "old"
    COPYING = "copying"
    READY = "ready"
    SWITCHED = "switched"


_NEXT = {Phase.OLD: Phase.COPYING, Phase.COPYING: Phase.READY, Phase.READY: Phase.SWITCHED}


@dataclass
class LayerMove:
    """One layer on its way to `layout`, (D, S). `copy_s`: its rounds one after the other."""

    layer: int
    layout: np.ndarray
    copy_s: float
    moved: int
    phase: Phase = field(default=Phase.OLD, init=False)

    def enter(self, phase: Phase) -> None:
        """Enter the next phase. ValueError for any other."""
        if _NEXT.get(self.phase) is not phase:
            raise ValueError(f"layer {self.layer} cannot go from {self.phase.value} to {phase.value}")
        self.phase = phase


def round_s(rounds: Iterable[Round], expert_bytes: float, link_bandwidth: float) -> float:
    """Return the seconds of the rounds one after the other; in each the pair that copies most is the last."""
    return sum(
        max(len(experts) for _, _, experts in each) * expert_bytes / link_bandwidth for each in rounds if each
    )


def moved_experts(rounds: Iterable[Round]) -> int:
    """Return the number of experts copied from die to die."""
    return sum(len(experts) for each in rounds for _, _, experts in each)


class Migration:
    """The moves of one decision, whose copies follow each other from `begin_s` on."""

    def __init__(self, moves: Sequence[LayerMove], begin_s: float) -> None:
        self.moves = list(moves)
        self._waiting = list(moves)
        self._free_s = begin_s

    @property
    def done(self) -> bool:
        return all(move.phase is Phase.SWITCHED for move in self.moves)

    @property
    def copying(self) -> bool:
        """Return True while it uses links."""
        return any(move.phase is Phase.COPYING for move in self.moves)

    def switched(self, now_s: float) -> list[LayerMove]:
        """Let time pass up to a step that begins now; returns the layers that are ready and take their new layout with
        it."""
        ready = []
        while self._waiting:
            move = self._waiting[0]
            if move.phase is Phase.OLD:
                if now_s < self._free_s:
                    break
                move.enter(Phase.COPYING)
            if now_s < self._free_s + move.copy_s:
                break
            move.enter(Phase.READY)
            self._free_s += move.copy_s
            ready.append(self._waiting.pop(0))
        for move in ready:
            move.enter(Phase.SWITCHED)
        return ready
