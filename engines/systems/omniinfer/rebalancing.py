"""OmniPlacement's dynamic scheduler (section 4.1, Algorithm 2): layouts that follow the load while steps go on."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engines.systems.omniinfer.edits import edited
from engines.systems.omniinfer.migration import LayerMove, Migration, Round, moved_experts, round_s
from engines.systems.omniinfer.placement import ExpertMap, best_layout, imbalance, over_hosts, stacked

Predict = Literal["last", "ema", "linear"]
Planner = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(layers (N,), loads (N, E), layouts (N, D, S)) -> new layouts with as many slots."""
Transfers = Callable[[np.ndarray, np.ndarray], Sequence[Round]]
"""(layout before, layout after) -> rounds of copies; (D, S) each."""

LEAST_FOR_TREND = 4
"""[chosen] below this number of intervals no line is fitted."""


@dataclass(frozen=True)
class Rebalancing:
    """The trigger and the forecast of rebalancing. The paper names the trigger and the margin and no values; most are
    the code's.

    `every_s`: between two readings of the counters. `window`: readings that are remembered. `keep`: of the average when
    a new reading comes. `trigger`: imbalance from which a layer is looked at. `margin`: share of its imbalance by which
    a new layout must be better. `link_share`: the links' share that copies leave to the steps.
    """

    every_s: float = 60.0
    window: int = 20
    keep: float = 0.6
    predict: Predict = "linear"
    trigger: float = 1.1
    margin: float = 0.05
    link_share: float = 0.95


def forecast(readings: list[np.ndarray], average: np.ndarray, predict: Predict) -> np.ndarray:
    """Return the (L, E) load of the next interval from those before, oldest first.

    `linear`: for each expert a least-squares line, one interval ahead and not below 0; `ema`: the average, also used
    while there are few readings.
    """
    if predict == "last":
        return readings[-1]
    if predict == "ema" or len(readings) < LEAST_FOR_TREND:
        return average
    known = np.stack(readings)
    mean = known.mean(axis=0)
    times = np.arange(len(known)) - (len(known) - 1) / 2
    slope = np.tensordot(times, known - mean, axes=1) / (times**2).sum()
    return np.maximum(0.0, mean + slope * (times[-1] + 1))


class DynamicPlacement:
    """Counts the tokens of experts, and every `every_s` moves the layers that are out of balance.

    `counters`: decisions that moved a layer, layers and experts moved. `copy_s`: seconds of copying.
    """

    def __init__(
        self,
        layouts: np.ndarray,
        experts: int,
        planner: Planner,
        transfers: Transfers,
        expert_bytes: float,
        link_bandwidth: float,
        settings: Rebalancing = Rebalancing(),
    ) -> None:
        self.map = ExpertMap(layouts, experts)
        self.settings = settings
        self.counters = {"rebalances": 0, "layers_moved": 0, "experts_moved": 0}
        self.copy_s = 0.0
        self.migration: Migration | None = None
        self._planner, self._transfers = planner, transfers
        self._expert_bytes, self._link_bandwidth = expert_bytes, link_bandwidth
        self._readings: deque[np.ndarray] = deque(maxlen=settings.window)
        self._average: np.ndarray | None = None
        self._counted = np.zeros((len(layouts), experts))
        self._next_s = settings.every_s

    @property
    def link_share(self) -> float:
        return self.settings.link_share if self.migration is not None and self.migration.copying else 1.0

    def at(self, now_s: float) -> ExpertMap:
        """Return the map of a step that begins now; a layer never has two layouts."""
        if now_s >= self._next_s:
            self._next_s += self.settings.every_s * (1 + (now_s - self._next_s) // self.settings.every_s)
            self._read(now_s)
        if self.migration is not None:
            self._advance(self.migration, now_s)
        return self.map

    def observe(self, now_s: float, load: np.ndarray) -> None:
        self._counted += load

    def _read(self, now_s: float) -> None:
        reading, keep = self._counted, self.settings.keep
        if not reading.any():
            return
        self._counted = np.zeros_like(reading)
        self._readings.append(reading)
        self._average = reading if self._average is None else keep * self._average + (1 - keep) * reading
        if self.migration is not None:
            return  # the last decision is still being carried out
        layouts = self.map.slots
        known = zip(self._average, layouts, strict=True)
        unbalanced = [imbalance(*each) > self.settings.trigger for each in known]
        triggered = np.flatnonzero(unbalanced)
        if not len(triggered):
            return
        expected = forecast(list(self._readings), self._average, self.settings.predict)
        planned = self._planner(triggered, expected[triggered], layouts[triggered])
        moves = []
        for layer, layout in zip(triggered, planned, strict=True):
            now, then = imbalance(expected[layer], layouts[layer]), imbalance(expected[layer], layout)
            if now - then > self.settings.margin * now:
                moves.append(self._move(int(layer), layouts[layer], layout))
        if moves:
            self.migration = Migration(moves, now_s)
            self.counters["rebalances"] += 1

    def _move(self, layer: int, before: np.ndarray, layout: np.ndarray) -> LayerMove:
        rounds = self._transfers(before, layout)
        copy_s = round_s(rounds, self._expert_bytes, self._link_bandwidth * (1 - self.settings.link_share))
        return LayerMove(layer, layout, copy_s, moved_experts(rounds))

    def _advance(self, migration: Migration, now_s: float) -> None:
        switched = migration.switched(now_s)
        if not switched:
            return
        slots = self.map.slots.copy()
        for move in switched:
            slots[move.layer] = move.layout
            self.counters["layers_moved"] += 1
            self.counters["experts_moved"] += move.moved
            self.copy_s += move.copy_s
        self.map = ExpertMap(slots, self.map.experts)
        if migration.done:
            self.migration = None


def replanned(extra: np.ndarray, per_host: int) -> Planner:
    """Run Algorithm 1 anew for each layer. `extra`: (L,) slots that a die has beyond E / D."""

    def plan(layers: np.ndarray, loads: np.ndarray, layouts: np.ndarray) -> np.ndarray:
        dies, size = layouts.shape[1:]
        found = [
            over_hosts(best_layout(load, dies, int(own)), per_host)
            for load, own in zip(loads, extra[layers], strict=True)
        ]
        return stacked(found, size)

    return plan


def few_moves(extra: np.ndarray) -> Planner:
    """Apply the open-source code's edits to each layer."""

    def plan(layers: np.ndarray, loads: np.ndarray, layouts: np.ndarray) -> np.ndarray:
        dies, size = layouts.shape[1:]
        slots = loads.shape[1] // dies + extra[layers]
        found = [
            edited(load, layout[:, :own]) for load, layout, own in zip(loads, layouts, slots, strict=True)
        ]
        return stacked(found, size)

    return plan
