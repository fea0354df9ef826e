"""KV pools against logs of servers, on GitHub (`kv_pool_logs.csv`): a model, its GPUs, vLLM's settings, and how many
tokens "GPU KV cache size" states. The list was made before the first pool was computed, and every row of it is here.

`use`: whether constants of `engines/deployments/kv_pool.py` were fitted to the row. `compiled`: `cold` where the log
has torch.compile without its cache. `earlier`: tokens by data sheets and 4 GB for all that is neither weights nor KV.
"""

import csv
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from engines.core.stage import Stage
from engines.deployments.kv_pool import pool_blocks
from engines.devices.hardware import gpu_names, load_gpu
from engines.models import Decoder, load_model
from tests.engines.stage import make_stage

LOGS = list(csv.DictReader((Path(__file__).parent / "kv_pool_logs.csv").open()))
PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"

COLD_BYTES = 0.95 * 2**30
"""What torch.compile adds to the profile run without its cache: both rows of the RTX 5090."""

QWEN3_0_6B = Decoder(layers=28, hidden=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, vocab=151_936)


def stage(model: str, gpus: int, memory_share: float, tokens: int, seqs: int) -> Stage:
    (decoder,) = (QWEN3_0_6B,) if model == "qwen3_0_6b" else load_model(model).stages.values()
    own = make_stage(max_num_seqs=seqs, max_num_batched_tokens=tokens, prefix_caching=True)
    return replace(own, name="thinker", decoder=decoder, gpus=(tuple(range(gpus)),), memory_share=memory_share)


def pool(row: dict[str, str]) -> int:
    """Tokens by our account; GPUs that we do not ship have the memory that the log states."""
    gpu, share = load_gpu("rtx_4090"), float(row["memory_share"])
    gpu = replace(gpu, memory_bytes=float(row["gib"]) * 2**30)
    if row["gpu"] in gpu_names():
        gpu = load_gpu(row["gpu"])
    if row["compiled"] == "cold":
        gpu = replace(gpu, memory_bytes=gpu.memory_bytes - COLD_BYTES / share)
    limits = int(row["max_num_batched_tokens"]), int(row["max_num_seqs"])
    version = tuple(map(int, row["vllm"].split(".")))[:2]
    return 16 * pool_blocks(stage(row["model"], int(row["gpus"]), share, *limits), gpu, version)


def error(row: dict[str, str]) -> float:
    return pool(row) / int(row["kv_tokens"]) - 1


@pytest.mark.parametrize("row", LOGS, ids=lambda row: f"{row['model']}-{row['gpu']}-{row['vllm']}")
def test_a_pool_is_within_five_percent_of_the_log(row: dict[str, str]):
    assert abs(error(row)) <= 0.05


def test_the_mean_error_of_held_out_logs_is_below_one_percent():
    held_out = [abs(error(row)) for row in LOGS if row["use"] == "held out"]
    assert len(held_out) == 16 and mean(held_out) < 0.01


def test_docs_fidelity_lists_every_log_with_our_pool():
    lines = PAGE.read_text().splitlines()
    for row in LOGS:
        ours, log = pool(row), int(row["kv_tokens"])
        star = " *" if row["use"] == "fit" else ""
        assert (
            f"| {row['model']}{star} | {row['gpus']} × {row['gpu']} | {row['vllm']} | {int(row['earlier']):,} "
            f"| {ours:,} ({ours / log - 1:+.1%}) | {log:,} |".replace("-", "−").replace("%", " %")
            in lines
        )
