"""One call as the gateway keeps it, and what the client hears of it."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from engines.frames.session_engine import SessionRequest
from engines.turns.gateway import Piece
from workloads.trace import Turn


class Listener(Protocol):
    """The client's end of a session: what the server sends it."""

    def accepted(self) -> None: ...

    def rejected(self) -> None:
        """Overload: the session is not served, and there is no use in asking again."""
        ...

    def frame(self, frame: int, tokens: int) -> None:
        """Take the tokens that a batch returned. `frame`: the newest frame that the batch fed. `tokens` 0: an empty
        frame."""
        ...

    def failed(self, reason: str) -> None: ...


class Frame(NamedTuple):
    """A frame's audio, complete. `audio`: as a piece of a prompt, where the thinker really hears."""

    turn: Turn
    audio: Piece | None = None


@dataclass(slots=True, eq=False)
class Call:
    """`ready`: frames whose audio is complete and not fed. `recent`: the latest fed, where they may be fed again.
    `before`: tokens said in requests that were recycled. `fed_tokens`, `fed_chunks`: to the request it has now.
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
        """The frames that the next batch feeds."""
        ready, self.ready = self.ready, []
        return ready

    @property
    def uncollected(self) -> int:
        """Tokens said since its last collection."""
        return self.before + (self.request.produced if self.request else 0) - self.collected

    @property
    def length(self) -> int:
        """Tokens of its request's context, as far as answered; the last token of each answer is not part of it."""
        assert self.request is not None
        return self.fed_tokens + max(0, self.request.produced - self.fed_chunks)
