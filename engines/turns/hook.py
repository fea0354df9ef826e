"""Hooks: components that a pipeline tells of every turn, from its first word to the end of its text."""

from collections.abc import Mapping
from types import MappingProxyType

from engines.turns.reply import Reply, ReplyRequest
from workloads.trace import Turn


class Hook:
    """`Pipeline.attach` takes one; each method is called by gateway or pipeline, and does nothing unless it is
    overridden. `counters` go into the record."""

    counters: Mapping[str, int] = MappingProxyType({})

    def speaking(self, turn: Turn) -> None:
        """The user of `turn` begins to speak."""

    def spoken(self, session: int, history: list[int] | None) -> float:
        """The user has stopped, or gone: it is a turn that follows `history`, or none (None). Returns how much of the
        sound is encoded already, s."""
        return 0.0

    def admitted(self, reply: Reply, request: ReplyRequest) -> bool:
        """A complete turn has come, and its prompt is tokenised. True: it is held here, and sent on by `Pipeline.send`
        unless it is closed before, which one hook of a pipeline may do; False: it is sent to a replica now."""
        return False

    def produced(self, reply: Reply) -> None:
        """Tokens of its text have come; the first time, its prompt is computed."""

    def handed_over(self, reply: Reply) -> None:
        """A decode replica takes it over at once from the one that has computed its prompt."""

    def closed(self, reply: Reply) -> None:
        """Its text is complete, or nobody waits for it any more. Said again where it is interrupted while it is
        spoken."""
