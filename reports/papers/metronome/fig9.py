"""Fig. 9: how many sessions a 90 s burst carries, for four models, a fresh worker for each N."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from harness.metrics.stats import across_seeds
from reports.claims.quantities import Measure, Panels, quotient, smallest
from reports.claims.stated import claim, level, times
from reports.figures.forms import bars, figure
from reports.papers.metronome.calls import A_FEW, BASELINE, MINICPM, MOSHI, QWEN, QWEN_SMALL, SEEDS, calls
from reports.papers.metronome.measures import BURST
from reports.runs.measured import Measured

TITLE = "Fig. 9: sessions that a 90 s burst carries, four models on one GPU"

_QWEN, _MINICPM, _SMALL, _MOSHI = "Qwen3-Omni-30B", "MiniCPM-o 4.5", "Qwen2.5-Omni-7B", "Moshi"
MODELS: dict[str, tuple[dict[str, Any], list[int]]] = {
    _QWEN: ({"deployment": QWEN}, [64, 128, 160, 192, 224, 256, 320]),
    _MINICPM: (
        {"deployment": MINICPM, "frame_s": 1.0, "template_tokens": 14, "tokens_per_frame": A_FEW},
        [32, 64, 96, 128, 160],
    ),
    _SMALL: ({"deployment": QWEN_SMALL}, [8, 16, 32, 48]),
    _MOSHI: (
        {"deployment": MOSHI, "frame_s": 0.08, "template_tokens": 0, "tokens_per_frame": 1.0, "frame_cv": 0.0}
        | {"session_cv": 0.0, "run_cv": 0.0},
        [24, 40, 56, 64, 72],
    ),
}
"""Model -> its calls, and the N tried. Moshi says one token each 80 ms."""

EXPERIMENTS = {
    model: calls("fig9", [BASELINE], {"sessions": ns}, duration_s=90.0, seeds=SEEDS[:3], **settings)
    for model, (settings, ns) in MODELS.items()
}
QUICK = {"sessions": "16,64", "duration_s": "24"}


def carried(point: Measured) -> bool:
    """Return whether all frames had speech and no session fell behind (two chunks waiting at the engine).

    A Step returns what was said since the last, so frames stay on time and spoken while chunks queue up.
    """
    return point.value("frames_with_speech") == 1 and point.record.counters["streaming_queue_peak"] <= 1


def capacity(points: Sequence[Measured]) -> tuple[int, bool] | None:
    """The largest N of one seed up to which all were carried, and whether it is only a lower bound.

    None where none was tried, or a point failed: a crash is not a capacity.
    """
    if not points or any(point.error is not None for point in points):
        return None
    by_n = {point.params["sessions"]: carried(point) for point in points}
    held = list(takewhile(by_n.get, sorted(by_n)))
    return max(held, default=0), len(held) == len(by_n)


def capacities(panels: Panels, model: str) -> dict[int, tuple[int, bool] | None]:
    """Return the capacities by seed."""
    points = panels[model].points if model in panels else []
    return {seed: capacity([p for p in points if p.seed == seed]) for seed in sorted({p.seed for p in points})}


def _capacity(model: str) -> Measure:
    return lambda panels: {
        seed: None if result is None else float(result[0]) for seed, result in capacities(panels, model).items()
    }


CLAIMS = {
    "fig9-more": claim(
        "MiniCPM-o and Qwen3-Omni carry far more sessions than Qwen2.5-Omni-7B (the lower of both ratios)",
        times((1.5, 100.0), words="far more"),
        smallest(*(quotient(_capacity(model), _capacity(_SMALL)) for model in (_QWEN, _MINICPM))),
        chosen="the cost of a clip for Qwen2.5-Omni's encoder, whose processor pads it to 300 s, was assumed (36 ms) "
        "when we knew the order without it",
        remark="the paper's bars have no numbers; it says that Qwen2.5-Omni-7B is bound by its audio encoder",
    ),
    "fig9-flat": claim(
        "Qwen3-Omni-30B is flat to N = 160 at the least (Fig. 4a)",
        level((160.0, 1000.0), words="flat at the largest N"),
        _capacity(_QWEN),
        "beyond {ours:.0f} sessions chunks queue up at the engine",
        fact=BURST,
    ),
}


def _bounds(axes: Any, panels: Panels) -> None:
    """Return the models that carried the largest N tried."""
    for x, model in enumerate(MODELS):
        median = across_seeds(_capacity(model)(panels)).median
        if median is not None and any(each and each[1] for each in capacities(panels, model).values()):
            axes.annotate("at least", (x, median), (0, 16), textcoords="offset points", ha="center")


_NAMES = {model: f"{model}\nB = {settings.get('frame_s', 2.0):g} s" for model, (settings, _) in MODELS.items()}
_TRIED = "; ".join(f"{model} {', '.join(map(str, ns))}" for model, (_, ns) in MODELS.items())
draw = figure(
    TITLE,
    bars(
        None,
        {BASELINE: {name: _capacity(model) for model, name in _NAMES.items()}},
        text="{:g}",
        extra=_bounds,
        ymargin=0.25,
        ylabel="sessions",
    ),
    caption="The largest N up to which every frame of a 90 s burst had speech and no session fell behind its audio; "
    f"“at least” where that was the largest N tried. Tried: {_TRIED}. Unbounded KV.",
)
