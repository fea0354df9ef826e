"""A gate: named metrics that may get worse by so much and no more, judged over the seeds that both sides measured.

A metric fails when it is worse by more than its limit in the median *and* worse beyond chance: an exact one-sided
permutation test of the differences, seed by seed, in which each sign could as well be the other (`P_VALUE`). Fewer
than `LEAST_SEEDS` seeds could never show that. It also fails when it is gone, or when more points failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from harness.metrics.frame_definitions import definition
from reports.columns import Column
from reports.compare import Cell, Compared, Comparison
from workloads.errors import UserError

P_VALUE = 0.05
LEAST_SEEDS = 5
"""Of n seeds that are all worse the test says 2**-n, which is below `P_VALUE` from five on."""

_LIMIT = re.compile(r"(?P<metric>[\w.]+)(?:±|\+-|\+/-)(?P<percent>\d+(?:\.\d+)?)%")

Verdict = Literal["within", "worse", "better", "missing", "points failed"]


class Limit(NamedTuple):
    """By how many percent a metric may get worse."""

    metric: str
    percent: float


@dataclass(frozen=True)
class Judged:
    """One limit in one cell. `p`: of getting worse by chance; None where a value is missing."""

    cell: Cell
    compared: Compared
    limit: Limit
    p: float | None
    verdict: Verdict

    @property
    def failed(self) -> bool:
        return self.verdict not in ("within", "better")

    @property
    def sentence(self) -> str:
        column, where = self.compared.column, self.cell.label
        if self.verdict == "points failed":
            failed = f"{self.cell.failed_b} of {len(self.cell.seeds)} points failed in B"
            return f"{where}: {failed}, {self.cell.failed_a} in A"
        before, after = (
            f"{column.text(s.median)} {column.unit}".rstrip() for s in (self.compared.a, self.compared.b)
        )
        if self.verdict == "missing":
            return f"{column.metric} of {where} is {before} in A and missing in B"
        return (
            f"{column.metric} of {where} got {self.verdict}: {before} in A, {after} in B, "
            f"limit ±{self.limit.percent:g} %, p {self.p:.3f}"
        )


def parse(text: str) -> list[Limit]:
    """The limits in `metric±x%`, several with blanks or commas between; UserError for what is none."""
    limits = []
    for part in re.split(r"[\s,]+", text.strip()):
        found = _LIMIT.fullmatch(part)
        if not found:
            raise UserError(
                f'--gate {part!r} is no limit; write for example --gate "audio_ttfp_p90±5% continuity±1%" (or +-5%).'
            )
        limits.append(Limit(found["metric"], float(found["percent"])))
    twice = next((one.metric for one in limits if [x.metric for x in limits].count(one.metric) > 1), None)
    if twice is not None:
        raise UserError(f"--gate names {twice} twice; give it one limit.")
    return limits


def check(limits: Sequence[Limit], comparison: Comparison) -> None:
    """UserError for a metric of which neither more nor less is worse, and where seeds are too few to judge."""
    for limit in limits:
        if definition(limit.metric).better is None:
            raise UserError(f"--gate {limit.metric}: neither more nor less of it is worse; leave it out.")
    comparison.require_judged()
    fewest = min(comparison.judged, key=lambda cell: len(cell.seeds))
    if len(fewest.seeds) < LEAST_SEEDS:
        raise UserError(
            f"--gate needs {LEAST_SEEDS} seeds or more in common to tell a change from chance, and of {fewest.label} "
            f"there are {len(fewest.seeds)}; measure both with --seeds {LEAST_SEEDS}, or take --fail-above."
        )


def judge(limits: Sequence[Limit], comparison: Comparison) -> list[Judged]:
    """Every limit in every cell that both sides served the same trace in; `check` first."""
    by_metric = {limit.metric: limit for limit in limits}
    return [
        _judged(cell, compared, by_metric[compared.column.metric])
        for cell in comparison.judged
        for compared in cell.metrics
    ]


def _judged(cell: Cell, compared: Compared, limit: Limit) -> Judged:
    if cell.failed_b > cell.failed_a:
        return Judged(cell, compared, limit, None, "points failed")
    if compared.lost():
        return Judged(cell, compared, limit, None, "missing")
    if compared.worse_by is None:  # in neither
        return Judged(cell, compared, limit, None, "within")
    sign = 1 if definition(limit.metric).better == "lower" else -1
    worse = sign * np.array(compared.differences)
    p = chance(worse)
    material = abs(compared.worse_by) > limit.percent / 100
    if material and compared.worse_by > 0 and p <= P_VALUE:
        return Judged(cell, compared, limit, p, "worse")
    if material and compared.worse_by < 0 and chance(-worse) <= P_VALUE:
        return Judged(cell, compared, limit, p, "better")
    return Judged(cell, compared, limit, p, "within")


def chance(differences: np.ndarray) -> float:
    """How often differences of these sizes, each as likely with the other sign, have so large a sum or a larger one.

    Exact up to 13 seeds, 9,999 draws from a fixed seed beyond.
    """
    from scipy.stats import permutation_test

    found = permutation_test(
        (differences,),
        lambda x, axis: np.sum(x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        alternative="greater",
        rng=0,
    )
    return float(found.pvalue)


def markdown(judged: Sequence[Judged], comparison: Comparison) -> str:
    """The verdict as a table for a pull request, what failed first."""
    failed = [each for each in judged if each.failed]
    head = (
        f"**The gate fails**: {len(failed)} of {len(judged)} limits."
        if failed
        else f"**The gate passes**: {len(judged)} limits hold."
    )
    lines = [
        head,
        "",
        f"A: {comparison.a.name}  ",
        f"B: {comparison.b.name}",
        "",
        "| setting | metric | A | B | B/A | limit | p | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    ratio = Column("", "", "", 1, 3)
    for each in sorted(judged, key=lambda one: not one.failed):
        column, found = each.compared.column, each.compared
        cells = [
            each.cell.label,
            f"{column.heading}{f', {column.unit}' if column.unit else ''}",
            column.text(found.a.median),
            column.text(found.b.median),
            ratio.text(found.ratio.median),
            f"±{each.limit.percent:g} %",
            "–" if each.p is None else f"{each.p:.3f}",
            f"**{each.verdict}**" if each.failed else each.verdict,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
