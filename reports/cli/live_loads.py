"""The loads that `rehearse live` is asked for: concurrent calls, calls per second, the begin of a search, the two loads
of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from workloads.errors import UserError

if TYPE_CHECKING:
    from harness.slo.targets import Target

FIRST = 8
"""Calls to begin with where no number is given. [chosen]"""
UP_TO = 256
"""Upper bound of a search by default. [chosen]"""


class Load(NamedTuple):
    """`amounts`: concurrent calls, or with `rates` calls per second, of a search the first number. `most`: where a
    search stops; with `rates` the most calls at once, 0 for no limit."""

    amounts: Sequence[float]
    rates: bool
    targets: tuple[Target, ...]
    most: int


def load_of(sessions: str | None, rate: str | None, find: str | None, to: int | None) -> Load:
    """UserError for what does not fit together."""
    from harness.slo.targets import parse_targets

    targets = parse_targets(find) if find is not None else ()
    if to is not None and not targets:
        raise UserError("--to is where --find stops; give --find too, or leave it out.")
    if rate is not None and targets:
        raise UserError("--rate is an open loop and --find a closed one; leave one out.")
    numbers = numbers_of("--sessions", sessions, int) if sessions is not None else [FIRST]
    if rate is not None:
        if len(numbers) > 1:
            raise UserError("--rate takes one number of --sessions, the most at once; give one, or leave it out.")
        return Load(numbers_of("--rate", rate, float), True, (), int(numbers[0]) if sessions else 0)
    if targets and len(numbers) > 1:
        raise UserError("--find begins at one number of --sessions; give one, or leave it out.")
    most = to or UP_TO
    return Load([min(numbers[0], most)] if targets else numbers, False, targets, most)


def ends_of_sweep(sessions: str | None, rate: str | None, find: str | None, resume: bool) -> Load:
    """Return the two loads between which `--sweep` chooses rates. UserError for what does not fit together."""
    if rate is not None or find is not None or resume:
        raise UserError(
            "--sweep chooses the rates by two loads that it measures; leave --rate, --find and --resume out, or resume "
            "it by --rate with the rates that it chose."
        )
    (most, *more) = numbers_of("--sessions", sessions, int) if sessions is not None else [UP_TO]
    if more or most == 1:
        raise UserError("--sweep takes one number of --sessions, from 2 on, as its largest load; correct it.")
    return Load([1, most], False, (), 0)


def numbers_of(option: str, text: str, read: Callable[[str], float]) -> list[float]:
    """Parse the numbers in `8,16,32`; UserError for anything else, and for values that are not above 0."""
    numbers = []
    for part in text.split(","):
        try:
            value = read(part)
        except ValueError:
            value = -1
        if not (1 if read is int else 1e-9) <= value < 1e6:
            example = "8,16,32" if read is int else "0.5,2"
            kind = "whole number from 1 on" if read is int else "number above 0"
            raise UserError(f"{option} {text}: {part.strip()!r} is no {kind}; write for example {option} {example}.")
        numbers.append(value)
    return list(dict.fromkeys(numbers))
