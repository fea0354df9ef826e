"""How long the routed experts of a lock-step group take, step by step, as they stand and as tokens choose them."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from engines.devices.expert_parallel import ExpertParallel
from engines.systems.omniinfer.expert_load import ExpertLoad
from engines.systems.omniinfer.expert_map import ExpertMap


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
