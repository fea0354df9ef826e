"""Summaries of inference-sim's measured campaign: a CSV with a row for each experiment and metric, and its workloads.

As inference-sim/sim-to-real-accuracy-validation publishes them with its predictions. Rows of its commit b70edb9a are
of whole runs (tools/peers/inference_sim.csv), those of commit dcec3fd of the first 300 requests of each, which took
longer. Its mean between tokens seems to be (e2e - ttft) / (output tokens - 1) of the tokens that the client counted in
the text, as in experiment/ground_truth.py at commit 535e5086: by that the client counted 219 to 248 where 248 were
generated, and no other definition there agrees with the numbers. So it is up to 13 % longer than what passes between
tokens.

Loads, lengths and system prompts: workloads.yaml of inference-sim/tektonc-data-collection (commit 2a7cbcd4); those of
its published experiments say the same (blis-campaign/campaign/*/values.yaml, commit 0f7f91c9), and so do the runs in
inference-sim/training (commit c4f03409, default_args/*/profile.yaml). All with `ignore_eos`, so that each request
generates what it asks for; context is not carried from turn to turn. vLLM 0.15.1, max_model_len 4096, max_num_seqs
128, prefix caching, CPU offloading of 8 GiB where it is on: values.yaml and generate.py there.

The client is inference-perf, whose load type `constant` draws exponential gaps and stretches them so that a stage has
just rate × seconds of them (inference_perf/loadgen/load_timer.py). It did not know the campaign's names for numbers of
prompts: what it wrote down of itself (default_args/*/results/config.yaml) is its default, 10 system prompts × 10
questions, one after the other, again and again.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.measured_runs.document import needed
from harness.measured_runs.measured_run import METRICS, Server, SummaryRun
from workloads.errors import UserError, existing_file, nearest
from workloads.files.json_file import read_text

PROMPTS = 100
"""Different prompts."""
VLLM, MAX_MODEL_LEN, MAX_NUM_SEQS, OFFLOAD_GIB = "0.15.1", 4096, 128, 8.0


@dataclass(frozen=True, slots=True)
class Workload:
    """The lengths of each request, in tokens."""

    prompt: int
    output: int
    rates: tuple[tuple[float, float], ...]
    """(requests a second, seconds)."""


WORKLOADS = {
    "general": Workload(547, 248, ((8, 600), (20, 600))),
    "codegen": Workload(566, 247, ((5, 600), (10, 600))),
    "roleplay": Workload(750, 251, ((6, 1200),)),
    "reasoning": Workload(1034, 1448, ((4, 1200),)),
    "general-lite": Workload(547, 248, ((2.5, 600), (6, 600))),
    "reasoning-lite": Workload(1034, 1448, ((1, 1200),)),
}

ENCODED = {
    ("mistralai/Mixtral-8x7B-v0.1", "general"): 570.68,
    ("mistralai/Mixtral-8x7B-v0.1", "codegen"): 589.41,
    ("mistralai/Mixtral-8x7B-v0.1", "roleplay"): 782.25,
}
"""Prompt tokens that came to be: a prompt is random tokens made text and encoded again. prompt_len of the same model
and workload in inference-sim/training, default_args/*/results/summary_lifecycle_metrics.json."""

KV_TOKENS = {("mistralai/Mixtral-8x7B-v0.1", 2, 2048, 0.9): 440_176}
"""(model, GPUs, max_num_batched_tokens, gpu_memory_utilization) -> what fits: section 4.2 of the design notes of
inference-sim/sim-to-real-accuracy-validation (docs/plans/2026-03-04-*-design.md)."""


COLUMNS = (
    "experiment",
    "model",
    "workload",
    "hardware",
    "tp",
    "max_num_batched_tokens",
    "precision",
    "cpu_offload",
    "gpu_memory_utilization",
    "metric",
    "measured_ms",
)
_MS = 1e-3
_QUANTIZATION = {"FP16": None, "FP8": "fp8"}
"""FP16 there means 16 bits: vLLM was not told a type and took the checkpoint's, bfloat16."""


def is_summary(path: Path) -> bool:
    """Return whether a CSV file's header is that of such a summary."""
    return {"experiment", "metric", "measured_ms"} <= set(_header(path))


def read_summaries(path: str | Path) -> list[SummaryRun]:
    """Return the experiments of a file in its order. UserError names a missing column, or the line of a wrong value."""
    path = existing_file(path)
    if missing := [name for name in COLUMNS if name not in _header(path)]:
        raise UserError(f"{path} lacks the columns {', '.join(missing)}; give a summary with all of them.")
    experiments: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for number, row in enumerate(csv.DictReader(read_text(path).splitlines()), 2):
        experiments.setdefault(row["experiment"], []).append((f"{path}, line {number}", row))
    if not experiments:
        raise UserError(f"{path} has no rows; give a summary with at least one experiment.")
    return [_experiment(rows) for rows in experiments.values()]


def _header(path: Path) -> list[str]:
    return next(csv.reader(read_text(path).splitlines()[:1]), [])


def _experiment(rows: list[tuple[str, dict[str, str]]]) -> SummaryRun:
    where, row = rows[0]
    name = row["workload"]
    workload, server = WORKLOADS[_known(row, where, "workload", WORKLOADS)], _server(row, where)
    encoded = ENCODED.get((server.model, name.removesuffix("-lite")))
    return SummaryRun(
        name=f"{row['experiment']}-{server.model.split('/')[-1]}-tp{server.tp}-{name}",
        server=server,
        workload=name,
        measured={
            _known(row, where, "metric", METRICS): needed(row, where, "measured_ms") * _MS for where, row in rows
        },
        input_tokens=encoded or workload.prompt,
        output_tokens=workload.output,
        rates=workload.rates,
        assumed=tuple(_assumed(row, encoded is not None)),
        prompts=PROMPTS,
        tool="inference-perf",
    )


def _server(row: Mapping[str, str], where: str) -> Server:
    tp, batch = int(needed(row, where, "tp")), int(needed(row, where, "max_num_batched_tokens"))
    share = needed(row, where, "gpu_memory_utilization")
    return Server(
        model=row["model"],
        gpu=row["hardware"],
        tp=tp,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=batch,
        max_num_seqs=MAX_NUM_SEQS,
        kv_tokens=KV_TOKENS.get((row["model"], tp, batch, share)),
        gpu_memory_utilization=share,
        quantization=_QUANTIZATION[_known(row, where, "precision", _QUANTIZATION)],
        vllm=VLLM,
    )


def _known(row: Mapping[str, str], where: str, column: str, names: Iterable[str]) -> str:
    if row[column] not in names:
        raise UserError(f"{where}: {column} {row[column]!r} is not known.{nearest(row[column], names)}")
    return row[column]


def _assumed(row: Mapping[str, str], encoded: bool) -> Iterable[str]:
    yield (
        f"The load of {row['workload']!r} is that of the campaign's published settings; this experiment's own are not "
        "public, and when its requests came is not known beyond their Poisson process."
    )
    yield f"{PROMPTS} different prompts, as the same client sent in the campaign's published runs; here not published."
    yield "itl_mean is as published: by tokens that the client counted, which are too few, so up to 13 % too long."
    if not encoded:
        yield "Prompt lengths are as asked for; as encoded they are a few per cent off (Mixtral's are 4 % longer)."
    if row["cpu_offload"].lower() == "true":
        yield f"Evicted KV blocks went to {OFFLOAD_GIB:g} GiB of host memory."
