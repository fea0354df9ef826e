"""A voice agent's gap, part by part, as a table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from harness.voice_agents.gap import Gap, Row, as_heard, owners_of, rows_of
from harness.voice_agents.read import read_gaps
from reports.runs.measured import load_run
from reports.tables.columns import MISSING
from workloads.errors import UserError

COLUMN = "audio_ttfp_s"
"""Of the callers: from the end of speech to the first sound."""


@dataclass(frozen=True)
class Found:
    """`heard_s`: the callers' mean gap over `calls` turns; None: nobody's calls are beside."""

    agent: str
    gaps: Sequence[Gap]
    parts: Sequence[Row]
    heard_s: float | None = None
    calls: int = 0

    @property
    def mean_s(self) -> float:
        return float(np.mean([gap.total_s for gap in self.gaps]))

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self.parts]

    def as_dict(self) -> dict[str, Any]:
        whole_s = self.mean_s if self.heard_s is None else self.heard_s
        owners = dict(owners_of(self.parts))
        return {
            "agent": self.agent,
            "turns": len(self.gaps),
            "gap_mean_s": whole_s,
            "owners_s": owners,
            "parts": self.rows(),
        }


def gap_of(log: Path, beside: Path | None) -> Found:
    """UserError where the file has no turns, or the callers' gap is shorter than the agent's."""
    agent, gaps = read_gaps(log)
    if beside is None:
        return Found(agent, gaps, rows_of(gaps))
    heard = _heard(beside)
    try:
        parts = as_heard(gaps, float(heard.mean()))
    except ValueError as error:
        raise UserError(
            f"{log} and {beside} are not of the same calls: {error}; give those of one run."
        ) from None
    return Found(agent, gaps, parts, float(heard.mean()), heard.size)


def gap_table(found: Found) -> Group:
    """For a terminal: parts by owner, their sums, and the gap."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.title, table.title_justify = f"{len(found.gaps)} turns by {found.agent}: the gap in parts", "left"
    for heading in ("owner", "part"):
        table.add_column(heading)
    for heading in ("mean\nms", "P50\nms", "P90\nms", "share\n%", "n\nturns"):
        table.add_column(heading, justify="right")
    whole_s = found.mean_s if found.heard_s is None else found.heard_s
    owners = owners_of(found.parts)
    for owner, mean_s in owners.items():
        own = [row for row in found.parts if row.owner == owner]
        for row in own:
            values = [_ms(value) for value in (row.mean_s, row.p50_s, row.p90_s)]
            if owner == "way":
                values[1:] = [MISSING, MISSING]
            table.add_row(
                owner if row is own[0] else "", row.name, *values, _share(row.mean_s, whole_s), str(row.n)
            )
        if len(own) > 1:
            table.add_row(
                "", Text(f"all of {owner}", "bold"), _ms(mean_s), "", "", _share(mean_s, whole_s), ""
            )
        table.add_section()
    totals = [gap.total_s for gap in found.gaps]
    what = "the agent's own gap" if found.heard_s is not None else "the gap"
    p50, p90 = np.percentile(totals, [50, 90])
    table.add_row(
        "sum", what, _ms(found.mean_s), _ms(p50), _ms(p90), _share(found.mean_s, whole_s), str(len(totals))
    )
    notes = []
    if found.heard_s is not None:
        table.add_row(
            "", "the gap as callers heard it", _ms(found.heard_s), "", "", "100.0", str(found.calls)
        )
        if found.calls != len(totals):
            notes.append(
                f"The agent tells of {len(totals)} turns and the callers of {found.calls}: means of different turns."
            )
    return Group(table, *(Text(note) for note in notes))


def _heard(folder: Path) -> np.ndarray:
    """Every caller's gaps, s. UserError where there are none."""
    points = [point for point in load_run(folder).points if point.error is None and point.has("requests")]
    tables = [point.record.table("requests") for point in points]
    found = np.concatenate([table[COLUMN].to_numpy(float) for table in tables]) if tables else np.empty(0)
    known = found[~np.isnan(found)]
    if not known.size:
        raise UserError(
            f"{folder} has no reply that was heard; give the results of `rehearse live` of the same calls."
        )
    return known


def _ms(value_s: float) -> str:
    return f"{1e3 * value_s:,.0f}"


def _share(value_s: float, whole_s: float) -> str:
    return f"{100 * value_s / whole_s:.1f}" if whole_s else MISSING
