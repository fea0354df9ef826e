"""Words of tables, figures and sentences: parameters, numbers with their noun, seeds."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def seed_list(seeds: Iterable[int]) -> str:
    """`seed 0` or `seeds 0, 1, 2`."""
    seeds = list(seeds)
    return ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds))


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def setting(params: Mapping[str, Any]) -> str:
    """`c = 16, p = 0`, with spaces that do not break; empty for no parameters."""
    return ", ".join(
        f"{name}\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{short(value)}"
        for name, value in params.items()
        if value is not None
    )


def short(value: Any) -> str:
    """A parameter as a reader wants it: of a file only its name, as its folder is the same for all."""
    if isinstance(value, str) and value.startswith("/"):
        return value.rpartition("/")[2].removesuffix(".parquet")
    return f"{value:g}" if isinstance(value, float) else str(value)
