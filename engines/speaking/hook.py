"""What a system attaches to a pipeline: it is told of every reply's way through the thinker."""

from rehearsal.engines.speaking.reply import Reply, ReplyRequest


class Hook:
    """`Pipeline.attach` takes one; each method is called by the pipeline, and does nothing unless it is overridden."""

    def admitted(self, reply: Reply, request: ReplyRequest) -> bool:
        """A complete turn has come, and its prompt is tokenised. True: it is held here, and sent on by `Pipeline.send`
        unless it is closed before, which one hook of a pipeline may do; False: it is sent to a replica now."""
        return False

    def produced(self, reply: Reply) -> None:
        """Tokens of its text have come; the first time, its prompt is computed."""

    def handed_over(self, reply: Reply) -> None:
        """A decode replica takes it over at once from the one that has computed its prompt."""

    def closed(self, reply: Reply) -> None:
        """The thinker is done with it: its text is complete, or nobody waits for it any more. Said again where it
        is interrupted while it is spoken."""
