"""Section 5.4, turn-based decoding: the window alone costs no quality."""

from reports.claims import Claim, unmeasured
from reports.papers.metronome.common import PROBE

TITLE = "Section 5.4: answers in turn-based decoding, unbounded and windowed (N = 96, 75 s)"

NEEDS = PROBE
EXPERIMENTS = {}
QUICK = {}

PAPER = {
    "vllm_realtime": (1.0, 0.70),
    "metronome": (1.0, 0.68),
}  # sessions that state the answer; frames that are right


def _claim(engine: str, index: int, what: str, key: str, tolerance: float) -> Claim:
    return Claim(
        id=f"turn-based-{key}-{engine}",
        text=f"{engine}: {what}",
        paper=PAPER[engine][index],
        measure=unmeasured,
        tolerance=tolerance,
        unit="%",
    )


CLAIMS = [
    claim
    for engine in PAPER
    for claim in (
        _claim(engine, 0, "sessions that state the answer to their question (96 of 96)", "sessions", 0.0),
        _claim(engine, 1, "frames whose answer is right", "frames", 0.05),
    )
]
