"""Fig. 1: one five-minute call at 128 sessions, as a dashboard sees it and as its users do."""

from collections.abc import Mapping
from typing import Any

from reports.claims import largest, of, value
from reports.figures.dashboard import both_views
from reports.figures.frames import finished
from reports.figures.picture import LeftOut, Picture
from reports.measured import Run
from reports.papers.metronome import common
from reports.papers.metronome.common import (
    BASELINE,
    OURS,
    PAIR,
    STEP_CALL,
    latency_median,
    speech_after_wall,
    worst_bucket,
)
from reports.stated import claim, level
from reports.style import engine_looks

TITLE = "Fig. 1: one five-minute call at 128 sessions: healthy on the dashboard, silent to its users"

_PANEL = "N = 128"
EXPERIMENTS = {_PANEL: common.calls("fig1", PAIR, sessions=128)}
QUICK = common.QUICK

PAPER = {"few ms": (0.002, 0.005), "wall_s": 1.6}  # Table 1: before it jumps; the ceiling

_UNBOUNDED, _WINDOWED = of(_PANEL, BASELINE), of(_PANEL, OURS)

CLAIMS = [
    claim(
        "fig1-before",
        "unbounded KV: a few ms a frame before the jump (median)",
        level(PAPER["few ms"], "ms", within=0.002),
        value(latency_median(after_wall=False), _UNBOUNDED),
        calibrated=STEP_CALL,
    ),
    claim(
        "fig1-ceiling",
        "and then the ceiling of about 1.6 s (median after the jump)",
        level(PAPER["wall_s"], "s", within=0.05),
        value(latency_median(after_wall=True), _UNBOUNDED),
        "the wait of a Step ends at 0.8 B",
        remark="the cap of a Step's wait, 0.8 B, makes the number; that every run is pinned there is the result",
    ),
    claim(
        "fig1-silence",
        "where the stalled engine stops producing tokens: frames with speech after the jump",
        level(0.0, "%", within=0.05, words="none"),
        value(speech_after_wall, _UNBOUNDED),
        "{percent:.0f} % of frames still come with speech on median: in the run drawn all are silent within "
        "20 s, in others sessions fall silent one by one, as decode meets the full pool too and each preemption "
        "gives the rest a while; one silent session is enough for the wall, as the batched Step waits for it",
    ),
    claim(
        "fig1-windowed",
        "windowed KV stays flat for the whole call (highest median of 10 s)",
        level((0.002, 0.012), "ms", within=0.002, words="2 to 12 ms"),
        value(worst_bucket, _WINDOWED),
        calibrated=STEP_CALL,
    ),
    claim(
        "fig1-misses",
        "deadline misses, larger of both policies",
        level(0.0, words="none"),
        largest(value("deadline_misses", _UNBOUNDED), value("deadline_misses", _WINDOWED)),
        "a Step waits for at most 0.8 B, so a miss takes a Step that is late by itself",
        check="a Step waits for at most 0.8 of a period, so that only one that is late by itself can miss",
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """One run of each policy: latency and misses above, frames with speech below."""
    series = {
        engine: (finished(of(_PANEL, engine).points(panels))[:1], look)
        for engine, look in engine_looks(*PAIR).items()
    }
    return both_views(TITLE, {"": series})
