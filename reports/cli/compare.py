"""`rehearse compare`: two sets of results in one table, and a verdict where one is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from harness.exit_status import FAIL, OK
from reports.cli.output import AS_CSV, AS_JSON, Form, emit, form_of, tell, wide
from reports.cli.settings import flag, option
from reports.tables.labels import counted, short
from workloads.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.metrics.stats import Spread
    from reports.comparison.compare import Cell, Compared, Comparison
    from reports.comparison.foreign import Foreign
    from reports.tables.columns import Column


def worse_by(default: float | None, help: str) -> Any:
    """The option --fail-above: by how many percent a metric may get worse."""

    def parse(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            raise typer.BadParameter(f"it must be a number of percent, got {text!r}") from None
        if not 0 <= value < float("inf"):
            raise typer.BadParameter(f"it must be at least 0 and finite, got {value:g}")
        return value

    return option(default, help, "PERCENT", parser=parse)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Results directory, or file; what B is measured against.")],
    b: Annotated[
        Path | None,
        typer.Argument(metavar="[B]", help="Results directory, or file; default: the other device measured into A."),
    ] = None,
    metrics: str | None = option(None, "Metrics instead of the main ones, by their names.", "A,B"),
    fail_above: float | None = worse_by(
        None, "Exit with 1 when a metric got worse by more than this, and on every common seed."
    ),
    gate: str | None = option(
        None,
        'Exit with 1 when one of "audio_ttfp_p90±5% continuity±1%" got worse by more, and beyond chance.',
        "LIMITS",
    ),
    as_markdown: bool = flag("--markdown", "With --gate: print the verdict as Markdown."),
    as_json: bool = AS_JSON,
    as_csv: bool = AS_CSV,
) -> None:
    """Put two results directories side by side: each metric of both, their ratio and its spread over the seeds.

    A result of another tool (guidellm, aiperf, vllm bench serve, inference-perf) may be compared with a run of
    rehearse live.

    `rehearse compare results/bench-cpu results/bench-virtual`

    `rehearse compare results/before results/after --fail-above 5`

    `rehearse compare results/main results/mine --gate "continuity±1%"`

    `rehearse compare results/live/HOST-PORT/latest guidellm-results.json`
    """
    from harness.metrics.vocabulary import definition
    from reports.comparison.compare import compare as compared
    from reports.comparison.foreign import compare_foreign, is_foreign

    form = form_of(as_json, as_csv)
    if b is not None and (is_foreign(a) or is_foreign(b)):
        if (metrics, fail_above, gate, as_markdown) != (None, None, None, False):
            raise UserError(
                "--metrics, --fail-above, --gate and --markdown are for two runs of rehearse; a result of another tool "
                "is shown next to yours without them."
            )
        _show_foreign(compare_foreign(a, b), form)
        return
    if gate is not None:
        if metrics is not None or fail_above is not None:
            raise UserError("--gate names its metrics and limits; leave --metrics and --fail-above out.")
        _gate(a, b, gate, form, as_markdown)
    if as_markdown:
        raise UserError("--markdown is the form of a gate's verdict; name its limits with --gate.")
    names = [name.strip() for name in metrics.split(",")] if metrics is not None else []
    comparison = compared(a, b, names)
    if fail_above is not None:
        comparison.require_judged()
        for metric in (each.column.metric for each in comparison.cells[0].metrics if names):
            if definition(metric).better is None:
                raise UserError(
                    f"--metrics {metric} with --fail-above: neither more nor less of it is worse; leave one out."
                )
    regressions = [] if fail_above is None else comparison.regressions(fail_above)
    if form != "table":
        judged = {} if fail_above is None else {"fail_above": fail_above, "regressions": regressions}
        data = as_dict(comparison)
        rows = [
            {**{k: v for k, v in cell.items() if k != "metrics"}, "metric": name, **numbers}
            for cell in data["cells"]
            for name, numbers in cell["metrics"].items()
        ]
        emit(form, rows, {**data, **judged})
    else:
        show(comparison, fail_above)
        for sentence in regressions:
            typer.echo(sentence, err=True)
    raise typer.Exit(FAIL if regressions else OK)


def _show_foreign(comparison: Foreign, form: Form) -> None:
    """Print what differs in the definitions, then each metric of both sides."""
    from dataclasses import asdict

    from reports.tables.columns import MISSING
    from reports.tables.plain_tables import grid

    if form != "table":
        rows = [{**asdict(row), "ratio": row.ratio} for row in comparison.rows]
        emit(form, rows, {"a": comparison.a, "b": comparison.b, "notes": comparison.notes, "rows": rows})
        return
    console = wide(120)
    tell(console, comparison.notes)

    def text(value: float | None, digits: str = ",.4g") -> str:
        return MISSING if value is None else f"{value:{digits}}"

    shown = [
        (row.load, row.metric, row.unit, text(row.a), text(row.b), text(row.ratio, ".2f")) for row in comparison.rows
    ]
    title = f"A: {comparison.a}\nB: {comparison.b}"
    console.print(grid(("load", "metric", "", "A", "B", "B/A"), shown, 3, title=title))


def _gate(a: Path, b: Path | None, text: str, form: Form, as_markdown: bool) -> NoReturn:
    """Print the result of each limit for each cell, and exit."""
    from reports.comparison import gate
    from reports.comparison.compare import compare as compared

    if as_markdown and form != "table":
        raise UserError(f"--markdown and --{form} are two forms of one table; leave one out.")
    limits = gate.parse(text)
    comparison = compared(a, b, [limit.metric for limit in limits], "--gate")
    gate.check(limits, comparison)
    judged = gate.judge(limits, comparison)
    failed = [each.sentence for each in judged if each.failed]
    if as_markdown:
        typer.echo(gate.markdown(judged, comparison))
    elif form != "table":
        rows = [
            {
                "engine": each.cell.engine,
                "settings": each.cell.settings,
                "metric": each.limit.metric,
                "a": each.compared.a.median,
                "b": each.compared.b.median,
                "ratio": each.compared.ratio.median,
                "limit_percent": each.limit.percent,
                "p": each.p,
                "verdict": each.verdict,
            }
            for each in judged
        ]
        emit(form, rows, {**as_dict(comparison), "gate": rows, "failed": failed})
    else:
        show(comparison)
        typer.echo(gate.tally(judged))
    if not as_markdown:
        for each in judged:
            if not each.holds:
                typer.echo(each.sentence, err=True)
    raise typer.Exit(FAIL if failed else OK)


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """For programs; spreads are {median, low, high, interval, n, missing} in the metric's own unit."""
    from dataclasses import asdict

    from harness.metrics.vocabulary import definition
    from reports.comparison.headline import headline

    def numbers(compared: Compared) -> dict[str, Any]:
        meaning = definition(compared.column.metric)
        return {
            "unit": meaning.unit,
            "better": meaning.better,
            **{name: asdict(getattr(compared, name)) for name in ("a", "b", "difference", "ratio")},
        }

    def side(name: str) -> dict[str, str]:
        of = getattr(comparison, name)
        return {"folder": str(of.folder), "device": of.device, "label": of.label, "commits": of.commits}

    cells = [
        {
            "engine": cell.engine,
            "settings": cell.settings,
            "seeds": cell.seeds,
            "same_trace": cell.same_trace,
            "redrawn": cell.redrawn,
            "failed": {"a": cell.failed_a, "b": cell.failed_b},
            "metrics": {compared.column.metric: numbers(compared) for compared in cell.metrics},
        }
        for cell in comparison.cells
    ]
    return {
        "headline": headline(comparison),
        "users": comparison.users,
        "a": side("a"),
        "b": side("b"),
        "cells": cells,
        "cells_only_in_a": comparison.only_a,
        "cells_only_in_b": comparison.only_b,
        "differing": {name: {"a": x, "b": y} for name, (x, y) in comparison.differing.items()},
    }


def show(comparison: Comparison, fail_above: float | None = None) -> None:
    """Print which side is better, the table, and the notes under it."""
    from reports.comparison.headline import headline

    console = wide(120)
    console.print(f"{headline(comparison)}\n", highlight=False, soft_wrap=True, style="bold", markup=False)
    console.print(_table(comparison, fail_above))
    tell(console, _notes(comparison))


def _table(comparison: Comparison, fail_above: float | None) -> RenderableType:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    axes = list(dict.fromkeys(name for cell in comparison.cells for name in cell.settings))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.title = f"A: {comparison.a.name}\nB: {comparison.b.name}"
    table.title_justify = table.caption_justify = "left"
    if any(len(cell.seeds) > 1 for cell in comparison.cells):
        table.caption = "median over the common seeds (lowest–highest); B/A seed by seed"
    for heading in ("engine", *axes, "metric"):
        table.add_column(heading, no_wrap=True)
    for heading in ("A", "B", "B/A"):
        table.add_column(heading, justify="right")
    table.add_column("", no_wrap=True)
    for cell in comparison.cells:
        _rows(table, cell, axes, fail_above)
    return table


def _rows(table: Any, cell: Cell, axes: list[str], fail_above: float | None) -> None:
    from rich.text import Text

    from reports.comparison.compare import is_worse
    from reports.tables.columns import MISSING, RATIO

    table.add_section()
    opening = [cell.engine, *(short(cell.settings[axis]) if axis in cell.settings else MISSING for axis in axes)]
    for compared in cell.metrics:
        column = compared.column
        spreads = (column, compared.a), (column, compared.b), (RATIO, compared.ratio)
        lacking = [("A", compared.a.missing), ("B", compared.b.missing)]
        note = ", ".join(f"{name} lacks {counted(n, 'seed')}" for name, n in lacking if n)
        worse = fail_above is not None and cell.comparable and is_worse(compared, fail_above)
        table.add_row(
            *opening,
            column.title,
            *(_spread(shown, spread) for shown, spread in spreads),
            Text("worse", "bold red") if worse else Text(note if cell.comparable else "other trace", "yellow"),
        )
        opening = [""] * len(opening)


def _spread(column: Column, spread: Spread) -> str:
    range_ = column.range(spread).replace(" to ", "–")
    return column.text(spread.median) + (f" ({range_})" if range_ else "")


def _notes(comparison: Comparison) -> list[str]:
    notes = [comparison.users] if comparison.users else []
    other = len(comparison.cells) - len(comparison.judged)
    if other:
        notes.append(
            f"other trace: in {other} of {len(comparison.cells)} cells A and B did not serve the same users, so "
            "these numbers differ for that reason too, and are never judged."
        )
    failed = sum(cell.failed_a for cell in comparison.cells), sum(cell.failed_b for cell in comparison.cells)
    if any(failed):
        notes.append(f"failed points: {failed[0]} in A, {failed[1]} in B.")
    if comparison.only_a or comparison.only_b:
        notes.append(f"not compared: {comparison.only_a} cells only in A, {comparison.only_b} only in B.")
    if comparison.differing:
        listed = "; ".join(f"{name}: {a} in A, {b} in B" for name, (a, b) in comparison.differing.items())
        notes.append(f"A and B also differ in {listed}.")
    return notes
