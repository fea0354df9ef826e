"""A server that listens all the time, behind real sockets, as the users of `harness.client.duplex_user` see it.

One connection and one open microphone for each session; what comes back is decoded and heard, and not only counted.
"""

from pathlib import Path
from typing import Any

from harness.live.client.base_endpoint import CallEndpoint
from harness.live.client.call_recorder import CALL, LONGEST_S, MINUTES, CallRecorder
from harness.live.client.connection import ConnectionContext
from harness.live.client.duplex_connection import DuplexConnection
from harness.live.client.open_microphone import Sounds
from harness.live.dialects.detect import resolve
from harness.live.dialects.spoken import for_open_microphone
from workloads.trace import Turn


class DuplexEndpoint(CallEndpoint[DuplexConnection]):
    """Implements `harness.client.duplex_user.DuplexServer`. Nothing that a user calls blocks or raises."""

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and make the sound of all calls.

        UserError where the target cannot be reached or does not listen by itself.
        """
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        dialect = for_open_microphone(self.target)
        self._context = ConnectionContext.of(dialect, "turns", self.log, self.sends, self.failures)
        self._sounds = Sounds(self.trace, dialect.input_rate)
        self._sounds.prepare()
        self._tapes: dict[int, CallRecorder] = {}

    def open(self, session: int, listener: Any) -> None:
        super().open(session, listener)
        begin_s, wanted, tape = self._loop.time(), self.target.save_audio or 0, None
        if len(self._tapes) < wanted:
            longest_s = min(LONGEST_S, 60 * MINUTES / wanted)
            tape = self._tapes[session] = CallRecorder(begin_s, self._context.dialect.input_rate, longest_s)
        self._connections[session].begin(begin_s, tape)

    def says(self, turn: Turn, kind: str, begin_s: float) -> None:
        connection = self._connections[turn.session]
        connection.hear(turn, kind, begin_s + connection.listener.network_s)

    def playback_ack(self, session: int, reply: int, played_s: float, playing: bool, at_s: float) -> float:
        connection = self._connections[session]
        if connection.listener.network_s:
            self._loop.call_at(at_s, connection.ack, reply, played_s, playing, connection.due_s)
        else:
            connection.ack(reply, played_s, playing, connection.due_s)
        return 0.0

    def playback_done(self, session: int, reply: int) -> None:
        if session in self._connections:
            self._connections[session].played_out(reply)

    def save(self, folder: Path) -> None:
        """Write the calls that were recorded."""
        for session, tape in self._tapes.items():
            tape.save(folder / f"{CALL}{session}.flac")

    def _make(self, session: int) -> DuplexConnection:
        return DuplexConnection(self._context, session, self._sounds, self.target.chunk_ms / 1e3)
