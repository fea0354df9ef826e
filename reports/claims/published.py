"""A published number: what the paper measured, and where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Published:
    """One result of a paper. A card lists its own as `PAPER`."""

    figure: str
    """Place in the paper, such as "Fig. 11 left"."""
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
    """Remark for readers who compare."""


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
