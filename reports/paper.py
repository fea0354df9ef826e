"""A published number beside ours: what the paper measured, where, and what the same question gives here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from reports.measured import Run, Variant, over_seeds


@dataclass(frozen=True)
class Published:
    """One result of a paper. A card lists its own as `PAPER`."""

    figure: str
    """Where it stands, such as "Fig. 11 left"."""
    quantity: str
    """A metric of `harness.metrics.definitions`, or a number that one of the pictures reads off."""
    setting: Mapping[str, Any]
    """Values of our parameters that come closest to the paper's setting."""
    values: Mapping[str, float]
    """Engine -> the paper's number, in the unit of the metric (a share, not per cent)."""
    source: str
    """The paper, and the paper's setting in words."""
    largest: bool = False
    """The number is the largest over all settings, not one setting's."""
    remark: str = ""
    """What a reader who compares should know."""


def ours(
    entry: Published, run: Run, read_off: Mapping[str, Mapping[Variant, float]]
) -> dict[Variant, float | None]:
    """Our median over seeds for each variant; None where the run has no such point.

    `read_off` holds the numbers that pictures found: name -> variant -> value.
    """
    if entry.quantity in read_off:
        return {variant: read_off[entry.quantity].get(variant) for variant in run.variants}
    return {variant: _ours(entry, run, variant) for variant in run.variants}


def matching(entries: Iterable[Published], quantity: str, setting: Mapping[str, Any]) -> list[Published]:
    """The entries for exactly this setting; a picture draws them where its axes are the paper's."""
    return [
        entry
        for entry in entries
        if entry.quantity == quantity and not entry.largest and dict(entry.setting) == dict(setting)
    ]


def along(
    entries: Iterable[Published], quantity: str, axis: str, setting: Mapping[str, Any]
) -> list[tuple[Any, Published]]:
    """The entries for this setting at any value of `axis`, with that value."""
    return [
        (entry.setting[axis], entry)
        for entry in entries
        if axis in entry.setting and matching([entry], quantity, {**setting, axis: entry.setting[axis]})
    ]


def _ours(entry: Published, run: Run, variant: Variant) -> float | None:
    found: list[float] = []
    for cell in run.cells:
        points = [point for point in run.at(variant, **entry.setting) if point.cell == cell]
        value = over_seeds(points, entry.quantity).median
        if value is not None:
            found.append(value)
    if not found:
        return None
    return max(found) if entry.largest else median(found)
