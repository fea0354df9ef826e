"""Measured runs in one neutral form, whichever tool wrote them: the server, and request by request its times, or means
and tails of a whole experiment.

Readers make requests of files (`vllm_server`, `guidellm`, `vllm_bench`, `aiperf`, `inference_perf`) or summaries
(`summary_csv`, `inference_perf`); `folder` puts what belongs together into runs, and reads those of `rehearse live`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.records.record import Record

LATENCIES = ("ttft", "itl", "e2e")
"""Latencies that are compared: time to the first token, mean time between tokens of a request, end to end."""

METRICS = ("e2e_mean", "e2e_p90", "e2e_p99", "ttft_mean", "ttft_p90", "ttft_p99", "itl_mean")
"""Names of what a whole experiment measured, all in seconds."""

CLIENT_S = {"inference-perf": 0.0053}
"""Time that a client and its HTTP add to each latency where no run of it says, s. [calibrated] with host times, to all
public runs of text together (`python -m tools.fit_host`)."""

Measured = Mapping[str, float]
"""Names of METRICS -> seconds; a name that was not measured is missing."""


@dataclass(frozen=True, slots=True)
class Request:
    """One measured request; None for a time that was not measured."""

    arrival_s: float
    """In a file, on any clock that all of it shares; in a run, after the first of the run."""
    prompt_tokens: int
    """With the shared prefix, if any."""
    output_tokens: int
    """Tokens generated, not the limit."""
    ttft_s: float | None = None
    e2e_s: float | None = None
    queue_s: float | None = None
    """Between its arrival at the engine and its first step."""
    prefix: str | None = None
    """Name of its shared prefix: all prompts of a name begin with the same tokens."""
    prefix_tokens: int = 0
    session: str = ""
    """Name of its session; "": it is alone in one."""
    think_s: float | None = None
    """From the end of its session's previous reply; None: it is the first of its session."""
    id: str = ""
    """The id that the server gave it; "" where the file does not say."""

    @property
    def itl_s(self) -> float | None:
        """The mean time between its tokens, (e2e - ttft) / (output tokens - 1); None below two tokens."""
        if self.ttft_s is None or self.e2e_s is None or self.output_tokens < 2:
            return None
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


@dataclass(frozen=True, slots=True)
class Part:
    """Requests of one load."""

    label: str
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Server:
    """The server of a run; None: not known."""

    model: str
    """"" is not known."""
    gpu: str | None = None
    tp: int = 1
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    block_size: int = 16
    kv_tokens: int | None = None
    """Tokens that fit into its KV cache."""
    gpu_memory_utilization: float | None = None
    prefix_caching: bool = True
    async_scheduling: bool | None = None
    quantization: str | None = None
    vllm: str | None = None
    """Its version."""
    label: str = ""
    """The user's name for the server."""
    config: Path | None = None
    """The model's config.json, where it is with the run."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run with measurements of each request."""

    name: str
    server: Server
    requests: tuple[Request, ...]
    """Requests in order of arrival, with the server's times where it measured them, else the client's."""
    parts: tuple[tuple[str, int, int], ...]
    """Changes of its load: (label, index of the first request, index after the last); at least one."""
    client: tuple[Request | None, ...] | None
    """The client's measurement of each of `requests`, arrivals as in its file; None where it measured nothing."""
    tool: str = ""
    """The client that loaded it, where that is known."""
    client_s: float | None = 0.0
    """Seconds that the client adds to the latencies of `requests`: 0 where the server measured them; None is not
    known."""


@dataclass(frozen=True, slots=True)
class SummaryRun:
    """An experiment with a few known numbers."""

    name: str
    server: Server
    workload: str
    measured: Measured
    input_tokens: float
    """The mean of a request; so the next."""
    output_tokens: float
    rates: tuple[tuple[float, float], ...]
    """(requests a second, seconds), one after the other; in each, a Poisson process of just rate × seconds arrivals."""
    assumed: tuple[str, ...]
    """A sentence for each setting that is assumed and not known, or that means something else than its name says."""
    earlier: tuple[tuple[float, float], ...] = ()
    """Loads of the same server before, as `rates`: they fill its prefix cache and are in none of the numbers."""
    prompts: int | None = None
    """Different prompts, which repeat: after its first time a whole one is in the prefix cache; None: all differ."""
    achieved: float | None = None
    """Requests a second that the client sent of the only one of `rates`."""
    tool: str = ""
    client_s: float | None = None
    """Seconds that the client adds to the latencies, as in MeasuredRun: 0 if the server measured them; None: unknown.
    """

    @property
    def means(self) -> dict[str, float]:
        """Means by LATENCIES. The one between tokens is by the tokens that were generated, if the other two are known:
        clients that count tokens in the text miss some."""
        means = {name: self.measured[each] for name in LATENCIES if (each := f"{name}_mean") in self.measured}
        if {"e2e", "ttft"} <= means.keys():
            means["itl"] = (means["e2e"] - means["ttft"]) / max(self.output_tokens - 1, 1)
        return means


@dataclass(frozen=True, slots=True)
class VoiceRun:
    """A run of `rehearse live` with spoken replies: the records of its loads in the order of measurement, and their
    labels, equal ones of repeats."""

    name: str
    server: Server
    records: tuple["Record", ...]
    labels: tuple[str, ...]


def by_arrival(requests: Iterable[Request]) -> list[Request]:
    """Return the requests in the order of arrival; equal arrivals keep their order."""
    return sorted(requests, key=lambda one: one.arrival_s)


def rate_label(rate: float) -> str:
    """Return the label of a part of a constant rate, requests a second."""
    return f"{rate:.3g}/s"


def rate_of(label: str) -> float | None:
    """Return the rate with which a label of `rate_label` begins; None for another one."""
    match = re.match(r"([\d.e+-]+)/s", label)
    return float(match.group(1)) if match else None


def slots_of(label: str) -> int | None:
    """Return the sessions at once of a part of a closed loop, by its label; None for an open loop."""
    if label.startswith(ONE_AT_A_TIME):
        return 1
    match = re.search(r"(\d+) at a time", label)
    return int(match.group(1)) if match else None


def achieved_rate(arrivals_s: Sequence[float]) -> float | None:
    """Return the requests a second between the first and the last of `arrivals_s`; None where they are all one."""
    took = max(arrivals_s) - min(arrivals_s)
    return (len(arrivals_s) - 1) / took if took else None


ONE_AT_A_TIME = "one at a time"
ALL_AT_ONCE = "as many as go"
WHOLE = "all"
