"""Table 2 and Fig. 8, quality: what the model answers under each bound when it decodes freely.

The row of the sink kernel with its sinks off is left out: without sinks vLLM's own attention runs here.
"""

from typing import Any

import numpy as np

from harness.metrics.quality import shares
from reports.claims.bands import of_digits, of_share
from reports.claims.claim import Claim
from reports.claims.quantities import Panels, of, value
from reports.claims.stated import claim, level, merged
from reports.figures.drawing import in_per_cent
from reports.figures.forms import bars, picture
from reports.figures.frames import finished
from reports.figures.style import engine_looks
from reports.papers.metronome import probe
from reports.papers.metronome.calls import BASELINE, OURS
from reports.runs.measured import Measured

TITLE = "Table 2 and Fig. 8: answers under each bound, free-running (N = 32, 300 s)"

NEEDS, GIVE = probe.NEEDS, probe.GIVE

SESSIONS = 32  # each is asked a question once; a range has the error of its segments in it
UNBOUNDED = "unbounded"
PAPER: dict[str, tuple[tuple[int, int] | None, float | tuple[float, float], float]] = {
    UNBOUNDED: (None, (0.23, 0.27), 0.26),
    "512, 0": ((512, 0), 0.03, 0.07),
    "1024, 0": ((1024, 0), (0.0, 0.08), 0.06),
    "2048, 0": ((2048, 0), 0.0, 0.0),
    "1024, 16": ((1024, 16), (0.38, 0.57), 0.45),
    "1024, 32": ((1024, 32), (0.33, 0.45), 0.21),
    "1024, 42": ((1024, 42), (0.20, 0.32), 0.21),
    "1024, 58": ((1024, 58), (0.25, 0.37), 0.18),
    "1024, 64": ((1024, 64), 0.07, 0.08),
    "512, 32": ((512, 32), 0.0, 0.0),
    "2048, 32": ((2048, 32), (0.40, 0.57), 0.42),
}
"""Row -> (W, S), share of sessions that answers the question playing at ages 30 to 240 s, and the fresh question."""
DECAYS = ("512, 0", "1024, 0", "2048, 0", "1024, 64", "512, 32")
"""Rows whose end the paper states, not their plateau."""
DRAWN = (UNBOUNDED, "512, 0", "1024, 0", "2048, 0", "1024, 32")
"""Rows that Fig. 8 shows."""

EXPERIMENTS = {
    row: probe.probe("table2-quality", [BASELINE])
    if bound is None
    else probe.probe("table2-quality", [OURS], window=bound[0], sinks=bound[1])
    for row, (bound, *_) in PAPER.items()
}
QUICK = {"sessions": "4", "segments": "5", "segment_s": "10"}


def _claims(row: str) -> dict[str, Claim]:
    _, mid, fresh = PAPER[row]
    key = row.replace(", ", "-")
    label = "no bound" if row == UNBOUNDED else f"(W, S) = ({row})"
    playing, end = "sessions that answer the question playing, ages 30 to 240 s", " in the end"
    return {
        f"table2-quality-mid-{key}": claim(
            f"{label}: {playing}{end if row in DECAYS else ''}",
            level(mid, "%", within=of_digits(0.01) if isinstance(mid, tuple) else of_share(mid, SESSIONS)),
            value("answered_mid_end" if row in DECAYS else "answered_mid_call", of(row)),
        ),
        f"table2-quality-fresh-{key}": claim(
            f"{label}: sessions that answer the fresh question at 240 to 270 s",
            level(fresh, "%", within=of_share(fresh, SESSIONS)),
            value("answered_fresh", of(row)),
        ),
    }


CLAIMS = merged(map(_claims, PAPER))


def by_age(point: Measured) -> tuple[np.ndarray, np.ndarray]:
    """Session age at the middle of each segment in which a question played, s; share of sessions that answered it."""
    answers = point.record.table("answers")
    segments, share = shares(answers.loc[answers["kind"] == "question"])
    return (segments + 0.5) * point.params["segment_s"], share


def _points(panels: Panels) -> list[Measured]:
    return [point for row in DRAWN for point in of(row).points(panels) if finished(of(row).points(panels))]


@picture(TITLE, 2, points=_points, paper="paper", bars=True)
def draw(panels: Panels, left: Any, right: Any) -> str:
    """Left: the question playing, by session age. Right: the fresh question and the recall."""
    rows = [row for row in DRAWN if finished(of(row).points(panels))]
    for row, look in engine_looks(*rows).items():
        aged = [by_age(point) for point in finished(of(row).points(panels))]
        share = np.mean([answered for _, answered in aged], axis=0)
        left.plot(aged[0][0], share, **look.stroke, marker=look.marker, label=row)
    left.set(xlabel="session age, s", ylabel="sessions that answer the question playing")
    in_per_cent(left)
    asked = {"fresh question": "answered_fresh", "recall": "answered_recall"}
    series = {row: {name: value(metric, of(row)) for name, metric in asked.items()} for row in rows}
    marks = {row: {"fresh question": PAPER[row][2]} for row in rows}
    bars(None, series, marks=marks, ylabel="sessions", percent=(0, 1)).fill(right, panels, {})
    return (
        "W, S of each line: the recent and the first tokens that a session keeps. An answer counts if "
        "the session says one of the question's keywords while it plays; a correct recall states one "
        "of the first question's keywords."
    )
