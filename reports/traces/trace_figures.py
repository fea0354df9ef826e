"""The common parts of the pictures of traces: colours, curves of bounded size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workloads.trace import Trace

OURS, OTHER, LAW = "#0072b2", "#d55e00", "#222b36"
"""Looks of the trace, the trace it is compared with, and a law."""

POINTS = 400
"""Most points of a curve: a million arrivals draw as fast as a thousand, and the file stays small."""


@dataclass(frozen=True)
class Shown:
    """A trace with its name and colour in every picture."""

    label: str
    trace: Trace
    colour: str


def shown(trace: Trace, label: str, other: Trace | None, other_label: str) -> list[Shown]:
    """Return the trace, and the one it is compared with if any."""
    both = [Shown(label, trace, OURS)]
    return both if other is None else [*both, Shown(other_label, other, OTHER)]


def thinned(values: np.ndarray) -> np.ndarray:
    """Positions in `values` of at most `POINTS` evenly spread ones, first and last among them."""
    return np.unique(np.linspace(0, len(values) - 1, min(POINTS, len(values))).astype(int))


def probabilities(n: int) -> np.ndarray:
    """Ascending probabilities at which to compare quantiles of n values; of many, denser in both tails."""
    if n <= POINTS:
        return (np.arange(n) + 0.5) / n
    middle = (np.arange(POINTS // 2) + 0.5) / (POINTS // 2)
    tail = np.geomspace(1 / n, 0.5, POINTS // 4) / 2
    return np.unique(np.concatenate([tail, middle, 1 - tail]))


def survival(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (x, share of values >= x) of a sample, x ascending."""
    ordered = np.sort(values)
    ranks = np.geomspace(1, len(ordered), POINTS).astype(int)  # from the longest, where single values show
    at = np.unique(len(ordered) - ranks)
    return ordered[at], 1 - at / len(ordered)
