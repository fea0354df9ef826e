"""Fig. 7 and Section 5.3: one admission controller on bounded and on unbounded state.

512 sessions are offered at 8 a second, as in the paper. Their arrivals end before the controller has raised its cap
back to where it first fell, so that it decides nothing any more; a panel with 2,048 sessions lets it go on deciding.
Of all frames only a session's first one waits for real work.
"""

from typing import Any

from reports.claims.bands import Band, of_digits, of_percentile
from reports.claims.quantities import Panels, of, ratio, value
from reports.claims.stated import claim, level, same, times
from reports.figures.admission import ramps
from reports.figures.picture import LeftOut, Picture
from reports.figures.style import engine_looks
from reports.papers.metronome.calls import BASELINE, OURS, PAIR, SEEDS, STILL, calls
from reports.papers.metronome.measures import CAPPED, latency_percentile
from reports.runs.measured import Measured

TITLE = "Fig. 7: the same admission controller on bounded and on unbounded state"

_ALL, _MORE, _STILL = "512 calls", "2,048 calls", "512 calls, steps without spread"
_RAMP: dict[str, Any] = {"sessions": 512, "rate": 8.0, "admission": "aimd", "seeds": SEEDS[:3]}
EXPERIMENTS = {
    _ALL: calls("fig7", PAIR, **_RAMP, signal="all"),
    _MORE: calls("fig7", PAIR, **{**_RAMP, "sessions": 2048}, signal="all"),
    _STILL: calls("fig7", PAIR, **{**_RAMP, **STILL}, signal="all"),
}
QUICK = {"duration_s": "128", "kv_pool_blocks": "16250", "sessions": "896"}
"""Settings with as many sessions as come within the time, in every panel."""

PAPER = {"N*": 209, "shed": 303, "steady p99": 0.012, "wall": 1.6}

_TICK = Band(0, 16, "16 calls arrive in a tick of 2 s, so N* is resolved to 16")
_SETTLED = of_percentile(0.99, 118, printed=0.001)
"""The Steps from the last arrival, at 64 s, to 300 s; the paper does not say how long its run is."""

_WINDOWED, _UNBOUNDED = of(_ALL, OURS), of(_ALL, BASELINE)
_GOES_ON, _STALLS = of(_MORE, OURS), of(_MORE, BASELINE)
_ALIKE = (
    "a first frame waits for its own encoding and prefill under either policy, so a signal of all "
    "frames stops both at the same place. Until then both arms are one machine: at 8 calls a second 209 are "
    "admitted at 26 s, when the oldest call has had 13 frames of 55 tokens, 715 of a window of 1,024. With the 80 "
    "tokens of Table 2 it has 1,040, and only the calls of the first tick have lost a block. Before the pool is full "
    "unbounded frames are never less work than windowed ones, so no window makes its signal the flatter one"
)


def cap_at_end(point: Measured) -> float | None:
    """The controller's last cap, in sessions."""
    caps = point.kinds("cap")["value"].to_numpy()
    return float(caps[-1]) if len(caps) else None


def oldest_call(point: Measured) -> float | None:
    """The oldest call's tokens when the last call is admitted, as a share of the window; with the last token of each
    answer, which vLLM drops."""
    log = point.kinds("admitted", "fed", "frame_out")
    admitted = log.loc[log["kind"] == "admitted"]
    if admitted.empty:
        return None
    oldest, until_s = admitted["session"].iloc[0], admitted["t"].max()
    its = log.loc[(log["session"] == oldest) & (log["t"] <= until_s)]
    tokens = its.loc[its["kind"] != "admitted", "value"]
    return float(tokens.sum()) / point.params["window"]


CLAIMS = {
    "fig7-nstar": claim(
        "windowed: admission settles at N*",
        level(209.0, within=_TICK),
        value("admitted", _WINDOWED),
        "our cap grows by 16 a tick, so admission stops at 192 or at 208",
        fitted="the cost of encoding a chunk (2.5 ms) was fitted to the first touch of this figure",
    ),
    "fig7-steady": claim(
        "windowed: P99 latency once it has settled",
        level(0.012, "ms", within=_SETTLED),
        value("steady_latency_p99", _WINDOWED),
        "not explained: a Step costs 0.8 ms and 20 µs for each of 192 calls, fitted at N = 96 and 128. Spread of GPU "
        "steps adds nothing, and a Step that waits for the model takes hundreds of ms. At N = 128 the paper's own "
        "medians of 10 s go from 2 to 12 ms (Table 1), with a P90 of 5 ms in Fig. 11; the cause is not published",
    ),
    "fig7-over-all": claim(
        "unbounded admits past N* (admitted over the windowed arm's)",
        times((1.1, 2.5), words="far past"),
        ratio("admitted", _UNBOUNDED, to=_WINDOWED),
        _ALIKE,
        remark="the paper gives no number",
    ),
    "fig7-same-machine": claim(
        "(ours) when admission stops no call has filled the window (tokens of the oldest, of 1,024)",
        level((0.0, 1.0), "%", words="below the window"),
        value(oldest_call, _WINDOWED),
        "calls of more tokens a frame have filled it",
    ),
    "fig7-spread": claim(
        "(ours) N* is the same if steps have no spread (over that with 0.7 %)",
        same(0.05),
        ratio("admitted", of(_STILL, OURS), to=_WINDOWED),
        "the tick in which 600 ms are touched moved by one",
    ),
    "fig7-over-spread": claim(
        "(ours) unbounded admits no more than windowed if steps have no spread",
        same(0.05),
        ratio("admitted", of(_STILL, BASELINE), to=of(_STILL, OURS)),
        "the tick in which 600 ms are touched differs by one",
    ),
    "fig7-wall-all": claim(
        "unbounded ends pinned at the wall of about 1.6 s (median of the last third)",
        level(1.6, "s", within=of_digits(0.1)),
        value(latency_percentile(50, since=2 / 3), _UNBOUNDED),
        check=CAPPED,
    ),
    "fig7-more-cap": claim(
        "(ours) the same controller does not converge on unbounded state (its cap at the end over the windowed arm's)",
        times((0.0, 0.5), words="far below"),
        ratio(cap_at_end, _STALLS, to=_GOES_ON),
        "unbounded calls fill the pool, every frame then waits 1.6 s, and each touch of the target "
        "lowers the cap; no call leaves, so the pool stays full",
    ),
}


def draw(panels: Panels) -> Picture | LeftOut:
    """A column for each arm: admitted, cap and shed above, latency with the target below."""
    looks = engine_looks(*PAIR)
    series = {
        f"{engine},\n{panel}": (of(panel, engine).points(panels), looks[engine])
        for panel in (_ALL, _MORE)
        for engine in (OURS, BASELINE)
    }
    return ramps(TITLE, series, {f"{OURS},\n{_ALL}": PAPER["N*"]})
