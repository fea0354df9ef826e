"""The workloads of inference-sim's measured campaign, by name.

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

from dataclasses import dataclass

GROUPS, PROMPTS = 10, 100
"""Different system prompts and different prompts."""
VLLM, MAX_MODEL_LEN, MAX_NUM_SEQS, OFFLOAD_GIB = "0.15.1", 4096, 128, 8.0


@dataclass(frozen=True, slots=True)
class Workload:
    """The lengths of each request, in tokens; `system` of `prompt` are the system prompt."""

    system: int
    prompt: int
    output: int
    rates: tuple[tuple[float, float], ...]
    """(requests a second, seconds)."""


WORKLOADS = {
    "general": Workload(100, 547, 248, ((8, 600), (20, 600))),
    "codegen": Workload(100, 566, 247, ((5, 600), (10, 600))),
    "roleplay": Workload(150, 750, 251, ((6, 1200),)),
    "reasoning": Workload(100, 1034, 1448, ((4, 1200),)),
    "general-lite": Workload(100, 547, 248, ((2.5, 600), (6, 600))),
    "reasoning-lite": Workload(100, 1034, 1448, ((1, 1200),)),
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
