"""A few moves instead of a new layout: the open-source OmniPlacement's improvement of a layer in service.

Replicas that no longer help go first. Then, in turn, the fullest die gives a part of its load away (it swaps an expert
for another die's, or an expert of it gets a replica in an empty slot), and the emptiest die swaps one in; each time the
single best edit is made. Imbalance is the fullest die's load over the emptiest's.
"""

import numpy as np

from engines.systems.omniinfer.placement import die_loads, imbalance, ratio_of

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
    own = layout[die]
    comes_twice = np.isin(layout, own)  # (D, S)
    goes_twice = (layout[:, :, None] == own).any(axis=1)  # (D, S of `die`)
    refused = comes_twice[:, :, None] | goes_twice[:, None, :] | (layout < 0)[:, :, None] | (own < 0)
    gain = parts[:, :, None] - parts[die]  # (D, S, S of `die`): the load that `die` gains and the other loses
    mine, theirs = loads[die] + gain, loads[:, None, None] - gain
    most, least = _without(loads, die)
    highest = np.maximum(np.maximum(mine, theirs), most[:, None, None])
    lowest = np.minimum(np.minimum(mine, theirs), least[:, None, None])
    ratios = np.where(refused | (lowest <= 0), np.inf, highest / np.where(lowest > 0, lowest, 1.0))
    other, there, slot = (int(each) for each in np.unravel_index(ratios.argmin(), ratios.shape))
    changes = [(die, slot, int(layout[other, there])), (other, there, int(own[slot]))]
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
