"""Measurements of each request by aiperf, a client: its records, `profile_export.jsonl`.

The load and the model are in the summary next to them, `profile_export_aiperf.json`, or with a prefix `NAME.jsonl` and
`NAME.json`. Versions differ in its settings (0.13: `phases`, `models`; before: `loadgen`, `endpoint`), so each value is
looked for under all of them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.measured_runs.document import get, needed, number, read_json, read_lines
from harness.measured_runs.measured_run import WHOLE, Part, Request, rate_label
from workloads.errors import UserError

PROMPT, OUTPUT = (
    ("usage_prompt_tokens", "input_sequence_length"),
    ("usage_completion_tokens", "output_sequence_length"),
)
"""Tokens as the server counted them, else as the client did."""
_NS, _MS = 1e-9, 1e-3
_SUMMARY = "_aiperf.json"


def records_of(summary: Path) -> Path:
    """Return the records of the run of a summary. UserError where there are none."""
    records = summary.with_name(summary.name.removesuffix(_SUMMARY).removesuffix(".json") + ".jsonl")
    if not records.is_file():
        raise UserError(
            f"{summary} states means and percentiles alone, and {records.name} is not next to it; give aiperf's "
            "records (--export-level records)."
        )
    return records


def read_part(path: Path) -> Part:
    """Return the successful requests of the measured phase. UserError about a broken line, or turns of a
    conversation, whose prompts the records do not have."""
    seen = tuple(_requests(path))
    if not seen:
        raise UserError(f"{path} has no successful request; give the records of a run with some.")
    return Part(_label(path), seen)


def model(path: Path) -> str | None:
    """Return the model asked for."""
    settings = _settings(path)
    named = get(settings, "models.items", "endpoint.model_names") or [None]
    return get(named[0], "name") if isinstance(named[0], dict) else named[0]


def _requests(path: Path) -> Iterator[Request]:
    for where, record in read_lines(path):
        if get(record, "error") or get(record, "metadata.was_cancelled"):
            continue
        if get(record, "metadata.benchmark_phase") not in (None, "profiling"):
            continue
        if get(record, "metadata.turn_index"):
            raise UserError(f"{where} is a later turn of a conversation; give a run of single requests.")
        start, end = (needed(record, where, f"metadata.request_{name}_ns") * _NS for name in ("start", "end"))
        ttft = number(record, where, "metrics.time_to_first_token.value")
        e2e = number(record, where, "metrics.request_latency.value")
        yield Request(
            id=str(get(record, "metadata.x_request_id") or ""),
            arrival_s=start,
            prompt_tokens=int(needed(record, where, *(f"metrics.{name}.value" for name in PROMPT))),
            output_tokens=int(needed(record, where, *(f"metrics.{name}.value" for name in OUTPUT))),
            ttft_s=None if ttft is None else ttft * _MS,
            e2e_s=end - start if e2e is None else e2e * _MS,
        )


def _settings(path: Path) -> Any:
    for end in (_SUMMARY, ".json"):
        summary = path.with_name(path.name.removesuffix(".jsonl") + end)
        if summary.is_file():
            return get(read_json(summary), "input_config")
    return None


def _label(path: Path) -> str:
    """Return the label of the only measured phase. Older versions have one, `loadgen`."""
    settings = _settings(path)
    phases = [each for each in get(settings, "phases") or () if get(each, "kind", "name") != "warmup"]
    load = phases[0] if len(phases) == 1 else get(settings, "loadgen")
    rate, slots = number(load, str(path), "rate", "request_rate"), number(load, str(path), "concurrency")
    if slots is None and get(load, "type") == "concurrency":
        slots = 1
    label = f"{slots:g} at a time" if slots else WHOLE
    if rate is None:
        return label
    return f"{rate_label(rate)}, {label}" if slots else rate_label(rate)
