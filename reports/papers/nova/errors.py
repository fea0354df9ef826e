"""Errors of the device model: the arithmetic of one system 1 or 2 % quicker or slower, of the others as modelled.

The model meets Table I within 1 % and the processing times of Table V within 2 %. An error that all systems share
leaves their order alone: at 0.8 requests/s and seed 0 the best baseline's mean latency over Nova's is 0.90, with 2 %
less FLOP/s of all systems 0.91 and with 2 % more 0.90. So only the system changes that a claim compares with others:
what Nova's passes lose on their share, or the steps of one size of chunk. A claim about several alphas compares Nova
with itself; there all of them change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engines.deployments.changes import write_scale
from harness.experiments.experiment import Experiment
from reports.claims.claim import Untold
from reports.claims.quantities import Measure, Panels, Quantity, Setting, spread
from reports.claims.stated import saturated
from reports.figures.style import MUTED
from reports.papers.nova.common import gui

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ERRORS = (-0.02, -0.01, 0.01, 0.02)
"""Relative errors of FLOP/s."""


def label(error: float) -> str:
    """Return an error as text, such as `+1 %`."""
    return f"{100 * error:+g} %".replace("-", "−")


def _scale(error: float) -> str:
    return write_scale({"flops": 1 + error})


def _panel(panel: str) -> str:
    return f"{panel}, other FLOP/s"


def with_errors(panel: str, name: str, engine: str, rates: Sequence[float], **changes: Any) -> dict[str, Experiment]:
    """Return the panel of one system of `panel` with each error, at these rates; `changes` as of `gui`."""
    scales = [_scale(error) for error in ERRORS]
    return {_panel(panel): gui(f"{name}-errors", [engine], rates, scale=scales, **changes)}


def off(setting: Setting, error: float) -> Setting:
    """Return the setting with this error."""
    return replace(setting, panel=_panel(setting.panel), params={**setting.params, "scale": _scale(error)})


def near_saturation(whose: str, measure: Callable[[Callable[[Setting], Setting]], Measure]) -> Untold:
    """Return the claim's number at each error. `measure` makes it from a function that changes the settings of the
    system in question, `whose`."""
    return saturated(
        f"the FLOP/s of {whose} alone",
        {label(error): measure(lambda setting, error=error: off(setting, error)) for error in ERRORS},
    )


def band(quantity: Quantity, by_x: Mapping[float, Setting]) -> Callable[[Axes, Panels], None]:
    """Draw the range of the medians from the lowest to the highest error."""

    def fill(axes: Axes, panels: Panels) -> None:
        ends = {
            x: [spread(off(at, error).points(panels), quantity).median for error in (ERRORS[0], ERRORS[-1])]
            for x, at in by_x.items()
        }
        known = {x: each for x, each in ends.items() if None not in each}
        if known:
            lows, highs = zip(*known.values(), strict=True)
            axes.fill_between([*known], lows, highs, color=MUTED, alpha=0.3, lw=0, label="FLOP/s of Nova ± 2 %")

    return fill
