"""What a measured run becomes in virtual time: a deployment as its server was, and a trace of its requests."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from engines.devices.hardware import load_gpu
from engines.devices.host import API_SERVER_S, CLIENT_S
from engines.models import Model
from engines.models.token_ids import token_ids
from harness.truth.truth_run import Request, Server, SummaryRun
from workloads.errors import UserError
from workloads.seeds import stream
from workloads.trace import SCHEMA, Trace

MOST_LEN, MOST_SEQS, MOST_TOKENS = 32768, 256, 8192
"""Limits where a run does not tell its server's: vLLM's defaults for its API server on such GPUs, and a length that
holds any of its requests."""

ASYNC_SINCE = (0, 14)
"""From this version on vLLM plans ahead where nobody says otherwise."""

LONGEST_S = 120.0
"""Of each load of an experiment in sum: its means are steady after that."""

SEED = 0


Prefixes = list[tuple[str, int]]
"""By session: of which name its prompt's first tokens are, and how many; equal names, equal tokens."""


def deployment(
    server: Server, model: Model, model_name: str, gpu: str, client: bool
) -> tuple[dict[str, Any], list[str]]:
    """A server's deployment, and what is assumed of it. `client`: latencies were measured there, over HTTP. UserError
    where the model cannot be what it served."""
    if len(model.stages) != 1:
        raise UserError(
            f"{server.model} has the stages {', '.join(model.stages)}; only runs of text are predicted."
        )
    load_gpu(gpu)
    assumed: list[str] = []
    limits: dict[str, Any] = {
        "gpus": [list(range(server.tp))],
        "memory_share": server.gpu_memory_utilization or 0.9,
        "max_num_seqs": server.max_num_seqs or MOST_SEQS,
        "max_num_batched_tokens": server.max_num_batched_tokens or MOST_TOKENS,
        "max_model_len": server.max_model_len or MOST_LEN,
        "max_tokens": server.max_model_len or MOST_LEN,
        "prefix_caching": server.prefix_caching,
        "block_size": server.block_size,
        "async_scheduling": asynchronous(server),
    }
    if server.kv_tokens is not None:
        limits["kv_blocks"] = server.kv_tokens // server.block_size + 1  # and the null block
    else:
        assumed.append("the KV cache is what the GPU's memory leaves")
    for name, default in (("max_num_seqs", MOST_SEQS), ("max_num_batched_tokens", MOST_TOKENS)):
        if getattr(server, name) is None:
            assumed.append(f"{name} is {default}")
    if server.async_scheduling is None and server.vllm is None:
        assumed.append("vLLM's version is 0.14 or later, which plans ahead")
    if server.gpu is None:
        assumed.append(f"the GPU is an {gpu.upper()}")
    facts = {
        "title": f"{server.model} on {server.tp} {gpu}",
        "model": model_name,
        "gpu": gpu,
        "stages": dict.fromkeys(model.stages, limits),
        "overheads": {
            "preprocess_s": _sourced(API_SERVER_S + (CLIENT_S if client else 0.0)),
            "hop_s": _sourced(0.0),
            "orchestrator_s": _sourced(0.0),
        },
    }
    return facts, assumed


def _sourced(value: float) -> dict[str, Any]:
    return {"value": value, "source": "engines/devices/host.py"}


def asynchronous(server: Server) -> bool:
    """Whether it planned ahead: as it says, or as its version does; of a version that is not known, as today's do."""
    if server.async_scheduling is not None:
        return server.async_scheduling
    numbers = re.findall(r"\d+", server.vllm or "")[:2]
    return len(numbers) < 2 or tuple(map(int, numbers)) >= ASYNC_SINCE


def trace_of(requests: Sequence[Request]) -> tuple[Trace, Prefixes]:
    """A session for each request, in their order; a prompt has one token at least that is in no prefix."""
    shared = [(each.prefix or "", min(each.prefix_tokens, each.prompt_tokens - 1)) for each in requests]
    return _trace(
        [request.arrival_s for request in requests],
        [request.prompt_tokens - tokens for request, (_, tokens) in zip(requests, shared, strict=True)],
        [max(1, request.output_tokens) for request in requests],
    ), shared


def summary_trace(run: SummaryRun) -> tuple[Trace, Prefixes]:
    """Requests of the mean lengths, by a Poisson process of each rate in turn, for `LONGEST_S` of it at most. Of
    prompts that come round and round all but the last token is shared; what they share among each other is not."""
    random, arrivals, begin_s = stream(SEED, f"truth/{run.name}"), [], 0.0
    for rate, seconds in run.rates:
        held_s = min(seconds, LONGEST_S)
        arrivals += sorted(begin_s + random.uniform(0, held_s, round(rate * held_s)))
        begin_s += held_s
    count, tokens = len(arrivals), round(run.input_tokens)
    shared: Prefixes = [("", 0)] * count
    if run.shared is not None:
        shared = [(f"prompt {at % run.shared.prompts}", tokens - 1) for at in range(count)]
    return _trace(arrivals, [tokens - own for _, own in shared], [round(run.output_tokens)] * count), shared


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
    return Trace.from_columns(columns, generator="truth", params={}, seed=SEED, notes=notes)


def begins(prefixes: Prefixes, vocab: int) -> dict[int, list[int]]:
    """Token ids with which each session's context begins."""
    known = {
        (name, tokens): token_ids(-1, 0, f"prefix {name}", tokens, vocab) for name, tokens in set(prefixes)
    }
    return {session: known[prefix] for session, prefix in enumerate(prefixes) if prefix[1]}
