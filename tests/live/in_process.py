"""Endpoints without a network: tests write what a server sends, byte by byte, and read what reaches the user."""

import asyncio
import base64
import functools
import json
from typing import Any

from harness.events.log import EventLog
from harness.live.endpoints.base_endpoint import ConnectionContext
from harness.live.endpoints.dialects import dialect_of
from harness.live.endpoints.dialects.dialect import Dialect
from harness.live.endpoints.dialects.events import Ready
from harness.live.endpoints.dialects.synthesis import Synthesis
from harness.live.endpoints.http_endpoint import HttpEndpoint
from harness.live.endpoints.logs import FailureLog, SendLog
from harness.live.endpoints.synthesis_endpoint import SynthesisConnection, SynthesisEndpoint
from harness.live.endpoints.target import TargetParams
from harness.live.endpoints.text_endpoint import TextEndpoint
from harness.live.endpoints.transport.http import HttpPool, _Connection
from harness.live.endpoints.turn_endpoint import TurnConnection
from tests.live.scripted import spoken, tone

TRACE = spoken(turns=2)
TURNS = TRACE.sessions[0].turns


class Heard:
    """A user who keeps what reaches it. `seconds`: of audio, by turn; `tokens`: messages with text; `ended`: turns
    whose reply is complete."""

    due_s = network_s = 0.0

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self.tokens = 0
        self.ended: list[int] = []
        self.reasons: list[str] = []

    def audio(self, turn: int, seconds: float, at_s: float) -> None:
        self.seconds[turn] = self.seconds.get(turn, 0.0) + seconds

    def text(self, turn: int, tokens: int, at_s: float) -> None:
        self.tokens += tokens

    def reply_done(self, turn: int, at_s: float) -> None:
        self.ended.append(turn)

    def failed(self, reason: str, at_s: float) -> None:
        self.reasons.append(reason)

    @property
    def outcome(self) -> str | None:
        """Of the first turn: "" where it is complete, else why it failed; None: it goes on."""
        return self.reasons[0] if self.reasons else "" if self.ended else None


class Line:
    """A socket that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, message: bytes) -> None:
        self.sent.append(json.loads(message))

    def close(self) -> None:
        pass


class Side:
    """A user and the log of what reached it."""

    def __init__(self) -> None:
        self.heard, self.log, self.failures = Heard(), EventLog(), FailureLog()

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.log.events().to_pylist() if row["kind"] == kind]


class Call(Side):
    """A session over a WebSocket that is ready, by default of dialect openai, and its two ends."""

    def __init__(self, **target: Any) -> None:
        super().__init__()
        settings = {"url": "ws://h/v1/realtime", "dialect": "openai", **target}
        self._connect(TurnConnection, dialect_of(TargetParams.model_validate(settings)))
        self.says("session.updated", session={})

    def _connect(self, of: type[TurnConnection], dialect: Dialect) -> None:
        context = ConnectionContext(dialect, "turns", self.log, SendLog(), self.failures, 0)
        self.connection = of(context, 0)
        self.line = Line()
        self.connection._socket = self.line  # type: ignore[assignment]
        self.connection.attach(self.heard)

    def says(self, kind: str, **fields: Any) -> None:
        self.message(json.dumps({"type": kind, **fields}).encode())

    def message(self, data: bytes) -> None:
        self.connection.message(data, 0.0)

    def ends(self, code: int) -> None:
        """The server closes the connection with `code`."""
        self.connection.closed(code, "", 0.0)

    def asks(self, turn: int) -> None:
        self.connection._speaking = self.connection._reply = None  # the user has spoken
        self.connection.commit(TURNS[turn], 0.0, 0)

    def completes(self, response: str, status: str = "completed", **fields: Any) -> None:
        self.says("response.done", response={"id": response, "status": status, **fields})

    def audio(self, seconds: float = 0.1, **ids: Any) -> None:
        self.sound(tone(seconds), **ids)

    def sound(self, data: bytes, **fields: Any) -> None:
        self.says("response.output_audio.delta", delta=base64.b64encode(data).decode(), **fields)


class Utterances(Call):
    """A session of speech synthesis over a WebSocket."""

    def __init__(self) -> None:
        Side.__init__(self)
        url = "ws://h/v1/audio/speech/stream"
        self._connect(
            SynthesisConnection, Synthesis(TargetParams.model_validate({"url": url, "turn_detection": "client"}))
        )
        self.connection._begin(Ready(), 0.0)


class Request(Side):
    """A request over HTTP, of chat completions or of speech, that has been sent."""

    def __init__(self, endpoint: type[HttpEndpoint[Any]], **target: Any) -> None:
        super().__init__()
        path = "chat/completions" if endpoint is TextEndpoint else "audio/speech"
        params = TargetParams(url=f"http://h/v1/{path}", **target)
        self.endpoint = endpoint(TRACE, params, self.log, SendLog(), self.failures)
        pool = HttpPool(params.url)
        self.connection, self.dropped = _Connection(pool), False
        self.connection.connection_made(self)
        pool._idle.append(self.connection)
        self.requests = self.endpoint._make(TRACE.sessions[0])
        self.requests.listener = self.heard
        self.requests.ask(TURNS[0], 0.0, pool)

    def write(self, data: bytes) -> None:
        """As the client's transport."""

    def close(self) -> None:
        self.dropped = True

    abort = close

    def answers(self, *pieces: bytes) -> None:
        """The server sends these pieces, as long as the client reads."""
        for piece in pieces:
            if not self.dropped:
                self.connection.data_received(piece)

    def ends(self) -> None:
        """The server closes the connection."""
        if not self.dropped:
            self.connection.connection_lost(None)


def chat() -> Request:
    return Request(TextEndpoint)


def speech(**target: Any) -> Request:
    return Request(SynthesisEndpoint, **target)


def calling(test: Any) -> Any:
    """Runs a test on a loop, as connections need one."""

    async def main(*args: Any, **more: Any) -> None:
        test(*args, **more)

    @functools.wraps(test)
    def run(*args: Any, **more: Any) -> None:
        asyncio.run(main(*args, **more))

    return run
