"""What a server said of its own latencies beside what its users measured, as a table."""

from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.metrics.server_side import Both, both_sides
from reports.live.live_record import loads
from reports.runs.measured import Measured, Run, load_run
from reports.tables.columns import MISSING

NAMES = {"ttft": "TTFT", "itl": "time between tokens", "tpot": "the same, mean of a reply"}
HEADINGS = (
    ("latency", ""),
    ("client P50", "ms"),
    ("server P50", "ms"),
    ("in its bucket", "ms"),
    ("difference", "of the P50"),
    ("client mean", "ms"),
    ("server mean", "ms"),
    ("n", "client / server"),
)


def sides_of(point: Measured) -> list[Both]:
    """Empty where nothing was scraped, or the server does not tell its latencies."""
    if not point.has("scrape") or not point.has("requests"):
        return []
    text = point.kinds("first_text", "text")
    return both_sides(point.record.table("scrape"), point.record.table("requests"), text)


def text_rows(run: Run) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Headings, each with its unit, and a row for each latency of each point that was scraped; no rows: none was."""
    rows = []
    for load in loads(run):
        for point in load.points:
            for both in sides_of(point):
                label = load.label(run) or load.variant.label
                more = f", seed {point.seed}" if len(load.points) > 1 else ""
                rows.append([f"{label}{more}", *_texts(both)])
    return [("load", ""), *HEADINGS], rows


def sides_table(folder: Path) -> Table | None:
    """For a terminal; None where the run in `folder` has nothing to show."""
    headings, rows = text_rows(load_run(folder))
    if not rows:
        return None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.title, table.title_justify = (
        "what the server says of itself, beside what its users measured",
        "left",
    )
    for index, (heading, unit) in enumerate(headings):
        table.add_column(f"{heading}\n{unit}", justify="left" if index < 2 else "right")
    for row in rows:
        table.add_row(*row)
    return table


def section(run: Run) -> dict[str, Any] | None:
    """The same for a page."""
    headings, rows = text_rows(run)
    return {"headings": headings, "rows": rows} if rows else None


def _texts(both: Both) -> list[str]:
    low, high = both.within
    counts = f"{both.client_n:,}" if both.same else f"{both.client_n:,} / {both.server_n:,}"
    return [
        NAMES[both.name],
        _ms(both.client_p50_s),
        _ms(both.server_p50_s),
        f"{1e3 * low:.4g} to {1e3 * high:.4g}",
        f"{100 * both.difference:+.1f} %",
        _ms(both.client_mean_s),
        MISSING if both.server_mean_s is None else _ms(both.server_mean_s),
        counts,
    ]


def _ms(value_s: float) -> str:
    return f"{1e3 * value_s:.2f}"
