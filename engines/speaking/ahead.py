"""A turn's prompt as far as it goes, computed while its user speaks on (LiveServe section 3: "current-turn prefill").

Every so many seconds of speech the thinker that has the session's KV is given history and words so far, and the sound
since the last time to encode. Of that nobody is told; the turn itself finds in the prefix cache what it has left there,
in whole blocks. A server knows for how long somebody has spoken, not for how long they will.
What was encoded stays so, even where its KV is lost before the turn comes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rehearsal.engines.core.engine import StageEngine
from rehearsal.engines.speaking.reply import Progress, Reply, ReplyRequest
from rehearsal.workloads.trace import Turn


@dataclass(slots=True)
class _Speech:
    """`encoded_s`: of its sound, by requests that are over; `until_s`: with the newest request as well."""

    turn: Turn
    begin_s: float
    timer: asyncio.TimerHandle | None = None
    encoded_s: float = 0.0
    until_s: float = 0.0
    request: ReplyRequest | None = None
    engine: StageEngine | None = None
    history: list[int] = field(default_factory=list)


class PrefillAhead:
    """One for all sessions. `tokens_per_s`: of speech; `max_tokens`: of a prompt and its first token.

    `thinker(session)`: who has its KV; `prompt(turn, tokens)`: its history, and that with so many tokens of the turn.
    `counters`: prefills that were begun, and those that the end of the turn cut.
    """

    def __init__(
        self,
        every_s: float,
        tokens_per_s: float,
        max_tokens: int,
        thinker: Callable[[int], StageEngine | None],
        prompt: Callable[[Turn, int], tuple[list[int], list[int]]],
    ) -> None:
        self._every_s, self._tokens_per_s, self._max_tokens = every_s, tokens_per_s, max_tokens
        self._thinker, self._prompt = thinker, prompt
        self._speaking: dict[int, _Speech] = {}
        self._begun = 0
        self._loop = asyncio.get_running_loop()
        self.counters = Counter(prefills_ahead=0, prefills_ahead_cut=0)

    def begin(self, turn: Turn) -> None:
        """The user of `turn` begins to speak."""
        self.end(turn.session)
        speech = self._speaking[turn.session] = _Speech(turn, self._loop.time())
        self._again(speech)

    def end(self, session: int, history: list[int] | None = None) -> float:
        """The user has stopped, or gone. Returns how much of the sound need not be encoded any more, s, where the turn
        follows `history`."""
        speech = self._speaking.pop(session, None)
        if speech is None:
            return 0.0
        assert speech.timer is not None
        speech.timer.cancel()
        self._take(speech)
        if speech.request is not None:
            assert speech.engine is not None
            speech.engine.abort(speech.request)
            self.counters["prefills_ahead_cut"] += 1
        return speech.encoded_s if speech.history == history else 0.0

    def tokens(self, seconds: float) -> int:
        """Whole tokens of so much speech."""
        return int(seconds * self._tokens_per_s + 1e-9)

    def _again(self, speech: _Speech) -> None:
        speech.timer = self._loop.call_later(self._every_s, self._prefill, speech)

    def _take(self, speech: _Speech) -> None:
        """Count a request that is over: it has its token."""
        if speech.request is not None and speech.request.output:
            speech.encoded_s, speech.request = speech.until_s, None

    def _prefill(self, speech: _Speech) -> None:
        turn, said_s = speech.turn, self._loop.time() - speech.begin_s
        self._again(speech)
        self._take(speech)
        engine = self._thinker(turn.session)
        history, prompt = self._prompt(turn, self.tokens(said_s))
        if speech.request is not None or engine is None or len(prompt) >= self._max_tokens:
            return
        if speech.history != history:  # of a reply that has been cut meanwhile
            speech.history, speech.encoded_s = history, 0.0
        reply = Reply(turn, prompt, 0, 1, 0, 0, Progress(False, 0))
        speech.request, speech.engine, speech.until_s = (
            reply.request(
                f"ahead.{self._begun}",
                prompt,
                1,
                audio_s=said_s - speech.encoded_s,
                encoded_at=len(history) + self.tokens(speech.encoded_s),
                silent=True,
            ),
            engine,
            said_s,
        )
        self._begun += 1
        self.counters["prefills_ahead"] += 1
        engine.submit(speech.request)
