"""A server behind real sockets, as the clients of `harness.client.session` see it.

It speaks the target's dialect: one connection for each session, the user's audio in real time, and events to the
client at the time at which they were read. What a reply cost is logged from what the server says of it.
"""

import asyncio

from harness.live.endpoints.base_endpoint import LEAVE_S, TELL_S, CallEndpoint, Connection, ConnectionContext
from harness.live.endpoints.dialects import for_turns
from harness.live.endpoints.dialects.detect import resolve
from harness.live.endpoints.dialects.dialect import CLOSE, UNDO, Dialect
from harness.live.endpoints.dialects.events import (
    Audio,
    AudioDone,
    Committed,
    Done,
    Event,
    Item,
    SpeechStopped,
    Started,
    Text,
    TokensPlayed,
)
from harness.live.endpoints.loudness import SILENT
from harness.live.endpoints.microphone import Silence, Speech, SpeechMessages
from harness.live.endpoints.outcome import Facts, outcome
from harness.live.endpoints.prompts import words
from harness.live.endpoints.replies import Replies, Reply
from harness.request_tables.stages import AR_STAGES
from harness.request_tables.wait_parts import HEARD
from workloads.trace import Turn


class _Reply(Reply):
    """The state of the reply to `turn`. `played_s`: seconds played before the user cut it; None: the user has not."""

    __slots__ = ("logged", "played_s", "produced", "transcribed", "turn", "wrote")

    def __init__(self, turn: int) -> None:
        super().__init__()
        self.turn = turn
        self.wrote = False
        self.played_s: float | None = None
        self.produced: tuple[int | None, int | None] = (None, None)
        self.transcribed = False
        """Its text has ended, its audio has not."""
        self.logged = False
        """True where the log has how much of it was played."""


class TurnConnection(Connection):
    """The connection of one session of turns."""

    def __init__(self, context: ConnectionContext, session: int) -> None:
        super().__init__(context, session)
        self._dialect: Dialect = context.dialect
        self._vad = context.dialect.server_vad
        self._speech: Speech | None = None
        self._silence: Silence | None = None
        self._speaking: Turn | None = None
        self._reply: _Reply | None = None
        """Reply to the turn under way."""
        self._awaited = False
        """The reply under way has been asked for and not begun."""
        self._replies = Replies(self._next_reply)
        self._leaving = False

    def speak(self, turn: Turn, begin_s: float, messages: SpeechMessages) -> None:
        """Begin the user's speech of `turn` at `begin_s`."""
        self.turn = turn.turn
        self._speaking, self._reply, self._awaited = turn, None, False
        sends = self.context.sends
        speech = self._speech = messages.speech(turn, begin_s, self.send, sends, self.session)
        if self._silence is None and self._vad:
            self._silence = Silence(messages.silence, messages.chunk_s, self.send, sends, self.session)

        def begin(ready_s: float) -> None:
            if self._silence is not None:
                self._silence.stop()
            for message in self._dialect.begin_of_turn():
                self.send(message)
            speech.start(ready_s)

        self.when_ready(begin)

    def commit(self, turn: Turn, due_s: float, seed: int) -> None:
        """End the turn, which was due here at `due_s`, and ask for its reply."""
        self.turn, speech = turn.turn, self._speech
        self._speech = self._speaking = None
        self.await_reply(turn.turn)
        if self._reply is not None and self._reply.received_s:
            # Its first audio came during the speech, so a time from the end of the speech would mean nothing.
            early_s = self._reply.received_s
            self.context.log.event(self._loop.time(), "early_reply", self.session, turn.turn, value=early_s)

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

    def await_reply(self, turn: int) -> None:
        """Expect the reply to `turn` from now on, unless it has begun already."""
        if self._reply is None or self._reply.turn != turn:
            self._reply, self._awaited = _Reply(turn), True

    def ack(self, played_s: float, playing: bool, due_s: float, done: bool = False) -> None:
        """Report how far the reply has been played; `done`: to its end."""
        reply = self._reply
        if reply is not None:
            self.say("ack", self._dialect.ack(reply.at(played_s, done), playing), due_s)

    def played_out(self) -> None:
        """Report the reply as played to its end."""
        if self._reply is not None:
            self.ack(self._reply.received_s, playing=False, due_s=self.due_s, done=True)
        self.turn += 1

    def interrupt(self, played_s: float) -> str | None:
        """Speak over the reply. Return CLOSE where only hanging up stops the server."""
        reply = self._reply
        self.turn += 1
        if reply is None or self.over:
            return None
        reply.played_s, reply.cut = played_s, True
        if not reply.done:
            self._note_silence(reply, self._loop.time(), whole=False)
        messages = self._dialect.interrupt(reply.at(played_s))
        if isinstance(messages, str):
            return messages
        self.say(UNDO, messages, self.due_s)
        if reply.done and not self._dialect.reports_played:
            self._log_played(reply, self._share(reply), self._loop.time())
        return None

    def leave_when_told(self) -> None:
        """Hang up once the server has stated the cost of the last reply, if it was cut; at once otherwise."""
        reply = self._reply
        if self.over or not self.ready or reply is None or reply.played_s is None or reply.logged:
            self.hang_up(self.due_s)
            return
        self._leaving = True
        self.on_end()
        if self._vad:  # which would have waited for the turn that does not come any more
            self.say(UNDO, self._dialect.cancel(reply.at(reply.played_s)), self.due_s)
        self._limit = self._loop.call_later(TELL_S, self._go)

    def on_event(self, event: Event, at_s: float) -> None:
        if isinstance(event, Audio):
            reply = self._replies.of(event.response, event.item, begins=True)
            if reply is not None:
                self._on_audio(reply, event, at_s)
        elif isinstance(event, Text):
            reply = self._replies.of(event.response, event.item, begins=True)
            if reply is not None:
                reply.wrote = True
                if not reply.cut:
                    self.listener.text(reply.turn, event.tokens, at_s)
        elif isinstance(event, Started):
            self._replies.created(event.response)
        elif isinstance(event, Item):
            self._replies.of(event.response, event.item)
        elif isinstance(event, Done):
            late = event.response is None and event.status == "cancelled"
            reply = self._replies.of(event.response, begins=self._awaited and not late)
            if reply is not None and not reply.done:
                self._done(reply, event, at_s)
        elif isinstance(event, AudioDone):
            reply = self._replies.of(event.response, event.item)
            if reply is not None and reply.transcribed:
                self._end_reply(reply, at_s)
        elif isinstance(event, TokensPlayed):
            reply = self._replies.of(event.response)
            if reply is not None:
                self._log_played(reply, event.played, at_s)

        elif isinstance(event, (SpeechStopped, Committed)) and self._vad:
            turn = self.turn if self._speaking is None else self._speaking.turn
            self.context.log.event(at_s, HEARD, self.session, turn)

    def missing(self) -> str:
        reply = self._reply
        if reply is None or self._awaited:
            return self._dialect.missing(begun=False, spoke=False)
        if reply.transcribed:
            return "response.output_audio.done"
        return self._dialect.missing(begun=True, spoke=bool(reply.received_s or reply.wrote))

    def is_idle(self) -> bool:
        return self._leaving or self._complete

    @property
    def failing(self) -> int:
        """Number of the turn that would fail now: after a complete reply the next one."""
        reply = self._reply
        over = self._complete and reply is not None and reply.turn == self.turn
        return self.turn + 1 if over else self.turn

    @property
    def _complete(self) -> bool:
        """True between a complete reply and the next turn."""
        reply = self._reply
        return reply is not None and reply.done and not reply.cut and self._speaking is None

    def on_end(self) -> None:
        for audio in (self._speech, self._silence):
            if audio is not None:
                audio.stop()

    def _go(self) -> None:
        self.hang_up(self._loop.time())

    def _next_reply(self) -> _Reply | None:
        reply = self._reply
        self._undone = 0  # what was said before it has been answered
        if self._awaited and reply is not None:
            self._awaited = False
        elif self._vad and (self._speaking is not None or reply is not None):
            # It has taken a pause for the end, or answers again: its newest word counts.
            reply = self._reply = _Reply(self._speaking.turn if self._speaking is not None else self.turn)
        else:
            return None  # nobody asked for it
        return reply

    def _on_audio(self, reply: _Reply, event: Audio, at_s: float) -> None:
        seconds = event.seconds
        if not seconds:
            return
        try:
            reply.add(event)
        except ValueError:
            self.fail("garbage", at_s)
            return
        if not reply.cut:
            self.listener.audio(reply.turn, seconds, at_s)
        else:
            self.context.log.event(at_s, "late_audio", self.session, reply.turn, value=seconds)

    def _done(self, reply: _Reply, event: Done, at_s: float) -> None:
        reply.produced = event.text_tokens, event.audio_tokens
        for message in self._dialect.answer(event):
            self.send(message)
        if event.status == "transcribed" and reply.received_s:
            reply.transcribed = True
        elif reply.played_s is not None:
            reply.done = True
            self._log(at_s, "abort", reply, reply.produced)
            self._log_played(reply, event.played or self._share(reply), at_s)
        elif event.status == "cancelled" and self._vad:
            # Its VAD found that the user goes on: what it said is void, and it will answer again.
            reply.done = reply.cut = True
            self._log(at_s, "abort", reply, reply.produced)
            if reply is self._reply:
                self._ask_again()
        else:
            facts = Facts()
            facts.finish, facts.ended = event.finish, True
            facts.output = bool(reply.received_s or reply.wrote)
            if why := outcome(facts):
                self.fail(why, at_s)
            else:
                self._end_reply(reply, at_s)

    def _end_reply(self, reply: _Reply, at_s: float) -> None:
        reply.done, reply.transcribed = True, False
        self._log(at_s, "finish", reply, reply.produced)
        if reply.produced[0]:
            self._log(at_s, "usage", reply, (reply.produced[0], None))
        if reply is not self._reply:
            return
        if self._speaking is not None:
            self._ask_again()
            return
        self._note_silence(reply, at_s, whole=True)
        if not reply.received_s:
            self.turn = reply.turn + 1  # there is nothing to listen to
        self.listener.reply_done(reply.turn, at_s)

    def _ask_again(self) -> None:
        """Ask again: the current reply came to nothing, and another will follow."""
        if self._speaking is not None:
            self._reply = None
        else:
            self._reply, self._awaited = _Reply(self.turn), True

    def _note_silence(self, reply: _Reply, at_s: float, whole: bool) -> None:
        """Log that nobody could hear the reply, if so."""
        level = reply.loudness.silent_dbfs(whole)
        if level is not None:
            self.context.log.event(at_s, SILENT, self.session, reply.turn, value=level)

    def _share(self, reply: _Reply) -> tuple[int | None, int | None]:
        """Return the text and audio tokens played, where the server does not say: the same share as of the audio's
        seconds."""
        assert reply.played_s is not None
        share = min(1.0, reply.played_s / reply.received_s) if reply.received_s else 0.0
        text, audio = reply.produced
        return (None if text is None else int(share * text), None if audio is None else int(share * audio))

    def _log_played(self, reply: _Reply, played: tuple[int | None, int | None], at_s: float) -> None:
        """Log the played tokens, never more than were produced, whatever a server says."""
        if reply.logged:
            return
        reply.logged = True
        least = [
            None if count is None or made is None else min(count, made)
            for count, made in zip(played, reply.produced, strict=True)
        ]
        self._log(at_s, "heard", reply, (least[0], least[1]))
        if self._leaving:
            self._go()

    def _log(self, at_s: float, kind: str, reply: _Reply, tokens: tuple[int | None, int | None]) -> None:
        for stage, count in zip(AR_STAGES, tokens, strict=True):
            if count is not None:
                self.context.log.event(at_s, kind, self.session, reply.turn, stage, count)


class TurnEndpoint(CallEndpoint[TurnConnection]):
    """An endpoint of turns. Implements `harness.client.session.Server`. Calls of a client neither block nor raise."""

    async def prepare(self) -> None:
        """Before time 0: find out the dialect, and encode everything that will be said. UserError where the target
        cannot be reached or cannot do what the trace needs."""
        if self.target.dialect == "auto":
            self.target = await resolve(self.target)
        self._encode(for_turns(self.target, self.trace), "turns")

    def _make(self, session: int) -> TurnConnection:
        return TurnConnection(self._context, session)

    def _hang_up(self, connection: TurnConnection) -> None:
        connection.leave_when_told()

    def speech_start(self, turn: Turn) -> None:
        connection = self._at(turn.session)
        if connection.leaves and not connection.over:
            connection.hang_up(connection.due_s)
            self._keep_until_closed(connection)
            connection = self._call_again(connection)
        connection.speak(turn, connection.due_s, self._speech)

    def commit(self, turn: Turn, end_s: float) -> None:
        connection = self._at(turn.session)
        connection.commit(turn, end_s + connection.listener.network_s, self.trace.header.seed)

    def reports(self, session: int, turn: int, source: object) -> bool:
        return False  # they are messages

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        connection = self._connections[session]
        return self._report(connection, at_s, connection.ack, played_s, playing)

    def playback_done(self, session: int, turn: int) -> None:
        self._connections[session].played_out()

    def barge_in(self, session: int, played_s: float) -> None:
        connection = self._connections[session]
        if connection.interrupt(played_s) == CLOSE:
            connection.hang_up(connection.due_s)
            self._keep_until_closed(connection)
            self._call_again(connection)

    def _at(self, session: int) -> TurnConnection:
        """Return the session's connection for its next turn: a new one where the server has finished with the old."""
        connection = self._connections[session]
        return self._call_again(connection) if connection.finished else connection

    def _call_again(self, connection: TurnConnection) -> TurnConnection:
        again = self._connections[connection.session] = self._make(connection.session)
        again.turn = connection.turn
        again.connect()
        again.attach(connection.listener)
        return again

    async def aclose(self) -> None:
        """Hang up every connection, and wait until the servers know."""
        staying = [connection.closed_future for connection in self._closing]
        if staying:
            await asyncio.wait(staying, timeout=LEAVE_S)
        await super().aclose()
