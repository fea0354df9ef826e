"""The Triton kernel against the dense reference: on a GPU where there is one, and in Triton's interpreter without."""

import multiprocessing
import os
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from tests.engines.paged import CASES, Batch, Case, batch, failures

SPLITS = (1, 4)
"""Unsegmented, and with fewer tiles than segments in some cases and more in others."""

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="the triton package is not installed")


def launched(prepared: Batch, segments: int, device: str) -> torch.Tensor:
    from engines.core.vllm_adapter.attention.triton_kernel import paged_attention

    case = prepared.case
    query, cache, table = (x.to(device) for x in (prepared.query, prepared.cache, prepared.table.int()))
    starts, lengths = (
        torch.tensor(x, dtype=torch.int32, device=device) for x in (prepared.starts, prepared.lengths)
    )
    longest = max(count for _, count in case.requests)
    output = torch.full_like(query, torch.nan)
    paged_attention(
        query,
        cache,
        table,
        starts,
        lengths,
        longest,
        prepared.scale,
        case.window,
        case.sinks,
        output,
        segments,
    )
    return output


def interpret(segments: int, results: Any) -> None:
    """In a process of its own: Triton decides at a kernel's definition whether it is interpreted."""
    os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    multiply_bf16()
    results.put(failures(lambda prepared: launched(prepared, segments, "cpu")))


def multiply_bf16() -> None:
    """Triton 3.9's interpreter keeps bf16 as the integers of its bits and multiplies matrices of those."""
    import triton.language as tl
    from triton.runtime import interpreter

    dot = interpreter.InterpreterBuilder.create_dot

    def widen(x: Any) -> Any:
        if x.dtype.scalar != tl.bfloat16:
            return x
        wide = interpreter._convert_float(x.data, tl.bfloat16, tl.float32, None).view("float32")
        return interpreter.TensorHandle(wide, tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return dot(self, widen(a), widen(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


@pytest.mark.parametrize("segments", SPLITS)
def test_the_interpreted_kernel_gives_what_the_reference_gives(segments: int):
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=interpret, args=(segments, results))
    process.start()
    process.join()
    assert process.exitcode == 0
    found = results.get()
    assert len(found) == len(CASES)
    assert not {case: error for case, error in found.items() if error}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here: the compiled kernel is not tested")
@pytest.mark.parametrize("segments", SPLITS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kernel_on_a_gpu_gives_what_the_reference_gives(case: Case, segments: int):
    prepared = batch(case)
    prepared.check(launched(prepared, segments, "cuda"))
