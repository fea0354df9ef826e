"""One call as the gateway keeps it, and its client's end."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from engines.frames.session_engine import SessionRequest
from engines.turns.gateway import Piece
from workloads.trace import Turn


class Listener(Protocol):
    """The client's end of a session: it receives the server's messages."""

    def accepted(self) -> None: ...

    def rejected(self) -> None:
        """Take the rejection: the server is overloaded, and asking again does not help."""

    def frame(self, frame: int, tokens: int) -> None:
        """Take the tokens that a batch returned. `frame`: the newest frame that the batch fed. `tokens` 0: an empty
        frame."""

    def failed(self, reason: str) -> None: ...


class Frame(NamedTuple):
    """A frame's audio, complete. `audio`: as a piece of a prompt, if the thinker really hears."""

    turn: Turn
    audio: Piece | None = None


@dataclass(slots=True, eq=False)
class Call:
    """One call. `ready`: frames whose audio is complete and not fed. `recent`: the latest fed, if they may be fed
    again. `before`: tokens said in requests that were recycled. `fed_tokens`, `fed_chunks`: to its current request.
    `frame`: the newest fed, by the batch that began at `fed_s`; `batches` that have returned to it."""

    id: int
    listener: Listener
    request: SessionRequest | None = None
    ready: list[Frame] = field(default_factory=list)
    recent: deque[Frame] = field(default_factory=deque)
    frame: int = -1
    fed_s: float = 0.0
    before: int = 0
    collected: int = 0
    fed_tokens: int = 0
    fed_chunks: int = 0
    batches: int = 0
    gone: bool = False

    def take(self) -> list[Frame]:
        """Take the frames for the next batch."""
        ready, self.ready = self.ready, []
        return ready

    @property
    def uncollected(self) -> int:
        """Tokens said since its last collection."""
        return self.before + (self.request.produced if self.request else 0) - self.collected

    @property
    def length(self) -> int:
        """Tokens of its request's context, up to the last answer; the last token of each answer is not part of it."""
        assert self.request is not None
        return self.fed_tokens + max(0, self.request.produced - self.fed_chunks)
