"""How the ear of a busy server does: rates and delays over the number of calls."""

from collections.abc import Mapping
from typing import Any

from reports.claims import difference, of, ratio
from reports.figures.drawing import in_per_cent, legend, line, sheet
from reports.figures.picture import LeftOut, Picture, made_from
from reports.measured import Run
from reports.papers.duplex.common import experiment, spread
from reports.stated import claim, level, times
from reports.style import engine_looks

TITLE = "Turn-taking over the number of calls: when it answers, cuts in, falls silent"

ENGINES = ["vllm_omni", "liveserve"]
CALLS = [1, 16, 64]
OVER = "calls"
EXPERIMENTS = {OVER: experiment("calls", ENGINES, {"p": 0.3, "hesitations": 0.5}, {"c": CALLS})}
QUICK = {"sessions": "16", "c": "1,16"}
PAPER: dict[str, Any] = {}


def _settings(engine: str):
    return of(OVER, engine, c=CALLS[0]), of(OVER, engine, c=CALLS[-1])


CLAIMS = [
    made
    for engine in ENGINES
    for alone, busy in [_settings(engine)]
    for made in (
        claim(
            f"calls-endpointing-{engine}",
            f"the end of a turn is found as late at 64 calls as at one, {engine}",
            level(0.0, "ms", within=0.005),
            difference("endpointing_p50", busy, less=alone),
        ),
        claim(
            f"calls-stop-{engine}",
            f"an interruption is found and the reply cut as late at 64 calls as at one, {engine}",
            level(0.0, "ms", within=0.02),
            difference("stop_p50", busy, less=alone),
        ),
        claim(
            f"calls-answer-{engine}",
            f"the answer comes later at 64 calls than at one, median, {engine}",
            times((1.05, 100), words="later"),
            ratio("end_of_turn_delay_p50", busy, to=alone),
        ),
    )
]

SHOWN = {
    "end-of-turn delay, P50, ms": ("end_of_turn_delay_p50", 1000),
    "end-of-turn delay, P95, ms": ("end_of_turn_delay_p95", 1000),
    "time to stop, P95, ms": ("stop_p95", 1000),
    "takeovers at hesitations": ("takeover", 1),
    "false interruptions": ("false_interruption", 1),
    "talk-over, of the user's speech": ("talk_over_share", 1),
}


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """Each rate and delay over the number of calls."""
    run = panels.get(OVER)
    if run is None or not any(point.error is None for point in run.points):
        return LeftOut("calls", TITLE, "no point of it is finished")
    figure, axes = sheet(2, 3, TITLE, 2.3, sharex=True)
    for axis, (title, (metric, factor)) in zip(axes, SHOWN.items(), strict=True):
        found = {
            engine: {c: spread(of(OVER, engine, c=c).points(panels), metric) for c in run.values("c")}
            for engine in ENGINES
        }
        for engine, look in engine_looks(*ENGINES).items():
            line(axis, found[engine], look, engine, factor)
        axis.set_title(title)
        axis.set_xscale("log", base=2)
        axis.set_xticks(run.values("c"), [str(c) for c in run.values("c")])
        if factor == 1:
            most = max(
                (s.high for each in found.values() for s in each.values() if s.high is not None), default=0
            )
            in_per_cent(axis, (0, max(0.05, most)))
        else:
            axis.set_ylim(bottom=0)
    for axis in axes[3:]:
        axis.set_xlabel("calls at once")
    legend(figure, axes[0])
    caption = (
        "A time-out of 500 ms, every sound of the user cuts a reply. A false interruption is a reply that was cut by "
        "something that takes no floor: an `mhm`, speech to or of somebody else, a noise. "
        f"{made_from(run.points, bars=True)}"
    )
    return Picture("calls", TITLE, figure, caption)
