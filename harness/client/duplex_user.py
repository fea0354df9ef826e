"""One user of an open microphone: speaks, hesitates, murmurs, interrupts; nobody tells the server where a turn ends.

The same over sockets and in virtual time. The user ends a turn by falling silent and waits for a sound. From the first
audible one on, the turn's event comes `event_after_s` later: an interruption goes straight on to the next turn, any
other sound is laid over the reply. When playback is over the user thinks and goes on. A reply that cuts into a turn is
heard, and spoken over. Times are deadlines on the event loop's clock.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any, Protocol

from harness.client.client_params import ClientParams
from harness.client.duplex_player import Player, Tape
from harness.client.session import FAILED, Explaining
from harness.client.user import User
from harness.events import point_progress
from harness.events.log import EventLog
from workloads.columns.duplex_events import TAKES_FLOOR
from workloads.trace import Session, Turn

TURN = "turn"
"""Kind of speech that is a turn, and no event."""
PATIENCE_S = 3.0
"""A server that has stopped its reply has so long to go on, or to begin another, before its user does. [chosen]"""


@dataclass(slots=True)
class _Reply:
    """A reply of the server. `turn`: the user's turn at its begin. `over`: no more of it comes."""

    turn: int
    answers: bool
    over: bool = False
    texts: int = 0
    packets: int = 0
    audible_s: float = inf


@dataclass(eq=False)
class Hearing:
    """The user's side of what the server says. `replies`: the ones that have begun. `changed` is called at each change.

    Replies count 0, 1, ... in a session and are not turns: one that cuts into a pause of the user answers nothing, and
    after a false alarm there may be two to one turn. The log of a turn's reply is about the reply that answers the
    turn: the first with sound that begins after the turn's end.
    """

    session: Session
    user: User
    log: EventLog
    params: ClientParams
    changed: Callable[[], None]

    def __post_init__(self) -> None:
        self.replies: dict[int, _Reply] = {}
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
            self.changed()
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
            self._set("ack", number, at_s + self.params.ack_s, self._ack)
        reply.packets += 1
        if reply.answers:
            self._event(at_s, "audio", reply.turn, audio_s)
        audible_s = self.player.arrive(number, at_s, audio_s, pcm)
        if audible_s is not None:
            reply.audible_s = audible_s
        self.changed()

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

    def turn_event(self, at_s: float, kind: str) -> None:
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
        self.changed()

    def _played_out(self, number: int) -> None:
        self.user.due_s = self._timers.pop(("end", number)).when()
        reply, now = self.replies[number], self._loop.time()
        if reply.answers:
            self._event(now, "playback_done", reply.turn, self.player.played_s(number, now))
        self._loop.call_later(self.user.network_s, self.user.server.playback_done, self.session.id, number)

    def _ack(self, number: int) -> None:
        now, due_s = self._loop.time(), self._timers.pop(("ack", number)).when()
        playing = now < self.player.reply_end_s(number)
        if self.replies[number].over and not playing:
            return
        self.user.due_s = due_s
        played_s = self.player.played_s(number, now)
        self.user.server.playback_ack(self.session.id, number, played_s, playing, now + self.user.network_s)
        self._set("ack", number, due_s + self.params.ack_s, self._ack)

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
        self.log.event(at_s, kind, self.session.id, turn, label, value)


class DuplexServer(Protocol):
    """The server of an open microphone. It counts its replies 0, 1, ... in each session. It calls its listener, a
    DuplexUser: `reply_begun`, `audio`, `text`, `reply_done`, `stopped`, `turn_event`, `refused`, `failed` and
    `rejected`."""

    def open(self, session: int, listener: Any) -> None: ...

    def close(self, session: int) -> None: ...

    def says(self, turn: Turn, kind: str, begin_s: float) -> None:
        """Let the microphone hear the speech of `turn` (its `audio_s`, with its pause) if `kind` is "turn", else the
        sound of the turn's event (its `event_s`), from `begin_s` on, by the loop's clock at the user."""
        ...

    def playback_ack(self, session: int, reply: int, played_s: float, playing: bool, at_s: float) -> float: ...

    def playback_done(self, session: int, reply: int) -> None: ...


class DuplexUser(User):
    """The user of one session. `run` goes through all turns; the server calls the other public methods. `pcm`: samples
    of the packet, 16 bits each, if there are any."""

    def __init__(self, session: Session, server: DuplexServer, log: EventLog, params: ClientParams) -> None:
        super().__init__(session, server, log)
        self.params = params
        self._hearing = Hearing(session, self, log, params, self._changed)
        self._sound_end_s = -inf
        self._lost = False
        self._change: asyncio.Future[None] | None = None

    async def run(self, begin_s: float) -> None:
        """Play the whole session, whose user was to come at `begin_s`; a turn that fails ends it."""
        self._arrive(begin_s)
        says, turns = TURN, self.session.turns
        for turn, coming in zip(turns, (*turns[1:], None), strict=True):
            if not self.params.begins(begin_s):
                break
            outcome = await self._turn(turn, says, begin_s, coming is not None)
            point_progress.turn_over()
            self._event(FAILED if outcome == FAILED else "turn_done", turn.turn)
            if outcome == FAILED or coming is None:
                break
            says, begin_s = outcome, self._loop.time()
            if says == TURN:
                begin_s = await self._thought(turn, coming)
        self._hearing.end()
        self._lost = True
        await self._leave(turns[-1].turn)

    def reply_begun(self, reply: int, at_s: float | None = None) -> None:
        self._receive(at_s, self._hearing.begun, reply)

    def text(self, reply: int, tokens: int, at_s: float | None = None) -> None:
        self._receive(at_s, self._hearing.text, reply, tokens)

    def audio(self, reply: int, audio_s: float, at_s: float | None = None, pcm: bytes | None = None) -> None:
        self._receive(at_s, self._hearing.audio, reply, audio_s, pcm)

    def reply_done(self, reply: int, at_s: float | None = None) -> None:
        self._receive(at_s, self._hearing.done, reply)

    def stopped(self, reply: int, at_s: float | None = None) -> None:
        """Drop the rest of a reply that the server has cut."""
        self._receive(at_s, self._hearing.stopped, reply)

    def turn_event(self, kind: str, at_s: float | None = None) -> None:
        """Note that the server reports speech as begun (speech_started), ended (speech_stopped) or a turn
        (committed)."""
        self._receive(at_s, self._hearing.turn_event, kind)

    def failed(self, reason: str, at_s: float | None = None) -> None:
        """Lose the session: the current turn fails, or else the next one at its begin, and the user hangs up. A turn
        whose reply is complete stays so, and is heard out."""
        del reason, at_s  # whoever calls keeps both
        self._lost = True
        self._changed()

    def played_s(self, reply: int, at_s: float) -> float:
        """Return the seconds of a reply that have been heard."""
        return self._hearing.player.played_s(reply, at_s)

    def record(self, tape: Tape) -> None:
        """Write everything heard from now on to `tape` as well."""
        self._hearing.player.tape = tape

    async def _turn(self, turn: Turn, says: str, begin_s: float, more: bool) -> str:
        """Say the turn, as `says` does, and hear the reply. Return FAILED or what the user says next. An interruption
        or a correction is possible only if `more` turns follow, and then happens at once."""
        await self._until(begin_s)
        self._hearing.turn_begins(begin_s)
        self._log.event(begin_s, "turn_start", self.session.id, turn.turn)
        if not self._lost:
            self.due_s = begin_s
            self._send(self.server.says, turn, TURN, begin_s)
        for from_s, to_s in turn.stretches:
            await self._until(begin_s + to_s)
            if not self._lost:
                self._log.event(begin_s + to_s, "user_speech", self.session.id, turn.turn, says, to_s - from_s)
        now, end_s = self._loop.time(), begin_s + (turn.audio_s or 0.0)
        if self._lost:
            self._log.event(max(begin_s, min(end_s, now)), "turn_end", self.session.id, turn.turn)
            return FAILED
        self._log.event(end_s, "turn_end", self.session.id, turn.turn, value=now - end_s)
        self._hearing.turn_ends(end_s)
        self.due_s = end_s
        event = turn.microphone.event if more or turn.microphone.event not in TAKES_FLOOR else None
        if event == "correction":
            await self._until(end_s + (turn.microphone.event_after_s or 0.0))
            if not self._lost and not self._hearing.answered:
                self._event("barge_in", turn.turn, 0.0)
            return FAILED if self._lost else event
        return await self._listen(turn, event, end_s + self.params.turn_timeout_s + (turn.reply_audio_s or 0))

    async def _listen(self, turn: Turn, event: str | None, deadline_s: float) -> str:
        """Hear the reply, with the turn's event in between; returns as `_turn` does."""
        while self._loop.time() < deadline_s and not (self._lost and self._hearing.over_s == inf):
            now, event_s = self._loop.time(), inf
            if event is not None:
                event_s = self._hearing.audible_s + (turn.microphone.event_after_s or 0.0)
            over_s = max(self._hearing.over_s, self._sound_end_s)
            if event is not None and event_s <= now and event_s < over_s:
                self.due_s = event_s
                if event in TAKES_FLOOR:
                    return event
                self._sound(turn, event, event_s)
                event = None
            elif over_s <= now:
                if event in TAKES_FLOOR:
                    self._event("barge_in_missed", turn.turn)
                return TURN
            else:
                await self._wait(min(event_s if event_s < over_s else inf, over_s, deadline_s))
        if not self._lost and isinstance(self.server, Explaining):
            self.server.timed_out(turn)
        return FAILED

    async def _thought(self, turn: Turn, coming: Turn) -> float:
        """Return when the next turn begins: after thinking, which further words of the server put off."""
        while True:
            now = self._loop.time()
            begin_s = now + (coming.think_s or 0.0) if coming.arrival_s is None else max(now, coming.arrival_s)
            before = len(self._hearing.replies)
            while self._loop.time() < begin_s and len(self._hearing.replies) == before and not self._lost:
                await self._wait(begin_s)
            if len(self._hearing.replies) == before or self._lost:
                return begin_s
            deadline_s = self._loop.time() + self.params.turn_timeout_s + (turn.reply_audio_s or 0.0)
            self._lost = await self._listen(turn, None, deadline_s) == FAILED

    def _sound(self, turn: Turn, kind: str, begin_s: float) -> None:
        self._send(self.server.says, turn, kind, begin_s)
        self._sound_end_s = begin_s + (turn.microphone.event_s or 0.0)
        self._loop.call_at(self._sound_end_s, self._sounded, turn, kind, self._sound_end_s)

    def _sounded(self, turn: Turn, kind: str, end_s: float) -> None:
        if not self._lost:
            self._log.event(end_s, "user_speech", self.session.id, turn.turn, kind, turn.microphone.event_s or 0.0)

    def _hear(self, at_s: float | None, handler: Callable[..., object], *args: Any) -> None:
        if not self._lost:
            handler(self._loop.time() if at_s is None else at_s, *args)

    def _changed(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def _wait(self, until_s: float) -> None:
        """Return at `until_s`, or at the next change."""
        self._change = self._loop.create_future()
        timer = self._loop.call_at(until_s, self._changed)
        try:
            await self._change
        finally:
            timer.cancel()

    async def _until(self, t: float) -> None:
        while self._loop.time() < t and not self._lost:
            await self._wait(t)
