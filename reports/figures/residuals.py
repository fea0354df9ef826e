"""How well a profile's fit meets its measured steps: residuals over size and context, and the machine's drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from engines.devices.profile import Profile, StageProfile
from engines.devices.step_time import CONSERVE, SEGMENTED
from reports.figures.drawing import sheet
from reports.figures.picture import Picture
from reports.figures.style import MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = {"decodes alone": ("#0072b2", "o"), "with a prefill chunk": ("#d55e00", "^")}
FORMS = {CONSERVE: "ConServe's five terms", SEGMENTED: "segmented"}
DRIFT_SPAN = 25
"""Steps in each median of the drift."""


def draw(profile: Profile, stage: str, samples: pd.DataFrame) -> Picture:
    """`samples`: the stage's rows of `harness.calibration.profiling.Measured.samples`."""
    fitted = profile.stages[stage]
    cells = _cells(samples)
    title = f"Step times of {profile.model}, {stage}: measured against fitted"
    figure, (top_left, top_right, left, right) = sheet(4, title, 2.65, 2)
    for axes, form in ((top_left, CONSERVE), (top_right, SEGMENTED)):
        _residuals(axes, cells, form, "tokens")
        error = fitted.forms[form].held_out
        used = ", in use" if form == fitted.form else ""
        axes.set_title(
            f"{FORMS[form]}{used}: held out {100 * error.median:.1f} %, P90 {100 * error.p90:.1f} %"
        )
        axes.set_xlabel("tokens of the step")
    top_right.sharey(top_left)
    top_left.set_ylabel("predicted / measured − 1, %")
    _residuals(left, cells, fitted.form, "visible")
    left.set(xlabel="visible tokens, summed over requests", ylabel="predicted / measured − 1, %")
    left.set_title(f"{FORMS[fitted.form]}, over context")
    _drift(right, samples, fitted)
    handles, labels = top_left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2)
    return Picture(f"{stage}-residuals", title, figure, _caption(profile, stage, fitted))


def _cells(samples: pd.DataFrame) -> pd.DataFrame:
    """One row a grid cell: medians over its undisturbed repetitions."""
    return samples.loc[samples["kept"]].drop(columns="stage").groupby("cell").median()


def _residuals(axes: Axes, cells: pd.DataFrame, form: str, over: str) -> None:
    residual = 100 * (cells[f"{form}_s"] / cells["measured_s"] - 1)
    prefilled = cells["prefill_tokens"] > 0
    for (label, (colour, marker)), chosen in zip(KINDS.items(), (~prefilled, prefilled), strict=True):
        axes.plot(
            cells[over][chosen],
            residual[chosen],
            marker,
            ms=4,
            mew=0,
            alpha=0.75,
            color=colour,
            label=label,
            ls="",
        )
    axes.axhline(0, color=MUTED, lw=0.9, ls=(0, (4, 3)))
    axes.set_xscale("log")
    reach = max(10.0, 1.1 * float(np.abs(residual).max()))
    axes.set_ylim(-reach, reach)


def _drift(axes: Axes, samples: pd.DataFrame, fitted: StageProfile) -> None:
    samples = samples.sort_values("at_s")
    spans = np.arange(len(samples)) // DRIFT_SPAN
    at_s = samples["at_s"].groupby(spans).median() - samples["at_s"].min()
    steps = (samples["measured_s"] / samples[f"{fitted.form}_s"]).groupby(spans).median()
    canary = (samples["canary_s"] / samples["canary_s"].median()).groupby(spans).median()
    axes.plot(at_s, steps, color="#222b36", lw=1.6, label="steps / fit")
    axes.plot(at_s, canary, color="#009e73", lw=1.6, ls="--", label="canary / its median")
    axes.set(xlabel="time since the first step, s", ylabel=f"medians of {DRIFT_SPAN} steps")
    axes.set_title("The machine's drift")
    axes.legend(loc="best")


def _caption(profile: Profile, stage: str, fitted: StageProfile) -> str:
    return (
        "A dot is the median of one cell of the grid; the fits saw all cells here, while the errors in the titles are "
        "of cells held out. Above 0 the fit is too slow. Lower right: steps over their fit and the canary kernel over "
        "its median, all steps; where both move together the machine did, not the model. "
        f"n = {fitted.samples:,} steps of {fitted.cells:,} cells, with {100 * fitted.left_out:.0f} % of all left out "
        f"because others had the machine; {profile.origin}."
    )
