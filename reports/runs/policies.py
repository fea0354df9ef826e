"""Counters of scheduling policies, whether their order ever mattered, and which variants served users alike."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from reports.runs.measured import Measured, Run
from reports.runs.part import Section
from reports.tables.labels import counted

PEAKS = ("pinned_blocks", "streaming_queue_peak")
"""Counters that are maxima: of several points the largest is reported, not the sum."""


def totals(points: Iterable[Measured]) -> Counter[str]:
    """Return the sums of the counters over these finished points."""
    sums: Counter[str] = Counter()
    for point in points:
        for name, count in point.record.counters.items() if point.error is None else ():
            peak = name.rpartition(".")[2] in PEAKS
            sums[name] = max(sums[name], count) if peak else sums[name] + count
    return sums


def order_sentences(run: Run, never: bool = False) -> list[str]:
    """Return for each variant with a policy the number of rounds in which its order mattered; `never`: only those
    with 0."""
    sentences = []
    for variant in run.variants:
        counts = totals(run.at(variant))
        rounds, mattered = (
            sum(count for name, count in counts.items() if name.endswith(f".{ending}"))
            for ending in ("planned_rounds", "order_mattered")
        )
        if rounds and not (never and mattered):
            sentences.append(f"{variant.label}: order mattered in {mattered:,} of {counted(rounds, 'round')}.")
    return sentences


def identical_sentences(run: Run) -> list[str]:
    """Return sentences on variants whose requests are identical, with the number of common finished points."""
    by_place: dict[Any, dict[str, Measured]] = {}
    for point in run.points:
        if point.error is None and point.has("requests"):
            by_place.setdefault((point.cell, point.seed), {})[point.variant.label] = point
    sentences = []
    for one, other in combinations([variant.label for variant in run.variants], 2):
        both = [points for points in by_place.values() if one in points and other in points]
        same = sum(same_requests(points[one], points[other]) for points in both)
        if same:
            of = "" if same == len(both) else f" of {same:,} of {len(both):,} points"
            sentences.append(f"{one} and {other} are identical in every request{of}.")
    return sentences


def same_requests(a: Measured, b: Measured) -> bool:
    """Return whether two points served every request at the same times with the same result."""
    sums = [point.record.manifest.get("files", {}).get("requests.parquet") for point in (a, b)]
    if None not in sums and sums[0] == sums[1]:
        return True
    if not (a.has("requests") and b.has("requests")) or a.values != b.values:
        return False
    return a.all_requests.equals(b.all_requests)


def counters(run: Run) -> dict[str, Any] | None:
    """Return a row for each counter and a column for each variant with counters; None without any."""
    by_label = {variant.label: totals(run.at(variant)) for variant in run.variants}
    by_label = {label: each for label, each in by_label.items() if each}
    names = sorted({name for each in by_label.values() for name, count in each.items() if count})
    names += sorted(
        {name for each in by_label.values() for name in each if name.endswith(".order_mattered")} - {*names}
    )
    if not names:
        return None
    rows = [(name, [f"{each[name]:,}" if name in each else "" for each in by_label.values()]) for name in sorted(names)]
    return {"variants": [*by_label], "rows": rows, "sentences": [*order_sentences(run), *identical_sentences(run)]}


SECTION = Section("runs/counters.html.j2", counters, "noticed", ("counters", "Policies"))
