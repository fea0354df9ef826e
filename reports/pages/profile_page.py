"""The files that go with a profile file: a page with its origin, tables and residual pictures, and the measured
steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from engines.devices.profile import Error, Profile, StageProfile
from engines.devices.step_time import CONSERVE, SEGMENTED
from harness.calibration.fidelity_report import percent
from reports.calibration.fidelity import dots
from reports.figures.drawing import sheet
from reports.figures.picture import Picture
from reports.figures.style import INK, MUTED, style
from reports.figures.svg import embedded
from reports.pages.templates import render
from reports.tables.plain_tables import Table
from workloads.atomic_file import cannot_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS = {"decodes alone": ("#0072b2", "o"), "with a prefill chunk": ("#d55e00", "^")}
FORMS = {CONSERVE: "ConServe's five terms", SEGMENTED: "segmented"}
DRIFT_SPAN = 25
"""Steps in each median of the drift."""


def write_profile_page(profile: Profile, samples: pd.DataFrame, path: Path) -> Path:
    """Write NAME.html, NAME.samples.parquet and NAME-STAGE-residuals.svg and .pdf next to the profile `path`.

    Returns the path of the page. UserError when the folder cannot be written.
    """
    page = path.with_suffix(".html")
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        samples.to_parquet(path.with_suffix(".samples.parquet"), index=False)
        pictures = [_picture(profile, stage, samples, path) for stage in profile.stages]
        page.write_text(_render(profile, pictures, path))
    except OSError as error:
        raise cannot_write(page.parent, error) from None
    return page


def tables(profile: Profile) -> list[Table]:
    """Return for each stage both forms with their errors, then drift and interruption."""
    result = []
    for name, stage in profile.stages.items():
        forms = [
            (
                f"{form} (in use)" if form == stage.form else form,
                str(sum(seconds > 0 for seconds in fitted.coefficients.values())),
                *_shares(fitted.held_out),
                *_shares(fitted.held_out_samples),
            )
            for form, fitted in stage.forms.items()
        ]
        headings = ("form", "terms", "held-out median", "P90", "single steps: median", "P90")
        result.append(Table(f"{name}: {stage.samples:,} steps of {stage.cells:,} cells", headings, forms))
        drift = stage.drift
        machine = [
            ("canary kernel, median", _ms(drift.canary_median_s)),
            ("canary's drift, P90 over P10 of ten spans, less one", percent(drift.canary_spread)),
            ("drift of steps over their fit, likewise", percent(drift.step_spread)),
            ("steps left out: others had the machine", percent(stage.left_out)),
            ("spread of single steps around the fit (CV)", percent(stage.residual_cv)),
        ]
        result.append(Table(f"{name}: the machine", ("what", "value"), machine))
        if stage.reaction:
            rows = []
            for one in stage.reaction:
                times = map(_ms, (one.step_s, one.layer_s, one.median_s, one.p90_s))
                rows.append((one.shape, *times, f"{one.interrupted} of {one.interrupted + one.ran_out}"))
            headings = ("step", "whole", "a layer", "flag to end: median", "P90", "ended early")
            result.append(Table(f"{name}: interruption between layers", headings, rows))
    return result


def coefficients(profile: Profile) -> list[Table]:
    """Each stage's coefficients in both forms."""
    result = []
    for name, stage in profile.stages.items():
        for form, fitted in stage.forms.items():
            rows = [(term, f"{seconds:.4g}") for term, seconds in fitted.coefficients.items()]
            result.append(Table(f"{name}: {form}", ("term", "s per unit"), rows))
    return result


def _picture(profile: Profile, stage: str, samples: pd.DataFrame, path: Path) -> dict[str, Any]:
    with style():
        drawn = residuals(profile, stage, samples.loc[samples["stage"] == stage])
        picture = replace(drawn, name=f"{path.stem}-{drawn.name}")
        return {"picture": picture, "svg": embedded(picture, path.parent)}


def _render(profile: Profile, pictures: list[dict[str, Any]], path: Path) -> str:
    origin = {
        "Measured": profile.origin,
        "Packages": ", ".join(f"{name} {version}" for name, version in profile.packages.items()),
        "Date": f"{profile.date}, in {profile.duration_s:.0f} s",
        "Python": profile.machine.get("python"),
    }
    return render(
        "pages/profile.html.j2",
        title=f"Step times of {profile.model} on {profile.device}",
        file=path.name,
        origin=[{"label": name, "value": value} for name, value in origin.items()],
        tables=[*tables(profile), *coefficients(profile)],
        pictures=pictures,
    )


def _shares(error: Error) -> tuple[str, str]:
    return percent(error.median), percent(error.p90)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def residuals(profile: Profile, stage: str, samples: pd.DataFrame) -> Picture:
    """`samples`: the stage's rows of `harness.calibration.profiling.Measured.samples`."""
    fitted = profile.stages[stage]
    cells = _cells(samples)
    title = f"Step times of {profile.model}, {stage}: measured against fitted"
    figure, (top_left, top_right, left, right) = sheet(4, title, 2.65, 2)
    for axes, form in ((top_left, CONSERVE), (top_right, SEGMENTED)):
        _residuals(axes, cells, form, "tokens")
        error = fitted.forms[form].held_out
        used = ", in use" if form == fitted.form else ""
        axes.set_title(f"{FORMS[form]}{used}: held out {100 * error.median:.1f} %, P90 {100 * error.p90:.1f} %")
        axes.set_xlabel("tokens of the step")
    top_right.sharey(top_left)
    top_left.set_ylabel("predicted / measured − 1, %")
    _residuals(left, cells, fitted.form, "visible")
    left.set(xlabel="visible tokens, summed over requests", ylabel="predicted / measured − 1, %")
    left.set_title(f"{FORMS[fitted.form]}, over context")
    _drift(right, samples, fitted)
    figure.legend(*top_left.get_legend_handles_labels(), loc="outside lower left", ncols=2)
    return Picture(f"{stage}-residuals", title, figure, _residuals_caption(profile, stage, fitted))


def _cells(samples: pd.DataFrame) -> pd.DataFrame:
    """One row a grid cell: medians over its undisturbed repetitions."""
    return samples.loc[samples["kept"]].drop(columns="stage").groupby("cell").median()


def _residuals(axes: Axes, cells: pd.DataFrame, form: str, over: str) -> None:
    residual = 100 * (cells[f"{form}_s"] / cells["measured_s"] - 1)
    prefilled = cells["prefill_tokens"] > 0
    for (label, look), chosen in zip(KINDS.items(), (~prefilled, prefilled), strict=True):
        dots(axes, cells[over][chosen], residual[chosen], look, label=label, ms=4, alpha=0.75)
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
    axes.plot(at_s, steps, color=INK, lw=1.6, label="steps / fit")
    axes.plot(at_s, canary, color="#009e73", lw=1.6, ls="--", label="canary / its median")
    axes.set(xlabel="time since the first step, s", ylabel=f"medians of {DRIFT_SPAN} steps")
    axes.set_title("The machine's drift")
    axes.legend(loc="best")


def _residuals_caption(profile: Profile, stage: str, fitted: StageProfile) -> str:
    return (
        "A dot is the median of one cell of the grid; the fits saw all cells here, while the errors in the titles are "
        "of cells held out. Above 0 the fit is too slow. Lower right: steps over their fit and the canary kernel over "
        "its median, all steps; where both move together the machine did, not the model. "
        f"n = {fitted.samples:,} steps of {fitted.cells:,} cells, with {100 * fitted.left_out:.0f} % of all left out "
        f"because others had the machine; {profile.origin}."
    )
