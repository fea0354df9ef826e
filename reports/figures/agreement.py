"""Fidelity drawn: each request's latency in virtual time over the measured one, and the machine's drift beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from harness.calibration.fidelity_report import MEASURED, MECHANICS, OTHER_RUN, PROFILE, Load, Report, percent
from reports.figures.drawing import identity, sheet
from reports.figures.picture import Picture
from reports.figures.style import INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOISE = "noise: real run 2 over run 1"
LOOKS = {
    NOISE: ("#b9c2cd", "o"),
    PROFILE: ("#cc79a7", "D"),
    OTHER_RUN: ("#d55e00", "^"),
    MECHANICS: ("#0072b2", "o"),
}
LABELS = {
    PROFILE: "prediction by profile",
    OTHER_RUN: "prediction from the other run",
    MECHANICS: "mechanics",
    NOISE: NOISE,
}
LATENCIES = {"tpot": ("TPOT, ms", 1e3), "e2e": ("E2E, s", 1.0)}
SHOWN_QUANTILE = 0.995
"""Quantile of the latencies at which the axes end. A single request far out would squeeze all others."""


def draw(report: Report, requests: pd.DataFrame, drift: pd.DataFrame) -> Picture:
    """Tables as `harness.calibration.fidelity_report.load_tables` reads them."""
    title = f"Fidelity of virtual time: {report.model} on {report.device}"
    figure, panels = sheet(3 * len(report.loads), title, 3.3)
    for index, load in enumerate(report.loads):
        axes = panels[3 * index : 3 * index + 3]
        here = requests.query("load == @load.share")
        for panel, (latency, (label, factor)) in zip(axes[:2], LATENCIES.items(), strict=True):
            _scatter(panel, here, latency, factor)
            panel.set_xlabel(f"measured {label}")
            panel.set_ylabel(f"in virtual time (grey: run 2), {label.split(', ')[1]}")
            panel.set_title(f"{label.split(',')[0]} at {100 * load.share:.0f} % load")
        _drift(axes[2], drift.query("load == @load.share"), load)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower left", ncols=4, markerscale=1.6)
    return Picture("fidelity", title, figure, _caption(report))


def _scatter(axes: Axes, requests: pd.DataFrame, latency: str, factor: float) -> None:
    requests = requests.set_index(["source", "run", "session", "turn"]).sort_index()
    values = {
        key: requests.loc[key, latency] * factor for key in {(one[0], one[1]) for one in requests.index}
    }
    measured = [values[MEASURED, run] for run in (1, 2)]
    pairs = {NOISE: [(measured[0], measured[1])]}
    for source in (PROFILE, OTHER_RUN, MECHANICS):
        if (source, 1) in values:
            pairs[source] = [(measured[run - 1], values[source, run]) for run in (1, 2)]
    reach = max(
        np.nanquantile(one, SHOWN_QUANTILE) for pair in pairs.values() for both in pair for one in both
    )
    for source, both in pairs.items():
        colour, marker = LOOKS[source]
        joined = pd.concat([pd.concat(pair, axis=1, join="inner", keys=["x", "y"]) for pair in both])
        axes.plot(
            joined["x"],
            joined["y"],
            marker,
            ms=2.6,
            mew=0,
            alpha=0.6,
            color=colour,
            ls="",
            label=LABELS[source],
            rasterized=True,
        )
    identity(axes, 0, 1.05 * reach)
    axes.set(xlim=(0, 1.05 * reach), ylim=(0, 1.05 * reach))


def _drift(axes: Axes, drift: pd.DataFrame, load: Load) -> None:
    """Both runs, one after the other in time: steps over the fit to the first, the canary over its median there."""
    first = load.runs[0].canary.median_s
    offset = 0.0
    for run, facts in enumerate(load.runs, start=1):
        here = drift.query("run == @run")
        scale = {"steps": 1.0, "canary": 1 / first}
        for kind, colour, line, label in (
            ("steps", INK, "-", "steps / fit to run 1"),
            ("canary", "#009e73", "--", "canary / median of run 1"),
        ):
            of_kind = here.query("kind == @kind")
            smooth = pd.Series(of_kind["value"]).rolling(5, center=True, min_periods=1).median()
            axes.plot(
                offset + of_kind["at_s"],
                scale[kind] * smooth,
                color=colour,
                ls=line,
                lw=1.3,
                label=label if run == 1 else None,
            )
        if run < len(load.runs):
            offset += facts.seconds
            axes.axvline(offset, color=MUTED, lw=0.9, ls=(0, (4, 3)))
    axes.set(
        xlabel="time in run 1, then in run 2, s", ylabel="1: as in run 1", ylim=(0, 1.25 * axes.get_ylim()[1])
    )
    axes.set_title(f"The machine at {100 * load.share:.0f} % load")
    axes.legend(loc="upper left", fontsize=8)


def _caption(report: Report) -> str:
    said = []
    for load in report.loads:
        where = f"At {100 * load.share:.0f} % load ({load.rate:g} requests/s, {load.requests} requests)"
        verdicts = "; ".join(f"{name} {one.result}: {one.why}" for name, one in load.verdicts.items())
        said.append(
            f"{where}: {verdicts}. Noise: TPOT {percent(load.noise.tpot.median)} a request, canary "
            f"{100 * (load.canary_moved - 1):+.1f} % between the runs."
        )
    return (
        "A dot is a request of one of the two real runs; the band is ± 10 %. Mechanics: steps charged with the real "
        "run's own costs; prediction: with a fit to the other run. Where grey dots leave the band the machine did not "
        "repeat, and no prediction can. Right: medians of five canaries. " + " ".join(said)
    )
