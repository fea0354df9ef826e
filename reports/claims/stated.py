"""Forms of a card's claims: the paper's sentence, its number, our measure, and the reason for a difference.

    "fig4-ahead": claim(
        "every stage is complete long before playback",
        times((0.0, 0.5), words="long before"),
        value(_last_stage, _REPLY),
        "here at {percent:.0f} % of the time of playback",
    )

The number's kind sets its format and "no effect": `times` for a ratio, `moves` for a share or a relative change,
`runs` for a count of runs, `level` for a number without "no effect" unless one is given. A claim that nothing is lost
has `same` for parity, or `at_least` for a bound: there "no effect" is what the paper says. In the reason, `{ours}`
stands for our median, `{percent}` and `{ms}` for 100 and 1,000 times that.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple, TypeVar, get_args

from reports.claims.bands import Band
from reports.claims.claim import Claim, Unit, Untold
from reports.claims.quantities import Measure, Tally
from workloads.errors import nearest

Paper = float | tuple[float, float]
Part = TypeVar("Part")


class Number(NamedTuple):
    """A paper's number and the check for ours; the fields are those of `Claim`."""

    paper: Paper
    tolerance: float
    unit: Unit
    neutral: float | None
    paper_text: str
    count: tuple[int, int] | None = None
    because: str = ""


def times(paper: Paper, within: float | Band = 0, words: str = "") -> Number:
    """A ratio of two numbers; 1 is no effect."""
    return _number(paper, within, "×", 1, words, 2, 0)


def moves(paper: Paper, within: float | Band = 0, words: str = "") -> Number:
    """A relative change of a number, as a share; 0 is no effect."""
    return _number(paper, within, "%", 0, words, 2, 1)


def runs(k: int, n: int, neutral: float | None = None) -> Number:
    """A count of runs, for tallies: one count is compared with another."""
    return Number(k / n, 0, "%", neutral, f"{k} of {n}", (k, n), f"Wilson's interval of {k} of {n}")


def level(
    paper: Paper, unit: Unit = "", within: float | Band = 0, words: str = "", neutral: float | None = None
) -> Number:
    """A value in its unit."""
    return _number(paper, within, unit, neutral, words, 1, 0)


def same(within: float | Band, words: str = "") -> Number:
    """A ratio that the paper calls 1, such as "no loss of throughput"; `within`: the largest difference from 1."""
    return level(1, "×", within, words)


def at_least(bound: float, unit: Unit = "×", within: float | Band = 0, words: str = "") -> Number:
    """A bound that the number does not go below by more than `within`, such as "at least 95 % of the throughput"."""
    number = level(bound, unit, within, words)
    return number._replace(paper=(bound, inf))


def _number(
    paper: Paper, within: float | Band, unit: Unit, neutral: float | None, words: str, numbers: int, since: float
) -> Number:
    """`numbers`: published numbers that make this one; `since`: the value of `paper` at which they cancel, negated. A
    band ends at half of the effect, so that it separates the paper's number from none."""
    if not isinstance(within, Band):
        return Number(paper, within, unit, neutral, words)
    ends = paper if isinstance(paper, tuple) else (paper,)
    half, because = within.half(max(abs(since + end) for end in ends), numbers), within.because
    if neutral is not None and half > (most := min(abs(end - neutral) for end in ends) / 2):
        half, because = most, f"half of the effect; {because} would give more"
    return Number(paper, half, unit, neutral, words, None, because)


def claim(
    text: str, number: Number, ours: Measure | Tally, why: str | Callable[[float], str] = "", **reasons: Any
) -> Claim:
    """One claim of a card, without its id; `reasons`: further fields of `Claim` by name. ValueError for a number that
    is none of those above, or has another unit than `Unit`."""
    if not isinstance(number, Number):
        raise ValueError(f"its number is {number!r}; write times, moves, runs, level, same or at_least")
    if number.unit not in get_args(Unit):
        raise ValueError(f"unit {number.unit!r} is none of {', '.join(map(repr, get_args(Unit)))}")
    explanation = _filled(why) if isinstance(why, str) and "{" in why else why
    return Claim(id="", text=text, measure=ours, explanation=explanation, **number._asdict(), **reasons)


def unpublished(quantity: str, over: Mapping[str, Measure]) -> Untold:
    """Evidence that a claim cannot be told: the paper does not state a quantity. `quantity` names it with the source of
    its plausible range; `over`: our number at settings of that range."""
    return Untold("unpublished", f"the paper does not state {quantity}", over)


def contradiction(first: str, second: str) -> Untold:
    """The same: two places of the paper, each with its number, exclude each other."""
    return Untold("contradiction", f"the paper contradicts itself: {first}, {second}")


def saturated(constants: str, over: Mapping[str, Measure]) -> Untold:
    """The same: near saturation the outcome changes when these constants of the device move by 2 %."""
    return Untold("saturated", f"near saturation; the outcome changes with 2 % of {constants}", over)


def named(claims: Mapping[str, Claim]) -> list[Claim]:
    """The claims of a card's `CLAIMS`, each with its id; a card does not call it. A claim that follows from another
    shares its fact and its provenance.

    ValueError when it follows from a claim that the card does not have.
    """
    return [replace(_joined(one, claims), id=id) for id, one in claims.items()]


def _joined(one: Claim, claims: Mapping[str, Claim]) -> Claim:
    if not one.follows:
        return one
    if one.follows not in claims:
        raise ValueError(
            f"claim {one.text!r} follows {one.follows!r}, which is no claim of this card.{nearest(one.follows, claims)}"
        )
    source = _joined(claims[one.follows], claims)
    shared = {name: getattr(source, name) for name in ("fitted", "chosen", "check")}
    return replace(one, fact=source.fact or one.follows, **shared)


def merged(parts: Iterable[Mapping[str, Part]]) -> dict[str, Part]:
    """Merge claims or experiments that are made part by part, such as one part per load."""
    return {name: one for part in parts for name, one in part.items()}


def _filled(sentence: str) -> Callable[[float], str]:
    return lambda ours: sentence.format(ours=ours, percent=100 * ours, ms=1000 * ours)
