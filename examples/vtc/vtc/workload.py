"""Workload `clients`: two clients whose requests come at constant rates and have one size."""

import numpy as np
from pydantic import Field

from workloads.distributions.speech import network_delays
from workloads.seeds import Streams
from workloads.trace import Trace
from workloads.workload import Workload
from workloads.workload_params import UserParams


class ClientsParams(UserParams):
    """Text in, text out."""

    light: float = Field(90, gt=0, le=1e6, description="requests per minute of client light")
    heavy: float = Field(180, gt=0, le=1e6, description="requests per minute of client heavy")
    minutes: float = Field(10, gt=0, le=1e4, description="time in which requests come")
    input_tokens: int = Field(256, ge=1, le=100_000, description="tokens of a prompt")
    output_tokens: int = Field(256, ge=1, le=100_000, description="tokens of an answer")


def clients(params: ClientsParams, seed: int) -> Trace:
    """The seed moves each client's first request within its gap."""
    streams = Streams(seed)
    names, times = list[str](), list[float]()
    for name, per_minute in (("light", params.light), ("heavy", params.heavy)):
        gap = 60 / per_minute
        arrivals = np.arange(streams(name).uniform(0, gap), 60 * params.minutes, gap)
        names += [name] * len(arrivals)
        times += arrivals.tolist()
    columns = {
        "session": np.arange(len(times)),
        "turn": 0,
        "arrival_s": times,
        "modality": "text",
        "input_tokens": params.input_tokens,
        "output_tokens": params.output_tokens,
        "network_s": network_delays(streams("jitter"), params.network_ms, len(times)),
        "tenant": names,
    }
    return Trace.made("clients", params, streams, columns, [])


WORKLOAD = Workload("clients", "two clients at constant rates", ClientsParams, clients)
