"""Fig. 10: the window in the engine against recycling sessions above it, and what vLLM PR 49439 would do instead."""

from collections.abc import Mapping
from typing import Any

from reports.claims import of, quotient, ratio, tally, value
from reports.figures.dashboard import both_views
from reports.figures.picture import LeftOut, Picture
from reports.measured import Run
from reports.papers.metronome import common
from reports.papers.metronome.common import BASELINE, OURS, PR, RECYCLING, latency_percentile, worst_bucket
from reports.stated import claim, level, times
from reports.style import engine_looks

TITLE = "Fig. 10: bounding in the engine, recycling above it, or evicting who waits (N = 96)"

ENGINES = [BASELINE, RECYCLING, OURS, PR]
_PANEL = "N = 96"
EXPERIMENTS = {_PANEL: common.calls("fig10", ENGINES, sessions=96)}
QUICK = {**common.QUICK, "recycle_at": "208", "carry": "104"}

PAPER = {"wall_s": 240.0, "recycling p50": (0.014, 0.017), "recycling p90": 0.036}

_UNBOUNDED, _RECYCLING, _WINDOWED = (of(_PANEL, engine) for engine in (BASELINE, RECYCLING, OURS))
_LATE = {percentile: latency_percentile(percentile, since=2 / 3) for percentile in (50, 90)}
"""Percentile -> latency in the last third of the call."""
_BETWEEN = (
    "a Step returns what was said since the last one, and re-encoding half a window (18 chunks, 45 ms of GPU) is done "
    "between Steps; the paper's growth needs a re-encode that holds up the Step itself, such as in its worker's process"
)


CLAIMS = [
    claim(
        "fig10-wall",
        "unbounded KV hits the wall at about 240 s",
        level(240.0, "s", within=25.0),
        value("wall_s", _UNBOUNDED),
        "{ours:.0f} s here: the tokens of a frame are those of N = 128 (55, full at 148 s), while 240 s at N = 96 "
        "take 45; the paper's runs differ by that much",
        remark="Fig. 6a has 148 s at N = 128, which is 197 s at N = 96 at the same fill rate",
    ),
    claim(
        "fig10-recycling-walls",
        "recycling avoids the wall",
        level(0.0, "%", words="no wall"),
        tally("wall", _RECYCLING),
        "recycled sessions hold between half a window and a whole one",
    ),
    claim(
        "fig10-recycling-p50",
        "recycling: median latency late in the call",
        level(PAPER["recycling p50"], "ms", within=0.003),
        value(_LATE[50], _RECYCLING),
        _BETWEEN,
    ),
    claim(
        "fig10-recycling-p90",
        "recycling: P90 latency late in the call",
        level(PAPER["recycling p90"], "ms", within=0.01),
        value(_LATE[90], _RECYCLING),
        _BETWEEN,
    ),
    claim(
        "fig10-recycling-grows",
        "recycling: the cost grows over the call (median latency, last third over first)",
        times((1.3, 20.0), words="grows"),
        quotient(value(_LATE[50], _RECYCLING), value(latency_percentile(50, until=1 / 3), _RECYCLING)),
        "what is carried over is constant, so once everybody has been recycled the cost is, too",
    ),
    claim(
        "fig10-windowed",
        "the in-engine window stays flat (highest 10 s median)",
        level((0.001, 0.005), "ms", within=0.002, words="a few ms"),
        value(worst_bucket, _WINDOWED),
        calibrated=common.STEP_CALL,
    ),
    claim(
        "fig10-encodes",
        "recycling encodes audio again, the window never does (P90 latency late in the call, over the window's)",
        times((1.5, 100.0), words="more"),
        ratio(_LATE[90], _RECYCLING, to=_WINDOWED),
        _BETWEEN,
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Latency and speech of the four."""
    series = {
        engine: (of(_PANEL, engine).points(panels), look) for engine, look in engine_looks(*ENGINES).items()
    }
    note = "vllm_realtime_pr49439 is our addition: what a vLLM pull request proposes, which the paper does not have."
    return both_views(TITLE, {"": series}, note)
