"""Measurements of each request by guidellm, a client: its results as JSON, gzip or not.

Versions differ in names (0.3: `start_time`, `args.strategy`; 0.6: `request_start_time`, `config.strategy`), so each
value is looked for under all of them.
"""

import re
from pathlib import Path
from typing import Any

from harness.measured_runs.document import get, needed, number, read_json
from harness.measured_runs.measured_run import ALL_AT_ONCE, ONE_AT_A_TIME, Part, Request, rate_label
from workloads.errors import UserError

START = ("request_start_time", "start_time", "info.timings.request_start")
END = ("request_end_time", "end_time", "info.timings.request_end")
PROMPT = ("prompt_tokens", "input_tokens", "input_metrics.total_tokens", "prompt_token_count")
OUTPUT = ("output_tokens", "output_metrics.total_tokens", "output_token_count")
_MS = 1e-3


def read_parts(path: str | Path) -> list[Part]:
    """Return the benchmarks of a file in order, each with its successful requests. UserError names what is missing."""
    document = read_json(path)
    benchmarks = get(document, "benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks:
        raise UserError(f"{path} has no benchmarks; give the results of guidellm.")
    return [_part(one, f"{path}, benchmark {at}") for at, one in enumerate(benchmarks, 1)]


def asked(path: str | Path) -> tuple[str | None, int]:
    """Return the model asked for, and the tokens with which all prompts begin."""
    document = read_json(path)
    first = next(iter(document["benchmarks"]), None)
    name = get(document, "args.model") or get(
        first, "config.backend.model", "worker.backend_model", "args.model"
    )
    data = get(document, "args.data") or get(first, "config.requests.data", "request_loader.data")
    said = re.search(r"prefix_tokens\W+(\d+)", str(data))
    return name, int(said.group(1)) if said else 0


def _part(benchmark: Any, where: str) -> Part:
    requests = get(benchmark, "requests.successful", "requests.completed")
    if not isinstance(requests, list):
        raise UserError(
            f"{where}: its requests are missing; let guidellm write them (full JSON, not a sample)."
        )
    strategy = get(benchmark, "config.strategy", "args.strategy", "scheduler.strategy") or {}
    seen = tuple(_request(one, f"{where}, request {at}") for at, one in enumerate(requests, 1))
    return Part(label(strategy, where), seen)


def label(strategy: Any, where: str) -> str:
    """Return the label of a part of this strategy; UserError without its rate."""
    kind = get(strategy, "type_", "type")
    if kind == "synchronous":
        return ONE_AT_A_TIME
    if kind == "throughput":
        return ALL_AT_ONCE
    if kind == "concurrent":
        return f"{needed(strategy, where, 'streams', 'max_concurrency'):g} at a time"
    rate = rate_label(needed(strategy, where, "rate"))
    return f"{rate}, Poisson" if kind == "poisson" else rate


def _request(one: Any, where: str) -> Request:
    start, end = needed(one, where, *START), number(one, where, *END)
    e2e = number(one, where, "request_latency")
    ttft = number(one, where, "time_to_first_token_ms", "ttft_ms")
    return Request(
        id=str(get(one, "response_id", "request_id") or ""),
        arrival_s=start,
        prompt_tokens=int(needed(one, where, *PROMPT)),
        output_tokens=int(needed(one, where, *OUTPUT)),
        ttft_s=None if ttft is None else ttft * _MS,
        e2e_s=end - start if e2e is None and end is not None else e2e,
    )
