"""Fig. 6a: a straight line through the first minute foretells when the pool is full."""

from reports.figures.pool import occupancy
from reports.papers.metronome.common import *

TITLE = "Fig. 6a: the time of saturation, predicted from the first minute and measured"

_QWEN, _MINICPM = "Qwen3-Omni-30B, N = 128", "MiniCPM-o 4.5, N = 128"
EXPERIMENTS = {
    _QWEN: calls("fig6a", PAIR, sessions=128),
    _MINICPM: calls("fig6a", PAIR, **MINICPM_CALL),
}
QUICK = HALF

PAPER = {_QWEN: (145.0, 148.0), _MINICPM: (99.0, 114.0)}  # predicted, measured, s

_WHY_G = {
    _QWEN: "the tokens of a frame were derived from this very time",
    _MINICPM: "N and the tokens of a frame are not stated; they were chosen for this time",
}
_LINEAR = (
    "a frame adds the same tokens here but for the drawn lengths, so that a straight line cannot miss by more"
)
_SHORT = {_QWEN: "qwen", _MINICPM: "minicpm"}


def _claims(panel: str) -> dict[str, Claim]:
    predicted_s, measured_s = PAPER[panel]
    setting, short = of(panel, BASELINE), _SHORT[panel]
    error = abs(predicted_s - measured_s) / measured_s
    return {
        f"fig6a-{short}-measured": claim(
            f"{panel}: the pool is full at",
            level(measured_s, "s", within=0.1 * measured_s),
            value("saturation_measured_s", setting),
            calibrated=_WHY_G[panel],
        ),
        f"fig6a-{short}-predicted": claim(
            f"{panel}: as predicted from the early trace",
            level(predicted_s, "s", within=0.1 * measured_s),
            value("saturation_predicted_s", setting),
            calibrated=_WHY_G[panel],
        ),
        f"fig6a-{short}-error": claim(
            f"{panel}: error of the prediction",
            level(error, "%", within=0.03),
            value("saturation_error", setting),
            check=_LINEAR if panel == _QWEN else "",
            why="growth is as steady here as the drawn lengths of replies; the paper's bends late in the run",
        ),
    }


CLAIMS = _claims(_QWEN) | _claims(_MINICPM)


@picture(TITLE, 1, 2, sharey=True)
def draw(panels: Panels, paper: Any, *axes: Any) -> str:
    """Occupancy of every run, the fit of one, saturation as measured here and in the paper."""
    from matplotlib.lines import Line2D

    hollow = {"ms": 5.5, "mfc": "white"}
    for panel, own in zip(EXPERIMENTS, axes, strict=True):
        for engine, look in engine_looks(*PAIR).items():
            occupancy(own, of(panel, engine).points(panels), engine, look)
        for seconds, marker in zip(paper[panel], "so", strict=True):
            own.plot(seconds, 1, marker, **hollow, mec=MUTED, mew=1.1, zorder=7)
        own.axhline(1, color=MUTED, lw=0.9)
        own.set(title=panel, xlabel="elapsed time, s")
    in_per_cent(axes[0], (0, 1.04))
    axes[0].set_ylabel("KV pool in use")
    legend(
        axes[0] if axes[0].has_data() else axes[1],
        Line2D([], [], color=INK, lw=1.1, ls=(0, (1, 2)), label="fit of the first minute (eq. 1)"),
        Line2D([], [], color=MUTED, marker="x", ls="none", ms=8, mew=2, label="saturation, measured"),
        Line2D([], [], color=MUTED, marker="s", ls="none", **hollow, label="paper: predicted"),
        Line2D([], [], color=MUTED, marker="o", ls="none", **hollow, label="paper: measured"),
    )
    return (
        "Thin lines are single runs, bold ones their medians. Seeds differ in how much people are told, so in when "
        "their pool is full; the fit and the cross are those of one run."
    )
