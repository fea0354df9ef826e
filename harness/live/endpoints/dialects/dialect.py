"""The base of dialects: the messages that a client sends in a protocol, and the meaning of the server's messages.

The defaults are those of a protocol with the events of OpenAI's Realtime API, whose reading stands in one place. A
dialect defines the differences. Other packages name theirs by entry points of group `rehearsal.dialects`.
"""

import json
from binascii import b2a_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from harness.live.endpoints.dialects.events import Event
from harness.live.endpoints.dialects.parsing import Reader, created
from harness.live.endpoints.request_shape import merged
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.transport import websocket
from workloads.trace import Turn

UNDO = "interrupt"
"""Begins the event_id of all that is sent to interrupt: the reply may have ended meanwhile, so no error about it
counts. [chosen]"""

APPEND = b'{"type":"input_audio_buffer.append"'
"""Begins each piece of audio."""
CLOSE: Final = "close"
"""An interruption for which the protocol has no message: the client hangs up and calls again."""


class Cut(NamedTuple):
    """The reply that is interrupted, or played. `done`: the server has sent all of it."""

    response: str | None
    item: str | None
    played_s: float
    done: bool = False

    def cancelled(self) -> list[bytes]:
        """Return the message to a server of OpenAI's events that cancels it."""
        if self.done:
            return []
        about = {} if self.response is None else {"response_id": self.response}
        return [encode("response.cancel", event_id=f"{UNDO}-cancel", **about)]

    def truncated(self, **about: Any) -> list[bytes]:
        """Return the message to a server of OpenAI's events about how much of its item was played. `about`: its first
        fields."""
        if self.item is None:
            return []
        place = {"item_id": self.item, "content_index": 0, "audio_end_ms": int(1e3 * self.played_s)}
        return [encode("conversation.item.truncate", **about, **place)]


@dataclass(frozen=True)
class Dialect:
    """One protocol, as `target` asks for it. Messages are whole JSON texts in UTF-8."""

    target: TargetParams

    name: ClassVar[str]
    input_rate: ClassVar[int]
    """Samples/s of the audio that is sent."""
    ready_on: ClassVar[str]
    """Type of the event after which the session can begin; empty: as soon as it is connected."""
    reports_played: ClassVar[bool] = False
    """True where the server reports how much was played of a reply that was cut after it had been sent."""
    turn_detection: ClassVar[tuple[str, ...]] = ("client",)
    """Sides that may end a turn, the default first: client, server, semantic. Open microphones need server."""
    fixed: ClassVar[tuple[str, ...]] = ()
    """Parameters of a target that its servers choose themselves."""
    speech_stops: ClassVar[bool] = True
    """True where its clients drop a reply when the server reports speech, not when it reports the cut."""
    gates: ClassVar[bool] = False
    """True where a client can set how much speech cuts a reply."""
    answers_hello: ClassVar[bool] = True
    """True where the server reports the begin of a session only after it has applied the client's settings."""
    confirms: ClassVar[bool] = True
    """True where no session begins before the event `ready_on`. Else one may begin `UNCONFIRMED_S` after the server's
    greeting: there are servers that never acknowledge the client's settings."""
    takes_frames: ClassVar[bool] = False
    """True where its servers may serve interaction sessions."""
    binary: ClassVar[bool] = False
    """True where its messages are binary, not JSON texts."""
    needs_model: ClassVar[bool] = False
    """True where the client has to name a model: without one, a server's only model is taken."""
    quiet_s: ClassVar[float | None] = None
    """Seconds of silence after which a reply is complete, where the protocol does not say so; None: it does."""
    settings: ClassVar[tuple[str, ...]] = ("session",)
    """Names that lead to the settings of a session in the first messages: a user's own are merged into them."""
    waits: ClassVar[bool] = False
    """True where its servers wait for the client's first words: detection tries them."""
    mark: ClassVar[str | None] = None
    """Field of the session in its servers' `session.created`, by which detection knows them; "": none is needed, where
    no other dialect knows them."""
    understands: ClassVar[tuple[str, ...]] = ()
    """Other dialects that its servers may understand."""

    @classmethod
    def at(cls, url: str) -> bool:
        """Return whether a server at `url` is known to speak it."""
        return False

    @classmethod
    def greets(cls, first: bytes) -> bool:
        """Return whether `first` is what its servers say first."""
        hello = created(first)
        if cls.mark is None or hello is None or hello.session is None:
            return False
        return not cls.mark or cls.mark in hello.session

    async def connect(self, receiver: websocket.Receiver) -> websocket.WebSocket:
        """Open a connection, whose messages go to `receiver`. ConnectFailed where there is none."""
        return await websocket.connect(
            self.url(),
            receiver,
            headers=self.headers(),
            timeout_s=self.target.connect_timeout_s,
            binary=self.binary,
            route=self.target.route(),
        )

    def url(self) -> str:
        return self.target.url

    def headers(self) -> dict[str, str]:
        """Return the headers of the handshake, with the token from the environment, if there is one."""
        return self.target.request_headers()

    @property
    def server_vad(self) -> bool:
        """True where the server detects the ends of turns."""
        return self.target.turn_detection != "client"

    def vad(self) -> dict[str, Any]:
        """Return the detector of ends of turns that the target asks for, as OpenAI's sessions state it."""
        target = self.target
        if target.turn_detection == "semantic":
            return {"type": "semantic_vad", "eagerness": target.eagerness or "auto"}
        if target.silence_duration_ms is None:
            return {"type": "server_vad"}
        return {"type": "server_vad", "silence_duration_ms": target.silence_duration_ms}

    def lengths(self, turn: Turn, left: float = 1.0) -> dict[str, Any]:
        """Return the length of the reply to a turn, or of the share `left` of it, for a modelled server."""
        speaks, reply_s = self.target.modalities == "audio", turn.reply_audio_s
        return {
            "output_tokens": max(1, round(left * turn.output_tokens)),
            "reply_audio_s": left * reply_s if speaks and reply_s is not None else None,
            "visual_tokens": turn.visual_tokens,
            "content": turn.content,
        }

    def cannot(self, typed: bool) -> str | None:
        """Return why this dialect cannot do what the target or the trace needs; `typed`: the trace has typed turns."""
        target = self.target
        if target.turn_detection not in self.turn_detection:
            able = " or ".join(self.turn_detection)
            return f"its servers know no turn_detection={target.turn_detection}; take turn_detection={able}"
        if self.needs_model and target.model is None:
            return "its server wants to be asked for a model; set model"
        if typed and type(self).typed_turn is Dialect.typed_turn:
            return "its server takes no typed turns; take a workload whose turns are spoken"
        for name in self.fixed:
            if getattr(target, name) is not None:
                return f"{name} is the server's own; leave it out"
        if not self.gates and (target.min_duration_s or target.min_words):
            return "a client cannot set how much speech cuts a reply; leave min_duration_s and min_words out"
        if target.session is not None and self.opening() == self.hello():
            return "a client has no session to update; leave session out"
        return None

    def opening(self) -> list[bytes]:
        """Return `hello` with the target's own fields of a session."""
        own = self.target.session
        if own is None:
            return self.hello()
        return [with_settings(message, self.settings, own) for message in self.hello()]

    def hello(self) -> list[bytes]:
        """Return the messages sent as soon as the connection is open."""
        raise NotImplementedError

    def append(self, pcm: bytes) -> bytes:
        """Return the messages of audio, 16-bit little-endian mono at `input_rate`."""
        return b'%s,"audio":"%s"}' % (APPEND, b2a_base64(pcm, newline=False))

    def writer(self) -> Callable[[bytes], bytes] | None:
        """Return what makes the sent message of each message of one connection, in their order, such as by numbering
        them; None: they are sent as they are."""
        return None

    def begin_of_turn(self) -> list[bytes]:
        """Return the messages of a user who begins to speak."""
        return []

    def end_of_turn(self, turn: Turn) -> list[bytes]:
        """Return the messages of a user who has spoken and wants a reply. Empty where the server's VAD detects that."""
        return []

    def silence(self, turn: Turn, ends_turn: bool, left: float = 1.0) -> list[bytes]:
        """Return the messages of a user who falls silent on an open microphone. `ends_turn`: the turn is complete.
        `left`: share of the turn's reply still to be heard, where a sound cut it."""
        return []

    def typed_turn(self, turn: Turn, text: str) -> list[bytes]:
        """Return the messages of a user who has typed `text` and wants a reply."""
        raise NotImplementedError

    def cancel(self, cut: Cut) -> list[bytes]:
        """Return the messages that stop the reply's generation."""
        return []

    def interrupt(self, cut: Cut) -> list[bytes] | Literal["close"]:
        """Return the messages of a user who speaks over the reply, after hearing `cut.played_s` seconds of it. Empty
        where the server hears that."""
        return []

    def ack(self, played: Cut, playing: bool) -> list[bytes]:
        """Return the report of how far the reply has been played; `played.done`: to its end. Empty: servers take
        none."""
        return []

    def answer(self, event: Event) -> list[bytes]:
        """Return the messages that answer the end of a reply, a `ToolCall`, or a `Mark` whose audio has been played."""
        return []

    def goodbye(self) -> list[bytes]:
        """Return the messages of a user who hangs up."""
        return []

    def missing(self, begun: bool, spoke: bool) -> str:
        """Return the event that a reply waits for: one that has not `begun`, has not spoken, or has not ended."""
        if not begun:
            return "response.created"
        kind = "text" if self.target.modalities == "text" else "audio"
        return "response.done" if spoke else f"response.output_{kind}.delta"

    def frame(self, turn: Turn) -> list[bytes]:
        """Return the messages that go before the audio of an interaction session's frame."""
        return []

    def reader(self) -> Callable[[bytes], Event]:
        """Return the reader of one connection's messages; it never raises."""
        return Reader(self.ready_on)


def with_settings(message: bytes, path: Sequence[str], own: Mapping[str, Any]) -> bytes:
    """Return a message with the user's `own` fields in the object at `path`, where it is JSON that has one."""
    try:
        event = json.loads(message)
    except ValueError:
        return message
    *outer, last = path
    place = event
    for name in outer:
        place = place.get(name, {})
    if last not in place:
        return message
    place[last] = merged(place[last], own)
    return json.dumps(event, separators=(",", ":")).encode()


def encode(kind: str, **fields: Any) -> bytes:
    """Return an event as the bytes of a message."""
    return json.dumps({"type": kind, **fields}, separators=(",", ":")).encode()


def with_query(url: str, **defaults: str | None) -> str:
    """Return `url` with these query parameters, unless it has them already or they are None."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    missing = {name: value for name, value in defaults.items() if value is not None and name not in given}
    return urlunsplit(parts._replace(query=urlencode({**given, **missing})))
