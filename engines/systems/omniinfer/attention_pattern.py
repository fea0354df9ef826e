"""OmniAttn (section 4.2): layers that attend over the first and the last tokens only, equations (5) and (6).

A layer is compressed as a whole, all of its heads alike. The kept tokens are those in vLLM's blocks for such layers
(`AttentionWindow`), so a hand-over moves the same tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engines.core.stage import AttentionWindow, Stage
from engines.systems.omniinfer.omniinfer_params import RECENT, SINKS, AttentionParams
from workloads.errors import UserError


@dataclass(frozen=True)
class AttentionPattern:
    """p of equation (7): the compressed layers, and the tokens that they keep. `recent` counts the query's own."""

    compressed: tuple[bool, ...]
    sinks: int = SINKS
    recent: int = RECENT

    @classmethod
    def of(cls, text: str, layers: int, sinks: int = SINKS, recent: int = RECENT) -> AttentionPattern:
        """Read one character per layer, 1: compressed, 0: not. UserError for any other text."""
        if len(text) != layers or set(text) - {"0", "1"}:
            raise UserError(
                f"attention pattern {text!r} should have {layers} characters, a 0 or a 1 for each layer of the model."
            )
        return cls(tuple(digit == "1" for digit in text), sinks, recent)

    @property
    def count(self) -> int:
        return sum(self.compressed)

    def kept_tokens(self, tokens: int) -> int:
        """Return the most tokens of a context that a compressed layer reads."""
        return min(tokens, self.sinks + self.recent)

    def kept_blocks(self, tokens: int, block_size: int) -> int:
        """Return the number of a context's blocks with any token that the next query sees in a compressed layer."""
        blocks = -(-tokens // block_size)
        sinks = -(-self.sinks // block_size)
        before = max(0, tokens - self.recent + 1) // block_size  # blocks that lie before the window
        return blocks - max(0, before - sinks)

    def handover_bytes(self, tokens: int, block_size: int, token_bytes: int) -> tuple[int, int]:
        """Return the bytes of a prompt's KV that decode needs, in whole blocks: of full layers, and of compressed ones.

        `token_bytes`: K and V of one token in one layer.
        """
        block_bytes = block_size * token_bytes
        full = -(-tokens // block_size) * block_bytes * (len(self.compressed) - self.count)
        return full, self.kept_blocks(tokens, block_size) * block_bytes * self.count

    def on(self, stage: Stage) -> Stage:
        """Return the stage under this pattern, without prefix caching, which does not work with it (as in the code).

        UserError for a model of another depth.
        """
        if len(self.compressed) != stage.decoder.layers:
            raise UserError(
                f"the attention pattern is of {len(self.compressed)} layers, but stage {stage.name!r} has "
                f"{stage.decoder.layers}; give one of as many."
            )
        if not self.count:
            return stage
        layers = tuple(layer for layer, compressed in enumerate(self.compressed) if compressed)
        return replace(stage, prefix_caching=False).extended(AttentionWindow(self.recent, self.sinks, layers))


def split_pool(blocks: int, full: int, compressed: int, beta: float) -> tuple[int, int]:
    """Divide a pool of `blocks` of all layers between full and compressed layers, as the code does.

    Compressed layers get `beta` of theirs; the rest goes to the `full` layers and the pool's own entry.
    """
    return int(blocks * (1 + (1 - beta) * compressed / (full + 1))), int(beta * blocks)


def compressed(stage: Stage, params: AttentionParams) -> Stage:
    """Return the stage whose layers attend as the parameters say. UserError for a pattern of another depth."""
    layers = stage.decoder.layers
    text = params.attention_pattern or ("01" * layers)[:layers]
    pattern = AttentionPattern.of(text, layers, params.attention_sinks, params.attention_recent)
    return pattern.on(stage)
