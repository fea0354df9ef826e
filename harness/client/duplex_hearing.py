"""The hearing of a user of an open call: the server's replies, which of them answers the turn, when the server is done.

Replies count 0, 1, ... in a session and are not turns: one that cuts into a pause of the user answers nothing, and
after a false alarm there may be two to one turn. The log of a turn's reply (`first_text`, `text`, `audio`,
`reply_done`, `playback_done`, `barge_in`) is about the reply that answers the turn: the first with sound that begins
after the turn's end.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any, Protocol

from harness.client.client_params import ClientParams
from harness.client.duplex_player import Player
from harness.events.log import EventLog
from workloads.trace import Session

PATIENCE_S = 3.0
"""A server that has stopped its reply has so long to go on, or to begin another, before its user does. [chosen]"""


class Reported(Protocol):
    """A server that takes reports of playback."""

    due_s: float
    network_s: float
    server: Any


@dataclass(slots=True)
class _Reply:
    """A reply of the server. `turn`: the user's turn at its begin. `over`: no more of it comes."""

    turn: int
    answers: bool
    over: bool = False
    texts: int = 0
    packets: int = 0
    audible_s: float = inf


class Hearing:
    """The user's side of what the server says. `replies`: the ones that have begun. `changed` is called at each
    change."""

    def __init__(
        self,
        session: Session,
        user: Reported,
        log: EventLog,
        params: ClientParams,
        changed: Callable[[], None],
    ) -> None:
        self.replies: dict[int, _Reply] = {}
        self._session, self._user, self._log, self._params = session, user, log, params
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self.player = Player()
        self._begins_s: list[float] = []
        self._end_s = inf
        """End of the speech of the turn under way, s; inf while it is spoken."""
        self._said_s = -inf
        """End of the server's last sound, s; inf while a reply goes on."""
        self._quiet_s = -inf
        """Time after which no more sound is expected, s."""
        self._timers: dict[tuple[str, int], asyncio.TimerHandle] = {}

    def turn_begins(self, begin_s: float) -> None:
        self._begins_s.append(begin_s)
        self._end_s = inf

    def turn_ends(self, end_s: float) -> None:
        self._end_s = end_s

    @property
    def over_s(self) -> float:
        """Time at which the server has finished with the turn, s; inf: not known yet."""
        return self._quiet_s if self._said_s > self._end_s else inf

    @property
    def audible_s(self) -> float:
        """Time at which the first reply after the end of the user's turn becomes audible, s; inf: none has."""
        return min((r.audible_s for r in self.replies.values() if r.audible_s >= self._end_s), default=inf)

    @property
    def answered(self) -> bool:
        """True where a reply to the current turn has begun."""
        return any(r.answers and r.packets for r in self.replies.values() if r.turn == self._turn)

    @property
    def _turn(self) -> int:
        return max(0, len(self._begins_s) - 1)

    def begun(self, at_s: float, number: int) -> _Reply:
        """Return the reply of that number. It begins now unless it has begun before."""
        if number not in self.replies:
            answers = self._end_s <= at_s and not self.answered
            self.replies[number] = _Reply(self._turn, answers)
            self._said_s = self._quiet_s = inf
            self._tell(at_s, "reply_begun", self._turn, number)
            self._changed()
        return self.replies[number]

    def text(self, at_s: float, number: int, tokens: int) -> None:
        reply = self.begun(at_s, number)
        if reply.answers and not reply.over:
            self._event(at_s, "text" if reply.texts else "first_text", reply.turn, tokens)
        reply.texts += 1

    def audio(self, at_s: float, number: int, audio_s: float, pcm: bytes | None) -> None:
        reply = self.begun(at_s, number)
        if reply.over:
            self._event(at_s, "late_audio", reply.turn, audio_s)
            return
        self._log_heard(at_s)
        if not reply.packets:
            self._tell(at_s, "first_packet", reply.turn, number)
            self._set("ack", number, at_s + self._params.ack_s, self._ack)
        reply.packets += 1
        if reply.answers:
            self._event(at_s, "audio", reply.turn, audio_s)
        audible_s = self.player.arrive(number, at_s, audio_s, pcm)
        if audible_s is not None:
            reply.audible_s = audible_s
        self._changed()

    def done(self, at_s: float, number: int) -> None:
        """Note that the reply is complete."""
        reply = self.begun(at_s, number)
        if reply.over:
            return
        reply.over = True
        if reply.answers:
            self._event(at_s, "reply_done", reply.turn)
        if reply.packets:
            self._set("end", number, max(at_s, self.player.reply_end_s(number)), self._played_out)
        said_s = max(at_s, self.player.end_s)
        self._hushed(said_s, said_s)

    def stopped(self, at_s: float, number: int) -> None:
        """Note that the server has cut its reply."""
        reply = self.begun(at_s, number)
        end = self._timers.pop(("end", number), None)
        if reply.over and end is None:
            return  # it had been cut or heard out
        if end is not None:
            end.cancel()
        reply.over = True
        self._tell(at_s, "stopped", reply.turn, number)
        played_s = self.player.played_s(number, at_s)
        self.player.stop(number, at_s)
        if reply.answers and reply.packets:
            self._event(at_s, "barge_in", reply.turn, played_s)
        self._hushed(self.player.end_s, at_s + PATIENCE_S)

    def told(self, at_s: float, kind: str) -> None:
        """Note what the server reports of the user's speech."""
        self._tell(at_s, kind, self._turn)

    def end(self) -> None:
        """Hang up. Everything that still plays ends."""
        for timer in self._timers.values():
            timer.cancel()
        for number in self.replies:
            self.player.stop(number, self._loop.time())
        self._log_heard(inf)

    def _hushed(self, said_s: float, quiet_s: float) -> None:
        if all(reply.over for reply in self.replies.values()):
            self._said_s, self._quiet_s = said_s, quiet_s
        self._changed()

    def _played_out(self, number: int) -> None:
        self._user.due_s = self._timers.pop(("end", number)).when()
        reply, now = self.replies[number], self._loop.time()
        if reply.answers:
            self._event(now, "playback_done", reply.turn, self.player.played_s(number, now))
        self._loop.call_later(self._user.network_s, self._user.server.playback_done, self._session.id, number)

    def _ack(self, number: int) -> None:
        """Report how far a reply has been played, repeatedly until it is over."""
        now, due_s = self._loop.time(), self._timers.pop(("ack", number)).when()
        playing = now < self.player.reply_end_s(number)
        if self.replies[number].over and not playing:
            return
        self._user.due_s = due_s
        played_s = self.player.played_s(number, now)
        self._user.server.playback_ack(
            self._session.id, number, played_s, playing, now + self._user.network_s
        )
        self._set("ack", number, due_s + self._params.ack_s, self._ack)

    def _set(self, name: str, number: int, at_s: float, method: Callable[[int], None]) -> None:
        self._timers[name, number] = self._loop.call_at(at_s, method, number)

    def _log_heard(self, by_s: float) -> None:
        """Log the stretches of the server's sound that have ended by then, each with the user's turn at its begin."""
        for stretch in self.player.ended(by_s):
            turn = max(0, bisect_right(self._begins_s, stretch.begin_s) - 1)
            length_s = stretch.end_s - stretch.begin_s
            self._event(stretch.end_s, "agent_speech", turn, length_s, str(stretch.reply))

    def _tell(self, at_s: float, label: str, turn: int, value: float = nan) -> None:
        self._event(at_s, "told", turn, value, label)

    def _event(self, at_s: float, kind: str, turn: int, value: float = nan, label: str = "") -> None:
        self._log.event(at_s, kind, self._session.id, turn, label, value)
