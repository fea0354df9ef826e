"""The report's tables as plain data, from a run: the template only lays them out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from harness.metrics.stats import MIN_FOR_INTERVAL, Spread, across_seeds, paired, share
from harness.metrics.vocabulary import definition
from reports.claims.published import Published
from reports.figures.headline import answer_looks
from reports.figures.style import looks
from reports.runs import measured
from reports.runs.answer import ALIKE, Answer
from reports.runs.measured import Measured, Run, Variant, by_seed, events, over_seeds
from reports.tables.columns import CLASSES, COMPLETED, FEW, MISSING, Column, class_names, column_for, legend, of_class
from reports.tables.labels import counted, setting, short


def variants(run: Run) -> list[dict[str, str]]:
    """Name and colour of each, the baseline first; by position in this list the tables refer to them."""
    return [{"label": variant.label, "colour": look.colour} for variant, look in looks(run.variants).items()]


def headline(run: Run, columns: Sequence[Column]) -> list[dict[str, Any]]:
    """A group of rows for each cell of the grid, a row for each variant: median over seeds, and range."""

    def row(points: Sequence[Measured]) -> Iterator[dict[str, Any]]:
        values = [_value(column, measured.shown(points)) for column in columns]
        ok = sum(point.error is None for point in points)
        invalid = any(point.record.invalid for point in points)
        yield {"values": values, "ok": ok, "points": len(points), "invalid": invalid}

    return _grouped(run, row)


def _grouped(run: Run, rows: Callable[[Sequence[Measured]], Iterable[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return a group for each cell of the grid, with the `rows` of each variant that has points there."""
    return [
        {
            "cell": [short(value) for _, value in cell],
            "rows": [
                {"variant": index, **row}
                for index, variant in enumerate(run.variants)
                if (points := run.at(variant, cell))
                for row in rows(points)
            ],
        }
        for cell in run.cells
    ]


def _value(column: Column, points: Sequence[Measured]) -> dict[str, Any]:
    """Return median over seeds, range, and n of the run with the fewest events; a tally has them in its text."""
    median, range_ = column.over(by_seed(points, column.metric))
    n = None if column.tally else events(points, column.metric)
    return {"median": median + column.few(n), "range": range_, "n": n}


def classes(run: Run) -> list[dict[str, Any]]:
    """Return for each cell and variant a row for each class, the most urgent first; empty without classes."""
    names = class_names(point.values for point in run.points)

    def rows(points: Sequence[Measured]) -> Iterator[dict[str, Any]]:
        for name in names:
            values = [_value(column, points) for column in of_class(name, CLASSES)]
            yield {"class": name, "first": name == names[0], "values": values}

    return _grouped(run, rows) if names else []


NOTICED: Mapping[str, tuple[tuple[Column | None, str], ...]] = {
    "delays": (
        (None, "end_of_turn_delay"),
        (Column("ttfp_in_target", "within 2 s", "% of turns", 100, 1), "audio_ttfp"),
    ),
    "gaps": ((Column("continuity", "no pause above 100 ms", "% of replies", 100, 1), "max_gap"),),
    "silences": (
        (Column("failed_share", "failed or without sound", "% of turns", 100, 1), ""),
        (Column("failed", "failed", "turns", 1, 0), ""),
    ),
    "barge-ins": (
        (Column("interruption_recall", "heeded", "% of interruptions", 100, 1), "stop"),
        (Column("barge_in_rate", "cut short by the caller", "% of replies", 100, 1), ""),
    ),
}
"""Events that callers notice -> share or count, and times in s. The first choice is shown that a run has measured."""


def noticed(run: Run) -> dict[str, Any] | None:
    """Return for each cell and variant of a run with spoken replies a row for each of `NOTICED`; None for other
    runs."""
    tail = "p95" if run.duplex else "p90"
    names = {name for point in run.points for name, value in point.kept.items() if value is not None}
    if names.isdisjoint(("audio_ttfp_p50", "end_of_turn_delay_p50")):
        return None
    by_row: dict[str, list[Column | None]] = {}
    for what, choices in NOTICED.items():
        for measure, family in choices:
            times = [column_for(f"{family}_{each}") for each in ("p50", tail)]
            shown = [column if column and column.metric in names else None for column in (measure, *times)]
            if what not in by_row and any(shown):
                by_row[what] = shown

    def rows(points: Sequence[Measured]) -> Iterator[dict[str, Any]]:
        for what, shown in by_row.items():
            values = [_value(column, measured.shown(points)) if column else _NO_VALUE for column in shown]
            yield {"what": what, "measure": shown[0], "values": values, "first": what == next(iter(by_row))}

    headings = (("share or count", ""), ("P50", "ms"), (tail.upper(), "ms"))
    return {
        "columns": [Column("", heading, unit, 1, 0) for heading, unit in headings],
        "groups": _grouped(run, rows),
        "few": legend(column for shown in by_row.values() for column in shown if column),
    }


_NO_VALUE = {"median": MISSING, "range": "", "n": None}


def tiles(run: Run, answer: Answer, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the first results at the setting of the answer: a tile for each metric in which the variants differ, and
    the names of the metrics in which they do not."""
    shown_tiles, alike = [], []
    for column in columns:
        values = {label: answer.by_seed(label, column.metric) for label in answer.named}
        first = column.first or column.metric == answer.column.metric
        if run.live and answer.load == "c" and column.metric == COMPLETED:
            continue  # c callers complete what they were set to ask: a load, and no result
        if not first or any(value is None for each in values.values() for value in each.values()):
            continue
        if column.metric != answer.column.metric and len(values) > 1 and _alike(column, values):
            alike.append(column.heading)
            continue
        n = {label: None if column.tally else answer.events(label, column.metric) for label in values}
        shown_tiles.append(
            {
                "column": column,
                "values": [
                    {"label": label, "text": column.over(each)[0] + column.few(n[label]), "n": n[label]}
                    for label, each in values.items()
                ],
                "better": definition(column.metric).better,
            }
        )
    few = any(value["text"].endswith(FEW) for tile in shown_tiles for value in tile["values"])
    colours = {label: look.colour for label, look in answer_looks(run, answer).items()}
    return {
        "where": setting(answer.fixed),
        "seeds": counted(len(answer.seeds), "seed"),
        "tiles": shown_tiles,
        "alike": alike,
        "colours": colours,
        "few": legend([tile["column"] for tile in shown_tiles]) if few else "",
    }


def _alike(column: Column, values: Mapping[str, Mapping[int, float | None]]) -> bool:
    if column.tally:
        return len({column.over(each)[0] for each in values.values()}) == 1
    medians = [across_seeds(each).median or 0.0 for each in values.values()]
    return max(medians) - min(medians) <= ALIKE * max(map(abs, medians))


def failures(run: Run, before: str = "") -> list[dict[str, str]]:
    """Each failed point with its reason and its log, as a path from the report. `before`: begins the label."""
    return [
        {
            "label": f"{before}{point.point.label}",
            "reason": "the verdict gives the reason"
            if point.record.metrics and point.point.device == "live"
            else point.error or "",
            "log": f"points/{point.record.folder.name}/log.txt",
        }
        for point in run.failed
    ]


def comparison(run: Run, columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Compare each variant with the first one: per cell, the difference and ratio of each column, paired by seed."""
    baseline = run.variants[0]
    groups = []
    for index, variant in enumerate(run.variants[1:], start=1):
        rows = []
        for cell in run.cells:
            before, after = run.at(baseline, cell), run.at(variant, cell)
            if before and after:
                values = [_compared(column, before, after) for column in columns]
                rows.append({"cell": [short(value) for _, value in cell], "values": values})
        if rows:
            groups.append({"variant": index, "rows": rows})
    return groups


def published(
    run: Run, paper: Sequence[Published], read_off: Mapping[str, Mapping[Variant, float]]
) -> list[dict[str, Any]]:
    """The paper's numbers and ours for the same question; nothing when none of ours answers any."""
    rows: list[dict[str, Any]] = []
    answered = False
    for entry in paper:
        mine = ours(entry, run, read_off)
        answered |= any(value is not None for value in mine.values())
        column = column_for(entry.quantity)
        rows.append(
            {
                "entry": entry,
                "column": column,
                "setting": setting(entry.setting),
                "paper": [column.text(entry.values.get(variant.engine)) for variant in run.variants],
                "ours": [column.text(mine[variant]) for variant in run.variants],
            }
        )
    return rows if answered else []


def _compared(column: Column, before: Sequence[Measured], after: Sequence[Measured]) -> dict[str, str]:
    if column.tally:
        return _tallied(column, before, after)
    result = paired(by_seed(before, column.metric), by_seed(after, column.metric))
    difference = result.difference
    if difference.median is None:
        return {"difference": MISSING, "interval": "", "ratio": "", "verdict": ""}
    ratio = f"× {result.ratio.median:.2f}" if result.ratio.median is not None else ""
    if result.ratio.interval is not None:
        ratio += " ({:.2f} to {:.2f})".format(*result.ratio.interval)
    interval = column.interval(*difference.interval, sign="+") if difference.interval else ""
    n = [column.few(events(points, column.metric)) for points in (before, after)]
    return {
        "difference": column.text(difference.median, "+") + max(n),
        "interval": interval,
        "ratio": ratio,
        "verdict": _verdict(column, difference),
    }


def _tallied(column: Column, before: Sequence[Measured], after: Sequence[Measured]) -> dict[str, str]:
    """Return k of n next to k of n; better or worse if Wilson's intervals do not overlap."""
    first, second = (by_seed(points, column.metric) for points in (before, after))
    one, other = share(first).interval, share(second).interval
    verdict = ""
    if one is not None and other is not None and (other[1] < one[0] or one[1] < other[0]):
        fewer = other[1] < one[0]
        verdict = "better" if fewer == (definition(column.metric).better == "lower") else "worse"
    text = f"{column.over(second)[0]}, not {column.over(first)[0]}" if one and other else MISSING
    return {"difference": text, "interval": "", "ratio": "", "verdict": verdict}


def _verdict(column: Column, difference: Spread) -> str:
    """Return "better" or "worse" if the interval, rounded as shown, excludes zero; else ""."""
    direction = definition(column.metric).better
    if difference.n < MIN_FOR_INTERVAL or difference.interval is None or direction is None:
        return ""
    low, high = map(column.rounded, difference.interval)
    if low <= 0 <= high:
        return ""
    return "better" if (high < 0) == (direction == "lower") else "worse"


def ours(entry: Published, run: Run, read_off: Mapping[str, Mapping[Variant, float]]) -> dict[Variant, float | None]:
    """Return our median over seeds for each variant; None if the run has no such point. `read_off`: numbers from
    pictures: name -> variant -> value."""
    if entry.quantity in read_off:
        return {variant: read_off[entry.quantity].get(variant) for variant in run.variants}
    return {variant: _median(entry, run, variant) for variant in run.variants}


def _median(entry: Published, run: Run, variant: Variant) -> float | None:
    cells = (run.at(variant, cell, **entry.setting) for cell in run.cells)
    medians = [over_seeds(points, entry.quantity).median for points in cells]
    values = [value for value in medians if value is not None]
    if not values:
        return None
    return max(values) if entry.largest else median(values)
