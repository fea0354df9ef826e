"""Progress of the point of this process: the share of its planned turns that are over.

A worker gets a number in shared memory (`tell`), from which the command reads the share. A process without one
reports nothing.
"""

from __future__ import annotations

from typing import Protocol


class Share(Protocol):
    """A number from 0 to 1 in shared memory, as `multiprocessing.RawValue` makes it."""

    value: float


_share: Share | None = None
_each = 0.0


def tell(share: Share) -> None:
    """Write the share done to `share` from now on."""
    global _share
    _share = share


def expect(turns: int) -> None:
    """Note how many turns, or frames of calls, will come."""
    global _each
    _each = 1 / max(1, turns)


def turn_over() -> None:
    """Count one turn or frame as over, however it ended."""
    if _share is not None:
        _share.value += _each
