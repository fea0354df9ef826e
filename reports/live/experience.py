"""A voice report under the headings of ITU-T P.804 (10/2017): listening, speaking, and interacting.

P.804 has people rate each of these phases of a conversation apart. What is measured here is laid out by the phase that
it would be noticed in; nobody rated anything, and nothing is put into one number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.metrics.experience import G114_S, HUMAN_GAP_S, LONG_GAP_S, Gaps, gaps
from reports.figures.picture import short
from reports.runs.measured import Measured, Run, by_seed
from reports.tables.columns import MISSING, Column

LISTENING = (
    Column("continuity", "no pause > 100 ms", "% of replies", 100, 1),
    Column("continuity_250ms", "no pause > 250 ms", "% of replies", 100, 1),
    Column("continuity_500ms", "no pause > 500 ms", "% of replies", 100, 1),
    Column("max_gap_p50", "longest pause P50", "ms", 1000, 0),
    Column("max_gap_p90", "longest pause P90", "ms", 1000, 0),
    Column("rtf_gen_p50", "RTF P50", "without TTFP", 1, 2),
)
SPEAKING = (
    Column("cut_in", "cut in on", "% of turns", 100, 1),
    Column("takeover", "taken over in a hesitation", "% of those", 100, 1),
    Column("talk_over_share", "talked over", "% of speech", 100, 1),
    Column("interruption_recall", "interruptions heeded", "%", 100, 1),
    Column("stop_p50", "silent after P50", "ms", 1000, 0),
    Column("false_interruption", "silenced by nothing", "%", 100, 1),
    Column("barge_in_missed_rate", "interruptions too late", "% of turns", 100, 1),
)
GAP_HEADINGS = (
    ("gap P50", "ms"),
    ("gap P90", "ms"),
    ("gap P95", "ms"),
    (f"above {1e3 * LONG_GAP_S:.0f} ms", "% of turns"),
    ("as one-way delay, P50", "ms"),
    (f"within {1e3 * G114_S[0]:.0f} ms", "% of turns"),
    (f"within {1e3 * G114_S[1]:.0f} ms", "% of turns"),
    ("n", "turns"),
)
NOTES = {
    "listening": "While the agent speaks: whether its speech goes on. How it sounds is not judged.",
    "speaking": "While the caller speaks: whether the agent lets them. A dash where nobody tried.",
    "interacting": (
        "From one to the other. As one-way delay: a gap is heard as somebody who answers after "
        f"{1e3 * HUMAN_GAP_S:.0f} ms, as people do (Stivers et al., PNAS 106, 2009), over a line that delays by half "
        "of the rest each way; below 0, an agent is faster than people. ITU-T G.114 (05/2003) finds most uses "
        "unaffected up to 150 ms, and wants no network planned for more than 400 ms. A turn that failed counts as "
        "beyond both. This is the only mapping; there is no score."
    ),
}
SOURCE = "ITU-T P.804 (10/2017), Subjective diagnostic test method for conversational speech quality analysis"


@dataclass(frozen=True)
class Phase:
    """A heading, what is under it, and the table: headings with units, rows of texts after axes and variant."""

    name: str
    note: str
    headings: Sequence[tuple[str, str]]
    rows: Sequence[dict[str, Any]]


def experience(run: Run) -> dict[str, Any] | None:
    """The phases of a run in which somebody heard speech; None of another."""
    groups = _groups(run)
    if not any(
        point.value("audio_ttfp_p50") is not None or _duplex(point)
        for _, points in groups
        for point in points
    ):
        return None
    phases = [
        _measured("listening", LISTENING, groups),
        _measured("speaking", SPEAKING, groups),
        Phase(
            "interacting",
            NOTES["interacting"],
            GAP_HEADINGS,
            [{**who, "texts": _gap_texts(points)} for who, points in groups],
        ),
    ]
    return {"phases": [phase for phase in phases if phase is not None], "source": SOURCE}


def _groups(run: Run) -> list[tuple[dict[str, Any], list[Measured]]]:
    found = []
    for cell in run.cells:
        for index, variant in enumerate(run.variants):
            points = [point for point in run.at(variant) if point.cell == cell and point.error is None]
            if points:
                found.append(({"cell": [short(value) for _, value in cell], "variant": index}, points))
    return found


def _measured(
    name: str, known: Sequence[Column], groups: Sequence[tuple[dict[str, Any], list[Measured]]]
) -> Phase | None:
    """Of the columns those that some point has; None where none has any."""
    columns = [
        column
        for column in known
        if any(point.value(column.metric) is not None for _, points in groups for point in points)
    ]
    if not columns:
        return None
    rows = [
        {**who, "texts": [column.over(by_seed(points, column.metric))[0] for column in columns]}
        for who, points in groups
    ]
    return Phase(name, NOTES[name], [(column.heading, column.unit) for column in columns], rows)


def _gap_texts(points: Sequence[Measured]) -> list[str]:
    tables = [point.requests for point in points if point.has("requests")]
    found = gaps(pd.concat(tables, ignore_index=True)) if tables else None
    if found is None or not found.n:
        return [MISSING] * len(GAP_HEADINGS)
    return _texts(found)


def _texts(found: Gaps) -> list[str]:
    times = [found.p50_s, found.p90_s, found.p95_s]
    shares = [found.long, *found.within]
    said = [MISSING if share is None else f"{100 * share:.1f}" for share in shares]
    delay = MISSING if found.delay_p50_s is None else f"{1e3 * found.delay_p50_s:.0f}".replace("-", "−")
    return [
        *(MISSING if t is None else f"{1e3 * t:.0f}" for t in times),
        said[0],
        delay,
        *said[1:],
        str(found.n),
    ]


def _duplex(point: Measured) -> bool:
    return point.value("end_of_turn_delay_p50") is not None
