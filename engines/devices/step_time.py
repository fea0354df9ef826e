"""The time of one step as a straight line in its work: the fitted counterpart of the roofline.

Two forms. `conserve`: the five terms of ConServe's profiler (section 1.1.2 of its specification), attention summed
request by request. `segmented`: a slope for each range of token counts, because a small batch is bound by the weights
it reads and a large one by arithmetic, plus the cost of each request and each sampled token. Every coefficient is in
seconds per unit of its term and none is negative, so a step with more work never gets shorter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engines.core.device import NO_ROWS, SummedRows

if TYPE_CHECKING:
    from engines.core.device import Row

CONSERVE = "conserve"
SEGMENTED = "segmented"
FORMS = {
    CONSERVE: "ConServe's five terms: tokens, attention, communication, memory, constant",
    SEGMENTED: "a slope for each range of token counts, attention, memory, requests, sampled tokens, constant",
}


@dataclass(slots=True)
class Totals:
    """Totals of a step over its rows of n new tokens on top of a context of c.

    `pairs`: sum n (n + c), query-key pairs with causality ignored, as ConServe has it. `visible`: sum (n + c).
    """

    requests: float = 0
    tokens: float = 0
    samples: float = 0
    pairs: float = 0
    visible: float = 0


def totals(rows: Iterable[Row], summed: SummedRows = NO_ROWS) -> Totals:
    """Sum a step's rows, request by request. `summed`: more rows, as sums."""
    decodes, seen = summed.requests, summed.context + summed.requests
    total = Totals(decodes, decodes, decodes, seen, seen)
    for row in rows:
        tokens, seen = row.tokens, row.tokens + row.context
        total.requests += 1
        total.tokens += tokens
        total.samples += row.samples
        total.pairs += tokens * seen
        total.visible += seen
    return total


_TERMS: dict[str, Callable[[Totals], float]] = {
    "k1": lambda total: total.tokens,
    "k2": lambda total: total.pairs,
    "k3": lambda total: total.tokens,
    "k4": lambda total: total.visible,
    "k5": lambda total: 1.0,
    "constant": lambda total: 1.0,
    "request": lambda total: total.requests,
    "sample": lambda total: total.samples,
    "pair": lambda total: total.pairs,
    "visible": lambda total: total.visible,
}
_SEGMENT = re.compile(r"tokens_(\d+)_(\d+|up)")


def term(name: str) -> Callable[[Totals], float]:
    """Return a function from a step to the term's value. `tokens_16_64` counts the tokens beyond the 16th up to the
    64th; `tokens_64_up` those beyond the 64th. ValueError for a name that no form has."""
    segment = _SEGMENT.fullmatch(name)
    if segment is None:
        if name not in _TERMS:
            raise ValueError(f"unknown term {name!r}")
        return _TERMS[name]
    low = int(segment[1])
    if segment[2] == "up":
        return lambda total: max(0, total.tokens - low)
    width = int(segment[2]) - low
    if width <= 0:
        raise ValueError(f"the term {name!r} covers no tokens")
    return lambda total: min(max(0, total.tokens - low), width)


def terms(form: str, knots: Sequence[int] = ()) -> tuple[str, ...]:
    """Return the names of a form's terms that a fit can separate.

    `k3` (communication between tensor-parallel ranks) counts tokens as `k1` does: on one device it is 0.
    """
    if form == CONSERVE:
        return ("k1", "k2", "k4", "k5")
    ends = [*map(str, knots), "up"]
    segments = [f"tokens_{low}_{high}" for low, high in zip([0, *knots], ends, strict=True)]
    return ("constant", *segments, "request", "sample", "pair", "visible")


class StepTime:
    """Seconds of a step by `coefficients` (s per unit of each term, by the term's name)."""

    def __init__(self, coefficients: Mapping[str, float]) -> None:
        self.coefficients = dict(coefficients)
        self._parts = [(term(name), value) for name, value in coefficients.items() if value]

    def predict(self, rows: Iterable[Row], summed: SummedRows = NO_ROWS) -> float:
        """Return the seconds from one plan to the next for a step of these rows."""
        return self.seconds(totals(rows, summed))

    def seconds(self, total: Totals) -> float:
        return sum(value * term(total) for term, value in self._parts)
