"""The base of both kinds of session: the context that sessions share, and the dispatch of messages to handlers."""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from engines.deployments import Deployment
from engines.endpoint.audio_store import AudioStore
from engines.endpoint.detokenizer import Detokenizer
from engines.endpoint.protocol import Incoming, Outbox, Refusal, encode, parse
from engines.endpoint.server_stats import ServerStats
from engines.endpoint.settings import Settings
from engines.endpoint.voice import Voice


@dataclass(frozen=True)
class SessionContext:
    """The context that all sessions of one server share. `about`: `session.rehearsal` as clients see it. `longest_s`:
    most audio of one turn, s."""

    deployment: Deployment
    stats: ServerStats
    audio_store: AudioStore
    detokenizer: Detokenizer
    voice: Voice
    about: dict[str, Any]
    longest_s: float
    seed: int
    loop: AbstractEventLoop

    @property
    def most_tokens(self) -> int:
        """Tokens of a prompt at most: the model's context, less a token of the reply."""
        return self.deployment.stages[self.deployment.entry].max_model_len - 1


class BaseSession:
    """One client's session, from the server's side; a kind of session fills `handlers` and defines begin and end. All
    methods run on the event loop and return at once.

    `number`: the session's.
    """

    handlers: ClassVar[Mapping[str, Callable[[Any, Incoming], None]]]

    def __init__(self, context: SessionContext, number: int, outbox: Outbox, settings: Settings) -> None:
        self.context = context
        self.number = number
        self.settings = settings
        self._outbox = outbox
        self._sent = 0
        self._begun = self._ended = False

    @property
    def busy(self) -> bool:
        """Return True while the client waits for a reply, or is being sent one."""
        raise NotImplementedError

    def begin(self) -> None:
        """Greet the client: the WebSocket is open."""
        self._begun = True
        self.opened()

    def receive(self, message: str | bytes) -> None:
        """Take one message of the client. It never raises: bad input is answered with an error."""
        if self._ended:
            return
        event_id = None
        try:
            if isinstance(message, bytes):
                raise Refusal("messages are JSON text, audio in base64; a binary one is none.", "invalid_json")
            event = parse(message)
            event_id = event.event_id
            handler = self.handlers.get(event.type)
            if handler is None:
                types = ", ".join(self.handlers)
                raise Refusal(f"this server knows no event {event.type[:64]!r}; it knows {types}.", param="type")
            handler(self, event)
        except Refusal as refusal:
            self.error(str(refusal), refusal.code, refusal.param, event_id)

    def end(self) -> None:
        """End the session of a client that has gone; a second call does nothing."""
        if self._ended:
            return
        self._ended = True
        if self._begun:
            self.closed()
            self.context.audio_store.forget(self.number)

    def opened(self) -> None:
        raise NotImplementedError

    def closed(self) -> None:
        raise NotImplementedError

    def send(self, type: str, **fields: Any) -> None:
        """Send an event to the client."""
        self.send_raw(encode({"type": type, "event_id": self.event_id(), **fields}))

    def send_raw(self, event: bytes) -> None:
        """Send an event that is encoded already."""
        if not self._ended:
            self._outbox.send(event)

    def error(self, message: str, code: str, param: str | None = None, event_id: str | None = None) -> None:
        kind = "server_error" if code in ("overloaded", "session_failed") else "invalid_request_error"
        about = {"type": kind, "code": code, "message": message, "param": param, "event_id": event_id}
        self.send("error", error=about)

    def event_id(self) -> str:
        self._sent += 1
        return f"event_{self.number}_{self._sent}"

    def say_session(self, type: str) -> None:
        """Send session.created or session.updated."""
        self.send(type, session=self.settings.session_object(f"sess_{self.number}", self.context.about))

    def now(self) -> float:
        return self.context.loop.time()


def appended(event: Incoming) -> bytes:
    """Return the audio of an input_audio_buffer.append. Raises Refusal."""
    if event.audio is None:
        raise Refusal("input_audio_buffer.append has no audio; give base64.", param="audio")
    if len(event.audio) % 2:
        raise Refusal(f"audio has {len(event.audio)} bytes and a sample has 2; send whole samples.", param="audio")
    return event.audio
