"""Table 2 and Fig. 8, quality: what the model answers under each bound when it decodes freely."""

from reports.claims import Claim, unmeasured
from reports.papers.metronome.common import PROBE

TITLE = "Table 2 and Fig. 8: answers under each bound, free-running (N = 32, 300 s)"

NEEDS = PROBE
EXPERIMENTS = {}
QUICK = {}

PAPER = {  # (W, S) -> share that answers the question playing, ages 30 to 240 s; and the fresh question at 240 to 270 s
    "unbounded": ((0.23, 0.27), 0.26),
    "512, 0": (0.03, 0.07),
    "1024, 0": ((0.0, 0.08), 0.06),
    "2048, 0": (0.0, 0.0),
    "1024, 0 (sink kernel)": (0.0, 0.0),
    "1024, 16": ((0.38, 0.57), 0.45),
    "1024, 32": ((0.33, 0.45), 0.21),
    "1024, 42": ((0.20, 0.32), 0.21),
    "1024, 58": ((0.25, 0.37), 0.18),
    "1024, 64": (0.07, 0.08),
    "512, 32": (0.0, 0.0),
    "2048, 32": ((0.40, 0.57), 0.42),
}


def _claim(row: str, index: int, what: str, key: str) -> Claim:
    return Claim(
        id="table2-quality-"
        + key
        + "-"
        + row.replace(", ", "-").replace(" (", "-").replace(")", "").replace(" ", "-"),
        text=f"(W, S) = ({row}): {what}" if row != "unbounded" else f"unbounded: {what}",
        paper=PAPER[row][index],
        measure=unmeasured,
        tolerance=0.05,
        unit="%",
    )


CLAIMS = [
    claim
    for row in PAPER
    for claim in (
        _claim(row, 0, "sessions that answer the question playing, ages 30 to 240 s", "mid"),
        _claim(row, 1, "sessions that answer the fresh question at 240 to 270 s", "fresh"),
    )
]
