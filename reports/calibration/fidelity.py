"""A fidelity report for readers: the rows of its table, its picture as files, and what other reports quote of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from engines.devices.profile import Profile
from engines.devices.step_file import as_step_file
from harness.calibration.fidelity_report import (
    LATENCIES,
    MEASURED,
    MECHANICS,
    OTHER_RUN,
    PROFILE,
    REPORT,
    Agreement,
    Load,
    Prediction,
    Report,
    load_report,
    load_tables,
    percent,
)
from reports.figures.drawing import identity, sheet
from reports.figures.picture import Picture
from reports.figures.style import INK, MUTED, style
from reports.figures.svg import save
from reports.runs.measured import Run
from workloads.devices import REAL_DEVICES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOISE = "noise: real run 2 over run 1"
LOOKS = {NOISE: ("#b9c2cd", "o"), PROFILE: ("#cc79a7", "D"), OTHER_RUN: ("#d55e00", "^"), MECHANICS: ("#0072b2", "o")}
LABELS = {
    PROFILE: "prediction by profile",
    OTHER_RUN: "prediction from the other run",
    MECHANICS: "mechanics",
    NOISE: NOISE,
}
SCATTERED = {"tpot": ("TPOT, ms", 1e3), "e2e": ("E2E, s", 1.0)}
SHOWN_QUANTILE = 0.995
"""Quantile of the latencies at which the axes end. A single request far out would squeeze all others."""
FOLDER = "fidelity"
RESULTS = ("mechanics", "prediction", "profile", "noise")


@dataclass(frozen=True)
class Row:
    """One line of the table: the worse of the two real runs in each number, as text, and a verdict if there is one."""

    load: str
    what: str
    values: tuple[str, ...]
    verdict: str = ""


HEADINGS = ("TPOT median", "P90", "E2E median", "P90", "TTFT median", "TPOT P50, aggregate", "steps")


def rows(report: Report) -> list[Row]:
    """The table, load by load."""
    table = []
    for load in report.loads:
        name = f"{100 * load.share:.0f} %, {load.rate:g}/s"
        table.append(Row(name, "mechanics", _worst(_of(load, "mechanics")), load.verdicts["mechanics"].result))
        scheduled = [one.scheduled for one in load.mechanics]
        table.append(Row(name, "mechanics, arrivals as scheduled", _worst(scheduled)))
        for which, title in (("prediction", "prediction from the other run"), ("profile", "by profile")):
            predictions: Sequence[Prediction] = getattr(load, which)
            if not predictions:
                continue
            verdict = load.verdicts[which].result
            table.append(Row(name, title, _worst([one.agreement for one in predictions]), verdict))
            scaled = [one.scaled for one in predictions]
            table.append(Row(name, f"{title}, by canary", _worst(scaled)))
        table.append(Row(name, "noise: real against real", _worst([load.noise])))
    return table


def sentences(report: Report) -> list[tuple[str, str]]:
    """(name of a result, one line) for mechanics, prediction, profile where one was given, and noise."""
    results = []
    for result in RESULTS:
        texts = [text for load in report.loads if (text := _sentence(load, result))]
        if texts:
            results.append((result, "; ".join(texts)))
    return results


def quoted(run: Run) -> list[dict[str, Any]]:
    """Return facts for the report of `run`: results for its real device, or for the device of the profile it replayed
    with. They are stored with the results, in fidelity/DEVICE/ or (a nightly run's) fidelity/; without them there is
    no fact."""
    facts = []
    for device, machine in _devices(run):
        for folder in (run.folder.parent / FOLDER / device, run.folder.parent / FOLDER):
            if not (folder / REPORT).is_file():
                continue
            report = load_report(folder)
            if report.device != device or (machine is not None and report.machine.get("cpu") != machine):
                continue
            origin = f"{report.model} on {report.device}, {report.date[:10]}"
            facts += [{"label": f"Fidelity, {name}", "value": f"{text} ({origin})"} for name, text in sentences(report)]
            break
    return facts


def write_picture(folder: Path) -> Path:
    """Draw the content of `folder` as fidelity.svg and .pdf, and return the path of the SVG."""
    report = load_report(folder)
    requests, drift = load_tables(folder)
    with style():
        drawn = picture(report, requests, drift)
        save(drawn, folder)
    return folder / f"{drawn.name}.svg"


def _devices(run: Run) -> list[tuple[str, str | None]]:
    """(real device, processor it has to be or None) that speak for the points of a run."""
    devices: dict[tuple[str, str | None], None] = {}
    for measured in run.points:
        point = measured.point
        if point.device in REAL_DEVICES:
            devices[point.device, None] = None
        elif point.profile is not None:
            profile = as_step_file(point.profile, "the stored profile")
            if isinstance(profile, Profile):  # kernels measured elsewhere say nothing of a device here
                devices[profile.device, profile.machine.get("cpu")] = None
    return list(devices)


def _of(load: Load, result: str) -> list[Agreement]:
    return [load.noise] if result == "noise" else [one.agreement for one in getattr(load, result)]


def _sentence(load: Load, result: str) -> str:
    agreements = _of(load, result)
    if not agreements:
        return ""
    at = f"at {100 * load.share:.0f} % load"
    verdict = load.verdicts.get(result)
    if verdict is not None:
        return f"{at} {verdict.result}: {verdict.why}"
    tpot, e2e = (max(one.errors(name).median for one in agreements) for name in ("tpot", "e2e"))
    canary = f"canary {100 * (load.canary_moved - 1):+.1f} %" if result == "noise" else ""
    return ", ".join(filter(None, [f"{at} TPOT {percent(tpot)}", f"E2E {percent(e2e)}", canary]))


def _worst(agreements: Iterable[Agreement]) -> tuple[str, ...]:
    agreements = list(agreements)
    cells = []
    for name in LATENCIES:
        errors = [one.errors(name) for one in agreements]
        cells.append(percent(max(one.median for one in errors)))
        if name != "ttft":
            cells.append(percent(max(one.p90 for one in errors)))
    signed = max((one.tpot.aggregate_p50 for one in agreements), key=abs)
    return (*cells, f"{100 * signed:+.1f} %", percent(max(one.step_error for one in agreements)))


def picture(report: Report, requests: pd.DataFrame, drift: pd.DataFrame) -> Picture:
    """Tables as `harness.calibration.fidelity_report.load_tables` reads them."""
    title = f"Fidelity of virtual time: {report.model} on {report.device}"
    figure, panels = sheet(3 * len(report.loads), title, 3.3)
    for index, load in enumerate(report.loads):
        axes = panels[3 * index : 3 * index + 3]
        here = requests.query("load == @load.share")
        for panel, (latency, (label, factor)) in zip(axes[:2], SCATTERED.items(), strict=True):
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
    values = {key: requests.loc[key, latency] * factor for key in {(one[0], one[1]) for one in requests.index}}
    measured = [values[MEASURED, run] for run in (1, 2)]
    pairs = {NOISE: [(measured[0], measured[1])]}
    for source in (PROFILE, OTHER_RUN, MECHANICS):
        if (source, 1) in values:
            pairs[source] = [(measured[run - 1], values[source, run]) for run in (1, 2)]
    reach = max(np.nanquantile(one, SHOWN_QUANTILE) for pair in pairs.values() for both in pair for one in both)
    for source, both in pairs.items():
        joined = pd.concat([pd.concat(pair, axis=1, join="inner", keys=["x", "y"]) for pair in both])
        dots(axes, joined["x"], joined["y"], LOOKS[source], label=LABELS[source], rasterized=True)
    identity(axes, 0, 1.05 * reach)
    axes.set(xlim=(0, 1.05 * reach), ylim=(0, 1.05 * reach))


def dots(axes: Axes, x: Any, y: Any, look: tuple[str, str], **more: Any) -> None:
    """Draw points of this colour and marker."""
    colour, marker = look
    axes.plot(x, y, marker, color=colour, ls="", **{"ms": 2.6, "mew": 0, "alpha": 0.6, **more})


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
    axes.set(xlabel="time in run 1, then in run 2, s", ylabel="1: as in run 1", ylim=(0, 1.25 * axes.get_ylim()[1]))
    axes.set_title(f"The machine at {100 * load.share:.0f} % load")
    axes.legend(loc="upper left", fontsize=8)


def _caption(report: Report) -> str:
    parts = []
    for load in report.loads:
        where = f"At {100 * load.share:.0f} % load ({load.rate:g} requests/s, {load.requests} requests)"
        verdicts = "; ".join(f"{name} {one.result}: {one.why}" for name, one in load.verdicts.items())
        parts.append(
            f"{where}: {verdicts}. Noise: TPOT {percent(load.noise.tpot.median)} a request, canary "
            f"{100 * (load.canary_moved - 1):+.1f} % between the runs."
        )
    return (
        "A dot is a request of one of the two real runs; the band is ± 10 %. Mechanics: steps charged "
        "with the real run's own costs; prediction: with a fit to the other run. Where grey dots "
        "leave the band the machine did not repeat its own times, so no prediction can match. Right: "
        "medians of five canaries. " + " ".join(parts)
    )
