"""A server behind real sockets, as the clients of `harness.client.session` see it.

It speaks the target's dialect: one connection for each session, the user's audio in real time, and events to the
client at the time at which they were read. What a reply cost is logged from what the server says of it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from harness.client.params import ClientParams
from harness.live.dialects import dialect_of
from harness.live.dialects.detect import resolve
from harness.live.dialects.dialect import (
    CLOSE,
    RATE,
    Audio,
    AudioDone,
    Cut,
    Dialect,
    Done,
    Event,
    Heard,
    Started,
    Text,
)
from harness.live.failures import FailureLog
from harness.live.frame_endpoint import FrameEndpoint
from harness.live.line import GOODBYE_S, Line, Wire
from harness.live.microphone import Silence, Sounds, Speech
from harness.live.prompts import words
from harness.live.sends import SendLog
from harness.live.target import TargetParams
from harness.live.text_endpoint import TextEndpoint
from harness.log import EventLog
from harness.metrics.requests import AR_STAGES
from workloads.errors import UserError
from workloads.registry import serves
from workloads.trace import Trace, Turn

TELL_S = 2.0
"""A session whose last reply was cut stays connected so long for what the server tells of it. [chosen]"""


def make_endpoint(
    trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
) -> Endpoint | FrameEndpoint | TextEndpoint:
    """The endpoint that ``trace`` needs at ``target``. Make and ``prepare`` it on the loop that it is to run on."""
    if target.is_text:
        return TextEndpoint(trace, target, log, sends, failures)
    if serves(trace) == "frames":
        return FrameEndpoint(trace, target, log, sends, failures)
    return Endpoint(trace, target, log, sends, failures)


class Endpoint:
    """Implements ``harness.client.session.Server``. Nothing that a client calls blocks or raises."""

    def __init__(
        self, trace: Trace, target: TargetParams, log: EventLog, sends: SendLog, failures: FailureLog
    ) -> None:
        self.trace, self.target = trace, target
        self.log, self.sends, self.failures = log, sends, failures
        self._lines: dict[int, TurnLine] = {}
        self._leaving: set[TurnLine] = set()
        self._wire: Wire
        self._sounds: Sounds
        self._loop = asyncio.get_running_loop()

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and encode all that is going to be said.

        UserError where the target cannot be reached or cannot do what the trace wants.
        """
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        dialect = dialect_of(self.target)
        turns = [turn for session in self.trace.sessions for turn in session.turns]
        why = dialect.cannot(typed=any(not turn.audio_s for turn in turns))
        if why is not None:
            raise UserError(f"dialect {dialect.name}: {why}.")
        self._wire = Wire.of(dialect, "turns", self.log, self.sends, self.failures)
        self._sounds = Sounds(self.trace, dialect, self.target.chunk_ms / 1e3)
        self._sounds.encode()

    def expect(self, params: ClientParams) -> None:
        """After the clock is set: users who come as scheduled connect ``connect_lead_s`` before."""
        if params.c is not None:
            return
        for session in self.trace.sessions:
            arrival_s = session.turns[0].arrival_s
            if arrival_s is not None and params.begins(arrival_s):
                at_s = max(self._loop.time(), arrival_s - self.target.connect_lead_s)
                self._loop.call_at(at_s, self._call, session.id)

    def open(self, session: int, listener: Any) -> None:
        line = self._call(session)
        self.sends.add("session", session, listener.due_s + listener.network_s, self._loop.time())
        line.answer(listener)

    def close(self, session: int) -> None:
        """The user has hung up."""
        line = self._lines.pop(session)
        line.leave_when_told()
        self._keep(line)

    def speech_start(self, turn: Turn, begin_s: float) -> None:
        line = self._lines[turn.session]
        line.speak(turn, begin_s + line.listener.network_s, self._sounds)

    def commit(self, turn: Turn) -> None:
        self._lines[turn.session].commit(turn, self.trace.header.seed)

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> None:
        del turn, at_s
        self._lines[session].ack(played_s, playing, done=False)

    def playback_done(self, session: int, turn: int) -> None:
        del turn
        self._lines[session].played_out()

    def barge_in(self, session: int, heard_s: float) -> None:
        line = self._lines[session]
        if line.interrupt(heard_s) == CLOSE:
            line.goodbye(line.due_s)
            self._keep(line)
            again = self._lines[session] = TurnLine(self._wire, session)
            again.turn = line.turn
            again.connect()
            again.answer(line.listener)

    async def aclose(self) -> None:
        """Hang up whatever is still connected, and wait until the servers know."""
        staying = [line.gone for line in self._leaving]
        if staying:
            await asyncio.wait(staying, timeout=TELL_S + GOODBYE_S)
        lines = [*self._lines.values(), *self._leaving]
        self._lines.clear()
        await asyncio.gather(*(line.leave() for line in lines))

    def _call(self, session: int) -> TurnLine:
        line = self._lines.get(session)
        if line is None:
            line = self._lines[session] = TurnLine(self._wire, session)
            line.connect()
        return line

    def _keep(self, line: TurnLine) -> None:
        """Until its socket is closed."""
        self._leaving.add(line)
        line.gone.add_done_callback(lambda _: self._leaving.discard(line))


class _Reply:
    """What is known of the reply to ``turn``. ``heard_s``: the user cut it after that much; None: has not."""

    __slots__ = (
        "done",
        "heard_s",
        "item",
        "produced",
        "received_s",
        "response",
        "told",
        "transcribed",
        "turn",
    )

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.response: str | None = None
        self.item: str | None = None
        self.received_s = 0.0
        self.heard_s: float | None = None
        self.done = False
        """All of it has been sent."""
        self.produced: tuple[int | None, int | None] = (None, None)
        self.transcribed = False
        """Its text has ended, its audio has not."""
        self.told = False
        """What was heard of it is in the log."""


class TurnLine(Line):
    """One session of turns."""

    def __init__(self, wire: Wire, session: int) -> None:
        super().__init__(wire, session)
        self._dialect: Dialect = wire.dialect
        self._vad = wire.dialect.target.turn_detection == "server"
        self._speech: Speech | None = None
        self._silence: Silence | None = None
        self._speaking: Turn | None = None
        self._reply: _Reply | None = None
        """Of the turn under way."""
        self._awaited = False
        """The reply under way has been asked for and not begun."""
        self._replies: dict[str, _Reply] = {}
        """Those that have begun, by the server's id; the last stays until the next begins."""
        self._leaving = False

    @property
    def due_s(self) -> float:
        """When what the client just did was due here."""
        return self.listener.due_s + self.listener.network_s

    def speak(self, turn: Turn, begin_s: float, sounds: Sounds) -> None:
        """The user of ``turn`` begins at ``begin_s``."""
        assert turn.audio_s is not None
        self.turn = turn.turn
        self._speaking, self._reply = turn, None
        self._awaited = False
        speech = self._speech = Speech(
            sounds.of(turn),
            sounds.chunk_s,
            begin_s,
            begin_s + turn.audio_s,
            self.send,
            self.wire.sends,
            self.session,
        )
        if self._silence is None and self._vad:
            self._silence = Silence(sounds.silence, sounds.chunk_s, self.send, self.wire.sends, self.session)

        def begin(ready_s: float) -> None:
            if self._silence is not None:
                self._silence.stop()
            for message in self._dialect.begin_of_turn():
                self.send(message)
            speech.start(ready_s)

        self.when_ready(begin)

    def commit(self, turn: Turn, seed: int) -> None:
        """The turn is over; its reply is wanted."""
        self.turn = turn.turn
        due_s, speech = self.due_s, self._speech
        self._speech = self._speaking = None
        if self._reply is None or self._reply.turn != turn.turn:
            self._reply, self._awaited = _Reply(turn.turn), True

        def end(ready_s: float) -> None:
            if speech is None:
                text = words(seed, turn.session, turn.turn, turn.input_tokens)
                messages = self._dialect.typed_turn(turn, text)
            else:
                speech.finish()
                messages = self._dialect.end_of_turn(turn)
                if self._silence is not None:
                    self._silence.start(speech.end_s)
            self.say("commit", messages, max(due_s, ready_s))

        self.when_ready(end)

    def ack(self, played_s: float, playing: bool, done: bool) -> None:
        reply = self._reply
        if reply is not None:
            cut = Cut(reply.response, reply.item, played_s, done)
            self.say("ack", self._dialect.ack(cut, playing), self.due_s)

    def played_out(self) -> None:
        """The reply was heard to its end."""
        if self._reply is not None:
            self.ack(self._reply.received_s, playing=False, done=True)
        self.turn += 1

    def interrupt(self, heard_s: float) -> str | None:
        """The user speaks over the reply; CLOSE where only hanging up stops the server."""
        reply = self._reply
        self.turn += 1
        if reply is None or self.over:
            return None
        reply.heard_s = heard_s
        messages = self._dialect.interrupt(Cut(reply.response, reply.item, heard_s, reply.done))
        if isinstance(messages, str):
            return messages
        self.say("interrupt", messages, self.due_s)
        if reply.done and not self._dialect.tells_heard:
            self._tell_heard(reply, self._share(reply), self._loop.time())
        return None

    def leave_when_told(self) -> None:
        """Hang up once the server has said what the last reply cost, if it was cut; at once otherwise."""
        reply = self._reply
        if self.over or not self.ready or reply is None or reply.heard_s is None or reply.told:
            self.goodbye(self.due_s)
            return
        self._leaving = True
        self.on_end()
        if self._vad:  # which would have heard the turn that does not come any more
            cut = Cut(reply.response, reply.item, reply.heard_s, reply.done)
            self.say("interrupt", self._dialect.cancel(cut), self.due_s)
        self._limit = self._loop.call_later(TELL_S, self._go)

    def on_event(self, event: Event, at_s: float) -> None:
        if isinstance(event, Audio):
            reply = self._of(event.response)
            if reply is not None:
                self._hear(reply, event, at_s)
        elif isinstance(event, Text):
            reply = self._of(event.response)
            if reply is not None and reply.heard_s is None:
                self.listener.text(reply.turn, event.tokens, at_s)
        elif isinstance(event, Started):
            self._started(event)
        elif isinstance(event, Done):
            reply = self._of(event.response)
            if reply is not None and not reply.done:
                self._done(reply, event, at_s)
        elif isinstance(event, AudioDone):
            reply = self._of(event.response)
            if reply is not None and reply.transcribed:
                self._end_reply(reply, at_s)
        elif isinstance(event, Heard):
            reply = self._of(event.response)
            if reply is not None:
                self._tell_heard(reply, event.heard, at_s)

    def on_ready(self, at_s: float) -> None:
        self.rate = self.rate or RATE

    def on_end(self) -> None:
        for audio in (self._speech, self._silence):
            if audio is not None:
                audio.stop()

    def _go(self) -> None:
        self.goodbye(self._loop.time())

    def _of(self, response: str | None) -> _Reply | None:
        """The reply that an event is about; a protocol without ids means the one under way."""
        return self._reply if response is None else self._replies.get(response)

    def _started(self, event: Started) -> None:
        reply = self._reply
        if self._awaited and reply is not None:
            self._awaited = False
        elif self._vad and (self._speaking is not None or reply is not None):
            # It has taken a pause for the end, or answers again: its newest word counts.
            reply = self._reply = _Reply(self._speaking.turn if self._speaking is not None else self.turn)
        else:
            return  # nobody asked for it
        reply.response = event.response
        if event.response is not None:
            self._replies = {id: other for id, other in self._replies.items() if not other.done}
            self._replies[event.response] = reply

    def _hear(self, reply: _Reply, event: Audio, at_s: float) -> None:
        seconds = event.size / (2 * (event.rate or self.rate))
        reply.received_s += seconds
        reply.item = event.item
        if reply.heard_s is None:
            self.listener.audio(reply.turn, seconds, at_s)
        else:
            self.wire.log.event(at_s, "late_audio", self.session, reply.turn, value=seconds)

    def _done(self, reply: _Reply, event: Done, at_s: float) -> None:
        reply.produced = event.text_tokens, event.audio_tokens
        for message in self._dialect.receipt(event):
            self.send(message)
        if event.status == "transcribed" and reply.received_s:
            reply.transcribed = True
        elif reply.heard_s is not None:
            reply.done = True
            self._log(at_s, "abort", reply, reply.produced)
            self._tell_heard(reply, event.heard or self._share(reply), at_s)
        elif event.status in ("completed", "incomplete", "transcribed"):
            self._end_reply(reply, at_s)
        elif event.status == "cancelled" and self._vad:
            # Its VAD heard the user go on: what it said is void, and it will answer again.
            reply.done = True
            self._log(at_s, "abort", reply, reply.produced)
            if reply is self._reply:
                self._ask_again()
        else:
            self.lose(f"response {event.status}: {event.reason}".removesuffix(": "), at_s)

    def _end_reply(self, reply: _Reply, at_s: float) -> None:
        reply.done, reply.transcribed = True, False
        self._log(at_s, "finish", reply, reply.produced)
        if reply is not self._reply:
            return
        if self._speaking is not None:
            self._ask_again()
            return
        if not reply.received_s:
            self.turn = reply.turn + 1  # there is nothing to listen to
        self.listener.reply_done(reply.turn, at_s)

    def _ask_again(self) -> None:
        """The reply under way came to nothing, and another will follow."""
        if self._speaking is not None:
            self._reply = None
        else:
            self._reply, self._awaited = _Reply(self.turn), True

    def _share(self, reply: _Reply) -> tuple[int | None, int | None]:
        """What was heard where the server does not say: as much of the tokens as of the audio."""
        assert reply.heard_s is not None
        share = min(1.0, reply.heard_s / reply.received_s) if reply.received_s else 0.0
        text, audio = reply.produced
        return (None if text is None else int(share * text), None if audio is None else int(share * audio))

    def _tell_heard(self, reply: _Reply, heard: tuple[int | None, int | None], at_s: float) -> None:
        """Never more than was produced, whatever a server says."""
        if reply.told:
            return
        reply.told = True
        least = [
            None if said is None or made is None else min(said, made)
            for said, made in zip(heard, reply.produced, strict=True)
        ]
        self._log(at_s, "heard", reply, (least[0], least[1]))
        if self._leaving:
            self._go()

    def _log(self, at_s: float, kind: str, reply: _Reply, tokens: tuple[int | None, int | None]) -> None:
        for stage, count in zip(AR_STAGES, tokens, strict=True):
            if count is not None:
                self.wire.log.event(at_s, kind, self.session, reply.turn, stage, count)
