"""Fig. 7 and Section 5.3: one controller, two kinds of state: it converges on the bounded and over-admits on the other.

512 sessions are offered at 8 a second. The controller's signal is read in two ways: latencies of all frames, of which
sessions' first ones alone wait for real work, or steady ones only.
"""

from collections.abc import Mapping
from typing import Any

from reports.claims import Claim, of, ratio, tally, value
from reports.figures.admission import ramps
from reports.figures.picture import LeftOut, Picture
from reports.measured import Run
from reports.papers.metronome import common
from reports.papers.metronome.common import BASELINE, OURS, PAIR
from reports.style import engine_looks

TITLE = "Fig. 7: the same admission controller on bounded and on unbounded state"

_ALL, _STEADY = "signal: all frames", "signal: steady frames"
_RAMP: dict[str, Any] = {"sessions": 512, "rate": 8.0, "admission": "aimd"}
EXPERIMENTS = {
    _ALL: common.calls("fig7", PAIR, **_RAMP, signal="all", seeds=common.SEEDS[:3]),
    _STEADY: common.calls("fig7", PAIR, **_RAMP, signal="steady", seeds=common.SEEDS[:3]),
}
QUICK = {"duration_s": "64", "sessions": "480", "kv_pool_blocks": "6500", "window": "208"}

PAPER = {"N*": 209, "shed": 303, "steady p99": 0.012, "wall": 1.6}

_WINDOWED, _UNBOUNDED = of(_ALL, OURS), of(_ALL, BASELINE)
_TENSION = (
    "a first frame waits for its own encoding and prefill under either policy, so a signal of all frames stops both at "
    "the same place, long before memory matters; the paper's account of the unbounded arm needs a signal without them"
)


CLAIMS = [
    Claim(
        id="fig7-nstar",
        text="windowed: admission settles at N*",
        paper=209.0,
        measure=value("admitted", _WINDOWED),
        tolerance=20.0,
        calibrated="the cost of encoding a chunk (2.5 ms) was fitted to the first touch of this figure",
    ),
    Claim(
        id="fig7-shed",
        text="windowed: sessions turned away of 512",
        paper=303.0,
        measure=value("shed", _WINDOWED),
        tolerance=20.0,
        calibrated="what is not admitted is turned away: 512 less N*",
    ),
    Claim(
        id="fig7-steady",
        text="windowed: P99 latency once it has settled",
        paper=0.012,
        measure=value("steady_latency_p99", _WINDOWED),
        tolerance=0.006,
        unit="ms",
        explanation="the cost of a Step call was fitted at N = 96 and 128",
    ),
    Claim(
        id="fig7-no-wall",
        text="windowed: no run walls, whatever the signal",
        paper=0.0,
        paper_text="none",
        measure=tally("wall", _WINDOWED, of(_STEADY, OURS)),
        tolerance=0.0,
        unit="%",
        explanation="a steady signal lets in as many as the engine carries, and more",
    ),
    Claim(
        id="fig7-over-all",
        text="unbounded admits past N* (admitted over the windowed arm's, all frames)",
        paper=(1.1, 2.5),
        paper_text="far past",
        measure=ratio("admitted", _UNBOUNDED, to=_WINDOWED),
        tolerance=0.0,
        unit="×",
        neutral=1,
        explanation=_TENSION,
        remark="the paper gives no number",
    ),
    Claim(
        id="fig7-over-steady",
        text="unbounded admits past N* (admitted over the windowed arm's N*, steady frames)",
        paper=(1.1, 2.5),
        paper_text="far past",
        measure=lambda panels: _over_nstar(panels),
        tolerance=0.0,
        unit="×",
        neutral=1,
        explanation="frames of a stalled engine are slow, so the controller closes the door once somebody is starved",
        remark="the paper gives no number; with this signal the windowed arm lets in as many, close to the ceiling of "
        "memory, and stays on beat",
    ),
    *(
        Claim(
            id=f"fig7-wall-{short}",
            text=f"unbounded ends pinned at the wall of about 1.6 s (median of the last third, {panel})",
            paper=1.6,
            measure=value(common.latency_percentile(50, since=2 / 3), of(panel, BASELINE)),
            tolerance=0.05,
            unit="s",
            explanation=_TENSION,
        )
        for panel, short in ((_ALL, "all"), (_STEADY, "steady"))
    ),
]


def _over_nstar(panels: Mapping[str, Run]) -> dict[int, float | None]:
    """What the unbounded arm admits on steady frames, over what the windowed one admits on all."""
    unbounded, windowed = (value("admitted", each)(panels) for each in (of(_STEADY, BASELINE), _WINDOWED))
    return {
        seed: found / windowed[seed] if found is not None and windowed.get(seed) else None  # type: ignore[operator]
        for seed, found in unbounded.items()
    }


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """A column for each arm: admitted, cap and shed above, latency with the target below."""
    looks = engine_looks(*PAIR)
    series = {
        f"{engine},\n{panel}": (of(panel, engine).points(panels), looks[engine])
        for panel in (_ALL, _STEADY)
        for engine in (OURS, BASELINE)
    }
    return ramps(TITLE, series, {f"{OURS},\n{_ALL}": paper["N*"]})
