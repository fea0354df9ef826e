"""A server of interaction sessions behind real sockets, as the clients of `harness.client.interaction` see it.

A session's audio never stops: pieces go out as they are captured, and every frame's worth of them is a frame. Only
servers of ours take such sessions.
"""

from dataclasses import dataclass
from typing import Any

from harness.client.params import ClientParams
from harness.live.client.base_endpoint import WebSocketEndpoint
from harness.live.client.frame_connection import FrameConnection
from harness.live.dialects.detect import resolve
from harness.live.dialects.spoken import for_frames
from workloads.trace import Turn


@dataclass(eq=False)
class FrameEndpoint(WebSocketEndpoint[FrameConnection]):
    """Implements `harness.client.interaction.InteractionServer`. Nothing that a client calls blocks or raises."""

    def __post_init__(self) -> None:
        self._frames = {session.id: session.turns for session in self.trace.sessions}

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and encode all frames. UserError where the target takes none."""
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        self._encode(for_frames(self.target), "frames")

    def expect(self, params: ClientParams) -> None:
        """What is not said is not sent. Nobody connects ahead: an open session counts for the server's admission."""
        for session, turns in self._frames.items():
            said = (turn for turn in turns if turn.arrival_s is not None and params.begins(turn.arrival_s))
            self._frames[session] = tuple(said)

    def open(self, session: int, listener: Any) -> None:
        connection = self._connections[session] = FrameConnection(
            self._context, session, self._frames[session], self._speech
        )
        connection.connect()
        self.sends.add("session", session, listener.due_s + listener.network_s, self._loop.time())
        connection.attach(listener)
        connection.say_frame(0)

    def append(self, turn: Turn) -> None:
        self._connections[turn.session].complete(turn)
