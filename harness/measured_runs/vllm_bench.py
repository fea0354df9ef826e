"""Measurements of each request by `vllm bench serve --save-result --save-detailed`, a client
(vllm/benchmarks/serve.py).

Without `--save-detailed` the result has no lists of requests.
"""

from pathlib import Path
from typing import Any

from harness.measured_runs.document import get, read_json
from harness.measured_runs.measured_run import ALL_AT_ONCE, Part, Request, rate_label
from workloads.errors import UserError

FIX = "run `vllm bench serve` with --save-result --save-detailed"


def read_part(path: str | Path) -> Part:
    """Return the successful requests. UserError without their lengths, times or arrivals."""
    document = read_json(path)
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a result of a benchmark; {FIX}.")
    lists = {name: _list(document, name, path) for name in ("input_lens", "output_lens", "ttfts", "itls")}
    lists["start_times"] = _starts(document, len(lists["input_lens"]), path)
    if len({len(values) for values in lists.values()}) > 1:
        lengths = ", ".join(f"{len(values)} {name}" for name, values in lists.items())
        raise UserError(f"{path} has lists of different lengths ({lengths}); {FIX} again.")
    errors = document.get("errors") or [""] * len(lists["itls"])
    try:
        seen = tuple(
            Request(float(start), int(prompt), int(output), float(ttft), float(ttft) + float(sum(gaps)))
            for prompt, output, ttft, gaps, start, error in zip(*lists.values(), errors, strict=True)
            if not error
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} has a value that is not a number ({error}); {FIX} again.") from None
    return Part(_label(document), seen)


def model(path: str | Path) -> str | None:
    """Return the model asked for."""
    return get(read_json(path), "model_id")


def _list(document: dict[str, Any], name: str, path: str | Path) -> list[Any]:
    values = document.get(name)
    if not isinstance(values, list) or not values:
        raise UserError(f"{path} has no {name}; {FIX}.")
    return values


def _starts(document: dict[str, Any], n: int, path: str | Path) -> list[Any]:
    """Return when requests were sent. If the file does not say, it is known in one case: no rate and no cap."""
    values = document.get("start_times")
    if isinstance(values, list) and values:
        return values
    if document.get("request_rate") == "inf" and not document.get("max_concurrency"):
        return [0.0] * n
    raise UserError(f"{path} has no start_times, so arrivals are not known; {FIX}, by a vLLM that writes them.")


def _label(document: dict[str, Any]) -> str:
    rate, cap = document.get("request_rate"), document.get("max_concurrency")
    label = rate_label(float(rate)) if isinstance(rate, int | float) else ALL_AT_ONCE
    return f"{label}, {cap} at a time" if cap else label
