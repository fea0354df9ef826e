"""A gate: limits for named metrics, judged over the seeds that both sides measured.

A metric fails when it is worse by more than its limit in the median *and* worse beyond chance: an exact one-sided
permutation test of the differences, seed by seed, in which both signs are equally likely (`P_VALUE`). Fewer than
`LEAST_SEEDS` seeds could never show that: a metric with fewer on both sides is not judged, which does not count as
held. It also fails when it is missing on a seed, or when more points failed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from harness.metrics.vocabulary import definition, metric_named
from reports.comparison.compare import Cell, Compared, Comparison
from reports.tables.columns import RATIO
from reports.tables.labels import counted
from workloads.errors import UserError

P_VALUE = 0.05
LEAST_SEEDS = 5
"""Fewest seeds of a judgement. For n seeds that are all worse the test gives p = 2**-n, which is below `P_VALUE` from n
= 5 on."""

_LIMIT = re.compile(r"(?P<metric>[\w.]+)(?:±|\+-|\+/-)(?P<percent>\d+(?:\.\d+)?)%")

Verdict = Literal["within", "worse", "better", "missing", "points failed", "not judged"]


class Limit(NamedTuple):
    """Percent by which a metric may get worse."""

    metric: str
    percent: float


@dataclass(frozen=True)
class Judged:
    """One limit in one cell. `p`: of getting worse by chance; None where nothing was compared."""

    cell: Cell
    compared: Compared
    limit: Limit
    p: float | None
    verdict: Verdict

    @property
    def holds(self) -> bool:
        return self.verdict in ("within", "better")

    @property
    def failed(self) -> bool:
        return not self.holds and self.verdict != "not judged"

    @property
    def sentence(self) -> str:
        column, where = self.compared.column, self.cell.label
        if self.verdict == "points failed":
            failed = f"{self.cell.failed_b} of {len(self.cell.seeds)} points failed in B"
            return f"{where}: {failed}, {self.cell.failed_a} in A"
        a, b = self.compared.a, self.compared.b
        if self.verdict == "not judged":
            return (
                f"{column.metric} of {where} is not judged: of {counted(len(self.cell.seeds), 'seed')} "
                f"A has it on {a.n}, B on {b.n} and both on {self.compared.difference.n}, and it takes {LEAST_SEEDS}"
            )
        before, after = (f"{column.text(s.median)} {column.unit}".rstrip() for s in (a, b))
        if self.verdict == "missing":
            return (
                f"{column.metric} of {where} is {before} in A and missing in B on {self.compared.lost} of the "
                f"{counted(a.n, 'seed')} that have it in A"
            )
        return (
            f"{column.metric} of {where} got {self.verdict}: {before} in A, {after} in B, "
            f"limit ±{self.limit.percent:g} %, p {self.p:.3f}"
        )


def parse(text: str) -> list[Limit]:
    """Parse limits written `metric±x%`, separated by blanks or commas; UserError for anything else."""
    limits = []
    for part in re.split(r"[\s,]+", text.strip()):
        match = _LIMIT.fullmatch(part)
        if not match:
            raise UserError(
                f'--gate {part!r} is no limit; write for example --gate "audio_ttfp_p90±5% continuity±1%" (or +-5%).'
            )
        metric = metric_named(match["metric"], "--gate")
        limits.append(Limit(metric, float(match["percent"])))
    twice = next((one.metric for one in limits if [x.metric for x in limits].count(one.metric) > 1), None)
    if twice is not None:
        raise UserError(f"--gate names {twice} twice; give it one limit.")
    return limits


def check(limits: Sequence[Limit], comparison: Comparison) -> None:
    """UserError for a metric without a better direction, and if there are too few seeds to judge."""
    for limit in limits:
        if definition(limit.metric).better is None:
            raise UserError(f"--gate {limit.metric}: neither more nor less of it is worse; leave it out.")
    comparison.require_judged()
    fewest = min(comparison.judged, key=lambda cell: len(cell.seeds))
    if len(fewest.seeds) < LEAST_SEEDS:
        percent, names = min(limit.percent for limit in limits), ",".join(limit.metric for limit in limits)
        worse = comparison.regressions(percent)
        raise UserError(
            f"--gate needs {LEAST_SEEDS} runs or more on both sides to tell a change from chance, and of "
            f"{fewest.label} there are {len(fewest.seeds)}; measure both with {more_runs(comparison)} {LEAST_SEEDS}, "
            f"or use --fail-above {percent:g} --metrics {names}, which {f'fails: {worse[0]}' if worse else 'passes'}."
        )


def more_runs(comparison: Comparison) -> str:
    """The option that asks for more runs of each cell, of the command that measured."""
    live = "live" in (comparison.a.device, comparison.b.device)
    return "--repeats" if live else "--seeds"


def judge(limits: Sequence[Limit], comparison: Comparison) -> list[Judged]:
    """Every limit in every cell that both sides served the same trace in; `check` first.

    UserError for a limit that is judged in no cell: a gate that looked at nothing has not passed.
    """
    by_metric = {limit.metric: limit for limit in limits}
    judged = [
        _judged(cell, compared, by_metric[compared.column.metric])
        for cell in comparison.judged
        for compared in cell.metrics
    ]
    for limit in limits:
        of_limit = [each for each in judged if each.limit == limit]
        if all(each.verdict == "not judged" for each in of_limit):
            most = max(each.compared.difference.n for each in of_limit)
            raise UserError(
                f"--gate {limit.metric} can be judged in no cell: {counted(most, 'seed')} at most "
                f"{'has' if most == 1 else 'have'} it on both sides, and it takes {LEAST_SEEDS}; leave it out, or "
                f"measure both with more {more_runs(comparison)}."
            )
    return judged


def _judged(cell: Cell, compared: Compared, limit: Limit) -> Judged:
    if cell.failed_b > cell.failed_a:
        return Judged(cell, compared, limit, None, "points failed")
    if compared.lost:
        return Judged(cell, compared, limit, None, "missing")
    if compared.worse_by is None or compared.difference.n < LEAST_SEEDS:
        return Judged(cell, compared, limit, None, "not judged")
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
    """Return the share of sign flips of these differences whose sum is at least as large. Exact up to 13 seeds; 9,999
    draws from a fixed seed beyond."""
    from scipy.stats import permutation_test

    result = permutation_test(
        (differences,),
        lambda x, axis: np.sum(x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        alternative="greater",
        rng=0,
    )
    return float(result.pvalue)


def tally(judged: Sequence[Judged]) -> str:
    """Return the number of limits that hold and of limits that were not judged."""
    skipped = sum(each.verdict == "not judged" for each in judged)
    held = f"{sum(each.holds for each in judged)} of {counted(len(judged), 'limit')} hold"
    return held + (f", {skipped} not judged" if skipped else "")


def markdown(judged: Sequence[Judged], comparison: Comparison) -> str:
    """The verdict as a table for a pull request, what failed first."""
    failed = [each for each in judged if each.failed]
    lines = [
        f"**The gate {'fails' if failed else 'passes'}**: {tally(judged)}.",
        "",
        f"A: {comparison.a.name}  ",
        f"B: {comparison.b.name}",
        "",
        "| setting | metric | A | B | B/A | limit | p | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for each in sorted(judged, key=lambda one: (not one.failed, one.holds)):
        column, compared = each.compared.column, each.compared
        cells = [
            each.cell.label,
            column.title,
            column.text(compared.a.median),
            column.text(compared.b.median),
            RATIO.text(compared.ratio.median),
            f"±{each.limit.percent:g} %",
            "–" if each.p is None else f"{each.p:.3f}",
            each.verdict if each.holds else f"**{each.verdict}**",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
