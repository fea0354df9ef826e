"""Kernels that NVIDIA's AIConfigurator holds measurements of, as grids of ours: the package `aiconfigurator-core`.

A decoder is written as the kernels of one step (products, norms, attention, experts, all-reduces), each of which the
package answers for at any size: as measured, or between measured sizes, or from the bytes that it moves where nothing
was. What it says of a size that no grid holds is what the grid is then held against.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from engines.devices.kernels.grids import (
    Decodes,
    HeldOut,
    Kernels,
    Line,
    Prompts,
    Source,
    StageKernels,
    shape,
)
from engines.devices.kernels.times import GridTimes
from engines.models import Decoder
from workloads.errors import UserError, nearest
from workloads.optional import optional

PACKAGE = "aiconfigurator-core"
SYSTEMS = {
    "a100": "a100_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "l40s": "l40s",
    "rtx_pro_6000": "rtx_pro_6000_server",
}
"""Our names of GPUs, and the package's."""

TOKENS = (
    1,
    2,
    3,
    4,
    6,
    8,
    12,
    16,
    17,
    24,
    32,
    33,
    48,
    64,
    65,
    80,
    96,
    97,
    128,
    129,
    160,
    192,
    193,
    256,
    257,
    320,
    384,
)
TOKENS += (
    512,
    513,
    640,
    768,
    769,
    1024,
    1025,
    1280,
    1281,
    1536,
    1537,
    1792,
    2048,
    2049,
    2560,
    3072,
    3073,
    4096,
    4097,
)
TOKENS += (6144, 8192, 12288, 16384, 32768)
"""With the sizes behind the edges of tiles, where one token more takes a step up."""
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTEXT = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
PROMPTS = (1, 2, 4, 16, 64)
NEW = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
BEFORE = (0, 128, 512, 2048, 8192, 32768, 131072)
MOST_NEW = 65536
"""New tokens of all prompts of a step, beyond which nothing is asked for: a grid holds its edge there."""

PREDICTED_CONTEXT = 16
"""Tokens that a code predictor sees of a frame, at most."""

LOAD = "power_law_1.2"
"""How tokens spread over experts: as the package's own model of such layers has it."""

DIGITS = 4

TABLES = {
    "products": ("gemm", "gemm"),
    "experts": ("moe", "moe"),
    "allreduce": ("comm", "custom_allreduce"),
    "decodes": ("attention", "generation_attention"),
    "prompts": ("attention", "context_attention"),
}
"""The package's folder and file of a grid's kernels."""


@dataclass(frozen=True)
class Answer:
    """ms, and how much of them was measured and how much estimated; the rest stands between measured sizes."""

    ms: float
    measured: float
    estimated: float


Kernel = Callable[[int], Answer]


class Gpu:
    """What the package knows of one GPU and vLLM. UserError where it has nothing of it, or is not installed."""

    def __init__(self, name: str) -> None:
        if name not in SYSTEMS:
            raise UserError(f"{PACKAGE} has no measured kernels of gpu={name}.{nearest(name, SYSTEMS)}")
        logging.getLogger("aiconfigurator_core").setLevel(logging.CRITICAL)
        common, engine, operations, perf_database = (
            optional(f"aiconfigurator_core.sdk.{each}", "kernels")
            for each in ("common", "engine", "operations", "perf_database")
        )
        self.name, self.system = name, SYSTEMS[name]
        self._common, self._engine, self.ops = common, engine, operations
        # HYBRID: as measured where it was, else carried over from layers of other sizes, and told so.
        self._database: Any = perf_database.get_database_view(
            self.system, "vllm", "current", database_mode="HYBRID"
        )
        if self._database is None:
            raise UserError(f"{PACKAGE} has no kernels of vLLM on {name}; take another GPU.")
        self._handle = engine.EngineHandle.for_database(self._database)

    @property
    def backend(self) -> str:
        return f"vLLM {self._database.version}"

    @property
    def bf16(self) -> tuple[Any, Any, Any, Any]:
        """Number formats of products, experts, attention and KV."""
        c = self._common
        return (
            c.GEMMQuantMode.bfloat16,
            c.MoEQuantMode.bfloat16,
            c.FMHAQuantMode.bfloat16,
            c.KVCacheQuantMode.bfloat16,
        )

    def fp8(self, d: Decoder) -> tuple[Any, Any]:
        """Of products and experts with weights in FP8: of scales by block and by tensor the faster, as an engine would
        choose. (Products scaled by block were measured at several times bf16, by a kernel that nobody would take.)"""
        gemms, moes = self._common.GEMMQuantMode, self._common.MoEQuantMode

        def ms(op: Any) -> float:
            return self.ask(op)(1, 64).ms

        return (
            min(
                (gemms.fp8, gemms.fp8_block),
                key=lambda m: ms(self.ops.GEMM("p", 1, 2 * d.hidden, d.hidden, m)),
            ),
            min((moes.fp8, moes.fp8_block), key=lambda m: ms(self.experts(d, 1, 1, m)))
            if d.experts
            else moes.fp8,
        )

    def experts(self, d: Decoder, layers: int, gpus: int, mode: Any) -> Any:
        return self.ops.MoE(
            "experts", layers, d.hidden, d.expert_ffn, d.experts_per_token, d.experts, gpus, 1, mode, LOAD, 1
        )

    def ask(self, op: Any, prefill: bool = True) -> Callable[..., Answer]:
        """(requests, new tokens or context of each, tokens before) -> what the kernel takes."""
        self._engine._resolve_attention_lane_orders([op], self._database, None)
        described = self._engine.build_ops_json([op])

        def answer(requests: int, each: int, before: int = 0) -> Answer:
            rows = self._handle.evaluate_ops_json(
                described, is_context=prefill, batch_size=requests, s=each, prefix=before
            )
            ms = sum(row[1] for row in rows)
            told = {"silicon": (1.0, 0.0), "empirical": (0.0, 1.0)}
            parts = [(row[1], told.get(row[3], (0.0, 0.0))) for row in rows]
            return Answer(ms, sum(t * m for t, (m, _) in parts), sum(t * e for t, (_, e) in parts))

        return answer

    def kernel_names(self, family: str, table: str, dtype: str) -> list[str]:
        """Kernels that were measured for one of the package's tables in one number format."""
        import pyarrow.parquet as parquet

        root = (
            Path(str(optional("aiconfigurator_core", "kernels").__file__)).parent
            / "systems"
            / "data"
            / self.system
            / family
            / "vllm"
        )
        files = sorted(root.glob(f"{self._database.version}/{table}_perf.parquet"))
        names: set[str] = set()
        for file in files:
            rows = parquet.read_table(file)
            formats = rows[next(name for name in rows.column_names if name.endswith("_dtype"))].to_pylist()
            sources = rows["kernel_source"].to_pylist()
            names |= {name for name, each in zip(sources, formats, strict=True) if each == dtype}
        return sorted(names)


class DecoderKernels:
    """One decoder, split over `gpus`, as the kernels of a step. UserError where the package cannot say it."""

    def __init__(self, gpu: Gpu, decoder: Decoder, gpus: int) -> None:
        if decoder.mla is not None:
            raise UserError(
                "attention over compressed KV (MLA) is not among the kernels that are read; such models keep the "
                "roofline (step_times=roofline)."
            )
        self.gpu, self.decoder = gpu, decoder
        self.formats = dict.fromkeys(TABLES, "bfloat16")
        ops, d = gpu.ops, decoder
        gemm, moe, fmha, kv = gpu.bf16
        head_mode = gemm
        if d.layer_dtype_bytes == 1:
            gemm, moe = gpu.fp8(d)
            self.formats |= {"products": gemm.name, "experts": moe.name}
        heads, kv_heads = d.heads // gpus, max(1, d.kv_heads // gpus)

        def product(times: float, out: int, into: int, mode: Any = gemm) -> Any:
            return ops.GEMM(f"product_{out}_{into}", times, out, into, mode)

        def passes(times: float, read: int, written: int) -> Any:
            return ops.ElementWise(f"pass_{read}_{written}", times, read, written, 0.8)

        def feed_forward(times: float, width: int) -> list[Any]:
            own = width // gpus
            return [
                product(times, 2 * own, d.hidden),
                passes(times, 2 * own, own),
                product(times, d.hidden, own),
            ]

        dense = d.layers if not d.experts else d.dense_layers
        self._products = [
            ops.Embedding("embedding", 1, d.vocab // gpus, d.hidden, 0.3),
            passes(d.layers, 2 * d.hidden, 2 * d.hidden),
            passes(d.layers, 2 * d.hidden, 2 * d.hidden),
            product(d.layers, (heads + 2 * kv_heads) * d.head_dim, d.hidden),
            product(d.layers, d.hidden, heads * d.head_dim),
        ]
        if dense:
            self._products += feed_forward(dense, d.ffn)
        self._experts: list[Any] = []
        if d.experts:
            sparse = d.layers - dense
            if d.shared_ffn:
                self._products += feed_forward(sparse, d.shared_ffn)
            self._products.append(product(sparse, d.experts, d.hidden, head_mode))
            self._experts = [gpu.experts(d, sparse, gpus, moe)]
        self._allreduce = (
            [ops.CustomAllReduce("allreduce", 2 * d.layers + 1, d.hidden, gpus)] if gpus > 1 else []
        )
        self._head = [product(1, d.vocab // gpus, d.hidden, head_mode)] if d.vocab else []
        self.prompt_attention = gpu.ask(
            ops.ContextAttention(
                "context_attention", d.layers, heads, kv_heads, kv, fmha, head_size=d.head_dim
            )
        )
        self.decode_attention = gpu.ask(
            ops.GenerationAttention(
                "generation_attention", d.layers, heads, kv_heads, kv, head_size=d.head_dim
            ),
            prefill=False,
        )

    def over_tokens(self, ops: Iterable[Any]) -> Kernel:
        """Of one token for each of so many requests, or a prompt of so many: products ask for their number alone."""
        asked = [self.gpu.ask(op) for op in ops]

        def answer(tokens: int) -> Answer:
            return added(ask(1, tokens) for ask in asked)

        return answer

    @property
    def products(self) -> Kernel:
        return self.over_tokens(self._products)

    @property
    def experts(self) -> Kernel | None:
        return self.over_tokens(self._experts) if self._experts else None

    @property
    def allreduce(self) -> Kernel | None:
        return self.over_tokens(self._allreduce) if self._allreduce else None

    @property
    def head(self) -> Kernel:
        return self.over_tokens(self._head)

    def decode(self, requests: int, context: int) -> Answer:
        return self.decode_attention(requests, context)

    def prompt(self, prompts: int, new: int, before: int) -> Answer:
        """At least what reading so much KV takes in a decode: few new tokens behind a long context were not measured,
        and what their arithmetic takes is less than that."""
        said = self.prompt_attention(prompts, new, before)
        read = self.decode_attention(prompts, before + new)
        return said if said.ms >= read.ms else read

    def frame(self, rows: int) -> Answer:
        """All steps of this decoder as a code predictor, its attention over a few tokens included."""
        parts = [self.products(rows), self.decode(rows, PREDICTED_CONTEXT)]
        one = added(parts)
        steps = self.decoder.steps
        return Answer(one.ms * steps, one.measured * steps, one.estimated * steps)

    def decode_step_ms(self, requests: int, context: int) -> float:
        """A whole step of decodes, each of which samples."""
        return self._over(requests, requests) + self.decode(requests, context).ms

    def prompt_step_ms(self, new: int, before: int, requests: int = 0, context: int = 0) -> float:
        """A whole step of one prompt, beside so many decodes."""
        attention = self.prompt(1, new, before).ms + (self.decode(requests, context).ms if requests else 0.0)
        return self._over(new + requests, 1 + requests) + attention

    def _over(self, tokens: int, samples: int) -> float:
        lines = [self.products, self.experts, self.allreduce]
        return sum(line(tokens).ms for line in lines if line) + self.head(samples).ms


def added(answers: Iterable[Answer]) -> Answer:
    each = list(answers)
    return Answer(*(sum(getattr(a, name) for a in each) for name in ("ms", "measured", "estimated")))


def kernels_of(model: str, stages: Iterable[tuple[str, Decoder, int]], gpu_name: str) -> Kernels:
    """Grids of (stage, decoder, GPUs of a replica) on one kind of GPU. UserError as `Gpu` and `DecoderKernels`."""
    gpu = Gpu(gpu_name)
    return Kernels(
        model=model,
        gpu=gpu_name,
        package=f"{PACKAGE} {version(PACKAGE)}",
        backend=gpu.backend,
        date=datetime.now(UTC).date(),
        kernels=[_stage(gpu, stage, decoder, gpus) for stage, decoder, gpus in stages],
    )


def _stage(gpu: Gpu, name: str, decoder: Decoder, gpus: int) -> StageKernels:
    own = DecoderKernels(gpu, decoder, gpus)
    tally = _Tally(gpu, own.formats)
    predictor = decoder.code_predictor
    frame = DecoderKernels(gpu, predictor, 1).frame if predictor else None
    experts, allreduce = own.experts, own.allreduce
    stage = StageKernels(
        stage=name,
        gpus=gpus,
        decoder=json.loads(json.dumps(shape(decoder))),
        products=tally.line("products", own.products, TOKENS),
        experts=tally.line("experts", experts, TOKENS) if experts else None,
        allreduce=tally.line("allreduce", allreduce, TOKENS) if allreduce else None,
        head=tally.line("head", own.head, SAMPLES),
        predictor=tally.line("predictor", frame, SAMPLES[:8]) if frame else None,
        decodes=tally.decodes(own.decode),
        prompts=tally.prompts(own.prompt),
        sources=tally.sources,
        held_out={},
    )
    return stage.model_copy(update={"held_out": held_out(own, stage)})


class _Tally:
    """Fills grids, and keeps count of where their numbers are from."""

    def __init__(self, gpu: Gpu, formats: dict[str, str]) -> None:
        self.gpu, self.formats = gpu, formats
        self.sources: dict[str, Source] = {}

    def line(self, name: str, kernel: Kernel, at: Sequence[int]) -> Line:
        answers = [kernel(each) for each in at]
        self._count(name, answers)
        return Line(at=list(at), ms=[_short(answer.ms) for answer in answers])

    def decodes(self, kernel: Callable[[int, int], Answer]) -> Decodes:
        table = [[kernel(requests, context) for context in CONTEXT] for requests in REQUESTS]
        self._count("decodes", [answer for row in table for answer in row])
        return Decodes(
            requests=list(REQUESTS), context=list(CONTEXT), ms=[[_short(a.ms) for a in row] for row in table]
        )

    def prompts(self, kernel: Callable[[int, int, int], Answer]) -> Prompts:
        asked: list[Answer] = []

        def ms(prompts: int, new: int, before: int) -> float:
            most = max(1, min(new, MOST_NEW // prompts))
            answer = kernel(prompts, most, before)
            asked.append(answer)
            return _short(answer.ms * (new / most))

        table = [[[ms(p, n, b) for b in BEFORE] for n in NEW] for p in PROMPTS]
        self._count("prompts", asked)
        return Prompts(prompts=list(PROMPTS), new=list(NEW), before=list(BEFORE), ms=table)

    def _count(self, name: str, answers: Sequence[Answer]) -> None:
        """Each point weighs alike: a grid's dearest would drown the others."""
        shares = [(a.measured / a.ms, a.estimated / a.ms) for a in answers if a.ms]
        measured, estimated = np.mean(shares, axis=0) if shares else (0.0, 0.0)
        names = self.gpu.kernel_names(*TABLES[name], self.formats[name]) if name in TABLES else []
        self.sources[name] = Source(
            measured=round(float(measured), 3), estimated=round(float(estimated), 3), kernels=names
        )


def held_out(own: DecoderKernels, stage: StageKernels) -> dict[str, HeldOut]:
    """Whole steps between the grid's points: of decodes, of prompts, and of both."""
    times = GridTimes(stage)
    decodes = [(b, c) for b in (1, 5, 11, 20, 41, 90) for c in (300, 700, 1500, 3000, 6000, 12000)]
    prompts = [(n, p) for n in (20, 80, 200, 640, 900, 1800, 2800, 5000) for p in (0, 300, 1000, 5000)]
    mixed = [(n, b, c) for n in (100, 450, 1300) for b in (3, 23, 75) for c in (400, 1700, 5500)]
    return {
        "decode": _error((times.decode_step_ms(*p), own.decode_step_ms(*p)) for p in decodes),
        "prefill": _error((times.prompt_step_ms(*p), own.prompt_step_ms(*p)) for p in prompts),
        "mixed": _error(
            (times.prompt_step_ms(n, 0, b, c), own.prompt_step_ms(n, 0, b, c)) for n, b, c in mixed
        ),
    }


def _error(pairs: Iterator[tuple[float, float]]) -> HeldOut:
    errors = [abs(grid / asked - 1) for grid, asked in pairs]
    return HeldOut(points=len(errors), median=round(float(np.median(errors)), 4), worst=round(max(errors), 4))


def _short(ms: float) -> float:
    return float(f"{ms:.{DIGITS}g}")
