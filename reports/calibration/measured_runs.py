"""Predictions held against real runs, for readers: the rows of the table, and the picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.calibration.fidelity_report import percent
from harness.measured_runs.measured_run import LATENCIES
from harness.measured_runs.runs_report import REQUESTS, STATISTICS, Error, Report, Row
from reports.calibration.fidelity import dots
from reports.figures.drawing import identity, legend, plain_log, sheet
from reports.figures.picture import Picture
from reports.figures.style import MUTED, style
from reports.figures.svg import save
from reports.tables.plain_tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATES = "requests/s, intended / achieved"
SHOWN = {
    "ttft": ("TTFT", "time to first token", 1e3, "ms"),
    "itl": ("inter-token", "inter-token latency", 1e3, "ms"),
    "e2e": ("E2E", "end to end", 1.0, "s"),
}
"""Latency -> its name in tables and in the picture, and its unit there, in which a second is that many."""
LOOKS = {"below saturation": ("#0072b2", "o"), "saturated": ("#d55e00", "o"), "in sum": ("#009e73", "x")}
BAND = 0.10


def tables(report: Report) -> list[Table]:
    """Mean absolute errors, of loads that nothing was calibrated on first; then each latency, load by load."""
    latency_tables = []
    for name, (title, _, factor, unit) in SHOWN.items():
        rows = []
        for row in report.rows:
            error = row.latencies[name]
            pairs = [_pair(error, each, factor) for each in STATISTICS]
            run = f"{row.run}{' *' if row.calibrated else ''}"
            load = f"{row.part}{' (saturated)' if row.kind == 'saturated' else ''}"
            rows.append((run, load, _rates(row), *pairs, percent(error.absolute)))
        headings = ("run", "load", RATES, "mean", *(each.upper() for each in STATISTICS[1:]), "error")
        latency_tables.append(Table(f"{title} in {unit}, measured / predicted", headings, rows))
    headings = ("run, or model", "", "loads", "requests", *(title for title, *_ in SHOWN.values()))
    titles = {True: "mean absolute error, loads that nothing was calibrated on", False: "the same, calibrated loads"}
    totals = [Table(title, headings, list(_totals(report, held_out))) for held_out, title in titles.items()]
    return [*(table for table in totals if table.rows), *latency_tables]


def _totals(report: Report, held_out: bool) -> Iterator[tuple[str, ...]]:
    for total in report.totals:
        if total.held_out == held_out:
            errors = (percent(total.absolute[name]) for name in LATENCIES)
            yield (total.of or "all", total.kind, str(total.loads), f"{total.requests:,}", *errors)


def sentences(report: Report) -> list[str]:
    """Return the notes of a report: the meaning of its errors, the numbers that constants were calibrated on, and the
    assumptions about the runs."""
    kinds = {row.kind for row in report.rows}
    notes = []
    if kinds - {"in sum"}:
        notes.append("error, request by request: mean of |predicted / measured - 1| over the requests of a load")
    if "in sum" in kinds:
        notes.append("error, in sum: of an experiment, over its published statistics; over all, of the means")
    fitted: dict[str, dict[str, None]] = {}
    for row in report.rows:
        if row.calibrated:
            fitted.setdefault(row.calibrated, {})[row.run] = None
    notes += [f"* calibrated: {constants}, on {', '.join(names)}" for constants, names in fitted.items()]
    assumed: dict[str, list[str]] = {}
    for row in report.rows:
        for sentence in row.assumed:
            assumed.setdefault(sentence, []).append(row.run)
    for sentence, runs in assumed.items():
        names = list(dict.fromkeys(runs))
        where = ", ".join(names) if len(names) <= 3 else f"{len(names)} runs"
        notes.append(f"assumed of {where}: {sentence}")
    return notes


def write_picture(report: Report, folder: Path) -> Path:
    """Draw the content of `folder` as truth.svg and .pdf, and return the path of the SVG."""
    with style():
        drawn = picture(report, pd.read_parquet(folder / REQUESTS))
        save(drawn, folder)
    return folder / f"{drawn.name}.svg"


def _rates(row: Row) -> str:
    intended = ", ".join(f"{rate:.3g}" for rate in row.intended) or "–"
    return f"{intended} / {_number(row.achieved, 1)}"


def _pair(error: Error, statistic: str, factor: float) -> str:
    values = error.measured[statistic], error.predicted[statistic]
    return " / ".join(_number(value, factor) for value in values)


def _number(value: float | None, factor: float) -> str:
    if value is None:
        return "–"
    scaled = factor * value
    return f"{scaled:,.0f}" if scaled >= 1000 else f"{scaled:.3g}"


def picture(report: Report, requests: pd.DataFrame) -> Picture:
    """`requests`: as `harness.measured_runs.runs_report.store` keeps them."""
    title = "Virtual time compared with real servers"
    figure, grid = sheet(3, title, 3.2)
    for axes, (name, (_, label, factor, unit)) in zip(grid, SHOWN.items(), strict=True):
        measured = requests.dropna(subset=[f"measured_{name}"])
        pairs = factor * measured[[f"measured_{name}", f"predicted_{name}"]].to_numpy(float)
        saturated = measured["saturated"].to_numpy(bool)
        points = {"below saturation": pairs[~saturated], "saturated": pairs[saturated]}
        sums = [row.latencies[name] for row in report.rows if row.kind == "in sum"]
        means = [(e.measured["mean"], e.predicted["mean"]) for e in sums if e.measured["mean"] is not None]
        points["in sum"] = factor * np.array(means, float).reshape(-1, 2)
        _panel(axes, points, label, unit)
    legend(figure, ncols=3, markerscale=1.6)
    return Picture("measured_runs", title, figure, _caption(report))


def _panel(axes: Axes, points: dict[str, np.ndarray], label: str, unit: str) -> None:
    axes.set_title(label)
    drawn = np.concatenate(list(points.values()))
    drawn = drawn[drawn > 0]
    if not len(drawn):
        axes.set_axis_off()
        axes.text(0.5, 0.5, "not measured", ha="center", color=MUTED)
        return
    for kind, pairs in points.items():
        if len(pairs):
            crosses = {"ms": 5.0, "mew": 1.2} if kind == "in sum" else {}
            dots(axes, *pairs.T, look=LOOKS[kind], label=kind, rasterized=True, **crosses)
    low, high = 0.8 * float(drawn.min()), 1.25 * float(drawn.max())
    identity(axes, low, high, BAND)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set(xlabel=f"measured, {unit}", ylabel=f"predicted, {unit}")
    for axis in (axes.xaxis, axes.yaxis):
        plain_log(axis)


def _caption(report: Report) -> str:
    parts = []
    for total in (each for each in report.totals if each.of is None or each.kind == "in sum"):
        errors = ", ".join(
            f"{name.upper()} {100 * value:.1f} %" for name, value in total.absolute.items() if value is not None
        )
        which = "nothing calibrated on it" if total.held_out else "calibrated"
        parts.append(f"{total.of or total.kind}, {which}: {errors}")
    return f"Both axes are logarithmic; the band is ± {100 * BAND:.0f} %. Mean absolute errors: {'; '.join(parts)}."
