"""Metrics that differ in their statistic alone, told once: P50, P90 and mean of the same thing."""

import re
from collections.abc import Mapping
from dataclasses import replace

from harness.metrics.definitions import Definition

_STATISTIC = re.compile(r"(?:P[\d.]+|mean|longest|largest)(?= )", re.IGNORECASE)


def families(vocabulary: Mapping[str, Definition]) -> list[tuple[list[str], Definition]]:
    """The names of each family, in the order of the vocabulary, with one definition that has all their statistics."""
    found: dict[tuple[str, Definition], dict[str, str]] = {}
    for name, each in vocabulary.items():
        said = _STATISTIC.match(each.definition)
        stem = name.rpartition("_")[0] if said else name
        rest = each.definition[said.end() if said else 0 :]
        found.setdefault((stem, replace(each, definition=rest)), {})[name] = said[0] if said else ""
    return [
        ([*names], replace(each, definition=f"{_listed([*names.values()])}{each.definition}"))
        for (_, each), names in found.items()
    ]


def _listed(statistics: list[str]) -> str:
    """`P50, P90 and mean`; the word of the first stays as it is."""
    first, *others = statistics
    others = [word if word[0] == "P" else word.lower() for word in others]
    return " and ".join(filter(None, [", ".join([first, *others[:-1]]), *others[-1:]]))
