"""The gate: one table decides for every protocol whether a reply is complete, or why it failed.

Readers and endpoints note the facts of a reply as they come, and ask here once something may have ended it. What a
complete reply was like, such as silent, short or sent in one write, is no failure: `loudness` and
`harness.metrics.reply_length` say that.
"""

import re

COMPLETE = {
    *("stop", "length", "tool_calls", "function_call"),  # OpenAI
    *("eos", "eos_token", "stop_sequence", "repetition"),  # TGI, vLLM
    *("end_turn", "max_tokens", "tool_use", "model_length"),  # gateways to Anthropic, Gemini and Mistral
    *("response completed", "response transcribed"),  # realtime sessions
}
"""Finish reasons of a complete reply. With any other, such as content_filter, abort and error, the turn has failed."""
_LONGEST = re.compile(r"response incomplete: .*(max\w{0,32}_tokens|length)", re.IGNORECASE)
"""A response that ended at its longest, as a load test asks for. [config: OpenAI Realtime API]"""
NORMAL = (1000, 1001, 1005)
"""Close codes of a server that has finished: normal, going away, no code. [config: RFC 6455]"""


class Facts:
    """The known facts of one reply.

    `status`: of its HTTP answer; 0: none has come, or none comes in this protocol. `unread`: why its data cannot be
    read. `error`: the error that the server states. `finish`: its finish reason, or "response" with its status and
    reason. `output`: a token or a packet has come. `ended`: the server has marked the end. `lost`: what ended it
    instead, such as "closed 1006".
    """

    __slots__ = ("ended", "error", "finish", "lost", "output", "status", "unread")

    def __init__(self) -> None:
        self.status = 0
        self.unread = self.error = self.finish = self.lost = ""
        self.output = self.ended = False

    @property
    def refused(self) -> bool:
        """True where the HTTP status says that there is no reply."""
        return self.status != 0 and not 200 <= self.status < 300


def outcome(facts: Facts) -> str | None:
    """Return "" for a complete reply, else why it failed; None as long as it goes on. The first line that applies
    counts, so a reply that has ended stays complete whatever happens to its connection."""
    if facts.refused:
        return f"http {facts.status}"
    if facts.unread or facts.error:
        return facts.unread or facts.error
    if facts.finish and facts.finish not in COMPLETE and not _LONGEST.match(facts.finish):
        return facts.finish if facts.finish.startswith("response ") else f"finish reason: {facts.finish}"
    if facts.ended:
        return "" if facts.output else "no output"
    return facts.lost or None
