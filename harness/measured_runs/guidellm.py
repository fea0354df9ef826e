"""Measurements of each request by guidellm, a client: its results as JSON, gzip or not.

Versions differ in names (0.3: `start_time`, `args.strategy`; 0.6: `request_start_time`, `config.strategy`), so each
value is looked for under all of them.
"""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from harness.measured_runs.document import get, needed, number, read_json
from harness.measured_runs.measured_run import ALL_AT_ONCE, ONE_AT_A_TIME, WHOLE, Part, Request, rate_label
from workloads.errors import UserError

START = ("request_start_time", "start_time", "info.timings.request_start")
END = ("request_end_time", "end_time", "info.timings.request_end")
PROMPT = ("prompt_tokens", "input_tokens", "input_metrics.total_tokens", "prompt_token_count")
OUTPUT = ("output_tokens", "output_metrics.total_tokens", "output_token_count")
_MS = 1e-3


PAUSE_S = 1.0
"""Shorter than guidellm's pauses between parts (2 s and more), longer than the jitter of arrivals (0.02 s)."""
JITTER_S, JITTER = 0.01, 0.003
"""Mean distance of a constant part's gap from whole periods: seconds, and a share of the period."""
REFUSED, IRREGULAR = 2.0, 6.0
"""Costs (negative logarithms of probabilities) of a request that is missing and of a gap that fits nothing. [chosen]"""
CUT = 10.0
"""Cost of one part more: above that of one irregular gap, and of the longest of some hundred Poisson gaps. [chosen]"""
FEWER, FEWEST = 0.5, 2.5
"""Costs of a part for each request fewer than was asked for, and at most: a part may also end by time. [chosen]"""


def split(seen: Sequence[Request], most: int | None) -> list[Part]:
    """Split requests in the order of arrival into the parts of a sweep: one request at a time, then as many as
    possible, then constant or Poisson rates. `most`: requests of a part, where known.

    guidellm begins a part only when all requests of the one before have ended, and takes its time for it. So a part
    begins where the server has stood empty for a while. Of all such places those are taken that make the arrivals most
    likely: a part is constant, perhaps with a burst at its beginning, or Poisson. Requests that the server refused are
    not seen: a gap may be several periods long.

    They are one part where they are not such a sweep: an end is not known, or a part would have more than `most`.
    """
    whole = [Part(WHOLE, tuple(seen))]
    if any(one.e2e_s is None for one in seen):
        return whole
    starts = np.array([one.arrival_s for one in seen])
    ends = np.maximum.accumulate([one.arrival_s + (one.e2e_s or 0.0) for one in seen])
    empty = np.flatnonzero(starts[1:] - ends[:-1] >= PAUSE_S) + 1
    busy = np.flatnonzero(starts[1:] < ends[:-1]) + 1
    single = int(busy[0]) - 1 if len(busy) else len(seen)
    many = int(next((at for at in empty if at > single), len(seen)))
    cuts = sorted({0, single, many, *_likeliest(starts, [many, *map(int, empty[empty > many])], most)})
    parts = [
        Part(_label(first, single, many, starts[first:end]), tuple(seen[first:end]))
        for first, end in pairwise([*cuts, len(seen)])
        if end > first
    ]
    fits = most is None or all(len(part.requests) <= most for part in parts)
    return parts if fits else whole


def _likeliest(starts: np.ndarray, places: Sequence[int], most: int | None) -> list[int]:
    """Return the items of `places` at which parts begin, in the cheapest split of the arrivals. The first part begins
    at the first place."""
    if places[0] == len(starts):
        return []
    best, before, open_places = {places[0]: 0.0}, {}, [places[0]]
    for end in [*places[1:], len(starts)]:
        costs = {}
        for begin in open_places:
            gaps = np.diff(starts[begin:end])
            cost = min(_constant(gaps)[0], _poisson(gaps)) if len(gaps) else 0.0
            costs[begin] = best[begin] + CUT + cost + _fewer(end - begin, most)
        before[end] = min(costs, key=costs.__getitem__)
        best[end] = costs[before[end]]
        # A place from which it costs more than from a later one is never the better one again.
        open_places = [begin for begin in open_places if costs[begin] <= best[end] + 2 * CUT] + [end]
    cuts, at = [], len(starts)
    while at in before:
        at = before[at]
        cuts.append(at)
    return cuts


def _fewer(count: int, most: int | None) -> float:
    if most is None:
        return 0.0
    return math.inf if count > most else min(FEWEST, FEWER * (most - count))


def _poisson(gaps: np.ndarray) -> float:
    """Return the negative log-likelihood of the gaps under a Poisson process."""
    return len(gaps) * (1 + math.log(max(float(gaps.mean()), JITTER_S)))


def _constant(gaps: np.ndarray) -> tuple[float, float]:
    """Return the same under one request a period, after a burst and a first gap of any length; and the period."""
    at_once = min(4 * JITTER_S, float(np.quantile(gaps, 0.75)) / 4)
    burst = int(np.argmax([*(gaps > at_once), True]))
    rest = gaps[burst:]
    if not len(rest):
        return burst * math.log(2 * JITTER_S), math.inf
    later = rest[1:] if len(rest) > 1 else rest
    period = float(np.median(later))
    period = float(np.median(later / np.maximum(1, np.round(later / period))))
    spread = JITTER_S + JITTER * period
    count = np.maximum(1, np.round(rest / period))
    off = np.minimum(np.abs(rest - count * period) / spread, IRREGULAR) + REFUSED * (count - 1)
    return float(off.sum()) + len(rest) * math.log(2 * spread) + burst * math.log(2 * JITTER_S), period


def _label(first: int, single: int, many: int, starts: np.ndarray) -> str:
    if first < single:
        return ONE_AT_A_TIME
    if first < many:
        return ALL_AT_ONCE
    gaps = np.diff(starts)
    if not len(gaps):
        return WHOLE
    cost, period = _constant(gaps)
    return rate_label(1 / period) if cost <= _poisson(gaps) else f"{rate_label(1 / gaps.mean())}, Poisson"


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
    name = get(document, "args.model") or get(first, "config.backend.model", "worker.backend_model", "args.model")
    data = get(document, "args.data") or get(first, "config.requests.data", "request_loader.data")
    match = re.search(r"prefix_tokens\W+(\d+)", str(data))
    return name, int(match.group(1)) if match else 0


def _part(benchmark: Any, where: str) -> Part:
    requests = get(benchmark, "requests.successful", "requests.completed")
    if not isinstance(requests, list):
        raise UserError(f"{where}: its requests are missing; let guidellm write them (full JSON, not a sample).")
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
