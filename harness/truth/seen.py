"""One request as a file has it, before it is known which run, part and prefix it belongs to."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.truth.truth_run import Request


@dataclass(frozen=True, slots=True)
class Seen:
    """Times in seconds; None was not measured."""

    id: str
    """The id that the server gave the request; "" where the file does not say."""
    start_s: float
    """On any clock that the whole file shares."""
    prompt_tokens: int
    output_tokens: int
    ttft_s: float | None = None
    e2e_s: float | None = None
    queue_s: float | None = None
    prefix: str | None = None
    prefix_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """Requests of one load."""

    label: str
    seen: tuple[Seen, ...]


def request(seen: Seen, origin_s: float) -> Request:
    """`origin_s`: the arrival of the run's first request, on the clock of `seen`."""
    ttft_s, e2e_s, steps = seen.ttft_s, seen.e2e_s, seen.output_tokens - 1
    return Request(
        arrival_s=seen.start_s - origin_s,
        prompt_tokens=seen.prompt_tokens,
        output_tokens=seen.output_tokens,
        prefix=seen.prefix,
        prefix_tokens=seen.prefix_tokens,
        ttft_s=ttft_s,
        itl_s=None if ttft_s is None or e2e_s is None or steps < 1 else (e2e_s - ttft_s) / steps,
        e2e_s=e2e_s,
        queue_s=seen.queue_s,
    )


def by_arrival(seen: Iterable[Seen]) -> list[Seen]:
    """In the order of their starts; of equal starts, as they stand."""
    return sorted(seen, key=lambda one: one.start_s)


def rate_label(rate: float) -> str:
    """A part of a constant rate, requests a second."""
    return f"{rate:.3g}/s"


def rate_of(label: str) -> float | None:
    """The rate that a label of `rate_label` begins with; None in another one."""
    match = re.match(r"([\d.e+-]+)/s", label)
    return float(match.group(1)) if match else None


def achieved_rate(arrivals_s: Sequence[float]) -> float | None:
    """Requests a second between the first and the last of `arrivals_s`; None where they are all one."""
    took = max(arrivals_s) - min(arrivals_s)
    return (len(arrivals_s) - 1) / took if took else None


ONE_AT_A_TIME = "one at a time"
ALL_AT_ONCE = "as many as go"
WHOLE = "all"
