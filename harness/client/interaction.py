"""One user's continuous call: audio that never stops, in frames that are due whatever the server does with them.

Open loop (Metronome, Section 2): frame k is complete at its begin + B on an absolute schedule and is sent then, also
while the engine stalls. Messages travel `network_s` in each direction and keep their order.
"""

import asyncio
import math
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from harness.client.client_params import ClientParams
from harness.client.user import User
from harness.events import point_progress
from harness.events.log import EventLog
from workloads.trace import Session, Trace, Turn


class InteractionServer(Protocol):
    """A server for calls that never pause, such as `engines.frames.gateway.TickGateway`."""

    def open(self, session: int, listener: Any) -> None: ...

    def append(self, turn: Turn) -> None:
        """Take a frame whose audio is complete."""
        ...

    def close(self, session: int) -> None: ...


@runtime_checkable
class Ending(Protocol):
    """A server at which calls may stay after their clients have gone."""

    def end_left(self) -> None:
        """End calls whose clients have gone."""
        ...


class InteractionClient(User):
    """The user of one session. `run` goes through all frames; the server calls the other public methods.

    The user hangs up two frame periods after the last frame. If the server rejects the session or the session fails,
    the user hangs up at once and does not retry.
    """

    def __init__(self, session: Session, server: InteractionServer, log: EventLog) -> None:
        super().__init__(session, server, log)
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Wait for the scheduled begin. Return when the user has hung up and the server knows it."""
        begin_s = self.session.turns[0].arrival_s
        assert begin_s is not None
        await asyncio.sleep(max(0.0, begin_s - self._loop.time()))
        self._arrive(begin_s)
        self._await_frame()
        await self._over
        if self._timer is not None:
            self._timer.cancel()
        await self._leave(max(0, self._next - 1))

    def accepted(self, at_s: float | None = None) -> None:
        self._receive(at_s, "admitted")

    def rejected(self, at_s: float | None = None) -> None:
        self._receive(at_s, "shed", 0, math.nan, True)

    def frame(self, frame: int, tokens: int, at_s: float | None = None) -> None:
        self._receive(at_s, "frame", frame, tokens)

    def failed(self, reason: str, at_s: float | None = None) -> None:
        del reason  # the engine's log has it
        self._receive(at_s, "session_failed", 0, math.nan, True)

    def _await_frame(self) -> None:
        turns = self.session.turns
        if self._next < len(turns):
            due_s = _due_s(turns[self._next])
            self._timer = self._loop.call_at(due_s, self._say, turns[self._next], due_s)
        else:
            # A last frame that just missed its tick is answered at the next, so one period would be too short.
            period_s = turns[-1].audio_s or 0.0
            self._timer = self._loop.call_at(_due_s(turns[-1]) + 2 * period_s, self._end)

    def _say(self, turn: Turn, due_s: float) -> None:
        lag_s = self._loop.time() - due_s
        self._log.event(due_s, "turn_end", turn.session, turn.turn, value=lag_s)
        self.due_s = due_s
        self._send(self.server.append, turn)
        self._next += 1
        point_progress.turn_over()
        self._await_frame()

    def _hear(self, at_s: float | None, kind: str, turn: int = 0, value: float = math.nan, last: bool = False) -> None:
        if self._over.done():
            return
        self._event(kind, turn, value, at_s)
        if last:
            self._end()

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)


async def serve_interactions(trace: Trace, server: InteractionServer, log: EventLog, params: ClientParams) -> None:
    """Play every session of `trace` against `server` and return when the last one has ended. Of `params` only
    `stop_after_s` applies to calls without pause: later frames are not sent."""
    async with asyncio.TaskGroup() as users:
        for session in trace.sessions:
            turns = tuple(turn for turn in session.turns if params.begins(turn.arrival_s or 0.0))
            if turns:
                client = InteractionClient(replace(session, turns=turns), server, log)
                users.create_task(client.run(), name=f"session {session.id}")


def _due_s(turn: Turn) -> float:
    assert turn.arrival_s is not None and turn.audio_s is not None
    return turn.arrival_s + turn.audio_s
