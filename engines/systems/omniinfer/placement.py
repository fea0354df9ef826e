"""OmniPlacement's static placement (section 4.1, Algorithm 1): the number of each expert's replicas in the group, and
their places.

One layer's layout is (D, S) expert ids, -1 for an empty slot; a model's is (L, D, S). Loads are (E,) and (L, E). Every
expert has a slot (1), a die has S_l of them at most (2), a replica carries an equal part of its expert's load (3), and
the imbalance is the fullest die's load over the mean (4). Where the paper leaves a choice its open-source code is
followed; `oss` takes that in every respect.
"""

import heapq
from collections.abc import Sequence
from typing import Literal

import numpy as np


class ExpertMap:
    """The experts on each die, slot by slot: (L, D, S) ids of experts, -1 for an empty slot.

    An expert in several slots gets its tokens in equal parts. ValueError if one has no slot.
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
        """Return the (L, D, S) tokens of each slot from those of each expert, (L, E)."""
        np.divide(load, self.replicas, out=self._parts[:, : self.experts])
        return self._parts.ravel()[self._at]


Mode = Literal["paper", "oss"]
Ratio = Literal["max_mean", "max_min"]

MOST_EXTRA = 10
"""Replicas of one expert beyond its first at most, in the open-source code; the paper has no such limit."""
SMOOTHING = 3.0
"""Constant that the open-source code adds to every count."""


def sequential(experts: int, dies: int) -> np.ndarray:
    """Return experts in order, equally many on every die: (D, E / D)."""
    return np.arange(experts).reshape(dies, -1)


def die_loads(load: np.ndarray, layout: np.ndarray) -> np.ndarray:
    """Return the (D,) load of each die (3)."""
    counts = np.bincount(layout[layout >= 0], minlength=len(load))
    parts = np.append(load / np.maximum(counts, 1), 0.0)  # the last is an empty slot's
    return parts[layout].sum(axis=1)


def ratio_of(loads: np.ndarray, ratio: Ratio = "max_mean") -> float:
    """Return the imbalance (4) of the dies' loads; 1.0 without any load. The open-source planner divides by the
    least."""
    most, base = float(loads.max()), float(loads.min() if ratio == "max_min" else loads.mean())
    if not most:
        return 1.0
    return most / base if base else float("inf")


def imbalance(load: np.ndarray, layout: np.ndarray, ratio: Ratio = "max_mean") -> float:
    """Return the imbalance of one layer's load over dies, as `ratio` defines it; 1 is even."""
    return ratio_of(die_loads(load, layout), ratio)


def budget(loads: np.ndarray, dies: int, units: int, most: int = 1, mode: Mode = "paper") -> np.ndarray:
    """Return the slots beyond E / D that each die gets in each layer, (L,), `units` of them altogether and `most` in a
    layer.

    In proportion to the imbalance of a layer's sequential layout, by largest remainders; a layer in balance gets none.
    `oss`: one for each of the `units` layers with the fullest dies.
    """
    layout = sequential(loads.shape[1], dies)
    given = np.zeros(len(loads), dtype=int)
    if mode == "oss":
        fullest = np.array([die_loads(load, layout).max() for load in loads])
        given[np.argsort(-fullest, kind="stable")[:units]] = 1
        return given
    weights = np.array([imbalance(load, layout) - 1.0 for load in loads]).clip(min=0.0)
    while units > 0 and (open_ := (given < most) & (weights > 0)).any():
        quotas = np.where(open_, units * weights / weights[open_].sum(), 0.0)
        more = np.minimum(quotas.astype(int), most - given)
        if not more.any():  # the remaining units are less than one each
            for layer in np.argsort(-quotas, kind="stable")[: min(units, int(open_.sum()))]:
                more[layer] = 1
        given += more
        units -= int(more.sum())
    return given


def replicas(load: np.ndarray, extra: int, most: int) -> np.ndarray:
    """Return the slots of each expert, (E,): one, and `extra` more, each to the expert whose slots carry most
    (heap-based greedy).

    `most`: slots of one expert. ValueError if they cannot all be given.
    """
    if extra > len(load) * (most - 1):
        raise ValueError(f"{extra} replicas do not fit {len(load)} experts of {most} slots at most")
    counts = np.ones(len(load), dtype=int)
    heap = [(-float(tokens), expert) for expert, tokens in enumerate(load)] if most > 1 else []
    heapq.heapify(heap)
    for _ in range(extra):
        _, expert = heapq.heappop(heap)
        counts[expert] += 1
        if counts[expert] < most:
            heapq.heappush(heap, (-float(load[expert] / counts[expert]), expert))
    return counts


def place(load: np.ndarray, counts: np.ndarray, dies: int) -> np.ndarray:
    """Place slots, heaviest first, each on the least loaded die that has room and not the expert yet: (D, S).

    `counts`: slots of each expert, at most D each, their sum a multiple of D. If the only room is on dies that have the
    expert, another die takes it in exchange for one of its own.
    """
    size = int(counts.sum()) // dies
    parts = load / counts
    dies_of: list[list[int]] = [[] for _ in range(dies)]
    heap = [(0.0, die) for die in range(dies)]
    for expert in np.argsort(-parts, kind="stable"):
        part = float(parts[expert])
        chosen = [heapq.heappop(heap) for _ in range(min(int(counts[expert]), len(heap)))]
        for before, die in chosen:
            dies_of[die].append(int(expert))
            if len(dies_of[die]) < size:
                heapq.heappush(heap, (before + part, die))
        for _ in range(int(counts[expert]) - len(chosen)):
            _exchange(int(expert), dies_of, parts, size, heap)
    return np.array(dies_of)


def _exchange(
    expert: int, dies_of: list[list[int]], parts: np.ndarray, size: int, heap: list[tuple[float, int]]
) -> None:
    """Let another die take `expert` and give the expert nearest in load to a die with room, which has `expert`
    already."""
    room = next(die for die, experts in enumerate(dies_of) if len(experts) < size)
    swaps = [
        (abs(parts[other] - parts[expert]), die, other)
        for die, experts in enumerate(dies_of)
        if expert not in experts
        for other in experts
        if other not in dies_of[room]
    ]
    _, die, other = min(swaps)
    dies_of[die][dies_of[die].index(other)] = expert
    dies_of[room].append(other)
    if len(dies_of[room]) < size:
        return
    heap[:] = [entry for entry in heap if entry[1] != room]
    heapq.heapify(heap)


def over_hosts(layout: np.ndarray, per_host: int) -> np.ndarray:
    """Remap by topology: dies are dealt to hosts in turn, so that the heaviest do not share one.

    Dies of the layout are in the order in which `place` has filled them. The imbalance does not change.
    """
    hosts = max(1, len(layout) // per_host)
    return layout[np.argsort(np.arange(len(layout)) % hosts, kind="stable")]


def best_layout(load: np.ndarray, dies: int, extra: int, mode: Mode = "paper") -> np.ndarray:
    """Return the layout of one layer with the least imbalance over levels of redundancy up to `extra` slots a die, (D,
    S).

    On a tie the one with fewer replicas. `sequential` is a candidate too, so that it is never worse than that. `oss`
    uses all slots, and smoothed counts.
    """
    if mode == "oss":
        load = load + SMOOTHING
        return place(load, replicas(load, extra * dies, min(1 + MOST_EXTRA, dies)), dies)
    best = sequential(len(load), dies)
    least = imbalance(load, best)
    for level in range(extra + 1):
        layout = place(load, replicas(load, level * dies, dies), dies)
        if (ratio := imbalance(load, layout)) < least - 1e-9:
            best, least = layout, ratio
    return best


def static_placement(
    loads: np.ndarray, dies: int, extra: np.ndarray, per_host: int = 16, mode: Mode = "paper"
) -> np.ndarray:
    """Return the rest of Algorithm 1 after its first line: (L, D, S) from loads (L, E) and the slots beyond E / D of
    `budget`, (L,).

    `per_host`: dies of one host. Slots that a layer does not use are -1.
    """
    layers = [
        over_hosts(best_layout(load, dies, int(slots), mode), per_host)
        for load, slots in zip(loads, extra, strict=True)
    ]
    return stacked(layers, loads.shape[1] // dies + int(extra.max()))


def stacked(layers: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return layers of (D, S_l) as (L, D, `size`), padded with -1."""
    return np.stack([np.pad(layer, ((0, 0), (0, size - layer.shape[1])), constant_values=-1) for layer in layers])
