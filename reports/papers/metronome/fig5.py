"""Fig. 5: the trigger: the pool fills, the scheduler runs nothing, all sessions wait."""

from reports.claims.quantities import Panels, Quantity, of, ratio, value
from reports.claims.stated import claim, level, same
from reports.figures.dashboard import runs_of
from reports.figures.frames import Curve, median_run, running
from reports.figures.picture import LeftOut, Picture
from reports.figures.pool import pool_and_queue
from reports.figures.style import engine_looks
from reports.papers.metronome.calls import BASELINE, HALF, OURS, PAIR, STILL, calls
from reports.runs.measured import Measured

TITLE = "Fig. 5: the KV pool and the scheduler's queue at 128 sessions"

_PANEL, _STILL = "N = 128", "N = 128, steps without spread"
EXPERIMENTS = {_PANEL: calls("fig5", PAIR, sessions=128), _STILL: calls("fig5", [BASELINE], sessions=128, **STILL)}
QUICK = HALF

_UNBOUNDED, _WINDOWED = of(_PANEL, BASELINE), of(_PANEL, OURS)


def at_the_end(count: Curve) -> Quantity:
    """The mean of a count over the last tenth of the run."""

    def quantity(point: Measured) -> float | None:
        counts = count(point)
        late = counts.index.to_numpy() >= 0.9 * point.params["duration_s"]
        return float(counts.to_numpy()[late].mean())

    return quantity


_ONE_BY_ONE = "decode meets the full pool too, and sessions fall silent one by one (Fig. 1 by tokens said)"
CLAIMS = {
    "fig5-full": claim(
        "unbounded KV climbs to the pool's capacity (peak)",
        level(1.0, "%", within=0.005, words="to capacity"),
        value("pool_peak", _UNBOUNDED),
        "vLLM stops short of the last blocks when no waiting request fits in them",
        fitted="the tokens of a frame fill it in 148 s (Fig. 6a)",
    ),
    "fig5-plateau": claim(
        "windowed KV plateaus at roughly a quarter of the pool",
        level(0.25, "%", within=0.02, words="roughly a quarter"),
        value("pool_plateau", _WINDOWED),
        fitted="64 to 66 blocks for each session, in a pool whose size was derived from such shares (Table 2)",
    ),
    "fig5-running": claim(
        "nothing runs after saturation (requests running, last tenth of the run)",
        level(0.0, within=0.5, words="zero"),
        value(at_the_end(running), _UNBOUNDED),
        _ONE_BY_ONE,
    ),
    "fig5-spread": claim(
        "(ours) the pool is full at the same time if steps have no spread (over that with 0.7 %)",
        same(0.02),
        ratio("saturation_measured_s", of(_STILL, BASELINE), to=_UNBOUNDED),
        "tokens fill the pool, and longer steps delay them by less than a frame",
    ),
}


def draw(panels: Panels) -> Picture | LeftOut:
    """The median run of each policy."""
    settings = {BASELINE: [_UNBOUNDED], OURS: [_WINDOWED]}
    return pool_and_queue(TITLE, runs_of(panels, settings, engine_looks(*PAIR), median_run))
