"""One user's call: speak, listen, interrupt, think, speak again.

Times are absolute deadlines on the event loop's clock. A turn's latency counts from the *scheduled* end of the user's
turn. The listener hears through `harness.request_tables.playback.Playback`, reports playback every `ack_s`
and interrupts at the time drawn in the trace, counted from the first audio it received.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from harness.client.client_params import ClientParams
from harness.client.user import User
from harness.clocks.clock import VirtualClockLoop
from harness.events import point_progress
from harness.events.log import EventLog
from harness.request_tables.playback import Playback
from workloads.trace import Session, Turn

FAILED, ABORTED, REJECTED = "turn_failed", "turn_aborted", "turn_rejected"
LAST = (FAILED, ABORTED, REJECTED)
"""Events of a turn that ends its session."""


class ListenerGroup(Protocol):
    """The clients of a decode batch, in its order. `kept`: data that `Client.texts` keeps for all of them."""

    listeners: Sequence[Any]
    kept: Any


class StepTokens(Protocol):
    """One more token for each request from `begin` to `end` of a decode batch. `log_keys`: their sessions and turns,
    (n, 2)."""

    @property
    def begin(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def requests(self) -> Sequence[Any]: ...

    @property
    def log_keys(self) -> np.ndarray: ...


class Server(Protocol):
    """The server that a client calls; a Gateway is one, harness.live.endpoints.turn_endpoint.TurnEndpoint another.

    `speech_start`: the user of `turn` begins to speak.

    `commit`: the turn is over. It was scheduled for `end_s`, s on the loop's clock, from where latencies and deadlines
    count.

    `reports`: offers reports of playback to a server that reads them when it needs them. False where each must be sent.

    `playback_ack`: a report of playback that arrives at `at_s`; returns how long, s, the player may stand still before
    the next report tells the server something new.

    `barge_in`: the user speaks over the reply after hearing `played_s` s of it.
    """

    def open(self, session: int, listener: Any) -> None: ...

    def close(self, session: int) -> None: ...

    def speech_start(self, turn: Turn) -> None: ...

    def commit(self, turn: Turn, end_s: float) -> None: ...

    def reports(self, session: int, turn: int, source: "Reports") -> bool: ...

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float: ...

    def playback_done(self, session: int, turn: int) -> None: ...

    def barge_in(self, session: int, played_s: float, /) -> object: ...


@runtime_checkable
class Leaving(Protocol):
    """A server that needs time to let users leave."""

    async def left(self, session: int) -> None:
        """Return when the server knows that the user has hung up."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A server whose client sees why a reply does not come."""

    def timed_out(self, turn: Turn) -> None:
        """Log what is missing: the user of `turn` gives up."""
        ...


class Client(User):
    """The user of one session. `run` goes through all turns; the server calls the other public methods.

    `slots`: each turn acquires one before its user begins, or before it is sent where `params.c_counts` is reply, and
    releases it when the reply is complete, or heard where `params.slot_until` is playback, cut or failed. None: a turn
    needs none.

    `in_background`: no user waits for the replies, so no turn fails for taking long, and `abort` ends the session.
    """

    def __init__(
        self,
        session: Session,
        server: Server,
        log: EventLog,
        params: ClientParams,
        slots: asyncio.Semaphore | None = None,
        in_background: bool = False,
    ) -> None:
        super().__init__(session, server, log)
        self.params = params
        self._listening: Listening | None = None
        self._slots = slots
        self._has_slot = False
        self._in_background = in_background
        self._ended_by: str | None = None
        self._pause: asyncio.Future[None] | None = None
        self._patience: asyncio.TimerHandle | None = None

    async def run(self, begin_s: float) -> None:
        """Play the whole session, whose user was to come at `begin_s`.

        Latencies count from scheduled times. On the wall clock a send may be late; the log keeps the delay. A failed
        turn ends the session, since a person would hang up, and so does the end of the time for new turns.
        """
        self._arrive(begin_s)
        interrupted = False
        for turn in self.session.turns:
            if interrupted:
                begin_s = self._loop.time()
            elif turn is not self.session.turns[0]:
                if not await self._goes_on(turn):
                    break
                begin_s = self._next_start(turn)
            if not self.params.begins(begin_s):
                break
            await self._until(begin_s, until_over=self._in_background)
            if self._ended_by == ABORTED:
                break
            if self.params.c_counts != "reply":
                begin_s = await self._acquire_slot(begin_s)
            if not self.params.begins(begin_s):
                self._release_slot()
                break
            outcome = await self._turn(turn, begin_s)
            if outcome in LAST:
                break
            interrupted = outcome == "barge_in"
        await self._leave(self.session.turns[-1].turn)

    async def _goes_on(self, turn: Turn) -> bool:
        """Wait for the turns that `turn` depends on. Return whether the user goes on to it."""
        del turn
        return True

    def text(self, turn: int, tokens: int, at_s: float | None = None) -> None:
        if self.network_s:  # as `_receive`, by the shortest way: nothing comes as often
            self._loop.call_at(self._loop.time() + self.network_s, self._hear, None, Listening.on_text, turn, tokens)
        else:
            self._hear(at_s, Listening.on_text, turn, tokens)

    @staticmethod
    def texts(group: "ListenerGroup", tokens: "StepTokens") -> None:
        """Tell each listener of one more text token, which is not the first of its reply.

        Such a token only adds a row to the log. In virtual time the rows of all listeners are entered at once, without
        a timer for each.
        """
        one: Client = group.listeners[0]
        loop, log = one._loop, one._log
        delays: _Away | None = group.kept
        if delays is None or delays.cut_short != log.cut_short:
            delays = group.kept = _Away.of(group.listeners, log.cut_short)
        begin, end = tokens.begin, tokens.end
        if delays.network_s is not None and isinstance(loop, VirtualClockLoop) and log.knows("text"):
            log.later(loop, loop.time() + delays.network_s[begin:end], "text", tokens.log_keys, 1)
        else:
            for client, request in zip(group.listeners[begin:end], tokens.requests, strict=True):
                client.text(request.turn, 1)

    def audio(self, turn: int, audio_s: float, at_s: float | None = None) -> None:
        self._receive(at_s, Listening.on_audio, turn, audio_s)

    def reply_done(self, turn: int, at_s: float | None = None) -> None:
        self._receive(at_s, Listening.on_reply_done, turn)

    def failed(self, reason: str, at_s: float | None = None) -> None:
        """Lose the session: the current turn fails, or else the next one at its begin, and the user hangs up. A turn
        whose reply is complete stays so, and is heard out."""
        del reason, at_s  # whoever calls keeps both
        self._end(FAILED)

    def turned_away(self, reason: str) -> None:
        del reason  # the gateway logs it
        self._end(REJECTED)

    def abort(self) -> None:
        """Abort the current turn and hang up: the replies are not wanted any more."""
        self._end(ABORTED)

    def _end(self, outcome: str) -> None:
        self._ended_by = self._ended_by or outcome
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)
        listening = self._listening
        if listening is None or listening.over.done() or (outcome == FAILED and listening.complete):
            return
        listening.over.set_result(self._ended_by)

    def _next_start(self, turn: Turn) -> float:
        """Return when the user begins a later turn: as scheduled, or after thinking, and never before the previous turn
        is over."""
        now = self._loop.time()
        if turn.arrival_s is not None:
            return max(now, turn.arrival_s)
        assert turn.think_s is not None
        return now + turn.think_s

    async def _acquire_slot(self, begin_s: float) -> float:
        """Wait for a slot. Return when the turn begins: at `begin_s`, or when a slot was free."""
        if self._slots is None:
            return begin_s
        waits = self._slots.locked()
        await self._slots.acquire()
        self._has_slot = True
        return self._loop.time() if waits else begin_s

    def _release_slot(self) -> None:
        if self._has_slot:
            assert self._slots is not None
            self._has_slot = False
            self._slots.release()

    async def _turn(self, turn: Turn, begin_s: float) -> str:
        self._log.event(begin_s, "turn_start", self.session.id, turn.turn)
        end_s = begin_s
        if turn.audio_s:
            end_s += turn.audio_s
            if self._ended_by is None:
                self.due_s = begin_s
                self._send(self.server.speech_start, turn)
                await self._until(end_s, until_over=True)
        if self.params.c_counts == "reply" and self._ended_by is None:
            end_s = await self._acquire_slot(end_s)
        now = self._loop.time()
        if self._ended_by is not None:
            # The user stops where the connection does; what was never sent has no lag.
            self._log.event(max(begin_s, min(end_s, now)), "turn_end", self.session.id, turn.turn)
            outcome = self._ended_by
        else:
            self._log.event(end_s, "turn_end", self.session.id, turn.turn, value=now - end_s)
            outcome = await self._listen(turn, end_s)
        self._release_slot()
        if not self._in_background:
            point_progress.turn_over()
        self._event(outcome if outcome in LAST else "turn_done", turn.turn)
        return outcome

    async def _listen(self, turn: Turn, end_s: float) -> str:
        listening = self._listening = Listening(turn, self)
        self.due_s = end_s
        self._send(self.server.commit, turn, end_s)
        if not self._in_background:
            self._wait_for(listening, end_s, turn.reply_audio_s or 0.0)
        try:
            outcome = await listening.over
        finally:
            if self._patience is not None:
                self._patience.cancel()
        listening.stop()
        if outcome in LAST:
            self._log.never(turn.session, turn.turn)
        self._listening = None  # it knows its client: the two would outlive the session, as nothing looks for cycles
        return outcome

    def _give_up(self, listening: "Listening", end_s: float, length_s: float) -> None:
        """Fail the turn, whose reply was to have this length (s): unless a complete one is longer and plays."""
        if listening.over.done():
            return
        if listening.complete and listening.received_s > length_s + ROUNDING_S:
            self._wait_for(listening, end_s, listening.received_s)
            return
        if isinstance(self.server, Explaining):
            self.server.timed_out(listening.turn)
        listening.over.set_result(FAILED)

    def _wait_for(self, listening: "Listening", end_s: float, length_s: float) -> None:
        """Give up `turn_timeout_s` after a reply of this length (s) would have been heard from `end_s` on."""
        until_s = end_s + (self.params.turn_timeout_s + length_s)
        self._patience = self._loop.call_at(until_s, self._give_up, listening, end_s, length_s)

    async def _until(self, t: float, until_over: bool = False) -> None:
        """Wait until `t`, or only until the session is over, as a speaking user does."""
        delay_s = t - self._loop.time()
        if delay_s <= 0 and not isinstance(self._loop, VirtualClockLoop):
            return  # it is late: nobody else first
        if not until_over or delay_s <= 0:
            await asyncio.sleep(max(0.0, delay_s))
            return
        self._pause = self._loop.create_future()
        timer = self._loop.call_later(delay_s, _wake, self._pause)
        try:
            await self._pause
        finally:
            timer.cancel()

    def _hear(self, at_s: float | None, handler: "Callable[..., None]", turn: int, *args: Any) -> None:
        listening = self._listening
        if listening is not None and listening.turn.turn == turn and not listening.over.done():
            handler(listening, self._loop.time() if at_s is None else at_s, *args)


class _Away(NamedTuple):
    """Network delays of a group's clients, s. None where a client has none or does not listen. `cut_short`: number of
    failed turns at the time of making. When it grows, a client may have stopped listening, and this is made again."""

    network_s: np.ndarray | None
    cut_short: int

    @classmethod
    def of(cls, clients: Sequence[Client], cut_short: int) -> "_Away":
        network_s = [client.network_s for client in clients if client._listening is not None]
        together = len(network_s) == len(clients) and all(network_s)
        return cls(np.array(network_s) if together else None, cut_short)


def _wake(pause: "asyncio.Future[None]") -> None:
    if not pause.done():
        pause.set_result(None)


ROUNDING_S = 1e-6
"""[chosen] more than sums of floats are off, and less than an ack's period."""


class Reports:
    """The acks of one reply's playback, one every `every_s` from `begin_s` on. Each states the seconds heard by then.

    Acks have no timers: they are made when needed. `next_s`: when the next ack is sent. `first_s`: when the first
    unread ack was sent or will be.
    """

    def __init__(self, playback: Playback, begin_s: float, every_s: float, network_s: float) -> None:
        self.next_s = self.first_s = begin_s
        self._playback = playback
        self._every_s = every_s
        self._network_s = network_s
        self._unread: list[tuple[float, float, bool]] = []

    def ack(self) -> tuple[float, float, bool]:
        """Make the next ack: its arrival (s), the seconds heard, whether the player runs."""
        now, playback = self.next_s, self._playback
        self.next_s = now + self._every_s
        return now + self._network_s, playback.played(now), now < playback.end_s

    def make(self, until_s: float) -> None:
        """Make all acks sent by `until_s`, before more sound comes, or the end."""
        while self.next_s <= until_s:
            self._unread.append(self.ack())

    def read(self, until_s: float) -> list[tuple[float, float, bool]]:
        """Return the unread reports sent by `until_s`, in order, and mark them as read."""
        self.make(until_s)
        unread, self._unread, self.first_s = self._unread, [], self.next_s
        return unread

    def still_s(self, patience_s: float) -> float:
        """Return when the first ack is sent that finds the player idle for `patience_s`, if no more sound comes."""
        at_s, last_s = self.next_s, self.next_s - self._every_s
        until_s = max(self._playback.end_s, last_s) + patience_s - ROUNDING_S
        while at_s < until_s:
            at_s += self._every_s
        return at_s

    def end(self, now: float) -> None:
        """Send no ack after now."""
        self.make(now)
        self.next_s = math.inf
        if not self._unread:
            self.first_s = math.inf


class Listening:
    """The listener's side of one reply. `over` resolves to how it ended: "played" or "barge_in"."""

    def __init__(self, turn: Turn, client: Client) -> None:
        self.turn = turn
        self.over: asyncio.Future[str] = client._loop.create_future()
        self._client = client
        self._loop = client._loop
        self._playback = Playback()
        self._got_text = False
        self.complete = False
        """The server has ended the reply, which may still play."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reports: Reports | None = None

    @property
    def received_s(self) -> float:
        """Seconds of the reply's sound so far."""
        return self._playback.total_s

    def on_text(self, at_s: float, tokens: int) -> None:
        kind, turn = "text" if self._got_text else "first_text", self.turn
        self._client._log.event(at_s, kind, turn.session, turn.turn, "", tokens)
        self._got_text = True

    def on_audio(self, at_s: float, audio_s: float) -> None:
        self._event("audio", audio_s, at_s)
        playback = self._playback
        first = not playback.packets
        if self._reports is not None:
            self._reports.make(at_s)
        playback.arrive(at_s, audio_s)
        if self.complete and "end" in self._timers:  # it goes on after its end
            self._timers.pop("end").cancel()
            self._set_end()
        if first and playback.packets and self._client.params.playback == "realtime":
            self._report(at_s)
            if self.turn.barge_in_after_s is not None:
                self._timers["cut"] = self._loop.call_at(at_s + self.turn.barge_in_after_s, self._barge_in)

    def on_reply_done(self, at_s: float) -> None:
        self._event("reply_done", at_s=at_s)
        self.complete = True
        if self._client.params.slot_until == "stream":
            self._client._release_slot()
        if not self._playback.packets or self._client.params.playback == "none":
            self._end("played")
        else:
            self._set_end()

    def stop(self) -> None:
        """Stop: nothing more of this reply is wanted."""
        if self._reports is not None:
            self._reports.end(self._loop.time())
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _set_end(self) -> None:
        end_s = max(self._playback.end_s, self._loop.time())
        self._timers["end"] = self._loop.call_at(end_s, self._play_out)

    def _report(self, begin_s: float) -> None:
        """Begin to report playback: from here on the server gets acks, or reads them."""
        client, turn = self._client, self.turn
        every_s = client.params.ack_s
        reports = Reports(self._playback, begin_s + every_s, every_s, client.network_s)
        if client.server.reports(turn.session, turn.turn, reports):
            self._reports = reports
        wake = self._ack if self._reports is None else self._surprise
        self._timers["ack"] = self._loop.call_at(begin_s + every_s, wake)

    def _ack(self) -> None:
        now, playback, client = self._loop.time(), self._playback, self._client
        client.due_s = self._timers["ack"].when()
        at_s, playing = now + client.network_s, now < playback.end_s
        client.server.playback_ack(self.turn.session, self.turn.turn, playback.played(now), playing, at_s)
        self._timers["ack"] = self._loop.call_at(now + client.params.ack_s, self._ack)

    def _surprise(self) -> None:
        """Send the ack that is due, and wake for the next one that could tell the server something new.

        A running player is where the server expects it. One that stands still falls behind.
        """
        reports, due_s, patience_s = self._reports, self._timers["ack"].when(), 0.0
        assert reports is not None
        reports.make(math.nextafter(due_s, 0.0))
        if reports.next_s == due_s:
            at_s, played_s, playing = reports.ack()
            patience_s = self._client.server.playback_ack(self.turn.session, self.turn.turn, played_s, playing, at_s)
        self._timers["ack"] = self._loop.call_at(reports.still_s(patience_s), self._surprise)

    def _barge_in(self) -> None:
        played_s = self._playback.played(self._loop.time())
        self._event("barge_in", played_s)
        self._client.due_s = self._timers["cut"].when()
        self._client._send(self._client.server.barge_in, self.turn.session, played_s)
        self._end("barge_in")

    def _play_out(self) -> None:
        self._event("playback_done", self._playback.total_s)
        if self.turn.barge_in_after_s is not None:
            self._event("barge_in_missed")
        self._client.due_s = self._timers["end"].when()
        self._client._send(self._client.server.playback_done, self.turn.session, self.turn.turn)
        self._end("played")

    def _end(self, outcome: str) -> None:
        self.over.set_result(outcome)
        self.stop()

    def _event(self, kind: str, value: float = math.nan, at_s: float | None = None) -> None:
        t = self._loop.time() if at_s is None else at_s
        self._client._log.event(t, kind, self.turn.session, self.turn.turn, value=value)
