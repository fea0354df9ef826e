"""OmniPlacement's dynamic scheduler (section 4.1, Algorithm 2): layouts that follow the load while steps go on.

A new placement comes into force layer by layer, in parallel with the steps ("Pipelined Expert Weight and Placement
Updates"). A layer's new experts are copied into spare buffers of their dies while its old layout serves; when all dies
have theirs the layer is switched at once, with the next step. So in every step each layer has one complete layout.

Section 4.1 adopts a layout that is better by a margin and counts no cost of its copies. With `Rebalancing.weigh` a
layout must also save more step time until the next reading than its copies, which share the links, take from the steps.

The open-source OmniPlacement improves a layer in service by a few moves instead of a new layout. Replicas that no
longer help go first. Then, in turn, the fullest die gives a part of its load away (it swaps an expert for another
die's, or an expert of it gets a replica in an empty slot), and the emptiest die swaps one in; each time the single best
edit is made. Imbalance is the fullest die's load over the emptiest's.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import numpy as np

from engines.systems.omniinfer.placement import (
    ExpertMap,
    best_layout,
    die_loads,
    imbalance,
    over_hosts,
    ratio_of,
    stacked,
)

ENOUGH = 1.1
ROUNDS = 32
ABNORMAL = 300.0
"""The code's own limits: the ratio at which edits end, the most edits, and the ratio beyond which a sample is
discarded."""

Edit = tuple[float, list[tuple[int, int, int]]]
"""The imbalance after it, and the slots that change: (die, slot, expert)."""


def edited(load: np.ndarray, layout: np.ndarray) -> np.ndarray:
    """Return the layer's layout (D, S) after its edits; the same one if the sample is abnormal or empty."""
    now = imbalance(load, layout, "max_min")
    if now > ABNORMAL or now == 1.0:
        return layout
    layout = _without_idle_replicas(load, layout.copy())
    now = imbalance(load, layout, "max_min")
    failures, heaviest = 0, True
    for _ in range(ROUNDS):
        if now < ENOUGH or failures == 2:
            break
        best, changes = _best(load, layout, heaviest)
        if best < now - 1e-9:
            now, failures = best, 0
            for die, slot, expert in changes:
                layout[die, slot] = expert
        else:
            failures += 1
        heaviest = not heaviest
    return layout


def _without_idle_replicas(load: np.ndarray, layout: np.ndarray) -> np.ndarray:
    loads, now = die_loads(load, layout), imbalance(load, layout, "max_min")
    for die in np.argsort(-loads, kind="stable"):
        if loads[die] <= loads.mean():
            break
        for slot, expert in enumerate(layout[die]):
            if expert < 0 or np.count_nonzero(layout == expert) == 1:
                continue
            layout[die, slot] = -1
            if (without := imbalance(load, layout, "max_min")) < now:
                now = without
            else:
                layout[die, slot] = expert
    return layout


def _best(load: np.ndarray, layout: np.ndarray, heaviest: bool) -> Edit:
    loads = die_loads(load, layout)
    if not heaviest:
        return _best_swap(load, layout, loads, int(loads.argmin()))
    die = int(loads.argmax())
    return min(_best_swap(load, layout, loads, die), _best_replica(load, layout, loads, die))


def _best_swap(load: np.ndarray, layout: np.ndarray, loads: np.ndarray, die: int) -> Edit:
    """Return the best exchange of an expert of `die` for an expert of another die. No die may end with two slots of one
    expert."""
    counts = np.bincount(layout[layout >= 0], minlength=len(load))
    parts = np.append(load / counts, 0.0)[layout]
    experts = layout[die]
    comes_twice = np.isin(layout, experts)  # (D, S)
    goes_twice = (layout[:, :, None] == experts).any(axis=1)  # (D, S of `die`)
    refused = comes_twice[:, :, None] | goes_twice[:, None, :] | (layout < 0)[:, :, None] | (experts < 0)
    gain = parts[:, :, None] - parts[die]  # (D, S, S of `die`): the load that `die` gains and the other loses
    own_load, other_load = loads[die] + gain, loads[:, None, None] - gain
    most, least = _without(loads, die)
    highest = np.maximum(np.maximum(own_load, other_load), most[:, None, None])
    lowest = np.minimum(np.minimum(own_load, other_load), least[:, None, None])
    ratios = np.where(refused | (lowest <= 0), np.inf, highest / np.where(lowest > 0, lowest, 1.0))
    other, there, slot = (int(index) for index in np.unravel_index(ratios.argmin(), ratios.shape))
    changes = [(die, slot, int(layout[other, there])), (other, there, int(experts[slot]))]
    return float(ratios[other, there, slot]), changes


def _without(loads: np.ndarray, die: int) -> tuple[np.ndarray, np.ndarray]:
    """Return, for each other die, the largest and the smallest load of the rest, (D,) each."""
    order = [other for other in np.argsort(loads, kind="stable").tolist() if other != die]
    ranked = [np.inf, -np.inf] if len(order) == 1 else loads[[order[1], order[-2]]]
    most, least = np.full(len(loads), loads[order[-1]]), np.full(len(loads), loads[order[0]])
    least[order[0]], most[order[-1]] = ranked
    return most, least


def _best_replica(load: np.ndarray, layout: np.ndarray, loads: np.ndarray, die: int) -> Edit:
    """Return the best replica: an expert of `die` copied into an empty slot of another die."""
    best: Edit = (np.inf, [])
    rooms = [int(other) for other in np.flatnonzero((layout < 0).any(axis=1)) if other != die]
    for expert in layout[die][layout[die] >= 0].tolist():
        hosts = (layout == expert).any(axis=1)
        count = int(np.count_nonzero(layout == expert))
        less = loads - hosts * (load[expert] / count - load[expert] / (count + 1))
        for other in rooms:
            if not hosts[other]:
                after = less.copy()
                after[other] += load[expert] / (count + 1)
                slot = int(np.flatnonzero(layout[other] < 0)[0])
                best = min(best, (ratio_of(after, "max_min"), [(other, slot, expert)]))
    return best


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
    return sum(max(len(experts) for _, _, experts in each) * expert_bytes / link_bandwidth for each in rounds if each)


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


Predict = Literal["last", "ema", "linear"]
Planner = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(layers (N,), loads (N, E), layouts (N, D, S)) -> new layouts with as many slots."""
Transfers = Callable[[np.ndarray, np.ndarray], Sequence[Round]]
"""(layout before, layout after) -> rounds of copies; (D, S) each."""
LayersTime = Callable[[np.ndarray, float], np.ndarray]
"""(tokens of each slot in a step (N, D, S), available share of the links) -> seconds of each layer, (N,)."""

LEAST_FOR_TREND = 4
"""[chosen] below this number of intervals no line is fitted."""


@dataclass(frozen=True)
class Rebalancing:
    """The trigger and the forecast of rebalancing. The paper names the trigger and the margin and no values; most are
    the code's.

    `every_s`: between two readings of the counters. `window`: readings that are remembered. `keep`: of the average when
    a new reading comes. `trigger`: imbalance from which a layer is looked at. `margin`: share of its imbalance by which
    a new layout must be better. `link_share`: the links' share that copies leave to the steps. `weigh`: a new layout
    must also save more seconds of steps until the next reading than its copies cost.
    """

    every_s: float = 60.0
    window: int = 20
    keep: float = 0.6
    predict: Predict = "linear"
    trigger: float = 1.1
    margin: float = 0.05
    link_share: float = 0.95
    weigh: bool = True


def forecast(readings: list[np.ndarray], average: np.ndarray, predict: Predict) -> np.ndarray:
    """Return the (L, E) load of the next interval from those before, oldest first.

    `linear`: for each expert a least-squares line, one interval ahead and not below 0; `ema`: the average, also used
    while there are few readings.
    """
    if predict == "last":
        return readings[-1]
    if predict == "ema" or len(readings) < LEAST_FOR_TREND:
        return average
    loads = np.stack(readings)
    mean = loads.mean(axis=0)
    times = np.arange(len(loads)) - (len(loads) - 1) / 2
    slope = np.tensordot(times, loads - mean, axes=1) / (times**2).sum()
    return np.maximum(0.0, mean + slope * (times[-1] + 1))


class DynamicPlacement:
    """Counts the tokens of experts, and every `every_s` moves the layers that are out of balance.

    `counters`: decisions that moved a layer, layers and experts moved, and layers that stayed because of what their
    copies would cost. `copy_s`: seconds of copying.
    """

    def __init__(
        self,
        layouts: np.ndarray,
        experts: int,
        planner: Planner,
        transfers: Transfers,
        layers_time: LayersTime,
        expert_bytes: float,
        link_bandwidth: float,
        settings: Rebalancing = Rebalancing(),
    ) -> None:
        self.map = ExpertMap(layouts, experts)
        self.settings = settings
        self.counters = {"rebalances": 0, "layers_moved": 0, "experts_moved": 0, "layers_too_dear": 0}
        self.copy_s = 0.0
        self.migration: Migration | None = None
        self._planner, self._transfers, self._layers_time = planner, transfers, layers_time
        self._expert_bytes, self._link_bandwidth = expert_bytes, link_bandwidth
        self._readings: deque[np.ndarray] = deque(maxlen=settings.window)
        self._average: np.ndarray | None = None
        self._counted = np.zeros((len(layouts), experts))
        self._steps = 0
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
        self._steps += 1

    def _read(self, now_s: float) -> None:
        reading, keep = self._counted, self.settings.keep
        if not reading.any():
            return
        steps, self._counted, self._steps = self._steps, np.zeros_like(reading), 0
        self._readings.append(reading)
        self._average = reading if self._average is None else keep * self._average + (1 - keep) * reading
        if self.migration is not None:
            return  # the last decision is still being carried out
        layouts = self.map.slots
        trigger, layers = self.settings.trigger, zip(self._average, layouts, strict=True)
        unbalanced = [imbalance(*layer) > trigger for layer in layers]
        triggered = np.flatnonzero(unbalanced)
        if not len(triggered):
            return
        expected = forecast(list(self._readings), self._average, self.settings.predict)
        planned = self._planner(triggered, expected[triggered], layouts[triggered])
        step_load, dear = expected / steps, self._copying_costs(expected / steps, steps)
        moves = []
        for layer, layout in zip(triggered, planned, strict=True):
            now, then = imbalance(expected[layer], layouts[layer]), imbalance(expected[layer], layout)
            if now - then <= self.settings.margin * now:
                continue
            move = self._move(int(layer), layouts[layer], layout)
            saved_s = steps * self._saved_s(step_load[layer], layouts[layer], layout)
            if self.settings.weigh and saved_s <= dear * move.copy_s:
                self.counters["layers_too_dear"] += 1
            else:
                moves.append(move)
        if moves:
            self.migration = Migration(moves, now_s)
            self.counters["rebalances"] += 1

    def _copying_costs(self, step_load: np.ndarray, steps: int) -> float:
        """Return the seconds that a second of copying adds to the steps of that second, by the (L, E) load of one."""
        slots = self.map.per_slot(step_load)
        slower_s = self._layers_time(slots, self.settings.link_share) - self._layers_time(slots, 1.0)
        return float(slower_s.sum()) * steps / self.settings.every_s

    def _saved_s(self, load: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
        """Return the seconds that a layer's new layout saves in a step of this load, (E,)."""
        layouts = ExpertMap(np.stack([before, after]), len(load))
        before_s, after_s = self._layers_time(layouts.per_slot(np.stack([load, load])), 1.0)
        return float(before_s - after_s)

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
        planned = [
            over_hosts(best_layout(load, dies, int(count)), per_host)
            for load, count in zip(loads, extra[layers], strict=True)
        ]
        return stacked(planned, size)

    return plan


def few_moves(extra: np.ndarray) -> Planner:
    """Apply the open-source code's edits to each layer."""

    def plan(layers: np.ndarray, loads: np.ndarray, layouts: np.ndarray) -> np.ndarray:
        dies, size = layouts.shape[1:]
        slots = loads.shape[1] // dies + extra[layers]
        planned = [edited(load, layout[:, :count]) for load, layout, count in zip(loads, layouts, slots, strict=True)]
        return stacked(planned, size)

    return plan
