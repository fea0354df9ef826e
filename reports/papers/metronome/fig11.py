"""Fig. 11: a generous window is free: latency over the window's size."""

from reports.papers.metronome.common import *

TITLE = "Fig. 11: frame latency over the window's size (N = 128, 60 s)"

WS = [512, 1024, 2048, 4096]
_PANEL = "N = 128"
EXPERIMENTS = {_PANEL: calls("fig11", [OURS], {"window": WS}, sessions=128, duration_s=60.0, seeds=SEEDS)}
QUICK = {"window": "512,2048"}

PAPER = {"p50": {512: 0.005, 1024: 0.005, 2048: 0.005}, "p90": {512: 0.005, 1024: 0.005, 2048: 0.005}}

_SHORT = (
    "in 60 s a session gathers about 1,650 tokens, so windows of 2,048 and 4,096 never come to bind: this run cannot "
    "tell them from no window"
)


def _up_to_2048(statistic: str) -> Claim:
    return claim(
        f"fig11-{statistic}",
        f"{statistic.upper()} stays at about 5 ms up to W = 2048 (largest)",
        level(0.005, "ms", within=0.002, words="about 5 ms"),
        largest(*(value(f"frame_latency_{statistic}", of(_PANEL, OURS, window=w)) for w in WS[:3])),
        calibrated=STEP_CALL,
        remark=_SHORT,
    )


CLAIMS = [
    _up_to_2048("p50"),
    _up_to_2048("p90"),
    claim(
        "fig11-flat",
        "latency does not depend on the window (median at W = 2048 over that at 512)",
        level(1.0, "×", within=0.1, words="flat"),
        ratio("frame_latency_p50", of(_PANEL, OURS, window=2048), to=of(_PANEL, OURS, window=512)),
        "a Step returns what was made since the last one, so attention does not show in its latency",
        remark=_SHORT,
    ),
]


def draw(panels: Mapping[str, Run], paper: Any) -> Picture | LeftOut:
    """P50 and P90 over W."""
    points = panels[_PANEL].points
    if not finished(points):
        return LeftOut("fig11", TITLE, "no point of it is finished")
    figure, (axes,) = sheet(1, 1, TITLE)
    own = engine_looks("vllm_realtime", OURS)[OURS]
    for name, marker, dashes in (("p50", "o", "-"), ("p90", "s", "--")):
        look = Look(own.colour, marker, dashes, 1.8)
        spreads = {
            w: over_seeds(of(_PANEL, OURS, window=w).points(panels), f"frame_latency_{name}") for w in WS
        }
        line(axes, spreads, look, name.upper(), 1000)
        for w, latency_s in paper.get(name, {}).items():
            paper_marker(axes, w, 1000 * latency_s, look)
    axes.set_xscale("log", base=2)
    axes.set_xticks(WS, [f"{w:,}" for w in WS])
    axes.set_xlabel("window W, tokens")
    axes.set_ylabel("frame latency, ms")
    axes.set_ylim(bottom=0)
    legend(figure, axes, paper_handle("paper: P50 and P90, about 5 ms"))
    caption = f"Without sessions' first frames. Here {_SHORT}. {made_from(points, bars=True)}"
    return Picture("fig11", TITLE, figure, caption)
