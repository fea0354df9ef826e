"""Fig. 6a: a straight line through the first minute foretells when the pool is full."""

from typing import Any

from reports.claims.bands import of_digits
from reports.claims.claim import Claim
from reports.claims.quantities import Panels, of, value
from reports.claims.stated import claim, level, unpublished
from reports.figures.forms import Plot, custom, figure
from reports.figures.pool import occupancy
from reports.figures.style import INK, MUTED, engine_looks
from reports.papers.metronome.calls import BASELINE, HALF, MINICPM_CALL, PAIR, SEEDS, STILL, calls
from reports.papers.metronome.measures import ONE_RUN

TITLE = "Fig. 6a: the time of saturation, predicted from the first minute and measured"

_QWEN, _MINICPM = "Qwen3-Omni-30B, N = 128", "MiniCPM-o 4.5, N = 128"
_SPEAKS, _STILL = "MiniCPM-o 4.5, 21 of 32 tokens said", "Qwen3-Omni-30B, steps without spread"
EXPERIMENTS = {
    _QWEN: calls("fig6a", PAIR, sessions=128),
    _MINICPM: calls("fig6a", PAIR, **MINICPM_CALL),
    _SPEAKS: calls(
        "fig6a",
        [BASELINE],
        seeds=SEEDS[:3],
        **MINICPM_CALL | {"template_tokens": 0, "tokens_per_frame": 21.0, "run_cv": 0.0, "duration_s": 170.0},
    ),
    _STILL: calls("fig6a", [BASELINE], sessions=128, **STILL),
}
QUICK = HALF

PAPER = {_QWEN: (145.0, 148.0), _MINICPM: (99.0, 114.0)}  # predicted, measured, s

_WHY_G = {
    _QWEN: "the tokens of a frame were derived from this very time",
    _MINICPM: "N and the tokens of a frame are not stated; they were chosen for this time",
}
_LINEAR = "our frames add the same tokens except for the drawn lengths, so a straight line cannot miss by more"
_BEND = (
    "a frame of 1 s that says 7 tokens fits its second until the pool is full, so growth is as steady as the lengths "
    "of replies. With more of its tokens said, decodes that read a growing KV take longer than the period, chunks "
    "wait, and growth bends"
)
_SAID = unpublished(
    "how many of the 32 tokens of MiniCPM-o's frames are said: from 7 (a few, Fig. 2) to all but the audio, 21, less "
    "per second than in the paper's free-running decode (53 in 2 s, Table 2)",
    {"21 said": value("saturation_error", of(_SPEAKS, BASELINE))},
)
_SHORT = {_QWEN: "qwen", _MINICPM: "minicpm"}
_ERROR = {_QWEN: level((0.0, 0.05), "%", words="a few percent"), _MINICPM: level(0.13, "%", within=of_digits(0.01))}


def _claims(panel: str) -> dict[str, Claim]:
    predicted_s, measured_s = PAPER[panel]
    setting, short = of(panel, BASELINE), _SHORT[panel]
    return {
        f"fig6a-{short}-measured": claim(
            f"{panel}: the pool is full at",
            level(measured_s, "s", within=ONE_RUN),
            value("saturation_measured_s", setting),
            fitted=_WHY_G[panel],
        ),
        f"fig6a-{short}-error": claim(
            f"{panel}: error of the prediction ({predicted_s:g} s predicted)",
            _ERROR[panel],
            value("saturation_error", setting),
            _BEND,
            check=_LINEAR if panel == _QWEN else "",
            untold=_SAID if panel == _MINICPM else None,
        ),
    }


CLAIMS = {
    **_claims(_QWEN),
    **_claims(_MINICPM),
    "fig6a-spread": claim(
        "(ours) error of the prediction for Qwen3-Omni if steps have no spread",
        level((0.0, 0.05), "%", words="a few percent"),
        value("saturation_error", of(_STILL, BASELINE)),
        "as with spread",
    ),
}


def _filling(panel: str) -> Plot:
    """Occupancy of every run, the fit of one, saturation as measured here and in the paper."""

    def fill(axes: Any, panels: Panels) -> None:
        for engine, look in engine_looks(*PAIR).items():
            occupancy(axes, of(panel, engine).points(panels), engine, look)
        of_model = PAPER[_MINICPM if panel == _SPEAKS else panel]
        for seconds, marker, name in zip(of_model, "so", ("predicted", "measured"), strict=True):
            hollow = {"ms": 5.5, "mfc": "white", "mec": MUTED, "mew": 1.1, "ls": "none"}
            axes.plot(seconds, 1, marker, **hollow, zorder=7, label=f"paper: {name}")
        axes.plot([], [], color=INK, lw=1.1, ls=(0, (1, 2)), label="fit of the first minute (eq. 1)")
        axes.plot([], [], color=MUTED, marker="x", ls="none", ms=8, mew=2, label="saturation, measured")

    title = "the same, 21 of 32 tokens said" if panel == _SPEAKS else panel
    return custom(fill, title=title, across={1: ""}, percent=(0, 1.04), xlabel="elapsed time, s")


draw = figure(
    TITLE,
    *map(_filling, (_QWEN, _MINICPM, _SPEAKS)),
    sharey=True,
    caption="KV pool in use. Thin lines are single runs, bold ones their medians. Seeds differ in the length "
    "of replies, so in the time at which the pool is full; the fit and the cross are those of one run.",
)
