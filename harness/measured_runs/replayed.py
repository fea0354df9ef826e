"""A measured run in virtual time: a deployment as its server was, and a trace of its requests."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from engines.core.stage import Stage
from engines.deployments.kv_pool import pool_blocks
from engines.devices.hardware import Gpu, load_gpu
from engines.devices.host import API_SERVER_S, API_SERVER_S_PER_REPLY
from engines.models import Model
from engines.models.token_ids import token_ids
from harness.measured_runs.measured_run import Request, Server, SummaryRun
from workloads.errors import UserError
from workloads.seeds import stream
from workloads.trace import SCHEMA, Trace

MOST_LEN, MEMORY_SHARE = 32768, 0.9
"""max_model_len where neither the run nor the model states it, and gpu_memory_utilization where the run does not."""

ASYNC_SINCE = (0, 14)
"""From this version on vLLM plans ahead where nobody says otherwise."""

SEED = 0


Prefixes = list[tuple[str, int]]
"""By session: name and number of its prompt's first tokens; equal names, equal tokens."""


def batch_limits(gpu: Gpu) -> tuple[int, int]:
    """Return the defaults of max_num_seqs and max_num_batched_tokens of vLLM's API server: vLLM 0.32.0,
    vllm/engine/arg_utils.py, EngineArgs.get_batch_defaults, lines 2923 to 2952."""
    gib = gpu.memory_bytes / 2**30
    if gib >= 160:
        return 1024, 16384
    if gib >= 70 and "a100" not in gpu.name:
        return 1024, 8192
    return 256, 2048


def deployment(
    server: Server, model: Model, model_name: str, gpu: str, client_s: float | None
) -> tuple[dict[str, Any], list[str]]:
    """Return a server's deployment, and the assumptions about it. `client_s`: the client's share of each latency; None:
    not known. UserError where the server cannot have served this model."""
    if len(model.stages) != 1:
        raise UserError(f"{server.model} has the stages {', '.join(model.stages)}; only runs of text are predicted.")
    length = server.max_model_len or model.max_model_len or MOST_LEN
    seqs, tokens = batch_limits(load_gpu(gpu))
    # As vLLM, which also lowers a default that cannot be reached (the same file, lines 3165 to 3180).
    tokens = server.max_num_batched_tokens or min(tokens, (server.max_num_seqs or seqs) * length)
    seqs = server.max_num_seqs or min(seqs, tokens)
    limits: dict[str, Any] = {
        "gpus": [list(range(server.tp))],
        "memory_share": server.gpu_memory_utilization or MEMORY_SHARE,
        "max_num_seqs": seqs,
        "max_num_batched_tokens": tokens,
        "max_model_len": length,
        "max_tokens": length,
        "prefix_caching": server.prefix_caching,
        "block_size": server.block_size,
        "async_scheduling": asynchronous(server),
    }
    if server.kv_tokens is not None:
        limits["kv_blocks"] = server.kv_tokens // server.block_size + 1  # and the null block
    elif numbers := _version(server):
        ((name, decoder),) = model.stages.items()
        limits["kv_blocks"] = pool_blocks(Stage(name, decoder, **limits), load_gpu(gpu), numbers)
    facts = {
        "title": f"{server.model} on {server.tp} {gpu}",
        "model": model_name,
        "gpu": gpu,
        "stages": dict.fromkeys(model.stages, limits),
        "overheads": {
            "preprocess_s": {
                "value": API_SERVER_S + (client_s or 0.0),
                "source": "engines/devices/host.py, and what the client of these runs adds",
            },
            "preprocess_s_per_reply": {"value": API_SERVER_S_PER_REPLY, "source": "engines/devices/host.py"},
            "hop_s": {"value": 0.0, "source": "[chosen] one stage"},
            "orchestrator_s": {"value": 0.0, "source": "[chosen] one stage"},
        },
    }
    return facts, list(_assumed(server, model, gpu, limits, client_s))


def _assumed(server: Server, model: Model, gpu: str, limits: dict[str, Any], client_s: float | None) -> Iterator[str]:
    """Yield a sentence for each setting that the run does not state."""
    if server.gpu is None:
        yield f"The GPU is an {gpu.upper()}."
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        if getattr(server, name) is None:
            yield f"{name} is {limits[name]:,}, vLLM's default for its API server on this GPU ({gpu.upper()})."
    if server.max_model_len is None:
        whose = "the model's own" if model.max_model_len else "chosen, as the model's own is not known"
        yield f"max_model_len is {limits['max_model_len']:,}, {whose}."
    if server.kv_tokens is None:
        share = limits["memory_share"]
        stated = "" if server.gpu_memory_utilization else " (assumed)"
        yield (
            f"The KV cache is what gpu_memory_utilization {share:g}{stated} leaves after the weights and the profile "
            "run of its vLLM."
        )
    if server.async_scheduling is None and server.vllm is None:
        yield "vLLM's version is 0.14 or later, which plans a step while the one before runs."
    if client_s is None:
        yield "What the client itself adds to a latency is not known; 0 ms is assumed."


def asynchronous(server: Server) -> bool:
    """Return whether it planned ahead: as it says, or as its version does; an unknown version does as today's."""
    if server.async_scheduling is not None:
        return server.async_scheduling
    numbers = _version(server)
    return numbers is None or numbers >= ASYNC_SINCE


def _version(server: Server) -> tuple[int, ...] | None:
    numbers = re.findall(r"\d+", server.vllm or "")[:2]
    return tuple(map(int, numbers)) if len(numbers) == 2 else None


def trace_of(requests: Sequence[Request]) -> tuple[Trace, Prefixes]:
    """Return a session for each request, in their order. A prompt has at least one token outside every prefix."""
    shared = [(each.prefix or "", min(each.prefix_tokens, each.prompt_tokens - 1)) for each in requests]
    return _trace(
        [request.arrival_s for request in requests],
        [request.prompt_tokens - tokens for request, (_, tokens) in zip(requests, shared, strict=True)],
        [max(1, request.output_tokens) for request in requests],
    ), shared


def summary_trace(run: SummaryRun) -> tuple[Trace, Prefixes, int]:
    """Return requests of the mean lengths, by a Poisson process of each rate in turn, those of `earlier` first, and
    their number. A load begins when the one before has ended. Repeating prompts share all but their last token; the
    common part of different prompts is not shared."""
    random, arrivals, begin_s = stream(SEED, f"truth/{run.name}"), [], 0.0
    for rate, seconds in (*run.earlier, *run.rates):
        arrivals += sorted(begin_s + random.uniform(0, seconds, round(rate * seconds)))
        begin_s += 2 * seconds  # by then the last reply has ended, and time in which nothing runs costs nothing
    count, tokens = len(arrivals), round(run.input_tokens)
    shared: Prefixes = [("", 0)] * count
    if run.prompts is not None:
        shared = [(f"prompt {at % run.prompts}", tokens - 1) for at in range(count)]
    trace = _trace(arrivals, [tokens - n for _, n in shared], [round(run.output_tokens)] * count)
    return trace, shared, sum(round(rate * seconds) for rate, seconds in run.earlier)


GROWS = 3.0
"""Standard deviations of what is in flight in the last third of a load over that in the middle third. [chosen]"""


def queue_grows(requests: pd.DataFrame, loads: Sequence[tuple[float, float]]) -> bool:
    """Return whether the number of requests in flight keeps growing in one of `loads`. `requests`: `arrival`,
    `predicted_e2e`, in s."""
    arrival, e2e = (requests[name].to_numpy(float) for name in ("arrival", "predicted_e2e"))
    begin_s = 0.0
    for rate, seconds in loads:
        third = seconds / 3
        at = begin_s + third
        middle, last = (
            float(np.clip(np.minimum(arrival + e2e, to) - np.maximum(arrival, to - third), 0, None).sum()) / third
            for to in (at + third, at + 2 * third)
        )
        # By so much two means over a third differ of Poisson arrivals where the load is steady.
        mean = (middle + last) / 2
        spread = math.sqrt(2 * mean * min(1.0, mean / (rate * third)))
        if last - middle > GROWS * spread:
            return True
        begin_s += seconds
    return False


def _trace(arrivals: Sequence[float], prompts: Sequence[int], outputs: Sequence[int]) -> Trace:
    count = len(arrivals)
    columns: dict[str, Any] = {
        field.name: np.full(count, "" if str(field.type) == "string" else np.nan) for field in SCHEMA
    }
    columns |= {
        "session": np.arange(count),
        "turn": np.zeros(count, int),
        "arrival_s": np.round(np.asarray(arrivals, float), 6),
        "modality": np.full(count, "text"),
        "input_tokens": np.asarray(prompts, int),
        "output_tokens": np.asarray(outputs, int),
        "network_s": np.zeros(count),
    }
    notes = ["requests of a measured run"]
    return Trace.from_columns(columns, generator="measured_runs", params={}, seed=SEED, notes=notes)


def begins(prefixes: Prefixes, vocab: int) -> dict[int, list[int]]:
    """Return the token ids with which each session's context begins."""
    ids = {(name, tokens): token_ids(-1, 0, f"prefix {name}", tokens, vocab) for name, tokens in set(prefixes)}
    return {session: ids[prefix] for session, prefix in enumerate(prefixes) if prefix[1]}
