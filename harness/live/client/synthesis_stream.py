"""Speech synthesis over WebSockets: one connection a session, the words of its replies as a model would write them."""

from typing import cast

from harness.live.client.connection import ConnectionContext
from harness.live.client.prompts import spoken_words
from harness.live.client.turn_connection import TurnConnection
from harness.live.client.turn_endpoint import TurnEndpoint
from harness.live.dialects.detect import resolve
from harness.live.dialects.synthesis import Synthesis
from workloads.trace import Turn


class SynthesisStreamEndpoint(TurnEndpoint):
    """Implements `harness.client.session.Server`. Nothing that a client calls blocks or raises."""

    async def prepare(self) -> None:
        """Before time 0. UserError where the target cannot be reached."""
        self.target = await resolve(self.target)
        dialect = Synthesis(self.target)
        self._context = ConnectionContext.of(dialect, "turns", self.log, self.sends, self.failures)

    def _make(self, session: int) -> TurnConnection:
        return SynthesisConnection(self._context, session)

    def speech_start(self, turn: Turn) -> None:
        """Nothing is sent: a server of speech synthesis does not listen."""

    def playback_ack(self, session: int, turn: int, played_s: float, playing: bool, at_s: float) -> float:
        """Nobody wants to know."""
        return 0.0


class SynthesisConnection(TurnConnection):
    """One session's utterances."""

    def commit(self, turn: Turn, due_s: float, seed: int) -> None:
        """Say the reply of `turn`, which was to begin here at `due_s`: at once, or word by word."""
        self.turn = turn.turn
        self.await_reply(turn.turn)
        text = spoken_words(seed, turn)
        dialect = cast(Synthesis, self.context.dialect)
        pieces, gap_s = dialect.pieces(text), 1 / (dialect.target.words_per_s or float("inf"))

        def say(k: int, begin_s: float) -> None:
            while k < len(pieces):
                at_s = begin_s + k * gap_s
                if at_s > self._loop.time():
                    self._loop.call_at(at_s, say, k, begin_s)
                    return
                self.say("text", [pieces[k]], at_s)
                k += 1
            self.say("commit", [dialect.flush()], begin_s + (k - 1) * gap_s)

        self.when_ready(lambda ready_s: say(0, max(due_s, ready_s)))
