"""The files that go with a profile file: a page with its origin, tables and residual pictures, and the measured
steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from engines.devices.profile import Error, Profile
from harness.calibration.fidelity_report import percent
from reports.figures import residuals
from reports.figures.style import style
from reports.figures.svg import embedded
from reports.pages.templates import render
from reports.tables.plain_tables import Table
from workloads.atomic_file import cannot_write


def write_profile_page(profile: Profile, samples: pd.DataFrame, path: Path) -> Path:
    """Write NAME.html, NAME.samples.parquet and NAME-STAGE-residuals.svg and .pdf beside the profile `path`.

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
    """For each stage: both forms with their errors, then what is known of drift and of interruption."""
    found = []
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
        found.append(Table(f"{name}: {stage.samples:,} steps of {stage.cells:,} cells", headings, forms))
        drift = stage.drift
        found.append(
            Table(
                f"{name}: the machine",
                ("what", "value"),
                [
                    ("canary kernel, median", _ms(drift.canary_median_s)),
                    ("canary's drift, P90 over P10 of ten spans, less one", percent(drift.canary_spread)),
                    ("drift of steps over their fit, likewise", percent(drift.step_spread)),
                    ("steps left out: others had the machine", percent(stage.left_out)),
                    ("spread of single steps around the fit (CV)", percent(stage.residual_cv)),
                ],
            )
        )
        if stage.reaction:
            rows = [
                (
                    one.shape,
                    _ms(one.step_s),
                    _ms(one.layer_s),
                    _ms(one.median_s),
                    _ms(one.p90_s),
                    f"{one.interrupted} of {one.interrupted + one.ran_out}",
                )
                for one in stage.reaction
            ]
            headings = ("step", "whole", "a layer", "flag to end: median", "P90", "ended early")
            found.append(Table(f"{name}: interruption between layers", headings, rows))
    return found


def coefficients(profile: Profile) -> list[Table]:
    """Each stage's coefficients in both forms."""
    return [
        Table(
            f"{name}: {form}",
            ("term", "s per unit"),
            [(term, f"{seconds:.4g}") for term, seconds in fitted.coefficients.items()],
        )
        for name, stage in profile.stages.items()
        for form, fitted in stage.forms.items()
    ]


def _picture(profile: Profile, stage: str, samples: pd.DataFrame, path: Path) -> dict[str, Any]:
    with style():
        drawn = residuals.draw(profile, stage, samples.loc[samples["stage"] == stage])
        picture = replace(drawn, name=f"{path.stem}-{drawn.name}")
        return {"picture": picture, "svg": embedded(picture, path.parent)}


def _render(profile: Profile, pictures: list[dict[str, Any]], path: Path) -> str:
    origin = [
        ("Measured", profile.origin),
        ("Packages", ", ".join(f"{name} {version}" for name, version in profile.packages.items())),
        ("Date", f"{profile.date}, in {profile.duration_s:.0f} s"),
        ("Python", str(profile.machine.get("python"))),
    ]
    return render(
        "profile.html.j2",
        title=f"Step times of {profile.model} on {profile.device}",
        file=path.name,
        origin=origin,
        tables=[*tables(profile), *coefficients(profile)],
        pictures=pictures,
    )


def _shares(error: Error) -> tuple[str, str]:
    return percent(error.median), percent(error.p90)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
