"""How much speech over a reply takes the floor from it."""

from dataclasses import dataclass

WORDS_PER_S = 150 / 60
"""[published] mean rate of conversation in American English, 150 words a minute (National Center for Voice and
Speech)."""


@dataclass(frozen=True)
class InterruptionGate:
    """Both must be met; with neither every sound of speech interrupts.

    `min_words` are SIMULATED: nothing recognises them, they come at `WORDS_PER_S` and without a recogniser's delay.
    """

    min_duration_s: float = 0.0
    min_words: int = 0

    @property
    def after_s(self) -> float:
        """Speech, without the silence in it, that takes the floor."""
        return max(self.min_duration_s, self.min_words / WORDS_PER_S)
