"""Events: the meanings of servers' messages, independent of the protocol."""

import msgspec

from harness.live.endpoints.dialects.audio_format import NOTHING, AudioFormat, decoded


class Event(msgspec.Struct, frozen=True, gc=False):
    """The meaning of a message."""


class Ready(Event, frozen=True):
    """The session can begin. `format`: of the audio to come; `serves`: turns or frames, where stated."""

    format: AudioFormat = NOTHING
    serves: str | None = None


class Greeted(Event, frozen=True):
    """The server has begun a session, and is to confirm the client's settings."""


class Started(Event, frozen=True):
    """A reply begins. `response`: its id."""

    response: str | None


class Text(Event, frozen=True):
    """A piece of a reply's text, or of a tool call. `tokens`: as the server states, else 1; `length` in characters."""

    response: str | None
    tokens: int
    length: int
    item: str | None = None


class Audio(Event, frozen=True):
    """A packet of `size` bytes in `format`. `data`: the bytes, or base64 of them."""

    response: str | None
    item: str | None
    size: int
    format: AudioFormat
    data: str | bytes

    @property
    def seconds(self) -> float:
        return self.size / self.format.bytes_per_s

    def bytes(self) -> bytes:
        """Return its bytes. ValueError where it is not base64."""
        return decoded(self.data) if isinstance(self.data, str) else self.data


class UnreadAudio(Event, frozen=True):
    """A packet that cannot be measured: its encoding is not read."""

    response: str | None
    format: AudioFormat


class Item(Event, frozen=True):
    """The reply has this item."""

    response: str
    item: str


class Done(Event, frozen=True):
    """A reply has ended.

    `status`: completed, cancelled, incomplete or failed; `reason` of the last two. transcribed: its text has ended, and
    audio that has begun goes on until `AudioDone`. `text_tokens` and `audio_tokens`: produced for it; `played`: its
    text and audio tokens that were played before it was cut. None: the server does not say.
    """

    response: str | None
    status: str
    text_tokens: int | None = None
    audio_tokens: int | None = None
    played: tuple[int, int] | None = None
    reason: str = ""
    number: int | None = None
    """Number of the event, for a server that counts its events and wants to know which have come."""

    @property
    def finish(self) -> str:
        """Its status, with the reason of one that is not complete, as `harness.live.endpoints.outcome` takes it."""
        reason = "" if self.status in ("completed", "transcribed") else self.reason
        return f"response {self.status}: {reason}".removesuffix(": ")


class AudioDone(Event, frozen=True):
    """A reply's audio has ended."""

    response: str | None
    item: str | None = None


class TokensPlayed(Event, frozen=True):
    """The text and audio tokens played of a reply that was cut after its generation."""

    response: str | None
    played: tuple[int, int]


class Cleared(Event, frozen=True):
    """The server has cut a reply: no more of its audio is played."""

    response: str | None


class Mark(Event, frozen=True):
    """The server wants to know when what it has sent so far has been played."""

    name: str


class ToolCall(Event, frozen=True):
    """The reply waits for the results of these calls, each with its id and its name."""

    calls: tuple[tuple[str, str], ...]


class Leaves(Event, frozen=True):
    """The server will close the connection soon."""


class Several(Event, frozen=True):
    """The events of one message, in order."""

    events: tuple[Event, ...]


class FrameDone(Event, frozen=True):
    """An interaction session's answer up to frame number `frame`: `tokens` of text. That frame waited `waited_s` for
    the server's tick."""

    frame: int
    tokens: int
    waited_s: float = 0.0


class SpeechStarted(Event, frozen=True):
    """The server's VAD detects the begin of the user's speech."""


class SpeechStopped(Event, frozen=True):
    """The server's VAD detects the end of the user's speech."""


class Committed(Event, frozen=True):
    """The server takes the speech for a turn."""


class Failure(Event, frozen=True):
    """The server reports an error. `caused_by` and `param`: event_id and field of the message at fault."""

    code: str
    message: str
    caused_by: str | None = None
    param: str | None = None

    @property
    def reason(self) -> str:
        """The error in a few words: errors of one kind have one reason."""
        code = self.message or self.code if self.code == "unknown" else self.code
        return f"error: {code}" + (f" ({self.param})" if self.param else "")


class Garbage(Event, frozen=True):
    """Not an event of this protocol: not JSON, without a type, or with a field of a wrong type."""

    reason: str = "garbage"


class Other(Event, frozen=True):
    """An event without use for a measurement."""
