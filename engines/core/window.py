"""An attention window: how far back tokens see, and so what of the KV stays in the pool."""

from __future__ import annotations

from dataclasses import dataclass

from engines.core.stage import Stage


@dataclass(frozen=True)
class AttentionWindow:
    """Extends a stage (`Stage.extension`) whose tokens see the `tokens` newest of their context, themselves included,
    and the first `sinks`. `layers`: numbers of the layers of which that is said, the others see all; None: all layers.
    """

    tokens: int
    sinks: int = 0
    layers: tuple[int, ...] | None = None

    @property
    def reach(self) -> int:
        """Tokens of its context that a token sees at most."""
        return self.tokens + self.sinks


def reach(stage: Stage) -> int | None:
    """Tokens of its context that a token sees at most; None: all."""
    window = stage.extension(AttentionWindow)
    return None if window is None else window.reach


def windowed_share(stage: Stage) -> float:
    """Share of the layers in which `reach` holds; 1 where it holds in all, or nowhere."""
    window = stage.extension(AttentionWindow)
    return 1.0 if window is None or window.layers is None else len(window.layers) / stage.decoder.layers
