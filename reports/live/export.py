"""Runs in other tools' formats, a file for each point.

llm-d's benchmark report is of version 0.2 (llm-d-benchmark, benchmark-report/llmd_benchmark_report/schema_v0_2.py):
fields that it does not know are errors there, so what only we measure stands in `results.observability`, which takes
any. aiperf's is that of 0.13 (common/models/export_models.py, JsonExportData 1.4). Statistics are over the turns that
were answered in the steady window, latencies from the scheduled end of the user's turn.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from harness.request_tables.request_table import COMPLETED, FAILED
from reports.runs.measured import Measured, load_run
from workloads.atomic_file import output
from workloads.errors import UserError, nearest

_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
OURS = ("audio_ttfp_p50", "audio_ttfp_p90", "continuity", "rtf_p50", "wasted_token_ratio", "send_delay_p99")
"""Metrics that neither format has a field for."""


def export_run(folder: Path, form: str) -> list[Path]:
    """Write every point that counts into FOLDER/FORM; returns the files. UserError for a format that is not known, and
    for a run without requests."""
    if form not in FORMS:
        raise UserError(f"--export {form}: no such format.{nearest(form, FORMS)}")
    make, suffix, dump = FORMS[form]
    points = [point for point in load_run(folder).points if point.error is None and point.has("requests")]
    turns = [point for point in points if "ttft_s" in point.requests]
    if not turns:
        raise UserError(
            f"{folder} has no requests that count, which {form} is about; export the results of turns."
        )
    written = []
    for point in turns:
        path = folder / form / f"{point.point.id}.{suffix}"
        with output(path, make_folder=True) as file:
            file.write(dump(make(point)).encode())
        written.append(path)
    return written


def _benchmark_report(point: Measured) -> dict[str, Any]:
    found = _Numbers(point)
    manifest = point.record.manifest
    load: dict[str, Any] = {
        "tool": "rehearsal",
        "tool_version": str(manifest.get("version") or manifest.get("commit") or "unknown"),
        "parallelism": int(point.params.get("shards") or 1),
        "source": "random",
        "input_seq_len": _length(found.prompts),
        "output_seq_len": _length(found.outputs),
    }
    if point.params.get("c"):
        load["concurrency"] = int(point.params["c"])
    elif point.params.get("rate"):
        load["rate_qps"] = float(point.params["rate"])
    requests = {
        "total": found.total,
        "failures": found.failed,
        "incomplete": found.total - found.failed - found.completed,
        "input_length": _statistics(found.prompts, "count"),
        "output_length": _statistics(found.outputs, "count"),
    }
    latency = {
        "time_to_first_token": _statistics(found.ttft_s, "s"),
        "time_per_output_token": _statistics(found.tpot_s, "s/token"),
        "request_latency": _statistics(found.e2e_s, "s"),
    }
    throughput = {
        "output_token_rate": _one(found.per_second(found.outputs.sum()), "tokens/s"),
        "request_rate": _one(found.per_second(found.completed), "queries/s"),
    }
    own = {
        name: {"value": point.value(name), "n": point.count(name)}
        for name in OURS
        if point.value(name) is not None
    }
    return _known(
        {
            "version": "0.2",
            "run": {
                "uid": point.point.id,
                "eid": str(manifest.get("experiment") or point.point.workload),
                "time": {"start": manifest["started"], "end": manifest["finished"]},
                "description": point.point.label,
            },
            "scenario": {
                "load": {
                    "metadata": {"cfg_id": point.point.trace_hash},
                    "standardized": load,
                    "native": {
                        "config": {**point.params, "workload": point.point.workload, "seed": point.seed}
                    },
                }
            },
            "results": {
                "request_performance": {
                    "aggregate": {"requests": requests, "latency": latency, "throughput": throughput}
                },
                "observability": {"rehearsal": own} if own else None,
            },
        }
    )


def _profile_export(point: Measured) -> dict[str, Any]:
    found, manifest = _Numbers(point), point.record.manifest
    metrics = {
        "time_to_first_token": _result(1e3 * found.ttft_s, "ms"),
        "inter_token_latency": _result(1e3 * found.tpot_s, "ms"),
        "request_latency": _result(1e3 * found.e2e_s, "ms"),
        "input_sequence_length": _result(found.prompts, "tokens"),
        "output_sequence_length": _result(found.outputs, "tokens"),
        "output_token_throughput": _single(found.per_second(found.outputs.sum()), "tokens/sec"),
        "request_throughput": _single(found.per_second(found.completed), "requests/sec"),
        "request_count": _single(float(found.completed), "requests"),
        "error_request_count": _single(float(found.failed), "requests") if found.failed else None,
        "benchmark_duration": _single(found.seconds, "sec"),
    }
    head = {
        "schema_version": "1.4",
        "benchmark_id": point.point.id,
        "start_time": manifest["started"],
        "end_time": manifest["finished"],
        "was_cancelled": False,
    }
    return _known({**head, **metrics})


FORMS: Mapping[str, tuple[Callable[[Measured], dict[str, Any]], str, Callable[[Any], str]]] = {
    "llm-d": (_benchmark_report, "yaml", lambda made: yaml.safe_dump(made, sort_keys=False)),
    "aiperf": (_profile_export, "json", lambda made: json.dumps(made, indent=1) + "\n"),
}
"""Format -> the content of a point's file, how its name ends, and the text of a content."""


class _Numbers:
    """Numbers of a point's turns, as arrays. They cover completed turns unless a field says otherwise."""

    def __init__(self, point: Measured) -> None:
        rows = point.requests
        done = rows.loc[rows["status"] == COMPLETED]
        self.total, self.completed = len(rows), len(done)
        self.failed = int((rows["status"] == FAILED).to_numpy().sum())
        self.ttft_s = _present(done["ttft_s"])
        self.e2e_s = _present(done["e2e_s"])
        self.outputs = _present(done["generated_entry"])
        span_s = (done["e2e_s"] - done["ttft_s"]).to_numpy(float)
        steps = done["generated_entry"].to_numpy(float, na_value=np.nan) - 1
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(steps > 0, span_s / steps, np.nan)
        self.tpot_s = each[~np.isnan(each)]
        asked = pd.DataFrame(point.record.trace().columns())[["session", "turn", "input_tokens"]]
        self.prompts = _present(done.merge(asked, on=["session", "turn"])["input_tokens"])
        ends = (done["turn_end_s"] + done["e2e_s"]).to_numpy(float)
        begins = rows["turn_end_s"].to_numpy(float)
        self.seconds = float(np.nanmax(ends) - np.nanmin(begins)) if len(done) else 0.0

    def per_second(self, count: float) -> float | None:
        return float(count) / self.seconds if self.seconds > 0 else None


def _present(column: pd.Series) -> np.ndarray:
    values = column.to_numpy(float, na_value=np.nan)
    return values[~np.isnan(values)]


def _spread(values: np.ndarray) -> dict[str, float]:
    found = {f"p{p}": float(np.percentile(values, p)) for p in _PERCENTILES}
    return {**found, "min": float(values.min()), "max": float(values.max())}


def _statistics(values: np.ndarray, units: str) -> dict[str, Any] | None:
    if not values.size:
        return None
    return {"units": units, "mean": float(values.mean()), "stddev": float(values.std()), **_spread(values)}


def _one(value: float | None, units: str) -> dict[str, Any] | None:
    return None if value is None else {"units": units, "mean": value}


def _length(values: np.ndarray) -> dict[str, Any]:
    if not values.size:
        return {"distribution": "other", "value": 0}
    low, high = int(values.min()), max(1, int(values.max()))
    return {"distribution": "other", "value": float(values.mean()), "min": low, "max": high}


def _result(values: np.ndarray, unit: str) -> dict[str, Any] | None:
    if not values.size:
        return None
    mean, spread, std = float(values.mean()), _spread(values), float(values.std())
    return {"unit": unit, "avg": mean, **spread, "std": std, "count": values.size}


def _single(value: float | None, unit: str) -> dict[str, Any] | None:
    return None if value is None else {"unit": unit, "avg": value}


def _known(value: Any) -> Any:
    """Return the entries that are not None."""
    if isinstance(value, dict):
        return {name: _known(inner) for name, inner in value.items() if inner is not None}
    return value
