"""A server that listens all the time, behind real sockets, as the users of `harness.client.duplex_user` see it.

One connection and one open microphone for each session; what comes back is decoded and heard, and not only counted.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np

from harness.client.duplex_player import audible
from harness.client.duplex_user import TURN
from harness.live.endpoints.base_endpoint import CallEndpoint, Connection, ConnectionContext
from harness.live.endpoints.call_recorder import LONGEST_S, MINUTES, CallRecorder
from harness.live.endpoints.dialects import for_open_microphone
from harness.live.endpoints.dialects.detect import resolve
from harness.live.endpoints.dialects.dialect import UNDO, Dialect
from harness.live.endpoints.dialects.events import (
    Audio,
    Cleared,
    Committed,
    Done,
    Event,
    Item,
    SpeechStarted,
    SpeechStopped,
    Started,
    Text,
    TokensPlayed,
)
from harness.live.endpoints.logs import SendLog
from harness.live.endpoints.loudness import SILENT
from harness.live.endpoints.outcome import Facts, outcome
from harness.live.endpoints.replies import Replies, Reply
from harness.live.endpoints.transport.limits import MOST_REPLIES, Violation
from harness.records.saved_calls import CALL
from harness.request_tables.stages import AR_STAGES
from workloads.columns.duplex_events import TAKES_FLOOR
from workloads.generators.content import event_pcm, pcm_for
from workloads.trace import Trace, Turn

KEPT_BYTES = 2 * 2**30
PREPARE_S = 60.0
"""Sound made before the run: at most this length and this time; the rest is made when it begins, which takes some ms.
[chosen]"""


class Sounds:
    """The sound of users and of their surroundings in `trace`, int16, shape (samples,), at `rate` samples/s."""

    def __init__(self, trace: Trace, rate: int) -> None:
        self._trace, self._rate = trace, rate
        self._made: dict[tuple[int, int, bool], np.ndarray] = {}

    def prepare(self) -> None:
        """Make the sounds within the limits of memory and time. UserError when a recording is missing or has
        changed."""
        begun, kept = time.monotonic(), 0
        for session in self._trace.sessions:
            for turn in session.turns:
                # An event that takes the floor is the next turn, and no sound of its own.
                for is_turn in (True,) if turn.microphone.event in (None, *TAKES_FLOOR) else (True, False):
                    made = self._make(turn, is_turn)
                    self._made[turn.session, turn.turn, is_turn] = made
                    kept += made.nbytes
                    if kept > KEPT_BYTES or time.monotonic() - begun > PREPARE_S:
                        return

    def of(self, turn: Turn, is_turn: bool) -> np.ndarray:
        """Return its speech, or the sound of its event."""
        made = self._made.get((turn.session, turn.turn, is_turn))
        return self._make(turn, is_turn) if made is None else made

    def _make(self, turn: Turn, is_turn: bool) -> np.ndarray:
        pcm = (pcm_for if is_turn else event_pcm)(self._trace, turn, self._rate)
        seconds = (turn.audio_s if is_turn else turn.microphone.event_s) or 0.0
        return np.frombuffer(b"".join(pcm), "<i2")[: round(seconds * self._rate)]


@dataclass(eq=False)
class OpenMicrophone:
    """The microphone of one session, open from `begin_s` on. `send` takes a message; times on the loop's clock.

    Packets have one length, silence among them, and sounds are mixed in from the very sample at which they begin.
    Packet k is due when it has been captured, at the microphone's begin + (k + 1) packets.
    """

    dialect: Dialect
    chunk_s: float
    send: Callable[[bytes], None]
    sends: SendLog
    session: int
    begin_s: float
    tape: CallRecorder | None = None

    def __post_init__(self) -> None:
        self._rate = self.dialect.input_rate
        self._samples = max(1, round(self.chunk_s * self._rate))
        self._chunk_s = self._samples / self._rate
        self._silent = bytes(2 * self._samples)
        self._silence = self.dialect.append(self._silent)
        self._loop = asyncio.get_running_loop()
        self._sounds: list[tuple[int, np.ndarray]] = []
        self._floor_s = self.begin_s
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, ready_s: float) -> None:
        """Send the due packets and go on. Packets captured before the session was ready are late from `ready_s`."""
        self._floor_s = max(self.begin_s, ready_s)
        self._say()

    def hear(self, sound: np.ndarray, begin_s: float) -> None:
        """Hear `sound` from `begin_s` on, without the part that should have been sent by now."""
        self._sounds.append((round((begin_s - self.begin_s) * self._rate), sound))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _say(self) -> None:
        self._timer = None
        now = self._loop.time()
        while (due_s := self.begin_s + (self._next + 1) * self._chunk_s) <= now:
            pcm = self._captured(self._next * self._samples)
            self.send(self._silence if pcm is self._silent else self.dialect.append(pcm))
            now = self._loop.time()
            self.sends.add("audio", self.session, max(due_s, self._floor_s), now)
            if self.tape is not None:
                self.tape.heard(due_s - self._chunk_s, pcm)
            self._next += 1
        self._timer = self._loop.call_at(due_s, self._say)

    def _captured(self, begin: int) -> bytes:
        if not self._sounds:
            return self._silent
        end = begin + self._samples
        mixed = np.zeros(self._samples, np.int32)
        for at, sound in self._sounds:
            here = sound[max(0, begin - at) : max(0, end - at)]
            start = max(0, at - begin)
            mixed[start : start + len(here)] += here
        self._sounds = [(at, sound) for at, sound in self._sounds if at + len(sound) > end]
        return np.clip(mixed, -32768, 32767).astype("<i2").tobytes()


class _Reply(Reply):
    """A reply of the server. `first_s`, `last_s`: when its first and last sound came from the server. `over`: it will
    say no more, or is ignored. `rest`: the first bytes of an incomplete sample."""

    __slots__ = ("first_s", "last_s", "number", "over", "rest")

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.rest, self.over = number, b"", False
        self.first_s, self.last_s = nan, -inf


class DuplexConnection(Connection):
    """The connection of one session. The listener is a `harness.client.duplex_user.DuplexUser`."""

    def __init__(self, context: ConnectionContext, session: int, sounds: Sounds, chunk_s: float) -> None:
        super().__init__(context, session)
        self._sounds, self._chunk_s = sounds, chunk_s
        self._microphone: OpenMicrophone | None = None
        self._replies: list[_Reply] = []
        self._of = Replies(self._begin_reply)
        self._at_s = nan

    def begin(self, begin_s: float, tape: CallRecorder | None) -> None:
        """Begin: the user is there."""
        context = self.context
        if tape is not None:
            self.listener.record(tape)
        self._microphone = OpenMicrophone(
            context.dialect, self._chunk_s, self.send, context.sends, self.session, begin_s, tape
        )
        self.when_ready(self._microphone.start)

    def hear(self, turn: Turn, kind: str, begin_s: float) -> None:
        """Let the microphone hear the user of `turn`, or its event, from `begin_s` on."""
        assert self._microphone is not None
        self._microphone.hear(self._sounds.of(turn, kind == TURN), begin_s)
        if kind != TURN:
            self._loop.call_at(begin_s + (turn.microphone.event_s or 0.0), self._sounded, turn)
            return
        self.turn = turn.turn
        *pauses, (_, length_s) = turn.stretches
        for _, to_s in pauses:
            self._loop.call_at(begin_s + to_s, self._fall_silent, turn, False)
        self._loop.call_at(begin_s + length_s, self._fall_silent, turn, True)

    def ack(self, number: int, played_s: float, playing: bool, due_s: float) -> None:
        """Report how far that reply has been played."""
        self._ack(self._replies[number], played_s, playing, due_s)

    def played_out(self, number: int) -> None:
        """Report that reply as played to its end."""
        reply = self._replies[number]
        reply.over = True
        self._ack(reply, reply.received_s, False, self._loop.time(), done=True)

    def on_event(self, event: Event, at_s: float) -> None:
        self._at_s = at_s
        if isinstance(event, Audio):
            if (reply := self._of.of(event.response, event.item, begins=True)) is not None:
                self._on_audio(reply, event, at_s)
        elif isinstance(event, Text):
            if (reply := self._of.of(event.response, event.item, begins=True)) is not None:
                self.listener.text(reply.number, event.tokens, at_s)
        elif isinstance(event, Started):
            self._of.created(event.response)
        elif isinstance(event, Item):
            self._of.of(event.response, event.item)
        elif isinstance(event, Done):
            if (reply := self._of.of(event.response, begins=event.response is not None)) is not None:
                self._done(reply, event, at_s)
        elif isinstance(event, (Cleared, TokensPlayed)):
            if (reply := self._of.of(event.response)) is not None:
                self._stop(reply, at_s)
        elif isinstance(event, SpeechStarted):
            self.listener.turn_event("speech_started", at_s)
            if self.context.dialect.speech_stops and self._replies:
                self._stop(self._replies[-1], at_s)
        elif isinstance(event, SpeechStopped):
            self.listener.turn_event("speech_stopped", at_s)
        elif isinstance(event, Committed):
            self.listener.turn_event("committed", at_s)

    def missing(self) -> str:
        begun = [reply for reply in self._replies[-1:] if not reply.done]
        return self.context.dialect.missing(bool(begun), any(reply.received_s for reply in begun))

    def on_end(self) -> None:
        if self._microphone is not None:
            self._microphone.close()
        for reply in self._replies:
            self._log_sent(reply)

    def _fall_silent(self, turn: Turn, ends_turn: bool, left: float = 1.0) -> None:
        if not self.over:
            for message in self.context.dialect.silence(turn, ends_turn, left):
                self.send(message)

    def _sounded(self, turn: Turn) -> None:
        """End a sound outside the turn. Whatever the server takes it for, only the rest of the reply answers it."""
        left = 1.0
        if self._replies and turn.reply_audio_s:
            played_s = self.listener.played_s(self._replies[-1].number, self._loop.time())
            left = max(0.0, 1 - played_s / turn.reply_audio_s)
        self._fall_silent(turn, True, left)

    def _begin_reply(self) -> _Reply:
        if len(self._replies) == MOST_REPLIES:
            raise Violation(f"more than {MOST_REPLIES:,} replies in a session")
        self._undone = 0  # what was said before it has been answered
        reply = _Reply(len(self._replies))
        self._replies.append(reply)
        self.listener.reply_begun(reply.number, self._at_s)
        return reply

    def _on_audio(self, reply: _Reply, event: Audio, at_s: float) -> None:
        try:
            data = reply.rest + event.bytes()
        except ValueError:
            self.fail("garbage", at_s)
            return
        whole = len(data) // event.format.frame * event.format.frame
        pcm, reply.rest, seconds = event.format.pcm(data[:whole]), data[whole:], event.seconds
        if not seconds:
            return
        reply.add(event)
        if audible(seconds, pcm):
            reply.first_s = at_s if reply.last_s == -inf else reply.first_s
            reply.last_s = at_s
        self.listener.audio(reply.number, seconds, at_s, pcm)

    def _done(self, reply: _Reply, event: Done, at_s: float) -> None:
        if reply.done:
            return
        reply.done = True
        for message in self.context.dialect.answer(event):
            self.send(message)
        self._log_sent(reply)
        cut = event.status == "cancelled"
        facts = Facts()
        facts.finish, facts.ended, facts.output = event.finish, True, True  # a false start may have none
        if not cut and (why := outcome(facts)):
            self.fail(why, at_s)
            return
        level = None if cut or reply.cut else reply.loudness.silent_dbfs()
        if level is not None:
            self.context.log.event(at_s, SILENT, self.session, self.turn, str(reply.number), level)
        produced = event.text_tokens, event.audio_tokens
        for stage, tokens in zip(AR_STAGES, produced, strict=True):
            if tokens is not None:
                kind = "abort" if cut else "finish"
                self.context.log.event(at_s, kind, self.session, reply.number, stage, tokens)
        if cut:
            self._stop(reply, at_s)
        elif not reply.over:
            self.listener.reply_done(reply.number, at_s)

    def _stop(self, reply: _Reply, at_s: float) -> None:
        """Let the player drop the rest of the reply, and report to the server how far it came."""
        if reply.over:
            return
        reply.over = reply.cut = True
        played_s = self.listener.played_s(reply.number, at_s)
        self.listener.stopped(reply.number, at_s)
        messages = self.context.dialect.interrupt(reply.at(played_s))
        if isinstance(messages, list):
            self.say(UNDO, messages, at_s)

    def _ack(self, reply: _Reply, played_s: float, playing: bool, due_s: float, done: bool = False) -> None:
        self.say("ack", self.context.dialect.ack(reply.at(played_s, done), playing), due_s)

    def _log_sent(self, reply: _Reply) -> None:
        """Log the reply's sound as it came from the server, from its first packet to its last."""
        if reply.last_s > -inf:
            length_s = reply.last_s - reply.first_s
            label, reply.last_s = str(reply.number), -inf
            self.context.log.event(reply.first_s + length_s, "server_speech", self.session, self.turn, label, length_s)


class DuplexEndpoint(CallEndpoint[DuplexConnection]):
    """An endpoint of open microphones. Implements `harness.client.duplex_user.DuplexServer`. Calls of a user neither
    block nor raise."""

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and make the sound of all calls. UserError where the target cannot be
        reached or does not detect turns itself."""
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        dialect = for_open_microphone(self.target)
        self._speak_in(dialect, "turns")
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
        return self._report(connection, at_s, connection.ack, reply, played_s, playing)

    def playback_done(self, session: int, reply: int) -> None:
        if session in self._connections:
            self._connections[session].played_out(reply)

    def save(self, folder: Path) -> None:
        """Write the recorded calls."""
        for session, tape in self._tapes.items():
            tape.save(folder / f"{CALL}{session}.flac")

    def _make(self, session: int) -> DuplexConnection:
        return DuplexConnection(self._context, session, self._sounds, self.target.chunk_ms / 1e3)
