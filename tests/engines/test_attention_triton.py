"""The Triton kernel against the dense reference: on a GPU where there is one, and in Triton's interpreter without."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.core.stage import AttentionWindow
from tests.builders import in_own_process
from tests.engines.paged import CASES, Batch, failures

SPLITS = (1, 4)
"""Unsegmented, and with fewer tiles than segments in some cases and more in others."""
INTERPRETED = [case for case in CASES if case.dtype != torch.bfloat16]
"""Triton's interpreter cannot multiply matrices of bf16."""

pytestmark = [
    pytest.mark.slow("compiles kernels"),
    pytest.mark.skipif(find_spec("triton") is None, reason="the triton package is not installed"),
]


def launched(prepared: Batch, segments: int, device: str) -> torch.Tensor:
    from engines.core.vllm_adapter.attention.triton_kernel import paged_attention

    case = prepared.case
    query, cache, table = (x.to(device) for x in (prepared.query, prepared.cache, prepared.table.int()))
    starts, lengths = (torch.tensor(x, dtype=torch.int32, device=device) for x in (prepared.starts, prepared.lengths))
    longest = max(count for _, count in case.requests)
    output = torch.full_like(query, torch.nan)
    paged_attention(
        query, cache, table, starts, lengths, longest, prepared.scale, case.window, case.sinks, output, segments
    )
    return output


def interpret(segments: int) -> dict[str, str]:
    """Needs a process of its own: Triton decides at a kernel's definition whether it is interpreted."""
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    return failures(lambda prepared: launched(prepared, segments, "cpu"), INTERPRETED)


@pytest.mark.parametrize("segments", SPLITS)
def test_the_interpreted_kernel_equals_dense_attention(segments: int):
    assert in_own_process(interpret, segments) == {}


def speak() -> set[str]:
    """Run an engine whose layers use the interpreted kernel; the names of its attention classes."""
    os.environ["TRITON_INTERPRET"] = "1"

    from engines.core.vllm_adapter import attention_backend
    from tests.engines.dense import with_dense
    from tests.engines.real import drain, stage, submit

    pin_sinks = attention_backend.pin_sinks
    attention_backend.pin_sinks = lambda config, sinks, cpu: pin_sinks(config, sinks, cpu=False)
    model, dense = with_dense(stage(kv_pool_blocks=64).extended(AttentionWindow(64, 20)))
    asked = [list(range(100, 230)), list(range(500, 540))]
    for prompt, answer in zip(asked, drain(model, submit(model, asked, 6)), strict=True):
        dense.check(prompt, answer, 64, 20)
    layers = model.config.compilation_config.static_forward_context.values()
    return {type(layer.impl).__name__ for layer in layers}


def test_an_engine_on_the_kernel_answers_as_the_dense_model():
    assert in_own_process(speak) == {"KernelImpl"}


SIZES = {"GROUP": 8, "QUERIES": 8, "ROWS": 64, "BLOCK": 16, "TILE": 32, "D": 128, "D_PAD": 128}
"""For the heads of Qwen3-Omni's thinker."""


def machine_code(kernel: Any, capability: int, segments: int, types: dict[str, str]) -> bytes:
    """A kernel compiled for a GPU of this compute capability; arguments without a type are i32."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {name: n for name, n in (SIZES | {"SEGMENTS": segments}).items() if name in kernel.arg_names}
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in kernel.arg_names}
    source = ASTSource(kernel, signature, {(kernel.arg_names.index(name),): n for name, n in constants.items()})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]


@pytest.mark.parametrize("capability", [90, 120], ids=["H200", "RTX PRO 6000"])
@pytest.mark.parametrize("segments", [1, 8])
def test_the_kernel_compiles_for_other_gpus(
    capability: int, segments: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from engines.core.vllm_adapter.attention import triton_kernel

    types = {"tables": "*i32", "starts": "*i32", "lengths": "*i32", "scale": "fp32", "query": "*bf16", "cache": "*bf16"}
    types |= {"output": "*fp32" if segments > 1 else "*bf16", "part_m": "*fp32", "part_l": "*fp32"}
    assert machine_code(triton_kernel.attend, capability, segments, types)
    if segments > 1:  # their outputs are merged
        types = {"parts": "*fp32", "part_m": "*fp32", "part_l": "*fp32", "output": "*bf16"}
        assert machine_code(triton_kernel.merge, capability, segments, types)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: the compiled kernel is not tested")
@pytest.mark.parametrize("segments", SPLITS)
def test_the_compiled_kernel_equals_dense_attention(segments: int):
    assert failures(lambda prepared: launched(prepared, segments, "cuda"), CASES) == {}
