"""One sentence about two sets of results: the better one, the size of the difference, and the number of runs that
agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isinf, log

from harness.metrics.vocabulary import definition
from reports.comparison.compare import Cell, Compared, Comparison
from reports.comparison.perceptible import POINT, least_difference
from reports.tables.columns import LIVE, spoken
from reports.tables.labels import counted

MATERIAL = 0.05
"""A smaller change, as a share of A, is called none. [chosen]"""
NOT_THE_SERVERS = LIVE[0].metric
"""Metrics of the load generator's own send delay."""
SMALL = "too small to notice"
MOST_NAMED = 4
"""Number of metrics that are named after the first."""


@dataclass(frozen=True)
class Change:
    """A metric that changed in every run of a cell, in the same direction and by more than `MATERIAL`."""

    cell: Cell
    compared: Compared

    @property
    def worse(self) -> bool:
        return (self.compared.worse_by or 0.0) > 0

    @property
    def size(self) -> float:
        """Ratio of the two values as a logarithm."""
        ratio = self.compared.ratio.median
        return abs(log(ratio)) if ratio else inf

    @property
    def text(self) -> str:
        """`P90 TTFT 57 -> 708 ms (x 12)`."""
        column, a, b = self.compared.column, self.compared.a.median, self.compared.b.median
        assert a is not None and b is not None
        before, after = column.with_unit(a), column.with_unit(b)
        unit = f" {before.partition(' ')[2]}".rstrip()
        if unit and after.endswith(unit):
            before = before.removesuffix(unit)
        return f"{spoken(column)} {before} -> {after}{_times(self.compared)}"

    @property
    def runs(self) -> str:
        n = self.compared.difference.n
        return f"in {n} of {counted(n, 'run')}"


def headline(comparison: Comparison) -> str:
    """`B is worse: P90 TTFT 57 -> 708 ms (x 12) in 3 of 3 runs.`"""
    judged = comparison.judged
    if not judged:
        return "Not judged: A and B did not serve the same users in any cell."
    if comparison.identical:
        return "B is identical to A in every request."
    failed = [sum(cell.failed_a for cell in judged), sum(cell.failed_b for cell in judged)]
    lost = [each for cell in judged for each in cell.metrics if each.lost and not each.b.n and not cell.failed_b]
    changes = [Change(cell, each) for cell in judged for each in cell.metrics if changed(each)]
    worse, better = ([each for each in changes if each.worse == wanted] for wanted in (True, False))
    small, still = _unchanged(judged, changes)
    parts, runs = [], max(len(cell.seeds) for cell in judged)
    if failed[1] > failed[0]:
        parts.append(f"{counted(failed[1], 'point')} failed, {failed[0]} in A")
    if lost:
        parts.append(f"{', '.join(dict.fromkeys(spoken(each.column) for each in lost))} is missing")
    if worse:
        parts.append(_change_text(worse, judged))
    if not parts and not better:
        if small:
            return f"No difference that a person would notice: {', '.join(filter(None, [small, still]))}."
        return f"No difference beyond the spread of {counted(runs, 'run')}{f': {still}' if still else ''}."
    verdict = "Mixed. Worse: " if parts and better else "B is worse: " if parts else "B is better: "
    if better:
        parts.append(f"{'better: ' if parts else ''}{_change_text(better, judged)}")
    parts += [f"{what}: {names}" for what, names in ((SMALL, small), ("within the spread", still)) if names]
    caveat = "" if runs > 1 else " One run of each cannot show how far two runs of the same differ."
    return f"{verdict}{'; '.join(parts)}.{caveat}"


def changed(compared: Compared) -> bool:
    """Return whether the metric got better or worse on every seed, and in the median so much that a person would
    notice it."""
    least = least_difference(compared.column.metric, compared.n)
    return _moved(compared) and abs(compared.difference.median or 0.0) >= least


def _moved(compared: Compared) -> bool:
    """Return whether the metric got better or worse on every seed, and by more than `MATERIAL` in the median."""
    difference, a = compared.difference, compared.a.median
    if compared.column.metric == NOT_THE_SERVERS or compared.worse_by is None:
        return False
    if difference.low is None or difference.high is None or a is None:
        return False
    least = POINT if definition(compared.column.metric).share else MATERIAL * abs(a)
    return (difference.low > 0 or difference.high < 0) and abs(difference.median or 0.0) >= least


def _change_text(changes: Sequence[Change], judged: Sequence[Cell]) -> str:
    """The largest of what users feel first, then the names of the others."""
    first = max(changes, key=lambda each: (each.compared.column.first, each.size))
    where = first.cell.label
    if len({cell.engine for cell in judged}) == 1:
        where = where.removeprefix(first.cell.engine).strip()
    where = f" at {where}" if len(judged) > 1 else ""
    others = sorted((each for each in changes if each is not first), key=lambda each: -each.size)
    most: dict[str, str] = {}
    for each in others:
        most.setdefault(spoken(each.compared.column), _times(each.compared))
    most.pop(spoken(first.compared.column), None)
    named = [f"{name}{times}" for name, times in most.items()]
    more = f", also {', '.join(named[:MOST_NAMED])}" if named else ""
    more += f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"{first.text} {first.runs}{where}{more}"


def _times(compared: Compared) -> str:
    ratio = compared.ratio.median
    if ratio is None or isinf(ratio):
        return ""
    digits = 0 if ratio >= 9.5 else 1 if ratio >= 1.95 else 2
    return f" (x {ratio:,.{digits}f})"


def _unchanged(judged: Sequence[Cell], changes: Sequence[Change]) -> tuple[str, str]:
    """Return the names of the metrics that changed in no cell: first of the metrics with a difference that nobody
    notices, then of the others."""
    moved = {each.compared.column.metric for each in changes}
    columns = {each.column.metric: each.column for cell in judged for each in cell.metrics}
    small = {each.column.metric for cell in judged for each in cell.metrics if _moved(each)} - moved
    still = [
        column
        for metric, column in columns.items()
        if metric not in moved and metric != NOT_THE_SERVERS and definition(metric).better is not None
    ]
    names = [", ".join(spoken(each) for each in still if (each.metric in small) == wanted) for wanted in (True, False)]
    return names[0], names[1]
