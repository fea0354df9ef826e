"""Errors of predictions: a row for each load of a run, and totals."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from engines.devices.profile import FilePart
from harness.experiments.provenance import environment
from harness.measured_runs.measured_run import LATENCIES, MeasuredRun, SummaryRun, achieved_rate, rate_of
from harness.measured_runs.predict import Failed, Prediction
from harness.records.record import write_json

REPORT, REQUESTS = "measured_runs.json", "requests.parquet"
SCHEMA_VERSION = 1

Kind = Literal["below saturation", "saturated", "in sum"]
STATISTICS = ("mean", "p50", "p90", "p99")


class Error(FilePart):
    """The error of one latency, in s.

    `measured`, `predicted`: by the names of `STATISTICS`, None where the run does not state it. `absolute`: mean of
    |predicted / measured - 1|, of requests one by one, or of the statistics of an experiment in sum; `signed`: of the
    means, predicted / measured - 1.
    """

    measured: dict[str, float | None]
    predicted: dict[str, float | None]
    absolute: float | None
    signed: float | None


class Row(FilePart):
    """One load of a run.

    `intended`: requests a second that the client was set to send, one after the other of several rates, none where it
    sent as fast as replies came; `achieved`: sent requests a second, None where not known. `requests`: measured one by
    one, or replayed for an experiment in sum. `calibrated`: the constants of ours for which these very numbers were
    used.
    """

    run: str
    part: str
    kind: Kind
    model: str
    vllm: str
    server: str
    intended: list[float] = Field(default=[])
    achieved: float | None = None
    requests: int
    latencies: dict[str, Error]
    calibrated: str = ""
    step_times: str
    assumed: list[str]


class Total(FilePart):
    """Mean absolute error of each latency over all requests, or of the means of all experiments, of a kind.

    `of`: a run whose requests are known, or the model and version of vLLM of experiments in sum; None: of all.
    `held_out`: True for loads that nothing was calibrated on.
    """

    of: str | None = None
    kind: Kind
    held_out: bool
    loads: int
    requests: int
    absolute: dict[str, float | None]


class Report(FilePart):
    """The report of predictions. `totals`: of loads that nothing was calibrated on, by run and over all; then of the
    others."""

    schema_version: int = SCHEMA_VERSION
    date: str
    revision: dict[str, Any] | None
    rows: list[Row] = Field(min_length=1)
    totals: list[Total]
    failed: list[Failed] = Field(default=[])


def report_of(
    predictions: Sequence[Prediction], failed: Sequence[Failed] = (), calibrated: Iterable[tuple[str, str]] = ()
) -> Report:
    """Make the report. `calibrated`: (begin of a run's name, constants) of runs that something was calibrated on."""
    used = {
        each.run.name: constants
        for each in predictions
        for begin, constants in calibrated
        if each.run.name.startswith(begin)
    }
    rows = [row for each in predictions for row in _rows(each, used)]
    return Report(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        revision=environment()["revision"],
        rows=rows,
        totals=[total for held_out in (True, False) for total in _totals(predictions, rows, held_out)],
        failed=list(failed),
    )


def store(report: Report, predictions: Sequence[Prediction], out: Path) -> None:
    """Write measured_runs.json, and requests.parquet with a row for each request."""
    tables = [each.requests.assign(run=each.run.name) for each in predictions]
    pd.concat(tables, ignore_index=True).to_parquet(out / REQUESTS, index=False)
    write_json(out / REPORT, report.model_dump(mode="json"))


def _rows(prediction: Prediction, used: dict[str, str]) -> list[Row]:
    run, server = prediction.run, prediction.run.server
    rows = []
    for part, here in prediction.requests.groupby("part", sort=False):
        kind: Kind = "saturated" if here["saturated"].iloc[0] else "below saturation"
        if isinstance(run, SummaryRun):
            kind, intended, achieved = "in sum", [rate for rate, _ in run.rates], run.achieved
        else:
            intended = [rate] if (rate := rate_of(str(part))) is not None else []
            achieved = achieved_rate([run.requests[at].arrival_s for at in here["request"]])
        row = Row(
            run=run.name,
            part=str(part),
            kind=kind,
            model=server.model,
            vllm=server.vllm or "of unknown version",
            server=f"{server.model}, {prediction.gpu} x {server.tp}, vLLM {server.vllm or '?'}",
            intended=intended,
            achieved=achieved,
            requests=len(here),
            latencies={name: _error(run, here, name) for name in LATENCIES},
            calibrated=used.get(run.name, ""),
            step_times=prediction.step_times,
            assumed=list(prediction.assumed),
        )
        rows.append(row)
    return rows


def _error(run: MeasuredRun | SummaryRun, requests: pd.DataFrame, name: str) -> Error:
    if isinstance(run, SummaryRun):
        return _in_sum(run, name, requests[f"predicted_{name}"].to_numpy(float))
    return _by_request(requests, name)


def _by_request(requests: pd.DataFrame, name: str) -> Error:
    pair = requests[[f"measured_{name}", f"predicted_{name}"]].dropna()
    measured, predicted = (np.asarray(pair[column]) for column in pair)
    absolute = signed = None
    if len(pair):
        absolute = round(float(np.abs(predicted / measured - 1).mean()), 5)
        signed = round(float(predicted.mean() / measured.mean() - 1), 5)
    statistics = {"measured": _statistics(measured), "predicted": _statistics(predicted)}
    return Error(**statistics, absolute=absolute, signed=signed)


def _in_sum(run: SummaryRun, name: str, predicted: np.ndarray) -> Error:
    measured = {each: run.measured.get(f"{name}_{each}") for each in STATISTICS}
    measured["mean"] = run.means.get(name)
    ours = _statistics(predicted[~np.isnan(predicted)])
    ratios = {key: replay / value - 1 for key, value in measured.items() if value and (replay := ours[key])}
    return Error(
        measured=measured,
        predicted=ours,
        absolute=round(float(np.mean(np.abs(list(ratios.values())))), 5) if ratios else None,
        signed=round(ratios["mean"], 5) if "mean" in ratios else None,
    )


def _statistics(values: np.ndarray) -> dict[str, float | None]:
    if not len(values):
        return dict.fromkeys(STATISTICS)
    p50, p90, p99 = np.quantile(values, [0.5, 0.9, 0.99])
    numbers = {"mean": values.mean(), "p50": p50, "p90": p90, "p99": p99}
    return {name: round(float(value), 6) for name, value in numbers.items()}


def _totals(predictions: Sequence[Prediction], rows: Sequence[Row], held_out: bool) -> Iterator[Total]:
    rows = [row for row in rows if bool(row.calibrated) != held_out]
    parts = {(row.run, row.part) for row in rows if row.kind != "in sum"}
    requests = pd.concat([each.requests.assign(run=each.run.name) for each in predictions], ignore_index=True)
    requests = requests[[pair in parts for pair in zip(requests["run"], requests["part"], strict=True)]]
    for kind in ("below saturation", "saturated"):
        here = requests.loc[requests["saturated"] == (kind == "saturated")]
        of_kind = [row for row in rows if row.kind == kind]
        groups = [*here.groupby("run", sort=False), (None, here)] if len(here) else []
        for run, each in groups:
            yield Total(
                of=None if run is None else str(run),
                kind=kind,
                held_out=held_out,
                loads=sum(run in (None, row.run) for row in of_kind),
                requests=len(each),
                absolute={name: _by_request(each, name).absolute for name in LATENCIES},
            )
    in_sum: dict[str | None, list[Row]] = {}
    for row in rows:
        if row.kind == "in sum":
            in_sum.setdefault(f"{row.model}, vLLM {row.vllm}", []).append(row)
    for of, each in in_sum.items():
        yield Total(
            of=of,
            kind="in sum",
            held_out=held_out,
            loads=len(each),
            requests=sum(row.requests for row in each),
            absolute={name: _mean_error(each, name) for name in LATENCIES},
        )


def _mean_error(rows: Sequence[Row], name: str) -> float | None:
    """Return the mean absolute error of the experiments' means; None without any."""
    errors = [abs(error) for row in rows if (error := row.latencies[name].signed) is not None]
    return round(float(np.mean(errors)), 5) if errors else None
