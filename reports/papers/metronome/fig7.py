"""Fig. 7 and Section 5.3: one controller, two kinds of state: it converges on the bounded and over-admits on the other.

512 sessions are offered at 8 a second. The controller's signal is read in two ways: latencies of all frames, of which
sessions' first ones alone wait for real work, or steady ones only.
"""

from reports.figures.admission import ramps
from reports.papers.metronome.common import *

TITLE = "Fig. 7: the same admission controller on bounded and on unbounded state"

_ALL, _STEADY, _DEAR = "signal: all frames", "signal: steady frames", "signal: all frames, 80 µs a chunk"
_RAMP: dict[str, Any] = {"sessions": 512, "rate": 8.0, "admission": "aimd"}
EXPERIMENTS = {
    _ALL: calls("fig7", PAIR, **_RAMP, signal="all", seeds=SEEDS[:3]),
    _STEADY: calls("fig7", PAIR, **_RAMP, signal="steady", seeds=SEEDS[:3]),
    _DEAR: calls("fig7", [OURS], **_RAMP, signal="all", feed_s=DEAR_FEED_S, seeds=SEEDS[:3]),
}
QUICK = {"duration_s": "128", "kv_pool_blocks": "16250"}

PAPER = {"N*": 209, "shed": 303, "steady p99": 0.012, "wall": 1.6}

_WINDOWED, _UNBOUNDED = of(_ALL, OURS), of(_ALL, BASELINE)
_TENSION = (
    "a first frame waits for its own encoding and prefill under either policy, so a signal of all frames stops both at "
    "the same place: when admission stops, at 26 s, the oldest call has had 13 frames of 55 tokens, 715 of a window of "
    "1,024, so that the bound has dropped nothing yet; the paper's account needs a signal without first frames"
)


CLAIMS = {
    "fig7-nstar": claim(
        "windowed: admission settles at N*",
        level(209.0, within=20.0),
        value("admitted", _WINDOWED),
        calibrated="the cost of encoding a chunk (2.5 ms) was fitted to the first touch of this figure",
    ),
    "fig7-dear": claim(
        "the same N* where feeding a chunk costs what the level of Fig. 10 takes (80 instead of 20 µs)",
        level(209.0, within=20.0),
        value("admitted", of(_DEAR, OURS)),
        calibrated="as N* above; four times the feeding, 12 ms at the touch of 600 ms, moves it by next to nothing",
    ),
    "fig7-shed": claim(
        "windowed: sessions turned away of 512",
        level(303.0, within=20.0),
        value("shed", _WINDOWED),
        calibrated="what is not admitted is turned away: 512 less N*",
    ),
    "fig7-steady": claim(
        "windowed: P99 latency once it has settled",
        level(0.012, "ms", within=0.006),
        value("steady_latency_p99", _WINDOWED),
        "the cost of a Step call was fitted at N = 96 and 128",
    ),
    "fig7-no-wall": claim(
        "windowed: no run walls, whatever the signal",
        level(0.0, "%", words="none"),
        tally("wall", _WINDOWED, of(_STEADY, OURS)),
        "a steady signal lets in as many as the engine carries, and more",
    ),
    "fig7-over-all": claim(
        "unbounded admits past N* (admitted over the windowed arm's, all frames)",
        times((1.1, 2.5), words="far past"),
        ratio("admitted", _UNBOUNDED, to=_WINDOWED),
        _TENSION,
        remark="the paper gives no number",
    ),
    "fig7-over-steady": claim(
        "unbounded admits past N* (admitted over the windowed arm's N*, steady frames)",
        times((1.1, 2.5), words="far past"),
        ratio("admitted", of(_STEADY, BASELINE), to=_WINDOWED),
        "frames of a stalled engine are slow, so the controller closes the door once somebody is starved",
        remark="the paper gives no number; with this signal the windowed arm lets in as many, close to the ceiling of "
        "memory, and stays on beat",
    ),
    **{
        f"fig7-wall-{short}": claim(
            f"unbounded ends pinned at the wall of about 1.6 s (median of the last third, {panel})",
            level(1.6, "s", within=0.05),
            value(latency_percentile(50, since=2 / 3), of(panel, BASELINE)),
            _TENSION,
        )
        for panel, short in ((_ALL, "all"), (_STEADY, "steady"))
    },
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
