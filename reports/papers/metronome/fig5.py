"""Fig. 5: the trigger in the act: the pool fills, the scheduler runs nothing, everybody waits."""

from collections.abc import Mapping
from typing import Any

from reports.claims import Claim, Quantity, of, value
from reports.figures.frames import Curve, finished, running, waiting
from reports.figures.picture import LeftOut, Picture
from reports.figures.pool import pool_and_queue
from reports.measured import Measured, Run
from reports.papers.metronome import common
from reports.papers.metronome.common import BASELINE, OURS, PAIR
from reports.style import engine_looks

TITLE = "Fig. 5: the KV pool and the scheduler's queue at 128 sessions"

_PANEL = "N = 128"
EXPERIMENTS = {_PANEL: common.calls("fig5", PAIR, sessions=128)}
QUICK = common.QUICK

PAPER = {"windowed": 0.25}

_UNBOUNDED, _WINDOWED = of(_PANEL, BASELINE), of(_PANEL, OURS)


def at_the_end(count: Curve) -> Quantity:
    """The mean of a count over the last tenth of the run."""

    def quantity(point: Measured) -> float | None:
        found = count(point)
        late = found.index.to_numpy() >= 0.9 * point.params["duration_s"]
        return float(found.to_numpy()[late].mean())

    return quantity


_ONE_BY_ONE = (
    "with these shares of input and output decode meets the full pool too, and sessions fall silent in turn"
)
CLAIMS = [
    Claim(
        id="fig5-full",
        text="unbounded KV climbs to the pool's capacity (peak)",
        paper=1.0,
        measure=value("pool_peak", _UNBOUNDED),
        tolerance=0.005,
        unit="%",
        explanation="vLLM stops short of the last blocks when no waiting request fits in them",
    ),
    Claim(
        id="fig5-plateau",
        text="windowed KV plateaus at roughly a quarter of the pool",
        paper=0.25,
        paper_text="about 1/4",
        measure=value("pool_plateau", _WINDOWED),
        tolerance=0.02,
        unit="%",
        explanation="64 to 66 blocks of 16 tokens for each session of 1,024",
    ),
    Claim(
        id="fig5-running",
        text="nothing runs after saturation (requests running, last tenth of the run)",
        paper=0.0,
        measure=value(at_the_end(running), _UNBOUNDED),
        tolerance=0.5,
        explanation=_ONE_BY_ONE,
    ),
    Claim(
        id="fig5-waiting",
        text="all 128 sessions wait (last tenth of the run)",
        paper=128.0,
        measure=value(at_the_end(waiting), _UNBOUNDED),
        tolerance=6.0,
        neutral=0,
        explanation=_ONE_BY_ONE,
    ),
    Claim(
        id="fig5-preempted",
        text="windowed KV never approaches saturation (peak of the pool)",
        paper=(0.2, 0.35),
        paper_text="far below 1",
        measure=value("pool_peak", _WINDOWED),
        tolerance=0.05,
        unit="%",
        neutral=1,
        explanation="the plateau is the peak: sessions that pause keep what they have",
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """One run of each policy."""
    series = {
        engine: (finished(of(_PANEL, engine).points(panels))[:1], look)
        for engine, look in engine_looks(*PAIR).items()
    }
    return pool_and_queue(TITLE, series)
