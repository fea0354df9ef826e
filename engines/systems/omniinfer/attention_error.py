"""The effect of compressed layers on the output of a decoder of random weights.

This is an error of attention and no accuracy of any model: it shows that a pattern and a search work as they should,
and nothing about which layers of a trained model can lose the middle of their context.
"""

from functools import cached_property

import torch

from engines.core.vllm_adapter.attention.reference import dense_attention


class RandomDecoder:
    """Layers of attention and a gated product, each with a norm before it and a residual, over `tokens` random
    embeddings."""

    def __init__(self, layers: int, seed: int, hidden: int = 64, heads: int = 4, tokens: int = 192) -> None:
        rng = torch.Generator().manual_seed(seed)

        def matrix(rows: int, columns: int) -> torch.Tensor:
            return torch.randn(rows, columns, generator=rng) / rows**0.5

        self.heads = heads
        branch = (
            2 * layers
        ) ** -0.5  # as decoders are initialised, so that depth does not blow the output up
        self.inputs = torch.randn(tokens, hidden, generator=rng)
        self.layers = [
            (
                matrix(hidden, 3 * hidden),
                matrix(hidden, hidden) * branch,
                matrix(hidden, 4 * hidden),
                matrix(2 * hidden, hidden) * branch,
            )
            for _ in range(layers)
        ]

    @torch.inference_mode()
    def output(self, compressed: tuple[bool, ...], sinks: int, recent: int) -> torch.Tensor:
        """Return the output (tokens, hidden) behind the last layer."""
        x = self.inputs
        tokens, hidden = x.shape
        for (qkv, back, wide, narrow), short in zip(self.layers, compressed, strict=True):
            query, key, value = (_normed(x) @ qkv).view(tokens, 3, self.heads, -1).unbind(1)
            scale = (hidden / self.heads) ** -0.5
            window, first = (recent, sinks) if short else (tokens, 0)
            x = x + dense_attention(query, key, value, scale, window, first).reshape(tokens, hidden) @ back
            gate, up = (_normed(x) @ wide).chunk(2, dim=1)
            x = x + (torch.nn.functional.silu(gate) * up) @ narrow
        return x

    def error(self, compressed: tuple[bool, ...], sinks: int, recent: int) -> float:
        """Return the size of the difference to the output of full attention, over the size of that output."""
        return float((self.output(compressed, sinks, recent) - self._full).norm() / self._full.norm())

    @cached_property
    def _full(self) -> torch.Tensor:
        return self.output((False,) * len(self.layers), 0, 1)


def _normed(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6)
