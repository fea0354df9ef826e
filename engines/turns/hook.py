"""Hooks: components that follow every turn of a pipeline, from its first word to the end of its text."""

from collections.abc import Mapping
from types import MappingProxyType

from engines.turns.reply import Reply, ReplyRequest
from workloads.trace import Turn


class Hook:
    """The base class of hooks, for `Pipeline.attach`. Gateway or pipeline call each method; by default it does nothing.
    The record keeps `counters`."""

    counters: Mapping[str, int] = MappingProxyType({})

    def speaking(self, turn: Turn) -> None:
        """Called when the user of `turn` begins to speak."""

    def spoken(self, session: int, history: list[int] | None) -> float:
        """Called when the user has stopped, or gone. `history`: the turn follows it; None: it is no turn. Returns the
        seconds of sound that are encoded already."""
        return 0.0

    def rejects(self, turn: Turn, tokens: int) -> str:
        """Called when a complete turn has come, before it is admitted. `tokens`: of its prompt, with the history.

        A text rejects it for this reason, as a server does with HTTP status 429: its session ends, and it counts as
        rejected, not as failed. Empty: it may go on.
        """
        return ""

    def admitted(self, reply: Reply, request: ReplyRequest) -> bool:
        """Called when a complete turn has come, and its prompt is tokenised.

        True holds it until `Pipeline.send`, unless it is closed earlier; one hook of a pipeline may do so. False: it is
        sent to a replica now.
        """
        return False

    def produced(self, reply: Reply) -> None:
        """Called when tokens of its text have come; the first time, its prompt is computed."""

    def handed_over(self, reply: Reply) -> None:
        """Called when a decode replica takes it over at once from the replica that has computed its prompt."""

    def closed(self, reply: Reply) -> None:
        """Called when its text is complete, or nobody waits for it any more, and again if it is interrupted while it is
        spoken."""
