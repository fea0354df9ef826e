"""One decoder as the kernels of a step: products, norms, attention, experts, all-reduces."""

from collections.abc import Iterable
from typing import Any

from engines.devices.kernels.aiconfigurator import TABLES, Answer, Gpu, Kernel, added, scaled
from engines.models import Decoder
from workloads.errors import UserError

PARTS = 4
"""Parts into which heads are divided for a second measurement of the same work. [chosen] Eight of 32 were measured."""

FEW_AND_MANY = (16, 4096)
"""Tokens at which all-reduces over twice the GPUs are compared."""

PREDICTED_CONTEXT = 16
"""Most tokens of a frame that a code predictor sees."""


class DecoderKernels:
    """One decoder, split over `gpus`, as the kernels of a step. UserError if the package cannot express it."""

    def __init__(self, gpu: Gpu, decoder: Decoder, gpus: int) -> None:
        if decoder.mla is not None:
            raise UserError(
                "attention over compressed KV (MLA) is not among the kernels that are read; such models keep the "
                "roofline (step_times=roofline)."
            )
        self.gpu, self.decoder, self._gpus = gpu, decoder, gpus
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
            shard = width // gpus
            return [
                product(times, 2 * shard, d.hidden),
                passes(times, 2 * shard, shard),
                product(times, d.hidden, shard),
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
        self.experts: Kernel | None = None
        if d.experts:
            sparse = d.layers - dense
            if d.shared_ffn:
                self._products += feed_forward(sparse, d.shared_ffn)
            self._products.append(product(sparse, d.experts, d.hidden, head_mode))
            self.experts = gpu.experts(d, sparse, gpus, moe)
        self._allreduce = [
            ops.CustomAllReduce("allreduce", 2 * d.layers + 1, d.hidden, n) for n in (gpus, gpus // 2) if n > 1
        ]
        self._head = [product(1, d.vocab // gpus, d.hidden, head_mode)] if d.vocab else []
        self.prompt_attention = gpu.ask(
            ops.ContextAttention(
                "context_attention", d.layers, heads, kv_heads, kv, fmha, head_size=d.head_dim, use_qk_norm=d.qk_norm
            )
        )

        def decodes(heads: int, kv_heads: int) -> Any:
            attention = ops.GenerationAttention(
                "generation_attention", d.layers, heads, kv_heads, kv, head_size=d.head_dim
            )
            return gpu.ask(attention, prefill=False)

        self.decode_attention = decodes(heads, kv_heads)
        parts = heads == kv_heads and not heads % PARTS
        self._decode_parts = decodes(heads // PARTS, heads // PARTS) if parts else None

    def over_tokens(self, ops: Iterable[Any]) -> Kernel:
        """Return kernels for a number of tokens, one per request or all of one prompt: products depend on the number
        alone."""
        kernels = [self.gpu.ask(op) for op in ops]

        def answer(tokens: int) -> Answer:
            return added(ask(1, tokens) for ask in kernels)

        return answer

    @property
    def products(self) -> Kernel:
        return self.over_tokens(self._products)

    @property
    def allreduce(self) -> Kernel | None:
        """Return all-reduces of all layers; None on one GPU. The package calls those measured that it scales from half
        as many GPUs: they have the very bandwidth of these."""
        if not self._allreduce:
            return None
        kernel, *halves = (self.over_tokens([op]) for op in self._allreduce)
        share = (self._gpus - 1) / (self._gpus - 2) if halves else 0.0
        if not halves or any(abs(kernel(n).ms / halves[0](n).ms / share - 1) > 1e-6 for n in FEW_AND_MANY):
            return kernel
        return lambda tokens: Answer(ms := kernel(tokens).ms, 0.0, ms)

    @property
    def head(self) -> Kernel:
        return self.over_tokens(self._head)

    def decode(self, requests: int, context: int) -> Answer:
        """Return the attention of decodes. If each query head has its own K and V, the work equals `PARTS` times the
        requests with that part of the heads. Both were measured, and differ by a factor of up to 3; the shorter time
        holds."""
        undivided = self.decode_attention(requests, context)
        if self._decode_parts is None:
            return undivided
        return min(undivided, self._decode_parts(PARTS * requests, context), key=lambda answer: answer.ms)

    def prompt(self, prompts: int, new: int, before: int) -> Answer:
        """Return the attention of prompts, at least the time in which a decode reads that KV: few new tokens behind a
        long context were not measured, and their arithmetic takes less than that."""
        attention = self.prompt_attention(prompts, new, before)
        read = self.decode(prompts, before + new)
        return attention if attention.ms >= read.ms else read

    def frame(self, rows: int) -> Answer:
        """Return all steps of this decoder as a code predictor, including its attention over a few tokens."""
        parts = [self.products(rows), self.decode(rows, PREDICTED_CONTEXT)]
        return scaled(added(parts), self.decoder.steps)

    def decode_step_ms(self, requests: int, context: int) -> float:
        """Return the ms of a whole step of decodes; each decode samples."""
        return self._over(requests, requests) + self.decode(requests, context).ms

    def prompt_step_ms(self, new: int, before: int, requests: int = 0, context: int = 0) -> float:
        """Return the ms of a whole step of one prompt, with `requests` decodes."""
        attention = self.prompt(1, new, before).ms + (self.decode(requests, context).ms if requests else 0.0)
        return self._over(new + requests, 1 + requests) + attention

    def _over(self, tokens: int, samples: int) -> float:
        lines = [self.products, self.experts, self.allreduce]
        return sum(line(tokens).ms for line in lines if line) + self.head(samples).ms
