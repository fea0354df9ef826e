"""Section 5.5: on MiniCPM-o the coin flip becomes certainty: its pool is full after a fifth of the call."""

from reports.claims.quantities import of, tally, value
from reports.claims.stated import claim, level
from reports.figures.dashboard import views
from reports.figures.style import engine_looks
from reports.papers.metronome.calls import BASELINE, HALF, MINICPM_CALL, OURS, PAIR, calls
from reports.papers.metronome.measures import FEW_MS, STEP_CALL, worst_bucket

TITLE = "Section 5.5: MiniCPM-o 4.5, frames of 1 s, ten minutes"

_PANEL = "MiniCPM-o 4.5"
EXPERIMENTS = {_PANEL: calls("section5-5", PAIR, **MINICPM_CALL)}
QUICK = HALF

_UNBOUNDED, _WINDOWED = of(_PANEL, BASELINE), of(_PANEL, OURS)

CLAIMS = {
    "section5-5-wall": claim(
        "every unbounded run stalls",
        level(1.0, "%", words="certain"),
        tally("wall", _UNBOUNDED),
        fitted="N and the tokens of a frame were chosen for a wall after a fifth of the call",
    ),
    "section5-5-hard": claim(
        "it is a hard stall: nothing runs and every due frame is empty",
        level(1.0, "%", words="a hard stall"),
        tally("hard_stall", _UNBOUNDED),
        "decode meets the full pool too, and sessions fall silent one by one (Fig. 1 by tokens said)",
    ),
    "section5-5-windowed": claim(
        "windowed KV holds single-digit-millisecond medians for the full ten minutes (highest 10 s median)",
        level(FEW_MS, "ms", words="single-digit"),
        value(worst_bucket, _WINDOWED),
        fitted=STEP_CALL,
    ),
}

draw = views(TITLE, {"": {BASELINE: [_UNBOUNDED], OURS: [_WINDOWED]}}, engine_looks(*PAIR))
