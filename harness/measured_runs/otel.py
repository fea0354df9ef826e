"""Measurements of each request by vLLM's own traces: OpenTelemetry in JSON, a document a line.

vLLM writes a span `llm_request` for each request that ended (`--otlp-traces-endpoint`). One that was refused or aborted
has none.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.measured_runs.measured_run import Request
from workloads.errors import UserError, existing_file
from workloads.files.json_file import parse, read_text

PROMPT = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")
OUTPUT = ("gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")
TTFT = ("gen_ai.latency.time_to_first_token", "gen_ai.server.time_to_first_token")
E2E = ("gen_ai.latency.e2e", "gen_ai.server.request.duration")
QUEUE = ("gen_ai.latency.time_in_queue",)
ID = ("gen_ai.request.id", "gen_ai.response.id")
_NS = 1e9


def read_spans(path: str | Path) -> list[Request]:
    """Return the requests of a file, in its order; other spans are skipped. UserError names a broken line."""
    path = existing_file(path)
    found = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            found += _line(line, f"{path}, line {number},")
    return found


def _line(line: str, where: str) -> list[Request]:
    try:
        document = parse(line)
    except ValueError as error:
        raise UserError(f"{where} is not JSON ({error}); correct the line or take it out.") from None
    try:
        return [one for span in _spans(document) if (one := _request(span)) is not None]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
        raise UserError(f"{where} is not an OpenTelemetry trace ({said}); give vLLM's traces.") from None


def _spans(document: Any) -> Iterator[Any]:
    for resource in document.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from scope.get("spans") or ()


def _request(span: Any) -> Request | None:
    values = {item["key"]: _value(item.get("value") or {}) for item in span.get("attributes") or ()}
    prompt, output = _first(values, PROMPT), _first(values, OUTPUT)
    if prompt is None or output is None:
        return None
    start, end = int(span["startTimeUnixNano"]), int(span.get("endTimeUnixNano") or 0)
    e2e = _number(_first(values, E2E))
    return Request(
        id=str(_first(values, ID) or ""),
        arrival_s=start / _NS,
        prompt_tokens=int(prompt),
        output_tokens=int(output),
        ttft_s=_number(_first(values, TTFT)),
        e2e_s=(end - start) / _NS if e2e is None and end > start else e2e,
        queue_s=_number(_first(values, QUEUE)),
    )


def _value(value: dict[str, Any]) -> Any:
    """Return a value: Protobuf's JSON writes 64-bit integers as strings, some exporters as numbers."""
    return int(value["intValue"]) if "intValue" in value else next(iter(value.values()), None)


def _first(values: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
