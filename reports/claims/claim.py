"""A claim of a paper about its figures, and the facts that several claims make up.

A *number* is a claim with a value that the paper prints; a *sentence* has none. Claims that test the same sentence or
table cell of the paper are one *fact*. `reports.claims.grading` compares them with our runs. Claims of our own, which
no paper makes, begin with "(ours)" and are counted apart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isinf
from typing import Literal

from harness.metrics.stats import wilson
from reports.claims.quantities import Measure, Tally

OURS = "(ours)"
"""Prefix of the text of a claim that no paper makes."""

Unit = Literal["×", "%", "s", "ms", "1/s", ""]
_SHOWN: dict[str, tuple[float, int]] = {
    "×": (1, 2), "%": (100, 1), "s": (1, 2), "ms": (1000, 1), "1/s": (1, 3), "": (1, 2),
}  # fmt: skip


@dataclass(frozen=True)
class Untold:
    """Evidence that nobody can tell whether a claim is true. One of three kinds:

    unpublished: the paper does not state a quantity, and over its plausible range the published value lies inside ours
    contradiction: two places of the paper exclude each other
    saturated: the outcome changes when constants of the device move by 2 %
    """

    kind: Literal["unpublished", "contradiction", "saturated"]
    why: str
    """The quantity with the source of its range; or both places; or the constants."""
    over: Mapping[str, Measure] = field(default_factory=dict)
    """The claim's number at other settings of the quantity or of the constants, by setting."""


@dataclass(frozen=True)
class Claim:
    """One sentence or number of a paper. Values are in s, 1/s or shares; `unit` only sets how they are shown."""

    id: str
    """Short and unique in its group, such as `fig11-left-p90`; empty until the card is read."""
    text: str
    """The paper's claim, in our words."""
    paper: float | tuple[float, float]
    """Its value; two where it gives a range. Of a sentence the accepted range."""
    measure: Measure | Tally
    """The same number from our runs, for each seed; or a tally of them."""
    tolerance: float
    """Largest distance of our median from the paper's value or range that counts as a match."""
    unit: Unit = ""
    """Unit in which the value is written: % of a share, ms of seconds, × of a ratio."""
    neutral: float | None = None
    """The value of "no effect": 1 of a ratio, 0 of a difference. None for a level."""
    count: tuple[int, int] | None = None
    """The paper's own count, k of n runs; `paper` is the same as a share."""
    paper_text: str = ""
    """The paper's words; with a digit they are a number, without one the claim is a sentence."""
    because: str = ""
    """Reason for the tolerance."""
    source: str = ""
    """Source of the paper's number if it is not the text, such as "Table 3", "read off Fig. 5" or "from memory"."""
    fact: str = ""
    """Place and content of the sentence or cell of the paper that this claim tests with others; empty for its own."""
    fitted: str = ""
    """The constant that was fitted to this number; empty if none was."""
    chosen: str = ""
    """The choice behind this number that we made knowing the paper's results; empty for none."""
    follows: str = ""
    """Id of the claim of the same card from which this number follows by arithmetic; empty if it stands alone."""
    check: str = ""
    """Reason why our model cannot give another result; empty if it can."""
    untold: Untold | None = None
    """Evidence that the claim cannot be judged."""
    explanation: str | Callable[[float], str] = ""
    """Reason for the difference: a sentence, or one made from our median. Required unless the claim is met."""
    remark: str = ""
    """Remark for readers about the paper's number, as when it contradicts another of the paper."""

    def __post_init__(self) -> None:
        (low, high), name = self.band, self.id or repr(self.text)
        if self.neutral is None:
            return
        if low <= self.neutral <= high:
            raise ValueError(f"claim {name}: no effect ({self.neutral:g}) lies in its band {low:g} to {high:g}")
        blunt = self.count is None and high - low > self.effect * (1 + 1e-9)
        if blunt and not isinstance(self.paper, tuple):
            raise ValueError(
                f"claim {name}: its band {low:g} to {high:g} is wider than the effect of {self.effect:g}; set "
                f"within to {self.effect / 2:.3g} at most"
            )

    @property
    def range(self) -> tuple[float, float]:
        """The paper's value as a range."""
        return self.paper if isinstance(self.paper, tuple) else (self.paper, self.paper)

    @property
    def band(self) -> tuple[float, float]:
        """Range of medians that count as a match."""
        if self.count is not None:
            return wilson(*self.count)
        low, high = self.range
        return low - self.tolerance, high + self.tolerance

    @property
    def effect(self) -> float:
        """Distance of the paper's value, or the nearest of its range, from "no effect", which the claim must have."""
        assert self.neutral is not None, "a level has no effect"
        return min(abs(value - self.neutral) for value in self.range)

    @property
    def sentence(self) -> bool:
        """Return whether the paper prints no number for it."""
        words = self.paper_text.removeprefix(OURS)
        return self.count is None and bool(words) and not any(letter.isdigit() for letter in words)

    @property
    def own(self) -> bool:
        """True if no paper makes this claim."""
        return self.text.startswith(OURS)

    def accepts(self, value: float) -> bool:
        """Return whether the value lies in the band; of a sentence with a direction, at its near end or beyond."""
        low, high = self.band
        if self.sentence and self.neutral is not None:
            return value >= low if low > self.neutral else value <= high
        return low <= value <= high

    def near(self, value: float | None) -> bool:
        """Return whether the value lies within twice the band; True without a value."""
        low, high = self.band
        return value is None or (3 * low - high) / 2 <= value <= (3 * high - low) / 2

    def on_its_side(self, value: float) -> bool:
        """Return whether the value, in the digits shown, is on the paper's side of "no effect"; True without one."""
        if self.neutral is None:
            return True
        factor, digits = _SHOWN[self.unit]
        beyond = round(value * factor, digits) - round(self.neutral * factor, digits)
        return beyond * (self.range[0] - self.neutral) > 0

    def write(self, value: float) -> str:
        """The value in the claim's unit."""
        factor, digits = _SHOWN[self.unit]
        text = f"{round(value * factor, digits) + 0.0:.{digits}f}".replace("-", "−")
        return f"{text} {self.unit}" if self.unit else text

    @property
    def published(self) -> str:
        """The paper's value in words or numbers, with its source."""
        low, high = self.range
        text = self.paper_text or (self.write(low) if low == high else self.write_range(low, high))
        return f"{text} ({self.source})" if self.source else text

    def write_range(self, low: float, high: float) -> str:
        if isinf(high):
            return f"at least {self.write(low)}"
        return f"{self.write(low).removesuffix(f' {self.unit}')} to {self.write(high)}"
