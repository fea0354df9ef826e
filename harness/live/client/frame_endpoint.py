"""A server of interaction sessions behind real sockets, as the clients of `harness.client.interaction` see it.

A session's audio never stops: pieces go out as they are captured, and every frame's worth of them is a frame. Only
servers of ours take such sessions.
"""

from __future__ import annotations

import asyncio
from typing import Any

from harness.client.params import ClientParams
from harness.live.dialects import DIALECTS, dialect_of
from harness.live.dialects.detect import resolve
from harness.live.dialects.events import Event, FrameDone
from harness.live.client.failure_log import FailureLog
from harness.live.client.connection import Line, Wire
from harness.live.client.microphone import Sounds, Speech
from harness.live.client.send_log import SendLog
from harness.live.target import TargetParams
from harness.log import EventLog
from workloads.errors import UserError
from workloads.trace import Trace, Turn


class FrameEndpoint:
    """Implements `harness.client.interaction.InteractionServer`. Nothing that a client calls blocks or raises."""

    def __init__(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> None:
        self.trace, self.target = trace, target
        self.log, self.sends, self.failures = log, sends, failures
        self._frames = {session.id: session.turns for session in trace.sessions}
        self._lines: dict[int, FrameLine] = {}
        self._leaving: set[FrameLine] = set()
        self._wire: Wire
        self._sounds: Sounds
        self._loop = asyncio.get_running_loop()

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and encode all frames. UserError where the target takes none."""
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        dialect = dialect_of(self.target.model_copy(update={"modalities": "text"}))  # all that frames bring
        if not dialect.hears_frames:
            able = ", ".join(name for name, cls in DIALECTS.items() if cls.hears_frames)
            raise UserError(
                f"dialect {dialect.name}: its servers answer turns and not frames; take a workload of turns, or a "
                f"server with dialect {able}."
            )
        self._wire = Wire.of(dialect, "frames", self.log, self.sends, self.failures)
        self._sounds = Sounds(self.trace, dialect, self.target.chunk_ms / 1e3)
        self._sounds.encode()

    def expect(self, params: ClientParams) -> None:
        """What is not said is not sent. Nobody connects ahead: an open session counts for the server's admission."""
        for session, turns in self._frames.items():
            said = (turn for turn in turns if turn.arrival_s is not None and params.begins(turn.arrival_s))
            self._frames[session] = tuple(said)

    def open(self, session: int, listener: Any) -> None:
        line = self._lines[session] = FrameLine(self._wire, session, self._frames[session], self._sounds)
        line.connect()
        self.sends.add("session", session, listener.due_s + listener.network_s, self._loop.time())
        line.answer(listener)
        line.say_frame(0)

    def append(self, turn: Turn) -> None:
        self._lines[turn.session].complete(turn)

    def close(self, session: int) -> None:
        line = self._lines.pop(session)
        line.goodbye(line.listener.due_s)
        self._leaving.add(line)
        line.gone.add_done_callback(lambda _: self._leaving.discard(line))

    async def aclose(self) -> None:
        """Hang up whatever is still connected, and wait until the server knows."""
        lines = [*self._lines.values(), *self._leaving]
        self._lines.clear()
        await asyncio.gather(*(line.leave() for line in lines))


class FrameLine(Line):
    """One session of frames."""

    def __init__(self, wire: Wire, session: int, frames: tuple[Turn, ...], sounds: Sounds) -> None:
        super().__init__(wire, session)
        self._frames = frames
        self._sounds = sounds
        self._speech: Speech | None = None

    def say_frame(self, index: int) -> None:
        """Begin to send the frame of this place in the session."""
        if index == len(self._frames):
            return
        turn = self._frames[index]
        assert turn.arrival_s is not None and turn.audio_s is not None
        begin_s = turn.arrival_s + turn.network_s
        speech = self._speech = Speech(
            self._sounds.of(turn),
            self._sounds.chunk_s,
            begin_s,
            begin_s + turn.audio_s,
            self.send,
            self.wire.sends,
            self.session,
        )

        def begin(ready_s: float) -> None:
            for message in self.wire.dialect.frame(turn):
                self.send(message)
            speech.start(ready_s)

        self.when_ready(begin)

    def complete(self, turn: Turn) -> None:
        """All of the frame's audio has been captured."""
        speech, self.turn = self._speech, turn.turn + 1
        assert speech is not None

        def end(ready_s: float) -> None:
            del ready_s
            speech.finish()
            self.wire.log.event(self._loop.time(), "fed", self.session, turn.turn, value=turn.input_tokens)

        self.when_ready(end)
        self.say_frame(turn.turn + 1)

    def on_ready(self, at_s: float) -> None:
        self.listener.accepted(at_s)

    def on_event(self, event: Event, at_s: float) -> None:
        if isinstance(event, FrameDone):
            self.wire.log.event(at_s, "frame_out", self.session, event.frame, value=event.tokens)
            self.listener.frame(event.frame, event.tokens, at_s)

    def on_end(self) -> None:
        if self._speech is not None:
            self._speech.stop()
