"""Colours of loads, from calm to loud as the load grows, and how many of them one picture can take."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

MOST = 8
"""Loads in one picture."""

Item = TypeVar("Item")


def colours(count: int) -> list[str]:
    """One for each of `count` loads in their order, dark to bright; to be told apart in grey too."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    places = np.linspace(0.08, 0.85, count) if count > 1 else [0.45]
    return [to_hex(colormaps["viridis"](place)) for place in places]


def few(items: Sequence[Item]) -> list[Item]:
    """All of them, or of too many the first, the last and evenly what lies between."""
    if len(items) <= MOST:
        return list(items)
    return [items[place] for place in np.linspace(0, len(items) - 1, MOST).round().astype(int)]
