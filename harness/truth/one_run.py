"""One folder, one run: whichever of its files say what the server and the client measured, put together."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.truth import guidellm, inference_perf, vllm_bench
from harness.truth.document import get, number, read_json, read_yaml
from harness.truth.files import Files, log_of, there
from harness.truth.lifecycle import read_summary
from harness.truth.otel import read_spans
from harness.truth.parts import joined
from harness.truth.run import SummaryRun, TruthRun
from harness.truth.seen import WHOLE, Part, Seen, by_arrival
from harness.truth.server import server_of
from harness.truth.sweep import split
from harness.truth.vllm_log import read_log
from workloads.errors import UserError


def read_run(files: Files, name: str) -> TruthRun | SummaryRun:
    """UserError about the first file that cannot be read, or about requests that no file has."""
    folder, where = files.folder, str(files.folder)
    log = log_of(folder)
    profile = _profile(folder)
    client, model = _client(files, profile)
    served = _with_prefix(by_arrival(read_spans(files.traces) if files.traces else []), profile, where)
    server = server_of(_yaml(folder, "exp-config.yaml"), read_log(log) if log else {}, model, where)
    if not served and not any(part.seen for part in client):
        if files.summary:
            return read_summary(files.summary, profile, name, _workload(name), server)
        raise UserError(f"{files.named()[0]} has no requests that were served; give a run that served some.")
    client = [Part(part.label, tuple(_with_prefix(part.seen, profile, where))) for part in client]
    requests, parts, beside = joined(served, client, _parts(served, profile, where) if served else [])
    return TruthRun(name, server, requests, parts, beside, ", ".join(map(str, files.named())))


def _yaml(folder: Path, name: str) -> dict[str, Any]:
    path = there(folder, name)
    return read_yaml(path) if path else {}


def _profile(folder: Path) -> dict[str, Any]:
    """What the client was told; of inference-perf, what it made of that, where it wrote it down."""
    made = _yaml(folder, "config.yaml")
    return made if get(made, "load.stages") else _yaml(folder, "profile.yaml")


def _client(files: Files, profile: dict[str, Any]) -> tuple[list[Part], str | None]:
    """What the client measured, and the model that it asked for."""
    if files.guidellm:
        return guidellm.read_parts(files.guidellm), get(read_json(files.guidellm), "args.model")
    if files.bench:
        return [vllm_bench.read_part(files.bench)], vllm_bench.model(files.bench)
    asked = get(profile, "server.model_name")
    return (inference_perf.read_parts(files.requests, profile) if files.requests else []), asked


def _with_prefix(seen: Sequence[Seen], profile: dict[str, Any], where: str) -> list[Seen]:
    """guidellm puts the same tokens before every prompt."""
    tokens = int(number(profile, where, "data.prefix_tokens") or 0)
    if not tokens:
        return list(seen)
    return [replace(one, prefix="all", prefix_tokens=min(tokens, one.prompt_tokens)) for one in seen]


def _parts(served: Sequence[Seen], profile: dict[str, Any], where: str) -> list[Part]:
    """What guidellm was told, where its results are not there to tell the parts."""
    kind, rate = get(profile, "rate-type", "rate_type"), get(profile, "rate")
    most = number(profile, where, "max-requests", "max_requests")
    if kind == "sweep":
        return split(served, int(most) if most else None)
    known = kind in ("synchronous", "throughput") or (
        kind in ("constant", "poisson") and isinstance(rate, int | float)
    )
    return [Part(guidellm.label({"type_": kind, "rate": rate}, where) if known else WHOLE, tuple(served))]


def _workload(name: str) -> str:
    """inference-sim names folders MODEL-tpN-WORKLOAD."""
    match = re.search(r"-tp\d+-(.+)$", name)
    return match.group(1) if match else name
