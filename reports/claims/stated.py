"""Forms of a card's claims: the paper's sentence, its number, our measure, and the reason for a difference.

    "fig4-ahead": claim(
        "every stage is complete long before playback",
        times((0.0, 0.5), words="long before"),
        value(_last_stage, _REPLY),
        "here at {percent:.0f} % of the time of playback",
    )

The number's kind sets its format and "no effect": `times` for a ratio, `moves` for a share or a relative change,
`runs` for a count of runs, `level` for a number without "no effect" unless one is given. In the reason, `{ours}`
stands for our median, `{percent}` and `{ms}` for 100 and 1,000 times that.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from reports.claims.claim import Claim, Unit
from reports.claims.quantities import Measure, Tally

Paper = float | tuple[float, float]
Part = TypeVar("Part")


@dataclass(frozen=True)
class Number:
    """A paper's number and the check for ours; the fields are those of `Claim`."""

    paper: Paper
    tolerance: float
    unit: Unit
    neutral: float | None
    paper_text: str
    count: tuple[int, int] | None = None


def times(paper: Paper, within: float = 0, words: str = "") -> Number:
    """A ratio; 1 is no effect."""
    return Number(paper, within, "×", 1, words)


def moves(paper: Paper, within: float = 0, words: str = "") -> Number:
    """A relative change, as a share; 0 is no effect."""
    return Number(paper, within, "%", 0, words)


def runs(k: int, n: int, neutral: float | None = None) -> Number:
    """A count of runs, for tallies: one count is compared with another."""
    return Number(k / n, 0, "%", neutral, f"{k} of {n}", (k, n))


def level(
    paper: Paper, unit: Unit = "", within: float = 0, words: str = "", neutral: float | None = None
) -> Number:
    """A value in its unit."""
    return Number(paper, within, unit, neutral, words)


def claim(
    text: str,
    number: Number,
    ours: Measure | Tally,
    why: str | Callable[[float], str] = "",
    **reasons: Any,
) -> Claim:
    """One claim of a card, without its id; `reasons`: calibrated, chosen, derived, check and remark of `Claim`."""
    explanation = _filled(why) if isinstance(why, str) and "{" in why else why
    return Claim(id="", text=text, measure=ours, explanation=explanation, **vars(number), **reasons)


def named(claims: Mapping[str, Claim]) -> list[Claim]:
    """A card's `CLAIMS`, each with its id."""
    return [replace(one, id=id) for id, one in claims.items()]


def merged(parts: Iterable[Mapping[str, Part]]) -> dict[str, Part]:
    """Merge claims or experiments that are made part by part, such as one part per load."""
    return {name: one for part in parts for name, one in part.items()}


def _filled(sentence: str) -> Callable[[float], str]:
    return lambda ours: sentence.format(ours=ours, percent=100 * ours, ms=1000 * ours)
