"""Measurements of NVIDIA's AIConfigurator: the package `aiconfigurator-core`, one GPU at a time.

It gives a kernel's time at any size: as measured, between measured sizes, or from the bytes that it moves.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.devices.kernels.steps import experts_reached
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

SKEWED, EVEN = "power_law_1.2", "balanced"
"""Spreads of tokens over experts. The first is the one of the package's own model of such layers."""

FEW_EXPERTS = 8
"""Up to this number of experts, each gets its part of the tokens, if that was measured. Servers of Mixtral-8x7B take as
long as such kernels, and up to 17 % less than kernels with a skewed spread (docs/fidelity.md)."""

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
    """ms, with their measured and estimated parts; the rest is between measured sizes."""

    ms: float
    measured: float
    estimated: float


Kernel = Callable[[int], Answer]


class Gpu:
    """The package's data of one GPU and vLLM. UserError if it has none, or is not installed."""

    def __init__(self, name: str) -> None:
        if name not in SYSTEMS:
            raise UserError(f"{PACKAGE} has no measured kernels of gpu={name}.{nearest(name, SYSTEMS)}")
        logging.getLogger("aiconfigurator_core").setLevel(logging.CRITICAL)
        common, engine, operations, perf_database = (
            optional(f"aiconfigurator_core.sdk.{module}", "kernels")
            for module in ("common", "engine", "operations", "perf_database")
        )
        self.name, self.system = name, SYSTEMS[name]
        self._common, self._engine, self.ops = common, engine, operations
        # HYBRID: as measured where it was, else carried over from layers of other sizes, and told so.
        self._database: Any = perf_database.get_database_view(self.system, "vllm", "current", database_mode="HYBRID")
        if self._database is None:
            raise UserError(f"{PACKAGE} has no kernels of vLLM on {name}; take another GPU.")
        self._handle = engine.EngineHandle.for_database(self._database)

    @property
    def backend(self) -> str:
        return f"vLLM {self._database.version}"

    @property
    def bandwidth(self) -> float:
        """Bytes/s by the data sheet."""
        return self._database.system_spec["gpu"]["mem_bw"]

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
        """Return, for products and experts with weights in FP8, the faster of scales by block and by tensor, as an
        engine would choose. (Products scaled by block were measured at several times bf16, by a kernel that nobody
        would take.)"""
        gemms, moes = self._common.GEMMQuantMode, self._common.MoEQuantMode

        def ms(op: Any) -> float:
            return self.ask(op)(1, 64).ms

        return (
            min((gemms.fp8, gemms.fp8_block), key=lambda m: ms(self.ops.GEMM("p", 1, 2 * d.hidden, d.hidden, m))),
            min((moes.fp8, moes.fp8_block), key=lambda m: self.experts(d, 1, 1, m)(64).ms) if d.experts else moes.fp8,
        )

    def experts(self, d: Decoder, layers: int, gpus: int, mode: Any) -> Kernel:
        """Return the kernel of routed experts: the time to read the experts that tokens reach, and what a skewed
        spread takes beyond the time to read all. The package draws its spread from one law up to E / k tokens and from
        a flatter one behind them: its kernels of 32 tokens read 108 of 128 experts, and real ones about 80."""
        sizes = (d.hidden, d.expert_ffn, d.experts_per_token, d.experts, gpus, 1, mode)
        even, skewed = (self.ask(self.ops.MoE("experts", layers, *sizes, spread, 1)) for spread in (EVEN, SKEWED))
        measured_even = _answers(even)
        if d.experts <= FEW_EXPERTS:
            return (lambda tokens: even(1, tokens)) if measured_even else (lambda tokens: skewed(1, tokens))
        # Spread evenly, E / k tokens reach all experts; spread unevenly, about E / 2 do.
        least = skewed(1, 1)
        most = even(1, -(-d.experts // d.experts_per_token)) if measured_even else skewed(1, d.experts // 2)
        # Some GPUs' caches held the experts of one token throughout the measurement.
        read_s = layers * d.experts_per_token * d.expert_params * d.layer_dtype_bytes / gpus / self.bandwidth
        least = scaled(least, max(1.0, 1e3 * read_s / least.ms))

        def answer(tokens: int) -> Answer:
            share = (experts_reached(d, tokens) - d.experts_per_token) / (d.experts - d.experts_per_token)
            beyond = skewed(1, tokens)
            over = max(0.0, 1 - most.ms / beyond.ms)
            return added((scaled(least, 1 - share), scaled(most, share), scaled(beyond, over)))

        return answer

    def ask(self, op: Any, prefill: bool = True) -> Callable[..., Answer]:
        """Return a function from (requests, new tokens or context of each, tokens before) to the kernel's time."""
        self._engine._resolve_attention_lane_orders([op], self._database, None)
        described = self._engine.build_ops_json([op])

        def answer(requests: int, length: int, before: int = 0) -> Answer:
            rows = self._handle.evaluate_ops_json(
                described, is_context=prefill, batch_size=requests, s=length, prefix=before
            )
            ms = sum(row[1] for row in rows)
            shares = {"silicon": (1.0, 0.0), "empirical": (0.0, 1.0)}
            parts = [(row[1], shares.get(row[3], (0.0, 0.0))) for row in rows]
            return Answer(ms, sum(t * m for t, (m, _) in parts), sum(t * e for t, (_, e) in parts))

        return answer

    def kernel_names(self, family: str, table: str, dtype: str) -> list[str]:
        """Return the kernels that were measured for one of the package's tables in one number format."""
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
            names |= {name for name, format in zip(sources, formats, strict=True) if format == dtype}
        return sorted(names)


def _answers(ask: Callable[..., Answer]) -> bool:
    try:
        ask(1, 1)
    except (RuntimeError, ValueError):
        return False
    return True


def scaled(answer: Answer, factor: float) -> Answer:
    return Answer(answer.ms * factor, answer.measured * factor, answer.estimated * factor)


def added(answers: Iterable[Answer]) -> Answer:
    parts = list(answers)
    return Answer(*(sum(getattr(a, name) for a in parts) for name in ("ms", "measured", "estimated")))
