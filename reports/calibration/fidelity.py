"""A fidelity report for readers: the rows of its table, its picture as files, and what other reports quote of it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.devices.names import REAL_DEVICES
from engines.devices.profile import Profile
from engines.devices.step_file import as_step_file
from harness.calibration.fidelity_report import (
    LATENCIES,
    REPORT,
    Agreement,
    Load,
    Prediction,
    Report,
    load_report,
    load_tables,
    percent,
)
from reports.figures import agreement as picture
from reports.figures.style import style
from reports.figures.svg import save
from reports.runs.measured import Run

FOLDER = "fidelity"
RESULTS = ("mechanics", "prediction", "profile", "noise")


@dataclass(frozen=True)
class Row:
    """One line of the table: the worse of the two real runs in each number, as text; a verdict where there is one."""

    load: str
    what: str
    values: tuple[str, ...]
    verdict: str = ""


HEADINGS = (
    "TPOT median",
    "P90",
    "E2E median",
    "P90",
    "TTFT median",
    "TPOT P50, aggregate",
    "steps",
)


def rows(report: Report) -> list[Row]:
    """The table, load by load."""
    found = []
    for load in report.loads:
        name = f"{100 * load.share:.0f} %, {load.rate:g}/s"
        found.append(
            Row(name, "mechanics", _worst(_of(load, "mechanics")), load.verdicts["mechanics"].result)
        )
        scheduled = [one.scheduled for one in load.mechanics]
        found.append(Row(name, "mechanics, arrivals as scheduled", _worst(scheduled)))
        for which, title in (("prediction", "prediction from the other run"), ("profile", "by profile")):
            predictions: Sequence[Prediction] = getattr(load, which)
            if not predictions:
                continue
            verdict = load.verdicts[which].result
            found.append(Row(name, title, _worst([one.agreement for one in predictions]), verdict))
            scaled = [one.scaled for one in predictions]
            found.append(Row(name, f"{title}, by canary", _worst(scaled)))
        found.append(Row(name, "noise: real against real", _worst([load.noise])))
    return found


def sentences(report: Report) -> list[tuple[str, str]]:
    """(name of a result, one line) for mechanics, prediction, profile where one was given, and noise."""
    found = []
    for result in RESULTS:
        said = [text for load in report.loads if (text := _said(load, result))]
        if said:
            found.append((result, "; ".join(said)))
    return found


def quoted(run: Run) -> list[dict[str, Any]]:
    """Facts for the report of `run`: the results for its real device, or for that of the profile it replayed with.

    They lie beside the results, in fidelity/DEVICE/ or (a night's) fidelity/; none there, no fact.
    """
    facts = []
    for device, machine in _devices(run):
        for folder in (run.folder.parent / FOLDER / device, run.folder.parent / FOLDER):
            if not (folder / REPORT).is_file():
                continue
            report = load_report(folder)
            if report.device != device or (machine is not None and report.machine.get("cpu") != machine):
                continue
            origin = f"{report.model} on {report.device}, {report.date[:10]}"
            facts += [
                {"label": f"Fidelity, {name}", "value": f"{text} ({origin})"}
                for name, text in sentences(report)
            ]
            break
    return facts


def write_picture(folder: Path) -> Path:
    """Draw what `folder` holds as fidelity.svg and .pdf; the path of the SVG."""
    report = load_report(folder)
    requests, drift = load_tables(folder)
    with style():
        drawn = picture.draw(report, requests, drift)
        save(drawn, folder)
    return folder / f"{drawn.name}.svg"


def _devices(run: Run) -> list[tuple[str, str | None]]:
    """(real device, processor it has to be or None) that speak for the points of a run."""
    found: dict[tuple[str, str | None], None] = {}
    for measured in run.points:
        point = measured.point
        if point.device in REAL_DEVICES:
            found[point.device, None] = None
        elif point.profile is not None:
            profile = as_step_file(point.profile, "the stored profile")
            if isinstance(profile, Profile):  # kernels measured elsewhere say nothing of a device here
                found[profile.device, profile.machine.get("cpu")] = None
    return list(found)


def _of(load: Load, result: str) -> list[Agreement]:
    return [load.noise] if result == "noise" else [one.agreement for one in getattr(load, result)]


def _said(load: Load, result: str) -> str:
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
    found = []
    for name in LATENCIES:
        errors = [one.errors(name) for one in agreements]
        found.append(percent(max(one.median for one in errors)))
        if name != "ttft":
            found.append(percent(max(one.p90 for one in errors)))
    signed = max((one.tpot.aggregate_p50 for one in agreements), key=abs)
    return (*found, f"{100 * signed:+.1f} %", percent(max(one.step_error for one in agreements)))
