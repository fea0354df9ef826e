"""Fig. 11: a generous window is free: latency over the window's size."""

from reports.claims.quantities import largest, of, ratio, value
from reports.claims.stated import claim, level
from reports.figures.forms import figure, lines
from reports.figures.style import Look, engine_looks
from reports.papers.metronome.calls import OURS, SEEDS, calls
from reports.papers.metronome.measures import STEP_CALL, WHOLE_MS

TITLE = "Fig. 11: frame latency over the window's size (N = 128, 60 s)"

WS = [512, 1024, 2048, 4096]
_PANEL = "N = 128"
EXPERIMENTS = {_PANEL: calls("fig11", [OURS], {"window": WS}, sessions=128, duration_s=60.0, seeds=SEEDS)}
QUICK = {"window": "512,2048"}

PAPER = {"p50": {512: 0.005, 1024: 0.005, 2048: 0.005}, "p90": {512: 0.005, 1024: 0.005, 2048: 0.005}}

_SHORT = (
    "in 60 s a session gathers about 1,650 tokens, so windows of 2,048 and 4,096 never take effect: "
    "this run cannot distinguish them from no window"
)


CLAIMS = {
    "fig11-p90": claim(
        "P50 and P90 stay at about 5 ms up to W = 2048 (largest P90)",
        level(0.005, "ms", within=WHOLE_MS, words="about 5 ms"),
        largest(*(value("frame_latency_p90", of(_PANEL, OURS, window=w)) for w in WS[:3])),
        "of the 2 to 5 ms of Table 1, to which it was fitted, these are the upper end",
        fitted=STEP_CALL,
        remark=_SHORT,
    ),
    "fig11-flat": claim(
        "latency does not depend on the window (median at W = 2048 over that at 512)",
        level(1.0, "×", within=0.1, words="flat"),
        ratio("frame_latency_p50", of(_PANEL, OURS, window=2048), to=of(_PANEL, OURS, window=512)),
        check="a Step returns the output since the last one, before the frame's own work is done, so its "
        "latency cannot show attention over any window",
        remark=_SHORT,
    ),
}

_OVER = {w: of(_PANEL, OURS, window=w) for w in WS}
_COLOUR = engine_looks("vllm_realtime", OURS)[OURS].colour
_STYLE = {"P50": Look(_COLOUR, "o", "-", 1.8), "P90": Look(_COLOUR, "s", "--", 1.8)}
draw = figure(
    TITLE,
    lines(
        None,
        {name: {w: value(f"frame_latency_{name.lower()}", at) for w, at in _OVER.items()} for name in _STYLE},
        style=_STYLE,
        marks={name: PAPER[name.lower()] for name in _STYLE},
        doubling=WS,
        xlabel="window W, tokens",
        ylabel="frame latency, ms",
    ),
    paper="paper: P50 and P90, about 5 ms",
    caption=f"Without sessions' first frames. Here {_SHORT}.",
)
