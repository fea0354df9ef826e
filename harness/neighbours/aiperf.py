"""What aiperf measured of each request: its `profile_export.jsonl` (aiperf 0.13, common/models/record_models.py)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.neighbours.requests import Answered, Load
from workloads.errors import UserError
from workloads.files.json_file import parse, read_text

RECORDS, SUMMARY = "profile_export.jsonl", "profile_export_aiperf.json"
"""What it calls the file of requests, and the one of their statistics beside it."""
_TO_S = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}


def read_load(path: Path) -> Load:
    """UserError for a line that is no request, which names the line and what it lacks."""
    requests = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = parse(line)
            if found["metadata"].get("benchmark_phase", "profiling") == "profiling":
                requests.append(_request(found))
        except (ValueError, KeyError, TypeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{path}, line {number}: {what}; give {RECORDS} as aiperf wrote it.") from None
    return Load("all", tuple(requests), "")


def _request(found: Mapping[str, Any]) -> Answered:
    about, metrics = found["metadata"], found["metrics"]
    start_s, end_s = about["request_start_ns"] * 1e-9, about["request_end_ns"] * 1e-9
    failed = "" if found.get("error") is None else str(found["error"].get("type") or "error")
    session = about.get("x_correlation_id") or about.get("conversation_id") or str(about["session_num"])
    tokens = _value(metrics, "output_sequence_length")
    return Answered(
        session=session if about.get("turn_index") is not None else str(about["session_num"]),
        due_s=start_s,
        end_s=end_s,
        prompt_tokens=int(_value(metrics, "input_sequence_length") or 0),
        output_tokens=None if tokens is None else int(tokens),
        ttft_s=_seconds(metrics, "time_to_first_token"),
        failed=failed,
    )


def _value(metrics: Mapping[str, Any], name: str) -> float | None:
    found = metrics.get(name)
    return None if found is None else float(found["value"])


def _seconds(metrics: Mapping[str, Any], name: str) -> float | None:
    value = _value(metrics, name)
    if value is None:
        return None
    unit = metrics[name]["unit"]
    if unit not in _TO_S:
        raise ValueError(f"{name} has the unit {unit!r}, which is no time")
    return value * _TO_S[unit]
