"""A server of interaction sessions behind real sockets, as the clients of `harness.client.interaction` see it.

A session's audio never stops: pieces go out as they are captured, and every frame's worth of them is a frame. Only
servers of ours take such sessions.
"""

from dataclasses import dataclass
from typing import Any

from harness.client.client_params import ClientParams
from harness.live.endpoints.base_endpoint import Connection, ConnectionContext, WebSocketEndpoint
from harness.live.endpoints.dialects import for_frames
from harness.live.endpoints.dialects.detect import resolve
from harness.live.endpoints.dialects.events import Event, FrameDone
from harness.live.endpoints.microphone import Speech, SpeechMessages
from workloads.trace import Turn


class FrameConnection(Connection):
    """The connection of one session of frames."""

    def __init__(
        self, context: ConnectionContext, session: int, frames: tuple[Turn, ...], messages: SpeechMessages
    ) -> None:
        super().__init__(context, session)
        self._frames = frames
        self._messages = messages
        self._speech: Speech | None = None
        self._unanswered: dict[int, Speech] = {}
        self.answered = False

    def say_frame(self, index: int) -> None:
        """Begin to send the frame of this index in the session."""
        if index == len(self._frames):
            return
        turn = self._frames[index]
        assert turn.arrival_s is not None
        begin_s, sends = turn.arrival_s + turn.network_s, self.context.sends
        speech = self._messages.speech(turn, begin_s, self.send, sends, self.session)
        self._speech = self._unanswered[turn.turn] = speech

        def begin(ready_s: float) -> None:
            for message in self.context.dialect.frame(turn):
                self.send(message)
            speech.start(ready_s)

        self.when_ready(begin)

    def complete(self, turn: Turn) -> None:
        """Note that all of the frame's audio has been captured."""
        speech, self.turn = self._speech, turn.turn + 1
        assert speech is not None
        self.when_ready(lambda ready_s: speech.finish())
        self.say_frame(turn.turn + 1)

    def on_ready(self, at_s: float) -> None:
        self.listener.accepted(at_s)

    def on_event(self, event: Event, at_s: float) -> None:
        if isinstance(event, FrameDone):
            self.answered = True
            self._fed(event)
            self.context.log.event(at_s, "frame_out", self.session, event.frame, value=event.tokens)
            self.listener.frame(event.frame, event.tokens, at_s)

    def _fed(self, event: FrameDone) -> None:
        """Log the frames sent up to this one as fed at once, at the tick for which the newest had waited.

        The server has the frame from its last piece on, which on a busy machine may be before `complete` is called.
        """
        frames = [frame for frame in self._unanswered if frame <= event.frame]
        if not frames:
            return
        fed_s = self._unanswered[frames[-1]].sent_s + event.waited_s
        for frame in frames:
            del self._unanswered[frame]
            self.context.log.event(fed_s, "fed", self.session, frame, value=self._frames[frame].input_tokens)

    def missing(self) -> str:
        return "rehearsal.frame.done"

    def on_end(self) -> None:
        if self._speech is not None:
            self._speech.stop()


@dataclass(eq=False)
class FrameEndpoint(WebSocketEndpoint[FrameConnection]):
    """An endpoint of frames. Implements `harness.client.interaction.InteractionServer`. Calls of a client neither block
    nor raise."""

    def __post_init__(self) -> None:
        self._frames = {session.id: session.turns for session in self.trace.sessions}

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and encode all frames. UserError where the target takes none."""
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        self._encode(for_frames(self.target), "frames")

    def expect(self, params: ClientParams) -> None:
        """Keep only the frames that will be said. No connection opens ahead: an open session counts for the server's
        admission."""
        for session, turns in self._frames.items():
            frames = (turn for turn in turns if turn.arrival_s is not None and params.begins(turn.arrival_s))
            self._frames[session] = tuple(frames)

    def open(self, session: int, listener: Any) -> None:
        connection = self._connections[session] = FrameConnection(
            self._context, session, self._frames[session], self._speech
        )
        connection.connect()
        self.sends.add("session", session, listener.due_s + listener.network_s, self._loop.time())
        connection.attach(listener)
        connection.say_frame(0)

    def _hang_up(self, connection: FrameConnection) -> None:
        if not connection.answered:
            connection.timed_out(self._frames[connection.session][-1])
        super()._hang_up(connection)

    def append(self, turn: Turn) -> None:
        self._connections[turn.session].complete(turn)
